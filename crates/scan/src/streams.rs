//! Compressed streams, each a single file.

use std::io::{self, Read};

use flate2::read::MultiGzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

use crate::bzip2::Bzip2;

/// The most memory of a decoder for xz, KiB: its level 9 takes 65 MiB.
const XZ_KIB_MAX: u32 = 96 << 10;
/// The largest window of zstd, bytes.
const ZSTD_WINDOW_BYTES_MAX: u64 = 64 << 20;

/// The form of a compressed stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Gzip,
    Xz,
    Bzip2,
    Zstd,
}

impl Stream {
    /// Returns the form of a content, by its first bytes.
    pub(crate) fn of(content: &[u8]) -> Option<Self> {
        match content {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Self::Xz),
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => Some(Self::Bzip2),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Self::Zstd),
            // A frame that decoders skip, before others.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Returns a reader of what is in it.
    pub(crate) fn reader(self, content: &[u8]) -> Box<dyn Read + '_> {
        match self {
            Self::Gzip => Box::new(MultiGzDecoder::new(content)),
            Self::Xz => Box::new(XzReader::new_mem_limit(content, true, XZ_KIB_MAX)),
            Self::Bzip2 => Box::new(Bzip2::new(content)),
            Self::Zstd => Box::new(Frames {
                rest: content,
                frame: None,
            }),
        }
    }
}

/// Frames of zstd, one after the other (RFC 8878).
struct Frames<'a> {
    rest: &'a [u8],
    frame: Option<StreamingDecoder<&'a [u8], FrameDecoder>>,
}

impl Read for Frames<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(frame) = &mut self.frame {
                match frame.read(to)? {
                    0 if !to.is_empty() => self.rest = *frame.get_ref(),
                    read => return Ok(read),
                }
            }
            self.frame = None;
            if self.rest.is_empty() {
                return Ok(0);
            }
            let begun =
                StreamingDecoder::new_with_max_window_size(self.rest, ZSTD_WINDOW_BYTES_MAX);
            match begun {
                Ok(frame) => self.frame = Some(frame),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let rest = self
                        .rest
                        .get(8..)
                        .and_then(|rest| rest.get(length as usize..));
                    self.rest = rest.ok_or(io::ErrorKind::UnexpectedEof)?;
                }
                Err(error) => return Err(io::Error::other(error.to_string())),
            }
        }
    }
}
