mod canonical;
mod checkpoint;
mod conduct;
mod cosignature;
mod damage;
mod faults;
mod ledger;
pub(crate) mod power;
mod proof;
mod rotation;
mod scan;
mod seals;
mod sessions;
mod writers;

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use atoll_model::{
    Action, Call, CallId, Ending, Outcome, Principal, Program, Reason, RunId, Usage, Verdict,
};
use serde_json::json;

use crate::head::BootId;
use crate::journal::Journal;
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
        Ledger::open(&self.state, SystemTime::now, &()).unwrap()
    }

    /// Opens a ledger whose segments hold only a few events.
    fn ledger_in_small_segments(&self) -> Ledger {
        let journal =
            Journal::open_as(&self.state, SystemTime::now, BootId::current(), 1_000).unwrap();
        Ledger::open_journal(&self.state, journal, &()).unwrap()
    }

    fn ledger_after_boot(&self, boot: char) -> Ledger {
        let boot = BootId::of_test(boot);
        let journal = Journal::open_as(&self.state, SystemTime::now, boot, 1 << 20).unwrap();
        Ledger::open_journal(&self.state, journal, &()).unwrap()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.state.path().join("ledger").join(name)
    }

    fn verified(&self) -> Verified {
        Ledger::verify(&self.state).unwrap()
    }

    fn damage(&self) -> Vec<Damage> {
        match Ledger::verify(&self.state) {
            Ok(verified) => panic!("no damage was found: {verified:?}"),
            Err(VerifyError::Damaged(report)) => report.damage,
            Err(VerifyError::Unreadable(error)) => panic!("{error}"),
        }
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
    Call {
        id: CallId::of_run(run_id(number)),
        session: None,
        parent: None,
        principal: Principal {
            uid: 1000,
            gid: 1000,
            name: "Jörg".to_owned(),
        },
        place: atoll_model::Place::Directory {
            workspace: "/srv/project".into(),
            directory: "/srv/project/sub".into(),
        },
        action: Action::Run(Program {
            command: vec!["true".into()],
            ..Program::default()
        }),
    }
}

/// Returns the program of a run, to change it.
fn program(call: &mut Call) -> &mut Program {
    match &mut call.action {
        Action::Run(program) => program,
        other => panic!("{other:?}"),
    }
}

fn run_id(number: u32) -> RunId {
    RunId::new(1_795_253_412, number)
}

fn allow() -> Verdict<&'static str> {
    Verdict::Allow("the grant")
}

fn reason() -> Reason {
    Reason {
        what: "network".to_owned(),
        why: "nobody named it".to_owned(),
        rule: "default".to_owned(),
        how_to_ask: "add a profile".to_owned(),
    }
}

fn outcome(status: u8) -> Outcome {
    Outcome {
        ending: Ending::Exited { status },
        usage: Usage::default(),
        enforcement: Vec::new(),
        attempts: Vec::new(),
    }
}

fn flip_bit(path: &Path, byte: usize, bit: u8) {
    // In place: to truncate and rewrite a file makes some file systems sync it.
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut cell = [0];
    file.read_exact_at(&mut cell, byte as u64).unwrap();
    cell[0] ^= 1 << bit;
    file.write_all_at(&cell, byte as u64).unwrap();
}
