//! The transfer of credentials from their sources to the egress process.
//!
//! Each is read once, into memory that is overwritten before anything else happens, and then
//! waits in the kernel, on a socket that only the egress process reads. So this process, which
//! runs as long as the program, holds none; and placeholders exist before the program starts,
//! although the egress process starts with the first connection. One that makes sandbox after sandbox
//! keeps what it takes from its variables ([`keep_variables`]), since that is there once.

mod told;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use atoll_model::PlaceholderState;
use atoll_model::network::{
    CAUGHT_BYTES_MAX, CREDENTIAL_BYTES_MAX, CredentialName, Fetch, Fetched, Ingredient, Issue,
    IssuedToken, Part, Placeholder,
};
use atoll_sys::{descriptor, environment, memory, socket};
use rustix::fs::OFlags;
use zeroize::Zeroizing;

use crate::supervision::commands::CredentialCommand;
use crate::supervision::login_renewal::{LoginFacts, LoginRenewal, Renewable};
use crate::supervision::token_renewal::TokenRenewal;
pub use told::Told;
use told::Value;

/// Makes the placeholder for a value, or says why there can be none.
pub type Disguise<'a> = &'a dyn Fn(&[u8]) -> Result<Vec<u8>, String>;

/// The mode bits by which users other than a file's owner may read it.
const OTHERS_READ: u32 = 0o044;

/// Values that wait for the egress process, with their placeholders.
#[derive(Debug)]
pub struct CredentialBundle {
    receiver: OwnedFd,
    sender: OwnedFd,
    placeholders: Vec<Placeholder>,
    fetched: Vec<Fetched>,
    commands: Vec<(CredentialName, CredentialCommand)>,
    renewals: Vec<(CredentialName, Renewable)>,
    stands: Vec<(PathBuf, PlaceholderFile)>,
    issues: Vec<Issue>,
    /// Values with their placeholders, until the program's command and environment are
    /// sanitized.
    values: Vec<Value>,
}

/// The placeholder file for a login or settings file. It contains no secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlaceholderFile {
    /// The text; `None` if the file does not exist in the sandbox.
    pub text: Option<Vec<u8>>,
    /// The mode bits, if not those of a private file.
    pub mode: Option<u32>,
    /// The state of a settings file, for finding changes at the end of the run.
    pub stood: Option<PlaceholderState>,
}

/// A token that was intercepted when an agent logged in.
pub struct CaughtToken {
    /// The kind of token.
    pub token: IssuedToken,
    /// Its placeholder.
    pub stands: String,
    /// Its value.
    pub real: Zeroizing<String>,
}

impl std::fmt::Debug for CaughtToken {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("CaughtToken").finish_non_exhaustive()
    }
}

/// The reason why a credential is unavailable. The messages contain nothing of it.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The variable is not set.
    #[error("the variable {0} is not set")]
    Unset(String),
    /// The file cannot be read.
    #[error("{path} cannot be read: {error}")]
    File {
        /// The file.
        path: String,
        /// The error.
        error: io::Error,
    },
    /// The value is empty.
    #[error("it is empty")]
    Empty,
    /// The value is too long.
    #[error("it is longer than {CREDENTIAL_BYTES_MAX} bytes")]
    TooLong,
    /// The value could not be part of a request.
    #[error("it has other characters in it than the printable ones of ASCII")]
    Unprintable,
    /// The value is not a key id that a request could contain.
    #[error("it is no id of a key that signs, which has 16 to 128 letters and digits")]
    KeyId,
    /// There can be no placeholder.
    #[error("{0}")]
    Unfit(String),
    /// The kernel refused the transfer.
    #[error("it cannot be handed on: {0}")]
    Kernel(#[from] io::Error),
}

