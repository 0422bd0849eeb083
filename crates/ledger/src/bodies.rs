//! The bodies of the events of calls, and the types of these events.

use std::ffi::OsString;

use atoll_model::{
    Action, Administer, Asker, Attempt, Call, CallId, CallTool, Exec, Once, Outcome, Program,
    Reason, Served, Verdict, ViolationKind, VolumeMount,
};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::hash::hex;
use crate::host_text;

/// The kind of verdict that was recorded with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recorded {
    Allow,
    Ask,
    Deny,
}

impl Recorded {
    pub(crate) fn of<G>(verdict: &Verdict<G>) -> Self {
        match verdict {
            Verdict::Allow(_) => Self::Allow,
            Verdict::Ask(_) => Self::Ask,
            Verdict::Deny(_) => Self::Deny,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// The types of the events of an action.
pub(crate) struct Kinds {
    /// Records the call.
    pub(crate) opened: &'static str,
    /// Records a refusal.
    pub(crate) denied: &'static str,
    /// True if a refused call has both.
    pub(crate) opens_denied: bool,
}

impl Kinds {
    pub(crate) fn of(action: &Action) -> Self {
        let (opened, denied, opens_denied) = match action {
            Action::Run(_) | Action::CreateSandbox => ("run.opened", "run.denied", true),
            Action::Exec(_) => ("exec.opened", "exec.denied", true),
            Action::CallTool(_) => ("tool.opened", "tool.denied", true),
            Action::AssignSandbox => ("sandbox.assigned", "sandbox.refused", false),
            Action::ReplaceNetwork => ("network.replaced", "network.refused", false),
            Action::PublishPort(asked) if asked.waits_for_second => {
                ("port.agreed", "port.refused", false)
            }
            Action::PublishPort(_) => ("port.published", "port.refused", false),
            Action::AllowHost(_) => ("host.allowed", "host.refused", false),
            Action::Escalate(_) => ("escalation.opened", "escalation.refused", false),
            Action::Administer(Administer::ReloadPolicies { .. }) => {
                ("policy.reloaded", "policy.reload-refused", false)
            }
            Action::ChangeLimits(_) => ("limits.changed", "limits.refused", false),
            Action::Promote(_) => ("promotion.opened", "promotion.refused", false),
            Action::Restore => ("restore.opened", "restore.refused", false),
        };
        Self {
            opened,
            denied,
            opens_denied,
        }
    }
}

/// Returns the body of the event that records a call.
pub(crate) fn opened_body(call: &Call, recorded: Recorded, decision: Value) -> Value {
    match &call.action {
        Action::Run(program) => run_body(call, Some(program), recorded, decision),
        Action::CreateSandbox => run_body(call, None, recorded, decision),
        Action::Exec(exec) => exec_body(call, exec, recorded, decision),
        Action::CallTool(tool) => tool_body(call, tool, recorded, decision),
        Action::AssignSandbox => with(
            decision,
            [
                ("verdict", json!(recorded.name())),
                ("served", json!(call.served().map(served_body))),
            ],
        ),
        Action::ReplaceNetwork => with(decision, caller_members(call)),
        Action::PublishPort(asked) => {
            let body = with(
                with(decision, asker_members(asked.by)),
                [
                    ("host_port", json!(asked.port.outside)),
                    ("port", json!(asked.port.inside)),
                ],
            );
            match asked.first {
                Some(first) => with(
                    body,
                    [
                        ("first_pid", json!(first.pid)),
                        ("first_uid", json!(first.uid)),
                    ],
                ),
                None => body,
            }
        }
        Action::AllowHost(asked) => with(decision, asker_members(asked.by)),
        Action::Escalate(asked) => {
            let body = with(
                with(decision, asker_members(asked.by)),
                [("approval", json!(asked.approval))],
            );
            match asked.seconds {
                Some(seconds) => with(body, [("seconds", json!(seconds))]),
                None => body,
            }
        }
        Action::Administer(Administer::ReloadPolicies { by }) => with(decision, asker_members(*by)),
        Action::Promote(paths) => with(decision, [("paths", json!(paths))]),
        Action::Restore => decision,
        Action::ChangeLimits(asked) => with(
            with(decision, caller_members(call)),
            [
                ("memory-bytes", json!(asked.memory_bytes)),
                ("cpu-millis", json!(asked.cpu_millis)),
            ],
        ),
    }
}

/// Describes a call of a tool. Its arguments are sealed; their digest stays.
fn tool_body(call: &Call, tool: &CallTool, recorded: Recorded, decision: Value) -> Value {
    let mut body = json!({
        "call": call.id.tool,
        "tool": tool.tool.as_str(),
        "kind": tool.kind.name(),
        "effect": tool.effect.name(),
        "undo": tool.undo.name(),
        "verdict": recorded.name(),
        "decision": decision,
        "arguments": tool.text,
        "digest": format!("sha256:{}", hex(&Sha256::digest(tool.text.as_bytes()))),
        "principal": {
            "uid": call.principal.uid,
            "name": call.principal.name,
        },
    });
    if let Some(body) = body.as_object_mut() {
        body.extend(tool.key.iter().map(|key| ("key".to_owned(), json!(key))));
        let served = call.served();
        body.extend(served.map(|served| ("served".to_owned(), served_body(served))));
    }
    body
}

/// Returns the id of a call as one text: `RUN`, `RUN/exec/N` or `RUN/tool/N`.
fn call_id(id: &CallId) -> String {
    match (id.tool, id.exec) {
        (Some(tool), _) => format!("{}/tool/{tool}", id.run),
        (None, Some(exec)) => format!("{}/exec/{exec}", id.run),
        (None, None) => id.run.to_string(),
    }
}

fn with_parent(mut body: Value, call: &Call) -> Value {
    if let (Some(body), Some(parent)) = (body.as_object_mut(), &call.parent) {
        body.insert("parent".to_owned(), json!(call_id(parent)));
    }
    body
}

fn asker_members(by: Asker) -> [(&'static str, Value); 2] {
    [("pid", json!(by.pid)), ("uid", json!(by.uid))]
}

/// Returns the members about the caller of a server.
fn caller_members(call: &Call) -> [(&'static str, Value); 2] {
    let by = call.served();
    let caller = by.and_then(|served| served.caller.as_ref());
    let trace = by.and_then(|served| served.trace.as_ref());
    [("caller", json!(caller)), ("trace", json!(trace))]
}

fn with<const N: usize>(mut body: Value, members: [(&str, Value); N]) -> Value {
    if let Some(body) = body.as_object_mut() {
        body.extend(members.map(|(name, member)| (name.to_owned(), member)));
    }
    body
}

fn texts(list: &[OsString]) -> Vec<Value> {
    list.iter().map(host_text).collect()
}

fn run_body(call: &Call, program: Option<&Program>, recorded: Recorded, decision: Value) -> Value {
    let mut body = json!({
        "verdict": recorded.name(),
        "decision": decision,
        "principal": {
            "uid": call.principal.uid,
            "gid": call.principal.gid,
            "name": call.principal.name,
        },
        "command": texts(call.command()),
        "workspace": host_text(call.workspace()),
        "directory": host_text(call.directory()),
        "terminal": call.has_terminal(),
    });
    if let (Some(body), Some([_, ..])) = (body.as_object_mut(), program.map(|it| &*it.options)) {
        let options = program.map_or_else(Vec::new, |it| texts(&it.options));
        body.insert("options".to_owned(), json!(options));
    }
    if let (Some(body), None) = (body.as_object_mut(), program) {
        body.insert("lives".to_owned(), json!(true));
    }
    if let (Some(body), Some(served)) = (body.as_object_mut(), call.served()) {
        body.insert("served".to_owned(), served_body(served));
    }
    if let (Some(body), Some(session)) = (body.as_object_mut(), &call.session) {
        body.insert("session".to_owned(), json!(session.as_str()));
    }
    with_parent(body, call)
}

fn exec_body(call: &Call, exec: &Exec, recorded: Recorded, decision: Value) -> Value {
    let mut body = json!({
        "exec": call.id.exec,
        "verdict": recorded.name(),
        "decision": decision,
        "by": { "uid": exec.by_uid, "pid": exec.by_pid },
        "command": texts(&exec.command),
        "directory": host_text(&exec.directory),
        "terminal": exec.terminal,
        "variables": exec.variables,
    });
    if let (Some(body), Some(served)) = (body.as_object_mut(), &exec.served) {
        let mut told = json!({ "caller": served.caller, "trace": served.trace });
        if let (Some(told), Some((uid, _))) = (told.as_object_mut(), served.user) {
            told.insert("user".to_owned(), json!(uid));
        }
        if let (Some(told), Some(once)) = (told.as_object_mut(), &served.once) {
            told.insert("once".to_owned(), once_body(once));
        }
        body.insert("served".to_owned(), told);
    }
    with_parent(body, call)
}

/// Describes the caller and the kind of a served sandbox.
#[must_use]
pub fn served_body(served: &Served) -> Value {
    let mut told = json!({
        "sandbox": served.sandbox,
        "tenant": served.tenant,
        "caller": served.caller,
        "template": served.template,
        // A member's name is ASCII; these are any text.
        "metadata": served.metadata.iter().collect::<Vec<_>>(),
        "session": served.session,
        "trace": served.trace,
    });
    if let (Some(told), [_, ..]) = (told.as_object_mut(), &*served.volumes) {
        let volumes: Vec<Value> = served.volumes.iter().map(volume).collect();
        told.insert("volumes".to_owned(), json!(volumes));
    }
    if let (Some(told), Some(once)) = (told.as_object_mut(), &served.once) {
        told.insert("once".to_owned(), once_body(once));
    }
    told
}

/// Describes the name of a request.
pub(crate) fn once_body(once: &Once) -> Value {
    json!({
        "tenant": once.tenant,
        "sandbox": once.sandbox,
        "key": once.key,
        "digest": once.digest,
    })
}

/// Describes a volume that is mounted.
fn volume(mount: &VolumeMount) -> Value {
    json!({
        "id": mount.id,
        "name": mount.name,
        "path": host_text(&mount.inside),
        "access": if mount.read_only { "read" } else { "write" },
    })
}

pub(crate) fn outcome_body(outcome: &Outcome, details: Value) -> Value {
    let usage = &outcome.usage;
    let mut body = json!({
        "ending": ending_body(outcome),
        "status": outcome.ending.exit_status(),
        "usage": {
            "wall_clock_us": whole_number(usage.wall_clock.as_micros()),
            "cpu_us": whole_number(usage.cpu.as_micros()),
            "memory_peak_bytes": whole_number(u128::from(usage.memory_peak_bytes)),
            "memory_is_whole": usage.memory_is_whole,
            "memory_kills": whole_number(u128::from(usage.memory_kills)),
        },
        "enforcement": outcome
            .enforcement
            .iter()
            .map(|held| (held.limit.clone(), Value::String(held.by.clone())))
            .collect::<Map<_, _>>(),
        "details": details,
    });
    if let (Some(body), [_, ..]) = (body.as_object_mut(), &*outcome.attempts) {
        body.insert(
            "attempts".to_owned(),
            attempts_body(&outcome.attempts).into(),
        );
    }
    body
}

/// Returns each violation that was seen, with the system calls that led to it.
fn attempts_body(attempts: &[Attempt]) -> Vec<Value> {
    let mut walls: Vec<ViolationKind> = Vec::new();
    for one in attempts {
        if !walls.contains(&one.wall) {
            walls.push(one.wall);
        }
    }
    let of = |wall: ViolationKind| {
        let at_it = || attempts.iter().filter(|one| one.wall == wall);
        let total = at_it().fold(0, |sum: u128, one| sum + u128::from(one.count));
        let calls = at_it().map(|one| {
            let count = whole_number(u128::from(one.count));
            (one.call.to_owned(), Value::from(count))
        });
        json!({
            "wall": wall.name(),
            "atlas": wall.technique().id,
            "count": whole_number(total),
            "calls": calls.collect::<Map<_, _>>(),
        })
    };
    walls.into_iter().map(of).collect()
}

/// Returns the body of a first attempt's event.
pub(crate) fn attempt_body(attempt: &Attempt) -> Value {
    json!({
        "wall": attempt.wall.name(),
        "atlas": attempt.wall.technique().id,
        "call": attempt.call,
        "pid": attempt.pid,
    })
}

/// Returns the ending as `atoll-model` serializes it, so that both stay the same.
fn ending_body(outcome: &Outcome) -> Value {
    serde_json::to_value(outcome.ending).unwrap_or(Value::Null)
}

pub(crate) fn reasons_body(reasons: &[Reason]) -> Vec<Value> {
    reasons
        .iter()
        .map(|reason| {
            json!({
                "what": reason.what,
                "why": reason.why,
                "rule": reason.rule,
                "how_to_ask": reason.how_to_ask,
            })
        })
        .collect()
}

/// Limits a count to a number that every JSON reader keeps exactly; a larger one (285 years in
/// microseconds) is a defect elsewhere and must not lose the event.
pub(crate) fn whole_number(count: u128) -> u64 {
    u64::try_from(count).map_or(crate::canonical::INTEGER_MAX, |count| {
        count.min(crate::canonical::INTEGER_MAX)
    })
}
