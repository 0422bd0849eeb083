//! `serve.toml`: what is served, where, and how much of it.

pub(crate) mod issuer;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use atoll_model::network::HostPart;
use serde::Deserialize;

pub use issuer::{Issuer, IssuerError};

/// The shipped presets of package registries.
const REGISTRIES: [&str; 5] = ["apt", "cargo", "go", "npm", "pip"];

/// The registries of images that everybody knows, and what they redirect to; and Debian's packages.
const IMAGES: [&str; 9] = [
    "auth.docker.io",
    "deb.debian.org",
    "ghcr.io",
    "mcr.microsoft.com",
    "pkg-containers.githubusercontent.com",
    "production.cloudflare.docker.com",
    "public.ecr.aws",
    "quay.io",
    "registry-1.docker.io",
];

/// The configuration of a server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Configuration {
    /// The address that is listened at; beyond the loopback only with TLS.
    pub listen: SocketAddr,
    /// The network of sandboxes, which a caller can only narrow; closed if `None`.
    pub network: Option<NetworkWord>,
    /// Destinations beyond the network's, each request to which waits for an approver: names, as of
    /// `--ask`.
    pub ask: Vec<String>,
    /// The registries of images that templates are built from, with the hosts that they redirect to,
    /// as of `--allow`; the known ones if `None`, and none where the network is closed.
    pub images: Option<Vec<String>>,
    /// The hosts that webhooks may be sent to though they are not public, also in the clear.
    pub webhooks: Vec<WebhookHost>,
    /// True if programs may have namespaces of their own: containers, browsers with a sandbox.
    pub nesting: bool,
    /// TLS; without it, requests come in the clear.
    pub tls: Option<Tls>,
    /// The issuers whose tokens callers may come with.
    #[serde(rename = "issuer")]
    pub issuers: Vec<Issuer>,
    /// The resources of a sandbox whose caller asks for no others.
    pub defaults: Defaults,
    /// The most that a tenant gets.
    pub quota: Quota,
    /// The room that is kept from sandboxes.
    pub reserve: Reserve,
    /// The sandboxes that are made ahead.
    pub warm: Warm,
    /// The parts of paused sandboxes that are kept besides their files.
    pub pause: Pause,
    /// The longest time for which living sandboxes go on once the server is to end, seconds.
    pub drain_s: u64,
    /// True for a line of JSON on standard error for each request; by default where that is no
    /// terminal.
    pub log: Option<bool>,
}

/// The network of served sandboxes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkWord {
    /// None.
    #[default]
    Closed,
    /// Package registries, to read.
    Registries,
    /// Every public address, looked into and recorded.
    Internet,
}

/// The identity of a server that speaks TLS.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The name of the server; ports of sandboxes are names below it.
    pub domain: String,
    /// The file of a certificate for it and all names below, PEM, with those above it; one is
    /// made under the server's own authority if `None`.
    pub certificate: Option<PathBuf>,
    /// The file of its key, PEM.
    pub key: Option<PathBuf>,
}

/// A host that webhooks may be sent to: `host` or `host:port`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct WebhookHost {
    host: HostPart,
    /// Every port if `None`.
    port: Option<u16>,
}

/// The resources of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Defaults {
    /// Its life, seconds.
    pub timeout_s: u64,
    /// Processors; without a number 2 where the host can hold a program to them, else all.
    pub cpus: Option<u32>,
    /// Memory, MiB.
    pub memory_mib: u64,
    /// Disk, MiB.
    pub disk_mib: u64,
    /// Processes and threads at once.
    pub processes: u64,
}

/// The most that a tenant gets.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quota {
    /// Sandboxes at once.
    pub sandboxes: usize,
    /// Processors of all its sandboxes together; without a number as many as it asks for, as of the
    /// next two.
    pub cpus: Option<u32>,
    /// Memory of all together, MiB.
    pub memory_mib: Option<u64>,
    /// Disk of all together, MiB.
    pub disk_mib: Option<u64>,
    /// Sandboxes that are paused.
    pub paused: usize,
    /// Snapshots.
    pub snapshots: usize,
    /// Templates that it has built.
    pub templates: usize,
    /// Volumes, snapshots of them included.
    pub volumes: usize,
    /// The most that one volume may take, MiB.
    pub volume_mib: u64,
    /// Sandboxes made in a minute.
    pub creates_a_minute: u32,
    /// The longest life of a sandbox, seconds.
    pub timeout_s: u64,
}

