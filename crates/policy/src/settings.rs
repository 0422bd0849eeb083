//! The tables that profiles and project files share.

use std::ops::Range;
use std::path::PathBuf;

use atoll_model::network::HostName;
use atoll_model::{LimitKey, Limits, OutputsRule, WorkspaceMode};

use crate::checks::CheckSettings;
use crate::credential::{self, Written};
use crate::document::{Complaint, Document, Section};
use crate::git;
use crate::home::HomeSettings;
use crate::inputs::InputSettings;
use crate::labels::LabelSettings;
use crate::levels::TrustSettings;
use crate::login;
use crate::network::NetworkSettings;
use crate::origin::Sourced;
use crate::places::{Place, parse_absolute, parse_place};
use crate::ssh;
use crate::suggest::nearest;
use crate::variables::{self, Pattern, check_variable};
use crate::words::{Author, parse_outputs, parse_workspace};

/// A typical memory size, bytes, to check limits in a file before the host is known.
const TYPICAL_MEMORY_BYTES: u64 = 16 << 30;

/// The tables and keys that a project's file has not, and why.
const NOT_OF_PROJECTS: [(&str, &str); 8] = [
    (
        "system",
        "a project's file cannot choose the system's directories",
    ),
    (
        "credential",
        "a project's file cannot name credentials; write it into a profile of your own",
    ),
    (
        "login",
        "a project's file cannot name logins; write it into a profile of your own",
    ),
    (
        "ssh",
        "a project's file cannot use keys; write it into a profile of your own",
    ),
    (
        "git",
        "a project's file cannot change what git asks; write it into a profile of your own",
    ),
    (
        "outputs",
        "a project's file cannot say what becomes of outputs; write it into a profile of your own",
    ),
    (
        "inputs",
        "a project's file cannot bound inputs; write it into a profile of your own",
    ),
    ("dangerous", "a project's file cannot weaken the boundary"),
];

/// The settings of one file; empty where it is silent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) network: NetworkSettings,
    pub(crate) trust: TrustSettings,
    pub(crate) labels: LabelSettings,
    pub(crate) credentials: Vec<Sourced<Written>>,
    pub(crate) logins: Vec<Sourced<login::Written>>,
    pub(crate) git: Vec<Sourced<HostName>>,
    pub(crate) ssh: Vec<Sourced<ssh::Written>>,
    pub(crate) workspace: Option<Sourced<WorkspaceMode>>,
    pub(crate) forbid_live: Option<Sourced<bool>>,
    pub(crate) system_read: Option<Sourced<Vec<Sourced<PathBuf>>>>,
    pub(crate) root: Option<Sourced<bool>>,
    pub(crate) nesting: Option<Sourced<bool>>,
    pub(crate) outputs: Option<Sourced<OutputsRule>>,
    pub(crate) inputs: InputSettings,
    pub(crate) home: HomeSettings,
    pub(crate) files_read: Vec<Sourced<Place>>,
    pub(crate) pass: Vec<Sourced<Pattern>>,
    pub(crate) set: Vec<Sourced<(String, String)>>,
    pub(crate) limits: Vec<(LimitKey, Sourced<String>)>,
    pub(crate) terminal: TerminalSettings,
    pub(crate) syscalls: SyscallSettings,
    pub(crate) execute: Option<Sourced<Vec<Sourced<Place>>>>,
    pub(crate) unenforced_limits: Option<Sourced<bool>>,
    pub(crate) checks: CheckSettings,
}

/// `[terminal]`.
#[derive(Clone, Debug, Default)]
pub(crate) struct TerminalSettings {
    pub(crate) queries: Option<Sourced<bool>>,
    pub(crate) clipboard: Option<Sourced<bool>>,
    pub(crate) title: Option<Sourced<bool>>,
}

/// `[syscalls]`.
#[derive(Clone, Debug, Default)]
pub(crate) struct SyscallSettings {
    pub(crate) deny_debugging: Option<Sourced<bool>>,
    pub(crate) deny_sockets: Option<Sourced<bool>>,
    pub(crate) deny_nesting: Option<Sourced<bool>>,
}

