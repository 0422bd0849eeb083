//! A build: a sandbox whose programs are root, each step in it, and the layer that is left.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::task::spawn_blocking;

use super::super::answers::fault;
use super::super::answers::refusal;
use super::super::builds::Templates;
use super::super::caller::Caller;
use super::super::holding::Hold;
use super::super::identity::Identity;
use super::super::lifecycle::Reason;
use super::super::living::Living;
use super::super::template::Record;
use super::super::template::Template;
use super::super::template::no_template;
use super::super::wanted::Reach;
use super::super::window::Next;
use super::copying::HAS_USERS;
use super::debian::DEBIAN;
use super::image::Wish;
use super::progress::{Lines, Log, Wanted};
use super::shell::{
    Shell, advised, as_root, check_variables, ended, failed, told, told_path, with_roots,
};
use super::{MAPPED, resident};
use crate::protocol::{
    BuildFrom, BuildPlan, BuildStep, CODE_INTERPRETER, CreateAsk, End, Kind, Refusal, StartAsk,
    TEMPLATES,
};

/// The longest time of a build, seconds.
const BUILT_WITHIN_S: u64 = 3_600;
/// The longest time for a program to be ready.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// The most layers of a template, of which each sandbox mounts all.
const LAYERS_MAX: usize = 8;
/// The bytes of an upload that are read at once.
const BLOCK_BYTES: usize = 64 * 1024;
const SIGKILL: u8 = 9;
/// The template where none is named.
const TEMPLATE: &str = "base";
/// The beginning of the names of templates where images are named.
const OWN: &str = "atoll/";
/// The step after the last.
const FINALIZE: &str = "finalize";

impl Templates {
    /// Builds a template.
    pub(super) async fn build(
        self: &Arc<Self>,
        caller: &Caller,
        id: &str,
        wanted: &Wanted,
        plan: BuildPlan,
        log: &Log,
    ) -> Result<(), Refusal> {
        log.step(
            "base",
            &format!("Building {} for {}", wanted.name, caller.tenant),
        );
        // Until it is a template's, or is not to be one.
        let hold = self.layers.hold_layers();
        let base = self.base_of(caller, id, &plan.from, log, &hold).await?;
        hold.add(&base)?;
        let digest = self.digest_of(id, &base, &plan).await?;
        if !plan.force {
            let all = self.catalogue.all_templates()?;
            let is_same =
                |one: &Template| one.tenant == wanted.tenant && one.record.digest == digest;
            if let Some(same) = all.into_iter().find(is_same) {
                log.line("the same was built before: CACHED", false);
                hold.add(&same.record)?;
                let record = Record {
                    cpus: wanted.cpus,
                    memory_mib: wanted.memory_mib,
                    ..same.record
                };
                return self.keep_template(id, wanted, record).await;
            }
        }
        let of_host = usize::from(base.host.is_some());
        if base.layers.len() >= LAYERS_MAX + of_host {
            let what = format!("a template has {LAYERS_MAX} layers at most");
            return Err(Refusal::new(Kind::Invalid, what)
                .advise("begin with an earlier template, and carry out all the steps on that"));
        }
        let base = with_roots(base, &plan.steps);
        let living = self.begin_build(caller, id, wanted, &base, None).await?;
        let carried = self.all_steps(&living, id, &plan, &base, log).await;
        let carried = carried.and_then(|shell| {
            check_variables(&shell.environment)?;
            Ok(shell)
        });
        if carried.is_err() {
            let why = Reason::Build("the build has failed");
            self.sandboxes.end(&living, why).await;
        }
        let shell = carried?;
        log.step(FINALIZE, "Keeping the layer");
        let left = self.leave(&living, "the template is built", &hold).await?;
        let record = self.layer_of(left, &base, &hold).await?;
        let record = Record {
            environment: shell.environment,
            user: shell.user,
            directory: shell.directory,
            start: plan.start.or(base.start),
            ready: plan.ready.or(base.ready),
            cpus: wanted.cpus,
            memory_mib: wanted.memory_mib,
            digest,
            ..record
        };
        self.keep_template(id, wanted, record).await?;
        log.line("Build finished", false);
        Ok(())
    }

