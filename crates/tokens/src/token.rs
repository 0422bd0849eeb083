//! A token that was read and verified to be this deployment's.

use biscuit_auth::{Biscuit, BlockBuilder, KeyPair, UnverifiedBiscuit};
use sha2::{Digest as _, Sha256};

use crate::admitted::{Foreign, admit};
use crate::key::{IssuingKey, PublicKey};
use crate::terms::{BOUND_TO_ONE, InvalidTerms, Terms};

/// The longest token, bytes of its text (base64).
pub const TOKEN_BYTES_MAX: usize = 16 << 10;

/// The reason why a text is no valid token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The text is too long.
    #[error("a token is at most {TOKEN_BYTES_MAX} bytes long")]
    TooLong,
    /// The text is no token, or somebody else's, or was changed.
    #[error("it was not issued by this deployment's key, or was changed since")]
    Signature,
    /// A block is not admitted.
    #[error(transparent)]
    Foreign(#[from] Foreign),
    /// The terms cannot be put into a block.
    #[error(transparent)]
    Terms(#[from] InvalidTerms),
    /// The token is sealed: no block can be appended.
    #[error("it is sealed: nothing can be appended to it any more")]
    Sealed,
    /// Biscuit's error.
    #[error("no token can be made: {0}")]
    Unmade(String),
}

/// A token whose signatures are good and whose evaluation takes bounded time. Questions are put to
/// all tokens of a run together ([`crate::Held`]).
#[derive(Clone, Debug)]
pub struct Token {
    pub(crate) biscuit: Biscuit,
    text: String,
}

/// One block of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its revocation id, which also revokes everything appended to it: hexadecimal digits.
    pub id: String,
    /// Its terms, where Atoll has written it.
    pub terms: Option<Terms>,
    /// Its Datalog.
    pub source: String,
}

/// Issues a token.
///
/// # Errors
/// [`TokenError`].
pub fn issue(key: &IssuingKey, terms: &Terms) -> Result<String, TokenError> {
    let builder = Biscuit::builder().merge(terms.first_block()?);
    let token = builder.build(&key.0).and_then(|token| token.to_base64());
    settled(token.map_err(|error| TokenError::Unmade(error.to_string()))?)
}

/// Narrows a token, without a key and without its issuer.
///
/// # Errors
/// [`TokenError`].
pub fn attenuate(text: &str, terms: &Terms) -> Result<String, TokenError> {
    let text = written(text)?;
    let block = terms.further_block()?;
    let token = UnverifiedBiscuit::from_base64(text).map_err(|_| Foreign::Form)?;
    admit(&token.to_vec().map_err(|_| Foreign::Form)?)?;
    let narrower = token.append(block).map_err(|error| match error {
        biscuit_auth::error::Token::AppendOnSealed => TokenError::Sealed,
        error => TokenError::Unmade(error.to_string()),
    })?;
    let text = narrower.to_base64();
    settled(text.map_err(|error| TokenError::Unmade(error.to_string()))?)
}

/// Returns a new token, after checking that it can be read again.
fn settled(text: String) -> Result<String, TokenError> {
    let token = UnverifiedBiscuit::from_base64(written(&text)?).map_err(|_| Foreign::Form)?;
    admit(&token.to_vec().map_err(|_| Foreign::Form)?)?;
    Ok(text)
}

fn written(text: &str) -> Result<&str, TokenError> {
    let text = text.trim_ascii();
    match text.len() <= TOKEN_BYTES_MAX {
        true => Ok(text),
        false => Err(TokenError::TooLong),
    }
}

impl Token {
    /// Reads a token that this key has issued.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn read(text: &str, key: PublicKey) -> Result<Self, TokenError> {
        let text = written(text)?;
        // What is not taken is told first: who has appended something can change that.
        let unverified = UnverifiedBiscuit::from_base64(text).map_err(|_| Foreign::Form)?;
        admit(&unverified.to_vec().map_err(|_| Foreign::Form)?)?;
        let verified = unverified.verify(key.0);
        Ok(Self {
            biscuit: verified.map_err(|_| TokenError::Signature)?,
            text: text.to_owned(),
        })
    }

    /// Returns its text: a secret, since whoever has it holds the token.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the SHA-256 of its text in hexadecimal digits, by which it is recorded.
    #[must_use]
    pub fn digest(&self) -> String {
        hexadecimal(&Sha256::digest(self.text.as_bytes()))
    }

    /// Returns the revocation ids of its blocks, hexadecimal digits, the first block's first.
    #[must_use]
    pub fn ids(&self) -> Vec<String> {
        let ids = self.biscuit.revocation_identifiers();
        ids.iter().map(|id| hexadecimal(id)).collect()
    }

    /// Returns its blocks, each with its terms.
    ///
    /// # Errors
    /// [`TokenError`]: it cannot be shown.
    pub fn parts(&self) -> Result<Vec<Part>, TokenError> {
        let contexts = self.biscuit.context();
        let all = self.ids().into_iter().zip(contexts).enumerate();
        let part = |(number, (id, context)): (usize, (String, Option<String>))| {
            let source = self.biscuit.print_block_source(number);
            let source = source.map_err(|_| Foreign::Form)?;
            let terms = context.and_then(|words| Terms::parse(&words).ok());
            // Its words are whoever's who wrote it: they count where they come to the same.
            let is_said = |terms: &Terms| {
                let block = match number {
                    0 => terms.first_block(),
                    _ => terms.further_block(),
                };
                block.is_ok_and(|block| source_of(block).as_deref() == Some(&source))
            };
            let terms = terms.filter(is_said);
            Ok(Part { id, terms, source })
        };
        all.map(part).collect()
    }

    /// Returns the ids of its blocks for a single run, whoever has written them: once bound to a
    /// run, each binds every token made from it.
    ///
    /// # Errors
    /// [`TokenError`]: it cannot be told.
    pub fn once(&self) -> Result<Vec<String>, TokenError> {
        let parts = self.parts()?.into_iter();
        let fact = format!("{BOUND_TO_ONE}(");
        let once = parts.filter(|part| part.source.contains(&fact));
        Ok(once.map(|part| part.id).collect())
    }

    /// Returns its end, in seconds since 1970: the earliest in the blocks that Atoll has written.
    ///
    /// # Errors
    /// [`TokenError`]: it cannot be told.
    pub fn end_s(&self) -> Result<Option<u64>, TokenError> {
        let parts = self.parts()?.into_iter();
        let ends = parts.filter_map(|part| part.terms.and_then(|terms| terms.until_s));
        Ok(ends.min())
    }
}

/// Returns a block as Biscuit prints it.
fn source_of(block: BlockBuilder) -> Option<String> {
    let token = Biscuit::builder()
        .merge(block)
        .build(&KeyPair::new())
        .ok()?;
    token.print_block_source(0).ok()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
