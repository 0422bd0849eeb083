//! Rules as a profile: the values in force as TOML that can be pasted into a file, with the origin
//! of each as a comment.

use std::path::Path;
use std::time::Duration;

use atoll_model::network::{CONNECTIONS_MAX, HostName, Meant, PublishedPort};
use atoll_model::{
    Access, Keep, Layering, LimitKey, Limits, OutputsRule, View, ViewKind, format_bytes,
};

use crate::checks::CheckRules;
use crate::inputs::InputRules;
use crate::network::rule::{network_entry, network_entry_of};
use crate::origin::{Origin, Sourced};
use crate::quoting::quoted;
use crate::rules::Rules;
use crate::show::applied_when;
use crate::words::workspace_name;

/// The column in which comments begin, if the text before is shorter.
const COMMENT_COLUMN: usize = 30;

/// Formats rules as entries of a list. Those of one table stay one table.
fn entries(rules: &[Sourced<Meant>]) -> Vec<(String, Origin)> {
    let is_one = |one: &Sourced<Meant>, other: &Sourced<Meant>| {
        let limits = &one.value.limits;
        let packages = &one.value.requests.packages;
        let is_table = !limits.is_empty() || packages.is_some();
        is_table
            && one.origin == other.origin
            && *limits == other.value.limits
            && *packages == other.value.requests.packages
    };
    let tables = rules.chunk_by(is_one);
    let entry = |table: &[Sourced<Meant>]| {
        let (first, rest) = table.split_first()?;
        let further = rest.iter().map(|one| &one.value.to);
        let text = match rest {
            [] => network_entry(&first.value),
            [_, ..] => network_entry_of(&first.value, further),
        };
        Some((text, first.origin.clone()))
    };
    tables.filter_map(entry).collect()
}

impl Rules {
    /// Returns every value in force as a profile that grants the same, with the origin of each.
    /// Everything that no profile can set (denials, variables of Atoll's own, notices) is in
    /// comments.
    #[must_use]
    pub fn show(&self) -> String {
        let mut out = Profile(String::new());
        out.comment(&format!(
            "profile {}, chosen by {}",
            self.profile.value, self.profile.origin
        ));
        if !self.extended.is_empty() {
            out.comment(&format!(
                "with what it extends: {}",
                self.extended.join(", ")
            ));
        }
        out.comment(&format!("policy {}", self.digest));
        out.0.push('\n');
        self.top(&mut out);
        self.places(&mut out);
        self.trust(&mut out);
        self.reach(&mut out);
        self.secrets(&mut out);
        self.git(&mut out);
        self.variables(&mut out);
        self.limits(&mut out);
        self.rights(&mut out);
        inputs(&self.inputs, &mut out);
        checks(&self.checks, &mut out);
        self.remarks(&mut out);
        out.0
    }

    fn top(&self, out: &mut Profile) {
        out.line(&format!("description = {}", quoted(&self.description)), "");
        out.list("commands", self.commands.iter().map(text_of));
        let mode = quoted(workspace_name(self.workspace.value));
        out.value("workspace", &mode, &self.workspace.origin);
        out.flag("forbid-live", &self.forbid_live);
        if self.outputs_rule.value != OutputsRule::Hold {
            let rule = quoted(self.outputs_rule.value.name());
            out.value("outputs", &rule, &self.outputs_rule.origin);
        }
        let lists = [&self.network.allow, &self.network.deny];
        if lists.iter().all(|list| list.is_empty())
            && self.network.ask.is_empty()
            && self.network.publish.is_empty()
            && self.network.upstream.stated_keys().is_empty()
        {
            out.value("network", &quoted("none"), &Origin::BuiltIn);
        }
    }

    fn places(&self, out: &mut Profile) {
        let of = |kind: ViewKind| {
            self.views
                .values()
                .filter(move |view| view.value.kind == kind)
        };
        out.section("system");
        out.list_always("read", of(ViewKind::System).map(|view| self.absolute(view)));
        out.flag("root", &self.root);
        out.flag("nesting", &self.nesting);
        out.section("home");
        let of_home = |wanted: Access| {
            of(ViewKind::Home)
                .filter(move |view| view.value.access == wanted)
                .map(|view| self.in_home(view))
        };
        let layer = |keep: Keep| Access::Layer(Layering { keep });
        out.list("read", of_home(Access::ReadOnly));
        out.list("layer", of_home(layer(Keep::Run)));
        out.list("keep", of_home(layer(Keep::Profile)));
        out.list("cache", of(ViewKind::Cache).map(|view| self.in_home(view)));
        out.flag("keep-caches", &self.keep_caches);
        out.section("files");
        let of_files = |is_read: bool| {
            of(ViewKind::Input)
                .filter(move |view| (view.value.access == Access::ReadOnly) == is_read)
                .map(|view| self.absolute(view))
        };
        out.list("read", of_files(true));
        out.list("layer", of_files(false));
        out.end_section();
    }

