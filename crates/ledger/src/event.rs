pub(crate) mod seal;

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use atoll_model::{RunId, civil_date};
use serde::Deserialize;
use serde_json::Value;
use zeroize::Zeroizing;

use crate::canonical::{
    CanonicalError, EventBody, INTEGER_MAX, SplitBody, write_number, write_string, write_value,
};
use crate::hash::HASH_DIGITS;
use crate::masking::masked;
use crate::shorten::shorten;
use crate::{LedgerError, TreeHash};
use seal::{SealKey, SealPlace, sealed_length, sealed_members};

/// The version of the event format.
pub(crate) const EVENT_VERSION: u64 = 1;

/// The largest canonical form of an event, bytes: bundles of C2SP's tiled logs have no room for
/// more.
pub const EVENT_BYTES_MAX: usize = (1 << 16) - 1;

/// The largest body that is not shortened, bytes: the other members have to fit as well.
const BODY_BYTES_MAX: usize = EVENT_BYTES_MAX - 512;

/// The largest event that is read, bytes: earlier releases wrote larger ones.
pub(crate) const READ_BYTES_MAX: usize = 1 << 20;

/// The largest line of a segment, bytes: hash, space, event, newline.
pub(crate) const LINE_BYTES_MAX: usize = HASH_DIGITS + 1 + READ_BYTES_MAX + 1;

/// The type of the event by which a run drops a right.
pub const RIGHTS_GIVEN_UP: &str = "rights.given-up";

const KIND_BYTES_MAX: usize = 64;

/// The type of the event by which a session gains a label.
pub const LABEL_GAINED: &str = "label.gained";

/// The type of the event by which a session begins.
pub(crate) const SESSION_OPENED: &str = "session.opened";

/// The type of the event by which a key hands over.
pub(crate) const ROTATED: &str = "key.rotated";
/// The type of the event that records the loss of a key.
pub(crate) const LOST: &str = "key.lost";

/// The types of the events about the end of sealed content.
pub(crate) const SHREDDED: &str = "seal.shredded";
pub(crate) const HOLD_SET: &str = "hold.set";
pub(crate) const HOLD_RELEASED: &str = "hold.released";

/// The types that only this crate writes, so that their content can be relied on.
const RESERVED_KINDS: [&str; 49] = [
    LOST,
    ROTATED,
    "approval.agreed",
    "approval.asked",
    "approval.denied",
    "approval.granted",
    "approval.unheard",
    "attempt.seen",
    "escalation.opened",
    "escalation.refused",
    "exec.closed",
    "exec.denied",
    "exec.opened",
    "flow.opened",
    "flow.closed",
    "flow.refused",
    "host.allowed",
    "host.refused",
    LABEL_GAINED,
    "lease.ended",
    "limits.changed",
    "limits.refused",
    "network.refused",
    "network.replaced",
    "policy.reload-refused",
    "policy.reloaded",
    "port.agreed",
    "port.published",
    "port.refused",
    "promotion.opened",
    "promotion.refused",
    "restore.opened",
    "restore.refused",
    RIGHTS_GIVEN_UP,
    "run.opened",
    "run.closed",
    "run.denied",
    "run.failed",
    "run.interrupted",
    "ledger.repaired",
    "sandbox.assigned",
    "sandbox.refused",
    HOLD_RELEASED,
    HOLD_SET,
    SESSION_OPENED,
    SHREDDED,
    "tool.closed",
    "tool.denied",
    "tool.opened",
];

/// The types that end a run.
pub(crate) const CLOSING_KINDS: [&str; 4] =
    ["run.closed", "run.denied", "run.failed", "run.interrupted"];

/// The position of an event in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Its number, from 0: also its index in the Merkle tree.
    pub seq: u64,
    /// The leaf hash: that of the event's canonical bytes.
    pub leaf: TreeHash,
    /// The number of its segment, from 1.
    pub segment: u32,
    /// The offset of its line in the segment, bytes.
    pub offset: u64,
}

