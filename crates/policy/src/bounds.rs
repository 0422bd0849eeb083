//! Everything that tightens rules: the organisation's bounds, denials, narrower workspaces.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use atoll_model::{LimitKey, ViewKind, WorkspaceMode};

use crate::error::ProfileError;
use crate::error::invalid;
use crate::layers::{Denials, Organisation};
use crate::levels::TrustSettings;
use crate::origin::{Origin, Sourced};
use crate::refusal::{denial, reason};
use crate::rules::{Rules, Tightened};
use crate::source::Requested;
use crate::words::workspace_name;

/// Returns the rank of a workspace mode, narrowest first.
fn width(mode: WorkspaceMode) -> u8 {
    match mode {
        WorkspaceMode::ReadOnly => 0,
        WorkspaceMode::CopyOnWrite => 1,
        WorkspaceMode::Live => 2,
    }
}

pub(crate) fn narrow_workspace(rules: &mut Rules, mode: Sourced<WorkspaceMode>) {
    let present = rules.workspace.value;
    if width(mode.value) < width(present) {
        rules.workspace = mode;
    } else if mode.value != present {
        let text = format!(
            "workspace {:?} is ignored: it is {:?} already ({})",
            workspace_name(mode.value),
            workspace_name(present),
            rules.workspace.origin
        );
        rules.notice(text, mode.origin);
    }
}

/// Replaces a live workspace by a copy-on-write one if a profile forbids it, also if an extending
/// profile asked for it.
pub(crate) fn settle_workspace(rules: &mut Rules) {
    if rules.forbid_live.value && rules.workspace.value == WorkspaceMode::Live {
        let forbidden = rules.forbid_live.origin.clone();
        let text = format!("workspace \"live\" is ignored: it is forbidden ({forbidden})");
        rules.notice(text, rules.workspace.origin.clone());
        rules.workspace = Sourced::new(WorkspaceMode::CopyOnWrite, forbidden);
    }
}

/// Applies the organisation's bounds, after all other layers.
pub(crate) fn bound_by_organisation(
    rules: &mut Rules,
    organisation: Organisation,
    requested: &Requested,
) -> Result<(), ProfileError> {
    let memory = rules.host.memory_bytes;
    for past in rules.network.upstream.bound(organisation.upstream) {
        let text = format!(
            "no-proxy {:?} is ignored: the organisation names the proxy",
            past.value.to_string()
        );
        rules.notice(text, past.origin);
    }
    rules.network.ask.extend(organisation.ask);
    bound_trust(rules, organisation.trust, "the organisation");
    rules.labels.merge(organisation.labels);
    rules.note_labels_of_session(requested.in_session);
    for (key, text) in organisation.limits {
        let before = rules.limits.origin(key);
        let origin = text.origin.clone();
        keep_most(rules, key, &text, memory)?;
        let tightened = rules
            .limits
            .tighten(key, &text.value, origin.clone(), memory);
        let tightened =
            tightened.map_err(|error| invalid(&text.origin, format!("[limits]: {error}")))?;
        if tightened == Tightened::Counts && before != Origin::BuiltIn {
            rules.notice(
                format!("limit {key} of {before} is more than the organisation allows"),
                origin,
            );
        }
    }
    if let Some(widest) = organisation.workspace {
        bound_workspace(rules, widest, requested.live);
    }
    let forbid = |right: &mut Sourced<bool>, said: Option<Sourced<bool>>| {
        if let Some(said) = said.filter(|said| said.value != right.value) {
            *right = said;
        }
    };
    forbid(&mut rules.terminal.queries, organisation.terminal.queries);
    forbid(
        &mut rules.terminal.clipboard,
        organisation.terminal.clipboard,
    );
    forbid(&mut rules.terminal.title, organisation.terminal.title);
    let (calls, said) = (&mut rules.syscalls, organisation.syscalls);
    forbid(&mut calls.deny_debugging, said.deny_debugging);
    forbid(&mut calls.deny_sockets, said.deny_sockets);
    forbid(&mut calls.deny_nesting, said.deny_nesting);
    if let Some(denied) = organisation.deny_root.filter(|_| rules.root.value) {
        rules.refusals.push(reason(
            format!("root inside ({})", rules.root.origin),
            "the organisation forbids it",
            &denied.origin,
            "leave it out",
        ));
    }
    let publishing = organisation.deny_publishing.filter(|denied| denied.value);
    rules.network.deny_publishing = publishing.map(|denied| denied.origin);
    if let Some(forbidden) = organisation.forbid_dangerous.filter(|flag| flag.value) {
        forbid_dangerous(rules, &forbidden.origin);
    }
    Ok(())
}

