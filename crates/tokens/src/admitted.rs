//! Admission of tokens: only those whose evaluation takes bounded time, whatever their Datalog is.
//!
//! A question has one fact of each name, and a block that was appended adds none. So a check has
//! nothing to combine, and takes as long as it is: a token's size is the bound of what it costs.
//! biscuit-auth checks the time between checks alone, not within one, and keeps every text that an
//! operation makes: none may make one. The results of set operations are no longer than the token.
//!
//! Blocks are revoked by their signatures. Those of Ed25519 nobody can change without its key; one
//! of ECDSA has a second form, under which it would not be revoked.

use biscuit_auth::format::schema::op::Content;
use biscuit_auth::format::schema::op_binary::Kind as Binary;
use biscuit_auth::format::schema::op_unary::Kind as Unary;
use biscuit_auth::format::schema::public_key::Algorithm;
use biscuit_auth::format::schema::{Biscuit, Block, Expression, Op, Rule};
use prost::Message as _;

use crate::calls::is_plain;

/// The most predicates in a rule or a check.
const BODY_MAX: usize = 16;
/// The first number of a token's own symbols (Biscuit's specification, "Symbol table").
const OWN_SYMBOLS: u64 = 1024;

/// The reason why a token is refused, though its signature may be good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Foreign {
    /// The text is not a token.
    #[error("it is no Biscuit token")]
    Form,
    /// The token has too many blocks.
    #[error("it has more than {BLOCKS_MAX} blocks")]
    Blocks,
    /// A third party has signed a block.
    #[error("a block of it is signed by a third party, who has no say here")]
    ThirdParty,
    /// A block's signature is of an algorithm under which its revocation id could be changed.
    #[error("a block of it has a key that is not one of Ed25519: it could not be revoked for good")]
    Key,
    /// A block trusts other blocks than the first one.
    #[error("a block of it names whom it trusts: who appends one only narrows")]
    Scopes,
    /// A block states a fact.
    #[error("a block of it states facts: only checks narrow")]
    Facts,
    /// An appended block has a rule.
    #[error("a block that was appended has rules: only checks narrow")]
    Rules,
    /// A rule or a check has too many predicates.
    #[error("a check or rule of it names more than {BODY_MAX} facts at once")]
    Body,
    /// An operation may not end in time.
    #[error("it has a regular expression, a closure, a + or a function of somebody's in it")]
    Operation,
    /// A text would be displayed as another one.
    #[error("it has a quote, a backslash or a control character in a text, or an odd name")]
    Text,
}

/// Checks all of a token's blocks.
pub(crate) fn admit(bytes: &[u8]) -> Result<(), Foreign> {
    let token = Biscuit::decode(bytes).map_err(|_| Foreign::Form)?;
    if token.blocks.len() >= BLOCKS_MAX {
        return Err(Foreign::Blocks);
    }
    let signed = [&token.authority].into_iter().chain(&token.blocks);
    let mut symbols = Vec::new();
    for (number, signed) in signed.enumerate() {
        if signed.external_signature.is_some() {
            return Err(Foreign::ThirdParty);
        }
        if signed.next_key.algorithm != Algorithm::Ed25519 as i32 {
            return Err(Foreign::Key);
        }
        let block = Block::decode(&signed.block[..]).map_err(|_| Foreign::Form)?;
        symbols.extend(block.symbols.iter().cloned());
        if !symbols
            .iter()
            .chain(&block.context)
            .all(|text| is_shown(text))
        {
            return Err(Foreign::Text);
        }
        look(&block, number > 0, &symbols)?;
    }
    Ok(())
}

/// Returns whether a text is displayed as it is: people read a token in lines.
fn is_shown(text: &str) -> bool {
    text.split('\n').all(is_plain)
}

fn look(block: &Block, is_appended: bool, symbols: &[String]) -> Result<(), Foreign> {
    if !block.scope.is_empty() || !block.public_keys.is_empty() {
        return Err(Foreign::Scopes);
    }
    if !block.facts.is_empty() {
        return Err(Foreign::Facts);
    }
    if is_appended && !block.rules.is_empty() {
        return Err(Foreign::Rules);
    }
    let queries = block.checks.iter().flat_map(|check| &check.queries);
    let mut all = block.rules.iter().chain(queries);
    all.try_for_each(|rule| look_at(rule, symbols))
}

fn look_at(rule: &Rule, symbols: &[String]) -> Result<(), Foreign> {
    if !rule.scope.is_empty() {
        return Err(Foreign::Scopes);
    }
    if rule.body.len() > BODY_MAX {
        return Err(Foreign::Body);
    }
    let mut names = [&rule.head].into_iter().chain(&rule.body);
    if !names.all(|one| is_name(one.name, symbols)) {
        return Err(Foreign::Text);
    }
    let mut operations = rule.expressions.iter().flat_map(Expression::operations);
    match operations.all(ends_in_time) {
        true => Ok(()),
        false => Err(Foreign::Operation),
    }
}

/// Returns whether a symbol can name a predicate: a single word, also when displayed.
fn is_name(number: u64, symbols: &[String]) -> bool {
    let Some(own) = number.checked_sub(OWN_SYMBOLS) else {
        return true;
    };
    let own = usize::try_from(own).ok().and_then(|own| symbols.get(own));
    own.is_some_and(|name| {
        let is_of_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        !name.is_empty() && name.bytes().all(is_of_word)
    })
}

/// An expression's operations in order. An expression's operations in order.
trait Operations {
    fn operations(&self) -> &[Op];
}

impl Operations for Expression {
    fn operations(&self) -> &[Op] {
        &self.ops
    }
}

/// Returns whether an operation takes time linear in the length of its operands, and makes nothing
/// longer than the token: `+` joins texts, and a path is as long as its sender likes. False for an
/// operation of an unknown kind.
fn ends_in_time(operation: &Op) -> bool {
    match &operation.content {
        Some(Content::Value(_)) => true,
        Some(Content::Unary(one)) => {
            one.ffi_name.is_none()
                && Unary::from_i32(one.kind).is_some_and(|kind| kind != Unary::Ffi)
        }
        Some(Content::Binary(one)) => {
            let ends = |kind| {
                !matches!(
                    kind,
                    Binary::Regex | Binary::Add | Binary::All | Binary::Any | Binary::Ffi
                )
            };
            one.ffi_name.is_none() && Binary::from_i32(one.kind).is_some_and(ends)
        }
        Some(Content::Closure(_)) | None => false,
    }
}

/// The most blocks in a token.
pub const BLOCKS_MAX: usize = 16;
