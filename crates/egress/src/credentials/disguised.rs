//! What stands inside for a value that is known.

use atoll_model::network::Others;

use super::{Held, login};
use crate::secret::{self, Masks, Secret};

/// What stands inside for a value, by random numbers that nobody can guess.
///
/// # Errors
/// Why nothing can, in words.
pub fn disguise(real: &[u8]) -> Result<Vec<u8>, String> {
    let mut random = [0; 32];
    aws_lc_rs::rand::fill(&mut random)
        .map_err(|_| "there are no random numbers to make its placeholder of".to_owned())?;
    secret::placeholder(real, &random).map_err(|unfit| unfit.to_string())
}

/// The same for a token that is renewed where it ends: inside, a web token says that it is valid
/// for long. One that an agent takes for ended it would not use.
///
/// # Errors
/// Why nothing can, in words.
pub fn disguise_renewed(real: &[u8]) -> Result<Vec<u8>, String> {
    match login::lasting(real) {
        Some(lasting) => disguise(&lasting),
        None => disguise(real),
    }
}

/// What is shown in the place of a value: its placeholder where that is alike, or else
/// another text, as long as the value.
pub(super) fn standing_for(value: &[u8], placeholder: &[u8]) -> Result<Vec<u8>, String> {
    let other = disguise(value)?;
    let secret = Secret::new(value.to_vec()).map_err(|error| error.to_string())?;
    match Masks::new(vec![(secret, placeholder.to_vec())]) {
        Ok(_) => Ok(placeholder.to_vec()),
        Err(_) => Ok(other),
    }
}

/// What makes other texts of all placeholders, where one of the credentials has that. Where it
/// cannot be made they stop their requests, as elsewhere.
pub(super) fn others(held: &[Held]) -> Option<Masks> {
    let is_masked = |one: &Held| one.binding.others == Others::Masked;
    if !held.iter().any(is_masked) {
        return None;
    }
    let mut pairs = Vec::with_capacity(held.len());
    for one in held {
        let placeholder = one.placeholder.as_bytes();
        let other = disguise(placeholder).ok()?;
        pairs.push((Secret::new(placeholder.to_vec()).ok()?, other));
    }
    Masks::new(pairs).ok()
}