impl Settings {
    /// Reads the shared tables out of the top level.
    pub(crate) fn read(document: &mut Document, top: &mut Section<'_>, author: Author) -> Self {
        if author == Author::Project {
            for (key, why) in NOT_OF_PROJECTS {
                document.refuse(top, key, why);
            }
        }
        let (pass, set) = read_environment(document, top, author);
        let (system_read, [root, nesting]) = read_system(document, top);
        Self {
            network: NetworkSettings::read(document, top),
            trust: TrustSettings::read(document, top, author),
            labels: LabelSettings::read(document, top, author),
            credentials: credential::read(document, top),
            logins: login::read(document, top),
            git: git::read(document, top),
            ssh: ssh::read(document, top),
            workspace: document.text(top, "workspace", parse_workspace),
            forbid_live: only_tightened(document, top, "forbid-live", author, true),
            system_read,
            root,
            nesting,
            outputs: document.text(top, "outputs", parse_outputs),
            inputs: InputSettings::read(document, top),
            home: HomeSettings::read(document, top, author),
            files_read: read_files(document, top),
            pass,
            set,
            limits: read_limits(document, top),
            terminal: read_terminal(document, top, author),
            syscalls: read_syscalls(document, top, author),
            execute: read_programs(document, top),
            unenforced_limits: read_dangerous(document, top),
            checks: CheckSettings::read(document, top, author),
        }
    }
}

/// Reads a flag that a project's file may only set to the value that takes rights away.
pub(crate) fn only_tightened(
    document: &mut Document,
    section: &mut Section<'_>,
    key: &'static str,
    author: Author,
    tight: bool,
) -> Option<Sourced<bool>> {
    let (flag, at) = document.flag(section, key)?;
    if author == Author::Project && flag.value != tight {
        let subject = section.subject(key);
        let what = format!("{subject}: this file can only set it to {tight}");
        document.report(&at, what, Some("leave it out".to_owned()));
        return None;
    }
    Some(flag)
}

type System = (
    Option<Sourced<Vec<Sourced<PathBuf>>>>,
    [Option<Sourced<bool>>; 2],
);

fn read_system(document: &mut Document, top: &mut Section<'_>) -> System {
    let Some(mut section) = document.section(top, "system", "system") else {
        return (None, [None, None]);
    };
    let read = document.list(&mut section, "read", parse_absolute);
    let mut flag = |key| document.flag(&mut section, key).map(|(flag, _)| flag);
    let flags = ["root", "nesting"].map(&mut flag);
    document.end(section, &["read", "root", "nesting"]);
    (read, flags)
}

fn read_files(document: &mut Document, top: &mut Section<'_>) -> Vec<Sourced<Place>> {
    let Some(mut section) = document.section(top, "files", "files") else {
        return Vec::new();
    };
    let read = document.list(&mut section, "read", parse_place);
    document.end(section, &["read"]);
    read.map(|list| list.value).unwrap_or_default()
}

type Environment = (Vec<Sourced<Pattern>>, Vec<Sourced<(String, String)>>);

fn read_environment(document: &mut Document, top: &mut Section<'_>, author: Author) -> Environment {
    let Some(mut section) = document.section(top, "environment", "environment") else {
        return (Vec::new(), Vec::new());
    };
    let pass = document.list(&mut section, "pass", |text| {
        let pattern = Pattern::parse_passed(text)?;
        let risk = match author {
            Author::Profile => None,
            Author::Project => pattern.exact().and_then(variables::needs_its_name),
        };
        match risk {
            Some(why) => Err(Complaint::new(
                format!("a project's file cannot pass {text:?}: {why}"),
                format!("name it yourself: --env {text}, or in a profile of your own"),
            )),
            None => Ok(pattern),
        }
    });
    let mut set = Vec::new();
    if let Some(table) = document.section(&mut section, "set", "environment.set") {
        for entry in table.entries() {
            set.extend(read_variable(document, &entry));
        }
    }
    document.end(section, &["pass", "set"]);
    (pass.map(|list| list.value).unwrap_or_default(), set)
}

fn read_variable(
    document: &mut Document,
    entry: &crate::document::Entry<'_>,
) -> Option<Sourced<(String, String)>> {
    let subject = format!("`{}` in [environment.set]", entry.key);
    let value = document.quantity(entry, &subject)?;
    if let Err(why) = check_variable(&entry.key, &value) {
        document.complain(&entry.at, &subject, why.into());
        return None;
    }
    let origin = document.origin(&entry.at);
    Some(Sourced::new((entry.key.clone(), value), origin))
}

