//! Placeholders: values of a secret's shape that open nothing.
//!
//! Programs look at their credentials before they use them, so a placeholder has the secret's
//! length, the prefix of its kind, the same marks at the same places, letters and digits of the
//! same kinds, and the checksum of tokens of GitHub and npm. A JSON Web Token keeps its header, and
//! of its claims the times of validity; the others are left out. Keys in PEM keep their frame and
//! their lines: what is within is no key, and a program that reads it will say so.
//!
//! All else is random, at least [`ROOM_BITS_MIN`] bits of it. So the chance that any one of 200
//! placeholders occurs by accident at any place, in any form, in 2^40 bytes (1 TiB) not written for
//! that purpose is below 2^-13, and for secrets of letters of both cases and digits, which have at
//! least 95 bits, below 2^-44.

use atoll_model::SECRET_KINDS;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::mask::is_escaped;
use super::{BYTES_MAX, BYTES_MIN, checksum, patterns};

/// The least randomness of a placeholder, bits.
const ROOM_BITS_MIN: f64 = 64.0;
/// The shortest run of a secret's bytes that never occurs in its placeholder.
const COMMON_BYTES: usize = 4;
/// The most draws of one letter.
const TRIES_MAX: usize = 256;
/// The shortest number within a secret with other letters that is kept a number, bytes.
const NUMBER_BYTES_MIN: usize = 6;

/// The kinds whose last six digits are a checksum.
const CHECKED: &[&str] = &["ghp_", "gho_", "ghu_", "ghs_", "ghr_", "npm_"];

/// The reason why a secret cannot have a placeholder.
#[derive(Debug, thiserror::Error)]
pub enum PlaceholderError {
    /// The secret is too short.
    #[error(
        "the secret is shorter than {BYTES_MIN} bytes, so it could be guessed and could stand anywhere by accident; make a longer one"
    )]
    Short,
    /// The secret is too long.
    #[error("the secret is longer than {BYTES_MAX} bytes; nothing that long is searched for")]
    Long,
    /// The secret is not text.
    #[error(
        "the secret has bytes other than printable ASCII and line breaks, which cannot be sent by HTTP; encode it, in base64 for example"
    )]
    Bytes,
    /// Too little of the value is secret.
    #[error(
        "the secret has too few letters and digits besides the prefix of its kind: it takes at least 64 bits, such as 11 letters and digits or 16 hexadecimal digits, and 16 bytes in all; make a longer one"
    )]
    Guessable,
    /// The secret has too few letters among marks.
    #[error(
        "the secret has no part without percent signs, backslashes, spaces and rows of marks by which it could be found; make one of letters and digits"
    )]
    Marks,
    /// Too many secrets.
    #[error("there are more secrets than can be searched for")]
    Many,
    /// A placeholder does not match its secret.
    #[error("what stands for a secret is not of its shape, or contains a secret; make another one")]
    Unlike,
    /// The secret cannot be locked in memory.
    #[error(
        "the secret cannot be kept from being swapped out: {0}; raise the limit of locked memory (ulimit -l)"
    )]
    Memory(std::io::Error),
}

/// Makes the placeholder of a secret. It depends on these random bytes alone, which must differ for
/// each secret.
///
/// # Errors
/// [`PlaceholderError`]: it cannot have one.
pub fn placeholder(real: &[u8], random: &[u8; 32]) -> Result<Vec<u8>, PlaceholderError> {
    if real.len() > BYTES_MAX {
        return Err(PlaceholderError::Long);
    }
    let is_text = |byte: &u8| matches!(byte, b' '..=b'~' | b'\n' | b'\r');
    if !real.iter().all(is_text) {
        return Err(PlaceholderError::Bytes);
    }
    let mut lines = patterns::lines(real).peekable();
    lines.peek().ok_or(PlaceholderError::Short)?;
    if !lines.all(|line| real.get(line).is_some_and(patterns::can_be_found)) {
        return Err(PlaceholderError::Marks);
    }
    let mut draw = RandomBytes::new(random);
    if let Some(token) = WebToken::read(real) {
        return token.placeholder(&mut draw);
    }
    let (prefix, rest) = real.split_at(prefix_bytes(real).min(real.len()));
    let mut made = prefix.to_vec();
    let checked = checked_bytes(prefix, rest);
    made.extend(filled(checked.unwrap_or(rest), &mut draw)?);
    if checked.is_some() {
        let digits = checksum::of(made.get(prefix.len()..).unwrap_or_default());
        made.extend_from_slice(&digits);
    }
    Ok(made)
}

