//! AWS Signature Version 4: the canonical forms of a request, and its signing.
//!
//! Source: "Create a signed AWS API request" and "Authenticating Requests: Using Query Parameters"
//! of AWS. Programs and servers canonicalize a path and a query in ways that differ ([`Canonicalization`]);
//! the program's own signature shows which one it means.

use std::fmt::Write;

use aws_lc_rs::hmac::{self, HMAC_SHA256};
use hyper::HeaderMap;
use hyper::header::HOST;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::{escaped, unescaped};

mod chain;

pub(crate) use chain::{ChainItem, PIECES, PIECES_AND_TRAILERS, SignatureChain};

/// The algorithm, with which signatures begin.
pub(super) const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// The last part of a scope.
const TERMINATOR: &str = "aws4_request";
/// The parameter with the signature itself, which it does not cover.
pub(super) const SIGNATURE: &str = "X-Amz-Signature";
/// The length of a signature, bytes.
const SIGNATURE_BYTES: usize = 32;

/// The scope of a signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Scope {
    /// The day, as `20260102`.
    pub(super) day: String,
    pub(super) region: String,
    pub(super) service: String,
}

impl Scope {
    /// Parses a scope, as it follows a key's id.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split('/').collect();
        let [day, region, service, TERMINATOR] = parts[..] else {
            return None;
        };
        let is_scope = ![day, region, service].contains(&"");
        is_scope.then(|| Self {
            day: day.to_owned(),
            region: region.to_owned(),
            service: service.to_owned(),
        })
    }

    pub(super) fn text(&self) -> String {
        let Self {
            day,
            region,
            service,
        } = self;
        format!("{day}/{region}/{service}/{TERMINATOR}")
    }

    /// Derives the signing key.
    fn key(&self, secret: &[u8]) -> hmac::Key {
        let first = Zeroizing::new([b"AWS4", secret].concat());
        let mut key = hmac::Key::new(HMAC_SHA256, &first);
        for part in [&self.day, &self.region, &self.service, TERMINATOR] {
            let tag = hmac::sign(&key, part.as_bytes());
            key = hmac::Key::new(HMAC_SHA256, tag.as_ref());
        }
        key
    }
}

/// A way to canonicalize a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PathCanonicalization {
    /// As sent, as S3 does.
    Sent,
    /// Escaped once more, with dot segments and empty ones removed.
    Normal,
    /// Escaped once more.
    Escaped,
}

/// A way to canonicalize a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueryCanonicalization {
    /// As sent, sorted.
    Sent,
    /// Escaped where needed, and nowhere else.
    Escaped,
}

/// A way to canonicalize a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Canonicalization {
    path: PathCanonicalization,
    query: QueryCanonicalization,
}

impl Canonicalization {
    /// The request as sent.
    #[cfg(test)]
    pub(super) const SENT: Self = Self {
        path: PathCanonicalization::Sent,
        query: QueryCanonicalization::Sent,
    };

    /// All the ways that programs use, the usual ones first.
    const ALL: [Self; 6] = {
        const fn of(path: PathCanonicalization, query: QueryCanonicalization) -> Canonicalization {
            Canonicalization { path, query }
        }
        [
            of(PathCanonicalization::Sent, QueryCanonicalization::Sent),
            of(PathCanonicalization::Normal, QueryCanonicalization::Sent),
            of(PathCanonicalization::Escaped, QueryCanonicalization::Sent),
            of(PathCanonicalization::Sent, QueryCanonicalization::Escaped),
            of(PathCanonicalization::Normal, QueryCanonicalization::Escaped),
            of(
                PathCanonicalization::Escaped,
                QueryCanonicalization::Escaped,
            ),
        ]
    };
}

/// The signed parts of a request.
#[derive(Debug)]
pub(super) struct Signable<'a> {
    pub(super) method: &'a str,
    /// Path and query, as sent.
    pub(super) target: &'a str,
    pub(super) headers: &'a HeaderMap,
    /// The host as sent, with its port if that is written.
    pub(super) host: &'a str,
    /// The names of signed headers, in order.
    pub(super) signed: &'a [String],
    /// The body's digest in hexadecimal digits, or a payload value that replaces it.
    pub(super) payload: &'a str,
    /// The time, such as `20260102T030405Z`.
    pub(super) time: &'a str,
    pub(super) scope: &'a Scope,
}

