//! The protocol of a prover: JSON on its standard input, and on its output one line for each
//! property, in the same order.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use atoll_model::network::{Block, HostName, HostPart};
use serde::{Deserialize, Serialize};

use crate::policies::Known;
use crate::{Action, Case, Layer, Layers, PolicyFile};

/// The largest input of a prover, bytes.
pub const ASKED_BYTES_MAX: usize = 64 << 20;
/// The longest line of a prover's output, bytes.
pub const ANSWER_BYTES_MAX: usize = 1 << 20;

/// The input of a prover.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proving {
    /// The policies to prove the properties of.
    pub subject: Subject,
    /// The properties to prove.
    pub properties: Vec<Property>,
    /// The solver's executable, an absolute path.
    pub solver: PathBuf,
    /// The time limit for each property, seconds.
    pub seconds: u16,
    /// The default values of a request.
    pub usual: Case,
}

/// Policies as written, with the trust settings of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subject {
    /// The files of each layer, each with its name and text.
    files: Vec<(Layer, Vec<(String, String)>)>,
    /// The stated level of trust; `None` for any.
    pub trust: Option<String>,
    /// True if anything that needs approval is denied.
    pub is_strict: bool,
}

impl Subject {
    /// Creates a subject with policies of a run that states no level of trust.
    ///
    /// # Errors
    /// When a file is not UTF-8.
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

    /// Compiles the policies.
    ///
    /// # Errors
    /// The first error in them.
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

/// A property to prove.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Property {
    /// No policy fails on any request.
    NeverErrors,
    /// Each policy decides something: there is a request that it is about, and one that would be
    /// decided in another way without it.
    EveryPolicyMatters,
    /// No name of the target is resolved, no connection to it opened and no request sent, even with
    /// an approval.
    NobodyReaches(Target),
    /// An action is never allowed, even with an approval.
    NeverAllows {
        /// The action.
        action: Action,
        /// The condition, in Cedar, to which the property is limited; everywhere without one.
        condition: Option<String>,
    },
    /// Everything that is allowed is allowed by these older policies; and anything for which they
    /// require an approval needs one or is denied.
    OnlyTightens(Subject),
    /// Exactly what these policies allow is allowed, and approvals are required for exactly the
    /// same.
    Same(Subject),
}

/// The result of trying to prove a property.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Verdict {
    /// The property holds for every request.
    Proven,
    /// The property does not hold.
    Refuted(Box<Refuted>),
    /// The result is unknown, for this reason.
    Unknown(String),
}

/// The refutation of a property.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refuted {
    /// A counterexample, confirmed by Atoll's own engine; `None` if the property concerns policies
    /// that no request is about.
    pub case: Option<Case>,
    /// The engine's explanation of its decision.
    pub told: String,
}

/// A target that is to be unreachable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Target {
    /// A host by its name, or an address.
    Host(HostPart),
    /// All names beneath one.
    Beneath(HostName),
    /// A block of addresses.
    Block(Block),
}

impl FromStr for Target {
    type Err = String;

    /// Parses `api.example.com`, `*.example.com`, `10.0.0.1` or `10.0.0.0/8`.
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
