//! Change sets of shadow runs: what a call changed on a copy, as policies, people and records have it.

use std::path::PathBuf;

use atoll_checkpoint::{RowChange, RowOperation};
use atoll_engine::shadow::FileChanges;
use atoll_model::{Reason, RunId};
use atoll_policy::ShadowFacts;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::openapi::HttpRequest;

/// The most rows of a change set that a person is shown.
const ROWS_SHOWN_MAX: usize = 40;

/// Asks a person whether exactly this change set is applied, for these reasons; returns why not.
pub type Approver<'a> = &'a dyn Fn(&ChangeSet, &[Reason]) -> Result<(), String>;

/// The change set of a shadow run.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangeSet {
    /// The facts about it, its digest among them.
    pub facts: ShadowFacts,
    /// The whole of it, for machines.
    pub details: Value,
    /// A line for each part of it, for people.
    pub lines: Vec<String>,
    /// The paths by which policies see it, where it is not of files.
    pub(crate) paths: Vec<PathBuf>,
}

/// The change set of a call, and its end.
#[derive(Clone, Debug, PartialEq)]
pub struct ShadowReport {
    /// The change set, if the shadow run came to one.
    pub change: Option<ChangeSet>,
    /// The end.
    pub end: ShadowEnd,
    /// The run whose layer has it for review, if it was not applied.
    pub kept: Option<RunId>,
}

/// The end of a change set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShadowEnd {
    /// Exactly it was applied.
    Applied,
    /// There was nothing to apply.
    Unchanged,
    /// Policies, or a person, refused it, for this reason: nothing was applied.
    Denied(String),
    /// Nothing was applied, for this reason.
    Dropped(String),
    /// An end that nobody knows, for this reason.
    Unknown(String),
}

impl ShadowEnd {
    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Unchanged => "unchanged",
            Self::Denied(_) => "denied",
            Self::Dropped(_) => "dropped",
            Self::Unknown(_) => "unknown",
        }
    }

    /// Returns the reason, where there is one.
    #[must_use]
    pub fn why(&self) -> Option<&str> {
        match self {
            Self::Applied | Self::Unchanged => None,
            Self::Denied(why) | Self::Dropped(why) | Self::Unknown(why) => Some(why),
        }
    }
}

impl ShadowReport {
    /// Describes it for machines.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "end": self.end.name(),
            "why": self.end.why(),
            "change": self.change.as_ref().map(ChangeSet::json),
            "kept": self.kept.as_ref().map(RunId::as_str),
        })
    }

    /// Describes it in a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let change = self.change.as_ref().map(ChangeSet::summary);
        let change = change.unwrap_or_else(|| "no change set".to_owned());
        let review = self.kept.as_ref();
        let review =
            review.map(|run| format!(" `atoll diff {run}` shows what it would have been."));
        let review = review.unwrap_or_default();
        match &self.end {
            ShadowEnd::Applied => format!("Applied exactly as in its shadow run: {change}."),
            ShadowEnd::Unchanged => "Its shadow run changed nothing.".to_owned(),
            ShadowEnd::Denied(why) => format!("Nothing was applied: {why}.{review}"),
            ShadowEnd::Dropped(why) => format!("Nothing was applied: {why}.{review}"),
            ShadowEnd::Unknown(why) => format!("Whether it was applied is unknown: {why}."),
        }
    }
}

