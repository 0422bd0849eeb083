use atoll_model::mask_secrets;
use serde_json::Value;
use zeroize::Zeroizing;

/// The largest whole number, and the negative of the smallest, that an event may
/// hold: beyond it, readers that know only doubles (most) would see another one.
pub const INTEGER_MAX: u64 = 1 << 53;

/// The member that holds the sealed members.
pub(crate) const SEALED: &str = "sealed";

/// The deepest nesting of arrays and objects in an event's body. Below the 128 of common readers,
/// so that whatever was written can be read.
pub const NESTING_MAX: usize = 64;

/// A JSON value that has no canonical form here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CanonicalError {
    /// Fractions have no place in the ledger: their canonical text needs an
    /// algorithm that verifiers often get wrong.
    #[error("{0} is not a whole number within ±2^53")]
    Number(String),
    /// Keys are compared as UTF-16 by the standard, as bytes by most; the two
    /// agree on ASCII.
    #[error("the key {0:?} is not ASCII")]
    Key(String),
    /// Members have one order.
    #[error("the key {0:?} comes after one that it should come before")]
    Order(&'static str),
    /// Nested too deeply.
    #[error("nested deeper than {NESTING_MAX}")]
    Nesting,
    /// The body of an event is not an object.
    #[error("the body is not an object")]
    NotAnObject,
}

/// The body of an event, written directly in its canonical form: members come in the order of their
/// names, and hold texts and whole numbers.
#[derive(Debug, Default)]
pub struct EventBody {
    /// The text so far, without its end.
    written: Vec<u8>,
    last: Option<&'static str>,
    /// The members' names, and the offset at which each begins in `written`.
    members: Vec<(&'static str, usize)>,
    fault: Option<CanonicalError>,
}

impl EventBody {
    /// Adds a text, with its secrets masked. A member out of order is refused when the event is recorded.
    #[must_use]
    pub fn text(mut self, key: &'static str, text: &str) -> Self {
        self.begin(key);
        write_string(&mask_secrets(text), &mut self.written);
        self
    }

    /// Adds a whole number, at most 2^53. A member out of order is refused when the event is
    /// recorded.
    #[must_use]
    pub fn number(mut self, key: &'static str, number: u64) -> Self {
        self.begin(key);
        if number > INTEGER_MAX {
            let fault = CanonicalError::Number(number.to_string());
            self.fault.get_or_insert(fault);
        }
        write_number(number, &mut self.written);
        self
    }

    /// Adds a member that is `true`. A member out of order is refused when the event is recorded.
    #[must_use]
    pub fn truth(mut self, key: &'static str) -> Self {
        self.begin(key);
        self.written.extend_from_slice(b"true");
        self
    }

    fn begin(&mut self, key: &'static str) {
        if !key.is_ascii() {
            self.fault
                .get_or_insert_with(|| CanonicalError::Key(key.to_owned()));
        }
        let in_order = self.last.replace(key).is_none_or(|last| last < key);
        if !in_order {
            self.fault.get_or_insert(CanonicalError::Order(key));
        }
        let before = if self.written.is_empty() { b'{' } else { b',' };
        self.written.push(before);
        self.members.push((key, self.written.len()));
        write_string(key, &mut self.written);
        self.written.push(b':');
    }

    /// Returns the whole body.
    ///
    /// # Errors
    /// [`CanonicalError`] for what has no place in the ledger.
    pub fn finish(mut self) -> Result<Vec<u8>, CanonicalError> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        if self.written.is_empty() {
            self.written.push(b'{');
        }
        self.written.push(b'}');
        Ok(self.written)
    }
}

impl EventBody {
    /// Returns whether the body has any of these members.
    pub(crate) fn has_any(&self, names: &[&str]) -> bool {
        self.members.iter().any(|(key, _)| names.contains(key))
    }

    /// Returns the body split: these members apart, and in the rest a gap for their sealed form.
    pub(crate) fn finish_split(self, hidden: &[&str]) -> Result<SplitBody, CanonicalError> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let ends = self.members.iter().skip(1).map(|(_, begin)| begin - 1);
        let ends = ends.chain([self.written.len()]);
        let members = self.members.iter().zip(ends);
        Ok(SplitBody::of(members.map(|((key, begin), end)| {
            let member = self.written.get(*begin..end).unwrap_or_default();
            (*key, member, hidden.contains(key))
        })))
    }
}

/// A body whose sensitive members are apart, to be sealed once the event's position is known.
#[derive(Debug)]
pub(crate) struct SplitBody {
    /// The other members in canonical form, with an empty text as the member `sealed`.
    pub(crate) open: Vec<u8>,
    /// The offset in that text at which the sealed members are inserted.
    pub(crate) hole: usize,
    /// The object of the sensitive members, in canonical form.
    pub(crate) hidden: Zeroizing<Vec<u8>>,
}

