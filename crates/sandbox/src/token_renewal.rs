//! Refresh tokens by which Atoll asks an issuer: what the issuer gives in the place of one is
//! written back to where that came from, before it is used.
//!
//! As with logins ([`crate::login_renewal`]) a lock is held from reading to writing, so that of
//! several runs one asks at a time, and the next finds what the one before was given.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use atoll_model::network::{KeptSaid, KeptToken, LOGIN_FILE_BYTES_MAX};
use atoll_sys::socket;
use rustix::fs::{Access, access};
use zeroize::Zeroizing;

use crate::login_file::{LoginFileError, LoginLock, LoginText};
use crate::login_renewal::{LOCK_PATIENCE, is_said, is_unsaid, say};

/// How long asking may take: as long as a profile can say.
const ASKING: Duration = Duration::from_secs(320);
/// How often what is written is put together anew where somebody has changed white space.
const ATTEMPTS_MAX: usize = 3;

/// A refresh token, and where one that comes in its place is kept.
#[derive(Clone, Debug)]
pub struct TokenRenewal {
    /// The credential that is asked for by it.
    pub name: String,
    /// Where it came from, as a person is told that.
    pub from: String,
    /// Where that is.
    pub place: TokenPlace,
}

/// Where a refresh token is kept.
#[derive(Clone, Debug)]
pub enum TokenPlace {
    /// A file whose whole content it is, but for the end of its last line.
    File {
        /// Which, absolute.
        file: PathBuf,
        /// A directory of Atoll's own, which no program inside ever sees.
        own: PathBuf,
    },
    /// The vault.
    Vault {
        /// Its secret.
        secret: Arc<dyn TokenVault>,
        /// As above.
        own: PathBuf,
    },
    /// Nowhere that could be written.
    Nowhere,
}

/// A secret of the vault that is a refresh token. What it says of a mistake has nothing of it.
pub trait TokenVault: std::fmt::Debug + Send + Sync {
    /// The file that the vault is in.
    fn path(&self) -> &Path;

    /// What it is now.
    ///
    /// # Errors
    /// Why it cannot be read, as that the vault is locked.
    fn read(&self) -> Result<Zeroizing<String>, String>;

    /// Keeps another one in the place of this, on disk when it returns. Whether it was still
    /// this; else nothing is changed.
    ///
    /// # Errors
    /// Why it cannot be kept; then nothing is changed.
    fn replace(&self, before: &str, new: &str) -> Result<bool, String>;
}

/// A refresh token in whose place its issuer has given another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RotatedToken {
    /// The credential that is asked for by it.
    pub name: String,
    /// Where it came from, as a person is told that.
    pub from: String,
    /// When, for the last time.
    pub at: SystemTime,
    /// Why the new one is not there now; none where it is.
    pub unkept: Option<String>,
}

/// What came of all of them.
pub(crate) type Rotated = Arc<Mutex<Vec<RotatedToken>>>;

/// Notes that another one was given, and where it is now.
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

/// One that can be changed, and the lock under which that happens.
struct Held<'a> {
    lock: LoginLock,
    kept: Kept<'a>,
    /// What it is now.
    token: Zeroizing<String>,
}

enum Kept<'a> {
    File(LoginText),
    Vault(&'a dyn TokenVault),
}

/// Serves one that asks.
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

/// What was given; none where nothing was.
fn heard(line: &OwnedFd) -> Option<KeptToken> {
    if !is_said(line, ASKING) {
        return None;
    }
    let mut message = Zeroizing::new(vec![0; 2 * LOGIN_FILE_BYTES_MAX]);
    let (got, _) = socket::receive(line.as_fd(), &mut message).ok()?;
    serde_json::from_slice(message.get(..got)?).ok()
}

/// Why it comes to nothing. Nothing of it is in the words.
fn unfit(token: &TokenRenewal, why: impl std::fmt::Display) -> KeptSaid {
    KeptSaid::Unfit(format!("{}: {why}", token.from))
}

/// Takes the lock and reads what is there. What could be read once and cannot be changed stays
/// as good as it is: many issuers never give another one.
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

/// What a file's being so means.
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

/// The token of a file, and the end of its last line.
fn parts(text: &LoginText) -> Option<(&str, &str)> {
    let text = std::str::from_utf8(text.text()).ok()?;
    let token = text.strip_suffix('\n').unwrap_or(text);
    let token = token.strip_suffix('\r').unwrap_or(token);
    text.split_at_checked(token.len())
}

/// Writes another one. What somebody has put there meanwhile stays.
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