/// One event of the ledger, read back and checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The event's position.
    pub position: Position,
    /// The hash of the event before it; zero for the first.
    pub prev: TreeHash,
    /// The time at which it was written, as RFC 3339, UTC, with microseconds.
    pub time: String,
    /// The run that it belongs to.
    pub run: Option<RunId>,
    /// The event's type. New types may appear at any time.
    pub kind: String,
    /// The event's content: an object.
    pub body: Value,
}

/// The reason why a line of a segment is not an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineFault {
    /// The line does not begin with a hash and a space.
    #[error("the line does not begin with a hash and a space")]
    NoHash,
    /// The hash is not that of the rest of the line.
    #[error("the line's hash is not that of its event: one of the two was altered")]
    HashDiffers,
    /// The rest is not an object of the known members.
    #[error("not an event: {0}")]
    NotAnEvent(String),
    /// The event was not written in its canonical form.
    #[error("the event is not in canonical form")]
    NotCanonical,
    /// A newer Atoll wrote it.
    #[error("an event of version {0}; this Atoll reads version {EVENT_VERSION}")]
    Version(u64),
    /// The line is longer than a line may be.
    #[error("the line is longer than {LINE_BYTES_MAX} bytes")]
    TooLong,
}

pub(crate) fn is_reserved(kind: &str) -> bool {
    RESERVED_KINDS.contains(&kind)
}

/// An event before its place in the chain is known.
pub(crate) struct Draft<'a> {
    kind: &'a str,
    run: Option<&'a RunId>,
    body: Vec<u8>,
    secret: Option<Secret<'a>>,
}

/// The sensitive members of an event: sealed once its position is known.
struct Secret<'a> {
    /// The offset in the body at which their sealed form is inserted.
    hole: usize,
    hidden: Zeroizing<Vec<u8>>,
    key: &'a SealKey,
}

impl<'a> Draft<'a> {
    /// Checks the type, and writes the body in its canonical form, with its secrets masked; shortens
    /// a body that is too large.
    pub(crate) fn new(
        kind: &'a str,
        run: Option<&'a RunId>,
        body: &Value,
    ) -> Result<Self, LedgerError> {
        if !is_kind(kind) {
            return Err(LedgerError::Kind {
                kind: kind.to_owned(),
                why: "a type is lower-case words of letters, digits and -, joined by dots, at \
                      least two of them and at most 64 bytes",
            });
        }
        let mut bytes = Vec::new();
        let body = &masked(body);
        let written = if body.is_object() {
            write_value(body, &mut bytes)
        } else {
            Err(CanonicalError::NotAnObject)
        };
        let written = written.and_then(|()| {
            if bytes.len() > BODY_BYTES_MAX {
                bytes.clear();
                write_value(&shorten(body)?, &mut bytes)?;
            }
            Ok(bytes)
        });
        Self::of(kind, run, written)
    }

    /// Makes the draft of a run's event, whose sensitive members are sealed with the run's key.
    pub(crate) fn sealed(
        kind: &'a str,
        run: &'a RunId,
        body: &Value,
        key: Option<&'a SealKey>,
    ) -> Result<Self, LedgerError> {
        let names = sealed_members(kind);
        let has_any = names.iter().any(|name| body.get(name).is_some());
        let Some(key) = key.filter(|_| has_any) else {
            return Self::new(kind, Some(run), body);
        };
        let body = &masked(body);
        let split = SplitBody::of_value(body, names).and_then(|split| {
            match split.open.len() + sealed_length(split.hidden.len()) > BODY_BYTES_MAX {
                true => SplitBody::of_value(&shorten(body)?, names),
                false => Ok(split),
            }
        });
        Self::split(kind, run, split, key)
    }

    /// Makes a draft with an [`EventBody`], of a type of this crate's own.
    pub(crate) fn with_body(
        kind: &'a str,
        run: &'a RunId,
        body: EventBody,
        key: Option<&'a SealKey>,
    ) -> Result<Self, LedgerError> {
        let names = sealed_members(kind);
        match key.filter(|_| body.has_any(names)) {
            Some(key) => Self::split(kind, run, body.finish_split(names), key),
            None => Self::of(kind, Some(run), body.finish()),
        }
    }

