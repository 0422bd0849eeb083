//! SSH keys of rules.

use std::path::Path;

use atoll_model::network::{Look, SSH_GRANTS_MAX, SshGrant};

use crate::origin::{Origin, Sourced};
use crate::ssh::{SshKeySource, SshRule, Written};

use super::Rules;

impl Rules {
    /// Returns the SSH grants, sorted by name.
    pub fn ssh(&self) -> impl Iterator<Item = &SshRule> {
        self.ssh.values().map(|one| &one.value)
    }

    /// Adds a file's grants: each replaces an extended profile's of the same name.
    pub(crate) fn add_ssh(&mut self, written: Vec<Sourced<Written>>) {
        let home = self.host.home.clone();
        for one in written {
            let one = one.map(|Written { mut rule, file }| {
                if let Some(file) = file {
                    rule.source = SshKeySource::File(file.resolve(&home));
                }
                rule
            });
            self.ssh.insert(one.value.grant.name.clone(), one);
        }
    }

    /// Adds notices of credentials and keys that are never used.
    pub(crate) fn tell_unused(&mut self) {
        self.tell_credentials();
        self.tell_ssh();
    }

    fn tell_ssh(&mut self) {
        let network = self.network.boundary();
        let mut notices = Vec::new();
        for Sourced { value, origin } in self.ssh.values() {
            let SshGrant {
                name, host, port, ..
            } = &value.grant;
            let text = match network.connection(host, *port) {
                Ok((_, Look::Past)) => continue,
                Ok((_, Look::Into)) => format!(
                    "[ssh.{name}] is never used: port {port} of {host} is looked into; write \
                     carry = \"tunnel\" for that rule"
                ),
                Err(_) => format!(
                    "[ssh.{name}] is never used: no rule of [network] allows {}",
                    value.place()
                ),
            };
            notices.push((text, origin.clone()));
        }
        for (text, origin) in notices {
            self.notice(text, origin);
        }
    }

    /// Returns the keys that cannot be used, with the reasons.
    pub(crate) fn ssh_refusals(&self, workspace: &Path) -> Vec<(String, String, Origin)> {
        let mut refused = Vec::new();
        for (index, one) in self.ssh.values().enumerate() {
            let what = format!("[ssh.{}]", one.value.grant.name);
            if index >= SSH_GRANTS_MAX {
                let why = format!("a run has {SSH_GRANTS_MAX} of them at most");
                refused.push((what, why, one.origin.clone()));
            } else if let SshKeySource::File(file) = &one.value.source
                && self.shows(file, workspace)
            {
                let why = format!("{} can be read inside", file.display());
                refused.push((what, why, one.origin.clone()));
            }
        }
        refused
    }
}
