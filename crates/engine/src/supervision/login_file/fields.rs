//! The fields of a login file that are renewed: read, and replaced in place, with the rest of
//! the file unchanged.

use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use atoll_model::civil_date;
use atoll_model::network::{FieldPath, LoginTokens, Renewal, Renewed};
use serde::de::IgnoredAny;
use serde_json::Value;
use zeroize::Zeroizing;

/// The least time that is in milliseconds; as seconds it would be in the year 5138.
const MILLISECONDS_FROM: u64 = 100_000_000_000;

/// The reason why a login file cannot be renewed. The messages contain nothing of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// The file is not JSON.
    #[error("it is no JSON")]
    Syntax,
    /// A field of the login is missing.
    #[error("it has no text in its field {0}")]
    Missing(FieldPath),
    /// A field occurs twice, and readers would differ.
    #[error("it has its field {0} more than once")]
    Twice(FieldPath),
}

/// Reads the tokens of a login.
///
/// # Errors
/// [`FieldError`].
pub fn tokens(
    text: &[u8],
    access: &FieldPath,
    renewal: &Renewal,
) -> Result<LoginTokens, FieldError> {
    let spans = Spans::of(text)?;
    let ends = match &renewal.expires {
        Some(field) => spans.read(field)?,
        None => None,
    };
    let seconds = |time: u64| match time {
        0..MILLISECONDS_FROM => time,
        MILLISECONDS_FROM.. => time / 1000,
    };
    Ok(LoginTokens {
        access: spans.text(access)?,
        refresh: spans.text(&renewal.refresh)?,
        ends_s: ends.as_ref().and_then(whole).map(seconds),
    })
}

/// Returns the scope of a login's tokens, if its file has it.
pub fn scope(text: &[u8], renewal: &Renewal) -> Option<String> {
    let spans = Spans::of(text).ok()?;
    spans.words(renewal.scopes.as_ref()?)
}

/// Reads a time without its fraction, which some agents write.
fn whole(time: &Value) -> Option<u64> {
    let text = time.as_number()?.to_string();
    text.split('.').next()?.parse().ok()
}

/// Returns the file with the tokens that an issuer has given. Missing fields are not added.
///
/// # Errors
/// [`FieldError`].
pub fn renewed(
    text: &[u8],
    access: &FieldPath,
    renewal: &Renewal,
    by: &Renewed,
    now: SystemTime,
) -> Result<Zeroizing<Vec<u8>>, FieldError> {
    let spans = Spans::of(text)?;
    let quoted = |value: &str| Zeroizing::new(Value::from(value).to_string());
    let mut changes: Vec<(Range<usize>, Zeroizing<String>)> = Vec::new();
    let mut change = |field: &FieldPath, value: &str| -> Result<(), FieldError> {
        let span = spans.one(field)?;
        changes.push((
            span.ok_or_else(|| FieldError::Missing(field.clone()))?,
            quoted(value),
        ));
        Ok(())
    };
    change(access, &by.access)?;
    if let Some(refresh) = &by.refresh {
        change(&renewal.refresh, refresh)?;
    }
    if let (Some(field), Some(id)) = (&renewal.id, &by.id)
        && spans.one(field)?.is_some()
    {
        change(field, id)?;
    }
    if let Some(field) = &renewal.noted
        && spans.one(field)?.is_some()
    {
        change(field, &written(now))?;
    }
    if let (Some(field), Some(ends)) = (&renewal.expires, by.ends_s)
        && let (Some(span), Some(before)) = (spans.one(field)?, spans.read(field)?)
    {
        let in_ms = whole(&before).is_none_or(|time| time >= MILLISECONDS_FROM);
        let ends = if in_ms {
            ends.saturating_mul(1000)
        } else {
            ends
        };
        changes.push((span, Zeroizing::new(ends.to_string())));
    }
    changes.sort_by_key(|(span, _)| span.start);
    let room = text.len() + changes.iter().map(|(_, to)| to.len()).sum::<usize>();
    let mut made = Zeroizing::new(Vec::with_capacity(room));
    let mut from = 0;
    for (span, to) in &changes {
        made.extend_from_slice(text.get(from..span.start).unwrap_or_default());
        made.extend_from_slice(to.as_bytes());
        from = span.end;
    }
    made.extend_from_slice(text.get(from..).unwrap_or_default());
    Ok(made)
}

/// Formats a time by RFC 3339, in UTC.
fn written(now: SystemTime) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let (seconds, nanoseconds) = (since.as_secs(), since.subsec_nanos());
    let (year, month, day) = civil_date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanoseconds:09}Z")
}

