//! What a profile grants, as policies that a person can go on editing.

mod network;
mod paths;
mod rows;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use atoll_model::WorkspaceMode;
use atoll_model::network::{CredentialName, Network};

/// What is written: the rights of one profile.
#[derive(Clone, Copy, Debug)]
pub struct Granted<'a> {
    /// Its name.
    pub profile: &'a str,
    /// What may be reached and visited.
    pub network: &'a Network,
    /// Credentials that are put in.
    pub credentials: &'a [CredentialName],
    /// Places that are shown, and whether they can be changed in a layer.
    pub places: &'a [(PathBuf, bool)],
    /// How the workspace is given, and where it is if that is known.
    pub workspace: (WorkspaceMode, Option<&'a Path>),
    /// Whether programs can be root inside.
    pub root: bool,
    /// Whether they can make namespaces of their own.
    pub nesting: bool,
    /// Which programs are started, by their last name; any without one.
    pub started: &'a [String],
}

/// All of it as text, which [`Policies::compile`](crate::Policies::compile) reads.
///
/// As policies of a layer it allows exactly what the profile allows. What is not about whether
/// something may happen, as limits, is not in it, and nothing of what nobody asks policies about:
/// whoever edits it could take that for a rule.
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
    network::write(granted.network, &mut out);
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
    for (place, _) in granted.places.iter().filter(|(_, changes)| *changes) {
        out.place("action == Action::\"write\"", place);
    }
    match (mode, workspace) {
        (WorkspaceMode::ReadOnly, _) => out.comment("not the workspace"),
        (_, Some(workspace)) => {
            out.comment("and the workspace: a line for each, or one for a directory above them");
            out.place("action == Action::\"write\"", workspace);
        }
        (_, None) => out.comment(
            "and the workspace: action == Action::\"write\", resource in Path::\"/its/path\"",
        ),
    }
    if mode == WorkspaceMode::ReadOnly {
        out.none_if_empty("write", "nothing is changed");
    }
}

/// Policies on their way to a text.
#[derive(Debug, Default)]
pub(crate) struct Text {
    whole: String,
    /// How many policies of the present section permit something.
    permits: usize,
}

impl Text {
    fn section(&mut self, title: &str) {
        self.whole.push('\n');
        self.comment(title);
        self.permits = 0;
    }

    /// What a file says may stand in a comment: it stays one line of it.
    pub(crate) fn comment(&mut self, text: &str) {
        let shown: String = text
            .chars()
            .map(|one| if matches!(one, ' '..='~') { one } else { '?' })
            .collect();
        let _ = writeln!(self.whole, "// {shown}");
    }

    /// Closes what nothing of a section permits: as a layer without an opinion it would be left as
    /// it is.
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

    /// The same where one of many holds besides: as many policies as that takes, each about some
    /// of them.
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

/// As a text of Cedar, in ASCII alone.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    escape(text, &mut out);
    out.push('"');
    out
}

pub(crate) fn escape(text: &str, out: &mut String) {
    for one in text.chars() {
        match one {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            ' '..='~' => out.push(one),
            other => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(other));
            }
        }
    }
}
