//! The tokens of a deployment: issued, read, judged, and given to a run.

pub mod given;
pub mod narrowing;
pub mod worth;

use std::io::Read;
use std::path::Path;
use std::time::{Duration, SystemTime};

use atoll_ledger::{Durability, Filter, Ledger, StateDir};
use atoll_store::TokenFiles;
use atoll_tokens::{IssuingKey, PublicKey, TOKEN_BYTES_MAX, Terms, Token, issue, told_time};
use serde_json::{Value, json};

use crate::configuration::Places;
use crate::failure::{Doing, Failure};
use crate::printable::printable;

/// The error where the token files cannot be used.
pub const UNUSABLE: &str = "what is kept of tokens cannot be used";
/// The reason where no token was issued.
pub const NO_KEY: &str = "no token was issued here";
/// The characters shown of an id: enough to tell tokens apart.
pub const ID_SHOWN: usize = 16;
/// The most a clock may be set back after a token was issued.
const CLOCK_SLACK: Duration = Duration::from_secs(60);
/// The size of an id, characters: hexadecimal digits of a signature.
const ID_LENGTH: usize = 128;

/// Returns the terms of a token that is to be narrowed: that takes no key, and a token that this
/// deployment has not issued has unknown terms.
pub fn before(text: &str) -> Vec<Terms> {
    let token = || {
        let places = Places::read().ok()?;
        let exists = places.state.exists();
        let state = exists.then(|| places.read_state().ok()).flatten()?;
        let files = TokenFiles::open(&state, false).ok()??;
        Token::read(text, public_key(&files).ok()?).ok()
    };
    let parts = token().and_then(|token| token.parts().ok());
    let parts = parts.into_iter().flatten();
    parts.filter_map(|part| part.terms).collect()
}

/// Returns why a token is not valid now, and the token, as far as that is known.
///
/// # Errors
/// When the deployment's token files cannot be used.
pub fn look(text: &str) -> Result<(Option<String>, Option<Token>), Failure> {
    let places = Places::read()?;
    let files = match places.state.exists() {
        true => TokenFiles::open(&places.read_state()?, false).doing(UNUSABLE)?,
        false => None,
    };
    let Some(files) = files else {
        return Ok((Some(NO_KEY.to_owned()), None));
    };
    let token = match Token::read(text, public_key(&files)?) {
        Ok(token) => token,
        Err(error) => return Ok((Some(error.to_string()), None)),
    };
    let end = token.end_s().doing("the token cannot be shown")?;
    let ended = end.filter(|end| *end <= now_s()).and_then(told_time);
    let revoked = files.revoked().doing(UNUSABLE)?;
    let is_revoked = token.ids().iter().any(|id| revoked.contains(id));
    let bound = files.bound().doing(UNUSABLE)?;
    let once = token.once().doing("the token cannot be shown")?;
    let run = once.iter().find_map(|id| bound.get(id));
    let why = match (is_revoked, ended, run) {
        (true, _, _) => Some("it is revoked".to_owned()),
        (false, Some(end), _) => Some(format!("it has ended, at {end}")),
        (false, None, Some(run)) => Some(format!("it counts in run {run} alone")),
        (false, None, None) => None,
    };
    Ok((why, Some(token)))
}

/// Returns the id if the text is one: a whole one, or the beginning of one that was issued.
///
/// # Errors
/// When several begin so, or none.
pub fn issued_id(state: &StateDir, text: &str) -> Result<Option<String>, Failure> {
    let is_id = text.len() >= ID_SHOWN / 2 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_id || Path::new(text).exists() {
        return Ok(None);
    }
    if text.len() == ID_LENGTH {
        return Ok(Some(text.to_ascii_lowercase()));
    }
    let issued = issued(state)?;
    let mut meant = issued.iter().filter_map(|one| {
        let id = one.get("id").and_then(Value::as_str)?;
        id.starts_with(&text.to_ascii_lowercase()).then_some(id)
    });
    match (meant.next(), meant.next()) {
        (Some(id), None) => Ok(Some(id.to_owned())),
        (Some(_), Some(_)) => Err(Failure::new(format!("more than one id begins with {text}"))
            .advise("say more of it: atoll token list --json shows all of each")),
        (None, _) => Err(
            Failure::new(format!("no token was issued whose id begins with {text}"))
                .advise("atoll token list names them"),
        ),
    }
}

/// Reads the issued tokens from the ledger, the oldest first.
///
/// # Errors
/// When the ledger cannot be read.
pub fn issued(state: &StateDir) -> Result<Vec<Value>, Failure> {
    let filter = Filter {
        kind: Some("token.issued".to_owned()),
        ..Filter::default()
    };
    let events = Ledger::events(state, filter).doing("the ledger cannot be read")?;
    let bodies = events.map(|event| event.map(|event| event.body));
    bodies
        .collect::<Result<_, _>>()
        .doing("the ledger cannot be read")
}

/// Returns the key that signs tokens, made if there is none.
///
/// # Errors
/// When it cannot be read or made.
pub fn issuing_key(state: &StateDir) -> Result<IssuingKey, Failure> {
    let files = TokenFiles::open(state, true).doing(UNUSABLE)?;
    let files = files.ok_or_else(|| Failure::new(UNUSABLE))?;
    let key = files
        .key_or(|| IssuingKey::generate().to_hex())
        .doing(UNUSABLE)?;
    IssuingKey::from_hex(&key).doing(UNUSABLE)
}