    fn trust(&self, out: &mut Profile) {
        out.section("trust");
        if let Some(level) = &self.trust.level {
            out.value("level", &quoted(level.value.name()), &level.origin);
        }
        if let Some(mode) = &self.trust.mode {
            out.value("mode", &quoted(mode.value.name()), &mode.origin);
        }
        if let Some(one) = &self.trust.purpose {
            out.value("purpose", &quoted(&one.value), &one.origin);
        }
        for one in &self.trust.added {
            let (name, origin) = (&one.value, &one.origin);
            out.comment(&format!("and narrowed by purpose {name} ({origin})"));
        }
        let endpoints = self.trust.endpoints.iter();
        out.list(
            "endpoints",
            endpoints.map(|one| (one.value.clone(), one.origin.clone())),
        );
        out.end_section();
    }

    fn reach(&self, out: &mut Profile) {
        out.section("network");
        out.list_of("allow", entries(&self.network.allow).into_iter());
        let asked: Vec<Sourced<Meant>> = self.network.ask.iter().cloned().collect();
        out.list_of("ask", entries(&asked).into_iter());
        out.list_of("deny", entries(&self.network.deny).into_iter());
        let port = |port: &Sourced<PublishedPort>| (port.value.to_string(), port.origin.clone());
        out.list("publish", self.network.publish.iter().map(port));
        let upstream = &self.network.upstream;
        if let Some(Sourced { value, origin }) = &upstream.proxy {
            out.value("upstream-proxy", &quoted(&value.to_string()), origin);
            if value.credentials.is_some() {
                out.comment("user and password of the upstream proxy are not shown");
            }
        }
        let direct = upstream.direct.iter();
        out.list(
            "no-proxy",
            direct.map(|one| (one.value.to_string(), one.origin.clone())),
        );
        let path = |one: &Sourced<std::path::PathBuf>| {
            (one.value.to_string_lossy().into_owned(), one.origin.clone())
        };
        out.list("upstream-roots", upstream.roots.iter().map(path));
        out.end_section();
        if self.network.learn {
            out.comment("with --learn also everything on the internet that no rule denies");
        }
    }

    fn secrets(&self, out: &mut Profile) {
        for (name, one) in &self.logins {
            out.section(&format!("login.{name}"));
            let from = one.origin.to_string();
            for line in one.value.lines() {
                out.line(&line, &from);
            }
        }
        for (name, one) in &self.credentials {
            out.section(&format!("credential.{name}"));
            let from = one.origin.to_string();
            for line in one.value.lines() {
                out.line(&line, &from);
            }
        }
    }

    fn git(&self, out: &mut Profile) {
        for (name, one) in &self.ssh {
            out.section(&format!("ssh.{name}"));
            let from = one.origin.to_string();
            for line in one.value.lines() {
                out.line(&line, &from);
            }
        }
        if !self.git.is_empty() {
            out.section("git");
            let host = |one: &Sourced<HostName>| (one.value.to_string(), one.origin.clone());
            out.list("https-for-ssh", self.git.iter().map(host));
            out.end_section();
        }
    }

    fn variables(&self, out: &mut Profile) {
        out.section("environment");
        let pass = self.environment.pass.iter();
        out.list(
            "pass",
            pass.map(|name| (name.value.as_str().to_owned(), name.origin.clone())),
        );
        out.comment("ATOLL_RUN, the run's id, is always set");
        out.section("environment.set");
        for (name, value) in &self.environment.set {
            let text = quoted(&value.value.to_string_lossy());
            out.value(&quoted_key(name), &text, &value.origin);
        }
    }

