mod network;
mod volumes;

use std::ffi::OsString;
use std::path::Path;

use atoll_model::{
    Access, Boundary, Call, Mode, OutputsRule, Reason, Verdict, View, ViewKind, WorkspaceMode,
};

use crate::asking::Answer;
use crate::credential::{CommandProgram, CredentialSource};
use crate::environment;
use crate::grant::Grant;
use crate::notice::Notice;
use crate::origin::{Origin, Sourced};
use crate::places::{forbidden_here, is_plain_absolute, overlap};
use crate::refusal::reason;
use crate::repository;
use crate::rules::{Rules, inputs, of_workspace};
use crate::shipped::Shipped;
use crate::source::{Facts, Outputs};

const BUILT_IN: &str = "built in";

/// Decides on all that a sandbox has from its beginning, and on the program that it begins with.
pub(crate) fn sandbox(rules: &Rules, call: &Call, facts: &Facts<'_>) -> Verdict<Grant> {
    let mut reasons = rules.refusals.clone();
    reasons.extend(of_host(rules, call, facts));
    if !call.lives() {
        reasons.extend(of_command(call.command()));
    }
    // That of a served sandbox is no directory of the host.
    if call.served().is_none() {
        reasons.extend(of_workspace(rules, call.workspace()));
    }
    reasons.extend(of_directory(call));
    let network = rules.boundary_network(facts.placeholders);
    let environment = environment::build(rules, call, facts, &network);
    let mut boundary = Boundary {
        profile: rules.profile.value.clone(),
        mode: facts.mode,
        workspace: rules.workspace.value,
        home: rules.host.home.clone(),
        views: values(rules.views.values()),
        volumes: volumes::of(call),
        files: rules.git_file(call.workspace()).into_iter().collect(),
        environment: environment.variables,
        limits: rules.limits.limits.clone(),
        terminal: rules.terminal.rights(),
        syscalls: rules.syscalls.rights(),
        programs: values(&rules.programs),
        root: rules.root.value,
        system: rules.system.clone(),
        nesting: rules.nesting.value,
        outputs: outputs(rules, facts.mode),
        inputs: rules.inputs.bounded(),
        network,
    };
    reasons.extend(network::refusals(rules, &boundary.network, facts.mode));
    reasons.extend([of_credentials(rules, call, facts), of_keys(rules, call)].concat());
    reasons.extend(of_root(rules, facts.mode));
    reasons.extend(of_nesting(rules, facts.mode));
    reasons.extend(of_served(rules, call, &boundary));
    let mut fenced = Vec::new();
    if facts.mode == Mode::Fence {
        fenced = weaker(rules, &mut boundary);
        reasons.extend(fence_in(rules, &mut boundary, call.workspace()));
    }
    reasons.extend(of_result(rules, &boundary));
    // What is denied already needs no second opinion.
    let asked = match reasons.is_empty() {
        true => of_policies(rules, call, facts, &mut boundary),
        false => Answer::default(),
    };
    reasons.extend(asked.reasons);
    if !reasons.is_empty() {
        return Verdict::Deny(reasons);
    }
    let unanswered = rules.unanswered(call, asked.asked);
    if !unanswered.is_empty() {
        return Verdict::Ask(unanswered);
    }
    let mut notices = rules.notices.clone();
    notices.extend(fenced);
    notices.extend(rules.tell_absent(facts.placeholders));
    notices.extend(rules.unused_optional(facts.placeholders));
    notices.extend(environment.notices.into_iter().chain(rules.tell_unsigned()));
    notices.extend(asked.notices);
    Verdict::Allow(Grant::new(
        boundary,
        rules.digest.clone(),
        notices,
        asked.for_flows,
        asked.wall_clock_by,
        asked.labels,
    ))
}

/// Returns values without their origins.
fn values<'a, T: Clone + 'a>(sourced: impl IntoIterator<Item = &'a Sourced<T>>) -> Vec<T> {
    let values = sourced.into_iter().map(|one| one.value.clone());
    values.collect()
}

/// Asks the policies about this boundary; if they refuse it, about the one without the workspace's
/// repository, which nobody has named.
fn of_policies(rules: &Rules, call: &Call, facts: &Facts<'_>, boundary: &mut Boundary) -> Answer {
    let Some(policies) = &rules.policies else {
        return Answer::default();
    };
    let ask = |boundary: &mut Boundary| policies.ask(rules, call, facts, boundary);
    let without = repository::without(boundary);
    let answer = ask(boundary);
    let Some((mut narrower, told)) = without.filter(|_| !answer.reasons.is_empty()) else {
        return answer;
    };
    let mut second = ask(&mut narrower);
    if !second.reasons.is_empty() {
        return answer;
    }
    *boundary = narrower;
    second.notices.push(told);
    second
}

