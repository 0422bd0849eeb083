//! Refresh tokens by which Atoll requests credentials: if the issuer replaces one, the new one
//! is written to the source of the old one before it is used.
//!
//! As with logins ([`crate::supervision::login_renewal`]) a lock is held from reading to writing, so that of
//! several runs one at a time asks the issuer, and the next finds what the former was given.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use atoll_model::network::{KeptSaid, KeptToken, LOGIN_FILE_BYTES_MAX};
use atoll_sys::socket;
use rustix::fs::{Access, access};
use zeroize::Zeroizing;

use crate::supervision::login_file::{LoginFileError, LoginLock, LoginText};
use crate::supervision::login_renewal::{LOCK_PATIENCE, is_said, is_unsaid, say};

/// The longest wait for the issuer: as long as a profile can allow.
const ASKING: Duration = Duration::from_secs(320);
/// The most attempts to write, each after another program has changed white space.
const ATTEMPTS_MAX: usize = 3;

/// A refresh token, with the place where its replacement is stored.
#[derive(Clone, Debug)]
pub struct TokenRenewal {
    /// The credential that is requested by it.
    pub name: String,
    /// The name of its source, for persons.
    pub from: String,
    /// The place of its source.
    pub place: TokenPlace,
}

/// The place where a refresh token is stored.
#[derive(Clone, Debug)]
pub enum TokenPlace {
    /// A file that contains only the token, and perhaps the last line's end.
    File {
        /// The file, absolute.
        file: PathBuf,
        /// A directory of Atoll's own, which no sandbox ever sees.
        own: PathBuf,
    },
    /// The vault.
    Vault {
        /// The secret in the vault.
        secret: Arc<dyn TokenVault>,
        /// A directory of Atoll's own, which no sandbox ever sees.
        own: PathBuf,
    },
    /// A place that cannot be written.
    Nowhere,
}

/// A secret of the vault that is a refresh token. Error messages contain nothing of it.
pub trait TokenVault: std::fmt::Debug + Send + Sync {
    /// Returns the vault's file.
    fn path(&self) -> &Path;

    /// Reads the present token.
    ///
    /// # Errors
    /// The reason why it cannot be read, for example because the vault is locked.
    fn read(&self) -> Result<Zeroizing<String>, String>;

    /// Replaces the token, on disk when this returns. Returns whether it was still `before`;
    /// otherwise nothing is changed.
    ///
    /// # Errors
    /// The reason why it cannot be stored; nothing is changed then.
    fn replace(&self, before: &str, new: &str) -> Result<bool, String>;
}

/// A refresh token that its issuer has replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RotatedToken {
    /// The credential that is requested by it.
    pub name: String,
    /// The name of its source, for persons.
    pub from: String,
    /// The time of the last replacement.
    pub at: SystemTime,
    /// The reason why the new token is not stored; `None` if it is.
    pub unkept: Option<String>,
}

/// The replacements of all refresh tokens.
pub(crate) type Rotated = Arc<Mutex<Vec<RotatedToken>>>;

/// Notes a replacement, and whether it was stored.
fn note(token: &TokenRenewal, rotated: &Rotated, unkept: Option<&str>) {
    let mut rotated = rotated.lock().unwrap_or_else(PoisonError::into_inner);
    let at = SystemTime::now();
    let unkept = unkept.map(str::to_owned);
    match rotated.iter_mut().find(|one| one.name == token.name) {
        Some(known) => {
            known.at = at;
            known.unkept = unkept;
        }
        None => rotated.push(RotatedToken {
            name: token.name.clone(),
            from: token.from.clone(),
            at,
            unkept,
        }),
    }
}

/// A token that can be replaced, with the lock for that.
struct Held<'a> {
    lock: LoginLock,
    kept: Kept<'a>,
    /// The present token.
    token: Zeroizing<String>,
}

enum Kept<'a> {
    File(LoginText),
    Vault(&'a dyn TokenVault),
}

/// Serves one renewal.
pub(crate) fn renew(token: &TokenRenewal, line: &OwnedFd, rotated: &Rotated) {
    let held = match begun(token, line) {
        Ok(held) => held,
        Err(KeptSaid::Unkept(why)) => {
            // What is given is told of all the same.
            if say(line, &KeptSaid::Unkept(why.clone())).is_ok() && heard(line).is_some() {
                note(token, rotated, Some(&why));
                let _ = say(line, &KeptSaid::Unkept(why));
            }
            return;
        }
        Err(said) => {
            let _ = say(line, &said);
            return;
        }
    };
    let there = KeptSaid::There(KeptToken::new(&held.token));
    if say(line, &there).is_err() {
        return;
    }
    let Some(new) = heard(line) else {
        return;
    };
    let said = written(token, held, new.text());
    match &said {
        KeptSaid::Written => note(token, rotated, None),
        KeptSaid::Unfit(why) => note(token, rotated, Some(why)),
        KeptSaid::There(_) | KeptSaid::Unkept(_) => {}
    }
    let _ = say(line, &said);
}

