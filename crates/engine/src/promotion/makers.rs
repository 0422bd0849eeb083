//! The facts about the runs that made changes: from the ledger, which no sandboxed program can
//! influence.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::SystemTime;

use atoll_ledger::{Event, Filter, LABEL_GAINED, Ledger, LedgerError, StateDir, host_text};
use atoll_model::{Mode, RunId};
use atoll_policy::Maker;
use atoll_store::{KeptName, KeptRecord, RunRecord, load_run};
use serde_json::Value;

use crate::events::session_of;
use crate::reputation::standing;

/// The most runs that are asked about one by one, counting only those whose facts differ.
const MAKERS_MAX: usize = 256;
/// The most runs of which one has gone on with the changes of another.
const RESUMED_MAX: usize = 10_000;

/// The runs that made the changes.
#[derive(Clone, Copy)]
pub enum By<'a> {
    /// A run, and those whose layers it continued. The flag is set when nobody has reviewed the
    /// changes: an option of the run decided on them before there were any.
    Run(&'a StateDir, &'a RunRecord, bool),
    /// The runs that have used the kept changes of this name.
    Kept(&'a StateDir, &'a KeptRecord, &'a KeptName),
}

impl By<'_> {
    /// Returns the run that made the changes; of kept ones the last that has used them.
    pub fn run(&self) -> &RunId {
        match self {
            Self::Run(_, record, _) => &record.run,
            Self::Kept(_, record, _) => &record.run,
        }
    }

    /// Returns the directory of the changes.
    pub fn directory(&self) -> &Path {
        match self {
            Self::Run(_, record, _) => &record.workspace,
            Self::Kept(_, record, _) => &record.host,
        }
    }

    /// Returns whether nobody has reviewed the changes.
    pub fn is_unseen(&self) -> bool {
        matches!(self, Self::Run(_, _, true))
    }

    /// Returns remedies if policies refuse the changes.
    pub fn instead(&self) -> Vec<String> {
        match self {
            Self::Run(_, record, is_unseen) => {
                let run = &record.run;
                let part = format!("atoll apply {run} PATH takes over what they allow");
                // In mode strict what a run's own option takes over is put to nobody.
                let later = format!("atoll apply {run} asks you, where they have a person asked");
                let later = is_unseen.then_some(later);
                later.into_iter().chain([part]).collect()
            }
            Self::Kept(_, _, name) => vec![
                format!(
                    "atoll kept diff {name} shows what is kept: copy by hand what you want of it"
                ),
                format!(
                    "atoll kept discard {name} throws it away: runs begin with the directory outside \
                     then, and what they keep is asked about by what these runs are for alone"
                ),
            ],
        }
    }

    /// Explains that more is refused than the purposes of the makers would refuse, if nobody can
    /// tell which run made which change.
    pub fn mixed(&self) -> Option<String> {
        let Self::Kept(_, record, _) = self else {
            return None;
        };
        let names = &record.purposes;
        (!names.is_empty()).then(|| {
            format!(
                "runs narrowed by purpose {} have used it, and nobody has noted which run made what \
                 of it: so all of it is asked about by what they were for, also what is older",
                names.join(", ")
            )
        })
    }

    /// Returns the facts about each run, with equal ones once.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub fn makers(&self, asks_for_reputation: bool) -> Result<Vec<Maker>, String> {
        let (state, runs) = match self {
            Self::Run(state, record, _) => (state, of_run(state, &record.run)?),
            Self::Kept(state, record, _) => (state, of_kept(state, record)?),
        };
        each_once(state, runs, asks_for_reputation)
    }
}

/// Returns the facts about a run, and every one whose layers it continued, with equal ones once; `None`
/// where no run has this name, but a session of tools, or a person.
///
/// # Errors
/// When the ledger cannot be read.
pub(crate) fn of_run_alone(
    state: &StateDir,
    run: &RunId,
    asks_for_reputation: bool,
) -> Result<Option<Vec<Maker>>, String> {
    let mut is_run = false;
    for event in Ledger::show(state, run).map_err(|error| unread(&error))? {
        let event = event.map_err(|error| unread(&error))?;
        is_run |= event.kind == OPENED;
    }
    let makers = || each_once(state, of_run(state, run)?, asks_for_reputation);
    is_run.then(makers).transpose()
}

fn each_once(
    state: &StateDir,
    runs: Runs,
    asks_for_reputation: bool,
) -> Result<Vec<Maker>, String> {
    let mut makers: Vec<Maker> = Vec::new();
    for run in runs.into_values() {
        let maker = run.maker(state, asks_for_reputation)?;
        if !makers.contains(&maker) {
            makers.push(maker);
        }
        if makers.len() > MAKERS_MAX {
            return Err(format!(
                "more than {MAKERS_MAX} runs that differ may have made them"
            ));
        }
    }
    Ok(makers)
}

/// A run, as far as its events were read.
struct Run {
    opened: Event,
    confidence: Option<u8>,
    /// The labels added while it ran; `None` if not recorded.
    labels: Option<BTreeSet<String>>,
}

/// Runs by their names.
type Runs = BTreeMap<RunId, Run>;

fn unread(error: &LedgerError) -> String {
    format!("the ledger cannot tell which runs have made them: {error}")
}