    fn limits(&self, out: &mut Profile) {
        out.section("limits");
        for key in LimitKey::ALL {
            let (text, remark) = written(&self.limits.limits, key);
            let from = self.limits.origin(key).to_string();
            let comment = match remark {
                Some(remark) => format!("{remark}; {from}"),
                None => from,
            };
            out.line(&format!("{key} = {text}"), &comment);
        }
        if !self.network().is_empty() {
            let from = Origin::BuiltIn;
            out.comment(&format!("connections at once: {CONNECTIONS_MAX}; {from}"));
        }
        out.section("dangerous");
        let unenforced = self.limits.limits.dangerous_unenforced_limits;
        let flag = Sourced::new(unenforced, self.limits.unenforced.clone());
        out.flag("unenforced-limits", &flag);
    }

    fn rights(&self, out: &mut Profile) {
        out.section("terminal");
        out.flag("queries", &self.terminal.queries);
        out.flag("clipboard", &self.terminal.clipboard);
        out.flag("title", &self.terminal.title);
        out.section("syscalls");
        out.flag("deny-debugging", &self.syscalls.deny_debugging);
        out.flag("deny-sockets", &self.syscalls.deny_sockets);
        out.flag("deny-nesting", &self.syscalls.deny_nesting);
        out.section("programs");
        if self.programs.is_empty() {
            out.comment("execute: everything in view; built in");
        }
        let path = |place: &Sourced<std::path::PathBuf>| {
            (
                place.value.to_string_lossy().into_owned(),
                place.origin.clone(),
            )
        };
        out.list("execute", self.programs.iter().map(path));
        out.end_section();
    }

    fn remarks(&self, out: &mut Profile) {
        for place in &self.denied_places {
            out.comment(&format!(
                "denied: {} ({})",
                place.value.display(),
                place.origin
            ));
        }
        for pattern in &self.environment.denied {
            let name = pattern.value.as_str();
            out.comment(&format!("denied: the variable {name} ({})", pattern.origin));
        }
        for refusal in &self.refusals {
            let (what, why, rule) = (&refusal.what, &refusal.why, &refusal.rule);
            out.comment(&format!("refused: {what}: {why} ({rule})"));
        }
        for notice in &self.notices {
            out.comment(&format!("note: {notice}"));
        }
    }

    fn in_home(&self, view: &Sourced<View>) -> (String, Origin) {
        let path = &view.value.inside;
        let path = path.strip_prefix(&self.host.home).unwrap_or(path);
        (path.to_string_lossy().into_owned(), view.origin.clone())
    }

    fn absolute(&self, view: &Sourced<View>) -> (String, Origin) {
        let path: &Path = &view.value.inside;
        let text = match path.strip_prefix(&self.host.home) {
            Ok(rest) => format!("~/{}", rest.display()),
            Err(_) => path.to_string_lossy().into_owned(),
        };
        (text, view.origin.clone())
    }
}

fn inputs(inputs: &InputRules, out: &mut Profile) {
    if !inputs.are_stated() {
        return;
    }
    out.section("inputs");
    let bytes = quoted(&format_bytes(inputs.bytes.value));
    out.value("bytes", &bytes, &inputs.bytes.origin);
    out.value(
        "files",
        &inputs.files.value.to_string(),
        &inputs.files.origin,
    );
    out.list("types", inputs.types.iter().map(text_of));
}

fn checks(checks: &CheckRules, out: &mut Profile) {
    if !checks.are_stated() {
        return;
    }
    out.section("checks");
    out.list("commands", checks.commands.iter().map(text_of));
    out.list("judge", checks.judge.iter().map(text_of));
    let (text, _) = time(checks.timeout.value);
    out.value("timeout", &text, &checks.timeout.origin);
    out.section("apply");
    let when = quoted(applied_when(checks));
    out.value("when", &when, &checks.applies.origin);
}

/// The text of a profile, as far as it is written.
struct Profile(String);

impl Profile {
    fn section(&mut self, name: &str) {
        self.end_section();
        self.0.push_str(&format!("\n[{name}]\n"));
    }

    /// Removes the header of an empty section.
    fn end_section(&mut self) {
        let begin = self.0.rfind("\n[").map_or(0, |at| at + 1);
        let is_empty = self
            .0
            .get(begin..)
            .is_some_and(|last| last.lines().count() == 1);
        if is_empty && self.0.ends_with("]\n") {
            self.0.truncate(begin.saturating_sub(1));
        }
    }

    fn flag(&mut self, key: &str, flag: &Sourced<bool>) {
        self.value(key, if flag.value { "true" } else { "false" }, &flag.origin);
    }