    /// Returns the record of a shipped template: the host's system alone, with a layer that templates
    /// share for as long as that is the same.
    pub(super) async fn host_record(
        self: &Arc<Self>,
        named: &str,
        hold: &Arc<Hold>,
    ) -> Result<Record, Refusal> {
        let is_interpreter = named == CODE_INTERPRETER;
        let (own, hold) = (Arc::clone(self), Arc::clone(hold));
        let made = spawn_blocking(move || {
            let digest = own.server.engine.host_digest();
            let Some(digest) = digest.map_err(|failure| refusal(&failure))? else {
                return Ok((Vec::new(), None));
            };
            let all = own.catalogue.all_templates()?;
            let same = all.iter().map(|one| &one.record);
            let mut same = same.filter(|one| one.host.as_ref() == Some(&digest));
            let there = same.find_map(|one| one.layers.last());
            let layer = match there {
                Some(layer) => layer.clone(),
                None => {
                    let id = hold.fresh()?;
                    let made = own.server.engine.make_host_layer(&own.layers.layer(&id));
                    made.map_err(|failure| refusal(&failure))?;
                    id
                }
            };
            Ok((vec![layer], Some(digest)))
        });
        let made: Result<_, Refusal> = made.await.map_err(|error| fault(&error)).flatten();
        let (layers, host) = made?;
        Ok(Record {
            layers,
            host,
            over_host: true,
            is_interpreter,
            user: resident(),
            digest: if is_interpreter { named } else { TEMPLATE }.to_owned(),
            ..Record::default()
        })
    }

    /// Finds what a build begins with.
    async fn base_of(
        self: &Arc<Self>,
        caller: &Caller,
        id: &str,
        from: &BuildFrom,
        log: &Log,
        hold: &Arc<Hold>,
    ) -> Result<Record, Refusal> {
        match from {
            BuildFrom::Host => self.host_record(TEMPLATE, hold).await,
            BuildFrom::Template(named) if TEMPLATES.contains(&&**named) => {
                self.host_record(named, hold).await
            }
            BuildFrom::Template(named) if named == DEBIAN => self.debian(caller, log, hold).await,
            BuildFrom::Template(named) => self.own_record(caller, named),
            BuildFrom::Image { name, login } => {
                if let Some((_, shipped)) = MAPPED.iter().find(|(image, _)| image == name) {
                    log.line(&format!("{name} is the shipped template {shipped}"), false);
                    return self.host_record(shipped, hold).await;
                }
                if name == DEBIAN {
                    return self.debian(caller, log, hold).await;
                }
                if let Some(own) = name.strip_prefix(OWN) {
                    return match TEMPLATES.contains(&own) {
                        true => self.host_record(own, hold).await,
                        false => self.own_record(caller, own),
                    };
                }
                let wish = Wish {
                    caller,
                    image: name,
                    login: login.as_deref(),
                    layout: None,
                };
                self.import(&wish, log, hold).await
            }
            BuildFrom::Layout { upload, name } => {
                let file = self.upload_place(id, upload);
                if !file.is_file() {
                    let what = format!("the layout {upload} was not uploaded");
                    return Err(Refusal::new(Kind::NotFound, what));
                }
                let wish = Wish {
                    caller,
                    image: name.as_deref().unwrap_or_default(),
                    login: None,
                    layout: Some(&file),
                };
                self.import(&wish, log, hold).await
            }
        }
    }

    fn own_record(&self, caller: &Caller, named: &str) -> Result<Record, Refusal> {
        let found = self.catalogue.template_named(&caller.tenant, named)?;
        found
            .map(|found| found.record)
            .ok_or_else(|| no_template(named))
    }

    /// Makes the sandbox of a build.
    pub(super) async fn begin_build(
        self: &Arc<Self>,
        caller: &Caller,
        id: &str,
        wanted: &Wanted,
        base: &Record,
        reach: Option<Reach>,
    ) -> Result<Arc<Living>, Refusal> {
        let template = Template {
            id: id.to_owned(),
            tenant: caller.tenant.clone(),
            name: wanted.name.clone(),
            created_ms: 0,
            record: Record {
                start: None,
                ready: None,
                ..base.clone()
            },
        };
        let life = self
            .server
            .configuration
            .quota
            .timeout_s
            .min(BUILT_WITHIN_S);
        let ask = CreateAsk {
            template: wanted.name.clone(),
            timeout_s: Some(life),
            cpus: wanted.cpus,
            memory_mib: wanted.memory_mib,
            metadata: BTreeMap::from([("atoll.build".to_owned(), wanted.name.clone())]),
            ..CreateAsk::default()
        };
        let shipped = template.id.clone();
        let identity = Identity {
            reach,
            is_build: true,
            ..Identity::new(&ask, shipped, base.begun())?.on(Some(template))
        };
        self.sandboxes.create_as(caller, None, ask, identity).await
    }