/// Receives the new token; `None` if there was none.
fn heard(line: &OwnedFd) -> Option<KeptToken> {
    if !is_said(line, ASKING) {
        return None;
    }
    let mut message = Zeroizing::new(vec![0; 2 * LOGIN_FILE_BYTES_MAX]);
    let (got, _) = socket::receive(line.as_fd(), &mut message).ok()?;
    serde_json::from_slice(message.get(..got)?).ok()
}

/// Describes why a renewal fails, without anything of the token.
fn unfit(token: &TokenRenewal, why: impl std::fmt::Display) -> KeptSaid {
    KeptSaid::Unfit(format!("{}: {why}", token.from))
}

/// Takes the lock and reads the token. A token that could be read once and cannot be replaced
/// is still used: many issuers never replace one.
fn begun<'a>(token: &'a TokenRenewal, line: &OwnedFd) -> Result<Held<'a>, KeptSaid> {
    let (file, own) = match &token.place {
        TokenPlace::File { file, own } => (file.as_path(), own),
        TokenPlace::Vault { secret, own } => (secret.path(), own),
        TokenPlace::Nowhere => {
            return Err(KeptSaid::Unkept("nothing can be written there".to_owned()));
        }
    };
    // Nothing is said before it is answered: then who asks is gone.
    let is_wanted = || is_unsaid(line);
    let lock = LoginLock::take(file, own, LOCK_PATIENCE, &is_wanted);
    let lock = lock.map_err(|error| not_changed(token, &error))?;
    let (kept, value) = match &token.place {
        TokenPlace::Vault { secret, .. } => {
            let value = secret.read().map_err(|why| unfit(token, why))?;
            (Kept::Vault(&**secret), value)
        }
        TokenPlace::File { .. } | TokenPlace::Nowhere => {
            let directory = file.parent().unwrap_or(Path::new("/"));
            access(directory, Access::WRITE_OK)
                .map_err(|error| not_changed(token, &error.into()))?;
            let text = lock.read().map_err(|error| not_changed(token, &error))?;
            let text = text.ok_or_else(|| unfit(token, "it is not there any more"))?;
            let (value, _) = parts(&text).ok_or_else(|| unfit(token, "it is no text"))?;
            let value = Zeroizing::new(value.to_owned());
            (Kept::File(text), value)
        }
    };
    Ok(Held {
        lock,
        kept,
        token: value,
    })
}

/// Decides what an error of the file means for the renewal.
fn not_changed(token: &TokenRenewal, error: &LoginFileError) -> KeptSaid {
    match error {
        LoginFileError::Held | LoginFileError::Changed => unfit(token, error),
        LoginFileError::Kernel(kernel) => match kernel.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                KeptSaid::Unkept(error.to_string())
            }
            _ => unfit(token, error),
        },
        LoginFileError::Link
        | LoginFileError::Kind
        | LoginFileError::Names
        | LoginFileError::Owner(_)
        | LoginFileError::Writable(_)
        | LoginFileError::Long(_)
        | LoginFileError::Elsewhere => KeptSaid::Unkept(error.to_string()),
    }
}

/// Splits a file's text into the token and the last line's end.
fn parts(text: &LoginText) -> Option<(&str, &str)> {
    let text = std::str::from_utf8(text.text()).ok()?;
    let token = text.strip_suffix('\n').unwrap_or(text);
    let token = token.strip_suffix('\r').unwrap_or(token);
    text.split_at_checked(token.len())
}

/// Stores a new token. One that another program has stored meanwhile stays.
fn written(token: &TokenRenewal, held: Held<'_>, new: &str) -> KeptSaid {
    let Held {
        lock,
        kept,
        token: before,
    } = held;
    match kept {
        Kept::Vault(secret) => match secret.replace(&before, new) {
            Ok(true) => KeptSaid::Written,
            Ok(false) => match secret.read() {
                Ok(now) => KeptSaid::There(KeptToken::new(&now)),
                Err(why) => unfit(token, why),
            },
            Err(why) => unfit(token, why),
        },
        Kept::File(text) => written_to_file(token, &lock, text, new),
    }
}

fn written_to_file(
    token: &TokenRenewal,
    lock: &LoginLock,
    mut before: LoginText,
    new: &str,
) -> KeptSaid {
    for _ in 0..ATTEMPTS_MAX {
        let Some((old, end)) = parts(&before) else {
            return unfit(token, "it is no text");
        };
        let mut text = Zeroizing::new(Vec::with_capacity(new.len() + end.len()));
        text.extend_from_slice(new.as_bytes());
        text.extend_from_slice(end.as_bytes());
        match lock.write(Some(&before), &text) {
            Ok(()) => return KeptSaid::Written,
            Err(LoginFileError::Changed) => {}
            Err(error) => return unfit(token, error),
        }
        let now = match lock.read() {
            Ok(Some(now)) => now,
            Ok(None) => return unfit(token, "it is not there any more"),
            Err(error) => return unfit(token, error),
        };
        match parts(&now) {
            Some((other, _)) if other != old => return KeptSaid::There(KeptToken::new(other)),
            Some(_) => before = now,
            None => return unfit(token, "it is no text"),
        }
    }
    unfit(token, LoginFileError::Changed)
}

#[cfg(test)]
mod tests;