/// The spans of the scalar values in a JSON text.
struct Spans<'a> {
    text: &'a [u8],
    all: Vec<(Vec<String>, Range<usize>)>,
}

impl<'a> Spans<'a> {
    fn of(text: &'a [u8]) -> Result<Self, FieldError> {
        // What is walked through is whole, and not too deep.
        let read = serde_json::from_slice::<IgnoredAny>(text);
        read.map_err(|_| FieldError::Syntax)?;
        let mut walk = Walk {
            text,
            at: 0,
            names: Vec::new(),
            all: Vec::new(),
        };
        walk.value().ok_or(FieldError::Syntax)?;
        Ok(Self {
            text,
            all: walk.all,
        })
    }

    fn one(&self, field: &FieldPath) -> Result<Option<Range<usize>>, FieldError> {
        let mut all = self
            .all
            .iter()
            .filter(|(names, _)| field.leads_along(names));
        match (all.next(), all.next()) {
            (_, Some(_)) => Err(FieldError::Twice(field.clone())),
            (first, None) => Ok(first.map(|(_, span)| span.clone())),
        }
    }

    fn read(&self, field: &FieldPath) -> Result<Option<Value>, FieldError> {
        let Some(span) = self.one(field)? else {
            return Ok(None);
        };
        let written = self.text.get(span).unwrap_or_default();
        let read = serde_json::from_slice(written).map_err(|_| FieldError::Syntax)?;
        Ok(Some(read))
    }

    /// Returns all texts at a path, separated by spaces.
    fn words(&self, field: &FieldPath) -> Option<String> {
        let all = self.all.iter();
        let spans = all.filter(|(names, _)| field.leads_along(names));
        let texts = spans.filter_map(|(_, span)| {
            serde_json::from_slice::<String>(self.text.get(span.clone())?).ok()
        });
        let texts: Vec<String> = texts.collect();
        (!texts.is_empty()).then(|| texts.join(" "))
    }

    fn text(&self, field: &FieldPath) -> Result<String, FieldError> {
        match self.read(field)? {
            Some(Value::String(text)) if !text.is_empty() => Ok(text),
            Some(_) | None => Err(FieldError::Missing(field.clone())),
        }
    }
}

/// A walk through a text that is known to be JSON.
struct Walk<'a> {
    text: &'a [u8],
    at: usize,
    names: Vec<String>,
    all: Vec<(Vec<String>, Range<usize>)>,
}

