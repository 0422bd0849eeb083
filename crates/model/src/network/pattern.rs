//! Patterns of paths in rules.

use serde::{Deserialize, Serialize};

use super::Target;
use super::target::{liberal, normal};

/// The longest pattern, bytes.
const PATTERN_BYTES_MAX: usize = 1024;

/// A pattern of paths: segments, where `*` stands for one or more characters of one segment and
/// `**`, once and as a whole segment, for any number of segments, also none. A `?` can be followed
/// by a whole query; without one, any query matches.
///
/// An allowance compares the target's normal form exactly. A denial compares whatever some server
/// may make of it: it ignores case, escapes, the query, and a `/` at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PathPattern {
    written: String,
    segments: Vec<Segment>,
    query: Option<String>,
}

/// A segment of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// Any number of segments.
    Any,
    /// One segment in this form.
    One(String),
    /// One segment that begins and ends like this, with something in between.
    Between(String, String),
}

/// The error for a text that is not a pattern of paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPath {
    /// The text is no path.
    #[error("a path begins with '/', and has only characters that URLs have")]
    Form,
    /// Stars without a meaning.
    #[error(
        "'*' stands for a part of one segment, once in it, '**' once for any number of segments"
    )]
    Stars,
    /// A path that rules never judge.
    #[error("no such path is judged by rules: {0}")]
    Unclear(&'static str),
}

/// The strictness of a comparison of paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Exactly, in normal form.
    Letter,
    /// In any way that some server may read it.
    Liberal,
}

impl PathPattern {
    /// Returns whether a target matches. The check that its path can be read in one way only is
    /// elsewhere.
    pub(super) fn holds(&self, target: &Target, reading: Reading) -> bool {
        let Some(path) = target.path().strip_prefix('/') else {
            return false;
        };
        let mut path: Vec<&str> = path.split('/').collect();
        let mut wanted = &self.segments[..];
        match reading {
            Reading::Letter => {
                if self.query.is_some() && self.query.as_deref() != target.query() {
                    return false;
                }
            }
            Reading::Liberal => {
                // A path ends the same with a '/' or without.
                path.pop_if(|last| last.is_empty());
                if let Some((Segment::One(last), before)) = wanted.split_last()
                    && last.is_empty()
                {
                    wanted = before;
                }
            }
        }
        holds_all(wanted, &path, reading)
    }

    /// Returns its segments, in the form for comparison.
    #[must_use]
    pub fn segments(&self, reading: Reading) -> Vec<Segment> {
        let read = |text: &String| match reading {
            Reading::Letter => text.clone(),
            Reading::Liberal => liberal(text),
        };
        let all = self.segments.iter().map(|segment| match segment {
            Segment::Any => Segment::Any,
            Segment::One(text) => Segment::One(read(text)),
            Segment::Between(before, after) => Segment::Between(read(before), read(after)),
        });
        all.collect()
    }

    /// Returns the whole query that it names, as written.
    #[must_use]
    pub fn query(&self) -> Option<&str> {
        self.query.as_deref()
    }

    /// Returns whether it names a query.
    #[must_use]
    pub fn has_query(&self) -> bool {
        self.query.is_some()
    }

    /// Returns the pattern as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.written
    }
}

fn holds_all(wanted: &[Segment], path: &[&str], reading: Reading) -> bool {
    match (wanted.split_first(), path.split_first()) {
        (None, None) => true,
        (Some((Segment::Any, after)), _) => {
            // It stands there once: what comes after it is as long as it is.
            let skipped = path.len().checked_sub(after.len());
            let rest = skipped.and_then(|skipped| path.get(skipped..));
            rest.is_some_and(|rest| holds_all(after, rest, reading))
        }
        (Some((segment, after)), Some((part, rest))) => {
            segment.holds(part, reading) && holds_all(after, rest, reading)
        }
        (Some(_), None) | (None, Some(_)) => false,
    }
}

impl Segment {
    fn read(text: &str) -> Result<Self, InvalidPath> {
        match text.split_once('*') {
            None => Ok(Self::One(normal(text))),
            Some(("", "*")) => Ok(Self::Any),
            Some((_, after)) if after.contains('*') => Err(InvalidPath::Stars),
            Some((before, after)) => Ok(Self::Between(normal(before), normal(after))),
        }
    }

    fn holds(&self, part: &str, reading: Reading) -> bool {
        let read = |text: &str| match reading {
            Reading::Letter => text.to_owned(),
            Reading::Liberal => liberal(text),
        };
        let part = read(part);
        match self {
            Self::Any => true,
            Self::One(text) => part == read(text),
            Self::Between(before, after) => {
                let (before, after) = (read(before), read(after));
                let between = part
                    .strip_prefix(&*before)
                    .and_then(|rest| rest.strip_suffix(&*after));
                between.is_some_and(|between| !between.is_empty())
            }
        }
    }
}

impl TryFrom<String> for PathPattern {
    type Error = InvalidPath;

    fn try_from(written: String) -> Result<Self, InvalidPath> {
        let target = Target::parse(&written).map_err(|_| InvalidPath::Form)?;
        let (path, query) = match written.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (&written[..], None),
        };
        let path = path.strip_prefix('/').ok_or(InvalidPath::Form)?;
        if written.len() > PATTERN_BYTES_MAX {
            return Err(InvalidPath::Form);
        }
        if let Some(what) = target.unclear() {
            return Err(InvalidPath::Unclear(what));
        }
        let segments: Vec<Segment> = path
            .split('/')
            .map(Segment::read)
            .collect::<Result<_, _>>()?;
        let many = segments.iter().filter(|one| **one == Segment::Any).count();
        if many > 1 {
            return Err(InvalidPath::Stars);
        }
        Ok(Self {
            segments,
            query,
            written,
        })
    }
}

impl From<PathPattern> for String {
    fn from(pattern: PathPattern) -> Self {
        pattern.written
    }
}
