//! Placeholders of each kind of secret.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use proptest::prelude::*;
use serde_json::Value;

use super::super::{PlaceholderError, placeholder};

fn made(real: &str) -> String {
    String::from_utf8(placeholder(real.as_bytes(), &[42; 32]).unwrap()).unwrap()
}

fn parts(secret: &str) -> Vec<&[u8]> {
    secret.as_bytes().windows(4).collect()
}

#[test]
fn placeholder_keeps_shape_of_each_kind() {
    let kinds = [
        ("sk-ant-api03-", "Xk29fLq7ZpW3vB8nRt5Y-hJ4_mC6dSgAAA"),
        ("sk-proj-", "Xk29fLq7ZpW3vB8nRt5YhJ4mC6dSg"),
        ("sk-", "1234567890abcdef1234567890abcdef"),
        ("ghp_", "Xk29fLq7ZpW3vB8nRt5YhJ4mC6dSg1abcdef"),
        (
            "github_pat_",
            "11ABCDEFG0Xk29fLq7ZpW3_vB8nRt5YhJ4mC6dSgXk29fLq7ZpW3vB8nRt5YhJ4mC6dSgXk29fLq7ZpW3vB8n",
        ),
        ("glpat-", "Xk29fLq7ZpW3vB8nRt5Y"),
        ("AKIA", "IOSFODNN7EXAMPLE"),
        (
            "xoxb-",
            "123456789012-987654321098-Xk29fLq7ZpW3vB8nRt5YhJ4m",
        ),
        ("", "0f8fad5b-d9cb-469f-a165-70867728950e"),
        ("", "correcthorsebatterystaple"),
        ("", "p4ss.word/with:marks=and~more+"),
    ];
    for (prefix, secret) in kinds {
        let real = format!("{prefix}{secret}");
        let made = made(&real);
        assert_eq!(made.len(), real.len());
        assert!(made.starts_with(prefix), "{made}");
        for (own, other) in real.chars().zip(made.chars()) {
            assert_eq!(
                own.is_ascii_alphanumeric(),
                other.is_ascii_alphanumeric(),
                "{made}"
            );
            let is_hexadecimal = secret
                .chars()
                .all(|letter| letter.is_ascii_hexdigit() || letter == '-');
            assert!(
                !is_hexadecimal
                    || other.is_ascii_hexdigit()
                    || other == '-'
                    || made.starts_with("sk-")
            );
        }
        assert_eq!(
            real.chars().any(|one| one.is_ascii_uppercase()),
            made.chars().any(|one| one.is_ascii_uppercase())
        );
        let kept = &made[prefix.len()..];
        assert!(
            parts(secret).iter().all(|part| !parts(kept).contains(part)),
            "{made}"
        );
        // The same for the same, another one for others.
        assert_eq!(
            placeholder(real.as_bytes(), &[42; 32]).unwrap(),
            made.as_bytes()
        );
        assert_ne!(
            placeholder(real.as_bytes(), &[43; 32]).unwrap(),
            made.as_bytes()
        );
    }
    let slack = made("xoxb-123456789012-987654321098-Xk29fLq7ZpW3vB8nRt5YhJ4m");
    let mut numbers = slack.split('-').skip(1);
    assert!(
        numbers
            .next()
            .unwrap()
            .bytes()
            .all(|byte| byte.is_ascii_digit())
    );
}

#[test]
fn placeholder_checksum_is_valid() {
    // A revoked token that GitHub's own description of the format has.
    let known = "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";
    let (checked, digits) = known["ghp_".len()..].split_at(30);
    assert_eq!(
        super::super::checksum::of(checked.as_bytes()),
        digits.as_bytes()
    );
    let made = made(known);
    let (checked, digits) = made["ghp_".len()..].split_at(30);
    assert_eq!(
        super::super::checksum::of(checked.as_bytes()),
        digits.as_bytes()
    );
    assert_ne!(made, known);
}