impl CredentialBundle {
    /// Creates an empty bundle.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn new() -> io::Result<Self> {
        let (receiver, sender) = socket::pair()?;
        Ok(Self {
            receiver,
            sender,
            placeholders: Vec::new(),
            fetched: Vec::new(),
            commands: Vec::new(),
            renewals: Vec::new(),
            stands: Vec::new(),
            issues: Vec::new(),
            values: Vec::new(),
        })
    }

    /// Takes values of credentials from one variable of this process's environment, and removes
    /// the variable. No other thread may use the environment meanwhile.
    ///
    /// # Errors
    /// [`SourceError`].
    pub fn take_variable(
        &mut self,
        names: &[(&CredentialName, Part)],
        variable: &str,
        disguise: Disguise<'_>,
    ) -> Result<(), SourceError> {
        let mut take = |value: &[u8]| {
            let mut names = names.iter();
            names.try_for_each(|(name, part)| self.take_part(name, *part, value, disguise))
        };
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = kept.as_ref().and_then(|kept| kept.get(variable)) {
            return take(value);
        }
        let taken = environment::take(OsStr::new(variable), |value| {
            if let (Some(kept), false) = (&mut *kept, value.is_empty()) {
                kept.insert(variable.to_owned(), Zeroizing::new(value.to_vec()));
            }
            take(value)
        });
        taken.unwrap_or_else(|| Err(SourceError::Unset(variable.to_owned())))
    }

    /// Reads a credential from a file: its content without the last line's end. Returns whether
    /// users other than the owner can read the file.
    ///
    /// # Errors
    /// [`SourceError`].
    pub fn read_file(
        &mut self,
        name: &CredentialName,
        path: &Path,
        disguise: Disguise<'_>,
    ) -> Result<bool, SourceError> {
        let mut buffer = [0_u8; CREDENTIAL_BYTES_MAX + 2];
        let read = read(path, &mut buffer).map_err(|error| SourceError::File {
            path: path.display().to_string(),
            error,
        });
        let put = read.and_then(|(got, is_open)| {
            let value = buffer.get(..got).unwrap_or_default();
            let value = value.strip_suffix(b"\n").unwrap_or(value);
            let value = value.strip_suffix(b"\r").unwrap_or(value);
            self.take_value(name, value, disguise).map(|()| is_open)
        });
        memory::erase(&mut buffer);
        put
    }

    /// Takes a credential that the caller has read, and must overwrite afterwards.
    ///
    /// # Errors
    /// [`SourceError`].
    pub fn take_value(
        &mut self,
        name: &CredentialName,
        value: &[u8],
        disguise: Disguise<'_>,
    ) -> Result<(), SourceError> {
        self.take_part(name, Part::Whole, value, disguise)
    }

    /// Takes a credential that a command prints when it is needed. The texts are the
    /// placeholders of its values.
    pub fn promise(
        &mut self,
        name: &CredentialName,
        texts: impl IntoIterator<Item = (Part, String)>,
        command: CredentialCommand,
    ) {
        let name = name.clone();
        let placeholder = |(part, text)| Placeholder {
            name: name.clone(),
            part,
            text,
        };
        self.placeholders.extend(texts.into_iter().map(placeholder));
        self.fetched.push(Fetched {
            name: name.clone(),
            by: Fetch::Command {
                patience_s: command.patience.as_secs(),
            },
        });
        self.commands.push((name, command));
    }

    /// Takes a credential that the egress process requests itself when it is needed, by means
    /// of these secrets in the order of [`Fetch::ingredients`]; the caller must overwrite them
    /// afterwards. `text` is the placeholder.
    ///
    /// # Errors
    /// [`SourceError`], with the index of the secret.
    pub fn entrust(
        &mut self,
        name: &CredentialName,
        text: String,
        by: Fetch,
        secrets: &[&[u8]],
        disguise: Disguise<'_>,
    ) -> Result<(), (usize, SourceError)> {
        let name = name.clone();
        for (index, (which, secret)) in by.ingredients().into_iter().zip(secrets).enumerate() {
            let checked = match which {
                Ingredient::PrivateKey => sized(secret),
                Ingredient::ClientSecret | Ingredient::RefreshToken | Ingredient::SubjectToken => {
                    // What comes back of it is masked as well.
                    let masked = || disguise(secret).map(drop).map_err(SourceError::Unfit);
                    plain(secret).and_then(|()| masked())
                }
            };
            checked.map_err(|error| (index, error))?;
        }
        self.placeholders.push(Placeholder {
            name: name.clone(),
            part: Part::Whole,
            text,
        });
        for (index, secret) in secrets.iter().enumerate() {
            let sent = socket::send(self.sender.as_fd(), secret, &[]);
            sent.map_err(|error| (index, error.into()))?;
        }
        self.fetched.push(Fetched { name, by });
        Ok(())
    }

    /// Takes the access token of a login, which is renewed by the refresh token named `by` once
    /// it has expired.
    ///
    /// # Errors
    /// [`SourceError`].
    pub fn take_login(
        &mut self,
        name: &CredentialName,
        value: &[u8],
        (login, by, facts): (LoginRenewal, &CredentialName, LoginFacts),
        disguise: Disguise<'_>,
    ) -> Result<(), SourceError> {
        self.take_value(name, value, disguise)?;
        let request = Box::new(login.renewal.request.clone());
        let by = by.clone();
        self.fetched.push(Fetched {
            name: name.clone(),
            by: Fetch::Login {
                request,
                by,
                ends_s: facts.ends_s,
                scope: facts.scope,
            },
        });
        self.renewals
            .push((name.clone(), Renewable::Login(Box::new(login))));
        Ok(())
    }

    /// Notes where the secret that fetches a credential is stored, since its issuer may replace
    /// it.
    pub fn renew_token(&mut self, name: &CredentialName, token: TokenRenewal) {
        self.renewals.push((name.clone(), Renewable::Token(token)));
    }

    /// Takes one value of several, as [`Self::take_value`].
    ///
    /// # Errors
    /// [`SourceError`].
    pub fn take_part(
        &mut self,
        name: &CredentialName,
        part: Part,
        value: &[u8],
        disguise: Disguise<'_>,
    ) -> Result<(), SourceError> {
        plain(value)?;
        let is_of_id = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let is_id = (16..=128).contains(&value.len()) && value.iter().all(is_of_id);
        if part == Part::KeyId && !is_id {
            return Err(SourceError::KeyId);
        }
        let made = disguise(value).map_err(SourceError::Unfit)?;
        let text = String::from_utf8(made).map_err(|_| SourceError::Unprintable)?;
        socket::send(self.sender.as_fd(), value, &[])?;
        self.values.push(Value {
            name: name.clone(),
            value: Zeroizing::new(value.to_vec()),
            stands: text.clone(),
        });
        let name = name.clone();
        self.placeholders.push(Placeholder { name, part, text });
        Ok(())
    }

    /// Notes the placeholder file for a login file.
    pub fn stand_for(&mut self, file: &Path, stands: PlaceholderFile) {
        self.stands.push((file.to_owned(), stands));
    }

    /// Returns the placeholder file for a login file, if noted.
    #[must_use]
    pub fn stands_for(&self, file: &Path) -> Option<&PlaceholderFile> {
        let mut all = self.stands.iter();
        all.find(|(one, _)| one == file).map(|(_, stands)| stands)
    }

    /// Notes where a login is issued.
    pub fn issue(&mut self, issue: Issue) {
        self.issues.push(issue);
    }

    /// Returns where logins are issued.
    pub(crate) fn issues(&self) -> &[Issue] {
        &self.issues
    }

    /// Takes the intercepted tokens that have arrived, in order.
    ///
    /// # Errors
    /// The kernel's, and InvalidData for a malformed token.
    pub fn caught(&self) -> io::Result<Vec<CaughtToken>> {
        descriptor::never_block(self.sender.as_fd())?;
        let mut buffer = Zeroizing::new(vec![0_u8; CAUGHT_BYTES_MAX]);
        let mut caught = Vec::new();
        loop {
            match socket::receive(self.sender.as_fd(), &mut buffer) {
                Ok((0, _)) => return Ok(caught),
                Ok((got, _)) => {
                    let message = buffer.get(..got).unwrap_or_default();
                    let token = caught_token(message).ok_or(io::ErrorKind::InvalidData)?;
                    caught.push(token);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(caught),
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns whether there is nothing to transfer.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.placeholders.is_empty() && self.stands.is_empty() && self.issues.is_empty()
    }

    /// Returns the placeholders, in the order of their values.
    #[must_use]
    pub fn placeholders(&self) -> &[Placeholder] {
        &self.placeholders
    }

    /// Returns whether the bundle has a value of a credential.
    #[must_use]
    pub fn has(&self, name: &CredentialName, part: Part) -> bool {
        let mut all = self.placeholders.iter();
        all.any(|one| one.name == *name && one.part == part)
    }

    /// Returns the names of the credentials and logins, sorted, each once.
    pub(crate) fn names(&self) -> BTreeSet<&CredentialName> {
        let values = self.placeholders.iter().map(|one| &one.name);
        let printed = self.commands.iter().map(|(name, _)| name);
        let renewed = self.renewals.iter().map(|(name, _)| name);
        let issued = self.issues.iter().map(|one| &one.login);
        values.chain(printed).chain(renewed).chain(issued).collect()
    }

    /// Returns the credentials whose values are fetched later.
    pub(crate) fn fetched(&self) -> &[Fetched] {
        &self.fetched
    }

    /// Returns the command that prints a credential, if there is one.
    pub(crate) fn command(&self, name: &CredentialName) -> Option<&CredentialCommand> {
        let mut all = self.commands.iter();
        all.find(|(one, _)| one == name).map(|(_, command)| command)
    }

    /// Returns what is renewed for a credential, if anything.
    pub(crate) fn renewal(&self, name: &CredentialName) -> Option<&Renewable> {
        let mut all = self.renewals.iter();
        all.find(|(one, _)| one == name).map(|(_, what)| what)
    }

    /// Returns whether a credential is to be revoked at the end.
    pub(crate) fn is_taken_back(&self) -> bool {
        self.fetched.iter().any(|one| one.by.is_taken_back())
    }

    /// Returns the socket from which the values are read.
    pub(crate) fn receiver(&self) -> &OwnedFd {
        &self.receiver
    }
}

/// The values of variables that were taken, by their names, where they are kept.
static KEPT: Mutex<Option<BTreeMap<String, Zeroizing<Vec<u8>>>>> = Mutex::new(None);

/// Has this process keep the values of credentials that it takes from its variables: it makes
/// further sandboxes, which need them too.
pub fn keep_variables() {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = kept.get_or_insert_default();
}

/// Takes a variable out of this process's environment and passes its value on: for secrets that
/// are not injected as credentials. `None` if it is not set.
///
/// To be called while no other thread uses the environment.
pub fn take_out<T>(variable: &str, hand_out: impl FnOnce(&[u8]) -> T) -> Option<T> {
    environment::take(OsStr::new(variable), hand_out)
}

/// Parses a message about a token, a line each: its member in the answer, its placeholder, its
/// value.
fn caught_token(message: &[u8]) -> Option<CaughtToken> {
    let mut lines = std::str::from_utf8(message).ok()?.splitn(3, '\n');
    let token = IssuedToken::of_member(lines.next()?)?;
    let stands = lines.next()?.to_owned();
    let real = Zeroizing::new(lines.next()?.to_owned());
    Some(CaughtToken {
        token,
        stands,
        real,
    })
}

fn sized(value: &[u8]) -> Result<(), SourceError> {
    match value.len() {
        0 => Err(SourceError::Empty),
        1..=CREDENTIAL_BYTES_MAX => Ok(()),
        _ => Err(SourceError::TooLong),
    }
}

/// Checks that a value can be part of a request.
fn plain(value: &[u8]) -> Result<(), SourceError> {
    sized(value)?;
    match value.iter().all(|byte| (b' '..=b'~').contains(byte)) {
        true => Ok(()),
        false => Err(SourceError::Unprintable),
    }
}

/// Reads the beginning of a regular file. Returns its length, and whether other users can read
/// the file.
fn read(path: &Path, buffer: &mut [u8]) -> io::Result<(usize, bool)> {
    // A pipe would not end.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let mut file = File::options().read(true).custom_flags(flags).open(path)?;
    let facts = file.metadata()?;
    if !facts.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut got = 0;
    while let Some(rest) = buffer.get_mut(got..).filter(|rest| !rest.is_empty()) {
        match file.read(rest)? {
            0 => break,
            more => got += more,
        }
    }
    Ok((got, facts.mode() & OTHERS_READ != 0))
}
