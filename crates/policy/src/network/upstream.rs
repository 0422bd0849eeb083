//! The upstream of connections from the host, set by a person or an organisation.

use std::path::PathBuf;

use atoll_model::network::{Destination, Ports, Upstream, UpstreamProxy};

use crate::document::{Complaint, Document, Section};
use crate::network::rule::parse_destination;
use crate::origin::Sourced;

/// The keys of these settings.
pub(crate) const KEYS: [&str; 3] = ["upstream-proxy", "no-proxy", "upstream-roots"];

/// The upstream settings of one file.
#[derive(Clone, Debug, Default)]
pub(crate) struct UpstreamSettings {
    pub(crate) proxy: Option<Sourced<UpstreamProxy>>,
    pub(crate) direct: Vec<Sourced<Destination>>,
    pub(crate) roots: Vec<Sourced<PathBuf>>,
}

impl UpstreamSettings {
    /// Reads the settings of a file that only its author can read.
    pub(crate) fn read(document: &mut Document, section: &mut Section<'_>) -> Self {
        Self::read_with(document, section, parse_proxy)
    }

    /// Reads the settings of a file that everybody can read, also programs in sandboxes.
    pub(crate) fn read_public(document: &mut Document, section: &mut Section<'_>) -> Self {
        Self::read_with(document, section, parse_public_proxy)
    }

    fn read_with(
        document: &mut Document,
        section: &mut Section<'_>,
        parse: fn(&str) -> Result<UpstreamProxy, Complaint>,
    ) -> Self {
        let direct = document.list(section, "no-proxy", parse_direct);
        let roots = document.list(section, "upstream-roots", parse_path);
        Self {
            proxy: document.text(section, "upstream-proxy", parse),
            direct: direct.map(|list| list.value).unwrap_or_default(),
            roots: roots.map(|list| list.value).unwrap_or_default(),
        }
    }

    /// Merges settings of higher precedence: their proxy replaces this one, and the lists add up.
    pub(crate) fn extend(&mut self, mut more: Self) {
        // Whoever is known to that very proxy stays so.
        if let (Some(new), Some(own)) = (&mut more.proxy, &mut self.proxy)
            && (&new.value.host, new.value.port) == (&own.value.host, own.value.port)
            && new.value.credentials.is_none()
        {
            new.value.credentials = own.value.credentials.take();
        }
        self.proxy = more.proxy.or(self.proxy.take());
        self.direct.extend(more.direct);
        self.roots.extend(more.roots);
    }

    /// Merges the organisation's settings. If it names a proxy, only its own exceptions bypass
    /// that; those of lower layers are removed and returned.
    pub(crate) fn bound(&mut self, organisation: Self) -> Vec<Sourced<Destination>> {
        let past = match organisation.proxy {
            Some(_) => std::mem::take(&mut self.direct),
            None => Vec::new(),
        };
        self.extend(organisation);
        past
    }

    /// Returns the keys that are set.
    pub(crate) fn stated_keys(&self) -> Vec<Sourced<&'static str>> {
        let proxy = self.proxy.iter().map(|one| (&one.origin, "upstream-proxy"));
        let direct = self.direct.iter().map(|one| (&one.origin, "no-proxy"));
        let roots = self.roots.iter().map(|one| (&one.origin, "upstream-roots"));
        let said = proxy.chain(direct.take(1)).chain(roots.take(1));
        said.map(|(origin, key)| Sourced::new(key, origin.clone()))
            .collect()
    }

    pub(crate) fn boundary(&self) -> Upstream {
        Upstream {
            proxy: self.proxy.as_ref().map(|one| one.value.clone()),
            direct: self.direct.iter().map(|one| one.value.clone()).collect(),
            roots: self.roots.iter().map(|one| one.value.clone()).collect(),
        }
    }
}

fn parse_proxy(text: &str) -> Result<UpstreamProxy, Complaint> {
    // Not the text itself: a password may be in it.
    text.parse::<UpstreamProxy>().map_err(|error| {
        Complaint::new(
            error.to_string(),
            "as \"http://proxy.example:3128\" or \"http://user:password@proxy.example:3128\"",
        )
    })
}

fn parse_public_proxy(text: &str) -> Result<UpstreamProxy, Complaint> {
    let proxy = parse_proxy(text)?;
    match proxy.credentials {
        None => Ok(proxy),
        Some(_) => Err(Complaint::new(
            "everybody can read this file, also inside, and with it the password".to_owned(),
            "name the proxy alone here; each person's profile names it with user and password",
        )),
    }
}

/// Parses a destination that bypasses the proxy; without ports, at every port.
fn parse_direct(text: &str) -> Result<Destination, Complaint> {
    let mut direct = parse_destination(text)?;
    if direct.ports == Ports::Web {
        direct.ports = Ports::All;
    }
    Ok(direct)
}

fn parse_path(text: &str) -> Result<PathBuf, Complaint> {
    if !text.starts_with('/') || text.contains('\0') {
        let hint = "as \"/etc/ssl/corporate.pem\"";
        return Err(Complaint::new(
            format!("{text:?} is no absolute path"),
            hint,
        ));
    }
    Ok(PathBuf::from(text))
}
