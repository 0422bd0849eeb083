//! Gzip members, one after the other (RFC 1952).

use flate2::Decompress;

use super::{Step, Undecodable, inflated};

/// The longest head of a member, bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// The length of a member's trailer: checksum and size, bytes.
const END_BYTES: usize = 8;

/// The state of a gzip body.
#[derive(Default)]
pub(super) struct Gzip {
    place: Place,
    members: u64,
    checksum: crc32fast::Hasher,
}

#[derive(Default)]
enum Place {
    #[default]
    Head,
    Within(Decompress),
    End,
}

impl Gzip {
    pub(super) fn is_over(&self) -> bool {
        matches!(self.place, Place::Head) && self.members > 0
    }

    pub(super) fn step(&mut self, input: &[u8], out: &mut [u8]) -> Step {
        match &mut self.place {
            Place::Head => match head_bytes(input)? {
                Some(bytes) => {
                    self.place = Place::Within(Decompress::new(false));
                    self.checksum = crc32fast::Hasher::new();
                    Ok((bytes, 0))
                }
                None if input.len() > HEAD_BYTES_MAX => Err(Undecodable::Damaged),
                None => Ok((0, 0)),
            },
            Place::Within(inflate) => {
                let (read, made, ended) = inflated(inflate, input, out)?;
                self.checksum.update(out.get(..made).unwrap_or_default());
                if ended {
                    self.place = Place::End;
                }
                Ok((read, made))
            }
            Place::End => {
                let Some(end) = input.first_chunk::<END_BYTES>() else {
                    return Ok((0, 0));
                };
                let checksum = self.checksum.clone().finalize().to_le_bytes();
                if !end.starts_with(&checksum) {
                    return Err(Undecodable::Damaged);
                }
                self.place = Place::Head;
                self.members += 1;
                Ok((END_BYTES, 0))
            }
        }
    }
}

/// Returns the length of a member's head, if it is whole.
fn head_bytes(input: &[u8]) -> Result<Option<usize>, Undecodable> {
    let known = input
        .iter()
        .zip([0x1f, 0x8b, 8])
        .all(|(own, known)| *own == known);
    let Some((flags, _)) = input
        .get(3..)
        .filter(|_| known)
        .and_then(<[u8]>::split_first)
    else {
        return if known {
            Ok(None)
        } else {
            Err(Undecodable::Damaged)
        };
    };
    let has = |bit: u8| flags >> bit & 1 == 1;
    let mut at = 10;
    if has(2) {
        let Some(length) = input.get(at..).and_then(<[u8]>::first_chunk) else {
            return Ok(None);
        };
        at += 2 + usize::from(u16::from_le_bytes(*length));
    }
    for _ in [3, 4].into_iter().filter(|bit| has(*bit)) {
        let text = input.get(at..).unwrap_or_default();
        let Some(end) = memchr::memchr(0, text) else {
            return Ok(None);
        };
        at += end + 1;
    }
    if has(1) {
        at += 2;
    }
    Ok((at <= input.len()).then_some(at))
}
