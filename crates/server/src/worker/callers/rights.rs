//! The rights of callers: what each role may, and what each scope is for.

use atoll_store::{Role, Scope, Scopes};

use super::Caller;
use crate::protocol::{Ask, InAsk, Kind, Refusal, Reply, VolumesAsk, is_service};

/// Returns whether a caller of this role may ask for this, in a sandbox of the own tenant.
pub(in crate::worker) fn may(role: Role, ask: &InAsk) -> bool {
    match role {
        Role::Administrator => true,
        // Who makes a request does not approve it.
        Role::User => !matches!(ask, InAsk::Decide { .. }),
        Role::Operator => is_of_operators(ask),
        Role::Approver => matches!(ask, InAsk::Decide { .. }),
        Role::Auditor => false,
    }
}

/// Returns whether a request is about the life of a sandbox, which its own token does not reach.
pub(in crate::worker) fn is_of_control(ask: &InAsk) -> bool {
    matches!(
        ask,
        InAsk::Get
            | InAsk::Connect { .. }
            | InAsk::Kill
            | InAsk::Pause { .. }
            | InAsk::Snapshot { .. }
            | InAsk::Fork { .. }
            | InAsk::RollBack { .. }
            | InAsk::SetTimeout { .. }
            | InAsk::Link { .. }
            | InAsk::SetNetwork(_)
            | InAsk::SetSizes(_)
            | InAsk::Decide { .. }
    )
}

/// Returns whether a request is one that an operator makes: looking, and ending.
fn is_of_operators(ask: &InAsk) -> bool {
    matches!(
        ask,
        InAsk::Alive | InAsk::Get | InAsk::Kill | InAsk::Processes | InAsk::Measure | InAsk::Ports
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
pub(in crate::worker) fn scopes_for(ask: &Ask) -> &'static [Scope] {
    match ask {
        Ask::Create(_) => &[Scope::Create],
        Ask::List(_)
        | Ask::LifecycleEvents { .. }
        | Ask::Events(_)
        | Ask::Proof { .. }
        | Ask::Sessions
        | Ask::Checkpoint
        | Ask::Approvals => &[Scope::Read],
        Ask::Note { .. } => &[Scope::Create, Scope::Exec],
        Ask::Snapshots(_) | Ask::Templates(_) => &[Scope::Create],
        Ask::Permit { .. } => &Scope::ALL,
        // The token of the build is what counts.
        Ask::Upload { .. } => &[],
        Ask::Volumes(VolumesAsk::List | VolumesAsk::Get { .. }) => &[Scope::Read, Scope::Create],
        Ask::Volumes(_) => &[Scope::Create],
        Ask::Content { .. } => &[Scope::Files],
        Ask::Count | Ask::Keys(_) | Ask::Webhooks(_) => &[],
        Ask::In { ask, .. } => scopes_in(ask),
    }
}

/// As [`scopes_for`], of a request in a sandbox.
pub(in crate::worker) fn scopes_in(ask: &InAsk) -> &'static [Scope] {
    match ask {
        InAsk::Alive => &Scope::ALL,
        InAsk::Get | InAsk::Measure => &[Scope::Read],
        InAsk::Ports => &[Scope::Read, Scope::Ports],
        InAsk::Processes => &[Scope::Read, Scope::Exec],
        InAsk::Connect { .. }
        | InAsk::Kill
        | InAsk::Pause { .. }
        | InAsk::Snapshot { .. }
        | InAsk::Fork { .. }
        | InAsk::RollBack { .. }
        | InAsk::SetTimeout { .. }
        | InAsk::SetNetwork(_)
        | InAsk::SetSizes(_) => &[Scope::Create],
        InAsk::Link { .. } => &[Scope::Create, Scope::Ports],
        InAsk::Start(_)
        | InAsk::Launch(_)
        | InAsk::Attach { .. }
        | InAsk::Input { .. }
        | InAsk::CloseInput { .. }
        | InAsk::Signal { .. }
        | InAsk::Resize { .. } => &[Scope::Exec],
        InAsk::Stat { .. }
        | InAsk::ListDirectory { .. }
        | InAsk::MakeDirectory { .. }
        | InAsk::Move { .. }
        | InAsk::Remove { .. }
        | InAsk::Read { .. }
        | InAsk::Write { .. }
        | InAsk::Watch { .. }
        | InAsk::MakeWatcher { .. }
        | InAsk::Watched { .. }
        | InAsk::RemoveWatcher { .. } => &[Scope::Files],
        InAsk::Port { port } if is_service(*port) => &[Scope::Exec],
        InAsk::Port { .. } => &[Scope::Ports],
        InAsk::Decide { .. } => &[],
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

/// Takes out of an answer to a caller whatever is not for it: tokens, and, unless it starts programs,
/// the values of their variables.
pub(in crate::worker) fn shown_to(caller: &Caller, reply: Reply) -> Reply {
    let runs = matches!(caller.role, Role::User | Role::Administrator);
    let mut reply = without_tokens(&caller.scopes, reply);
    if let (false, Reply::Processes(all)) = (runs && caller.scopes.has(Scope::Exec), &mut reply) {
        let values = all
            .iter_mut()
            .flat_map(|one| one.started.environment.values_mut());
        values.for_each(String::clear);
    }
    reply
}

/// Takes out of an answer the tokens that would do more than the scopes of who gets it: a sandbox's
/// access token runs programs and reaches files. So of each answer, also one that is given again.
pub(in crate::worker) fn without_tokens(scopes: &Scopes, reply: Reply) -> Reply {
    match reply {
        Reply::Forks(forks, filed) => {
            let forks = forks.into_iter();
            let one = |made: Box<Reply>| Box::new(without_tokens(scopes, *made));
            Reply::Forks(forks.map(|fork| fork.map(one)).collect(), filed)
        }
        Reply::Created {
            sandbox,
            token,
            port_token,
            code_token,
            resumed,
        } => {
            let is_for_access = scopes.has(Scope::Exec) && scopes.has(Scope::Files);
            Reply::Created {
                resumed,
                sandbox,
                token: match is_for_access {
                    true => token,
                    false => String::new(),
                },
                port_token: port_token.filter(|_| scopes.has(Scope::Ports)),
                code_token: code_token.filter(|_| is_for_access),
            }
        }
        Reply::Volume(facts, token) => {
            Reply::Volume(facts, token.filter(|_| scopes.has(Scope::Files)))
        }
        other => other,
    }
}
