//! Upstreams in the registry: their tools, as they are described or approved.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::Registry;
use crate::tool::{Tool, Work};
use crate::upstream::Upstream;
use crate::upstream::pins::Pins;

impl Registry {
    /// Leaves out upstreams whose tools have no name before theirs, if there are more than one: nobody
    /// could tell them apart.
    pub(super) fn check_prefixes(&mut self) {
        let all = self.upstreams.values().filter(|one| !one.prefix);
        let all: Vec<Arc<Upstream>> = all.cloned().collect();
        for upstream in all.iter().filter(|_| all.len() > 1) {
            self.upstreams.remove(&upstream.name);
            let why =
                "prefix: one upstream alone can be without it: none of them counts".to_owned();
            let table = Some(("upstream", &*upstream.name));
            self.problem(Path::new(&upstream.file), table, why);
        }
    }

    /// Adds the tools of an upstream: as they are described, or approved.
    pub(super) fn add_of(
        &mut self,
        upstream: &Arc<Upstream>,
        state: &Path,
        twice: &mut BTreeSet<String>,
    ) {
        let path = Path::new(&upstream.file);
        let mut add = |registry: &mut Self, tool: Result<Tool, String>| match tool {
            Ok(tool) => registry.add(tool, path, twice),
            Err(why) => registry.problem(path, Some(("upstream", &upstream.name)), why),
        };
        match Tool::described(upstream) {
            Some(Ok(tools)) => return tools.into_iter().for_each(|tool| add(self, tool)),
            Some(Err(why)) => return add(self, Err(why)),
            None => {}
        }
        let pins = match Pins::read(state, upstream) {
            Ok(Some(pins)) => Arc::new(pins),
            Ok(None) => {
                let why = "none of its tools is approved: atoll tools pin".to_owned();
                return self.problem(
                    path,
                    Some(("upstream", &upstream.name)),
                    format!("{why} {}", upstream.name),
                );
            }
            Err(why) => return self.problem(path, Some(("upstream", &upstream.name)), why),
        };
        if !pins.are_of(upstream) {
            let why = "its command has changed since its tools were approved: atoll tools pin";
            return self.problem(
                path,
                Some(("upstream", &upstream.name)),
                format!("{why} {}", upstream.name),
            );
        }
        for tool in Tool::of_upstream(upstream, &pins) {
            add(self, tool);
        }
    }

    /// Notes the words about tools that an upstream does not have: their limits would be nobody's.
    pub(super) fn check_named(&mut self, upstream: &Upstream) {
        let is_of = |tool: &Arc<Tool>| matches!(&tool.work, Work::Upstream(of, _) if of.name == upstream.name);
        if !self.tools.values().any(is_of) {
            return;
        }
        let has = |name: &&str| {
            upstream
                .name_of(name)
                .is_some_and(|own| self.tool(&own).is_some())
        };
        let missing: Vec<&str> = upstream.named().filter(|name| !has(name)).collect();
        for name in missing {
            let why = format!("tools.{name}: it has no tool of this name");
            let table = Some(("upstream", &*upstream.name));
            self.problem(Path::new(&upstream.file), table, why);
        }
    }
}
