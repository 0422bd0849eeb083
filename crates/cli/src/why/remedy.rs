//! The commands that would allow what a run was denied.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use atoll_engine::explain::change::no_host;
use atoll_engine::learning;
use atoll_engine::loopback;
use atoll_engine::not_started::{Showing, elsewhere_in_path, showing};
use atoll_ledger::{Event, read_host_text};
use atoll_model::network::{Destination, HostPart, Meant, NO_RULE, Request, Target, UNNAMED};
use atoll_model::{Ending, LimitKey};
use atoll_policy::{Remote, network_entry, preset_for, preset_for_host, preset_leads_to};
use serde_json::Value;

use super::{Story, text};
use crate::render::{self, Report};

/// The most hosts one command allows: more are a profile.
const HOSTS_SHOWN_MAX: usize = 8;

impl Story<'_> {
    /// Returns a command for each thing that an option allows.
    pub(super) fn remedies(&self) -> Vec<String> {
        if self.is_served() {
            return self.served_remedies();
        }
        let commands = self.remedies_of_profile();
        match self.is_closed() {
            // Nothing else opens anything there, and nothing opens what the organisation holds.
            true if self.is_bound() => Vec::new(),
            true if !commands.is_empty() => vec![self.again("--trust low")],
            true | false => commands,
        }
    }

    /// Returns whether the level of trust left out the network and the home.
    pub(super) fn is_closed(&self) -> bool {
        text(self.decision("trust")).as_deref() == Some("none")
    }

    /// Returns whether the organisation has set the level.
    fn is_bound(&self) -> bool {
        text(self.decision("trust-by")).is_some_and(|by| by.contains("/organisation.toml:"))
    }

    /// Returns the commands that allow it, if the level of trust leaves that to the profile.
    fn remedies_of_profile(&self) -> Vec<String> {
        let mut commands: Vec<String> = self
            .limits_reached()
            .into_iter()
            .filter(|key| *key != LimitKey::WallClock || self.wall_clock_by().is_none())
            .filter_map(|key| Some(self.again(&format!("--limit {}", self.twice(key)?))))
            .collect();
        commands.extend(self.unreached().map(|options| self.again(&options)));
        commands
    }

    /// Returns the profile that shows a program that was not found, if the host has it.
    pub(super) fn showing(&self) -> Option<Showing> {
        if self.ending() != Some(Ending::NotFound) || self.is_closed() {
            return None;
        }
        let path = elsewhere_in_path(self.command().first()?)?;
        let lists = [
            "home-read",
            "home-layer",
            "home-keep",
            "home-cache",
            "files-read",
        ];
        let lists = lists
            .into_iter()
            .filter_map(|list| self.decision(list)?.as_array());
        let mut shown = lists.flatten().filter_map(read_host_text);
        match shown.any(|place| path.starts_with(place)) {
            true => None,
            false => showing(&path, &self.profile(), self.configuration),
        }
    }

    /// Returns the options that would allow what no rule did.
    fn unreached(&self) -> Option<String> {
        let options = self.missing_options();
        (!options.is_empty()).then(|| options.join(" "))
    }

    /// Returns the options of `atoll run` that would allow what no rule did.
    pub(super) fn missing_options(&self) -> Vec<String> {
        let mut options: Vec<String> = Vec::new();
        for missing in self.missing() {
            for option in missing.options() {
                if !options.contains(&option) {
                    options.push(option);
                }
            }
            if options.len() >= HOSTS_SHOWN_MAX {
                break;
            }
        }
        options
    }

    /// Returns the remedies as lines of a profile's `[network]`.
    pub(super) fn profile_lines(&self) -> Vec<String> {
        if self.is_closed() || self.is_served() {
            return Vec::new();
        }
        let mut presets: Vec<String> = Vec::new();
        let mut allow: Vec<String> = Vec::new();
        for missing in self.missing() {
            let (list, entry) = match missing {
                Missing::Preset(preset) => (&mut presets, format!("{preset:?}")),
                Missing::Remote(remote) => (&mut allow, remote.entry()),
                Missing::Rule(rule) => (&mut allow, network_entry(&rule)),
            };
            if list.len() < HOSTS_SHOWN_MAX && !list.contains(&entry) {
                list.push(entry);
            }
        }
        let lists = [("presets", presets), ("allow", allow)].into_iter();
        lists
            .filter(|(_, list)| !list.is_empty())
            .map(|(key, list)| format!("{key} = [{}]", list.join(", ")))
            .collect()
    }

    /// Adds the lines for a profile: not folded, for pasting.
    pub(super) fn tell_lines(&self, report: &mut Report) {
        if let Some(showing) = self.showing() {
            report.line("allow", &showing.told());
            for line in &showing.lines {
                report.command("allow", line);
            }
        }
        let lines = self.profile_lines();
        if !lines.is_empty() {
            report.line("allow", "or in a profile, under [network]:");
        }
        for line in lines {
            report.command("allow", &line);
        }
        let learnt = learning::rules(self.events.iter());
        if !learnt.is_empty() {
            report.line(
                "learnt",
                "what passed because of --learn, as rules of a profile:",
            );
            for line in learning::as_profile(&learnt).lines() {
                report.command("learnt", line);
            }
        }
    }

    /// Returns the rules that were missing, each once.
    fn missing(&self) -> Vec<Missing> {
        let refused = self.events.iter().filter(|one| one.kind == "flow.refused");
        let no_rule = refused.filter(|one| {
            let why = text(one.body.get("why"));
            why.is_some_and(|why| [NO_RULE, UNNAMED].contains(&why.as_str()))
        });
        let mut missing: Vec<Missing> = Vec::new();
        let of = |event: &Event| {
            let host = text(event.body.get("host")).unwrap_or_default();
            let is_push = || self.is_push(&event.body);
            Missing::of(&event.body, is_push, || self.port_in_command(&host))
        };
        for one in no_rule.filter_map(of) {
            if !missing.contains(&one) {
                missing.push(one);
            }
        }
        // What a preset that is proposed leads to needs no wider rule, until that is refused too.
        let presets: Vec<&str> = missing.iter().filter_map(Missing::preset).collect();
        let is_held = |host: &HostPart| {
            let mut presets = presets.iter();
            presets.any(|preset| preset_leads_to(preset, host, 443))
        };
        missing
            .iter()
            .filter(|one| !one.whole_host().is_some_and(|host| is_held(&host)))
            .cloned()
            .collect()
    }

    /// Returns whether git fetched refs in order to push: the query that says so is not recorded.
    /// It is taken as a fetch if the command does not say otherwise and no rule allows fetching.
    fn is_push(&self, refused: &Value) -> bool {
        let command = self.command();
        let words = command.iter().map(|word| word.to_string_lossy());
        let mut words = words.flat_map(|word| {
            let parts = word.split(|letter: char| !letter.is_alphanumeric());
            parts.map(str::to_owned).collect::<Vec<_>>()
        });
        let is_same = |one: &Event| {
            let same = |member: &str| one.body.get(member) == refused.get(member);
            one.kind == "flow.opened" && ["host", "port", "method", "path"].into_iter().all(same)
        };
        words.any(|word| word == "push")
            || self.options().any(|word| word == "--preset=git-read")
            || self.events.iter().any(is_same)
    }

    /// Returns the limits that the run reached.
    pub(super) fn limits_reached(&self) -> Vec<LimitKey> {
        let mut reached: Vec<LimitKey> = Vec::new();
        if let Some(Ending::Limited { limit }) = self.ending() {
            reached.extend(LimitKey::parse(render::limit_name(limit)).ok());
        }
        let of_execs = self.limited_execs();
        let of_execs = of_execs.map(|(_, limit)| render::limit_name(limit));
        reached.extend(of_execs.filter_map(|name| LimitKey::parse(name).ok()));
        let seen = self
            .said("denials.seen", "/limits")
            .and_then(Value::as_array);
        for name in seen.into_iter().flatten().filter_map(Value::as_str) {
            reached.extend(LimitKey::parse(name).ok());
        }
        reached.sort_unstable();
        reached.dedup();
        reached
    }

    /// Returns the command of the same run with one more option.
    fn again(&self, option: &str) -> String {
        let mut said: Vec<String> = self
            .options()
            .filter(|word| !is_replaced(word, option))
            .map(|word| as_typed(&word))
            .collect();
        said.push(option.to_owned());
        format!(
            "atoll run {} -- {}",
            said.join(" "),
            atoll_engine::shell::command_line(&self.command())
        )
    }

    /// Returns the profile as an argument of a command: one that was given as a file by its path.
    pub(super) fn profile_to_show(&self) -> String {
        let mut words = self.options();
        let given = words.find_map(|word| as_value(&word, "--profile"));
        let file = given.filter(|text| text.contains('/') || text.ends_with(".toml"));
        atoll_engine::shell::command_line(&[file.unwrap_or_else(|| self.profile()).into()])
    }

    /// Returns the options that the run had, a word each.
    pub(super) fn options(&self) -> impl Iterator<Item = OsString> {
        let options = self
            .said("run.opened", "/options")
            .and_then(Value::as_array);
        options.into_iter().flatten().filter_map(read_host_text)
    }

    /// Returns the port that the command names with a host, if it does.
    fn port_in_command(&self, host: &str) -> Option<u16> {
        let before = format!("{host}:");
        self.command().iter().find_map(|word| {
            let word = word.to_string_lossy();
            let (_, after) = word.split_once(&before)?;
            let end = after.find(|letter: char| !letter.is_ascii_digit());
            after.get(..end.unwrap_or(after.len()))?.parse().ok()
        })
    }

    /// Returns `KEY=VALUE` with twice the previous value.
    fn twice(&self, key: LimitKey) -> Option<String> {
        let limits = self.decision("limits")?;
        let number = |member: &str| limits.get(member).and_then(Value::as_u64);
        let bytes = || number(&format!("{key}-bytes")).map(|bytes| size(bytes.saturating_mul(2)));
        let count = || Some(number(key.name())?.saturating_mul(2).to_string());
        let time = || {
            let twice = Duration::from_millis(number(&format!("{key}-ms"))?.saturating_mul(2));
            Some(format!("{}s", twice.as_millis().div_ceil(1_000)))
        };
        let value = bytes().or_else(count).or_else(time)?;
        Some(format!("{key}={value}"))
    }
}

