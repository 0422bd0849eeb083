//! Addresses beneath others: read once, by the rules of browsers (the URL Standard), compared and
//! sent in one form.

use percent_encoding::percent_decode_str;
use url::Url;

use crate::openapi::check_segments;

/// The longest address, bytes.
const URL_BYTES_MAX: usize = 16 << 10;
/// The schemes that an address may have.
const SCHEMES: [&str; 4] = ["https", "http", "wss", "ws"];

/// Reads an address that others are to be beneath.
pub(super) fn allowed(text: &str) -> Result<Url, String> {
    let url = normal(text)?;
    match url.query().is_none() && url.fragment().is_none() {
        true => Ok(url),
        false => Err(format!("{text:?} is a place with a query or fragment")),
    }
}

/// Writes an address in its form, if it is beneath one of those allowed.
pub(super) fn confined(text: &str, allowed: &[Url]) -> Result<String, String> {
    let url = normal(text)?;
    if allowed.iter().any(|one| is_beneath(&url, one)) {
        return Ok(url.into());
    }
    let allowed: Vec<&str> = allowed.iter().map(Url::as_str).collect();
    Err(format!("\"{url}\" is not beneath {}", allowed.join(" or ")))
}

/// Reads an address, and refuses one that two readers could take for different ones.
fn normal(text: &str) -> Result<Url, String> {
    if text.len() > URL_BYTES_MAX {
        return Err(format!("it is longer than {URL_BYTES_MAX} bytes"));
    }
    let mut url = Url::parse(text).map_err(|error| format!("it is no address: {error}"))?;
    if !SCHEMES.contains(&url.scheme()) {
        return Err(format!(
            "{:?} is none of {}",
            url.scheme(),
            SCHEMES.join(", ")
        ));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("it has a user's name or password".to_owned());
    }
    // Some programs take a backslash for the end of a host, others do not.
    if text.contains('\\') {
        return Err("it has a backslash".to_owned());
    }
    let path = normal_path(url.path())?;
    url.set_path(&path);
    check_segments(url.path())?;
    Ok(url)
}

/// Writes a path with no more escapes than it needs (RFC 3986, 6.2.2).
fn normal_path(path: &str) -> Result<String, String> {
    let mut pieces = path.split('%');
    let mut written = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let is_escape = |code: &&str| code.bytes().all(|byte| byte.is_ascii_hexdigit());
        let code = piece.get(..2).filter(is_escape);
        let code = code.ok_or("its path has a % that escapes nothing")?;
        let escape = format!("%{}", code.to_ascii_uppercase());
        let byte = percent_decode_str(&escape).next().unwrap_or_default();
        match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            true => written.push(char::from(byte)),
            false => written.push_str(&escape),
        }
        written.push_str(piece.get(2..).unwrap_or_default());
    }
    Ok(written)
}

fn is_beneath(url: &Url, allowed: &Url) -> bool {
    let is_there = url.scheme() == allowed.scheme()
        && url.host() == allowed.host()
        && url.port_or_known_default() == allowed.port_or_known_default();
    let after = url.path().strip_prefix(allowed.path());
    // A prefix ends where a segment does.
    let is_within =
        |after: &str| after.is_empty() || after.starts_with('/') || allowed.path().ends_with('/');
    is_there && after.is_some_and(is_within)
}
