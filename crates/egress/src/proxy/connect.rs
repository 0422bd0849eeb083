//! Strict parsing of a CONNECT request (RFC 9110, 9.3.6).

use super::target::{self, Target};

/// The longest head, bytes.
pub(crate) const HEAD_BYTES_MAX: usize = 16 * 1024;
/// The first bytes of such a request.
pub(crate) const BEGINNING: &[u8] = b"CONNECT ";

/// The destination, and the length of the head.
pub(crate) type Head = (Target, usize);

/// Parses the head of a CONNECT request. Returns `None` where more bytes are needed.
///
/// # Errors
/// The reason for which it is malformed or ambiguous.
pub(crate) fn read(bytes: &[u8]) -> Result<Option<Head>, &'static str> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return match bytes.len() {
            0..HEAD_BYTES_MAX => Ok(None),
            _ => Err("its head is too long"),
        };
    };
    if end >= HEAD_BYTES_MAX {
        return Err("its head is too long");
    }
    let head = bytes.get(..end).unwrap_or_default();
    let head = std::str::from_utf8(head).map_err(|_| "its head is no text")?;
    let mut lines = head.split("\r\n");
    let target = first_line(lines.next().unwrap_or_default())?;
    let mut is_named = false;
    for line in lines {
        let (name, value) = field(line)?;
        if name.eq_ignore_ascii_case("host") {
            if is_named {
                return Err("it names more than one host");
            }
            is_named = true;
            if !is_host(value, &target) {
                return Err("its Host is another one than it asks for");
            }
        }
        let has_body = name.eq_ignore_ascii_case("transfer-encoding")
            || name.eq_ignore_ascii_case("content-length") && value != "0";
        if has_body {
            return Err("it has a body");
        }
    }
    Ok(Some((target, end + 4)))
}

/// Parses the first line, `CONNECT host:port HTTP/1.1`.
fn first_line(line: &str) -> Result<Target, &'static str> {
    let mut words = line.split(' ');
    let all = (words.next(), words.next(), words.next(), words.next());
    let (Some("CONNECT"), Some(authority), Some("HTTP/1.1" | "HTTP/1.0"), None) = all else {
        return Err("its first line is none of HTTP/1.1");
    };
    authority_of(authority).ok_or("what it asks for is no host with a port")
}

fn authority_of(text: &str) -> Option<Target> {
    let (host, port) = text.rsplit_once(':')?;
    let (host, port) = (host.parse().ok()?, target::port(port)?);
    Some(Target { host, port })
}

/// Returns whether `Host` names the destination, with its port or without one.
fn is_host(value: &str, target: &Target) -> bool {
    authority_of(value).as_ref() == Some(target) || value.parse().as_ref() == Ok(&target.host)
}

/// Parses a field into its name and value.
fn field(line: &str) -> Result<(&str, &str), &'static str> {
    let (name, value) = line.split_once(':').ok_or("a field of it has no value")?;
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err("the name of a field of it is none");
    }
    let value = value.trim_matches([' ', '\t']);
    match value
        .bytes()
        .all(|byte| byte == b'\t' || !byte.is_ascii_control())
    {
        true => Ok((name, value)),
        false => Err("a field of it holds what is no text"),
    }
}