/// Returns the value of an option, if the word is that option with a value.
fn as_value(word: &OsStr, option: &str) -> Option<String> {
    let word = word.to_str()?;
    Some(word.strip_prefix(option)?.strip_prefix('=')?.to_owned())
}

/// Returns whether a new option replaces one that the run had.
fn is_replaced(word: &OsStr, by: &str) -> bool {
    let word = word.to_string_lossy();
    let named = |name: &str| word.starts_with(&format!("{name}="));
    match by.split_once(' ') {
        Some(("--limit", limit)) => {
            let key = limit.split('=').next().unwrap_or_default();
            named(&format!("--limit={key}")) || key == "wall-clock" && named("--timeout")
        }
        Some((name @ ("--profile" | "--trust"), _)) => named(name),
        Some(_) | None => false,
    }
}

/// Formats `--allow=example.com` as people write it.
fn as_typed(word: &OsStr) -> String {
    let bytes = word.as_bytes();
    let Some(at) = bytes.iter().position(|byte| *byte == b'=') else {
        return atoll_engine::shell::command_line(&[word.to_owned()]);
    };
    let (name, value) = bytes.split_at(at);
    let value = OsStr::from_bytes(value.get(1..).unwrap_or_default());
    let name = OsStr::from_bytes(name);
    atoll_engine::shell::command_line(&[name.to_owned(), value.to_owned()])
}

