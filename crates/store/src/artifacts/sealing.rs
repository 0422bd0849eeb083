//! The encryption of artifacts: each under a key of its own, in chunks, so that no more than one is
//! in memory; and of these keys, under the key of their tenant.

use std::io::{self, Read, Write};

use atoll_ledger::random;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use zeroize::Zeroizing;

/// The length of a key, bytes.
pub(super) const KEY_BYTES: usize = 32;
/// The plain bytes of each chunk but the last.
const CHUNK_BYTES: usize = 1 << 20;
/// The bytes that are read and written at once.
pub(super) const BUFFER_BYTES: usize = CHUNK_BYTES;
/// The bytes by which a sealed chunk is longer.
const TAG_BYTES: usize = 16;
/// The beginning of the associated data: what is sealed for one purpose opens for no other.
const CHUNK_MARK: &[u8] = b"atoll-artifact-1\0";
const KEY_MARK: &[u8] = b"atoll-artifact-key-1\0";

/// A key of an artifact, or of a tenant.
pub(super) struct Key(Zeroizing<[u8; KEY_BYTES]>);

impl Key {
    pub(super) fn generate() -> io::Result<Self> {
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        random::fill(key.as_mut())?;
        Ok(Self(key))
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        (bytes.len() == KEY_BYTES).then(|| key.copy_from_slice(bytes))?;
        Some(Self(key))
    }

    pub(super) fn expose(&self) -> &[u8] {
        self.0.as_ref()
    }

    fn cipher(&self) -> io::Result<LessSafeKey> {
        let key = UnboundKey::new(&AES_256_GCM, self.0.as_ref()).map_err(|_| failed())?;
        Ok(LessSafeKey::new(key))
    }

    /// Seals the key of an artifact for storage. A random nonce is safe for some 2^32 artifacts of a
    /// tenant (NIST SP 800-38D, 8.3).
    pub(super) fn wrap(&self, key: &Self, artifact: &str) -> io::Result<Vec<u8>> {
        let mut number = [0; NONCE_LEN];
        random::fill(&mut number)?;
        let mut sealed = key.expose().to_vec();
        let aad = Aad::from([KEY_MARK, artifact.as_bytes()].concat());
        self.cipher()?
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(number), aad, &mut sealed)
            .map_err(|_| failed())?;
        Ok([&number[..], &sealed].concat())
    }

    pub(super) fn unwrap(&self, sealed: &[u8], artifact: &str) -> io::Result<Self> {
        let (number, rest) = sealed.split_at_checked(NONCE_LEN).ok_or_else(failed)?;
        let nonce = Nonce::try_assume_unique_for_key(number).map_err(|_| failed())?;
        let aad = Aad::from([KEY_MARK, artifact.as_bytes()].concat());
        let mut rest = Zeroizing::new(rest.to_vec());
        let opened = self.cipher()?.open_in_place(nonce, aad, &mut rest);
        Self::from_bytes(opened.map_err(|_| failed())?).ok_or_else(failed)
    }

    /// Seals all that `from` has; `look` sees the plain bytes. Returns their number, and that of the
    /// sealed bytes.
    ///
    /// # Errors
    /// Those of reading and writing; FileTooLarge beyond `bytes_max` plain bytes.
    pub(super) fn seal(
        &self,
        from: &mut dyn Read,
        to: &mut dyn Write,
        bytes_max: u64,
        mut look: impl FnMut(&[u8]),
    ) -> io::Result<(u64, u64)> {
        let cipher = self.cipher()?;
        let mut chunk = Vec::with_capacity(CHUNK_BYTES + TAG_BYTES);
        let (mut plain, mut sealed) = (0, 0);
        for index in 0_u64.. {
            chunk.clear();
            from.take(CHUNK_BYTES as u64).read_to_end(&mut chunk)?;
            look(&chunk);
            plain += chunk.len() as u64;
            if plain > bytes_max {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            let is_last = chunk.len() < CHUNK_BYTES;
            cipher
                .seal_in_place_append_tag(nonce(index), place(is_last), &mut chunk)
                .map_err(|_| failed())?;
            to.write_all(&chunk)?;
            sealed += chunk.len() as u64;
            if is_last {
                break;
            }
        }
        Ok((plain, sealed))
    }

    /// Opens what was sealed.
    ///
    /// # Errors
    /// Those of reading and writing; InvalidData where it is not what was sealed, whole. What is
    /// written before that was.
    pub(super) fn open(&self, from: &mut dyn Read, to: &mut dyn Write) -> io::Result<()> {
        let cipher = self.cipher()?;
        let whole = CHUNK_BYTES + TAG_BYTES;
        let mut chunk = Zeroizing::new(Vec::with_capacity(whole));
        for index in 0_u64.. {
            chunk.clear();
            from.take(whole as u64).read_to_end(&mut chunk)?;
            let is_last = chunk.len() < whole;
            let opened = cipher.open_in_place(nonce(index), place(is_last), &mut chunk);
            to.write_all(opened.map_err(|_| failed())?)?;
            if is_last {
                break;
            }
        }
        Ok(())
    }
}

/// Returns the nonce of a chunk: its number. The key seals one artifact alone.
fn nonce(index: u64) -> Nonce {
    let mut number = [0; NONCE_LEN];
    number[NONCE_LEN - 8..].copy_from_slice(&index.to_be_bytes());
    Nonce::assume_unique_for_key(number)
}

/// Binds a chunk to its place: cut off after some other chunk, an artifact does not open.
fn place(is_last: bool) -> Aad<Vec<u8>> {
    Aad::from([CHUNK_MARK, &[u8::from(is_last)]].concat())
}

fn failed() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "it is not what was sealed, or not with this key",
    )
}
