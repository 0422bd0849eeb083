//! The tokens of sandboxes, compared and derived.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

/// Returns the token that a sandbox's code interpreter takes besides the access token: E2B's SDK for
/// code makes some of its requests with the one for ports alone.
pub(super) fn code_token(access: &str) -> String {
    // What is signed with the access token begins in another way.
    BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(format!("code\0{access}")))
}

/// Returns whether a token opens the ports at which code is run, and so any port, in the sandbox with
/// this access token.
pub(super) fn opens_services(access: &str, token: &str) -> bool {
    is_equal(token, access) || is_equal(token, &code_token(access))
}

pub(super) fn is_equal(one: &str, other: &str) -> bool {
    Sha256::digest(one.as_bytes()) == Sha256::digest(other.as_bytes())
}
