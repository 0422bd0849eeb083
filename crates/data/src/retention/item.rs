//! One thing that is kept, and its end by the rules.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use atoll_ledger::Holds;
use atoll_model::RunId;
use atoll_store::RunState;

use super::rules::{Class, Rules};

/// A thing that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its kind.
    pub kind: Kind,
    /// Its name among those of its kind.
    pub id: String,
    /// The room that it takes, bytes.
    pub bytes: u64,
    /// The time from which its age counts.
    pub since: SystemTime,
    /// The runs and sessions of tools that it is from.
    pub runs: Vec<RunId>,
    /// The tenant of a server that it is from.
    pub tenant: Option<String>,
    /// The reason for which nobody removes it now.
    pub stays: Option<&'static str>,
}

/// A kind of kept things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The changes of a run in this state.
    Run(RunState),
    /// A checkpoint.
    Checkpoint,
    /// The notes by which a session is undone.
    UndoNotes,
    /// A download that an input has named, which is fetched again where it is gone.
    Download,
    /// The content of the artifacts of a run.
    Artifacts,
    /// The files of a hook about an agent's session.
    Hook,
    /// A paused sandbox of a server.
    Paused,
    /// A snapshot of a sandbox.
    Snapshot,
    /// The events of a sandbox.
    Events,
    /// The key of the sealed content of a run.
    Sealed,
    /// A template of a server.
    Template,
    /// A volume of a server.
    Volume,
}

/// The end of a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goes {
    /// At this time, or at the first sweep after it.
    At(SystemTime),
    /// Once somebody decides so.
    Never,
    /// Not while this is so.
    Stays(&'static str),
    /// Not before its hold is released.
    Held,
}

impl Kind {
    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Run(_) => "changes",
            Self::Checkpoint => "checkpoint",
            Self::UndoNotes => "undo notes",
            Self::Download => "download",
            Self::Artifacts => "artifacts",
            Self::Hook => "hook",
            Self::Paused => "paused sandbox",
            Self::Snapshot => "snapshot",
            Self::Events => "events",
            Self::Sealed => "sealed content",
            Self::Template => "template",
            Self::Volume => "volume",
        }
    }

    /// Returns its class; `None` for what stays until somebody removes it.
    #[must_use]
    pub fn class(&self) -> Option<Class> {
        match self {
            Self::Run(_) | Self::Checkpoint | Self::UndoNotes | Self::Download => {
                Some(Class::Layer)
            }
            Self::Artifacts => Some(Class::Artifact),
            Self::Hook => Some(Class::Log),
            Self::Paused | Self::Snapshot => Some(Class::Sandbox),
            Self::Events => Some(Class::Event),
            Self::Sealed => Some(Class::Evidence),
            Self::Template | Self::Volume => None,
        }
    }

    /// Returns whether it is of a server's store.
    #[must_use]
    pub fn is_served(&self) -> bool {
        matches!(self, Self::Paused | Self::Snapshot | Self::Events)
    }
}

impl Item {
    /// Returns its end.
    #[must_use]
    pub fn goes(&self, rules: &Rules, holds: &Holds) -> Goes {
        if self.is_held(holds) {
            return Goes::Held;
        }
        match (self.stays, self.age(rules)) {
            (Some(why), _) => Goes::Stays(why),
            (None, Some(age)) => self.since.checked_add(age).map_or(Goes::Never, Goes::At),
            (None, None) => Goes::Never,
        }
    }

    /// Returns whether it is under a hold.
    #[must_use]
    pub fn is_held(&self, holds: &Holds) -> bool {
        let of_tenant = self.tenant.as_ref();
        of_tenant.is_some_and(|tenant| holds.keeps_tenant(tenant))
            || self.runs.iter().any(|run| holds.keeps(run))
    }

    /// Returns whether its age is over, whatever keeps it.
    #[must_use]
    pub fn is_over(&self, rules: &Rules, now: SystemTime) -> bool {
        let age = self.age(rules);
        age.is_some_and(|age| now.duration_since(self.since).is_ok_and(|is| is >= age))
    }

    /// Returns the age at which it goes.
    fn age(&self, rules: &Rules) -> Option<Duration> {
        let class = self.kind.class()?;
        match self.kind {
            Kind::Run(RunState::Discarded) => Some(Duration::ZERO),
            // Nobody has decided: no default throws that away.
            Kind::Run(state) if !is_decided(state) => rules.age_as_written(class),
            Kind::Run(_)
            | Kind::Checkpoint
            | Kind::UndoNotes
            | Kind::Download
            | Kind::Artifacts
            | Kind::Hook
            | Kind::Paused
            | Kind::Snapshot
            | Kind::Events
            | Kind::Sealed
            | Kind::Template
            | Kind::Volume => rules.age(class),
        }
    }
}

/// Returns whether somebody has decided about the changes of a run. What an undo has kept of others'
/// stays as long as what it took back.
fn is_decided(state: RunState) -> bool {
    match state {
        RunState::Applied | RunState::Undone | RunState::Discarded => true,
        RunState::Running
        | RunState::Kept
        | RunState::PartlyApplied
        | RunState::Interrupted
        | RunState::Failed => false,
    }
}

/// Returns the things whose end has come: by age, and the oldest of a class that takes more room than
/// it may.
#[must_use]
pub fn due(items: &[Item], rules: &Rules, holds: &Holds, now: SystemTime) -> Vec<Item> {
    let is_over = |item: &Item| matches!(item.goes(rules, holds), Goes::At(at) if at <= now);
    // What stays for a reason of its own pushes nothing else out, and no room is made by what nobody
    // has decided about.
    let counts = |item: &&Item| {
        let may_go = matches!(item.goes(rules, holds), Goes::At(_) | Goes::Never);
        may_go && !matches!(item.kind, Kind::Run(state) if !is_decided(state))
    };
    let mut room: BTreeMap<Class, u64> = BTreeMap::new();
    for item in items.iter().filter(|item| counts(item) && !is_over(item)) {
        let class = item.kind.class();
        if let Some(class) = class {
            *room.entry(class).or_default() += item.bytes;
        }
    }
    let mut oldest: Vec<&Item> = items.iter().collect();
    oldest.sort_by_key(|item| item.since);
    let takes_too_much = |item: &Item, room: &mut BTreeMap<Class, u64>| {
        let class = item
            .kind
            .class()
            .filter(|_| counts(&item) && item.bytes > 0);
        let Some((most, taken)) = class.and_then(|class| {
            let most = rules.size(class)?;
            Some((most, room.get_mut(&class)?))
        }) else {
            return false;
        };
        let is_beyond = *taken > most;
        if is_beyond {
            *taken = taken.saturating_sub(item.bytes);
        }
        is_beyond
    };
    let goes = oldest
        .into_iter()
        .filter(|item| is_over(item) || takes_too_much(item, &mut room));
    goes.cloned().collect()
}
