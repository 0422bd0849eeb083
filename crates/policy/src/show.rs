//! Rules as text for people and as JSON for programs: every value in force, with its origin.

mod text;

use std::path::Path;

use atoll_cedar::{Granted, Layer};
use atoll_model::network::{CONNECTIONS_MAX, CredentialName};
use atoll_model::{Access, Keep, LimitKey, Limits, OutputsRule, View, ViewKind};
use serde_json::{Map, Value, json};

use crate::checks::CheckRules;
use crate::network::upstream::UpstreamSettings;
use crate::origin::{Origin, Sourced};
use crate::rules::Rules;
use crate::words::workspace_name;

/// One value in force.
struct Row {
    section: &'static str,
    key: String,
    json: Value,
    from: String,
}

impl Rules {
    /// Returns every value in force as one JSON object: for each section a list of `key`, `value`,
    /// `from`. Sizes are in bytes, times in milliseconds, `cpu` in processors.
    #[must_use]
    pub fn show_json(&self) -> Value {
        let mut sections = Map::new();
        for row in self.rows() {
            let list = sections
                .entry(row.section)
                .or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(list) = list {
                list.push(json!({"key": row.key, "value": row.json, "from": row.from}));
            }
        }
        let notices: Vec<Value> = self
            .notices
            .iter()
            .map(|notice| json!({"text": notice.text, "from": notice.origin.to_string()}))
            .collect();
        let mut shown = json!({
            "profile": self.profile.value,
            "description": self.description,
            "policy": self.digest,
            "rules": sections,
            "refusals": self.refusals,
            "notices": notices,
        });
        // serde_json may be built to keep members in the order of insertion.
        shown.sort_all_objects();
        shown
    }

    /// Returns the rights of the profile as Cedar policies that a person can edit, for runs in this
    /// workspace; anything else shown is in comments.
    #[must_use]
    pub fn show_cedar(&self, workspace: Option<&Path>) -> String {
        let network = self.network();
        let of_ssh = self.ssh().map(|one| &one.grant.name);
        let credentials: Vec<CredentialName> =
            self.credentials.keys().chain(of_ssh).cloned().collect();
        let views = self.views.values().map(|view| {
            let changes = matches!(view.value.access, Access::Layer(_));
            (view.value.host.clone(), changes)
        });
        let mut text = atoll_cedar::written(&Granted {
            profile: &self.profile.value,
            network: &network,
            credentials: &credentials,
            places: &views.collect::<Vec<_>>(),
            workspace: (self.workspace.value, workspace),
            root: self.root.value,
            nesting: self.nesting.value,
            started: &[],
            asks: &self.asks(),
        });
        let purposes = self.policy_files().iter();
        let purposes = purposes.filter(|(layer, _)| *layer == Layer::Purpose);
        let purposes = purposes.flat_map(|(_, files)| files);
        let purposes = purposes.map(|file| String::from_utf8_lossy(&file.content).into_owned());
        let level = self.trust.forbids();
        let further = level.into_iter().chain([self.label_forbids()]);
        for forbids in further.chain(purposes).filter(|text| !text.is_empty()) {
            text.push('\n');
            text.push_str(&forbids);
        }
        text
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows = Rows(Vec::new());
        rows.text("profile", "name", &self.profile.value, &self.profile.origin);
        for name in &self.extended {
            rows.text("profile", "extends", name, &self.profile.origin);
        }
        rows.workspace(self);
        rows.flag("system", "root", &self.root);
        rows.flag("system", "nesting", &self.nesting);
        rows.views(self, ViewKind::System, "system");
        rows.views(self, ViewKind::Home, "home");
        rows.views(self, ViewKind::Cache, "home");
        rows.views(self, ViewKind::Input, "files");
        rows.views(self, ViewKind::Repository, "workspace");
        for pattern in &self.environment.pass {
            rows.text(
                "environment",
                "pass",
                pattern.value.as_str(),
                &pattern.origin,
            );
        }
        for (name, value) in &self.environment.set {
            let text = format!("{name}={}", value.value.to_string_lossy());
            rows.text("environment", "set", &text, &value.origin);
        }
        rows.text(
            "environment",
            "set",
            "ATOLL_RUN=<the run's id>",
            &Origin::BuiltIn,
        );
        rows.trust(self);
        rows.network(self);
        rows.limits(self);
        rows.flag("terminal", "queries", &self.terminal.queries);
        rows.flag("terminal", "clipboard", &self.terminal.clipboard);
        rows.flag("terminal", "title", &self.terminal.title);
        rows.flag("syscalls", "deny-debugging", &self.syscalls.deny_debugging);
        rows.flag("syscalls", "deny-sockets", &self.syscalls.deny_sockets);
        rows.flag("syscalls", "deny-nesting", &self.syscalls.deny_nesting);
        for program in &self.programs {
            let text = program.value.display().to_string();
            rows.text("programs", "execute", &text, &program.origin);
        }
        if self.programs.is_empty() {
            rows.text(
                "programs",
                "execute",
                "everything in view",
                &Origin::BuiltIn,
            );
        }
        rows.checks(self);
        for place in &self.denied_places {
            let text = place.value.display().to_string();
            rows.text("deny", "files", &text, &place.origin);
        }
        for pattern in &self.environment.denied {
            rows.text(
                "deny",
                "environment",
                pattern.value.as_str(),
                &pattern.origin,
            );
        }
        rows.0
    }
}