/// Returns the length of the prefix that shows only a secret's kind, bytes.
pub(super) fn prefix_bytes(value: &[u8]) -> usize {
    if let Some(token) = WebToken::read(value) {
        return token.header.len() + 1;
    }
    let mut known = SECRET_KINDS.iter();
    let kind = known.find(|kind| value.starts_with(kind.prefix.as_bytes()));
    kind.map_or(0, |kind| kind.prefix.len())
}

/// Returns whether a line is the frame of a key in PEM.
pub(super) fn is_frame(line: &[u8]) -> bool {
    line.starts_with(b"-----") && line.ends_with(b"-----")
}

/// Returns the bytes covered by the checksum, if there is one at the end.
fn checked_bytes<'a>(prefix: &[u8], rest: &'a [u8]) -> Option<&'a [u8]> {
    let is_kind = CHECKED.iter().any(|kind| kind.as_bytes() == prefix);
    let (checked, digits) = rest.split_at_checked(rest.len().checked_sub(checksum::BYTES)?)?;
    (is_kind && checksum::of(checked) == digits).then_some(checked)
}

/// A source of random bytes.
struct RandomBytes {
    random: [u8; 32],
    block: u64,
    left: Vec<u8>,
}

impl RandomBytes {
    fn new(random: &[u8; 32]) -> Self {
        Self {
            random: *random,
            block: 0,
            left: Vec::new(),
        }
    }

    fn byte(&mut self) -> u8 {
        loop {
            if let Some(byte) = self.left.pop() {
                return byte;
            }
            let block = Sha256::new().chain_update(b"atoll placeholder");
            let block = block
                .chain_update(self.random)
                .chain_update(self.block.to_le_bytes());
            self.left = block.finalize().to_vec();
            self.block += 1;
        }
    }

    /// Draws one of these, each as likely.
    fn of(&mut self, letters: &[u8]) -> u8 {
        loop {
            // What is left of 256 would make some of them likelier.
            let byte = usize::from(self.byte());
            if byte < 256 / letters.len().max(1) * letters.len() {
                return letters.get(byte % letters.len()).copied().unwrap_or(b'0');
            }
            if letters.is_empty() {
                return b'0';
            }
        }
    }
}

/// Returns the alphabet of a secret.
fn letters(secret: &[u8]) -> Vec<u8> {
    let any = |kind: fn(&u8) -> bool| secret.iter().any(kind);
    let (digits, lower) = (any(u8::is_ascii_digit), any(u8::is_ascii_lowercase));
    let upper = any(u8::is_ascii_uppercase);
    let mut alphanumeric = secret.iter().filter(|byte| byte.is_ascii_alphanumeric());
    let is_hexadecimal = digits && !(lower && upper) && alphanumeric.all(u8::is_ascii_hexdigit);
    let last = |last: u8, of_digits: u8| if is_hexadecimal { of_digits } else { last };
    let mut letters = Vec::new();
    if digits {
        letters.extend(b'0'..=b'9');
    }
    if lower {
        letters.extend(b'a'..=last(b'z', b'f'));
    }
    if upper {
        letters.extend(b'A'..=last(b'Z', b'F'));
    }
    letters
}

/// Replaces the letters of a secret by random ones.
fn filled(secret: &[u8], draw: &mut RandomBytes) -> Result<Vec<u8>, PlaceholderError> {
    let all = letters(secret);
    let parts = secret.windows(COMMON_BYTES).filter_map(<[u8]>::first_chunk);
    let mut parts: Zeroizing<Vec<[u8; COMMON_BYTES]>> = Zeroizing::new(parts.copied().collect());
    parts.sort_unstable();
    let mut made: Vec<u8> = Vec::with_capacity(secret.len());
    let mut room_bits = 0.0;
    for line in secret.split_inclusive(|byte| *byte == b'\n') {
        if is_frame(line.trim_ascii_end()) {
            made.extend_from_slice(line);
            continue;
        }
        for (place, byte) in line.iter().enumerate() {
            let row = line.get(..=place).unwrap_or_default().iter().rev();
            let row = row.take_while(|byte| byte.is_ascii_punctuation() || **byte == b' ');
            let is_kept = !byte.is_ascii_alphanumeric() && row.count() % COMMON_BYTES != 0;
            if is_kept || matches!(byte, b'\n' | b'\r') {
                made.push(*byte);
                continue;
            }
            if is_escaped(*byte) {
                return Err(PlaceholderError::Marks);
            }
            let letters = if is_of_number(line, place) {
                b"0123456789"
            } else {
                &all[..]
            };
            made.push(drawn(letters, &parts, &made, draw)?);
            room_bits += (letters.len() as f64).log2();
        }
    }
    if room_bits < ROOM_BITS_MIN {
        return Err(PlaceholderError::Guessable);
    }
    Ok(made)
}