/// Keeps the memory and processor time that the organisation allows at most.
fn keep_most(
    rules: &mut Rules,
    key: LimitKey,
    text: &Sourced<String>,
    memory: u64,
) -> Result<(), ProfileError> {
    let mut most = rules.limits.limits.clone();
    most.set(key, &text.value, memory)
        .map_err(|error| invalid(&text.origin, format!("[limits]: {error}")))?;
    let origin = &text.origin;
    if key == LimitKey::Memory {
        rules.limits.memory_most = Some(Sourced::new(most.memory_bytes, origin.clone()));
    } else if key == LimitKey::Cpu {
        let most = most.cpu_millis;
        rules.limits.cpu_most = most.map(|most| Sourced::new(most, origin.clone()));
    }
    Ok(())
}

/// Bounds the trust settings, with a notice for each that is lowered. One that is below the bound
/// already needs none.
pub(crate) fn bound_trust(rules: &mut Rules, mut most: TrustSettings, whose: &str) {
    let endpoints = most.endpoints.take();
    let before = (rules.trust.level.clone(), rules.trust.mode.clone());
    let _ = rules.trust.lower(most);
    let lowered = |what: &str, stated: &str, origin: &Origin| {
        (
            format!("trust {what} {stated:?} is more than {whose} allows"),
            origin.clone(),
        )
    };
    let level = before.0.filter(|one| one.value != rules.trust.level());
    let mode = before.1.filter(|one| one.value != rules.trust.mode());
    let level = level.map(|one| lowered("level", one.value.name(), &one.origin));
    let mode = mode.map(|one| lowered("mode", one.value.name(), &one.origin));
    for (text, origin) in level.into_iter().chain(mode) {
        rules.notice(text, origin);
    }
    for one in rules.trust.bound_endpoints(endpoints) {
        let name = &one.value;
        let text = format!("trust endpoint {name:?} is more than {whose} allows");
        rules.notice(text, one.origin);
    }
}

fn forbid_dangerous(rules: &mut Rules, forbidden: &Origin) {
    if rules.network.learn {
        rules.refusals.push(reason(
            "learning what is reached (--learn)",
            "the organisation forbids dangerous options, and this one opens the network",
            forbidden,
            "leave out --learn, and allow what atoll why names as denied",
        ));
    }
    if rules.limits.limits.dangerous_unenforced_limits {
        rules.refusals.push(reason(
            format!(
                "[dangerous] unenforced-limits ({})",
                rules.limits.unenforced
            ),
            "the organisation forbids dangerous options",
            forbidden,
            "take it out of the profile",
        ));
    }
}

fn bound_workspace(rules: &mut Rules, widest: Sourced<WorkspaceMode>, live_requested: bool) {
    if width(rules.workspace.value) <= width(widest.value) {
        return;
    }
    let mode = workspace_name(rules.workspace.value);
    let allowed = workspace_name(widest.value);
    if live_requested {
        rules.refusals.push(reason(
            "--live",
            format!("the organisation allows {allowed:?} at most"),
            &widest.origin,
            "leave out --live",
        ));
        return;
    }
    let origin = rules.workspace.origin.clone();
    rules.notice(
        format!(
            "workspace {mode:?} is ignored: the organisation allows {allowed:?} at most ({})",
            widest.origin
        ),
        origin,
    );
    rules.workspace = widest;
}

/// Removes denied variables from those that files set, and keeps the denials for the variables of
/// the command line.
pub(crate) fn deny_variables(rules: &mut Rules, denials: &mut Denials) {
    rules.environment.denied = std::mem::take(&mut denials.environment);
    for denied in rules.environment.denied.clone() {
        let set = &mut rules.environment.set;
        let names: Vec<String> = set
            .keys()
            .filter(|name| denied.value.matches(OsStr::new(name)))
            .cloned()
            .collect();
        for name in names {
            if let Some(set) = rules.environment.set.remove(&name) {
                let text = format!("{name} is not set: it is denied ({})", denied.origin);
                rules.notice(text, set.origin);
            }
        }
    }
}

/// Applies denials of places: optional places are left out, required ones are refusals.
pub(crate) fn deny_places(rules: &mut Rules, denials: Denials) {
    rules.network.deny.extend(denials.network);
    let home = rules.host.home.clone();
    rules.denied_places = denials
        .places
        .into_iter()
        .map(|place| place.map(|place| place.resolve(&home)))
        .collect();
    for denied in rules.denied_places.clone() {
        let met: Vec<(PathBuf, String)> = rules
            .views
            .keys()
            .filter_map(|path| Some((path.clone(), denial(&denied, path)?)))
            .collect();
        for (path, why) in met {
            deny_view(rules, &path, why, &denied.origin);
        }
    }
}

fn deny_view(rules: &mut Rules, path: &Path, why: String, rule: &Origin) {
    let Some(view) = rules.views.remove(path) else {
        return;
    };
    match view.value.kind {
        ViewKind::Home | ViewKind::Cache | ViewKind::Repository => rules.notice(
            format!("{} is not shown: {why} ({rule})", path.display()),
            view.origin,
        ),
        ViewKind::System | ViewKind::Input => rules.refusals.push(reason(
            format!("showing {} ({})", path.display(), view.origin),
            why,
            rule,
            "leave it out, name only what is needed beneath it, or ask who wrote that rule",
        )),
    }
}
