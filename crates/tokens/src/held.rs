//! The tokens that a run holds, on their way to its egress process.

use atoll_model::SessionName;
use atoll_model::network::{Look, Scheme};
use biscuit_auth::builder::Policy;
use serde::{Deserialize, Serialize};

use crate::key::PublicKey;
use crate::question::{Asked, Holder, NOT_CARRIED, carries};
use crate::right::Right;
use crate::terms::told_time;
use crate::token::{TOKEN_BYTES_MAX, Token, TokenError};

/// The most tokens that a run holds.
pub const HELD_MAX: usize = 4;
/// The longest serialized form, bytes.
pub const HANDED_BYTES_MAX: usize = HELD_MAX * TOKEN_BYTES_MAX + (16 << 10);

/// The session or workspace that a token is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// In runs of this session.
    Session(SessionName),
    /// In runs in this workspace: its real path.
    Workspace(String),
}

/// The serialized form.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SerializedTokens {
    key: PublicKey,
    tokens: Vec<String>,
    holder: Holder,
}

/// All tokens of a run: a question is allowed only if every one of them carries it.
#[derive(Clone, Debug)]
pub struct Held {
    key: PublicKey,
    /// The tokens, each with its end, if Atoll knows of one.
    tokens: Vec<(Token, Option<u64>)>,
    holder: Holder,
    carried: Policy,
}

impl Held {
    /// Reads the tokens that a run is given.
    ///
    /// # Errors
    /// [`TokenError`], of the first one that is none.
    pub fn new(key: PublicKey, texts: &[String], holder: Holder) -> Result<Self, TokenError> {
        if texts.len() > HELD_MAX {
            return Err(TokenError::Unmade(format!(
                "a run holds at most {HELD_MAX} tokens"
            )));
        }
        let read = |text: &String| {
            let token = Token::read(text, key)?;
            let end = token.end_s()?;
            Ok((token, end))
        };
        let tokens = texts.iter().map(read).collect::<Result<_, TokenError>>()?;
        let carried: Policy = "allow if carried(true)"
            .try_into()
            .map_err(|error: biscuit_auth::error::Token| TokenError::Unmade(error.to_string()))?;
        Ok(Self {
            key,
            tokens,
            holder,
            carried,
        })
    }

    /// Records that tokens for a single run are bound to the holder's.
    pub fn bind(&mut self) {
        self.holder.is_bound = true;
    }

    /// Serializes the tokens for [`take`](Self::take).
    ///
    /// # Errors
    /// Why not.
    pub fn hand(&self) -> Result<Vec<u8>, String> {
        let tokens = self.tokens.iter().map(|(token, _)| token.text().to_owned());
        let handed = SerializedTokens {
            key: self.key,
            tokens: tokens.collect(),
            holder: self.holder.clone(),
        };
        serde_json::to_vec(&handed).map_err(|error| error.to_string())
    }

    /// Parses the output of [`hand`](Self::hand). `None` where it is something else.
    #[must_use]
    pub fn take(written: &[u8]) -> Option<Self> {
        let handed: SerializedTokens = serde_json::from_slice(written).ok()?;
        Self::new(handed.key, &handed.tokens, handed.holder).ok()
    }

    /// Returns the tokens.
    pub fn tokens(&self) -> impl Iterator<Item = &Token> {
        self.tokens.iter().map(|(token, _)| token)
    }

    /// Returns the earliest of their ends that Atoll knows of, in seconds since 1970.
    #[must_use]
    pub fn end_s(&self) -> Option<u64> {
        self.tokens.iter().filter_map(|(_, end)| *end).min()
    }

    /// Checks that all of them carry this at a time, in seconds since 1970.
    ///
    /// # Errors
    /// Why they do not, in words.
    pub fn carry(&self, asked: Asked<'_>, now_s: u64) -> Result<(), String> {
        let carries = |token: &Token, asked: Asked<'_>| {
            carries(&token.biscuit, &self.carried, asked, &self.holder, now_s)
        };
        for (token, end) in &self.tokens {
            if !carries(token, asked) {
                let ended = end.filter(|end| *end <= now_s).and_then(told_time);
                let unseen = unseen(asked).filter(|(into, _)| carries(token, *into));
                return Err(match (ended, unseen) {
                    (Some(end), _) => format!("{NOT_CARRIED}: it has ended, at {end}"),
                    (None, Some((_, why))) => format!("{NOT_CARRIED}: {why}"),
                    (None, None) => NOT_CARRIED.to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Returns whether each of them may carry some call of a tool, by what Atoll has written in it.
    #[must_use]
    pub fn may_call(&self, tool: &str) -> bool {
        let has = |right: &Right| matches!(right, Right::Call(calls) if calls.has(tool));
        self.tokens().all(|token| {
            let parts = token.parts().unwrap_or_default();
            let terms = parts.iter().filter_map(|part| part.terms.as_ref());
            let mut named = terms.filter(|terms| !terms.rights.is_empty());
            named.all(|terms| terms.rights.iter().any(has))
        })
    }

    /// Returns a session or workspace that a token is bound to and that is not the holder's: such a
    /// token carries nothing here.
    #[must_use]
    pub fn stray(&self) -> Option<Bound> {
        let own = &self.holder;
        let parts = self.tokens().filter_map(|token| token.parts().ok());
        let mut terms = parts.flatten().filter_map(|part| part.terms);
        terms.find_map(|terms| {
            let session = terms
                .session
                .filter(|one| own.session.as_ref() != Some(one));
            let workspace = terms.workspace.filter(|path| *path != own.workspace);
            session
                .map(Bound::Session)
                .or(workspace.map(Bound::Workspace))
        })
    }
}

/// For a tunnel that is not inspected: returns the same connection with its requests judged, and
/// the explanation for the case that this one would be carried.
fn unseen(asked: Asked<'_>) -> Option<(Asked<'_>, String)> {
    let (host, port) = match asked {
        Asked::Connect {
            host,
            port,
            look: Look::Past,
        } => (host, port),
        Asked::Connect {
            look: Look::Into, ..
        }
        | Asked::Resolve(_)
        | Asked::Request(_)
        | Asked::UseCredential(_)
        | Asked::Publish(_)
        | Asked::Call { .. } => return None,
    };
    let url = match [Scheme::Http, Scheme::Https].map(|one| (one, one.port() == port)) {
        [(scheme, true), _] | [_, (scheme, true)] => format!("{scheme}://{host}"),
        [(scheme, false), (_, false)] => format!("{scheme}://{host}:{port}"),
    };
    let into = Asked::Connect {
        host,
        port,
        look: Look::Into,
    };
    let why = format!(
        "it carries requests there, and this connection is carried unseen: --allow '{url}' has \
         them looked at"
    );
    Some((into, why))
}