impl Signable<'_> {
    /// Signs the request.
    pub(super) fn sign(&self, secret: &[u8], reading: Canonicalization) -> String {
        let tag = hmac::sign(&self.scope.key(secret), &self.text(reading));
        hexadecimal(tag.as_ref())
    }

    /// Returns the canonicalization under which this is the request's signature, if any.
    pub(super) fn proof(&self, secret: &[u8], signature: &Signature) -> Option<Canonicalization> {
        let key = self.scope.key(secret);
        let is_right = |reading: &Canonicalization| {
            hmac::verify(&key, &self.text(*reading), &signature.0).is_ok()
        };
        Canonicalization::ALL.into_iter().find(is_right)
    }

    /// Returns the signer of the body's chunks, whose signatures follow this one of the request.
    pub(super) fn chain(&self, secret: &[u8], own: &str) -> SignatureChain {
        SignatureChain::new(secret, self.time, self.scope, own.to_owned())
    }

    /// Returns the string to sign.
    fn text(&self, reading: Canonicalization) -> Vec<u8> {
        let digest = digest(&self.canonical(reading));
        let (time, scope) = (self.time, self.scope.text());
        format!("{ALGORITHM}\n{time}\n{scope}\n{digest}").into_bytes()
    }

    /// Returns the canonical request.
    fn canonical(&self, reading: Canonicalization) -> Vec<u8> {
        let (path, query) = self.target.split_once('?').unwrap_or((self.target, ""));
        let (path, query) = (
            self::path(path, reading.path),
            self::query(query, reading.query),
        );
        let mut text = format!("{}\n{path}\n{query}\n", self.method).into_bytes();
        for name in self.signed {
            text.extend_from_slice(name.as_bytes());
            text.push(b':');
            text.extend_from_slice(&self.value(name));
            text.push(b'\n');
        }
        text.push(b'\n');
        text.extend_from_slice(self.signed.join(";").as_bytes());
        text.push(b'\n');
        text.extend_from_slice(self.payload.as_bytes());
        text
    }

    /// Returns a header's values, each with spaces collapsed.
    fn value(&self, name: &str) -> Vec<u8> {
        if name == HOST.as_str() {
            return self.host.as_bytes().to_vec();
        }
        let values = self.headers.get_all(name).iter();
        let values = values.map(|value| {
            let words = value.as_bytes().split(u8::is_ascii_whitespace);
            let words: Vec<&[u8]> = words.filter(|word| !word.is_empty()).collect();
            words.join(&b' ')
        });
        values.collect::<Vec<_>>().join(&b',')
    }
}

/// A signature that a program has sent.
#[derive(Debug)]
pub(super) struct Signature([u8; SIGNATURE_BYTES]);

impl Signature {
    pub(super) fn parse(text: &str) -> Option<Self> {
        undigested(text).map(Self)
    }

    /// Returns it as it is sent.
    pub(super) fn text(&self) -> String {
        hexadecimal(&self.0)
    }
}

/// Returns the digest of a body or a text, in hexadecimal digits.
pub(super) fn digest(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// Parses a digest of hexadecimal digits.
pub(super) fn undigested(text: &str) -> Option<[u8; SIGNATURE_BYTES]> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else {
        return None;
    };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = |[high, low]: &[u8; 2]| u8::try_from(digit(*high)? * 16 + digit(*low)?).ok();
    let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
    bytes?.try_into().ok()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn path(sent: &str, reading: PathCanonicalization) -> String {
    let escape = |part: &str| escaped(part.as_bytes());
    match reading {
        PathCanonicalization::Sent => sent.to_owned(),
        PathCanonicalization::Escaped => sent.split('/').map(escape).collect::<Vec<_>>().join("/"),
        PathCanonicalization::Normal => {
            let mut parts: Vec<String> = Vec::new();
            for part in sent.split('/') {
                match part {
                    "" | "." => {}
                    ".." => {
                        parts.pop();
                    }
                    part => parts.push(escape(part)),
                }
            }
            let end = match sent.ends_with('/') && !parts.is_empty() {
                true => "/",
                false => "",
            };
            format!("/{}{end}", parts.join("/"))
        }
    }
}

fn query(sent: &str, reading: QueryCanonicalization) -> String {
    let parts = sent.split('&').filter(|part| !part.is_empty());
    let pairs = parts.map(|part| part.split_once('=').unwrap_or((part, "")));
    let pairs = pairs.filter(|(name, _)| *name != SIGNATURE);
    let write = |text: &str| match reading {
        QueryCanonicalization::Sent => text.to_owned(),
        QueryCanonicalization::Escaped => escaped(&unescaped(text)),
    };
    let mut pairs: Vec<_> = pairs
        .map(|(name, value)| (write(name), write(value)))
        .collect();
    pairs.sort();
    let pairs = pairs.iter().map(|(name, value)| format!("{name}={value}"));
    pairs.collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests;
