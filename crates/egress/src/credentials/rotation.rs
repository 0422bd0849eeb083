//! Rotation of `oauth` refresh tokens: an issuer's new one is written back to where the old one
//! came from, before anything of the response is used.
//!
//! The stored token is read anew each time, under its lock: another run may have obtained one
//! meanwhile. If one cannot be written it is kept, and written the next time: the token used for it
//! may be worthless by then.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use atoll_model::network::{
    CredentialName, Ingredient, KeptSaid, KeptToken, OAuthRequest, Renewed,
};
use zeroize::Zeroizing;

use super::fetch::Source;
use super::login::UnwrittenTokens;
use super::oauth::{self, TokenContents};
use super::store_client::{CredentialStoreClient, READING, WRITING};
use super::values::FetchedValue;
use crate::Egress;

/// Requests a token by a refresh token.
///
/// # Errors
/// The reason why there is none, without any secret.
pub(super) async fn fetch(
    egress: &Arc<Egress>,
    index: usize,
    name: &CredentialName,
    source: &Source,
    request: &OAuthRequest,
) -> Result<FetchedValue, String> {
    let store = CredentialStoreClient::of(egress, name, "its refresh token").await?;
    match store.receive(READING).await? {
        KeptSaid::There(there) => {
            use_token(egress, index, source, &there)
                .map_err(|why| format!("its refresh token: {why}"))?;
        }
        // The one that was handed over is all that there is.
        KeptSaid::Unkept(_) => {}
        KeptSaid::Written => return Err(store.unclear()),
        KeptSaid::Unfit(why) => return Err(why),
    }
    // From here on the end of the run waits: what an issuer has given is not lost by it.
    let _open = source.begin(egress).await?;
    let before = source.ingredient(Ingredient::RefreshToken)?;
    let unwritten = source.unwritten();
    let unwritten = unwritten.filter(|one| one.by.as_bytes() == before.expose());
    let given = match unwritten {
        Some(given) => given,
        None => {
            egress.credentials.has_room(index)?;
            let read = oauth::request_token(egress, name, source, request).await?;
            let is_other = |one: &Zeroizing<Vec<u8>>| before.expose() != &one[..];
            if !read.refresh.as_ref().is_some_and(is_other) {
                return Ok(read.fresh);
            }
            let host = &request.token.host;
            unwritten_tokens(egress, index, before.expose(), &read)
                .map_err(|why| format!("{host}: {why}"))?
        }
    };
    let Some(new) = given.renewed.refresh.as_deref().map(KeptToken::new) else {
        return Err(store.unclear());
    };
    let said = match store.send(&new).await {
        Ok(()) => store.receive(WRITING).await,
        Err(why) => Err(why),
    };
    let why = match said {
        // There it is told that it could not be kept.
        Ok(KeptSaid::Written | KeptSaid::Unkept(_)) => {
            use_token(egress, index, source, &new)?;
            return Ok(fresh(&given.renewed));
        }
        Ok(KeptSaid::There(there)) => {
            use_token(egress, index, source, &there)?;
            return Err("somebody has put another refresh token in its place meanwhile, which is used the next time".to_owned());
        }
        Ok(KeptSaid::Unfit(why)) | Err(why) => why,
    };
    source.keep_unwritten(given);
    Err(format!(
        "its new refresh token could not be written back: {why}"
    ))
}

/// Uses this refresh token from here on, if it is another one.
fn use_token(
    egress: &Egress,
    index: usize,
    source: &Source,
    token: &KeptToken,
) -> Result<(), String> {
    let before = source.ingredient(Ingredient::RefreshToken)?;
    if before.expose() == token.text().as_bytes() {
        return Ok(());
    }
    let value = Zeroizing::new(token.text().as_bytes().to_vec());
    egress.credentials.renew(index, source, value)
}

/// Returns the part of an issuer's response that is to be written. All of it must be fit for use.
fn unwritten_tokens(
    egress: &Egress,
    index: usize,
    by: &[u8],
    read: &TokenContents,
) -> Result<UnwrittenTokens, String> {
    let text = |value: &[u8]| {
        let text = std::str::from_utf8(value).map(str::to_owned);
        text.map_err(|_| "its answer has no text in it".to_owned())
    };
    let refresh = read.refresh.as_ref().map(|refresh| {
        let checked = egress.credentials.keep_given(index, refresh);
        checked.map_err(|why| format!("its new refresh token: {why}"))?;
        text(refresh)
    });
    let since = read
        .fresh
        .ends
        .and_then(|ends| ends.duration_since(UNIX_EPOCH).ok());
    Ok(UnwrittenTokens {
        by: Zeroizing::new(text(by)?),
        renewed: Renewed {
            access: text(&read.fresh.value)?,
            refresh: refresh.transpose()?,
            id: None,
            ends_s: since.map(|since| since.as_secs()),
        },
    })
}

fn fresh(given: &Renewed) -> FetchedValue {
    let ends = |seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
    let ends: Option<SystemTime> = given.ends_s.and_then(ends);
    FetchedValue::new(given.access.as_bytes(), ends)
}