/// Draws a letter that, with those before it, is no part of the secret.
fn drawn(
    letters: &[u8],
    parts: &[[u8; COMMON_BYTES]],
    made: &[u8],
    draw: &mut RandomBytes,
) -> Result<u8, PlaceholderError> {
    let before = made
        .len()
        .checked_sub(COMMON_BYTES - 1)
        .and_then(|from| made.get(from..));
    for _ in 0..TRIES_MAX {
        let letter = draw.of(letters);
        let is_part = before.is_some_and(|before| {
            let mut part = [letter; COMMON_BYTES];
            part.iter_mut()
                .zip(before)
                .for_each(|(byte, own)| *byte = *own);
            parts.binary_search(&part).is_ok()
        });
        if !is_part {
            return Ok(letter);
        }
    }
    Err(PlaceholderError::Guessable)
}

/// Returns whether a digit is of a longer number, as in the tokens of Slack.
fn is_of_number(line: &[u8], place: usize) -> bool {
    let is_digit = |byte: &&u8| byte.is_ascii_digit();
    let (before, after) = line.split_at(place.min(line.len()));
    let is_number = |byte: Option<&u8>| byte.is_none_or(|byte| !byte.is_ascii_alphanumeric());
    let back = before.iter().rev().take_while(is_digit).count();
    let on = after.iter().take_while(is_digit).count();
    let ends = before.iter().rev().nth(back);
    on > 0 && back + on >= NUMBER_BYTES_MIN && is_number(ends) && is_number(after.get(on))
}

/// A signed JSON Web Token (RFC 7519).
struct WebToken<'a> {
    header: &'a [u8],
    claims: &'a [u8],
    signature: &'a [u8],
}

impl<'a> WebToken<'a> {
    fn read(value: &'a [u8]) -> Option<Self> {
        // Nothing else begins like an object in base64.
        if !value.starts_with(b"eyJ") {
            return None;
        }
        let mut parts = value.split(|byte| *byte == b'.');
        let (header, claims, signature) = (parts.next()?, parts.next()?, parts.next()?);
        let decoded = URL_SAFE_NO_PAD.decode(header).ok()?;
        let object: Map<String, Value> = serde_json::from_slice(&decoded).ok()?;
        let is_token = object.contains_key("alg") && parts.next().is_none();
        is_token.then_some(Self {
            header,
            claims,
            signature,
        })
    }

    fn placeholder(&self, draw: &mut RandomBytes) -> Result<Vec<u8>, PlaceholderError> {
        let claims = Zeroizing::new(URL_SAFE_NO_PAD.decode(self.claims).unwrap_or_default());
        let known: Map<String, Value> = serde_json::from_slice(&claims).unwrap_or_default();
        let claims = URL_SAFE_NO_PAD.encode(write_claims(&known, claims.len(), draw));
        let signature = filled(self.signature, draw)?;
        let made = [self.header, claims.as_bytes(), &signature].join(&b'.');
        let length = self.header.len() + self.claims.len() + self.signature.len() + 2;
        if made.len() == length {
            Ok(made)
        } else {
            Err(PlaceholderError::Bytes)
        }
    }
}

/// Writes claims of this length: the times of validity, and a filler.
fn write_claims(known: &Map<String, Value>, bytes: usize, draw: &mut RandomBytes) -> Vec<u8> {
    let mut text = "{".to_owned();
    let end = "\"jti\":\"\"}".len();
    for name in ["exp", "iat", "nbf"] {
        let Some(time) = known.get(name).and_then(Value::as_u64) else {
            continue;
        };
        let claim = format!("\"{name}\":{time},");
        if text.len() + claim.len() + end <= bytes {
            text += &claim;
        }
    }
    if text.len() + end <= bytes {
        text += "\"jti\":\"";
        while text.len() + 2 < bytes {
            text.push(char::from(draw.of(b"abcdefghijklmnopqrstuvwxyz0123456789")));
        }
        text += "\"}";
    } else {
        text.push('}');
    }
    let mut text = text.into_bytes();
    text.resize(bytes, b' ');
    text
}

/// Makes the placeholder of a value, with unguessable random numbers.
///
/// # Errors
/// The reason why it cannot have one, in words.
pub fn make_placeholder(real: &[u8]) -> Result<Vec<u8>, String> {
    let mut random = [0; 32];
    aws_lc_rs::rand::fill(&mut random)
        .map_err(|_| "there are no random numbers to make its placeholder of".to_owned())?;
    placeholder(real, &random).map_err(|unfit| unfit.to_string())
}
