//! Content that comes packed.

use std::io::{self, Write};

use axum::body::Body;
use bytes::Bytes;
use flate2::write::GzDecoder;
use futures_util::StreamExt;

/// The encoding of a file's content.
pub(super) enum Packed {
    Not,
    Gzip(Box<GzDecoder<Vec<u8>>>),
}

/// The most bytes that are unpacked at once: a thousand times as many can come of them.
pub(super) const PACKED_BYTES: usize = 1024;

impl Packed {
    /// Takes a part of a block, and returns what it holds.
    pub(super) fn unpack(&mut self, part: Bytes) -> io::Result<Bytes> {
        match self {
            Self::Not => Ok(part),
            Self::Gzip(decoder) => {
                decoder.write_all(&part)?;
                decoder.flush()?;
                Ok(std::mem::take(decoder.get_mut()).into())
            }
        }
    }
}

/// Unpacks a whole body.
pub(super) fn unpacked(body: Body, packed: Packed) -> Body {
    let begin = (body.into_data_stream(), packed, Bytes::new());
    let blocks =
        futures_util::stream::try_unfold(begin, async |(mut blocks, mut packed, mut rest)| {
            if rest.is_empty() {
                rest = match blocks.next().await {
                    None => return Ok(None),
                    Some(block) => block.map_err(io::Error::other)?,
                };
            }
            let part = rest.split_to(PACKED_BYTES.min(rest.len()));
            let content = packed.unpack(part)?;
            Ok::<_, io::Error>(Some((content, (blocks, packed, rest))))
        });
    Body::from_stream(blocks)
}
