//! What would allow what a run was denied, as commands to type.

use std::time::Duration;

use atoll_model::network::{Destination, NO_RULE};
use atoll_model::{Ending, LimitKey};
use serde_json::Value;

use super::{Story, text};
use crate::render;

/// How many hosts one command allows: more are a profile.
const HOSTS_SHOWN_MAX: usize = 8;

impl Story<'_> {
    /// A command for each thing that an option allows.
    pub(super) fn remedies(&self) -> Vec<String> {
        let mut commands: Vec<String> = self
            .limits_reached()
            .into_iter()
            .filter_map(|key| Some(self.again(&format!("--limit {}", self.twice(key)?))))
            .collect();
        commands.extend(self.unreached().map(|options| self.again(&options)));
        match self.ending() {
            // What the host does not have either, no profile shows.
            Some(Ending::NotFound) if self.is_in_path() => {
                commands.push(self.again("--profile permissive"));
            }
            Some(
                Ending::NotFound
                | Ending::NotExecutable
                | Ending::Exited { .. }
                | Ending::Signalled { .. }
                | Ending::Limited { .. },
            ) => {}
            Some(Ending::Interrupted) | None => {}
        }
        commands
    }

    /// Whether the host has the program, where it is looked up by name.
    fn is_in_path(&self) -> bool {
        let command = self.command();
        let Some(program) = command.first() else {
            return false;
        };
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
    }

    /// The options that would allow what no rule did.
    fn unreached(&self) -> Option<String> {
        let refused = self.events.iter().filter(|one| one.kind == "flow.refused");
        let mut options: Vec<String> = Vec::new();
        for event in refused {
            let said = |member: &str| event.body.get(member);
            if text(said("why")).as_deref() != Some(NO_RULE) {
                continue;
            }
            let host = text(said("host")).unwrap_or_default();
            let to = match said("port").and_then(Value::as_u64) {
                None | Some(80 | 443) => host,
                Some(port) => format!("{host}:{port}"),
            };
            // What was asked for may be no host at all, and is told by a program.
            let allow = to.parse::<Destination>().map(|to| format!("--allow {to}"));
            options.extend(allow.ok().filter(|option| !options.contains(option)));
            if options.len() == HOSTS_SHOWN_MAX {
                break;
            }
        }
        (!options.is_empty()).then(|| options.join(" "))
    }

    /// The limits that the run came up against.
    fn limits_reached(&self) -> Vec<LimitKey> {
        let mut reached: Vec<LimitKey> = Vec::new();
        if let Some(Ending::Limited { limit }) = self.ending() {
            reached.extend(LimitKey::parse(render::limit_name(limit)).ok());
        }
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

    /// The same run with one more option.
    fn again(&self, option: &str) -> String {
        let profile = match text(self.decision("chosen-by")).as_deref() {
            Some("--profile") if !option.starts_with("--profile") => {
                format!(" --profile {}", self.profile())
            }
            Some(_) | None => String::new(),
        };
        format!(
            "atoll run{profile} {option} -- {}",
            render::command_line(&self.command())
        )
    }

    /// `KEY=VALUE` with twice of what there was.
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

/// A size as `--limit` takes it, rounded up to whole units.
fn size(bytes: u64) -> String {
    match bytes {
        0..0x10_0000 => format!("{}KiB", bytes.div_ceil(1 << 10)),
        whole if whole.is_multiple_of(1 << 30) => format!("{}GiB", whole >> 30),
        0x10_0000..0x2_8000_0000 => format!("{}MiB", bytes.div_ceil(1 << 20)),
        _ => format!("{}GiB", bytes.div_ceil(1 << 30)),
    }
}
