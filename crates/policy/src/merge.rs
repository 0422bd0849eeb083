//! Merging of profiles and a project's file.

use std::path::PathBuf;

use atoll_model::network::Meant;
use atoll_model::{Access, Keep, Layering, View, ViewKind};

use crate::bounds::narrow_workspace;
use crate::error::{Problem, ProfileError, invalid, problem_at};
use crate::home::{HomePlace, HomeUse};
use crate::network::{Ignored, NetworkSettings};
use crate::origin::{Origin, Sourced};
use crate::places::{Place, SYSTEM, forbidden_here};
use crate::refusal::reason;
use crate::rules::{Rules, Tightened};
use crate::settings::Settings;
use crate::source::Requested;

/// Places as named, before they become views of this host.
#[derive(Default)]
pub(crate) struct Draft {
    system: Option<Vec<Sourced<PathBuf>>>,
    home: Vec<Sourced<HomePlace>>,
    files: Vec<Sourced<Place>>,
    execute: Option<Vec<Sourced<Place>>>,
}

/// Merges a profile over those that it extends: lists add up, all else is replaced.
pub(crate) fn merge_profile(
    rules: &mut Rules,
    draft: &mut Draft,
    settings: Settings,
) -> Result<(), ProfileError> {
    replace(&mut rules.workspace, settings.workspace);
    rules.network.merge(settings.network)?;
    rules.trust.merge(settings.trust);
    rules.labels.merge(settings.labels);
    rules.checks.merge(settings.checks);
    rules.add_credentials(settings.credentials);
    rules.add_logins(settings.logins);
    rules.git.extend(settings.git);
    rules.add_ssh(settings.ssh);
    replace(&mut rules.forbid_live, settings.forbid_live);
    replace(&mut rules.terminal.queries, settings.terminal.queries);
    replace(&mut rules.terminal.clipboard, settings.terminal.clipboard);
    replace(&mut rules.terminal.title, settings.terminal.title);
    replace(
        &mut rules.syscalls.deny_debugging,
        settings.syscalls.deny_debugging,
    );
    replace(
        &mut rules.syscalls.deny_sockets,
        settings.syscalls.deny_sockets,
    );
    replace(
        &mut rules.syscalls.deny_nesting,
        settings.syscalls.deny_nesting,
    );
    if let Some(flag) = settings.unenforced_limits {
        rules.limits.limits.dangerous_unenforced_limits = flag.value;
        rules.limits.unenforced = flag.origin;
    }
    let memory = rules.host.memory_bytes;
    for (key, text) in settings.limits {
        let set = rules
            .limits
            .set(key, &text.value, text.origin.clone(), memory);
        set.map_err(|error| invalid(&text.origin, format!("[limits]: {error}")))?;
    }
    replace(&mut rules.root, settings.root);
    replace(&mut rules.nesting, settings.nesting);
    replace(&mut rules.outputs_rule, settings.outputs);
    rules.inputs.merge(settings.inputs);
    if let Some(system) = settings.system_read {
        draft.system = Some(system.value);
    }
    replace(&mut rules.keep_caches, settings.home.keep_caches);
    if let Some(execute) = settings.execute {
        draft.execute = Some(execute.value);
    }
    draft.home.extend(settings.home.places);
    draft.files.extend(settings.files_read);
    rules.environment.pass.extend(settings.pass);
    for variable in settings.set {
        let Sourced { value, origin } = variable;
        let set = Sourced::new(value.1.into(), origin);
        rules.environment.set.insert(value.0, set);
    }
    Ok(())
}

fn replace<T>(present: &mut Sourced<T>, new: Option<Sourced<T>>) {
    if let Some(new) = new {
        *present = new;
    }
}

/// Merges a project's file over the profile: places and plain variables add up, since a person has
/// trusted them; all else only tightens.
pub(crate) fn merge_project(
    rules: &mut Rules,
    draft: &mut Draft,
    mut settings: Settings,
) -> Result<(), ProfileError> {
    let memory = rules.host.memory_bytes;
    for (key, text) in std::mem::take(&mut settings.limits) {
        let before = rules.limits.origin(key);
        let tightened = rules
            .limits
            .tighten(key, &text.value, text.origin.clone(), memory);
        match tightened.map_err(|error| invalid(&text.origin, format!("[limits]: {error}")))? {
            Tightened::Counts | Tightened::Same => {}
            Tightened::Looser => rules.notice(
                format!("limit {key} is ignored: what is there already is tighter ({before})"),
                text.origin,
            ),
        }
    }
    if let Some(mode) = settings.workspace.take() {
        narrow_workspace(rules, mode);
    }
    if let Some(narrower) = settings.execute.take() {
        narrow_programs(rules, draft, narrower);
    }
    for (text, origin) in rules.trust.lower(std::mem::take(&mut settings.trust)) {
        rules.notice(text, origin);
    }
    settings.network = narrow_network(rules, settings.network);
    merge_profile(rules, draft, settings)
}

