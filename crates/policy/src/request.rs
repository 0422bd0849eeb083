//! The command line's changes: the person decides, within the organisation's bounds.

mod network;
mod trust;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use atoll_model::{Access, Keep, Layering, LimitKey, View, ViewKind, WorkspaceMode};

use crate::digest::PolicyDigest;
use crate::error::ProfileError;
use crate::origin::{Origin, Sourced};
use crate::places::{
    CHANGED_BY_PACKAGES, LEFT_AS_IT_IS, forbidden_here, instead_of, is_plain_absolute, overlap,
};
use crate::refusal::reason;
use crate::rules::{Rules, inputs};
use crate::source::{Outputs, Requested};
use crate::variables::{self, Pattern};

const LIVE: Origin = Origin::CommandLine("--live");
const ROOT: Origin = Origin::CommandLine("--root");
const NESTING: Origin = Origin::CommandLine("--nesting");
const RO: Origin = Origin::CommandLine("--ro");
const RW: Origin = Origin::CommandLine("--rw");
const LIMIT: Origin = Origin::CommandLine("--limit");
const TIMEOUT: Origin = Origin::CommandLine("--timeout");
const ENV: Origin = Origin::CommandLine("--env");

/// The most options of a kind, as `--ro` and `--env`.
const OPTIONS_MAX: usize = 1_000;

pub(crate) fn apply(rules: &mut Rules, requested: &Requested) -> Result<(), ProfileError> {
    if requested.live {
        apply_live(rules);
    }
    if requested.layered && rules.workspace.value == WorkspaceMode::Live {
        rules.workspace = Sourced::new(WorkspaceMode::CopyOnWrite, Origin::BuiltIn);
    }
    if requested.root {
        rules.root = Sourced::new(true, ROOT);
    }
    rules.system.clone_from(&requested.system);
    if requested.nesting {
        rules.nesting = Sourced::new(true, NESTING);
    }
    rules.outputs = requested.outputs;
    inputs::apply(rules, &requested.inputs);
    too_many("--ro", requested.read_only_dirs.len())?;
    too_many("--rw", requested.read_write_dirs.len())?;
    too_many("--env", requested.environment.len())?;
    too_many("--allow", requested.allow.len())?;
    too_many("allowed.toml", requested.allowed.len())?;
    too_many("--deny", requested.deny.len())?;
    too_many("--ask", requested.ask.len())?;
    too_many("--tunnel", requested.tunnel.len())?;
    too_many("--publish", requested.publish.len())?;
    too_many("--host-port", requested.host_ports.len())?;
    apply_views(rules, &requested.read_only_dirs, &RO, Access::ReadOnly);
    let layer = Access::Layer(Layering { keep: Keep::Run });
    apply_views(rules, &requested.read_write_dirs, &RW, layer);
    network::apply(rules, requested)?;
    trust::apply(rules, requested)?;
    apply_limits(rules, requested)?;
    for option in &requested.environment {
        apply_variable(rules, option).map_err(|why| ProfileError::Request {
            option: "--env",
            why,
        })?;
    }
    Ok(())
}

fn too_many(option: &'static str, number: usize) -> Result<(), ProfileError> {
    if number <= OPTIONS_MAX {
        return Ok(());
    }
    Err(ProfileError::Request {
        option,
        why: format!("given {number} times; at most {OPTIONS_MAX}"),
    })
}

fn apply_live(rules: &mut Rules) {
    let refused = |why: &str, origin: &Origin| {
        reason(
            "--live",
            why,
            origin,
            "leave out --live, or choose another profile",
        )
    };
    if rules.forbid_live.value {
        let refusal = refused(
            "the workspace is never live here",
            &rules.forbid_live.origin,
        );
        rules.refusals.push(refusal);
    } else if rules.workspace.value == WorkspaceMode::ReadOnly {
        let refusal = refused("the workspace is read-only here", &rules.workspace.origin);
        rules.refusals.push(refusal);
    } else {
        rules.workspace = Sourced::new(WorkspaceMode::Live, LIVE);
    }
}