#[test]
fn placeholder_web_token_keeps_only_expiry() {
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"RS256","kid":"one","typ":"JWT"}"#);
    let claims =
        r#"{"sub":"someone@example.com","exp":1893456000,"iat":1890000000,"scope":"everything"}"#;
    let signature = "Xk29fLq7ZpW3vB8nRt5Y-hJ4_mC6dSgA";
    let real = format!("{header}.{}.{signature}", URL_SAFE_NO_PAD.encode(claims));
    let made = made(&real);
    let parts: Vec<&str> = made.split('.').collect();
    assert_eq!(made.len(), real.len());
    assert_eq!(parts[0], header);
    let told: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(parts[1]).unwrap()).unwrap();
    assert_eq!(told["exp"], 1_893_456_000);
    assert_eq!(told["iat"], 1_890_000_000);
    assert!(told.get("sub").is_none() && told.get("scope").is_none());
    assert_eq!(parts[2].len(), signature.len());
    assert!(!parts[2].contains(&signature[..4]));
    // Without a signature it opens nothing, or everything.
    let unsigned = format!("{header}.{}.", URL_SAFE_NO_PAD.encode(claims));
    assert!(matches!(
        placeholder(unsigned.as_bytes(), &[1; 32]),
        Err(PlaceholderError::Guessable)
    ));
}

#[test]
fn placeholder_key_keeps_frame_and_lines() {
    let line = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgqP3mVX7d1YzT0kLs";
    let key = format!("-----BEGIN PRIVATE KEY-----\n{line}\n{line}\n-----END PRIVATE KEY-----\n");
    let made = made(&key);
    let lengths = |key: &str| key.lines().map(str::len).collect::<Vec<_>>();
    assert_eq!(lengths(&made), lengths(&key));
    assert!(made.starts_with("-----BEGIN PRIVATE KEY-----\n"));
    assert!(made.ends_with("-----END PRIVATE KEY-----\n"));
    assert!(!made.contains(&line[..8]));
}

#[test]
fn placeholder_guessable_value_is_refused() {
    let of = |real: &[u8]| placeholder(real, &[3; 32]).map(drop);
    assert!(matches!(of(b"hunter2"), Err(PlaceholderError::Short)));
    assert!(matches!(
        of(b"fifteen-letters"),
        Err(PlaceholderError::Short)
    ));
    assert!(matches!(
        of(b"1234567890123456"),
        Err(PlaceholderError::Guessable)
    ));
    assert!(matches!(
        of(b"sk-ant-api03-short"),
        Err(PlaceholderError::Guessable)
    ));
    assert!(matches!(
        of("pässwört-of-some-length".as_bytes()),
        Err(PlaceholderError::Bytes)
    ));
    assert!(matches!(
        of(b"bell\x07bell-of-some-length"),
        Err(PlaceholderError::Bytes)
    ));
    assert!(matches!(
        of(b"abcdefgh////ijklmnopqrstuv"),
        Err(PlaceholderError::Marks)
    ));
    assert!(matches!(
        of(&[b'a'; 16 * 1024 + 1]),
        Err(PlaceholderError::Long)
    ));
    assert!(of(b"12345678901234567890").is_ok());
    assert!(of(b"0123456789abcdef").is_ok());
}

proptest! {
    #[test]
    fn placeholder_shares_nothing_with_its_value(real in "[A-Za-z0-9]{16,80}", random: [u8; 32]) {
        if let Ok(made) = placeholder(real.as_bytes(), &random) {
            let made = String::from_utf8(made).unwrap();
            let prefix = super::super::placeholder::prefix_bytes(real.as_bytes());
            let secret = &real[prefix..];
            prop_assert!(parts(secret).iter().all(|part| !parts(&made).contains(part)));
        }
    }

    #[test]
    fn placeholder_any_text_keeps_length_or_fails(real in "[ -~\\n]{0,200}", random: [u8; 32]) {
        if let Ok(made) = placeholder(real.as_bytes(), &random) {
            prop_assert_eq!(made.len(), real.len());
            let secret = super::super::Secret::new(real.into_bytes()).unwrap();
            prop_assert!(super::super::Masks::new(vec![(secret, made)]).is_ok());
        }
    }
}
