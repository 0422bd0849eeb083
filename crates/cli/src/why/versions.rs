//! The policy versions a run was decided by, if they changed while it went on.

use super::{Story, text};
use crate::render::{Report, Style, readable_time, short_version};

impl Story<'_> {
    /// Adds when policies were reread, and which versions the run continued with.
    pub(super) fn tell_versions(&self, report: &mut Report) {
        for event in self.events {
            let said = |member: &str| text(event.body.get(member)).unwrap_or_default();
            let when = readable_time(&event.time);
            match event.kind.as_str() {
                "policy.reloaded" => {
                    let (from, to) = (said("from"), said("to"));
                    let (from, to) = (short_version(&from), short_version(&to));
                    let mut told = format!("reloaded {when}: {to}, before it {from}");
                    let signed = said("signed");
                    if !signed.is_empty() {
                        told.push_str(&format!("; signed by {signed}"));
                    }
                    report.line("policies", &told);
                }
                "policy.reload-refused" => {
                    let (kept, why) = (short_version(&said("policy")), said("why"));
                    let told = format!("not reloaded {when}, {kept} went on: {why}");
                    report.styled("policies", &told, Some(Style::Bad));
                }
                _ => {}
            }
        }
        for version in self.refusing_versions() {
            let version = short_version(&version);
            report.line("policies", &format!("{version}: they refused something"));
        }
    }

    /// Returns the versions of the policies that have refused something, each once.
    fn refusing_versions(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for event in self.events {
            let why = text(event.body.get("why")).unwrap_or_default();
            let is_by_policy = match event.kind.as_str() {
                "flow.refused" => why.contains("policy ") || why.contains("no policy permits"),
                _ => false,
            };
            let version = text(event.body.get("policy")).filter(|_| is_by_policy);
            all.extend(version.filter(|one| !all.contains(one)));
        }
        all
    }
}
