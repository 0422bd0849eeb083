//! The rights of callers: what each role may, and what each scope is for.

use atoll_store::{Role, Scope, Scopes};

use super::caller::Caller;
use crate::protocol::{
    ArtifactsAsk, Ask, In, InAsk, Kind, LedgerAsk, LifeAsk, ProcessAsk, ProcessFacts, Refusal,
    ToolsAsk, VolumesAsk, is_service,
};

/// Returns whether a caller of this role may ask for this, in a sandbox of the own tenant.
pub(super) fn may(role: Role, ask: &InAsk) -> bool {
    let decides = matches!(ask, InAsk::Life(LifeAsk::Decide(_)));
    match role {
        Role::Administrator => true,
        // Who makes a request does not approve it.
        Role::User => !decides,
        Role::Operator => is_of_operators(ask),
        Role::Approver => decides,
        Role::Auditor => false,
    }
}

/// Returns whether a request is about the life of a sandbox, which its own token does not reach.
pub(super) fn is_of_control(ask: &InAsk) -> bool {
    matches!(ask, InAsk::Life(_))
}

/// Returns whether a request is one that an operator makes: looking, and ending.
fn is_of_operators(ask: &InAsk) -> bool {
    matches!(
        ask,
        InAsk::Alive(_)
            | InAsk::Measure(_)
            | InAsk::ListPorts(_)
            | InAsk::Life(LifeAsk::GetSandbox(_) | LifeAsk::Kill(_))
            | InAsk::Process(ProcessAsk::ListProcesses(_))
    )
}

/// Reads the scopes of a key that is to be made.
pub(super) fn wanted_scopes(names: &[String]) -> Result<Scopes, Refusal> {
    let unknown = names.iter().find(|name| Scope::parse(name).is_none());
    let wrong = match unknown {
        Some(name) => format!("there is no scope {name:?}"),
        None if names.is_empty() => "a key needs at least one scope".to_owned(),
        None => return Ok(Scopes::of(names.iter().map(String::as_str))),
    };
    let all = Scope::ALL.map(Scope::name).join(", ");
    Err(Refusal::new(Kind::Invalid, wrong).advise(format!(
        "the scopes are {all}; without the field it may all that its role may"
    )))
}

/// Returns the scopes one of which a request takes. Without any it takes a credential that no scope
/// narrows: such a one alone makes keys, and decides for others.
pub(super) fn scopes_for(ask: &Ask) -> &'static [Scope] {
    match ask {
        Ask::Create(_) | Ask::Snapshots(_) | Ask::Templates(_) => &[Scope::Create],
        Ask::Ledger(LedgerAsk::AddNote(_)) => &[Scope::Create, Scope::Exec],
        Ask::ListSandboxes(_)
        | Ask::ListLifecycleEvents(_)
        | Ask::Ledger(
            LedgerAsk::ListEvents(_)
            | LedgerAsk::Prove(_)
            | LedgerAsk::Checkpoint(_)
            | LedgerAsk::ListSessions(_)
            | LedgerAsk::ListApprovals(_),
        ) => &[Scope::Read],
        Ask::Permit(_) | Ask::Identify(_) => &Scope::ALL,
        // The token of the build is what counts.
        Ask::Upload(_) => &[],
        Ask::Volumes(VolumesAsk::ListVolumes(_) | VolumesAsk::GetVolume(_)) => {
            &[Scope::Read, Scope::Create]
        }
        Ask::Volumes(_) => &[Scope::Create],
        Ask::Tools(ToolsAsk::ListTools(_) | ToolsAsk::WatchTools(_)) => &[Scope::Read, Scope::Exec],
        Ask::Tools(_) => &[Scope::Exec],
        Ask::Content(_) | Ask::Artifacts(ArtifactsAsk::ReadArtifact(_)) => &[Scope::Files],
        Ask::Artifacts(ArtifactsAsk::DecideArtifact(_)) => &[],
        Ask::Artifacts(_) => &[Scope::Read, Scope::Files],
        Ask::Count(_) | Ask::Keys(_) | Ask::Webhooks(_) => &[],
        Ask::In(In { ask, .. }) => scopes_in(ask),
    }
}

/// As [`scopes_for`], of a request in a sandbox.
pub(super) fn scopes_in(ask: &InAsk) -> &'static [Scope] {
    match ask {
        InAsk::Alive(_) => &Scope::ALL,
        InAsk::Measure(_) => &[Scope::Read],
        InAsk::ListPorts(_) => &[Scope::Read, Scope::Ports],
        InAsk::OpenPort(ask) if is_service(ask.port) => &[Scope::Exec],
        InAsk::OpenPort(_) => &[Scope::Ports],
        InAsk::Life(ask) => match ask {
            LifeAsk::GetSandbox(_) => &[Scope::Read],
            LifeAsk::Connect(_)
            | LifeAsk::Kill(_)
            | LifeAsk::Pause(_)
            | LifeAsk::Snapshot(_)
            | LifeAsk::Fork(_)
            | LifeAsk::RollBack(_)
            | LifeAsk::SetTimeout(_)
            | LifeAsk::SetNetwork(_)
            | LifeAsk::SetSizes(_) => &[Scope::Create],
            LifeAsk::LinkPort(_) => &[Scope::Create, Scope::Ports],
            LifeAsk::Decide(_) => &[],
        },
        InAsk::Process(ask) => match ask {
            ProcessAsk::ListProcesses(_) => &[Scope::Read, Scope::Exec],
            ProcessAsk::Start(_)
            | ProcessAsk::Launch(_)
            | ProcessAsk::Attach(_)
            | ProcessAsk::Input(_)
            | ProcessAsk::CloseInput(_)
            | ProcessAsk::Signal(_)
            | ProcessAsk::Resize(_) => &[Scope::Exec],
        },
        InAsk::File(_) => &[Scope::Files],
    }
}

/// Refuses what a credential's scopes are not for.
pub(super) fn check_scopes(scopes: &Scopes, needs: &[Scope]) -> Result<(), Refusal> {
    let Some(own) = scopes.names() else {
        return Ok(());
    };
    if needs.iter().any(|scope| scopes.has(*scope)) {
        return Ok(());
    }
    let own = match own.is_empty() {
        true => "no scope".to_owned(),
        false => format!("the scopes {}", own.join(", ")),
    };
    let needs: Vec<&str> = needs.iter().map(|scope| scope.name()).collect();
    let (takes, advice) = match needs.is_empty() {
        true => (
            "one without scopes".to_owned(),
            "use a key or token that no scope narrows",
        ),
        false => (
            needs.join(" or "),
            "use a key made with that --scope, or a token with atoll: and that in its scope",
        ),
    };
    let what = format!("the key or token has {own}, and this takes {takes}");
    Err(Refusal::new(Kind::Forbidden, what).advise(advice))
}

/// Takes the values of variables out of a list for a caller who starts no programs.
pub(super) fn shown_to(caller: &Caller, mut all: Vec<ProcessFacts>) -> Vec<ProcessFacts> {
    let runs = matches!(caller.role, Role::User | Role::Administrator);
    if !(runs && caller.scopes.has(Scope::Exec)) {
        let variables = all.iter_mut().map(|one| &mut one.started.environment);
        variables.for_each(|all| all.values_mut().for_each(String::clear));
    }
    all
}