/// Returns refusals of login files and SSH keys that cannot be used as written.
fn of_keys(rules: &Rules, call: &Call) -> Vec<Reason> {
    let logins = rules.login_refusals().into_iter();
    let logins = logins.map(|(what, why, origin)| {
        let instead = "leave it out, or name another one";
        reason(what, why, &origin, instead)
    });
    let keys = rules.ssh_refusals(call.workspace()).into_iter();
    let keys = keys.map(|(what, why, origin)| {
        let instead = "leave it out, or keep its key in your agent or in the vault";
        reason(what, why, &origin, instead)
    });
    logins.chain(keys).collect()
}

/// Adapts the boundary to a fence. Without namespaces there are no layers: the workspace is written
/// directly, or is read-only, and so is everything else.
fn fence_in(rules: &Rules, boundary: &mut Boundary, workspace: &Path) -> Vec<Reason> {
    let as_it_is = |view: &View| view.host == view.inside;
    boundary.views.retain(as_it_is);
    for view in &mut boundary.views {
        view.access = Access::ReadOnly;
    }
    if boundary.workspace == WorkspaceMode::ReadOnly {
        return Vec::new();
    }
    let mut reasons = Vec::new();
    if boundary.workspace == WorkspaceMode::CopyOnWrite && rules.forbid_live.value {
        reasons.push(reason(
            "a program without namespaces",
            "its workspace would be written directly, and is never live here",
            &rules.forbid_live.origin,
            "let user namespaces be made (atoll doctor says how), or choose another profile",
        ));
    }
    // Landlock gives rights, and takes none back further down.
    let within = rules.views.values();
    for view in within.filter(|view| view.value.host.starts_with(workspace)) {
        reasons.push(reason(
            format!("showing {} read-only", view.value.host.display()),
            "without namespaces everything in the workspace can be written",
            &view.origin,
            "leave it out, work in a directory beside it, or let user namespaces be made \
             (atoll doctor says how)",
        ));
    }
    boundary.workspace = WorkspaceMode::Live;
    reasons
}

/// Returns refusals of credentials, also of one whose value was not read: without a placeholder its
/// program would go without it, or find something else under its name.
fn of_credentials(rules: &Rules, call: &Call, facts: &Facts<'_>) -> Vec<Reason> {
    let instead = "leave one of them out";
    let refused = rules.credential_refusals(facts.placeholders).into_iter();
    let mut reasons: Vec<Reason> = refused
        .map(|(what, why, origin)| reason(what, why, &origin, instead))
        .collect();
    for one in rules.credentials_of(facts.placeholders) {
        let name = &one.value.binding.name;
        let files = one.value.source.files();
        let shown = |file: &&&Path| rules.shows(file, call.workspace());
        if let Some(file) = files.iter().find(shown) {
            let what = format!("credential {name}");
            let why = format!("{} can be read inside", file.display());
            let instead = "keep it where no sandbox looks, or in the vault: atoll secret set NAME";
            reasons.push(reason(what, why, &one.origin, instead));
        }
        if let CredentialSource::Command(command) = &one.value.source
            && let CommandProgram::At(program) = &command.program
            && program.starts_with(call.workspace())
        {
            let what = format!("credential {name}");
            let why = format!("{} is in the workspace", program.display());
            let instead = "name a program that nobody inside has written";
            reasons.push(reason(what, why, &one.origin, instead));
        }
        if facts
            .placeholders
            .iter()
            .all(|placeholder| placeholder.name != *name)
        {
            let what = format!("credential {name}");
            let why = "its value was not read";
            let instead = "leave [credential] out where nobody reads it";
            reasons.push(reason(what, why, &one.origin, instead));
        }
    }
    reasons
}

