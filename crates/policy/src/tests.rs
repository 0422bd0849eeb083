//! A small world to compile and decide in; the tests are in the modules below.

mod agreement;
mod ask;
mod change_checks;
mod credentials;
mod decisions;
mod environment;
mod exec;
mod files;
mod git;
mod keys;
mod labels;
mod layers;
mod levels;
mod logins;
mod monotonic;
mod network;
mod obligations;
mod persons;
mod policies;
mod postgres;
mod publish;
mod purposes;
mod repository;
mod selection;
mod shipped;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use atoll_model::{
    Action, Boundary, Call, CallId, Exec, Place, Principal, Program, Reason, RunId, Verdict,
};

use crate::*;

/// Everything that compile and decide are given.
#[derive(Clone)]
struct World {
    organisation: Option<String>,
    config: Option<String>,
    profiles: BTreeMap<String, String>,
    project: Option<String>,
    trust: TrustList,
    requested: Requested,
    host: HostFacts,
    call: Call,
    environment: Vec<(OsString, OsString)>,
    /// Policy files: the organisation's, the user's, the project's.
    policies: [Vec<SourceFile<'static>>; 3],
}

/// Returns a run without stated facts.
fn maker() -> Maker {
    Maker {
        user: Some(1000),
        profile: "default".to_owned(),
        mode: atoll_model::Mode::Full,
        trust: None,
        is_strict: false,
        task: None,
        purpose: None,
        confidence: None,
        labels: Some(std::collections::BTreeSet::new()),
        reputation: 0,
    }
}

impl ProfileSource for BTreeMap<String, String> {
    fn names(&self) -> Result<Vec<String>, String> {
        Ok(self.keys().cloned().collect())
    }

    fn lookup(&self, name: &str) -> Result<Option<SourceFile<'_>>, String> {
        Ok(self
            .get(name)
            .map(|text| SourceFile::new(format!("user/{name}.toml"), text.as_bytes())))
    }
}

/// Returns 2026-11-21T09:30:12Z.
fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_253_412)
}

const PROJECT: &str = "/home/ann/src/app/atoll.toml";

fn host() -> HostFacts {
    HostFacts {
        memory_bytes: 16 << 30,
        uid: 1000,
        gid: 1000,
        home: PathBuf::from("/home/ann"),
        state_dir: PathBuf::from("/home/ann/.local/state/atoll"),
        config_dir: PathBuf::from("/home/ann/.config/atoll"),
    }
}

fn world() -> World {
    let call = Call {
        session: None,
        parent: None,
        id: CallId::of_run(RunId::parse("261121-093012-k7qd").unwrap()),
        principal: Principal {
            uid: 1000,
            gid: 1000,
            name: "ann".to_owned(),
        },
        place: Place::Directory {
            workspace: PathBuf::from("/home/ann/src/app"),
            directory: PathBuf::from("/home/ann/src/app"),
        },
        action: Action::Run(Program {
            command: vec![OsString::from("true")],
            ..Program::default()
        }),
    };
    World {
        organisation: None,
        config: None,
        profiles: BTreeMap::new(),
        project: None,
        trust: TrustList::default(),
        requested: Requested::default(),
        host: host(),
        call,
        environment: Vec::new(),
        policies: Default::default(),
    }
}