/// Returns what changes wait for before they are applied, as a profile says it.
fn applied_when(checks: &CheckRules) -> &'static str {
    match checks.applies.value {
        true => "checks",
        false => "person",
    }
}

struct Rows(Vec<Row>);

impl Rows {
    fn workspace(&mut self, rules: &Rules) {
        let mode = workspace_name(rules.workspace.value);
        self.text("workspace", "mode", mode, &rules.workspace.origin);
        self.flag("workspace", "forbid-live", &rules.forbid_live);
        let rule = &rules.outputs_rule;
        if rule.value != OutputsRule::Hold {
            self.text("outputs", "rule", rule.value.name(), &rule.origin);
        }
        let inputs = &rules.inputs;
        if inputs.are_stated() {
            for (key, bound) in [("bytes", &inputs.bytes), ("files", &inputs.files)] {
                self.push("inputs", key, Value::from(bound.value), &bound.origin);
            }
            for one in &inputs.types {
                self.text("inputs", "types", &one.value, &one.origin);
            }
        }
    }

    fn push(&mut self, section: &'static str, key: &str, json: Value, from: &Origin) {
        self.0.push(Row {
            section,
            key: key.to_owned(),
            json,
            from: from.to_string(),
        });
    }

    fn text(&mut self, section: &'static str, key: &str, text: &str, from: &Origin) {
        self.push(section, key, Value::from(text), from);
    }

    fn checks(&mut self, rules: &Rules) {
        let checks = &rules.checks;
        if !checks.are_stated() {
            return;
        }
        for (key, list) in [("commands", &checks.commands), ("judge", &checks.judge)] {
            for one in list {
                self.text("checks", key, &one.value, &one.origin);
            }
        }
        let time = u64::try_from(checks.timeout.value.as_millis()).unwrap_or(u64::MAX);
        let from = &checks.timeout.origin;
        self.push("checks", "timeout", Value::from(time), from);
        self.text(
            "apply",
            "when",
            applied_when(checks),
            &checks.applies.origin,
        );
    }

    fn flag(&mut self, section: &'static str, key: &str, flag: &Sourced<bool>) {
        self.push(section, key, Value::from(flag.value), &flag.origin);
    }

    fn views(&mut self, rules: &Rules, kind: ViewKind, section: &'static str) {
        let of_kind = |view: &&Sourced<View>| view.value.kind == kind;
        for view in rules.views.values().filter(of_kind) {
            let path = match view.value.inside.strip_prefix(&rules.host.home) {
                Ok(rest) => format!("~/{}", rest.display()),
                Err(_) => view.value.inside.display().to_string(),
            };
            let (key, text) = match (view.value.access, kind) {
                (Access::ReadOnly, _) => ("read", path),
                (Access::Layer(layering), ViewKind::Cache) => match layering.keep {
                    Keep::Run => ("cache", path),
                    Keep::Profile => ("cache", format!("{path} (kept for the next run)")),
                },
                (Access::Layer(layering), _) => match layering.keep {
                    Keep::Run => ("layer", path),
                    Keep::Profile => ("keep", path),
                },
            };
            self.text(section, key, &text, &view.origin);
        }
    }