impl SplitBody {
    /// Splits a body; the members with these names are hidden.
    pub(crate) fn of_value(body: &Value, hidden: &[&str]) -> Result<Self, CanonicalError> {
        let members = body.as_object().ok_or(CanonicalError::NotAnObject)?;
        let mut sorted: Vec<_> = members.iter().collect();
        sorted.sort_unstable_by_key(|(key, _)| key.as_bytes());
        let mut written = Vec::new();
        for (key, value) in sorted {
            if !key.is_ascii() {
                return Err(CanonicalError::Key(key.clone()));
            }
            let mut member = Vec::new();
            write_string(key, &mut member);
            member.push(b':');
            write_nested(value, &mut member, NESTING_MAX - 1)?;
            written.push((key.as_str(), member));
        }
        let is_hidden = |key: &str| hidden.contains(&key);
        Ok(Self::of(written.iter().map(|(key, member)| {
            (*key, member.as_slice(), is_hidden(key))
        })))
    }

    /// Splits members that come in the order of their names: each with its name, its written form,
    /// and whether it is hidden.
    fn of<'m>(members: impl Iterator<Item = (&'m str, &'m [u8], bool)>) -> Self {
        let (mut open, mut hidden) = (Vec::new(), Zeroizing::new(Vec::new()));
        let mut hole = None;
        let mut make_hole = |open: &mut Vec<u8>| {
            hole.get_or_insert_with(|| {
                begin_member(open);
                write_string(SEALED, open);
                open.extend_from_slice(b":\"\"");
                open.len() - 1
            });
        };
        for (key, member, is_hidden) in members {
            if is_hidden {
                begin_member(&mut hidden);
                hidden.extend_from_slice(member);
                continue;
            }
            if key > SEALED {
                make_hole(&mut open);
            }
            begin_member(&mut open);
            open.extend_from_slice(member);
        }
        make_hole(&mut open);
        let hole = hole.unwrap_or(open.len());
        open.push(b'}');
        hidden.push(b'}');
        Self { open, hole, hidden }
    }
}

fn begin_member(object: &mut Vec<u8>) {
    object.push(if object.is_empty() { b'{' } else { b',' });
}

/// Appends the canonical form (RFC 8785) of a value. Refuses values that the ledger does not hold,
/// so that each one it holds has only one form.
pub(crate) fn write_value(value: &Value, out: &mut Vec<u8>) -> Result<(), CanonicalError> {
    write_nested(value, out, NESTING_MAX)
}

fn write_nested(value: &Value, out: &mut Vec<u8>, depth: usize) -> Result<(), CanonicalError> {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(number) => {
            let whole = number.as_i64().filter(|n| n.unsigned_abs() <= INTEGER_MAX);
            let whole = whole.ok_or_else(|| CanonicalError::Number(number.to_string()))?;
            out.extend_from_slice(whole.to_string().as_bytes());
        }
        Value::String(text) => write_string(text, out),
        Value::Array(items) => {
            let depth = depth.checked_sub(1).ok_or(CanonicalError::Nesting)?;
            let mut separator: &[u8] = b"";
            out.push(b'[');
            for item in items {
                out.extend_from_slice(separator);
                write_nested(item, out, depth)?;
                separator = b",";
            }
            out.push(b']');
        }
        Value::Object(members) => {
            let depth = depth.checked_sub(1).ok_or(CanonicalError::Nesting)?;
            // serde_json may be built to keep members in the order of insertion.
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_unstable_by_key(|(key, _)| key.as_bytes());
            let mut separator: &[u8] = b"";
            out.push(b'{');
            for (key, member) in sorted {
                if !key.is_ascii() {
                    return Err(CanonicalError::Key(key.clone()));
                }
                out.extend_from_slice(separator);
                write_string(key, out);
                out.push(b':');
                write_nested(member, out, depth)?;
                separator = b",";
            }
            out.push(b'}');
        }
    }
    Ok(())
}

/// Appends a string as in RFC 8785, 3.2.2.2: the two-character escapes where JSON has them,
/// `\u00xx` in lower case for the other control characters, everything else as it is.
pub(crate) fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    let is_escaped = |byte: &u8| *byte < 0x20 || matches!(*byte, b'"' | b'\\');
    while let Some(at) = rest.iter().position(is_escaped) {
        let (plain, after) = rest.split_at(at);
        out.extend_from_slice(plain);
        let Some((byte, after)) = after.split_first() else {
            break;
        };
        rest = after;
        match *byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            0x08 => out.extend_from_slice(b"\\b"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\n' => out.extend_from_slice(b"\\n"),
            0x0c => out.extend_from_slice(b"\\f"),
            b'\r' => out.extend_from_slice(b"\\r"),
            0x00..=0x1f => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            byte => out.push(byte),
        }
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

/// Appends a whole number.
pub(crate) fn write_number(number: u64, out: &mut Vec<u8>) {
    let mut digits = [0_u8; 20];
    let mut rest = number;
    let mut count = 0;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + u8::try_from(rest % 10).unwrap_or_default();
        rest /= 10;
        count += 1;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(digits.len() - count..).unwrap_or_default());
}