/// The room on the host that is kept from sandboxes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reserve {
    /// Disk, MiB: with twice as much left no sandbox is made, with less no file written.
    pub disk_mib: u64,
    /// Memory, MiB: with twice as much left no sandbox is made; with less the largest ends.
    pub memory_mib: u64,
}

/// The sandboxes that are made ahead of the requests for them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Warm {
    /// The number of each kind that a tenant has asked for within ten minutes; 0 for none.
    pub sandboxes: usize,
}

/// The parts of paused sandboxes that are kept besides their files.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Pause {
    /// The longest time for which their memory is kept where it is, while there is room, seconds; 0 for
    /// none.
    pub memory_s: u64,
}

/// A mistake in the configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// Text that is no TOML, or has a key that is not known.
    #[error("{0}")]
    Form(#[from] toml::de::Error),
    /// Others than this machine's own would reach it in the clear.
    #[error(
        "listen = \"{0}\" is not on the loopback, and keys would cross the network in the clear; \
         tls.domain = \"sandboxes.example.com\" gives it TLS; or listen at 127.0.0.1 behind a proxy"
    )]
    InTheClear(SocketAddr),
    /// One of a pair of files.
    #[error("tls.certificate and tls.key go together")]
    Half,
    /// A name that no certificate can have.
    #[error("tls.domain = \"{0}\" is no name of a host")]
    Domain(String),
    /// An issuer.
    #[error(transparent)]
    Issuer(#[from] IssuerError),
    /// A default that would be refused.
    #[error("defaults.timeout_s is {0}, more than quota.timeout_s, {1}")]
    Beyond(u64, u64),
    /// A number makes no sense.
    #[error("{0} must be at least 1")]
    Zero(&'static str),
}

impl Default for Configuration {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 3000)),
            network: None,
            ask: Vec::new(),
            images: None,
            nesting: false,
            webhooks: Vec::new(),
            tls: None,
            issuers: Vec::new(),
            defaults: Defaults::default(),
            quota: Quota::default(),
            reserve: Reserve::default(),
            warm: Warm::default(),
            pause: Pause::default(),
            drain_s: 0,
            log: None,
        }
    }
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            timeout_s: 300,
            cpus: None,
            memory_mib: 1024,
            disk_mib: 10 * 1024,
            processes: 1024,
        }
    }
}

impl Default for Reserve {
    fn default() -> Self {
        Self {
            disk_mib: 512,
            memory_mib: 256,
        }
    }
}

impl Default for Warm {
    fn default() -> Self {
        Self { sandboxes: 2 }
    }
}

impl Default for Pause {
    fn default() -> Self {
        Self { memory_s: 3_600 }
    }
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            sandboxes: 1_000,
            cpus: None,
            memory_mib: None,
            disk_mib: None,
            paused: 1_000,
            snapshots: 100,
            templates: 100,
            volumes: 100,
            volume_mib: 10 * 1024,
            creates_a_minute: 60_000,
            timeout_s: 24 * 60 * 60,
        }
    }
}

impl Configuration {
    /// Returns the network of sandboxes.
    #[must_use]
    pub fn network(&self) -> NetworkWord {
        self.network.unwrap_or_default()
    }

    /// Returns the registries of images.
    pub(crate) fn images(&self) -> Vec<String> {
        match (&self.images, self.network()) {
            (Some(named), _) => named.clone(),
            (None, NetworkWord::Closed) => Vec::new(),
            (None, NetworkWord::Registries | NetworkWord::Internet) => {
                IMAGES.map(str::to_owned).to_vec()
            }
        }
    }