/// Returns a project's network settings without anything that would allow, for which a notice is
/// added instead.
fn narrow_network(rules: &mut Rules, settings: NetworkSettings) -> NetworkSettings {
    let (narrowed, ignored) = settings.narrowed();
    for one in ignored {
        let (what, option) = match &one.value {
            Ignored::Preset(preset) => (
                format!("what the preset {} allows", preset.name),
                format!("--preset {} does", preset.name),
            ),
            Ignored::Rule(rule) => (format!("reaching {rule}"), option_for(rule)),
            Ignored::Published(port) => (
                format!("publishing port {port}"),
                format!("--publish {port} does"),
            ),
            Ignored::Upstream(key) => (
                (*key).to_owned(),
                "the organisation's file says how connections go on".to_owned(),
            ),
        };
        rules.notice(
            format!(
                "{what} is not allowed by a project's file: {option}, or a profile of your own"
            ),
            one.origin,
        );
    }
    narrowed
}

/// Returns the option that allows the same. The file may be somebody else's: text that a shell
/// would interpret is not offered for pasting.
fn option_for(rule: &Meant) -> String {
    let is_plain = |one: char| one.is_ascii_alphanumeric() || "-._:,/[]".contains(one);
    match rule.as_text() {
        Some(text) if text.chars().all(is_plain) => format!("--allow {text} does"),
        Some(text) if !text.contains('\'') => format!("--allow '{text}' does"),
        Some(_) | None => "--allow does".to_owned(),
    }
}

fn narrow_programs(rules: &mut Rules, draft: &mut Draft, narrower: Sourced<Vec<Sourced<Place>>>) {
    let home = rules.host.home.clone();
    let wider = draft.execute.take();
    let within = |place: &Sourced<Place>, list: &[Sourced<Place>]| {
        let path = place.value.resolve(&home);
        let holds = |outer: &Sourced<Place>| path.starts_with(outer.value.resolve(&home));
        list.iter().any(holds)
    };
    let both = match wider {
        None => narrower.value,
        Some(wider) => {
            let mut both = narrower.value.clone();
            both.retain(|place| within(place, &wider));
            let kept = wider
                .into_iter()
                .filter(|place| within(place, &narrower.value));
            for place in kept {
                if !both.iter().any(|one| one.value == place.value) {
                    both.push(place);
                }
            }
            both
        }
    };
    if both.is_empty() {
        rules.refusals.push(reason(
            "every program",
            "what the project's file allows to be executed and what the profile allows have nothing \
             in common",
            &narrower.origin,
            "change [programs] execute in one of them",
        ));
    }
    draft.execute = Some(both);
}

const KEEP_CACHES: Origin = Origin::CommandLine("--keep-caches");

/// Turns places into views of this host. A place that is never shown is an error in the file that
/// names it; one of Atoll's own list is left out.
pub(crate) fn settle_places(
    rules: &mut Rules,
    draft: Draft,
    requested: &Requested,
) -> Result<(), ProfileError> {
    if requested.keep_caches {
        rules.keep_caches = Sourced::new(true, KEEP_CACHES);
    }
    let built_in = || {
        SYSTEM
            .iter()
            .map(|path| Sourced::built_in(PathBuf::from(path)))
            .collect()
    };
    let home = rules.host.home.clone();
    let keep = if rules.keep_caches.value {
        Keep::Profile
    } else {
        Keep::Run
    };
    let mut problems = Vec::new();
    let mut show = |path: PathBuf, access, kind, origin: Origin| {
        show_place(rules, &mut problems, path, access, kind, origin);
    };
    for path in draft.system.unwrap_or_else(built_in) {
        show(path.value, Access::ReadOnly, ViewKind::System, path.origin);
    }
    for place in draft.home {
        let (access, kind) = match place.value.usage {
            HomeUse::Read => (Access::ReadOnly, ViewKind::Home),
            HomeUse::Layer => (Access::Layer(Layering { keep: Keep::Run }), ViewKind::Home),
            HomeUse::Keep => {
                let keep = Keep::Profile;
                (Access::Layer(Layering { keep }), ViewKind::Home)
            }
            HomeUse::Cache => (Access::Layer(Layering { keep }), ViewKind::Cache),
        };
        show(home.join(place.value.path), access, kind, place.origin);
    }
    for place in draft.files {
        let path = place.value.resolve(&home);
        show(path, Access::ReadOnly, ViewKind::Input, place.origin);
    }
    for place in draft.execute.into_iter().flatten() {
        rules.programs.push(place.map(|place| place.resolve(&home)));
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(ProfileError::Invalid(problems))
    }
}

fn show_place(
    rules: &mut Rules,
    problems: &mut Vec<Problem>,
    path: PathBuf,
    access: Access,
    kind: ViewKind,
    origin: Origin,
) {
    match (forbidden_here(&path, &rules.host), &origin) {
        (None, _) => {
            let view = View {
                host: path.clone(),
                inside: path.clone(),
                access,
                kind,
                required: kind == ViewKind::Input,
            };
            rules.views.insert(path, Sourced::new(view, origin));
        }
        (Some(why), Origin::BuiltIn) => {
            rules.notice(format!("{} is not shown: {why}", path.display()), origin);
        }
        (Some(why), Origin::CommandLine(_) | Origin::File { .. }) => problems.push(problem_at(
            &origin,
            format!("{} is never shown: {why}", path.display()),
        )),
    }
}
