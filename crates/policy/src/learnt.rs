//! The least rights that runs need, as Cedar policies.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use atoll_cedar::Granted;
use atoll_model::network::{CredentialName, Network, NetworkRule};
use atoll_model::{Access, WorkspaceMode};

use crate::rules::Rules;

/// Returns policies that permit the same runs again and nothing else: the programs that were
/// started, in their workspaces, the network that was used, and everything that a run by these
/// rules is asked about before it starts: its places, credentials and ports.
#[must_use]
pub fn learnt_cedar(
    all: &[(&Rules, &Path)],
    started: &BTreeSet<String>,
    used: Vec<NetworkRule>,
) -> String {
    let mut places: BTreeMap<PathBuf, bool> = BTreeMap::new();
    let mut credentials: BTreeSet<CredentialName> = BTreeSet::new();
    let mut profiles: BTreeSet<&str> = BTreeSet::new();
    let mut mode = WorkspaceMode::ReadOnly;
    let mut network = Network {
        allow: used,
        ..Network::default()
    };
    for (rules, workspace) in all {
        profiles.insert(rules.profile());
        for view in rules.views.values() {
            let changes = matches!(view.value.access, Access::Layer(_));
            *places.entry(view.value.host.clone()).or_default() |= changes;
        }
        mode = wider(mode, rules.workspace.value);
        let changes = rules.workspace.value != WorkspaceMode::ReadOnly;
        *places.entry(workspace.to_path_buf()).or_default() |= changes;
        credentials.extend(rules.credentials.keys().cloned());
        credentials.extend(rules.ssh().map(|one| one.grant.name.clone()));
        for one in rules.network().publish {
            if network.publish.iter().all(|other| other.port != one.port) {
                network.publish.push(one);
            }
        }
    }
    atoll_cedar::written(&Granted {
        profile: &profiles.into_iter().collect::<Vec<_>>().join(", "),
        network: &network,
        credentials: &credentials.into_iter().collect::<Vec<_>>(),
        places: &places.into_iter().collect::<Vec<_>>(),
        workspace: (mode, None),
        root: all.iter().any(|(rules, _)| rules.root.value),
        nesting: all.iter().any(|(rules, _)| rules.nesting.value),
        started: &started.iter().cloned().collect::<Vec<_>>(),
        asks: &[],
    })
}

fn wider(one: WorkspaceMode, two: WorkspaceMode) -> WorkspaceMode {
    let rank = |mode: WorkspaceMode| match mode {
        WorkspaceMode::ReadOnly => 0,
        WorkspaceMode::CopyOnWrite => 1,
        WorkspaceMode::Live => 2,
    };
    match rank(two) > rank(one) {
        true => two,
        false => one,
    }
}
