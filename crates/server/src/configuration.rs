//! `serve.toml`: what is served, where, and how much of it.

use std::net::{Ipv4Addr, SocketAddr};

use serde::Deserialize;

/// The shipped presets of package registries.
const REGISTRIES: [&str; 5] = ["apt", "cargo", "go", "npm", "pip"];

/// The configuration of a server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Configuration {
    /// The address that is listened at; on the loopback only.
    pub listen: SocketAddr,
    /// The network of sandboxes, which a caller can only narrow.
    pub network: NetworkWord,
    /// The resources of a sandbox whose caller asks for no others.
    pub defaults: Defaults,
    /// The most that a tenant gets.
    pub quota: Quota,
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
    /// Sandboxes made in a minute.
    pub creates_a_minute: u32,
    /// The longest life of a sandbox, seconds.
    pub timeout_s: u64,
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
         listen at 127.0.0.1 behind a proxy that speaks TLS"
    )]
    InTheClear(SocketAddr),
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
            network: NetworkWord::default(),
            defaults: Defaults::default(),
            quota: Quota::default(),
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

impl Default for Quota {
    fn default() -> Self {
        Self {
            sandboxes: 1_000,
            creates_a_minute: 60_000,
            timeout_s: 24 * 60 * 60,
        }
    }
}

impl Configuration {
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
        if !self.listen.ip().is_loopback() {
            return Err(ConfigurationError::InTheClear(self.listen));
        }
        let counts = [
            ("defaults.timeout_s", self.defaults.timeout_s),
            ("defaults.cpus", self.defaults.cpus.unwrap_or(1).into()),
            ("defaults.memory_mib", self.defaults.memory_mib),
            ("defaults.disk_mib", self.defaults.disk_mib),
            ("defaults.processes", self.defaults.processes),
            ("quota.sandboxes", self.quota.sandboxes as u64),
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
    pub(crate) fn presets(self) -> Vec<String> {
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
