use sha2::{Digest, Sha256};

/// Returns the SHA-256 of a file's content, 64 lower-case hexadecimal digits, as kept in a
/// [`TrustList`](crate::TrustList).
#[must_use]
pub fn digest(content: &[u8]) -> String {
    hexadecimal(&Sha256::digest(content))
}

fn hexadecimal(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('0');
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

/// The digest of everything that decides, the policy's version. Each part is preceded by its
/// length, so that no two lists of parts collide.
#[derive(Clone, Debug)]
pub(crate) struct PolicyDigest(Sha256);

impl PolicyDigest {
    pub(crate) fn new() -> Self {
        let mut digest = Self(Sha256::new());
        digest.add("atoll-policy", env!("CARGO_PKG_VERSION").as_bytes());
        digest
    }

    pub(crate) fn add(&mut self, kind: &str, part: &[u8]) {
        for bytes in [kind.as_bytes(), part] {
            self.0.update((bytes.len() as u64).to_be_bytes());
            self.0.update(bytes);
        }
    }

    pub(crate) fn finish(self) -> String {
        format!("sha256:{}", hexadecimal(&self.0.finalize()))
    }
}