fn apply_views(rules: &mut Rules, paths: &[PathBuf], option: &Origin, access: Access) {
    for path in paths {
        let why = if is_plain_absolute(path) {
            forbidden_here(path, &rules.host)
        } else {
            Some("it is not an absolute path free of `.` and `..`")
        };
        let is_system = |view: &&Sourced<View>| {
            view.value.kind == ViewKind::System && overlap(&view.value.inside, path)
        };
        let is_changed = matches!(access, Access::Layer(_));
        let system = rules.views.values().find(is_system);
        let of_system = system.filter(|_| is_changed && why.is_none());
        if let Some(why) = why.or(of_system.map(|_| "it is of the system, which no run changes")) {
            rules.refusals.push(reason(
                format!("{option} {}", path.display()),
                why,
                &Origin::BuiltIn,
                instead_of(path, Some(&rules.host)),
            ));
            continue;
        }
        let view = View {
            host: path.components().collect(),
            inside: path.components().collect(),
            access,
            kind: ViewKind::Input,
            required: true,
        };
        let inside = view.inside.clone();
        rules
            .views
            .insert(inside, Sourced::new(view, option.clone()));
    }
}

/// Sets up the views for root: each directory of the system is changed in a layer of the run, and
/// of the host's /var only the directories of package managers are there.
pub(crate) fn become_root(rules: &mut Rules) {
    if !rules.root.value {
        return;
    }
    if rules.system.is_some() {
        // None of the host's is there.
        rules
            .views
            .retain(|_, view| view.value.kind != ViewKind::System);
        return;
    }
    let layer = Access::Layer(Layering { keep: Keep::Run });
    for view in rules.views.values_mut() {
        let is_kept_by_a_daemon = LEFT_AS_IT_IS
            .iter()
            .any(|one| view.value.inside == Path::new(one));
        if view.value.kind == ViewKind::System && !is_kept_by_a_daemon {
            view.value.access = layer;
        }
    }
    let origin = rules.root.origin.clone();
    for path in CHANGED_BY_PACKAGES.map(PathBuf::from) {
        let view = View {
            host: path.clone(),
            inside: path.clone(),
            access: layer,
            kind: ViewKind::System,
            required: false,
        };
        let view = || Sourced::new(view, origin.clone());
        rules.views.entry(path).or_insert_with(view);
    }
    rules.notice(
        "the program is root inside, over a copy-on-write system; of the host's system nothing \
         changes"
            .to_owned(),
        origin,
    );
}

/// Adds a notice that the program may create sandboxes of its own, which removes one layer of
/// defence.
pub(crate) fn tell_nesting(rules: &mut Rules) {
    if rules.nesting.value {
        let origin = rules.nesting.origin.clone();
        rules.notice(
            "the program can make namespaces and mounts of its own inside: more of the kernel \
             can be reached, Landlock holds no files, and attempts to get out are refused \
             unheard"
                .to_owned(),
            origin,
        );
    }
}

/// Leaves out named inputs within system directories for a run by root: it sees these directories
/// as read-only wholes, in which nothing more can be mounted. The inputs are there already, with
/// everybody's rights.
pub(crate) fn leave_to_the_system(rules: &mut Rules) {
    if rules.host.uid != 0 {
        return;
    }
    let of = |rules: &Rules, kind: ViewKind| -> Vec<(PathBuf, Origin)> {
        let views = rules.views.values().filter(|view| view.value.kind == kind);
        views
            .map(|view| (view.value.inside.clone(), view.origin.clone()))
            .collect()
    };
    let system = of(rules, ViewKind::System);
    for (path, origin) in of(rules, ViewKind::Input) {
        let above = system
            .iter()
            .find(|(above, _)| path != *above && path.starts_with(above));
        if let Some((above, _)) = above {
            rules.views.remove(&path);
            let text = format!(
                "{} is shown as a part of {}: what not everybody may read there cannot be read",
                path.display(),
                above.display()
            );
            rules.notice(text, origin);
        }
    }
}

fn apply_limits(rules: &mut Rules, requested: &Requested) -> Result<(), ProfileError> {
    let memory = rules.host.memory_bytes;
    for (key, text) in &requested.limits {
        let set = rules.limits.set(*key, text, LIMIT, memory);
        set.map_err(|error| ProfileError::Request {
            option: "--limit",
            why: error.to_string(),
        })?;
    }
    let Some(timeout) = requested.timeout else {
        return Ok(());
    };
    if timeout.is_zero() {
        return Err(ProfileError::Request {
            option: "--timeout",
            why: "must be longer than zero".to_owned(),
        });
    }
    let asked = rules.limits.origin(LimitKey::WallClock) == LIMIT;
    let wall_clock = &mut rules.limits.limits.wall_clock;
    if !(asked && wall_clock.is_some_and(|limit| limit <= timeout)) {
        *wall_clock = Some(timeout);
        rules.limits.origins.insert(LimitKey::WallClock, TIMEOUT);
    }
    Ok(())
}