    fn trust(&mut self, rules: &Rules) {
        let trust = &rules.trust;
        if let Some(level) = &trust.level {
            self.text("trust", "level", level.value.name(), &level.origin);
        }
        if let Some(mode) = &trust.mode {
            self.text("trust", "mode", mode.value.name(), &mode.origin);
        }
        for one in trust.purpose.iter().chain(&trust.added) {
            self.text("trust", "purpose", &one.value, &one.origin);
        }
        for one in &trust.endpoints {
            self.text("trust", "endpoints", &one.value, &one.origin);
        }
    }

    fn network(&mut self, rules: &Rules) {
        for one in &rules.network.allow {
            self.text("network", "allow", &one.value.to_string(), &one.origin);
        }
        for one in &rules.network.deny {
            let said = one.value.denying().to_string();
            self.text("network", "deny", &said, &one.origin);
        }
        for one in rules.network.ask.iter() {
            self.text("network", "ask", &one.value.to_string(), &one.origin);
        }
        for one in &rules.network.publish {
            self.text("network", "publish", &one.value.to_string(), &one.origin);
        }
        self.upstream(&rules.network.upstream);
        if rules.network.allow.is_empty() {
            self.text("network", "allow", "nothing", &Origin::BuiltIn);
        }
        for (name, one) in &rules.credentials {
            let said = one.value.lines().join("; ");
            self.text("credential", name.as_str(), &said, &one.origin);
        }
        for (name, one) in &rules.logins {
            let said = one.value.lines().join("; ");
            self.text("login", name.as_str(), &said, &one.origin);
        }
        for (name, one) in &rules.ssh {
            let said = one.value.lines().join("; ");
            self.text("ssh", name.as_str(), &said, &one.origin);
        }
        for one in &rules.git {
            let host = one.value.to_string();
            self.text("git", "https-for-ssh", &host, &one.origin);
        }
        if rules.network.learn {
            let learn = Origin::CommandLine("--learn");
            self.push("network", "learn", Value::from(true), &learn);
        }
    }

    fn upstream(&mut self, upstream: &UpstreamSettings) {
        if let Some(proxy) = &upstream.proxy {
            let text = proxy.value.to_string();
            self.text("network", "upstream-proxy", &text, &proxy.origin);
        }
        for one in &upstream.direct {
            self.text("network", "no-proxy", &one.value.to_string(), &one.origin);
        }
        for one in &upstream.roots {
            let text = one.value.to_string_lossy();
            self.text("network", "upstream-roots", &text, &one.origin);
        }
    }

    fn limits(&mut self, rules: &Rules) {
        for key in LimitKey::ALL {
            let json = limit(&rules.limits.limits, key);
            self.push("limits", key.name(), json, &rules.limits.origin(key));
        }
        if !rules.network().is_empty() {
            let most = Value::from(CONNECTIONS_MAX);
            self.push("limits", "connections", most, &Origin::BuiltIn);
        }
        let unenforced = rules.limits.limits.dangerous_unenforced_limits;
        let flag = Sourced::new(unenforced, rules.limits.unenforced.clone());
        self.flag("dangerous", "unenforced-limits", &flag);
    }
}

/// Returns a limit as a number, `null` for none.
fn limit(limits: &Limits, key: LimitKey) -> Value {
    let time = |time: Option<std::time::Duration>| {
        time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    };
    match key {
        LimitKey::Memory => json!(limits.memory_bytes),
        LimitKey::Swap => json!(limits.swap_bytes),
        LimitKey::Processes => json!(limits.processes),
        LimitKey::OpenFiles => json!(limits.open_files),
        LimitKey::Disk => json!(limits.disk_bytes),
        LimitKey::Inodes => json!(limits.inodes),
        LimitKey::Tmp => json!(limits.tmp_bytes),
        LimitKey::Cpu => json!(limits.cpu_millis.map(|millis| millis as f64 / 1_000.0)),
        LimitKey::WallClock => json!(time(limits.wall_clock)),
        LimitKey::Idle => json!(time(limits.idle)),
        LimitKey::Output => json!(limits.output_bytes),
        LimitKey::NetworkBytes => json!(limits.network_bytes),
        LimitKey::NetworkRate => json!(limits.network_rate),
        LimitKey::Connections => json!(limits.connections),
    }
}
