//! Placeholders for values that are not known yet.

use std::io;

use atoll_model::network::{Part, SHAPE_HOLE, Shape};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::checksum;

const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
/// The kinds whose last six digits are a checksum if they have this length, bytes.
const CHECKED: &[&[u8]] = &[b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_", b"npm_"];
const CHECKED_BYTES: usize = 40;
/// The number of random letters in the claims and in the signature of a token.
const CLAIMS_LETTERS: usize = 24;
const SIGNATURE_LETTERS: usize = 44;
/// The times of validity that such a token states (RFC 7519, 4.1), for programs that look before
/// they send it: 2000 and 2100, in seconds since 1970.
const ISSUED_S: u64 = 946_684_800;
const ENDS_S: u64 = 4_102_444_800;

/// The id of a temporary AWS key: its prefix ("Unique identifiers" in the user guide of AWS's IAM),
/// and the alphabet and length of the rest, 80 bits.
const ID_KIND: &str = "ASIA";
const ID_LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const ID_RANDOM: usize = 16;
/// The length of its secret, bytes.
const SECRET_BYTES: usize = 40;
/// The prefix of its session token, and the number of letters after it: programs do not parse it.
const TOKEN_KIND: &str = "IQoJb3JpZ2luX2Vj";
const TOKEN_LETTERS: usize = 240;

/// Makes placeholders for a signing key that is not known yet: for each of its values, as it may
/// have a session token.
///
/// # Errors
/// A failure of the random number generator.
pub fn key() -> io::Result<[(Part, String); 3]> {
    let id = format!("{ID_KIND}{}", drawn(ID_LETTERS, ID_RANDOM)?);
    let token = format!("{TOKEN_KIND}{}", letters(TOKEN_LETTERS)?);
    Ok([
        (Part::KeyId, id),
        (Part::Secret, letters(SECRET_BYTES)?),
        (Part::Token, token),
    ])
}

/// Makes a text of a shape, with other letters each time.
///
/// # Errors
/// A failure of the random number generator.
pub fn text_of(shape: &Shape) -> io::Result<String> {
    let made = match shape {
        Shape::Text(text) => of_text(text)?,
        Shape::WebToken => {
            let header = URL_SAFE_NO_PAD.encode(br#"{"alg":"RS256","typ":"JWT"}"#);
            let claims = format!(
                "{{\"jti\":\"{}\",\"iat\":{ISSUED_S},\"exp\":{ENDS_S}}}",
                letters(CLAIMS_LETTERS)?
            );
            let claims = URL_SAFE_NO_PAD.encode(claims);
            format!("{header}.{claims}.{}", letters(SIGNATURE_LETTERS)?)
        }
    };
    Ok(made)
}

fn of_text(text: &str) -> io::Result<String> {
    let mut random = letters(text.len())?.into_bytes().into_iter();
    let filled = text.bytes().map(|byte| match char::from(byte) {
        SHAPE_HOLE => random.next().unwrap_or_default(),
        _ => byte,
    });
    let mut made: Vec<u8> = filled.collect();
    let kind = CHECKED
        .iter()
        .find(|kind| text.as_bytes().starts_with(kind));
    let holes = text.matches(SHAPE_HOLE).count();
    if let Some(kind) = kind
        && made.len() == CHECKED_BYTES
        && holes == CHECKED_BYTES - kind.len()
    {
        made.truncate(CHECKED_BYTES - checksum::BYTES);
        let digits = checksum::of(made.get(kind.len()..).unwrap_or_default());
        made.extend_from_slice(&digits);
    }
    String::from_utf8(made).map_err(io::Error::other)
}

/// Returns this many random letters and digits.
fn letters(count: usize) -> io::Result<String> {
    drawn(LETTERS, count)
}

/// Draws this many of these, each as likely.
fn drawn(from: &[u8], count: usize) -> io::Result<String> {
    let mut made = String::with_capacity(count);
    let mut random = [0; 64];
    // What is left of 256 would make some of them likelier.
    let fair = 256 / from.len() * from.len();
    while made.len() < count {
        aws_lc_rs::rand::fill(&mut random)
            .map_err(|_| io::Error::other("there are no random numbers"))?;
        let drawn = random.iter().map(|byte| usize::from(*byte));
        let drawn = drawn.filter(|byte| *byte < fair);
        let drawn = drawn.filter_map(|byte| from.get(byte % from.len()));
        made.extend(drawn.take(count - made.len()).copied().map(char::from));
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_placeholders_have_shape_of_temporary_key() {
        let [one, other] = [0; 2].map(|_| key().unwrap());
        let parts = one.iter().map(|(part, _)| *part).collect::<Vec<_>>();
        assert_eq!(parts, [Part::KeyId, Part::Secret, Part::Token]);
        let [(_, id), (_, secret), (_, token)] = &one;
        let is_of_id = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
        assert!(id.starts_with("ASIA") && id.len() == 20, "{id}");
        assert!(id.bytes().all(is_of_id), "{id}");
        assert_eq!(secret.len(), 40);
        assert!(token.starts_with("IQoJ") && token.len() == 256, "{token}");
        for ((_, one), (_, other)) in one.iter().zip(&other) {
            assert_ne!(one, other);
            assert!(crate::secret::Secret::new(one.clone().into_bytes()).is_ok());
        }
    }

    #[test]
    fn unknown_value_placeholder_has_shape_and_differs() {
        for text in [
            "*".repeat(40),
            format!("ghs_{}", "*".repeat(36)),
            "a-b.************~".to_owned(),
        ] {
            let shape: Shape = text.parse().unwrap();
            let [one, other] = [0; 2].map(|_| text_of(&shape).unwrap());
            assert_ne!(one, other);
            assert_eq!(one.len(), text.len());
            let is_alike = |(wanted, byte): (u8, u8)| match wanted {
                b'*' => byte.is_ascii_alphanumeric(),
                _ => byte == wanted,
            };
            assert!(text.bytes().zip(one.bytes()).all(is_alike), "{one}");
        }
        let made = text_of(&format!("ghs_{}", "*".repeat(36)).parse().unwrap()).unwrap();
        let (body, digits) = made.as_bytes().split_at(34);
        assert_eq!(checksum::of(&body[4..]), digits);
        let token = text_of(&Shape::WebToken).unwrap();
        let parts: Vec<Vec<u8>> = token
            .split('.')
            .map(|part| URL_SAFE_NO_PAD.decode(part).unwrap())
            .collect();
        assert_eq!(parts.len(), 3);
        let claims: serde_json::Value = serde_json::from_slice(&parts[1]).unwrap();
        assert!(claims["jti"].is_string());
        assert!(claims["exp"].as_u64() > Some(4_000_000_000) && claims["iat"].is_u64());
        let header: serde_json::Value = serde_json::from_slice(&parts[0]).unwrap();
        assert_eq!(
            (&header["alg"], &header["typ"]),
            (&"RS256".into(), &"JWT".into())
        );
    }
}
