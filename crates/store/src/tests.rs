mod authority;
mod organisation;
mod places;
mod processes;
mod runs;
mod trust;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use atoll_ledger::*;
use atoll_model::{
    Action, Call, Ending, Outcome, Principal, Program, RunId, Usage, Verdict, WorkspaceMode,
};
use serde_json::json;

use crate::*;

/// A state directory of its own for each test.
struct Place {
    _temporary: tempfile::TempDir,
    state: StateDir,
}

impl Place {
    fn new() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let state = StateDir::open(&temporary.path().join("state")).unwrap();
        Self {
            _temporary: temporary,
            state,
        }
    }

    fn ledger(&self) -> Ledger {
        open_ledger(&self.state, SystemTime::now).unwrap()
    }

    fn verified(&self) -> Verified {
        Ledger::verify(&self.state).unwrap()
    }

    fn events(&self) -> Vec<Event> {
        let seals = Seals::read(&self.state).unwrap();
        Ledger::events(&self.state, Filter::default())
            .unwrap()
            .map(|event| seals.open(event.unwrap()))
            .collect()
    }

    fn kinds(&self) -> Vec<String> {
        self.events().into_iter().map(|event| event.kind).collect()
    }
}

fn note(ledger: &Ledger, number: u64) -> Position {
    let body = json!({ "number": number });
    ledger
        .record(None, "test.noted", body, Durability::Durable)
        .unwrap()
}

fn call(number: u32) -> Call {
    Call::new(
        run_id(number),
        Principal {
            uid: 1000,
            gid: 1000,
            name: "Jörg".to_owned(),
        },
        atoll_model::Place::Directory {
            workspace: "/srv/project".into(),
            directory: "/srv/project/sub".into(),
        },
        Action::Run(Program {
            command: vec!["true".into()],
            ..Program::default()
        }),
    )
}

fn run_id(number: u32) -> RunId {
    RunId::new(1_795_253_412, number)
}

fn allow() -> Verdict<&'static str> {
    Verdict::Allow("the grant")
}

fn outcome(status: u8) -> Outcome {
    Outcome {
        ending: Ending::Exited { status },
        usage: Usage::default(),
        enforcement: Vec::new(),
        attempts: Vec::new(),
    }
}

fn record(number: u32) -> RunRecord {
    RunRecord {
        v: RECORD_VERSION,
        run: run_id(number),
        command: vec!["cargo".into(), "test".into()],
        workspace: "/srv/project".into(),
        directory: "/srv/project".into(),
        profile: "default".to_owned(),
        purposes: Vec::new(),
        mode: WorkspaceMode::CopyOnWrite,
        base: None,
        layers: Vec::new(),
        started_at_ms: u64::from(number),
        state: RunState::Running,
        exit: None,
        ending: None,
        changes: None,
        attempts: 0,
        resumed_from: None,
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
