//! The requests of the front to the worker, and the answers.
//!
//! Each request is a connection of its own: a [`Hello`], then the answer that the [`Request`] has,
//! or a [`Refusal`]. Bytes of files and streams go in frames of their own, and descriptors beside
//! the messages ([`crate::line`]).

mod artifacts;
mod asked;
mod facts;
mod refusal;
mod request;
mod sandbox;
mod templates;
mod tools;
mod volumes;
mod webhooks;

use serde::{Deserialize, Serialize};

pub use artifacts::*;
pub use asked::*;
pub use facts::*;
pub use refusal::{Kind, Refusal};
pub use request::Request;
use request::requests;
pub use sandbox::*;
pub use templates::*;
pub use tools::*;
pub use volumes::*;
pub use webhooks::*;

/// The version of the protocol.
pub const VERSION: u32 = 3;

/// The name of a signed link to a port, in a query and in a cookie.
pub const LINK: &str = "atoll-link";

/// The longest time for which such a link is good, seconds.
pub const LINK_LASTS_S_MAX: u64 = 7 * 24 * 60 * 60;

/// The port of E2B's own services in a sandbox.
pub const ENVD_PORT: u16 = 49983;

/// The port of the code interpreter, as E2B has it.
pub const INTERPRETER_PORT: u16 = 49999;

/// Returns whether what listens at a port runs code or reads files for whoever asks: no such port is
/// public, whatever else is said of ports.
#[must_use]
pub const fn is_service(port: u16) -> bool {
    matches!(port, ENVD_PORT | INTERPRETER_PORT)
}

/// The template with an interpreter of code, as E2B's SDK names it.
pub const CODE_INTERPRETER: &str = "code-interpreter-v1";

/// The templates that are shipped: the host's system, with an empty home; the last with an
/// interpreter of code.
pub const TEMPLATES: [&str; 3] = ["base", "default", CODE_INTERPRETER];

/// The beginning of a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// [`VERSION`].
    pub version: u32,
    /// The credential of the caller.
    pub credential: Credential,
    /// A name for the request: one with the same name is not carried out again.
    pub once: Option<String>,
    /// The trace id of the request.
    pub trace: Option<String>,
    /// The request.
    pub ask: Ask,
}

/// The credential of a caller, as it came: the worker checks it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Credential {
    /// None.
    Nothing,
    /// A key of a caller, or a token of an issuer.
    Key(String),
    /// The access token of the sandbox that is asked for.
    Token(String),
    /// A signature for one path of one sandbox.
    Signature {
        /// The signature.
        signature: String,
        /// The user's name, as signed.
        user: String,
        /// The path, as signed.
        path: String,
        /// The time from which it is refused, seconds since 1970.
        expires_s: Option<u64>,
    },
    /// A signed link to one port of one sandbox: its end, seconds since 1970, and the signature.
    Link(u64, String),
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(match self {
            Self::Nothing => "Nothing",
            Self::Key(_) => "Key",
            Self::Token(_) => "Token",
            Self::Signature { .. } => "Signature",
            Self::Link(..) => "Link",
        })
    }
}

requests! {
    /// A request.
    Ask {
        /// Makes a sandbox.
        Create(Box<CreateAsk>) -> CreatedFacts;
        /// Lists the tenant's sandboxes.
        ListSandboxes(ListAsk) -> Listed;
        /// Tells what happened to the tenant's sandboxes, or to one of them, also one that has ended.
        ListLifecycleEvents { sandbox: Option<String>, offset: u64, limit: u64, oldest_first: bool }
            -> Vec<LifecycleEventFacts>;
        /// Tells whose a credential is.
        Identify {} -> CallerFacts;
        /// Counts what the worker holds. Needs no credential.
        Count {} -> Counts;
        /// Answers once the body of a request may be read, of whoever a credential is of. Its place
        /// is taken until the connection is closed.
        Permit { sandbox: Option<String>, volume: Option<String> } -> ();
        /// Takes the frames that follow as files for a build. Needs no credential but the token of
        /// the build.
        Upload { template: String, upload: String, token: String } -> ();
    }
    with
        Artifacts(ArtifactsAsk),
        Keys(KeysAsk),
        Webhooks(WebhooksAsk),
        Ledger(LedgerAsk),
        Snapshots(SnapshotsAsk),
        Templates(TemplatesAsk),
        Tools(ToolsAsk),
        Volumes(VolumesAsk),
        Content(OfVolume<ContentAsk>),
        In(In<InAsk>)
}

/// A request of one sandbox.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct In<R> {
    /// The sandbox; `None` only with a signature, which finds it.
    pub sandbox: Option<String>,
    /// The request.
    pub ask: R,
}

impl<R: Request<Of: Into<InAsk>>> Request for In<R> {
    type Of = Ask;
    type Reply = R::Reply;
    type Then = R::Then;

    fn wrap(self) -> Ask {
        let Self { sandbox, ask } = self;
        let ask = ask.wrap().into();
        Ask::In(In { sandbox, ask })
    }
}

/// A request about the files of one volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OfVolume<R> {
    /// Its id, or name.
    pub volume: String,
    /// The request.
    pub ask: R,
}

impl<R: Request<Of = ContentAsk>> Request for OfVolume<R> {
    type Of = Ask;
    type Reply = R::Reply;
    type Then = R::Then;

    fn wrap(self) -> Ask {
        let Self { volume, ask } = self;
        let ask = ask.wrap();
        Ask::Content(OfVolume { volume, ask })
    }
}
