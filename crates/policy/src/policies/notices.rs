//! Notices about policies that change nothing.

use std::sync::Arc;

use atoll_cedar::Action;
use atoll_model::network::HostName;

use crate::origin::Origin;
use crate::rules::Rules;

/// Adds one notice about all policies that are meant to forbid something and never do.
pub(super) fn tell_idle(rules: &mut Rules, compiled: &atoll_cedar::Policies) {
    let idle = atoll_cedar::forbid_nothing(compiled);
    let Some(first) = idle.first() else {
        return;
    };
    let all: Vec<String> = idle
        .iter()
        .map(|one| format!("{} (line {})", one.id, one.line))
        .collect();
    let origin = Origin::File {
        name: Arc::clone(&first.file),
        line: first.line,
    };
    let text = format!(
        "to forbid something, and never does, as its conditions cannot hold: policy {}; \
         `atoll policy check` says more",
        all.join(", ")
    );
    rules.notice(text, origin);
}

/// Adds notices about what a project's policies permit and no rule allows, which stays denied.
pub(super) fn tell_wider(rules: &mut Rules, compiled: &atoll_cedar::Policies) {
    let network = rules.network();
    for named in compiled.named() {
        let is = |action: Action| named.actions.contains(&action);
        let name = &named.name;
        let wider = if Action::OF_FLOWS.into_iter().any(is) {
            let is_closed = HostName::parse(name).is_ok_and(|name| network.name(&name).is_err());
            is_closed.then(|| (format!("reaching {name}"), format!("--allow {name} does")))
        } else if is(Action::Publish) {
            let mut ports = network.publish.iter();
            let is_closed = ports.all(|one| one.port.inside.to_string() != *name);
            is_closed.then(|| {
                (
                    format!("publishing port {name}"),
                    format!("--publish {name} does"),
                )
            })
        } else if is(Action::UseCredential) {
            let mut all = rules.credentials.keys();
            let is_none = all.all(|one| one.as_str() != name.as_str());
            let instead = "[credential] of a profile does".to_owned();
            is_none.then(|| (format!("using credential {name}"), instead))
        } else {
            None
        };
        if let Some((what, instead)) = wider {
            let id = &named.by.id;
            let text = format!(
                "{what} is not allowed by a project's policy ({id}): {instead}, or a profile of your own"
            );
            let origin = Origin::File {
                name: Arc::clone(&named.by.file),
                line: named.by.line,
            };
            rules.notice(text, origin);
        }
    }
}
