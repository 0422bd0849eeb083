//! The stored state of capability tokens: the key that issues them, and the revoked ones.
//!
//! No token is kept: only its bearer has it.

use std::collections::{BTreeMap, BTreeSet};

use atoll_ledger::private::PrivateDirectory;
use atoll_ledger::state::TOKENS;
use atoll_ledger::{PrivateFault, StateDir};
use atoll_model::RunId;
use zeroize::Zeroizing;

const KEY: &str = "issuing.key";
const REVOKED: &str = "revoked";
const BOUND: &str = "bound";

/// The longest key, bytes.
const KEY_BYTES_MAX: u64 = 1 << 10;
/// The longest list of revoked ids, bytes: about 16,000.
const REVOKED_BYTES_MAX: u64 = 2 << 20;

/// The longest list of ids that are bound to a run, bytes: about 13,000.
const BOUND_BYTES_MAX: u64 = 2 << 20;

/// The token files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    /// One of them cannot be read or written.
    #[error(transparent)]
    Private(#[from] PrivateFault),
    /// The file is not text.
    #[error(
        "{KEY}, {REVOKED} or {BOUND} of the tokens is no text: it was changed by somebody else"
    )]
    Unreadable,
    /// There is no room for another revoked token.
    #[error("the list of revoked tokens has {} KiB, and no room for more", REVOKED_BYTES_MAX >> 10)]
    Full,
    /// There is no room for another token that is bound to one run.
    #[error("the list of tokens that are bound to a run has {} KiB, and no room for more", BOUND_BYTES_MAX >> 10)]
    NoRoom,
}

/// The token files of a deployment.
pub struct TokenFiles(PrivateDirectory);

impl TokenFiles {
    /// Opens the token files; `None` if no token was ever issued, unless they are to be made.
    ///
    /// # Errors
    /// [`TokenFileError`].
    pub fn open(state: &StateDir, create: bool) -> Result<Option<Self>, TokenFileError> {
        Ok(PrivateDirectory::of_state(state, TOKENS, create)?.map(Self))
    }

    /// Reads the key that issues tokens, as it was written; `None` if there is none yet.
    ///
    /// # Errors
    /// [`TokenFileError`].
    pub fn key(&self) -> Result<Option<Zeroizing<String>>, TokenFileError> {
        let Some(bytes) = self.0.read(KEY, KEY_BYTES_MAX)? else {
            return Ok(None);
        };
        let bytes = Zeroizing::new(bytes);
        let text = std::str::from_utf8(&bytes).map_err(|_| TokenFileError::Unreadable)?;
        Ok(Some(Zeroizing::new(text.trim_ascii().to_owned())))
    }

    /// Returns the current key, or saves this one if there is none.
    ///
    /// # Errors
    /// [`TokenFileError`].
    pub fn key_or(
        &self,
        make: impl FnOnce() -> Zeroizing<String>,
    ) -> Result<Zeroizing<String>, TokenFileError> {
        let _lock = self.0.lock()?;
        if let Some(key) = self.key()? {
            return Ok(key);
        }
        let key = make();
        let line = Zeroizing::new(format!("{}\n", key.as_str()));
        self.0.replace(KEY, line.as_bytes())?;
        Ok(key)
    }

    /// Reads the revoked ids: a token is revoked if any of its ids is among them.
    ///
    /// # Errors
    /// [`TokenFileError`]: then every token is to be taken for revoked.
    pub fn revoked(&self) -> Result<BTreeSet<String>, TokenFileError> {
        let bytes = self.0.read(REVOKED, REVOKED_BYTES_MAX)?.unwrap_or_default();
        let text = String::from_utf8(bytes).map_err(|_| TokenFileError::Unreadable)?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Reads the runs that tokens are bound to, by the ids of the parts that count in one run
    /// alone.
    ///
    /// # Errors
    /// [`TokenFileError`].
    pub fn bound(&self) -> Result<BTreeMap<String, RunId>, TokenFileError> {
        let bytes = self.0.read(BOUND, BOUND_BYTES_MAX)?.unwrap_or_default();
        let text = String::from_utf8(bytes).map_err(|_| TokenFileError::Unreadable)?;
        let line = |line: &str| {
            let (id, run) = line.split_once(' ')?;
            let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit());
            let run = RunId::parse(run).ok().filter(|_| is_id)?;
            Some((id.to_owned(), run))
        };
        let all = text.lines().map(line).collect::<Option<_>>();
        all.ok_or(TokenFileError::Unreadable)
    }

    /// Binds all of these ids to a run, on disk before it returns. If one is bound to another run
    /// already, returns that run, and binds none.
    ///
    /// # Errors
    /// [`TokenFileError`]: then none of them is to count.
    pub fn bind(&self, ids: &[String], run: &RunId) -> Result<Option<RunId>, TokenFileError> {
        let _lock = self.0.lock()?;
        let mut all = self.bound()?;
        let others = ids.iter().filter_map(|id| all.get(id));
        if let Some(other) = others.into_iter().find(|one| *one != run) {
            return Ok(Some(other.clone()));
        }
        let own = ids.iter().map(|id| (id.clone(), run.clone()));
        all.extend(own);
        let text: String = all
            .iter()
            .map(|(id, run)| format!("{id} {run}\n"))
            .collect();
        if text.len() as u64 > BOUND_BYTES_MAX {
            return Err(TokenFileError::NoRoom);
        }
        self.0.replace(BOUND, text.as_bytes())?;
        Ok(None)
    }

    /// Revokes an id. Returns whether it was not revoked before.
    ///
    /// # Errors
    /// [`TokenFileError`].
    pub fn revoke(&self, id: &str) -> Result<bool, TokenFileError> {
        let _lock = self.0.lock()?;
        let mut all = self.revoked()?;
        if !all.insert(id.to_owned()) {
            return Ok(false);
        }
        let text: String = all.iter().map(|id| format!("{id}\n")).collect();
        if text.len() as u64 > REVOKED_BYTES_MAX {
            return Err(TokenFileError::Full);
        }
        self.0.replace(REVOKED, text.as_bytes())?;
        Ok(true)
    }
}