/// Returns notices of what a program may miss in a fence, of its profile's rights; removes the
/// workspace's repository from the boundary.
fn weaker(rules: &Rules, boundary: &mut Boundary) -> Vec<Notice> {
    let is_layer = |view: &View| {
        let in_layer = matches!(view.access, Access::Layer(_));
        view.kind == ViewKind::Home && in_layer && boundary.views.contains(view)
    };
    let layers: Vec<_> = rules.views.values().collect();
    let layers: Vec<_> = layers.iter().filter(|view| is_layer(&view.value)).collect();
    let unchanged = layers.first().map(|first| {
        let places = layers.iter().map(|view| view.value.host.display().to_string());
        Notice {
            text: format!(
                "in a fence {} can be read and not changed: what has to write there, as agents do, needs a \
                 copy in its home inside (atoll help fence)",
                places.collect::<Vec<_>>().join(", ")
            ),
            origin: first.origin.clone(),
        }
    });
    let shipped = Shipped::by_name(&boundary.profile);
    let aborts = shipped.and_then(Shipped::unfenced).map(|why| Notice {
        text: format!("{why}: let user namespaces be made (atoll doctor says how)"),
        origin: Origin::BuiltIn,
    });
    let repository = repository::in_a_fence(boundary);
    let all = unchanged.into_iter().chain(repository);
    all.chain(aborts).collect()
}

/// Returns refusals of a served sandbox that would show anything of the host but its system, or
/// could write there.
fn of_served(rules: &Rules, call: &Call, boundary: &Boundary) -> Vec<Reason> {
    if call.served().is_none() && boundary.system.is_none() {
        return Vec::new();
    }
    let refused = |what: String, why: &str, origin: &Origin| {
        reason(what, why, origin, "serve it with another profile")
    };
    let mut reasons = Vec::new();
    if boundary.system.is_some() && !boundary.root {
        let why = "only root has another system than the host's";
        reasons.push(reason("the template", why, &BUILT_IN, "ask for root too"));
    }
    for view in rules.views.values() {
        let shown = &view.value;
        let is_changed = shown.access != Access::ReadOnly && !boundary.root;
        if shown.kind != ViewKind::System || is_changed {
            let why = "a served sandbox sees the host's system, and nothing else of the host";
            reasons.push(refused(shown.host.display().to_string(), why, &view.origin));
        }
    }
    if boundary.workspace != WorkspaceMode::CopyOnWrite {
        let why = "a served sandbox has a home of its own, which it changes";
        reasons.push(refused(
            "the workspace's mode".to_owned(),
            why,
            &rules.workspace.origin,
        ));
    }
    if boundary.mode == Mode::Fence {
        let why = "this host gives no namespaces, and a fence shows the host's files";
        reasons.push(reason(
            "a served sandbox",
            why,
            &BUILT_IN,
            "let user namespaces be made (atoll doctor says how)",
        ));
    }
    reasons.extend(volumes::refusals(rules, boundary));
    reasons
}

/// Returns a refusal of root. It needs ids and layers of its own, and must not give the host's
/// files away.
fn of_root(rules: &Rules, mode: Mode) -> Option<Reason> {
    let (why, instead) = match (mode, rules.workspace.value) {
        _ if !rules.root.value => return None,
        (Mode::Fence, _) => (
            "without namespaces there is no root inside: the program has the ids it has, and the \
             system's files are the host's own",
            "let user namespaces be made (atoll doctor says how), or leave root out",
        ),
        (Mode::Full, WorkspaceMode::Live) => (
            "with a live workspace it could give the host's own files to other users",
            "leave out --live: the changes wait in a layer until they are applied",
        ),
        (Mode::Full, WorkspaceMode::CopyOnWrite | WorkspaceMode::ReadOnly) => return None,
    };
    Some(reason("root inside", why, &rules.root.origin, instead))
}

/// Returns refusals of nested sandboxes. A program that may mount escapes Landlock's rules on
/// files, so nesting excludes everything that these rules alone enforce.
fn of_nesting(rules: &Rules, mode: Mode) -> Vec<Reason> {
    if !rules.nesting.value {
        return Vec::new();
    }
    let refused = |why: &str, origin: &Origin, instead: &str| {
        let what = format!("nested sandboxes ({})", rules.nesting.origin);
        reason(what, why, origin, instead)
    };
    let mut reasons = Vec::new();
    if rules.syscalls.deny_nesting.value {
        reasons.push(refused(
            "no program may make namespaces of its own here",
            &rules.syscalls.deny_nesting.origin,
            "leave nesting out, or choose another profile",
        ));
    }
    if mode == Mode::Fence {
        reasons.push(refused(
            "this host gives no namespaces, so the program has none to make others in",
            &Origin::BuiltIn,
            "let user namespaces be made (atoll doctor says how), or leave nesting out",
        ));
    } else if rules.workspace.value == WorkspaceMode::Live {
        reasons.push(refused(
            "in a live workspace it could move the mounts away that keep control files read-only",
            &rules.workspace.origin,
            "leave out --live: the changes wait in a layer until they are applied",
        ));
    }
    if let Some(program) = rules.programs.first() {
        reasons.push(refused(
            "with a list of programs: what it mounts itself could be executed too",
            &program.origin,
            "leave one of the two out",
        ));
    }
    reasons
}