fn unknown(run: &RunId) -> String {
    format!("the ledger does not know run {run}, which has made some of them")
}

/// Returns a run, and every one whose layers it continued.
fn of_run(state: &StateDir, run: &RunId) -> Result<Runs, String> {
    let mut runs = Runs::new();
    let mut next = Some(run.clone());
    while let Some(run) = next.filter(|run| !runs.contains_key(run)) {
        let mut read = Runs::new();
        for event in Ledger::show(state, &run).map_err(|error| unread(&error))? {
            take(&mut read, &event.map_err(|error| unread(&error))?);
        }
        let known = read.remove(&run).ok_or_else(|| unknown(&run))?;
        // What earlier releases wrote has it in the record alone.
        let earlier = match known.decision("resumed").and_then(Value::as_str) {
            Some(name) => {
                let named = RunId::parse(name);
                Some(named.map_err(|_| format!("run {run} went on with {name:?}, which is none"))?)
            }
            None => load_run(state, &run)
                .ok()
                .and_then(|record| record.resumed_from),
        };
        runs.insert(run, known);
        if runs.len() > RESUMED_MAX {
            return Err(format!("they are of more than {RESUMED_MAX} runs"));
        }
        next = earlier;
    }
    Ok(runs)
}

/// Returns every run that may have written to the kept changes: of its profile, to be kept there,
/// since it was last empty.
fn of_kept(state: &StateDir, record: &KeptRecord) -> Result<Runs, String> {
    let inside = host_text(&record.inside);
    let mut runs = Runs::new();
    let mut has_begun = record.first.is_none();
    for event in Ledger::events(state, Filter::default()).map_err(|error| unread(&error))? {
        let event = event.map_err(|error| unread(&error))?;
        has_begun |= event.kind == OPENED && event.run == record.first;
        let is_of_it = || {
            let decision = |member: &str| event.body.pointer(&format!("/decision/{member}"));
            let kept = decision("home-keep").and_then(Value::as_array);
            let is_there = kept.is_some_and(|kept| kept.contains(&inside));
            let is_of_profile =
                decision("profile").and_then(Value::as_str) == Some(&record.profile);
            is_of_profile && (is_there || decision("names-left-out").is_some())
        };
        if event.kind != OPENED || (has_begun && is_of_it()) {
            take(&mut runs, &event);
        }
    }
    for run in record.first.iter().chain([&record.run]) {
        if !runs.contains_key(run) {
            return Err(unknown(run));
        }
    }
    Ok(runs)
}

const OPENED: &str = "run.opened";

/// Takes an event of a run; one whose opening was not taken is none of those that are meant.
fn take(runs: &mut Runs, event: &Event) {
    let Some(name) = &event.run else {
        return;
    };
    if event.kind == OPENED {
        let labels = event.body.pointer("/decision/labels");
        let labels = labels.and_then(Value::as_array);
        let labels = labels.map(|all| {
            let all = all.iter().filter_map(Value::as_str);
            all.map(str::to_owned).collect()
        });
        let run = Run {
            opened: event.clone(),
            confidence: None,
            labels,
        };
        runs.insert(name.clone(), run);
    }
    let Some(run) = runs.get_mut(name) else {
        return;
    };
    if event.kind == LABEL_GAINED {
        let label = event.body.get("label").and_then(Value::as_str);
        let labels = run.labels.get_or_insert_default();
        labels.extend(label.map(str::to_owned));
    }
    let stated = event.body.get("confidence").and_then(Value::as_u64);
    let stated = stated.and_then(|percent| u8::try_from(percent).ok());
    run.confidence = stated.or(run.confidence);
}

impl Run {
    fn decision(&self, member: &str) -> Option<&Value> {
        self.opened.body.get("decision")?.get(member)
    }

    fn maker(self, state: &StateDir, asks_for_reputation: bool) -> Result<Maker, String> {
        let name = self.opened.run.as_ref();
        let name = name.map(ToString::to_string).unwrap_or_default();
        let told = |what: &str| format!("the ledger does not tell the {what} of run {name}");
        let text = |member: &str| self.decision(member).and_then(Value::as_str);
        let owned = |member: &str| text(member).map(str::to_owned);
        let profile = owned("profile").ok_or_else(|| told("profile"))?;
        let mode = self.decision("mode").cloned();
        let mode: Mode = mode
            .and_then(|mode| serde_json::from_value(mode).ok())
            .ok_or_else(|| told("mode"))?;
        let mut labels = self.labels.clone();
        if let (Some(labels), Some(session)) = (&mut labels, session_of(&self.opened)) {
            // Also what runs of it beside this one have touched.
            let of_session = Ledger::session_labels(state, &session);
            labels.extend(of_session.map_err(|error| unread(&error))?);
        }
        let reputation = match asks_for_reputation {
            true => standing(state, &profile, SystemTime::now()).0.points,
            false => 0,
        };
        let user = self.opened.body.pointer("/principal/uid");
        let user = user.and_then(Value::as_u64);
        Ok(Maker {
            user: user.and_then(|user| u32::try_from(user).ok()),
            mode,
            trust: owned("trust"),
            is_strict: text("trust-mode") == Some("strict"),
            task: owned("task"),
            purpose: owned("purpose"),
            confidence: self.confidence,
            labels,
            reputation,
            profile,
        })
    }
}
