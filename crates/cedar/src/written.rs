//! The rights of a profile, written as policies that a person can edit.

mod asks;
mod network;
mod paths;
mod rows;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use atoll_model::WorkspaceMode;
use atoll_model::network::{CredentialName, Network};

use crate::Action;
use crate::quoting::quoted;

/// The rights of one profile.
#[derive(Clone, Copy, Debug)]
pub struct Granted<'a> {
    /// The profile's name.
    pub profile: &'a str,
    /// The network rules and published ports.
    pub network: &'a Network,
    /// The credentials that are injected.
    pub credentials: &'a [CredentialName],
    /// The paths that are shown, each with whether it can be changed in a layer.
    pub places: &'a [(PathBuf, bool)],
    /// The workspace mode, and the workspace's path if it is known.
    pub workspace: (WorkspaceMode, Option<&'a Path>),
    /// True if programs may be root in the sandbox.
    pub root: bool,
    /// True if programs may create namespaces of their own.
    pub nesting: bool,
    /// The base names of the programs that may be started; empty for any.
    pub started: &'a [String],
    /// Conditions under which a person is asked about connections and requests, besides the rules of
    /// the network that ask.
    pub asks: &'a [(Action, String)],
}

/// Returns these rights as Cedar text, for [`Policies::compile`](crate::Policies::compile) to read.
///
/// As policies of a layer they allow exactly what the profile allows. Settings that decide nothing,
/// as limits, are left out, and so is anything that no question is asked about: whoever edits the
/// text could take it for a rule.
#[must_use]
pub fn written(granted: &Granted<'_>) -> String {
    let mut out = Text::default();
    out.comment(&format!(
        "What the profile {} allows, in Cedar.",
        granted.profile
    ));
    out.comment("What nothing permits is denied; forbid beats permit.");
    out.comment("Limits, and from where programs inside execute others, stay in the profile.");
    runs(granted, &mut out);
    places(granted, &mut out);
    network::write(granted.network, granted.asks, &mut out);
    out.section("Credentials that are put into requests outside");
    for name in granted.credentials {
        let head = format!(
            "action == Action::\"use_credential\", resource == Credential::{}",
            quoted(name.as_str())
        );
        out.policy("permit", &head, &[], &[]);
    }
    out.none_if_empty("use_credential", "no credential is used");
    out.section("Ports inside that programs of the host can visit");
    for one in &granted.network.publish {
        let head = format!(
            "action == Action::\"publish\", resource == Port::\"{}\"",
            one.port.inside
        );
        out.policy(
            "permit",
            &head,
            &[format!("context.outside == {}", one.port.outside)],
            &[],
        );
    }
    out.none_if_empty("publish", "no port is published");
    out.section("Who says yes for longer than once, and gives the run other policies");
    let head = "action in [Action::\"escalate\", Action::\"administer\"], resource is Run";
    out.policy("permit", head, &[], &[]);
    out.section("Who undoes what was taken over");
    out.policy(
        "permit",
        "action == Action::\"restore\", resource is Run",
        &[],
        &[],
    );
    out.section("What is taken over into the person's own files");
    match granted.workspace.0 {
        WorkspaceMode::ReadOnly => out.none_if_empty("promote", "the workspace is read-only"),
        WorkspaceMode::CopyOnWrite | WorkspaceMode::Live => {
            out.policy(
                "permit",
                "action == Action::\"promote\", resource is Path",
                &[],
                &[],
            );
        }
    }
    out.whole
}

fn runs(granted: &Granted<'_>, out: &mut Text) {
    out.section("Programs that are started");
    let workspace = match granted.workspace.0 {
        WorkspaceMode::CopyOnWrite => "context.workspace != \"live\"",
        WorkspaceMode::ReadOnly => "context.workspace == \"read-only\"",
        WorkspaceMode::Live => "",
    };
    let mut conditions = vec![workspace.to_owned()];
    if !granted.root {
        conditions.push("!context.root".to_owned());
    }
    if !granted.nesting {
        conditions.push("!context.nesting".to_owned());
    }
    conditions.retain(|one| !one.is_empty());
    let head = |which: &str| format!("action == Action::\"run\", resource {which}");
    if granted.started.is_empty() {
        out.policy("permit", &head("is Program"), &conditions, &[]);
    }
    for program in granted.started {
        let which = format!("in Program::{}", quoted(program));
        out.policy("permit", &head(&which), &conditions, &[]);
    }
    out.section("Programs that are started in a sandbox that is there, the first one too");
    let head = |which: &str| format!("action == Action::\"exec\", resource {which}");
    if granted.started.is_empty() {
        out.policy("permit", &head("is Program"), &[], &[]);
    }
    for program in granted.started {
        let which = format!("in Program::{}", quoted(program));
        out.policy("permit", &head(&which), &[], &[]);
    }
}

