//! `[git]` of a profile.

use atoll_model::network::{HostName, HostPart};

use crate::document::{Complaint, Document, Section};
use crate::network::likely::shown;
use crate::origin::Sourced;

/// Reads `[git]`: the hosts whose SSH remotes are reached by HTTPS.
pub(crate) fn read(document: &mut Document, top: &mut Section<'_>) -> Vec<Sourced<HostName>> {
    let Some(mut section) = document.section(top, "git", "git") else {
        return Vec::new();
    };
    let hosts = document.list(&mut section, "https-for-ssh", |text| {
        HostName::parse(text).map_err(|error| {
            let hint = match text.parse::<HostPart>() {
                Ok(HostPart::Address(_)) => {
                    "remotes by an address stay as they are: name a host, or write its URL with https \
                     in the remote (git remote set-url)"
                }
                Ok(HostPart::Name(_)) | Err(_) => {
                    "name it as the remotes do, without a user and a path, as \"github.com\""
                }
            };
            Complaint::new(format!("{:?} is no host's name: {error}", shown(text)), hint)
        })
    });
    document.end(section, &["https-for-ssh"]);
    hosts.map(|list| list.value).unwrap_or_default()
}
