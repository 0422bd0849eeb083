//! Zstandard frames, one after the other (RFC 8878).

use std::io::Read;

use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::{Step, Undecodable};

/// The largest window, bytes (RFC 9659).
const WINDOW_BYTES_MAX: u64 = 8 << 20;
/// The largest block, bytes (RFC 8878, 3.1.1.2.4).
const BLOCK_BYTES_MAX: u32 = 128 << 10;
/// The magic numbers of a frame and of a skippable frame.
const MAGIC: u32 = 0xFD2F_B528;
const MAGIC_SKIPPED: u32 = 0x184D_2A50;

/// The state of a Zstandard body.
pub(super) struct Zstd {
    decoder: FrameDecoder,
    is_within: bool,
    has_checksum: bool,
    /// The remaining length of a skippable frame, bytes.
    skipped: usize,
    frames: u64,
}

impl Default for Zstd {
    fn default() -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(WINDOW_BYTES_MAX);
        Self {
            decoder,
            is_within: false,
            has_checksum: false,
            skipped: 0,
            frames: 0,
        }
    }
}

impl Zstd {
    pub(super) fn is_over(&self) -> bool {
        !self.is_within && self.skipped == 0 && self.frames > 0
    }

    pub(super) fn step(&mut self, input: &[u8], out: &mut [u8]) -> Step {
        if self.skipped > 0 {
            let read = self.skipped.min(input.len());
            self.skipped -= read;
            return Ok((read, 0));
        }
        if !self.is_within {
            return self.begin(input);
        }
        if self.decoder.can_collect() > 0 {
            let made = self.decoder.read(out).map_err(|_| Undecodable::Damaged)?;
            return Ok((0, made));
        }
        if self.decoder.is_finished() {
            self.is_within = false;
            self.frames += 1;
            return self.step(input, out);
        }
        let Some(block) = self.block(input)? else {
            return Ok((0, 0));
        };
        let one = BlockDecodingStrategy::UptoBlocks(1);
        let decoded = self.decoder.decode_blocks(block, one);
        decoded.map_err(|_| Undecodable::Damaged)?;
        // What it has made is collected by the next steps.
        Ok((block.len(), 0))
    }

    /// Parses a frame's head.
    fn begin(&mut self, input: &[u8]) -> Step {
        let Some((magic, rest)) = input.split_first_chunk() else {
            return Ok((0, 0));
        };
        let magic = u32::from_le_bytes(*magic);
        if magic & !0xf == MAGIC_SKIPPED {
            let Some(length) = rest.first_chunk() else {
                return Ok((0, 0));
            };
            self.skipped = u32::from_le_bytes(*length) as usize;
            self.frames += 1;
            return Ok((8, 0));
        }
        if magic != MAGIC {
            return Err(Undecodable::Damaged);
        }
        let Some(descriptor) = rest.first() else {
            return Ok((0, 0));
        };
        let is_single = descriptor >> 5 & 1 == 1;
        let dictionary = [0, 1, 2, 4].get(usize::from(descriptor & 3)).copied();
        let size = match descriptor >> 6 {
            0 => usize::from(is_single),
            1 => 2,
            2 => 4,
            _ => 8,
        };
        let bytes = 5 + usize::from(!is_single) + dictionary.unwrap_or(0) + size;
        let Some(head) = input.get(..bytes) else {
            return Ok((0, 0));
        };
        self.decoder.reset(head).map_err(|_| Undecodable::Damaged)?;
        (self.is_within, self.has_checksum) = (true, descriptor >> 2 & 1 == 1);
        Ok((bytes, 0))
    }

    /// Returns the next block, if it is whole.
    fn block<'a>(&self, input: &'a [u8]) -> Result<Option<&'a [u8]>, Undecodable> {
        let Some([low, middle, high]) = input.first_chunk() else {
            return Ok(None);
        };
        let head = u32::from_le_bytes([*low, *middle, *high, 0]);
        let (is_last, kind, length) = (head & 1 == 1, head >> 1 & 3, head >> 3);
        if length > BLOCK_BYTES_MAX {
            return Err(Undecodable::Damaged);
        }
        // One byte is repeated as often as the length says.
        let mut bytes = 3 + if kind == 1 { 1 } else { length as usize };
        if is_last && self.has_checksum {
            bytes += 4;
        }
        Ok(input.get(..bytes))
    }
}
