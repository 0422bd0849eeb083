//! Builds that go on or have ended: their state and their logs, which the server has in memory.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use atoll_model::{ServedExec, mask_secrets};

use super::super::answers::name;
use super::super::builds::Templates;
use super::super::caller::Caller;
use super::super::tokens::is_equal;
use super::BuildFacts;
use crate::line::Stream;
use crate::protocol::{BuildLine, BuildState, Kind, Refusal};
use crate::rfc3339::milliseconds;

/// The most builds of a tenant that are remembered, and of all.
const OF_TENANT_MAX: usize = 50;
const BUILDS_MAX: usize = 2_000;
/// The most builds of a tenant that go on at once.
const AT_ONCE_MAX: usize = 4;
/// The most bytes of a log, with each line counted a little longer, and of a line.
const LOG_BYTES_MAX: usize = 256 * 1024;
const LINE_OVERHEAD: usize = 64;
const LINE_BYTES_MAX: usize = 4_096;

/// All builds.
#[derive(Debug, Default)]
pub(crate) struct Builds {
    all: Mutex<All>,
}

#[derive(Debug, Default)]
struct All {
    builds: BTreeMap<String, Build>,
    order: VecDeque<String>,
}

/// The template that a build makes.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) tenant: String,
    pub(super) name: String,
    pub(super) cpus: Option<u32>,
    pub(super) memory_mib: Option<u64>,
}

#[derive(Debug)]
struct Build {
    template: String,
    wanted: Wanted,
    token: String,
    state: BuildState,
    lines: Vec<BuildLine>,
    bytes: usize,
    /// The step that goes on, or has failed.
    step: String,
    why: Option<String>,
}

impl All {
    /// Makes room for one more build of a tenant; returns the template of the one that is forgotten.
    fn make_room(&mut self, tenant: &str) -> Result<Option<String>, Refusal> {
        let of_tenant = |id: &&String| {
            let found = self.builds.get(*id);
            found.is_some_and(|one| one.wanted.tenant == tenant)
        };
        let own: Vec<String> = self.order.iter().filter(of_tenant).cloned().collect();
        if own.len() < OF_TENANT_MAX && self.order.len() < BUILDS_MAX {
            return Ok(None);
        }
        let is_going = |id: &String| {
            let found = self.builds.get(id);
            found.is_some_and(|one| one.state == BuildState::Building)
        };
        let Some(oldest) = own.iter().find(|id| !is_going(id)) else {
            return Err(
                Refusal::new(Kind::Quota, "as many builds wait as the server keeps")
                    .advise("try again later"),
            );
        };
        self.order.retain(|id| id != oldest);
        Ok(self.builds.remove(oldest).map(|one| one.template))
    }
}

impl Builds {
    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a build that waits for its plan; returns its id, and the template of the tenant's own
    /// build that is forgotten for it.
    pub(super) fn request(
        &self,
        template: &str,
        wanted: Wanted,
    ) -> Result<(String, Option<String>), Refusal> {
        // Clients take it for a UUID.
        let hex = |length| Ok::<_, Refusal>(digits(&name(length)?));
        let id = format!(
            "{}-{}-4{}-8{}-{}",
            hex(8)?,
            hex(4)?,
            hex(3)?,
            hex(3)?,
            hex(12)?
        );
        let build = Build {
            template: template.to_owned(),
            wanted,
            token: name(40)?,
            state: BuildState::Waiting,
            lines: Vec::new(),
            bytes: 0,
            step: "base".to_owned(),
            why: None,
        };
        let mut all = self.all();
        let evicted = all.make_room(&build.wanted.tenant)?;
        all.order.push_back(id.clone());
        all.builds.insert(id.clone(), build);
        Ok((id, evicted))
    }

    /// Returns the token by which files are uploaded for the latest build of a template.
    pub(super) fn link(&self, tenant: &str, template: &str) -> Result<String, Refusal> {
        let all = self.all();
        let latest = all.order.iter().rev().filter_map(|id| all.builds.get(id));
        let mut own = latest.filter(|one| one.template == template && one.wanted.tenant == tenant);
        own.find(|one| one.state == BuildState::Waiting)
            .map(|build| build.token.clone())
            .ok_or_else(|| no_build(template))
    }

    /// Returns the template whose build waits for uploads with this token.
    pub(super) fn of_token(&self, template: &str, token: &str) -> Result<String, Refusal> {
        let all = self.all();
        let mut waiting = all
            .builds
            .values()
            .filter(|one| one.template == template && one.state == BuildState::Waiting);
        waiting
            .find(|one| is_equal(token, &one.token))
            .map(|one| one.wanted.tenant.clone())
            .ok_or_else(|| no_build(template))
    }

