//! Requests about artifacts, and their descriptions.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::request::requests;

requests! {
    /// A request about the tenant's artifacts.
    ArtifactsAsk {
        /// Lists them, the newest sandbox first.
        ListArtifacts { sandbox: Option<String>, state: Option<String> } -> Vec<ArtifactFacts>;
        /// Describes one.
        GetArtifact { id: String } -> ArtifactFacts;
        /// Returns the signed statement about one.
        GetStatement { id: String } -> String;
        /// Reads one; its content follows, and a message once all of it was whole.
        ReadArtifact { id: String } -> ArtifactFacts, then ();
        /// Has all scanners look at one.
        ScanArtifact { id: String } -> ArtifactFacts;
        /// Promotes one, or rejects it.
        DecideArtifact { id: String, promotes: bool, why: Option<String> } -> ArtifactFacts;
    }
}

/// A file that a sandbox has put out, as its callers see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ArtifactFacts {
    /// Its id.
    pub id: String,
    /// The name of the file in `/outputs`; where that is no UTF-8, with replacement characters.
    pub name: String,
    /// Its size, bytes.
    pub size: u64,
    /// Its media type, by its content.
    pub media: String,
    /// The SHA-256 digest of its content, hexadecimal digits.
    pub sha256: String,
    /// The BLAKE3 digest of its content, hexadecimal digits.
    pub blake3: String,
    /// `held`, `promoted` or `rejected`.
    pub state: String,
    /// True if its content was destroyed.
    pub destroyed: bool,
    /// The approver who has decided.
    pub decided_by: Option<String>,
    /// The time of that, milliseconds since 1970.
    pub decided_ms: Option<u64>,
    /// The reason that the approver gave.
    pub why: Option<String>,
    /// The sandbox.
    pub sandbox: Option<String>,
    /// The run by which the ledger has it.
    pub run: String,
    /// True if the sandbox came to a sudden end: it can be half of a file.
    pub interrupted: bool,
    /// The time at which it was put away, milliseconds since 1970.
    pub created_ms: u64,
    /// The number of the ledger's entry about it.
    pub ledger_entry: u64,
    /// The words of scanners, the last of each; none before a scan.
    pub scans: Vec<ScanFacts>,
}

/// The word of a scanner on an artifact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScanFacts {
    /// The scanner: `secrets`, `personal-data`, `archives`, `programs` or `active-content`.
    pub scanner: String,
    /// The version of the scanners.
    pub version: u32,
    /// The time, milliseconds since 1970.
    pub at_ms: u64,
    /// `clean`, `found` or `failed`, which says nothing of the content.
    pub verdict: String,
    /// The findings.
    pub findings: Vec<FindingFacts>,
    /// The reason of a failure.
    pub why: Option<String>,
}

/// A finding of a scanner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FindingFacts {
    /// The rule.
    pub rule: String,
    /// The place: `line 3`, `byte 17`, or an entry of an archive.
    pub place: String,
    /// The confidence that it is one, percent.
    pub confidence: u8,
}