/// Returns the public key that verifies tokens of this deployment.
///
/// # Errors
/// When there is none.
pub fn public_key(files: &TokenFiles) -> Result<PublicKey, Failure> {
    let key = files.key().doing(UNUSABLE)?;
    let key = key.ok_or_else(|| Failure::new(UNUSABLE).because(NO_KEY))?;
    Ok(IssuingKey::from_hex(&key).doing(UNUSABLE)?.public())
}

/// Returns the time in seconds since 1970. A clock before that yields 0, at which no token is
/// valid.
pub fn now_s() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Names the source of a token, a file or standard input, safe to print.
pub fn file_told(path: &Path) -> String {
    match path.as_os_str() == "-" {
        true => "standard input".to_owned(),
        false => printable(path.as_os_str().as_encoded_bytes()),
    }
}

/// Reads the token in a file, or on standard input.
///
/// # Errors
/// When it cannot be read.
pub fn text_in(path: &Path) -> Result<String, Failure> {
    let unread = format!("no token can be read from {}", file_told(path));
    let mut text = String::new();
    // One more than there can be, with the end of its line: what is longer is found out.
    let most = TOKEN_BYTES_MAX as u64 + 2;
    let read = match path.as_os_str() == "-" {
        true => std::io::stdin().lock().take(most).read_to_string(&mut text),
        false => {
            let file = std::fs::File::open(path).doing(&unread);
            let file = file.map_err(|failure| {
                failure.advise(
                    "a token is a file with what `atoll token issue --allow RIGHT --until 2h` \
                     prints, outside of workspaces",
                )
            })?;
            file.take(most).read_to_string(&mut text)
        }
    };
    read.doing(&unread)?;
    Ok(text)
}

/// Removes the members without a value from an object.
pub fn without_nothing(mut value: Value) -> Value {
    if let Some(members) = value.as_object_mut() {
        members.retain(|_, value| !value.is_null());
    }
    value
}

/// Records a change of tokens.
///
/// # Errors
/// When the ledger cannot be used.
pub fn record(state: &StateDir, kind: &'static str, body: Value) -> Result<(), Failure> {
    crate::events::open_ledger(state)?
        .record(None, kind, body, Durability::Durable)
        .doing("it cannot be recorded")?;
    Ok(())
}

/// Issues a token of these terms.
///
/// # Errors
/// When it would carry nothing, or cannot be recorded.
pub fn issue_token(terms: Terms) -> Result<String, Failure> {
    let now = now_s();
    let terms = Terms {
        from_s: Some(now.saturating_sub(CLOCK_SLACK.as_secs())),
        ..terms
    };
    if terms.rights.is_empty() {
        return Err(Failure::new("a token without rights carries nothing")
            .advise("atoll token issue --allow 'connect api.example.com:443' --until 2h"));
    }
    if terms.until_s.is_some_and(|until| until <= now) {
        return Err(Failure::new("the token would have ended already").because("--until is past"));
    }
    let state = Places::read()?.open_state()?;
    let key = issuing_key(&state)?;
    let text = issue(&key, &terms).doing("no token is issued")?;
    let token = Token::read(&text, key.public()).doing("no token is issued")?;
    let words = terms.words().doing("no token is issued")?;
    let until = terms.until_s.and_then(told_time);
    let event = json!({ "id": token.ids().first(), "until": until, "words": words });
    record(&state, "token.issued", without_nothing(event))?;
    Ok(text)
}

/// A token that was revoked.
#[derive(Clone, Debug)]
pub struct Revoked {
    /// Its id.
    pub id: String,
    /// True if it was not revoked before.
    pub is_new: bool,
}

/// Revokes the token of this id, of which the beginning is enough, or in this file.
///
/// # Errors
/// When there is none, or it cannot be recorded.
pub fn revoke(named: &str) -> Result<Revoked, Failure> {
    let state = Places::read()?.open_state()?;
    let files = TokenFiles::open(&state, false).doing(UNUSABLE)?;
    let files = files.ok_or_else(|| Failure::new(NO_KEY).because("there is nothing to revoke"))?;
    let id = match issued_id(&state, named)? {
        Some(id) => id,
        None if named != "-" && !Path::new(named).exists() => {
            let shown = printable(named.as_bytes());
            let least = ID_SHOWN / 2;
            let neither = format!("{shown} is neither a file nor the beginning of an id");
            return Err(Failure::new(neither)
                .because(format!("an id is said by {least} of its letters or more"))
                .advise("atoll token list names those that were issued"));
        }
        None => {
            let path = Path::new(named);
            let text = text_in(path)?;
            let unrevoked = format!("the token in {} is not revoked", file_told(path));
            let token = Token::read(&text, public_key(&files)?).doing(&unrevoked)?;
            token.ids().pop().unwrap_or_default()
        }
    };
    let is_new = files.revoke(&id).doing("it is not revoked")?;
    if is_new {
        record(&state, "token.revoked", json!({ "id": id }))?;
    }
    Ok(Revoked { id, is_new })
}