    fn value(&mut self, key: &str, text: &str, from: &Origin) {
        self.line(&format!("{key} = {text}"), &from.to_string());
    }

    /// Writes a list, unless it is empty.
    fn list(&mut self, key: &str, entries: impl Iterator<Item = (String, Origin)>) {
        let mut entries = entries.peekable();
        if entries.peek().is_some() {
            self.list_always(key, entries);
        }
    }

    fn list_always(&mut self, key: &str, entries: impl Iterator<Item = (String, Origin)>) {
        self.entries(key, entries.map(|(text, from)| (quoted(&text), from)));
    }

    /// Writes a list of entries that are formatted already, unless it is empty.
    fn list_of(&mut self, key: &str, entries: impl Iterator<Item = (String, Origin)>) {
        let mut entries = entries.peekable();
        if entries.peek().is_some() {
            self.entries(key, entries);
        }
    }

    fn entries(&mut self, key: &str, entries: impl Iterator<Item = (String, Origin)>) {
        self.0.push_str(&format!("{key} = [\n"));
        for (text, from) in entries {
            self.line(&format!("    {text},"), &from.to_string());
        }
        self.0.push_str("]\n");
    }

    fn line(&mut self, text: &str, comment: &str) {
        if comment.is_empty() {
            self.0.push_str(&format!("{text}\n"));
        } else {
            let comment = on_one_line(comment);
            self.0
                .push_str(&format!("{text:COMMENT_COLUMN$} # {comment}\n"));
        }
    }

    fn comment(&mut self, text: &str) {
        self.0.push_str(&format!("# {}\n", on_one_line(text)));
    }
}

/// Escapes control characters, so that a comment stays on its line: text from outside cannot
/// continue as a key.
fn on_one_line(text: &str) -> String {
    let shown = text.chars().map(|one| match one.is_control() {
        true => one.escape_unicode().to_string(),
        false => one.to_string(),
    });
    shown.collect()
}

fn text_of(text: &Sourced<String>) -> (String, Origin) {
    (text.value.clone(), text.origin.clone())
}

fn quoted_key(name: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if !name.is_empty() && name.bytes().all(is_bare) {
        name.to_owned()
    } else {
        quoted(name)
    }
}

/// Returns a limit as written in a file, exactly, and rounded in a remark where that helps.
fn written(limits: &Limits, key: LimitKey) -> (String, Option<String>) {
    let none = || (quoted("none"), None);
    let count = |number: u64| (number.to_string(), None);
    match key {
        LimitKey::Memory => size(limits.memory_bytes),
        LimitKey::Swap => size(limits.swap_bytes),
        LimitKey::Processes => count(limits.processes),
        LimitKey::OpenFiles => count(limits.open_files),
        LimitKey::Disk => size(limits.disk_bytes),
        LimitKey::Inodes => count(limits.inodes),
        LimitKey::Tmp => size(limits.tmp_bytes),
        LimitKey::Cpu => match limits.cpu_millis {
            Some(millis) => (format!("{}", millis as f64 / 1_000.0), None),
            None => (quoted("none"), Some("all, at low weight".to_owned())),
        },
        LimitKey::WallClock => limits.wall_clock.map_or_else(none, time),
        LimitKey::Idle => limits.idle.map_or_else(none, time),
        LimitKey::Output => size(limits.output_bytes),
        LimitKey::NetworkBytes => limits.network_bytes.map_or_else(none, size),
        LimitKey::NetworkRate => limits.network_rate.map_or_else(none, size),
        LimitKey::Connections => limits.connections.map_or_else(none, count),
    }
}

/// Formats a size in the largest unit that gives a whole number; else in bytes, with a rounded
/// remark.
fn size(bytes: u64) -> (String, Option<String>) {
    if bytes < 1 << 10 {
        return (bytes.to_string(), None);
    }
    for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        let whole = bytes >> shift;
        if whole << shift == bytes && whole > 0 {
            let remark = (whole >= 1 << 10).then(|| format_bytes(bytes));
            return (quoted(&format!("{whole}{unit}")), remark);
        }
    }
    (bytes.to_string(), Some(format_bytes(bytes)))
}

fn time(time: Duration) -> (String, Option<String>) {
    let mut left = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let mut text = String::new();
    for (unit, milliseconds) in [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)] {
        if left >= milliseconds {
            text.push_str(&format!("{}{unit}", left / milliseconds));
            left %= milliseconds;
        }
    }
    (quoted(&text), None)
}
