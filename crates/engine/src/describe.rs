//! Descriptions of verdicts for the ledger: the profile, who chose it, and a summary of the
//! boundary. Values of variables are never included.

use std::path::Path;
use std::time::Duration;

use atoll_ledger::host_text;
use atoll_model::network::{Network, NetworkRule};
use atoll_model::{
    Access, Boundary, Keep, Limits, OUTPUTS_DIRECTORY, Verdict, ViewKind, VolumeMount,
};
use atoll_policy::{Grant, Rules};
use serde_json::{Map, Value, json};

/// The most bytes for names of places, programs and variables: the size of an event is limited,
/// a profile's lists are not.
const NAMES_BYTES_MAX: usize = 8 << 10;

/// Describes the basis of a verdict.
pub(crate) fn describe(rules: &Rules, verdict: &Verdict<Grant>) -> Value {
    let mut fields = Map::new();
    fields.insert("profile".to_owned(), json!(rules.profile()));
    fields.insert("policy".to_owned(), json!(rules.digest()));
    fields.insert("chosen-by".to_owned(), json!(rules.chosen_by().to_string()));
    insert_list(&mut fields, "extends", json!(rules.extends()));
    if let Some(signed) = rules.signed() {
        let signed = json!({ "key": signed.key, "name": signed.name, "serial": signed.serial });
        fields.insert("organisation".to_owned(), signed);
    }
    for (key, text) in rules.stated_trust() {
        fields.insert(key.to_owned(), json!(text));
    }
    insert_list(&mut fields, "purposes", json!(rules.narrowed()));
    insert_list(&mut fields, "purposes-held", json!(rules.held()));
    if let Some(agreement) = rules.agreed() {
        fields.insert("agreed".to_owned(), json!(agreement));
    }
    if let Some(points) = rules.reputation() {
        fields.insert("reputation".to_owned(), json!(points));
    }
    match verdict {
        Verdict::Allow(grant) => {
            describe_boundary(rules, grant.boundary(), &mut fields);
            if let Some(by) = grant.wall_clock_by() {
                fields.insert("wall-clock-by".to_owned(), json!(by));
            }
            // That there is none is told apart from that nobody looks.
            if rules.notes_labels() {
                fields.insert("labels".to_owned(), json!(grant.labels()));
            }
        }
        Verdict::Ask(_) | Verdict::Deny(_) => {}
    }
    Value::Object(fields)
}

fn describe_boundary(rules: &Rules, boundary: &Boundary, fields: &mut Map<String, Value>) {
    fields.insert("mode".to_owned(), json!(boundary.mode));
    fields.insert("workspace-mode".to_owned(), json!(boundary.workspace));
    fields.insert("root".to_owned(), json!(boundary.root));
    if let Some(system) = &boundary.system {
        fields.insert("system".to_owned(), json!(system));
    }
    fields.insert("nesting".to_owned(), json!(boundary.nesting));
    if boundary.outputs.is_some() {
        fields.insert("outputs".to_owned(), json!(OUTPUTS_DIRECTORY));
    }
    fields.insert("network".to_owned(), network(&boundary.network));
    fields.insert("limits".to_owned(), limits(&boundary.limits));
    let asked_for: Vec<&str> = rules
        .limits_asked_for()
        .iter()
        .map(|key| key.name())
        .collect();
    insert_list(fields, "limits-asked-for", json!(asked_for));
    let mut names = Names::default();
    let mut places = |key: &str, wanted: &dyn Fn(ViewKind, Option<Keep>) -> bool| {
        let shown = boundary.views.iter().filter(|view| {
            let keep = match view.access {
                Access::ReadOnly => None,
                Access::Layer(layering) => Some(layering.keep),
            };
            wanted(view.kind, keep)
        });
        let list = names.take(shown.map(|view| view.inside.as_path()));
        insert_list(fields, key, list);
    };
    for (key, wanted) in [
        ("home-read", None),
        ("home-layer", Some(Keep::Run)),
        ("home-keep", Some(Keep::Profile)),
    ] {
        places(key, &|kind, keep| kind == ViewKind::Home && keep == wanted);
    }
    places("home-cache", &|kind, _| kind == ViewKind::Cache);
    places("files-read", &|kind, _| kind == ViewKind::Input);
    places("repository", &|kind, _| kind == ViewKind::Repository);
    let volumes: Vec<String> = boundary.volumes.iter().map(VolumeMount::stated).collect();
    insert_list(fields, "volumes", json!(volumes));
    let programs = names.take(boundary.programs.iter().map(std::path::PathBuf::as_path));
    insert_list(fields, "programs", programs);
    let variables = names.take(boundary.environment.iter().map(|(name, _)| Path::new(name)));
    insert_list(fields, "environment", variables);
    let terminal = boundary.terminal;
    let rights = [
        ("queries", terminal.queries),
        ("clipboard", terminal.clipboard),
        ("title", terminal.title),
    ];
    insert_list(fields, "terminal", flags(&rights));
    let refused = [
        ("deny-debugging", boundary.syscalls.deny_debugging),
        ("deny-sockets", boundary.syscalls.deny_sockets),
    ];
    insert_list(fields, "syscalls", flags(&refused));
    if names.left_out > 0 {
        fields.insert("names-left-out".to_owned(), json!(names.left_out));
    }
}