fn apply_variable(rules: &mut Rules, option: &OsStr) -> Result<(), String> {
    let mut parts = option.as_bytes().splitn(2, |byte| *byte == b'=');
    let name = parts.next().unwrap_or_default();
    let name = std::str::from_utf8(name).map_err(|_| "the name is not UTF-8".to_owned())?;
    if !variables::is_name(name) {
        let why = format!("{name:?} is not a variable's name");
        return Err(match Pattern::parse_passed(name) {
            Ok(_) => format!("{why}; wildcards are for profiles: [environment] pass = [{name:?}]"),
            Err(_) => why,
        });
    }
    if variables::is_own(name) {
        return Err(format!("{name} is Atoll's own"));
    }
    let denied = rules
        .environment
        .denied
        .iter()
        .find(|pattern| pattern.value.matches(OsStr::new(name)));
    if let Some(denied) = denied {
        let refusal = reason(
            format!("--env {name}"),
            "this variable is denied",
            &denied.origin,
            "leave it out, or ask who wrote that rule",
        );
        rules.refusals.push(refusal);
        return Ok(());
    }
    match parts.next() {
        Some(value) if value.contains(&0) => return Err("a value cannot hold a NUL".to_owned()),
        Some(value) => {
            let value: OsString = OsStr::from_bytes(value).to_owned();
            let value = Sourced::new(value, ENV);
            rules.environment.set.insert(name.to_owned(), value);
        }
        None => {
            // A value that a profile sets gives way to the caller's own.
            rules.environment.set.remove(name);
            let pattern = Pattern::built_in(name);
            rules.environment.pass.push(Sourced::new(pattern, ENV));
        }
    }
    Ok(())
}

/// Adds the options to the policy's version; the profile's own file is added when it is loaded.
pub(crate) fn record(requested: &Requested, digest: &mut PolicyDigest) {
    if let Some(login) = &requested.login {
        digest.add("login", login.as_str().as_bytes());
    }
    digest.add("--live", &[u8::from(requested.live)]);
    if requested.layered {
        digest.add("layered", &[1]);
    }
    digest.add("--root", &[u8::from(requested.root)]);
    if let Some(system) = &requested.system {
        digest.add("system", system.as_bytes());
    }
    digest.add("--nesting", &[u8::from(requested.nesting)]);
    if requested.outputs != Outputs::None {
        digest.add("--outputs", &[1]);
    }
    for input in &requested.inputs {
        let text = format!("{}={}", input.name, input.source);
        digest.add("--input", text.as_bytes());
    }
    if requested.keep_caches {
        digest.add("--keep-caches", &[1]);
    }
    for path in &requested.read_only_dirs {
        digest.add("--ro", path.as_os_str().as_bytes());
    }
    for path in &requested.read_write_dirs {
        digest.add("--rw", path.as_os_str().as_bytes());
    }
    for (key, text) in &requested.limits {
        digest.add(&format!("--limit {key}"), text.as_bytes());
    }
    if let Some(timeout) = requested.timeout {
        digest.add("--timeout", &timeout.as_nanos().to_be_bytes());
    }
    for (option, stated) in [
        ("--trust", &requested.trust),
        ("--mode", &requested.mode),
        ("--task", &requested.task),
        ("--purpose", &requested.purpose),
    ] {
        if let Some(text) = stated {
            digest.add(option, text.as_bytes());
        }
    }
    let earlier = &requested.earlier;
    for text in earlier.stated.iter().chain(&earlier.narrowed) {
        digest.add("purpose of an earlier run", text.as_bytes());
    }
    for one in &requested.allowed {
        digest.add(&one.profile, one.to.as_bytes());
    }
    digest.add("--learn", &[u8::from(requested.learn)]);
    for (option, list) in [
        ("--preset", &requested.presets),
        ("--allow", &requested.allow),
        ("--tunnel", &requested.tunnel),
        ("--deny", &requested.deny),
        ("--ask", &requested.ask),
        ("--publish", &requested.publish),
        ("--host-port", &requested.host_ports),
    ] {
        for text in list {
            digest.add(option, text.as_bytes());
        }
    }
    for option in &requested.environment {
        digest.add("--env", option.as_bytes());
    }
}
