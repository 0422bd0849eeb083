//! The signed layer of an organisation: a signed note (C2SP signed-note) over a list of its files
//! with their digests, a number that only grows, and perhaps a last day. The form is described in
//! `docs/organisation.md`.

mod key;
mod seen;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use atoll_ledger::{
    CHECKPOINT_BYTES_MAX, FileFault, INTEGER_MAX, NoteFault, PrivateFault, VerifierKey, decimal,
    hex, signed_text,
};
use atoll_model::{civil_date, days_of_date};
use sha2::{Digest, Sha256};

pub use key::OrganisationKey;
pub use seen::{SEEN_EVERY, remember_manifest};

const SERIAL: &str = "serial ";
const UNTIL: &str = "until ";
/// The separator of a digest and a name, as `sha256sum` prints it.
const BETWEEN: &str = "  ";
const DIGEST_DIGITS: usize = 64;
/// The most files that one list names.
pub const MANIFEST_FILES_MAX: usize = 65;
const NAME_BYTES_MAX: usize = 255;
const DAY_S: u64 = 86_400;

/// The files of an organisation are not the ones that were signed.
#[derive(Debug, thiserror::Error)]
pub enum OrganisationFault {
    /// The text is not a signed list of files.
    #[error("it is no signed list of files: {0}")]
    NoManifest(&'static str),
    /// The list has no signature by the key.
    #[error("it is not signed by {0}")]
    OtherKey(String),
    /// The signature is not one of this text.
    #[error("the signature by {0} does not hold: the list or the signature was altered")]
    BadSignature(String),
    /// The list is of an organisation of another name than the key.
    #[error("it is of {found}, and the key is of {expected}")]
    OtherName {
        /// The name in the list.
        found: String,
        /// The name of the key.
        expected: String,
    },
    /// A file has another content than was signed.
    #[error("{0} is not as it was signed")]
    Altered(String),
    /// A file is there that was not signed.
    #[error("{0} is there and was not signed")]
    Added(String),
    /// A file was signed and is not there.
    #[error("{0} was signed and is not there")]
    Missing(String),
    /// The list's last day is over.
    #[error("it counted until {until}, and today is {today}")]
    Expired {
        /// The last day on which it counted.
        until: Day,
        /// The newest day that was seen.
        today: Day,
        /// The file that keeps the newest time seen.
        path: PathBuf,
    },
    /// An earlier list than one that counted here already.
    #[error("it is number {found}, and number {seen} has counted here: it was put back")]
    RolledBack {
        /// The list's number.
        found: u64,
        /// The greatest number that was seen.
        seen: u64,
        /// The file that keeps the greatest number seen.
        path: PathBuf,
    },
    /// Another list has the same number.
    #[error("it is number {serial}, as another list that has counted here")]
    SameNumber {
        /// The number.
        serial: u64,
        /// The file that keeps the numbers seen.
        path: PathBuf,
    },
    /// The file of the numbers and times seen cannot be read, or is garbled.
    #[error("what was seen of it before cannot be read: {why}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The fault that was found.
        why: String,
    },
    /// The file of the numbers and times seen cannot be written, or a key cannot be read.
    #[error(transparent)]
    Private(#[from] PrivateFault),
    /// The kernel refused a file operation.
    #[error(transparent)]
    File(#[from] FileFault),
    /// The file that is there does not hold a key.
    #[error("{} holds no key that signs: {why}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The fault that was found.
        why: NoteFault,
    },
    /// The kernel gave no random bytes.
    #[error("no key can be made: the kernel gives no random bytes")]
    NoRandom,
    /// No list can be made of these files.
    #[error("this cannot be signed: {0}")]
    Unfit(String),
}

impl From<NoteFault> for OrganisationFault {
    fn from(fault: NoteFault) -> Self {
        match fault {
            NoteFault::NoCheckpoint(why) | NoteFault::NoKey(why) => Self::NoManifest(why),
            NoteFault::OtherKey(key) => Self::OtherKey(key),
            NoteFault::BadSignature(name) => Self::BadSignature(name),
            NoteFault::OtherOrigin(_) => Self::NoManifest("it is of something else"),
        }
    }
}

/// A day by the calendar, in UTC: `2027-01-31`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Day(u64);

impl Day {
    /// Parses the form that `Display` writes; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '-').map(|part| part.parse::<u64>().ok());
        let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
        let read = Self(days_of_date(year, month, day)?);
        (read.to_string() == text).then_some(read)
    }

    /// Returns the day of a time, seconds since 1970.
    #[must_use]
    pub fn of(seconds: u64) -> Self {
        Self(seconds / DAY_S)
    }
}

impl fmt::Display for Day {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil_date(self.0);
        write!(out, "{year:04}-{month:02}-{day:02}")
    }
}

/// The things whose files are signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signed {
    /// An organisation's layer.
    Layer,
    /// A pack of tools.
    Tools,
}

impl Signed {
    /// Returns the first line of the text: nothing else that a key of Atoll's signs begins so.
    const fn form(self) -> &'static str {
        match self {
            Self::Layer => "atoll organisation v1",
            Self::Tools => "atoll tools v1",
        }
    }

    /// Returns whether a file of this name is one of those that are signed.
    #[must_use]
    pub fn has(self, name: &str) -> bool {
        let is_plain = !name.contains('/') && !name.chars().any(char::is_control);
        let counts = match self {
            Self::Layer => name == "organisation.toml" || name.ends_with(".cedar"),
            Self::Tools => !name.is_empty() && !name.starts_with('.'),
        };
        is_plain && counts && name.len() <= NAME_BYTES_MAX
    }
}

/// A list of files that an organisation, or whoever makes tools, has signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    of: Signed,
    name: String,
    serial: u64,
    until: Option<Day>,
    /// The files' digests in hexadecimal digits, by name.
    files: BTreeMap<String, String>,
}

