//! The rules of `retention.toml`: for each class of kept data an age and a size.

use std::time::Duration;

use atoll_engine::configuration::{Places, read_optional};
use atoll_engine::failure::{Doing, Failure};
use atoll_model::{InvalidQuantity, parse_bytes, parse_duration};
use serde::Deserialize;

/// The file, beside `config.toml`.
const FILE: &str = "retention.toml";
const DAY: Duration = Duration::from_secs(24 * 3_600);
/// The word for data that no age removes.
const NEVER: &str = "never";

/// A class of kept data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Paused sandboxes and snapshots of a server.
    Sandbox,
    /// The content of artifacts.
    Artifact,
    /// Changes of runs, checkpoints, and the notes by which sessions are undone.
    Layer,
    /// The files of hooks about agents' sessions, with what their sandboxes said.
    Log,
    /// Sealed content of the ledger: its keys are destroyed.
    Evidence,
    /// Events of a server's sandboxes, with deliveries to webhooks that wait.
    Event,
}

/// The rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    sandbox: Bounds,
    artifact: Bounds,
    layer: Bounds,
    log: Bounds,
    evidence: AgeAlone,
    event: Bounds,
}

/// The bounds of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Bounds {
    age: Option<Age>,
    size: Option<Size>,
}

/// The bounds of what takes no room of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AgeAlone {
    age: Option<Age>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
enum Age {
    Never,
    After(Duration),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
struct Size(u64);

impl TryFrom<String> for Age {
    type Error = InvalidQuantity;

    fn try_from(text: String) -> Result<Self, InvalidQuantity> {
        match text.as_str() {
            NEVER => Ok(Self::Never),
            text => parse_duration(text).map(Self::After),
        }
    }
}

impl TryFrom<String> for Size {
    type Error = InvalidQuantity;

    fn try_from(text: String) -> Result<Self, InvalidQuantity> {
        parse_bytes(&text).map(Self)
    }
}

impl Class {
    /// All classes, in the order in which they are listed.
    pub const ALL: [Self; 6] = [
        Self::Sandbox,
        Self::Artifact,
        Self::Layer,
        Self::Log,
        Self::Evidence,
        Self::Event,
    ];

    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sandbox => "sandbox",
            Self::Artifact => "artifact",
            Self::Layer => "layer",
            Self::Log => "log",
            Self::Evidence => "evidence",
            Self::Event => "event",
        }
    }

    /// Returns the age at which its data goes, where the rules say none.
    fn by_default(self) -> Age {
        match self {
            Self::Layer | Self::Log => Age::After(30 * DAY),
            Self::Event => Age::After(90 * DAY),
            Self::Sandbox | Self::Artifact | Self::Evidence => Age::Never,
        }
    }
}

impl Rules {
    /// Reads those of the person, or the defaults.
    ///
    /// # Errors
    /// When the file is there and cannot be read, or is invalid.
    pub fn read(places: &Places) -> Result<Self, Failure> {
        let path = places.config.join(FILE);
        let Some(file) = read_optional(&path)? else {
            return Ok(Self::default());
        };
        let invalid = format!("{} is invalid", path.display());
        let parsed = Self::parse(&String::from_utf8_lossy(&file.content)).doing(&invalid);
        parsed.map_err(|failure| failure.advise("atoll help retention shows what it can hold"))
    }

    /// Reads the text of a `retention.toml`.
    ///
    /// # Errors
    /// The mistake in it.
    pub fn parse(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text)
    }

    /// Sets the age of layers, whatever the file says.
    #[must_use]
    pub fn with_layers_older_than(mut self, age: Option<Duration>) -> Self {
        self.layer.age = age.map(Age::After).or(self.layer.age);
        self
    }

    /// Returns the age at which data of a class goes; `None` for never.
    #[must_use]
    pub fn age(&self, class: Class) -> Option<Duration> {
        let age = self.written(class).age.unwrap_or(class.by_default());
        match age {
            Age::Never => None,
            Age::After(age) => Some(age),
        }
    }

    /// Returns the age that was set for data that stays otherwise.
    #[must_use]
    pub fn age_as_written(&self, class: Class) -> Option<Duration> {
        self.written(class).age.and_then(|_| self.age(class))
    }

    /// Returns the most room that data of a class may take, bytes.
    #[must_use]
    pub fn size(&self, class: Class) -> Option<u64> {
        self.written(class).size.map(|size| size.0)
    }

    fn written(&self, class: Class) -> Bounds {
        match class {
            Class::Sandbox => self.sandbox,
            Class::Artifact => self.artifact,
            Class::Layer => self.layer,
            Class::Log => self.log,
            Class::Event => self.event,
            Class::Evidence => Bounds {
                age: self.evidence.age,
                size: None,
            },
        }
    }
}