fn policies(name: &'static str, text: &str) -> SourceFile<'static> {
    SourceFile::new(name, text.as_bytes().to_vec())
}

/// Decides on a sandbox.
fn decide(rules: &Rules, call: &Call, facts: &Facts<'_>) -> Verdict<Grant> {
    crate::decide(rules, call, facts).map(|granted| granted.try_into().unwrap())
}

/// Decides on an exec of the command that a run would have.
fn decide_exec(
    rules: &Rules,
    call: &Call,
    facts: &Facts<'_>,
    labels: &BTreeSet<String>,
) -> Verdict<ExecGrant> {
    let call = call.with(Action::Exec(Box::new(Exec {
        command: call.command().to_vec(),
        directory: call.directory().to_owned(),
        ..Exec::default()
    })));
    let facts = Facts {
        labels: Some(labels),
        ..*facts
    };
    crate::decide(rules, &call, &facts).map(|granted| granted.try_into().unwrap())
}

impl World {
    fn organisation(mut self, text: &str) -> Self {
        self.organisation = Some(text.to_owned());
        self
    }

    fn config(mut self, text: &str) -> Self {
        self.config = Some(text.to_owned());
        self
    }

    /// Adds a user's profile.
    fn profile(mut self, name: &str, text: &str) -> Self {
        self.profiles.insert(name.to_owned(), text.to_owned());
        self
    }

    /// Sets a project's file, trusted as it is.
    fn project(mut self, text: &str) -> Self {
        self.trust.trust(PROJECT, text.as_bytes());
        self.project = Some(text.to_owned());
        self
    }

    /// Adds policies of the organisation.
    fn organisation_policies(mut self, text: &str) -> Self {
        self.policies[0].push(policies("/etc/atoll/org.cedar", text));
        self
    }

    /// Adds policies of the user.
    fn user_policies(mut self, text: &str) -> Self {
        self.policies[1].push(policies("user/own.cedar", text));
        self
    }

    /// Adds policies of a project, trusted as they are.
    fn project_policies(mut self, text: &str) -> Self {
        let file = policies("/home/ann/src/app/atoll.cedar", text);
        self.trust.trust(&file.name, &file.content);
        self.policies[2].push(file);
        self
    }

    fn untrusted_project(mut self, text: &str) -> Self {
        self.project = Some(text.to_owned());
        self
    }

    fn with(mut self, name: &str) -> Self {
        self.requested.profile = Some(RequestedProfile::Named(name.to_owned()));
        self
    }

    fn command(mut self, program: &str) -> Self {
        *self.words() = vec![OsString::from(program)];
        self
    }

    fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    fn compile(&self) -> Result<Rules, ProfileError> {
        let file = |name: &'static str, text: &Option<String>| {
            text.clone()
                .map(|text| SourceFile::new(name, text.into_bytes()))
        };
        let organisation = file("/etc/atoll/organisation.toml", &self.organisation);
        let config = file("user/config.toml", &self.config);
        let project = file(PROJECT, &self.project);
        let sources = Sources {
            organisation: organisation.as_ref(),
            user_config: config.as_ref(),
            user_profiles: &self.profiles,
            project: project.as_ref(),
            trust: &self.trust,
            policies: PolicySources {
                organisation: &self.policies[0],
                user: &self.policies[1],
                project: &self.policies[2],
                directory: Some(Path::new("/home/ann/src/app")),
            },
        };
        let program = self.call.command().first().cloned().unwrap_or_default();
        compile(&sources, &self.requested, &program, &self.host)
    }

    fn rules(&self) -> Rules {
        match self.compile() {
            Ok(rules) => rules,
            Err(error) => panic!("{error}"),
        }
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            mode: atoll_model::Mode::Full,
            host: &self.host,
            environment: &self.environment,
            now: now(),
            placeholders: &[],
            labels: None,
            living: None,
            changes: None,
        }
    }

    /// Returns the command of the run, to change it.
    fn words(&mut self) -> &mut Vec<OsString> {
        match &mut self.call.action {
            Action::Run(program) => &mut program.command,
            other => panic!("{other:?}"),
        }
    }

    /// Starts the run in another workspace, and in this directory.
    fn start_in(&mut self, workspace: impl Into<PathBuf>, directory: impl Into<PathBuf>) {
        self.call.place = Place::Directory {
            workspace: workspace.into(),
            directory: directory.into(),
        };
    }

    fn decide(&self) -> Verdict<Grant> {
        decide(&self.rules(), &self.call, &self.facts())
    }

    fn grant(&self) -> Grant {
        match self.decide() {
            Verdict::Allow(grant) => grant,
            Verdict::Ask(reasons) | Verdict::Deny(reasons) => panic!("{reasons:?}"),
        }
    }

    fn boundary(&self) -> Boundary {
        self.grant().boundary().clone()
    }

    fn reasons(&self) -> Vec<Reason> {
        match self.decide() {
            Verdict::Deny(reasons) => reasons,
            Verdict::Ask(_) => panic!("asked"),
            Verdict::Allow(grant) => panic!("allowed: {grant:?}"),
        }
    }

    fn error(&self) -> String {
        match self.compile() {
            Ok(rules) => panic!("compiled: {rules:?}"),
            Err(error) => error.to_string(),
        }
    }

    /// Returns the paths of all views, in order.
    fn views(&self) -> Vec<String> {
        self.boundary()
            .views
            .iter()
            .map(|view| view.inside.display().to_string())
            .collect()
    }

    fn notices(&self) -> String {
        let grant = self.grant();
        let texts: Vec<String> = grant.notices().iter().map(Notice::to_string).collect();
        texts.join("\n")
    }

    /// Returns the value of a variable in the sandbox.
    fn value(&self, name: &str) -> Option<String> {
        self.boundary()
            .environment
            .iter()
            .find(|(one, _)| one == OsStr::new(name))
            .map(|(_, value)| value.to_string_lossy().into_owned())
    }
}