impl Walk<'_> {
    /// Returns the next byte that is not white space.
    fn next_byte(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.text.get(self.at) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn value(&mut self) -> Option<()> {
        match self.next_byte()? {
            b'{' => self.within(b'}', true),
            b'[' => self.within(b']', false),
            b'"' => {
                let span = self.quoted()?;
                self.all.push((self.names.clone(), span));
                Some(())
            }
            _ => {
                let rest = self.text.get(self.at..)?;
                let is_of_it = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
                let length = rest.iter().take_while(is_of_it).count();
                let span = self.at..self.at + length;
                self.at = span.end;
                self.all.push((self.names.clone(), span));
                Some(())
            }
        }
    }

    /// Walks through the content of an object or a list.
    fn within(&mut self, end: u8, is_named: bool) -> Option<()> {
        self.at += 1;
        while self.next_byte()? != end {
            if is_named {
                let span = self.quoted()?;
                let name = serde_json::from_slice(self.text.get(span)?).ok()?;
                // Over its colon.
                self.next_byte()?;
                self.at += 1;
                self.names.push(name);
                self.value()?;
                self.names.pop();
            } else {
                self.value()?;
            }
            if self.next_byte()? == b',' {
                self.at += 1;
            }
        }
        self.at += 1;
        Some(())
    }

    fn quoted(&mut self) -> Option<Range<usize>> {
        self.next_byte()?;
        let from = self.at;
        let mut end = from + 1;
        loop {
            match self.text.get(end)? {
                b'"' => break,
                b'\\' => end += 2,
                _ => end += 1,
            }
        }
        self.at = end + 1;
        Some(from..self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> FieldPath {
        text.parse().unwrap()
    }

    fn renewal() -> Renewal {
        Renewal {
            request: atoll_model::network::RenewalRequest {
                token: "https://login.example/token".parse().unwrap(),
                client: "one".to_owned(),
                published: atoll_model::network::PublishedSecret::None,
                form: atoll_model::network::RenewalForm::Json,
                scope: Vec::new(),
            },
            refresh: path("tokens.refresh"),
            id: Some(path("tokens.id")),
            expires: Some(path("tokens.expires")),
            scopes: Some(path("scopes")),
            noted: Some(path("last")),
        }
    }

    fn by() -> Renewed {
        Renewed {
            access: "new\"access".to_owned(),
            refresh: Some("new-refresh".to_owned()),
            id: Some("new-id".to_owned()),
            ends_s: Some(1_900_000_000),
        }
    }

    #[test]
    fn fields_are_renewed_where_they_stand_and_nothing_else_is_touched() {
        let access = path("tokens.access");
        let at = UNIX_EPOCH + Duration::from_millis(1_700_000_000_500);
        for (before, after) in [
            (
                "{\n  \"access\": \"a\", \"tokens\": {\"id\" : null,\t\"access\":\"old\\u0022\\\\\",\n \"refresh\" :\"old-r\", \"expires\": 1800000000123.5},\n \"last\":\"x\", \"more\": [{\"access\": 1}, [], {}]\n}\n",
                "{\n  \"access\": \"a\", \"tokens\": {\"id\" : \"new-id\",\t\"access\":\"new\\\"access\",\n \"refresh\" :\"new-refresh\", \"expires\": 1900000000000},\n \"last\":\"2023-11-14T22:13:20.500000000Z\", \"more\": [{\"access\": 1}, [], {}]\n}\n",
            ),
            (
                "{\"tokens\":{\"refresh\":\"r\",\"expires\":1800000000,\"access\":\"a\"}}",
                "{\"tokens\":{\"refresh\":\"new-refresh\",\"expires\":1900000000,\"access\":\"new\\\"access\"}}",
            ),
        ] {
            let made = renewed(before.as_bytes(), &access, &renewal(), &by(), at).unwrap();
            assert_eq!(std::str::from_utf8(&made).unwrap(), after);
            let now = tokens(&made, &access, &renewal()).unwrap();
            assert_eq!(
                (&*now.access, &*now.refresh, now.ends_s),
                ("new\"access", "new-refresh", Some(1_900_000_000))
            );
        }
        let kept = Renewed {
            access: "new".to_owned(),
            refresh: None,
            id: None,
            ends_s: None,
        };
        let before = b"{\"tokens\":{\"refresh\":\"r\",\"expires\":1800000000,\"access\":\"a\"}}";
        let made = renewed(before, &access, &renewal(), &kept, at).unwrap();
        assert_eq!(
            &made[..],
            b"{\"tokens\":{\"refresh\":\"r\",\"expires\":1800000000,\"access\":\"new\"}}"
        );
    }

    #[test]
    fn what_a_login_is_good_for_is_a_text_or_a_list() {
        for (text, expected) in [
            ("{\"scopes\":\"one two\"}", Some("one two")),
            ("{\"scopes\":[\"one\",\"two\"]}", Some("one two")),
            ("{\"scopes\":[]}", None),
            ("{\"scopes\":7}", None),
            ("{}", None),
        ] {
            let said = scope(text.as_bytes(), &renewal());
            assert_eq!(said.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_not_the_login_that_it_was_is_not_renewed() {
        let access = path("tokens.access");
        for (text, error) in [
            ("{", FieldError::Syntax),
            ("{}", FieldError::Missing(access.clone())),
            (
                "{\"tokens\":{\"access\":1,\"refresh\":\"r\"}}",
                FieldError::Missing(access.clone()),
            ),
            (
                "{\"tokens\":{\"access\":\"a\"}}",
                FieldError::Missing(path("tokens.refresh")),
            ),
            (
                "{\"tokens\":{\"access\":\"a\",\"access\":\"b\",\"refresh\":\"r\"}}",
                FieldError::Twice(access.clone()),
            ),
            (
                "{\"tokens\":{\"access\":\"a\",\"refresh\":\"r\"},\"tokens\":{\"access\":\"a\"}}",
                FieldError::Twice(access.clone()),
            ),
        ] {
            let read = tokens(text.as_bytes(), &access, &renewal());
            assert_eq!(read.err(), Some(error), "{text}");
        }
        let text = b"{\"tokens\":{\"access\":\"a\"}}";
        let made = renewed(text, &access, &renewal(), &by(), SystemTime::now());
        assert_eq!(
            made.err(),
            Some(FieldError::Missing(path("tokens.refresh")))
        );
    }
}