    /// Takes a plan: the build goes on from here.
    pub(super) fn begin(
        &self,
        tenant: &str,
        template: &str,
        build: &str,
    ) -> Result<Wanted, Refusal> {
        let mut all = self.all();
        let going = |one: &&Build| one.wanted.tenant == tenant && one.state == BuildState::Building;
        if all.builds.values().filter(going).count() >= AT_ONCE_MAX {
            let what = format!("{AT_ONCE_MAX} builds of the tenant go on, as many as may at once");
            return Err(Refusal::new(Kind::Quota, what).advise("try again once one has ended"));
        }
        let of_same = |one: &Build| one.template == template && one.state == BuildState::Building;
        if all.builds.values().any(of_same) {
            let what = format!("another build of template {template} goes on");
            return Err(Refusal::new(Kind::Exists, what).advise("try again once it has ended"));
        }
        let found = all.builds.get_mut(build);
        let found = found.filter(|one| one.template == template && one.wanted.tenant == tenant);
        let found = found.ok_or_else(|| no_build(template))?;
        if found.state != BuildState::Waiting {
            return Err(Refusal::new(Kind::Exists, "the build has begun already"));
        }
        found.state = BuildState::Building;
        Ok(found.wanted.clone())
    }

    /// Takes note of the end of a build.
    pub(super) fn end(&self, template: &str, build: &str, built: Result<(), Refusal>) {
        let mut all = self.all();
        let Some(found) = all.builds.get_mut(build) else {
            return;
        };
        debug_assert_eq!(found.template, template);
        match built {
            Ok(()) => found.state = BuildState::Ready,
            Err(refusal) => {
                found.state = BuildState::Failed;
                found.why = Some(format!("{} (step {})", refusal.told(), found.step));
            }
        }
    }

    /// Tells how far a build is.
    pub(super) fn facts(
        &self,
        tenant: &str,
        template: &str,
        build: &str,
        from: usize,
        limit: usize,
    ) -> Result<BuildFacts, Refusal> {
        let all = self.all();
        let found = all.builds.get(build);
        let found = found.filter(|one| one.template == template && one.wanted.tenant == tenant);
        let found = found.ok_or_else(|| no_build(template))?;
        let lines = found.lines.iter().skip(from).take(limit);
        Ok(BuildFacts {
            state: found.state,
            lines: lines.cloned().collect(),
            why: found.why.clone(),
            step: found.why.as_ref().map(|_| found.step.clone()),
        })
    }
}

/// The log of a build that goes on.
pub(super) struct Log {
    templates: Arc<Templates>,
    build: String,
    /// The request for it, by which its programs are decided and recorded.
    pub(super) by: ServedExec,
}

impl Log {
    pub(super) fn of(templates: &Arc<Templates>, build: &str, caller: &Caller) -> Self {
        Self {
            templates: Arc::clone(templates),
            build: build.to_owned(),
            by: ServedExec {
                caller: Some(caller.name.clone()),
                trace: caller.trace.clone(),
                ..ServedExec::default()
            },
        }
    }

    /// Begins a step.
    pub(super) fn step(&self, step: &str, text: &str) {
        if let Some(build) = self.templates.builds.all().builds.get_mut(&self.build) {
            build.step = step.to_owned();
        }
        self.line(text, false);
    }

    /// Adds a line; beyond the most that are kept they are left out.
    pub(super) fn line(&self, text: &str, is_error: bool) {
        let mut all = self.templates.builds.all();
        let Some(build) = all.builds.get_mut(&self.build) else {
            return;
        };
        let end = text.floor_char_boundary(LINE_BYTES_MAX);
        build.bytes += end + LINE_OVERHEAD;
        if build.bytes > LOG_BYTES_MAX {
            return;
        }
        build.lines.push(BuildLine {
            at_ms: milliseconds(SystemTime::now()),
            is_error,
            step: build.step.clone(),
            text: mask_secrets(text.get(..end).unwrap_or_default()).into_owned(),
        });
    }
}

/// Output as lines of a log.
#[derive(Default)]
pub(super) struct Lines {
    output: Vec<u8>,
    error: Vec<u8>,
}

/// The most bytes of a line that has not come to its end.
const UNENDED_MAX: usize = 4_096;

impl Lines {
    pub(super) fn take(&mut self, stream: Stream, content: &[u8], log: &Log) {
        let is_error = stream == Stream::Error;
        let held = if is_error {
            &mut self.error
        } else {
            &mut self.output
        };
        held.extend_from_slice(content);
        while let Some(end) = held.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = held.drain(..=end).collect();
            log.line(String::from_utf8_lossy(&line).trim_end(), is_error);
        }
        if held.len() > UNENDED_MAX {
            log.line(&String::from_utf8_lossy(held), is_error);
            held.clear();
        }
    }

    pub(super) fn end(&mut self, log: &Log) {
        for (held, is_error) in [(&mut self.output, false), (&mut self.error, true)] {
            if !held.is_empty() {
                log.line(&String::from_utf8_lossy(held), is_error);
                held.clear();
            }
        }
    }
}

fn no_build(template: &str) -> Refusal {
    let what = format!("no build of template {template} waits for that");
    Refusal::new(Kind::NotFound, what).advise("begin it anew")
}

/// Turns letters and digits into hexadecimal digits.
fn digits(text: &str) -> String {
    let digit = |byte: u8| char::from_digit(u32::from(byte) % 16, 16).unwrap_or('0');
    text.bytes().map(digit).collect()
}