/// A missing permission.
#[derive(Clone, PartialEq, Eq)]
enum Missing {
    /// A preset that comes with Atoll.
    Preset(&'static str),
    /// A rule for a repository of git.
    Remote(Remote),
    /// Another rule.
    Rule(Meant),
}

impl Missing {
    fn preset(&self) -> Option<&'static str> {
        match self {
            Self::Preset(preset) => Some(preset),
            Self::Remote(_) | Self::Rule(_) => None,
        }
    }

    /// Returns the host that a rule opens whole at the ports of the web, by its name.
    fn whole_host(&self) -> Option<HostPart> {
        match self {
            Self::Rule(rule) => rule.as_text()?.parse().ok(),
            Self::Preset(_) | Self::Remote(_) => None,
        }
    }

    /// Returns the options that state it; empty if no line does.
    fn options(&self) -> Vec<String> {
        let allow = |rule: String| {
            format!(
                "--allow {}",
                atoll_engine::shell::command_line(&[rule.into()])
            )
        };
        match self {
            Self::Preset(preset) => vec![format!("--preset {preset}")],
            Self::Remote(remote) => remote.options().map(allow).to_vec(),
            Self::Rule(rule) => rule.as_text().map(allow).into_iter().collect(),
        }
    }

    /// Returns the permission missing for a refused flow; the requested name comes from a program
    /// and may be no host at all.
    fn of(
        refused: &Value,
        is_push: impl FnOnce() -> bool,
        likely: impl FnOnce() -> Option<u16>,
    ) -> Option<Self> {
        let said = |member: &str| refused.get(member).and_then(Value::as_str);
        // What is no host's is opened by no rule.
        if no_host(said("host")?).is_some() {
            return None;
        }
        // Nothing opens what is the sandbox's own; the hint says what leads to the host's.
        if loopback::is_loopback(said("host")?) {
            return None;
        }
        let host: HostPart = said("host")?.parse().ok()?;
        let port = refused.get("port").and_then(Value::as_u64);
        let port = u16::try_from(port.unwrap_or(0)).ok()?;
        let (Some(scheme), Some(method), Some(path)) =
            (refused.get("scheme"), said("method"), said("path"))
        else {
            // Of a name the port is not known yet.
            let at = match port {
                0 => likely().unwrap_or(443),
                port => port,
            };
            return Some(match preset_for_host(&host, at) {
                Some(preset) => Self::Preset(preset),
                None => Self::Rule(Meant::from(Destination::of(&host, at))),
            });
        };
        // Of a long path the beginning was told.
        let target = Target::parse(path).or_else(|_| Target::parse("/")).ok()?;
        let request = Request {
            host: &host,
            port,
            scheme: serde_json::from_value(scheme.clone()).ok()?,
            method,
            target: &target,
        };
        Some(
            match (Remote::of(&request, is_push()), preset_for(&request)) {
                // One repository is less than all that a preset reads.
                (Some(remote), _) => Self::Remote(remote),
                (None, Some(preset)) => Self::Preset(preset),
                (None, None) => Self::Rule(request.as_rule()),
            },
        )
    }
}

/// Formats a size as `--limit` takes it, rounded up to whole units.
fn size(bytes: u64) -> String {
    match bytes {
        0..0x10_0000 => format!("{}KiB", bytes.div_ceil(1 << 10)),
        whole if whole.is_multiple_of(1 << 30) => format!("{}GiB", whole >> 30),
        0x10_0000..0x2_8000_0000 => format!("{}MiB", bytes.div_ceil(1 << 20)),
        _ => format!("{}GiB", bytes.div_ceil(1 << 30)),
    }
}