fn places(granted: &Granted<'_>, out: &mut Text) {
    out.section("Places that are shown; all else of the host is not there");
    for (place, _) in granted.places {
        out.place("action == Action::\"read\"", place);
    }
    let (mode, workspace) = granted.workspace;
    match workspace {
        Some(workspace) => {
            out.comment("and the workspace: a line for each, or one for a directory above them");
            out.place("action == Action::\"read\"", workspace);
        }
        None => out.comment(
            "and the workspace: action == Action::\"read\", resource in Path::\"/its/path\"",
        ),
    }
    out.section(
        "Places that are changed, each in a layer of the run's unless the workspace is live",
    );
    let read_only = |above: &Path| -> Vec<&Path> {
        let places = granted.places.iter().filter(|(_, changes)| !changes);
        let places = places.map(|(place, _)| place.as_path());
        places
            .filter(|place| place.starts_with(above) && *place != above)
            .collect()
    };
    for (place, _) in granted.places.iter().filter(|(_, changes)| *changes) {
        out.changed(place, &read_only(place));
    }
    match (mode, workspace) {
        (WorkspaceMode::ReadOnly, _) => out.comment("not the workspace"),
        (_, Some(workspace)) => {
            out.comment("and the workspace: a line for each, or one for a directory above them");
            out.changed(workspace, &read_only(workspace));
        }
        (_, None) => out.comment(
            "and the workspace: action == Action::\"write\", resource in Path::\"/its/path\"",
        ),
    }
    if mode == WorkspaceMode::ReadOnly {
        out.none_if_empty("write", "nothing is changed");
    }
}

/// A text of policies, as it is written.
#[derive(Debug, Default)]
pub(crate) struct Text {
    whole: String,
    /// The number of permits in the current section.
    permits: usize,
}

impl Text {
    fn section(&mut self, title: &str) {
        self.whole.push('\n');
        self.comment(title);
        self.permits = 0;
    }

    /// Writes a comment. Text from a file may be in it: it stays on one line.
    pub(crate) fn comment(&mut self, text: &str) {
        let shown: String = text
            .chars()
            .map(|one| if matches!(one, ' '..='~') { one } else { '?' })
            .collect();
        let _ = writeln!(self.whole, "// {shown}");
    }

    /// Writes a forbid for a section without permits: a layer without an opinion on the action
    /// would not restrict it.
    fn none_if_empty(&mut self, action: &str, text: &str) {
        if self.permits == 0 {
            self.comment(&format!(
                "none: {text}; what is to be takes this one's place"
            ));
            let head = format!("action == Action::\"{action}\", resource");
            self.policy("forbid", &head, &[], &[]);
        }
    }

    pub(crate) fn policy(&mut self, effect: &str, head: &str, when: &[String], unless: &[String]) {
        self.permits += usize::from(effect == "permit");
        self.whole
            .push_str(&rows::policy(effect, head, when, unless));
    }

    /// Writes policies that hold if one of many conditions holds too: as many policies as needed,
    /// each about some of them.
    fn policies(
        &mut self,
        effect: &str,
        head: &str,
        when: &[String],
        one_of: &[String],
        unless: &[String],
    ) {
        if one_of.is_empty() {
            return self.policy(effect, head, when, unless);
        }
        let around = rows::policy(effect, head, when, unless).len();
        for part in rows::parts(one_of, around) {
            let when = [when, &[rows::any(part)]].concat();
            self.policy(effect, head, &when, unless);
        }
    }

    /// Writes a place that can be changed, but for these beneath it.
    fn changed(&mut self, place: &Path, but: &[&Path]) {
        let action = "action == Action::\"write\"";
        let within = |place: &Path| Some(format!("resource in Path::{}", quoted(place.to_str()?)));
        let unless: Option<Vec<String>> = but.iter().map(|one| within(one)).collect();
        let (Some(scope), Some(unless)) = (within(place), unless) else {
            return self.comment(&format!("not {}, which is not UTF-8", place.display()));
        };
        let head = format!("{action}, {scope}");
        if rows::is_short(&head, &[], &unless) {
            return self.policy("permit", &head, &[], &unless);
        }
        self.policy("permit", &head, &[], &[]);
        for scope in unless {
            self.policy("forbid", &format!("{action}, {scope}"), &[], &[]);
        }
    }

    fn place(&mut self, action: &str, place: &Path) {
        match place.to_str() {
            Some(text) => self.policy(
                "permit",
                &format!("{action}, resource in Path::{}", quoted(text)),
                &[],
                &[],
            ),
            None => self.comment(&format!("not {}, which is not UTF-8", place.display())),
        }
    }
}