impl Manifest {
    /// Makes the list of these files, each with its name and content.
    ///
    /// # Errors
    /// [`OrganisationFault::Unfit`].
    pub fn of<'a>(
        of: Signed,
        name: &str,
        serial: u64,
        until: Option<Day>,
        files: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    ) -> Result<Self, OrganisationFault> {
        if !is_serial(&serial) {
            let why = format!("{serial} is no number from 1 to {INTEGER_MAX}");
            return Err(OrganisationFault::Unfit(why));
        }
        let mut made = Self {
            of,
            name: name.to_owned(),
            serial,
            until,
            files: BTreeMap::new(),
        };
        for (name, content) in files {
            if !of.has(name) {
                let why = format!("{name:?} cannot be the name of a signed file");
                return Err(OrganisationFault::Unfit(why));
            }
            made.files.insert(name.to_owned(), digest(content));
        }
        if made.files.is_empty() || made.files.len() > MANIFEST_FILES_MAX {
            let why = format!(
                "there are {} files, and 1 to {MANIFEST_FILES_MAX} are signed",
                made.files.len()
            );
            return Err(OrganisationFault::Unfit(why));
        }
        Ok(made)
    }

    /// Returns the note of this list, with a signature of each key.
    ///
    /// # Errors
    /// [`OrganisationFault`]: what was made would not be read.
    pub fn sign(&self, keys: &[OrganisationKey]) -> Result<String, OrganisationFault> {
        let text = self.text();
        let lines: String = keys.iter().map(|key| key.signing().line(&text)).collect();
        let note = format!("{text}\n{lines}");
        for key in keys {
            Self::open(self.of, note.as_bytes(), key.verifier())?;
        }
        Ok(note)
    }

    /// Reads a note, and checks that this key has signed it and that it is of the organisation of
    /// that key. Signatures of other keys are passed over.
    ///
    /// # Errors
    /// [`OrganisationFault`].
    pub fn open(of: Signed, note: &[u8], key: &VerifierKey) -> Result<Self, OrganisationFault> {
        let malformed = OrganisationFault::NoManifest;
        if note.len() > CHECKPOINT_BYTES_MAX {
            return Err(malformed("it is too long"));
        }
        let note = std::str::from_utf8(note).map_err(|_| malformed("it is not UTF-8"))?;
        let body = signed_text(note, key)?;
        let read = Self::read(of, body).ok_or(malformed("its text has another form"))?;
        if read.name != key.name() {
            return Err(OrganisationFault::OtherName {
                found: read.name,
                expected: key.name().to_owned(),
            });
        }
        // One form alone: what two readers could read in two ways is none.
        match read.text().strip_suffix('\n') == Some(body) {
            true => Ok(read),
            false => Err(malformed("its text has another form")),
        }
    }

    fn read(of: Signed, body: &str) -> Option<Self> {
        let mut lines = body.split('\n').peekable();
        if lines.next()? != of.form() {
            return None;
        }
        let name = lines.next()?.to_owned();
        let serial = decimal(lines.next()?.strip_prefix(SERIAL)?).filter(is_serial)?;
        let until = lines.peek().and_then(|line| line.strip_prefix(UNTIL));
        let until = match until {
            Some(day) => {
                lines.next();
                Some(Day::parse(day)?)
            }
            None => None,
        };
        let mut files = BTreeMap::new();
        for line in lines {
            let (digest, name) = line.split_once(BETWEEN)?;
            let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            let is_digest = digest.len() == DIGEST_DIGITS && digest.bytes().all(is_digit);
            if !is_digest || !of.has(name) || files.len() == MANIFEST_FILES_MAX {
                return None;
            }
            files.insert(name.to_owned(), digest.to_owned());
        }
        (!files.is_empty()).then_some(Self {
            of,
            name,
            serial,
            until,
            files,
        })
    }

    fn text(&self) -> String {
        let form = self.of.form();
        let mut text = format!("{form}\n{}\n{SERIAL}{}\n", self.name, self.serial);
        if let Some(until) = self.until {
            text.push_str(&format!("{UNTIL}{until}\n"));
        }
        for (name, digest) in &self.files {
            text.push_str(&format!("{digest}{BETWEEN}{name}\n"));
        }
        text
    }

    /// Checks that these are the files that were signed: all of them, no others, each as it was.
    ///
    /// # Errors
    /// [`OrganisationFault::Altered`], [`OrganisationFault::Added`],
    /// [`OrganisationFault::Missing`].
    pub fn check<'a>(
        &self,
        files: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    ) -> Result<(), OrganisationFault> {
        let mut missing: Vec<&String> = self.files.keys().collect();
        for (name, content) in files {
            match self.files.get(name) {
                None => return Err(OrganisationFault::Added(name.to_owned())),
                Some(signed) if *signed != digest(content) => {
                    return Err(OrganisationFault::Altered(name.to_owned()));
                }
                Some(_) => missing.retain(|one| *one != name),
            }
        }
        match missing.first() {
            Some(name) => Err(OrganisationFault::Missing((*name).clone())),
            None => Ok(()),
        }
    }

    /// Returns the organisation's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the list's number, which only grows.
    #[must_use]
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// Returns the last day on which the list counts, if there is one.
    #[must_use]
    pub fn until(&self) -> Option<Day> {
        self.until
    }

    /// Returns the names of the files, in their order.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }
}

fn digest(content: &[u8]) -> String {
    hex(&Sha256::digest(content))
}

/// Returns whether this can be a list's number: one that every event of the ledger can name.
fn is_serial(serial: &u64) -> bool {
    (1..=INTEGER_MAX).contains(serial)
}