impl ChangeSet {
    /// Returns whether there is nothing in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.facts.files == Some(0) || self.facts.rows == Some(0)
    }

    /// Describes it for machines.
    #[must_use]
    pub fn json(&self) -> Value {
        let facts = &self.facts;
        let mut all = json!({ "kind": facts.kind, "digest": facts.digest, "bytes": facts.bytes });
        if let (Some(all), Some(details)) = (all.as_object_mut(), self.details.as_object()) {
            all.extend(details.clone());
        }
        all
    }

    /// Describes it in a few words, with its digest.
    #[must_use]
    pub fn summary(&self) -> String {
        let facts = &self.facts;
        let counted = |count: u64, one: &str| match count {
            1 => format!("1 {one}"),
            count => format!("{count} {one}s"),
        };
        let what = match (facts.files, facts.rows, &facts.method) {
            (Some(files), _, _) => counted(files, "file"),
            (_, Some(rows), _) => {
                let tables: Vec<&str> = facts.tables.iter().map(String::as_str).collect();
                format!("{} of {}", counted(rows, "row"), tables.join(", "))
            }
            (_, _, Some(method)) => format!("a {method} request"),
            (None, None, None) => counted(facts.bytes, "byte"),
        };
        format!("{what}, {}", facts.digest)
    }

    /// Makes it of files.
    pub(crate) fn of_files(changes: &FileChanges) -> Self {
        let files = changes.files.iter();
        let line = |one: &atoll_engine::shadow::FileWrite| {
            let bytes = one.bytes.map(|bytes| format!(", {bytes} bytes"));
            let path = one.path.to_string_lossy();
            format!("{} {path}{}", one.how, bytes.unwrap_or_default())
        };
        let listed = files.clone().map(
            |one| json!({ "path": one.path.to_string_lossy(), "how": one.how, "bytes": one.bytes }),
        );
        Self {
            facts: changes.facts.clone(),
            details: json!({ "files": listed.collect::<Vec<_>>() }),
            lines: files.map(line).collect(),
            paths: Vec::new(),
        }
    }

    /// Makes it of the rows of a database, by the name of its upstream and its own.
    pub(crate) fn of_rows(tool: &str, upstream: &str, of: &str, changes: &[RowChange]) -> Self {
        let mut facts = ShadowFacts {
            kind: "sql".to_owned(),
            tool: tool.to_owned(),
            rows: Some(changes.len() as u64),
            ..ShadowFacts::default()
        };
        let new = changes.iter().filter_map(|one| one.new.as_ref());
        facts.bytes = new.map(|row| row.len() as u64).sum();
        facts.tables = changes.iter().map(|one| one.table.clone()).collect();
        let mut lines = Vec::new();
        for table in &facts.tables {
            let of = |op: RowOperation| {
                let rows = changes.iter();
                rows.filter(|one| one.table == *table && one.op == op)
                    .count()
            };
            let (new, changed) = (of(RowOperation::Insert), of(RowOperation::Update));
            let gone = of(RowOperation::Delete);
            lines.push(format!(
                "{table}: {new} new rows, {changed} changed, {gone} removed"
            ));
        }
        for one in changes.iter().take(ROWS_SHOWN_MAX) {
            let RowChange {
                table, old, new, ..
            } = one;
            let side = |row: &Option<String>| row.clone().unwrap_or_else(|| "none".to_owned());
            lines.push(format!("{table}: {} -> {}", side(old), side(new)));
        }
        if changes.len() > ROWS_SHOWN_MAX {
            let more = changes.len() - ROWS_SHOWN_MAX;
            lines.push(format!("and {more} rows more"));
        }
        let details = json!({ "database": of, "rows": changes });
        facts.digest = digest(&details);
        let paths = facts.tables.iter().map(|table| {
            let place = PathBuf::from("/databases").join(upstream);
            place.join(table.replace('/', "_"))
        });
        Self {
            paths: paths.collect(),
            facts,
            details,
            lines,
        }
    }

    /// Makes it of a request, by the name of its upstream and of its operation.
    pub(crate) fn of_request(
        tool: &str,
        upstream: &str,
        operation: &str,
        request: &HttpRequest,
        status: u16,
    ) -> Self {
        let details = json!({ "request": request, "staging": { "status": status } });
        let mut lines = vec![format!("{} {}", request.method, request.url)];
        let headers = request.headers.iter();
        lines.extend(headers.map(|(name, value)| format!("{name}: {value}")));
        lines.extend(request.body.clone());
        lines.push(format!("staging answered {status}"));
        let body = request.body.as_ref();
        Self {
            facts: ShadowFacts {
                kind: "service".to_owned(),
                tool: tool.to_owned(),
                digest: digest(&details),
                bytes: body.map_or(0, |body| body.len() as u64),
                method: Some(request.method.clone()),
                status: Some(status),
                ..ShadowFacts::default()
            },
            details,
            lines,
            paths: vec![PathBuf::from("/services").join(upstream).join(operation)],
        }
    }
}

/// Returns the digest of what a change set is made of.
pub(crate) fn digest(details: &Value) -> String {
    let digest = Sha256::digest(details.to_string().as_bytes());
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digest}")
}
