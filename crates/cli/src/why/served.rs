//! The settings of a server that would allow what a served sandbox was denied.

use std::ffi::OsString;

use atoll_engine::remedies::fetching_option;
use atoll_ledger::{Event, read_host_text};
use atoll_model::{Ending, LimitKey};
use atoll_server::NetworkWord;
use serde_json::Value;

use super::{Story, text};

/// The most hosts that one setting names.
const HOSTS_SHOWN_MAX: usize = 8;
const MIB: u64 = 1 << 20;

impl Story<'_> {
    /// Returns whether it is a sandbox of a server.
    pub(super) fn is_served(&self) -> bool {
        self.said("run.opened", "/served")
            .is_some_and(Value::is_object)
    }

    /// Returns a command or a line of `serve.toml` for each thing that one allows.
    pub(super) fn served_remedies(&self) -> Vec<String> {
        let limits = self.limits_reached().into_iter();
        let mut lines: Vec<String> = limits.flat_map(|key| self.of_limit(key)).collect();
        lines.extend(self.of_network());
        lines
    }

    fn of_limit(&self, key: LimitKey) -> Vec<String> {
        let twice = |member: &str| {
            let limits = self.decision("limits")?;
            Some(limits.get(member)?.as_u64()?.saturating_mul(2))
        };
        let sizes = [
            (LimitKey::Memory, "memory", "--memory"),
            (LimitKey::Disk, "disk", "--disk"),
        ];
        if let Some((_, name, option)) = sizes.into_iter().find(|(sized, ..)| *sized == key) {
            let mebibytes = twice(&format!("{name}-bytes")).map(|bytes| bytes.div_ceil(MIB));
            let both = mebibytes.map(|mebibytes| {
                vec![
                    format!("atoll sandbox create {option} {mebibytes}M"),
                    format!("{name}_mib = {mebibytes}    # serve.toml, [defaults]"),
                ]
            });
            return both.unwrap_or_default();
        }
        let processes = twice("processes").filter(|_| key == LimitKey::Processes);
        let line = processes.map(|most| format!("processes = {most}    # serve.toml, [defaults]"));
        line.into_iter().collect()
    }

    fn of_network(&self) -> Vec<String> {
        let registries = NetworkWord::Registries.presets();
        let options: Vec<String> = self.missing_options();
        let is_registry = |option: &str| {
            let named = option.split("--preset ").nth(1);
            let named = named.and_then(|rest| rest.split_whitespace().next());
            named.is_some_and(|preset| registries.iter().any(|one| one == preset))
        };
        let registries = "network = \"registries\"    # serve.toml".to_owned();
        let internet = "network = \"internet\"    # serve.toml".to_owned();
        if options.is_empty() {
            return match self.fetching_exec() {
                Some(option) if is_registry(option) => vec![registries],
                Some(_) => vec![internet],
                None => Vec::new(),
            };
        }
        if options.iter().all(|option| is_registry(option)) {
            return vec![registries];
        }
        let mut hosts: Vec<String> = Vec::new();
        for one in self.events.iter().filter(|one| one.kind == "flow.refused") {
            let host = text(one.body.get("host"));
            hosts.extend(host.filter(|host| !hosts.contains(host)));
        }
        hosts.truncate(HOSTS_SHOWN_MAX);
        vec![
            internet,
            format!("ask = {hosts:?}    # serve.toml: each call once an approver agrees"),
        ]
    }

    /// Returns what a failed exec that fetches would need, where nothing can be reached.
    fn fetching_exec(&self) -> Option<&'static str> {
        if text(self.decision("network")).as_deref() != Some("none") {
            return None;
        }
        let has_failed = |one: &&Event| {
            let ending = one.body.get("ending").cloned();
            let ending = ending.and_then(|ending| serde_json::from_value(ending).ok());
            one.kind == "exec.closed" && ending != Some(Ending::Exited { status: 0 })
        };
        let mut failed = self.events.iter().filter(has_failed);
        failed.find_map(|one| {
            let mut opened = self.events.iter().filter(|one| one.kind == "exec.opened");
            let opened = opened.find(|other| other.body.get("exec") == one.body.get("exec"))?;
            let words = opened.body.get("command")?.as_array()?;
            let words: Vec<OsString> = words.iter().filter_map(read_host_text).collect();
            fetching_option(&words)
        })
    }
}