    fn split(
        kind: &'a str,
        run: &'a RunId,
        split: Result<SplitBody, CanonicalError>,
        key: &'a SealKey,
    ) -> Result<Self, LedgerError> {
        let (body, secret) = match split {
            Ok(SplitBody { open, hole, hidden }) => (Ok(open), Some(Secret { hole, hidden, key })),
            Err(why) => (Err(why), None),
        };
        let draft = Self::of(kind, Some(run), body)?;
        Ok(Self { secret, ..draft })
    }

    fn of(
        kind: &'a str,
        run: Option<&'a RunId>,
        body: Result<Vec<u8>, CanonicalError>,
    ) -> Result<Self, LedgerError> {
        let body = body.map_err(|why| LedgerError::Body {
            kind: kind.to_owned(),
            why,
        })?;
        Ok(Self {
            kind,
            run,
            body,
            secret: None,
        })
    }

    /// Returns the body for the event of this number.
    fn body_at(&self, seq: u64) -> Result<Cow<'_, [u8]>, LedgerError> {
        let (Some(secret), Some(run)) = (&self.secret, self.run) else {
            return Ok(Cow::Borrowed(&self.body));
        };
        let place = SealPlace {
            run,
            kind: self.kind,
            seq,
        };
        let sealed = secret.key.seal(&place, &secret.hidden);
        let sealed = sealed.map_err(|fault| LedgerError::Seal(fault.to_string()))?;
        let (before, after) = self.body.split_at_checked(secret.hole).unwrap_or_default();
        Ok(Cow::Owned([before, sealed.as_bytes(), after].concat()))
    }

    /// Returns the event's line, and the hash in it.
    pub(crate) fn line(
        &self,
        seq: u64,
        prev: TreeHash,
        time: SystemTime,
    ) -> Result<(Vec<u8>, TreeHash), LedgerError> {
        let time = format_time(time);
        // The hash comes first and is known last.
        let body = self.body_at(seq)?;
        let mut line = Vec::with_capacity(HASH_DIGITS + body.len() + REST_BYTES);
        line.extend_from_slice(&TreeHash::ZERO.digits());
        line.push(b' ');
        let begin = line.len();
        render(&body, prev, self.run, seq, &time, self.kind, &mut line);
        let event = line.get(begin..).unwrap_or_default();
        if event.len() > EVENT_BYTES_MAX {
            return Err(LedgerError::TooLarge {
                kind: self.kind.to_owned(),
                bytes: event.len(),
                max: EVENT_BYTES_MAX,
            });
        }
        let leaf = TreeHash::of_leaf(event);
        for (to, digit) in line.iter_mut().zip(leaf.digits()) {
            *to = digit;
        }
        line.push(b'\n');
        Ok((line, leaf))
    }
}

/// The usual size of an event beside its body, bytes.
const REST_BYTES: usize = 256;