/// Returns the fate of outputs, as the profile has it.
#[must_use]
pub fn outputs_rule(rules: &Rules) -> OutputsRule {
    rules.outputs_rule.value
}

/// Returns the fate of outputs, where there is a directory of them.
fn outputs(rules: &Rules, mode: Mode) -> Option<OutputsRule> {
    let is_there = rules.outputs.is_there(mode, rules.nesting.value);
    is_there.then(|| outputs_rule(rules))
}

/// Returns the refusal of a directory of outputs that Landlock could not hold.
fn of_outputs(rules: &Rules, mode: Mode) -> Option<Reason> {
    if rules.outputs != Outputs::Required || rules.outputs.is_there(mode, rules.nesting.value) {
        return None;
    }
    let (why, origin, instead) = match mode {
        Mode::Fence => (
            "this host gives no namespaces, so there is no place for it",
            &Origin::BuiltIn,
            "let user namespaces be made (atoll doctor says how), or leave out --outputs",
        ),
        Mode::Full => (
            "with nesting Landlock holds no files, so programs could read and replace what is there",
            &rules.nesting.origin,
            "leave one of the two out",
        ),
    };
    Some(reason("outputs (--outputs)", why, origin, instead))
}

/// Checks that the rules, the caller and the host belong together.
pub(crate) fn of_host(rules: &Rules, call: &Call, facts: &Facts<'_>) -> Vec<Reason> {
    let mut reasons = Vec::new();
    reasons.extend(of_outputs(rules, facts.mode));
    reasons.extend(inputs::refusal(rules, facts.mode));
    let host = facts.host;
    if *host != rules.host {
        reasons.push(reason(
            "this call",
            "the rules were compiled for another host or user",
            &BUILT_IN,
            "compile the rules again",
        ));
    }
    if (call.principal.uid, call.principal.gid) != (host.uid, host.gid) {
        reasons.push(reason(
            format!("a call of user {}", call.principal.uid),
            format!("these rules show what belongs to user {}", host.uid),
            &BUILT_IN,
            "start Atoll as that user",
        ));
    }
    if !is_plain_absolute(&host.home) || host.home == Path::new("/") {
        reasons.push(bad_home(rules, "it is not a directory of its own"));
    } else if let Some(why) = crate::places::forbidden(&host.home) {
        reasons.push(bad_home(rules, why));
    }
    reasons
}

fn bad_home(rules: &Rules, why: &str) -> Reason {
    reason(
        format!("the home directory {}", rules.host.home.display()),
        why,
        &BUILT_IN,
        "set HOME to a directory of this user",
    )
}

pub(crate) fn of_command(command: &[OsString]) -> Option<Reason> {
    let named = command.first().is_some_and(|program| !program.is_empty());
    let whole = command
        .iter()
        .all(|argument| !argument.as_encoded_bytes().contains(&0));
    (!named || !whole).then(|| {
        reason(
            "the command",
            if named {
                "an argument holds a NUL"
            } else {
                "it is empty"
            },
            &BUILT_IN,
            "name a program: atoll run -- PROGRAM",
        )
    })
}

fn of_directory(call: &Call) -> Option<Reason> {
    let within =
        is_plain_absolute(call.directory()) && call.directory().starts_with(call.workspace());
    (!within).then(|| {
        reason(
            format!("starting in {}", call.directory().display()),
            format!(
                "it is not within the workspace {}",
                call.workspace().display()
            ),
            &BUILT_IN,
            "start in the workspace or beneath it",
        )
    })
}

/// Checks the resulting boundary once more, so that a mistake in merging layers ends in a denial
/// instead of a wider boundary.
fn of_result(rules: &Rules, boundary: &Boundary) -> Vec<Reason> {
    let forbidden = boundary.views.iter().filter_map(|view| {
        let why = forbidden_here(&view.host, &rules.host).or_else(|| {
            let denied = rules
                .denied_places
                .iter()
                .any(|denied| overlap(&denied.value, &view.host));
            denied.then_some("it is denied")
        })?;
        Some(reason(
            format!("showing {}", view.host.display()),
            why,
            &BUILT_IN,
            "this is a mistake in Atoll; please report it",
        ))
    });
    forbidden.collect()
}