/// The person who applies changes in a test.
struct Promoter<'a> {
    user: u32,
    time: u64,
    is_unseen: bool,
    workspace: Option<&'a std::path::Path>,
    purposes: &'a [String],
    makers: &'a dyn Fn(bool) -> Result<Vec<Maker>, String>,
}

/// The permission to apply changes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Promotion {
    notices: Vec<Notice>,
    policy_digest: Option<String>,
    has_checkpoint: bool,
    /// The reasons to ask, each about a path.
    asked: Vec<atoll_model::Reason>,
}

/// The reason why changes are not applied.
#[derive(Debug, PartialEq, Eq)]
enum PromotionError {
    Broken(ProfileError),
    Refused(Vec<atoll_model::Reason>),
    Untold(String),
}

/// Decides on changes, or on undoing them where there are none.
fn promote(
    sources: &Sources<'_>,
    promoter: &Promoter<'_>,
    written: &[Promoted<'_>],
) -> Result<Promotion, PromotionError> {
    let world = world();
    let rules = match crate::change_rules(sources, &world.host, promoter.purposes) {
        Ok(rules) => rules,
        Err(crate::ChangeRulesError::Broken(error)) => return Err(PromotionError::Broken(error)),
        Err(crate::ChangeRulesError::Gone(reason)) => {
            return Err(PromotionError::Refused(vec![*reason]));
        }
    };
    let mut call = world.call.with(match written {
        [] => Action::Restore,
        written => Action::Promote(written.len() as u64),
    });
    call.principal.uid = promoter.user;
    let makers = match crate::makers_read(&rules, &call) {
        Some(reads_reputation) => (promoter.makers)(reads_reputation),
        None => Ok(Vec::new()),
    };
    let facts = Facts {
        now: std::time::UNIX_EPOCH + std::time::Duration::from_secs(promoter.time),
        changes: Some(crate::Changes {
            written,
            is_unseen: promoter.is_unseen,
            workspace: promoter.workspace,
            makers: makers.as_deref().map_err(String::as_str),
            checks: None,
            shadowed: None,
        }),
        ..world.facts()
    };
    let mut promotion = Promotion::default();
    let mut take = |grant: &crate::ChangeGrant| {
        promotion.notices = grant.notices().to_vec();
        promotion.policy_digest = grant.policy_digest().map(str::to_owned);
        promotion.has_checkpoint = grant.has_checkpoint();
    };
    match crate::decide(&rules, &call, &facts) {
        Verdict::Allow(Granted::Change(grant)) => take(&grant),
        Verdict::Ask(asked) => {
            // Once it is agreed to, nothing but that is in the way.
            let mut agreed = rules.clone();
            agreed.agree(agreement(&rules, &call, &asked));
            match crate::decide(&agreed, &call, &facts) {
                Verdict::Allow(Granted::Change(grant)) => take(&grant),
                other => panic!("{other:?}"),
            }
            promotion.asked = asked;
        }
        Verdict::Deny(reasons) if reasons[0].what == "these changes" => {
            return Err(PromotionError::Untold(reasons[0].why.clone()));
        }
        Verdict::Deny(reasons) => return Err(PromotionError::Refused(reasons)),
        other => panic!("{other:?}"),
    }
    Ok(promotion)
}
