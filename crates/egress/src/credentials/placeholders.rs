//! Placeholders of known values.

use atoll_model::network::Others;

use super::{CredentialPart, login};
use crate::secret::{Masks, Secret, make_placeholder};

/// Makes the placeholder of a token that is refreshed when it expires: in the sandbox, a web token
/// claims a long validity, since an agent would not use one that looks expired.
///
/// # Errors
/// The reason why it cannot have one, in words.
pub fn make_renewed_placeholder(real: &[u8]) -> Result<Vec<u8>, String> {
    match login::lasting(real) {
        Some(lasting) => make_placeholder(&lasting),
        None => make_placeholder(real),
    }
}

/// Returns the replacement of a value in responses: its placeholder if that is alike, or else
/// another text of the value's length.
pub(super) fn standing_for(value: &[u8], placeholder: &[u8]) -> Result<Vec<u8>, String> {
    let other = make_placeholder(value)?;
    let secret = Secret::new(value.to_vec()).map_err(|error| error.to_string())?;
    match Masks::new(vec![(secret, placeholder.to_vec())]) {
        Ok(_) => Ok(placeholder.to_vec()),
        Err(_) => Ok(other),
    }
}

/// Builds the masks that replace all placeholders by other texts, if one of the credentials
/// requires that. If they cannot be built, placeholders stop their requests as elsewhere.
pub(super) fn others(held: &[CredentialPart]) -> Option<Masks> {
    let is_masked = |one: &CredentialPart| one.binding.others == Others::Masked;
    if !held.iter().any(is_masked) {
        return None;
    }
    let mut pairs = Vec::with_capacity(held.len());
    for one in held {
        let placeholder = one.placeholder.as_bytes();
        let other = make_placeholder(placeholder).ok()?;
        pairs.push((Secret::new(placeholder.to_vec()).ok()?, other));
    }
    Masks::new(pairs).ok()
}
