//! A trust store of Java, in the form that every version reads: JKS, which is not
//! specified but by its reader (sun.security.provider.JavaKeyStore of OpenJDK).

use std::time::SystemTime;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

use crate::authority::seconds;

const MAGIC: u32 = 0xfeed_feed;
const VERSION: u32 = 2;
/// An entry that is a certificate alone.
const TRUSTED: u32 = 2;
/// The password that Java's key stores are checked with by convention, if at all: no secret.
const PASSWORD: &str = "changeit";
/// The constant that the digest covers after the password.
const SALT: &[u8] = b"Mighty Aphrodite";

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// Makes a key store of all certificates in a bundle. Other content is left out.
pub(super) fn store(bundle: &[u8], now: SystemTime) -> Vec<u8> {
    let certificates = certificates(bundle);
    let count = u32::try_from(certificates.len()).unwrap_or(u32::MAX);
    let made_ms = seconds(now).saturating_mul(1000);
    let mut bytes = Vec::new();
    for number in [MAGIC, VERSION, count] {
        bytes.extend_from_slice(&number.to_be_bytes());
    }
    for (index, certificate) in certificates.iter().enumerate() {
        bytes.extend_from_slice(&TRUSTED.to_be_bytes());
        text(&mut bytes, &format!("atoll-{index}"));
        bytes.extend_from_slice(&made_ms.to_be_bytes());
        text(&mut bytes, "X.509");
        let length = u32::try_from(certificate.len()).unwrap_or(u32::MAX);
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(certificate);
    }
    let mut checked: Vec<u8> = PASSWORD.encode_utf16().flat_map(u16::to_be_bytes).collect();
    checked.extend_from_slice(SALT);
    checked.extend_from_slice(&bytes);
    bytes.extend_from_slice(digest(&SHA1_FOR_LEGACY_USE_ONLY, &checked).as_ref());
    bytes
}

/// Appends a text after its length. All of it is ASCII.
fn text(to: &mut Vec<u8>, text: &str) {
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    to.extend_from_slice(&length.to_be_bytes());
    to.extend_from_slice(text.as_bytes());
}

fn certificates(bundle: &[u8]) -> Vec<Vec<u8>> {
    let text = String::from_utf8_lossy(bundle);
    let mut found = Vec::new();
    let mut rest = text.as_ref();
    while let Some((_, after)) = rest.split_once(BEGIN) {
        let Some((body, next)) = after.split_once(END) else {
            break;
        };
        if let Ok(one) = pem::parse(format!("{BEGIN}{body}{END}\n")) {
            found.push(one.into_contents());
        }
        rest = next;
    }
    found
}