/// Reads `[limits]`, checking each value.
pub(crate) fn read_limits(
    document: &mut Document,
    top: &mut Section<'_>,
) -> Vec<(LimitKey, Sourced<String>)> {
    let Some(section) = document.section(top, "limits", "limits") else {
        return Vec::new();
    };
    let mut limits = Vec::new();
    for entry in section.entries() {
        let Ok(key) = LimitKey::parse(&entry.key) else {
            report_unknown_limit(document, &entry.at, &entry.key);
            continue;
        };
        let subject = format!("`{key}` in [limits]");
        let Some(text) = document.quantity(&entry, &subject) else {
            continue;
        };
        let mut limits_of_some_host = Limits::for_run(TYPICAL_MEMORY_BYTES);
        match limits_of_some_host.set(key, &text, TYPICAL_MEMORY_BYTES) {
            Ok(()) => limits.push((key, Sourced::new(text, document.origin(&entry.at)))),
            Err(error) => document.report(&entry.at, format!("[limits]: {error}"), None),
        }
    }
    limits
}

fn report_unknown_limit(document: &mut Document, at: &Range<usize>, written: &str) {
    let meant = nearest(written, LimitKey::names())
        .map(|word| format!("did you mean `{word}`? "))
        .unwrap_or_default();
    let known = LimitKey::names().join(", ");
    document.report(
        at,
        format!("unknown key `{written}` in [limits]"),
        Some(format!("{meant}The keys in [limits] are: {known}")),
    );
}

/// Parts of the person's session that no boundary grants, with the reason.
const NEVER_GRANTED: [(&str, &str); 6] = [
    (
        "display",
        "never granted: through X11 or Wayland a program sees other windows and types into them; \
         a browser runs headless",
    ),
    (
        "audio",
        "never granted: a sound server hands out the microphone",
    ),
    (
        "dbus",
        "never granted: the session bus starts programs outside of the sandbox",
    ),
    (
        "keyring",
        "never granted: a keyring hands out every secret that it has; name a credential instead",
    ),
    (
        "docker",
        "never granted: whoever reaches Docker's socket is root on this host; --nesting lets \
         rootless podman run inside",
    ),
    (
        "devices",
        "never granted: a device reaches the kernel and the hardware past every other limit",
    ),
];

/// Reads `[terminal]`, and `[grants]`, whose `clipboard` is the same right.
pub(crate) fn read_terminal(
    document: &mut Document,
    top: &mut Section<'_>,
    author: Author,
) -> TerminalSettings {
    let granted = document
        .section(top, "grants", "grants")
        .and_then(|mut section| {
            let clipboard = only_tightened(document, &mut section, "clipboard", author, false);
            for (key, why) in NEVER_GRANTED {
                document.refuse(&mut section, key, why);
            }
            document.end(section, &["clipboard"]);
            clipboard
        });
    let Some(mut section) = document.section(top, "terminal", "terminal") else {
        return TerminalSettings {
            clipboard: granted,
            ..TerminalSettings::default()
        };
    };
    let mut right = |key| only_tightened(document, &mut section, key, author, false);
    let settings = TerminalSettings {
        queries: right("queries"),
        clipboard: right("clipboard").or(granted),
        title: right("title"),
    };
    document.end(section, &["queries", "clipboard", "title"]);
    settings
}

fn read_syscalls(
    document: &mut Document,
    top: &mut Section<'_>,
    author: Author,
) -> SyscallSettings {
    let Some(mut section) = document.section(top, "syscalls", "syscalls") else {
        return SyscallSettings::default();
    };
    let mut refusal = |key| only_tightened(document, &mut section, key, author, true);
    let settings = SyscallSettings {
        deny_debugging: refusal("deny-debugging"),
        deny_sockets: refusal("deny-sockets"),
        deny_nesting: refusal("deny-nesting"),
    };
    document.end(section, &["deny-debugging", "deny-sockets", "deny-nesting"]);
    settings
}

/// Reads `[programs]`. An empty list is a problem and no rule: it would mean that nothing may be
/// executed, so that no run could start.
fn read_programs(
    document: &mut Document,
    top: &mut Section<'_>,
) -> Option<Sourced<Vec<Sourced<Place>>>> {
    let mut section = document.section(top, "programs", "programs")?;
    let before = document.problem_count();
    let execute = document.list(&mut section, "execute", parse_place);
    let is_good = document.problem_count() == before;
    document.end(section, &["execute"]);
    if let Some(list) = execute
        .as_ref()
        .filter(|list| is_good && list.value.is_empty())
    {
        let what =
            "`execute` in [programs] is empty: nothing could start; leave it out to allow all";
        document.report_line(&list.origin, what.to_owned());
    }
    execute
}

fn read_dangerous(document: &mut Document, top: &mut Section<'_>) -> Option<Sourced<bool>> {
    let mut section = document.section(top, "dangerous", "dangerous")?;
    let flag = document.flag(&mut section, "unenforced-limits");
    document.end(section, &["unenforced-limits"]);
    flag.map(|(flag, _)| flag)
}
