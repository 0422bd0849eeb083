//! The thread of a sandbox that lives: its decision, its making, and its supervision to the end.

use std::sync::mpsc::Sender;

use atoll_model::{Action, Call, CallId, Ending};
use atoll_sandbox::Starting;

use super::ahead::Basis;
use super::nobody::NoStreams;
use super::preparing::{Prepared, prepare, prepare_served, typed};
use super::{CreateSandbox, Home, NotMade, Shared, Workspace};
use crate::configuration;
use crate::failure::Failure;
use crate::run::{RunRequest, asked, facts};
use crate::supervision::OwnerEnd;
use crate::{CallError, Request, RequestBase, call};

/// Decides on a sandbox, makes it, and supervises it to its end.
pub(super) fn supervise(
    shared: &Shared,
    wanted: &CreateSandbox,
    home: &Home,
    owned: &OwnerEnd,
    ready: Sender<Result<Box<Basis>, NotMade>>,
) -> Result<Ending, CallError> {
    let typed = typed(wanted);
    let prepared = match prepared(shared, wanted, &typed) {
        Ok(prepared) => prepared,
        Err(failure) => {
            let _ = ready.send(Err(NotMade::Failed(failure)));
            return Ok(Ending::Interrupted);
        }
    };
    let Prepared {
        mut rules,
        host,
        handed,
        widening,
        session,
        nothing,
        now,
    } = prepared;
    let (handover, words) = (handed.handover.as_ref(), &handed.words);
    let call_of = Call {
        id: CallId::of_run(shared.named.name(now)),
        parent: wanted.parent.clone(),
        place: wanted.workspace.place(),
        action: Action::CreateSandbox,
        ..asked(&typed, words, session, wanted.workspace.at(), false, now)
    };
    let facts = facts(&host, shared.mode, now, &words.environment, handover);
    rules.take_answer(wanted.answer.clone());
    let git_environment = configuration::git_environment();
    let request = Request {
        handover,
        signing: handed.signing.as_ref(),
        unattended: !wanted.is_attended,
        home: Some(home),
        asks_caller: wanted.asks_caller(),
        owner: Some(owned),
        begins_with: wanted.begins_with.as_deref(),
        ..Request::new(RequestBase {
            call: &call_of,
            host: &shared.machine,
            rules: &rules,
            facts,
            git: &git_environment,
            state: &shared.state,
            ledger: &shared.ledger,
            fate: wanted.retention(),
            widening: &widening,
        })
    };
    let attach = |grant: &_| {
        let _ = ready.send(Ok(Box::new(Basis::of(&call_of, grant))));
        NoStreams(nothing)
    };
    let called = call(&request, Starting::by(&shared.spawner), attach)?;
    Ok(called.outcome.ending)
}

fn prepared(
    shared: &Shared,
    wanted: &CreateSandbox,
    typed: &RunRequest<'_>,
) -> Result<Prepared, Failure> {
    match &wanted.workspace {
        Workspace::Directory(workspace) => {
            let from = wanted.begins_with.as_ref().map(|copies| &copies.of);
            prepare(shared, typed, workspace, from)
        }
        Workspace::Own(_) => prepare_served(shared, wanted),
    }
}