/// A budget for names of the host.
#[derive(Default)]
struct Names {
    bytes: usize,
    left_out: u64,
}

impl Names {
    fn take<'a>(&mut self, names: impl Iterator<Item = &'a Path>) -> Value {
        let mut list = Vec::new();
        for name in names {
            self.bytes = self.bytes.saturating_add(name.as_os_str().len());
            if self.bytes > NAMES_BYTES_MAX {
                self.left_out += 1;
            } else {
                list.push(host_text(name));
            }
        }
        Value::Array(list)
    }
}

fn insert_list(fields: &mut Map<String, Value>, key: &str, list: Value) {
    if list.as_array().is_some_and(|list| !list.is_empty()) {
        fields.insert(key.to_owned(), list);
    }
}

fn flags(flags: &[(&str, bool)]) -> Value {
    let set: Vec<&str> = flags
        .iter()
        .filter_map(|(name, is_set)| is_set.then_some(*name))
        .collect();
    json!(set)
}

/// Describes the network: `none`, or its rules.
fn network(network: &Network) -> Value {
    if network.is_empty() && network.publish.is_empty() {
        return json!("none");
    }
    let list =
        |rules: &[NetworkRule]| -> Vec<String> { rules.iter().map(ToString::to_string).collect() };
    let deny = network.deny.iter().map(|rule| rule.denying().to_string());
    let mut said = json!({ "allow": list(&network.allow), "deny": deny.collect::<Vec<_>>() });
    if let (Some(said), false) = (said.as_object_mut(), network.ask.is_empty()) {
        said.insert("ask".to_owned(), json!(list(&network.ask)));
    }
    if let (Some(said), true) = (said.as_object_mut(), network.learn.is_some()) {
        said.insert("learn".to_owned(), json!(true));
    }
    if let (Some(said), Some(proxy)) = (said.as_object_mut(), &network.upstream.proxy) {
        said.insert("upstream-proxy".to_owned(), json!(proxy.to_string()));
    }
    if let (Some(said), false) = (said.as_object_mut(), network.upstream.roots.is_empty()) {
        let roots = network.upstream.roots.iter().map(host_text);
        said.insert("upstream-roots".to_owned(), roots.collect());
    }
    if let (Some(said), false) = (said.as_object_mut(), network.publish.is_empty()) {
        let ports: Vec<String> = network
            .publish
            .iter()
            .map(|one| one.port.to_string())
            .collect();
        said.insert("publish".to_owned(), json!(ports));
    }
    said
}

fn limits(limits: &Limits) -> Value {
    let milliseconds = |time: Option<Duration>| {
        time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    };
    json!({
        "memory-bytes": limits.memory_bytes,
        "swap-bytes": limits.swap_bytes,
        "processes": limits.processes,
        "open-files": limits.open_files,
        "disk-bytes": limits.disk_bytes,
        "inodes": limits.inodes,
        "tmp-bytes": limits.tmp_bytes,
        "cpu-millis": limits.cpu_millis,
        "wall-clock-ms": milliseconds(limits.wall_clock),
        "idle-ms": milliseconds(limits.idle),
        "output-bytes": limits.output_bytes,
        "network-bytes": limits.network_bytes,
        "network-rate": limits.network_rate,
        "connections": limits.connections,
        "dangerous-unenforced": limits.dangerous_unenforced_limits,
    })
}