/// Appends the canonical form of an event, with its members in the order of their names.
fn render(
    body: &[u8],
    prev: TreeHash,
    run: Option<&RunId>,
    seq: u64,
    time: &str,
    kind: &str,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(b"{\"body\":");
    out.extend_from_slice(body);
    out.extend_from_slice(b",\"prev\":\"");
    out.extend_from_slice(&prev.digits());
    out.push(b'"');
    if let Some(run) = run {
        out.extend_from_slice(b",\"run\":\"");
        out.extend_from_slice(run.as_str().as_bytes());
        out.push(b'"');
    }
    out.extend_from_slice(b",\"seq\":");
    write_number(seq, out);
    out.extend_from_slice(b",\"time\":");
    write_string(time, out);
    out.extend_from_slice(b",\"type\":");
    write_string(kind, out);
    out.extend_from_slice(b",\"v\":");
    write_number(EVENT_VERSION, out);
    out.push(b'}');
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Members {
    body: serde_json::Map<String, Value>,
    prev: TreeHash,
    #[serde(default)]
    run: Option<RunId>,
    seq: u64,
    time: String,
    #[serde(rename = "type")]
    kind: String,
    v: u64,
}

#[derive(Deserialize)]
struct VersionOnly {
    v: u64,
}

impl Event {
    /// Reads one line (without its newline) and checks everything that can be checked without its
    /// neighbours: the hash, the members, the canonical form.
    pub(crate) fn read(line: &[u8], segment: u32, offset: u64) -> Result<Self, LineFault> {
        let (leaf, event) = split_line(line)?;
        if TreeHash::of_leaf(event) != leaf {
            return Err(LineFault::HashDiffers);
        }
        let members: Members = serde_json::from_slice(event).map_err(|error| {
            match serde_json::from_slice::<VersionOnly>(event) {
                Ok(VersionOnly { v }) if v != EVENT_VERSION => LineFault::Version(v),
                _ => LineFault::NotAnEvent(error.to_string()),
            }
        })?;
        if members.v != EVENT_VERSION {
            return Err(LineFault::Version(members.v));
        }
        // Whoever counts on from there must not overflow.
        if members.seq > INTEGER_MAX {
            return Err(LineFault::NotAnEvent("a number beyond 2^53".to_owned()));
        }
        if !is_time(&members.time) || !is_kind(&members.kind) {
            return Err(LineFault::NotAnEvent("a malformed time or type".to_owned()));
        }
        let read = Self {
            position: Position {
                seq: members.seq,
                leaf,
                segment,
                offset,
            },
            prev: members.prev,
            time: members.time,
            run: members.run,
            kind: members.kind,
            body: Value::Object(members.body),
        };
        match read.canonical() {
            Ok(canonical) if canonical == event => Ok(read),
            _ => Err(LineFault::NotCanonical),
        }
    }

    /// Returns the event's canonical bytes, whose hash is its leaf.
    ///
    /// # Errors
    /// [`CanonicalError`] when the body was changed to something without such a form.
    pub fn canonical(&self) -> Result<Vec<u8>, CanonicalError> {
        let mut body = Vec::new();
        write_value(&self.body, &mut body)?;
        let mut event = Vec::with_capacity(body.len() + REST_BYTES);
        render(
            &body,
            self.prev,
            self.run.as_ref(),
            self.position.seq,
            &self.time,
            &self.kind,
            &mut event,
        );
        Ok(event)
    }
}

/// Splits a line into the hash that it claims and the bytes of its event.
pub(crate) fn split_line(line: &[u8]) -> Result<(TreeHash, &[u8]), LineFault> {
    let (digits, rest) = line
        .split_at_checked(HASH_DIGITS)
        .ok_or(LineFault::NoHash)?;
    let digits = std::str::from_utf8(digits).map_err(|_| LineFault::NoHash)?;
    let leaf = TreeHash::parse(digits).map_err(|_| LineFault::NoHash)?;
    let event = rest.strip_prefix(b" ").ok_or(LineFault::NoHash)?;
    Ok((leaf, event))
}

pub(crate) fn is_kind(kind: &str) -> bool {
    let is_word = |word: &str| {
        !word.is_empty()
            && word
                .bytes()
                .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
    };
    kind.len() <= KIND_BYTES_MAX && kind.contains('.') && kind.split('.').all(is_word)
}

/// Formats a time as `2026-11-21T09:30:12.123456Z`. A clock before 1970 reads as 1970, so that a
/// machine without a battery can still write.
pub fn format_time(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let seconds = since.as_secs().min(LAST_SECOND);
    let (year, month, day) = civil_date(seconds / 86_400);
    let of_day = seconds % 86_400;
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:06}Z",
        of_day / 3_600,
        of_day / 60 % 60,
        of_day % 60,
        since.subsec_micros()
    )
}

/// The end of the year 9999, the last that RFC 3339 can write.
const LAST_SECOND: u64 = 253_402_300_799;

pub(crate) fn is_time(text: &str) -> bool {
    const SHAPE: &[u8] = b"0000-00-00T00:00:00.000000Z";
    text.len() == SHAPE.len()
        && text.bytes().zip(SHAPE).all(|(byte, shape)| match shape {
            b'0' => byte.is_ascii_digit(),
            _ => byte == *shape,
        })
}