    /// Carries out the steps; returns what they have set.
    async fn all_steps(
        self: &Arc<Self>,
        living: &Arc<Living>,
        id: &str,
        plan: &BuildPlan,
        base: &Record,
        log: &Log,
    ) -> Result<Shell, Refusal> {
        let has_bash = living.files.stat("/bin/bash").await.is_ok();
        let mut shell = Shell {
            program: if has_bash { "/bin/bash" } else { "/bin/sh" },
            user: base.user.clone(),
            directory: base.directory.clone(),
            environment: base.environment.clone(),
        };
        for (at, step) in plan.steps.iter().enumerate() {
            let number = (at + 1).to_string();
            log.step(&number, &told(step));
            self.step(living, id, step, &mut shell, log).await?;
        }
        if let Some(start) = &plan.start {
            log.step(FINALIZE, &format!("START {start}"));
            let started = self
                .programs
                .start(living, shell.ask(start), log.by.clone());
            // Nobody reads it: it is not held up by that.
            let program = started.await.map(|(program, _)| program)?;
            if let Some(ready) = &plan.ready {
                let ready = shell.ask(ready);
                let is_ready = self
                    .programs
                    .wait_ready(living, &ready, &log.by, READY_WITHIN);
                tokio::select! {
                    ready = is_ready => ready?,
                    why = failed(&program) => return Err(why),
                }
            } else if let Some(end) = program.window.over().filter(|end| *end != End::Exited(0)) {
                let what = format!("the start command has failed: {}", ended(&end));
                return Err(Refusal::new(Kind::Invalid, what));
            }
        }
        Ok(shell)
    }

    async fn step(
        self: &Arc<Self>,
        living: &Arc<Living>,
        id: &str,
        step: &BuildStep,
        shell: &mut Shell,
        log: &Log,
    ) -> Result<(), Refusal> {
        match step {
            BuildStep::Run { command, user } => {
                let mut ask = shell.ask(command);
                ask.user = user.clone().or(ask.user);
                let ran = self.run_logged(living, ask, None, log).await;
                let network = self.server.configuration.network();
                ran.map_err(|refusal| advised(refusal, command, network))
            }
            BuildStep::Environment(variables) => {
                self.set_variables(living, variables, shell, log).await
            }
            BuildStep::User(user) => {
                shell.user.clone_from(user);
                Ok(())
            }
            BuildStep::Directory(directory) => {
                let at = shell.place(&shell.expanded(directory));
                // At the root it is made ahead, and nobody's where nothing is in it.
                let is_at_root = Path::new(&at).parent() == Some(Path::new("/"));
                let is_there = match is_at_root {
                    true => "[ -n \"$(ls -A \"$1\" 2>/dev/null)\" ]",
                    false => "[ -d \"$1\" ]",
                };
                let script = format!(
                    "{HAS_USERS}{is_there} || {{ mkdir -p \"$1\" && \
                     {{ ! has_users || chown \"$2\" \"$1\"; }}; }}"
                );
                let words = ["-c", &script, "sh", &at, &shell.user];
                let ask = as_root(words.map(str::to_owned).to_vec(), shell);
                self.run_logged(living, ask, None, log).await?;
                shell.directory = Some(at);
                Ok(())
            }
            BuildStep::Copy { .. } => self.copy(living, id, step, shell, log).await,
        }
    }

    async fn set_variables(
        self: &Arc<Self>,
        living: &Arc<Living>,
        variables: &BTreeMap<String, String>,
        shell: &mut Shell,
        log: &Log,
    ) -> Result<(), Refusal> {
        let all = variables.iter();
        let all = all.map(|(name, value)| (name.clone(), shell.expanded(value)));
        let all: Vec<(String, String)> = all.collect();
        let path = all.iter().find(|(name, _)| name == "PATH");
        let told = path.map(|(_, path)| as_root(told_path(path), shell));
        shell.environment.extend(all);
        match told {
            // Shells that are logged in to set one of their own.
            Some(ask) => self.run_logged(living, ask, None, log).await,
            None => Ok(()),
        }
    }

    /// Runs a program to its end, with this file as its input; what it writes goes to the log.
    pub(super) async fn run_logged(
        self: &Arc<Self>,
        living: &Arc<Living>,
        ask: StartAsk,
        input: Option<&Path>,
        log: &Log,
    ) -> Result<(), Refusal> {
        let (process, mut reading) = self.programs.start(living, ask, log.by.clone()).await?;
        let fed = async {
            let Some(input) = input else { return Ok(()) };
            let mut file = tokio::fs::File::open(input)
                .await
                .map_err(|error| fault(&error))?;
            let mut block = vec![0; BLOCK_BYTES];
            loop {
                let got = file.read(&mut block).await.map_err(|error| fault(&error))?;
                if got == 0 {
                    return process.close_input().await;
                }
                process.write(block.get(..got).unwrap_or_default()).await?;
            }
        };
        let heard = async {
            let mut lines = Lines::default();
            loop {
                match reading.next().await {
                    Next::Content(stream, content) => lines.take(stream, &content, log),
                    Next::End(end) => {
                        lines.end(log);
                        return end;
                    }
                }
            }
        };
        let fed = async {
            let fed = fed.await;
            if fed.is_err() {
                // It waits for the rest of its input.
                process.signal(SIGKILL);
            }
            fed
        };
        let (fed, end) = tokio::join!(fed, heard);
        match end {
            // One that needs no more of its input has ended before that did.
            End::Exited(0) => Ok(()),
            end => {
                let _ = fed;
                let what = format!("the command has failed: {}", ended(&end));
                Err(Refusal::new(Kind::Invalid, what))
            }
        }
    }
}