    /// Reads the text of a `serve.toml`.
    ///
    /// # Errors
    /// [`ConfigurationError`].
    pub fn parse(text: &str) -> Result<Self, ConfigurationError> {
        let configuration: Self = toml::from_str(text)?;
        configuration.check()?;
        Ok(configuration)
    }

    /// Checks what no type holds.
    ///
    /// # Errors
    /// [`ConfigurationError`].
    pub fn check(&self) -> Result<(), ConfigurationError> {
        match &self.tls {
            None if !self.listen.ip().is_loopback() => {
                return Err(ConfigurationError::InTheClear(self.listen));
            }
            None => {}
            Some(tls) if tls.certificate.is_some() != tls.key.is_some() => {
                return Err(ConfigurationError::Half);
            }
            Some(tls) if !is_name(&tls.domain) => {
                return Err(ConfigurationError::Domain(tls.domain.clone()));
            }
            Some(_) => {}
        }
        issuer::check(&self.issuers)?;
        let counts = [
            ("defaults.timeout_s", self.defaults.timeout_s),
            ("defaults.cpus", self.defaults.cpus.unwrap_or(1).into()),
            ("defaults.memory_mib", self.defaults.memory_mib),
            ("defaults.disk_mib", self.defaults.disk_mib),
            ("defaults.processes", self.defaults.processes),
            ("quota.sandboxes", self.quota.sandboxes as u64),
            ("quota.cpus", self.quota.cpus.unwrap_or(1).into()),
            ("quota.memory_mib", self.quota.memory_mib.unwrap_or(1)),
            ("quota.disk_mib", self.quota.disk_mib.unwrap_or(1)),
            ("quota.volume_mib", self.quota.volume_mib),
            ("quota.creates_a_minute", self.quota.creates_a_minute.into()),
            ("quota.timeout_s", self.quota.timeout_s),
        ];
        match counts.into_iter().find(|(_, count)| *count == 0) {
            Some((name, _)) => Err(ConfigurationError::Zero(name)),
            None if self.defaults.timeout_s > self.quota.timeout_s => Err(
                ConfigurationError::Beyond(self.defaults.timeout_s, self.quota.timeout_s),
            ),
            None => Ok(()),
        }
    }
}

/// Returns whether a text can be the name of a host (RFC 1123, 2.1).
fn is_name(text: &str) -> bool {
    let is_label = |label: &str| {
        let all = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=63).contains(&label.len())
            && label.bytes().all(all)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= 200 && text.split('.').all(is_label) && text.parse::<IpAddr>().is_err()
}

impl WebhookHost {
    /// Returns whether it is this host, at this port.
    pub(crate) fn names(&self, host: &HostPart, port: u16) -> bool {
        self.host == *host && self.port.is_none_or(|own| own == port)
    }
}

impl TryFrom<String> for WebhookHost {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = |why: &str| format!("webhooks: {text:?} is no host or host:port: {why}");
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                let port = port.parse().ok().filter(|port| *port != 0);
                let port = port.ok_or_else(|| wrong("its port is no number of a port"))?;
                (host, Some(port))
            }
            Some(_) | None => (text.as_str(), None),
        };
        let host = host.parse::<HostPart>();
        let host = host.map_err(|error| wrong(&error.to_string()))?;
        Ok(Self { host, port })
    }
}

impl NetworkWord {
    /// Returns the word as written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Registries => "registries",
            Self::Internet => "internet",
        }
    }

    /// Returns the word of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let all = [Self::Closed, Self::Registries, Self::Internet];
        all.into_iter().find(|word| word.name() == name)
    }

    /// Returns the presets that it stands for.
    #[must_use]
    pub fn presets(self) -> Vec<String> {
        match self {
            Self::Registries => REGISTRIES.map(str::to_owned).into(),
            Self::Closed | Self::Internet => Vec::new(),
        }
    }

    /// Returns the destinations that it stands for.
    pub(crate) fn allow(self) -> Vec<String> {
        match self {
            Self::Internet => vec!["*".to_owned()],
            Self::Closed | Self::Registries => Vec::new(),
        }
    }
}
