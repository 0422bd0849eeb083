//! What a prover is asked and what it answers: JSON at the input of a program of its own, and at
//! its output one line for each property, in their order.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use atoll_model::network::{Block, HostName, HostPart};
use serde::{Deserialize, Serialize};

use crate::policies::Known;
use crate::{Action, Case, Layer, Layers, PolicyFile};

/// The most that a prover reads, bytes.
pub const ASKED_BYTES_MAX: usize = 64 << 20;
/// The longest line that a prover answers, bytes.
pub const ANSWER_BYTES_MAX: usize = 1 << 20;

/// All that a prover is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proving {
    /// The policies that it is about.
    pub subject: Subject,
    /// What is to hold of them.
    pub properties: Vec<Property>,
    /// The solver's program, an absolute path.
    pub solver: PathBuf,
    /// How long each property may take, seconds.
    pub seconds: u16,
    /// What of a request nobody has to say.
    pub usual: Case,
}

/// Policies as they are written, and how a run by them is trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subject {
    /// The files of each layer, each with its name and its text.
    files: Vec<(Layer, Vec<(String, String)>)>,
    /// The level of trust that is stated; any where none is.
    pub trust: Option<String>,
    /// Whether what somebody would have to agree to is denied.
    pub is_strict: bool,
}

impl Subject {
    /// Policies of a run that states no level.
    ///
    /// # Errors
    /// When a file is no text.
    pub fn new(files: &[(Layer, Vec<PolicyFile>)]) -> Result<Self, String> {
        let text = |file: &PolicyFile| {
            let text = std::str::from_utf8(&file.content);
            let text = text.map_err(|error| format!("{}: {error}", file.name))?;
            Ok((file.name.clone(), text.to_owned()))
        };
        let layer = |(layer, files): &(Layer, Vec<PolicyFile>)| {
            let files: Result<_, String> = files.iter().map(text).collect();
            Ok((*layer, files?))
        };
        let files: Result<_, String> = files.iter().map(layer).collect();
        Ok(Self {
            files: files?,
            ..Self::default()
        })
    }

    /// Compiles them.
    ///
    /// # Errors
    /// The first mistake in them.
    pub fn compile(&self) -> Result<Layers, String> {
        let file = |(name, text): &(String, String)| PolicyFile {
            name: name.clone(),
            content: text.clone().into_bytes(),
        };
        let layer = |(layer, files): &(Layer, Vec<(String, String)>)| {
            (*layer, files.iter().map(file).collect())
        };
        let files: Vec<(Layer, Vec<PolicyFile>)> = self.files.iter().map(layer).collect();
        Layers::compile(&files, &Known::default()).map_err(|faults| {
            let first = faults.first().map(ToString::to_string);
            first.unwrap_or_default()
        })
    }
}

/// One property.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Property {
    /// No policy fails, whatever is asked.
    NeverErrors,
    /// Each policy decides something: there is a request that it is about, and without it one
    /// would be decided in another way.
    EveryPolicyMatters,
    /// Nothing there is asked for by name, connected to, or sent a request, even where somebody
    /// agrees.
    NobodyReaches(Target),
    /// An action is never allowed, even where somebody agrees.
    NeverAllows {
        /// Which.
        action: Action,
        /// Where this holds, in Cedar; anywhere without one.
        condition: Option<String>,
    },
    /// All that is allowed is allowed by these, the older ones; and what they ask about is asked
    /// about or denied.
    OnlyTightens(Subject),
    /// Exactly what these allow is allowed, and what they ask about asked about.
    Same(Subject),
}

/// What is known of a property.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Verdict {
    /// It holds of every request.
    Proven,
    /// It does not.
    Refuted(Box<Refuted>),
    /// Nobody can tell, and why.
    Unknown(String),
}

/// Why a property does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refuted {
    /// A request of which it does not, as Atoll's own engine confirms; none where it is about
    /// policies that no request is about.
    pub case: Option<Case>,
    /// What that engine says of it.
    pub told: String,
}

/// Whom nobody is to reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Target {
    /// A host by its name, or an address.
    Host(HostPart),
    /// All beneath a name.
    Beneath(HostName),
    /// A block of addresses.
    Block(Block),
}

impl FromStr for Target {
    type Err = String;

    /// Reads `api.example.com`, `*.example.com`, `10.0.0.1` or `10.0.0.0/8`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |error: &dyn fmt::Display| format!("{text:?} is no host: {error}");
        if text.contains('/') {
            return text.parse().map(Self::Block).map_err(|error| wrong(&error));
        }
        if let Some(name) = text.strip_prefix("*.") {
            let name = HostName::parse(name).map_err(|error| wrong(&error))?;
            return Ok(Self::Beneath(name));
        }
        text.parse().map(Self::Host).map_err(|error| wrong(&error))
    }
}

impl TryFrom<String> for Target {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Target> for String {
    fn from(target: Target) -> Self {
        target.to_string()
    }
}

impl fmt::Display for Target {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => write!(to, "{host}"),
            Self::Beneath(name) => write!(to, "*.{name}"),
            Self::Block(block) => write!(to, "{block}"),
        }
    }
}
