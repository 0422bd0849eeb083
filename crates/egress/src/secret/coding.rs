//! Decompression of bodies in bounded memory.
//!
//! A compressed body cannot be searched as it is. A request's body is decompressed on the side, and
//! forwarded as it came. A response's is decompressed, masked and handed on so: compressing it
//! again would be the most expensive step of all, for a path between two processes on one machine.
//! So a request accepts no coding but those known here ([`narrow`]), and a response in another one
//! is refused.

mod gzip;
mod zstd;

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use flate2::{Decompress, FlushDecompress, Status};
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderMap, HeaderName, HeaderValue, RANGE};

use gzip::Gzip;
use zstd::Zstd;

/// The most bytes decompressed in one step.
const BUFFER_BYTES: usize = 32 * 1024;
/// The decompressed length that any body may have, bytes.
const MADE_BYTES_FREE: u64 = 64 << 20;
/// The most decompressed bytes per compressed one beyond that: deflate cannot exceed 1032.
const RATIO_MAX: u64 = 1100;

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// RFC 1952.
    Gzip,
    /// RFC 1950, or RFC 1951 as some servers send it.
    Deflate,
    /// RFC 7932, without windows beyond 16 MiB.
    Brotli,
    /// RFC 8878, without windows beyond the 8 MiB of RFC 9659.
    Zstd,
}

/// The reason why a compressed body cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undecodable {
    /// An unknown coding, or more than one.
    #[error(
        "it is compressed in a way that cannot be searched for secrets; of gzip, deflate, br and zstd one at a time can"
    )]
    Unknown,
    /// The compressed data is damaged.
    #[error("what it is compressed by is damaged, and cannot be searched for secrets")]
    Damaged,
    /// The compressed data ended early.
    #[error("what is compressed breaks off")]
    Short,
    /// A decompression bomb.
    #[error("what is compressed is more than {RATIO_MAX} times as long as it was sent")]
    Bomb,
}

impl Coding {
    /// Reads the content coding of a body with these headers, if any.
    ///
    /// # Errors
    /// [`Undecodable::Unknown`].
    pub fn of(headers: &HeaderMap) -> Result<Option<Self>, Undecodable> {
        let mut coding = None;
        for name in items(headers, &CONTENT_ENCODING) {
            let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
            if is("identity") {
                continue;
            }
            let known = Self::named(name).ok_or(Undecodable::Unknown)?;
            if coding.replace(known).is_some() {
                return Err(Undecodable::Unknown);
            }
        }
        Ok(coding)
    }

    fn named(name: &[u8]) -> Option<Self> {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        Some(match () {
            () if is("gzip") || is("x-gzip") => Self::Gzip,
            () if is("deflate") => Self::Deflate,
            () if is("br") => Self::Brotli,
            () if is("zstd") => Self::Zstd,
            () => return None,
        })
    }
}

/// Splits the headers of one name into list items.
fn items<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    let values = headers.get_all(name).iter();
    let items = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    items
        .map(<[u8]>::trim_ascii)
        .filter(|item| !item.is_empty())
}

/// Makes a request accept only codings that can be masked. A range request accepts none: a part of
/// a compressed body cannot be read alone.
pub fn narrow(headers: &mut HeaderMap) {
    let is_known = |item: &&[u8]| {
        let name = item.split(|byte| *byte == b';').next().unwrap_or_default();
        let name = name.trim_ascii();
        Coding::named(name).is_some() || name.eq_ignore_ascii_case(b"identity")
    };
    let known: Vec<&[u8]> = items(headers, &ACCEPT_ENCODING).filter(is_known).collect();
    let asked = HeaderValue::from_bytes(&known.join(&b", "[..])).ok();
    let asked = asked.filter(|asked| !asked.is_empty() && !headers.contains_key(RANGE));
    let asked = asked.unwrap_or(HeaderValue::from_static("identity"));
    headers.insert(ACCEPT_ENCODING, asked);
}

/// The result of a decoding step: the number of bytes read, and of bytes produced.
type Step = Result<(usize, usize), Undecodable>;

enum Kind {
    Gzip(Gzip),
    Deflate(Option<Decompress>, bool),
    Brotli(Box<Brotli>, bool),
    Zstd(Box<Zstd>),
}

type Brotli = BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>;

/// A streaming decoder of a body.
pub struct Decoder {
    kind: Kind,
    /// The bytes that have come and are unread.
    input: Vec<u8>,
    buffer: Box<[u8]>,
    read: u64,
    made: u64,
}

impl Decoder {
    /// Builds the decoder of a coding.
    #[must_use]
    pub fn new(coding: Coding) -> Self {
        let memory = StandardAlloc::default;
        let kind = match coding {
            Coding::Gzip => Kind::Gzip(Gzip::default()),
            Coding::Deflate => Kind::Deflate(None, false),
            Coding::Brotli => {
                let state = BrotliState::new_strict(memory(), memory(), memory());
                Kind::Brotli(Box::new(state), false)
            }
            Coding::Zstd => Kind::Zstd(Box::default()),
        };
        Self {
            kind,
            input: Vec::new(),
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            read: 0,
            made: 0,
        }
    }

    /// Takes a chunk. It is decompressed by [`Self::pull`], which must be called until it produces
    /// nothing more before the next chunk is given.
    pub fn push(&mut self, chunk: &[u8]) {
        self.read += chunk.len() as u64;
        self.input.extend_from_slice(chunk);
    }

    /// Appends some decompressed bytes to `out`, at most 32 KiB, and returns whether there were
    /// any.
    ///
    /// # Errors
    /// [`Undecodable`].
    pub fn pull(&mut self, out: &mut Vec<u8>) -> Result<bool, Undecodable> {
        loop {
            let (read, made) = self.kind.step(&self.input, &mut self.buffer)?;
            self.input.drain(..read.min(self.input.len()));
            self.made += made as u64;
            if self.made > MADE_BYTES_FREE.saturating_add(self.read.saturating_mul(RATIO_MAX)) {
                return Err(Undecodable::Bomb);
            }
            if made > 0 {
                out.extend_from_slice(self.buffer.get(..made).unwrap_or_default());
                return Ok(true);
            }
            if read == 0 {
                return Ok(false);
            }
        }
    }

    /// Ends the body.
    ///
    /// # Errors
    /// [`Undecodable::Short`]: the body is incomplete.
    pub fn finish(&self) -> Result<(), Undecodable> {
        // Some answers have no body, and say how it would have been compressed.
        let is_over = self.read == 0 || self.input.is_empty() && self.kind.is_over();
        is_over.then_some(()).ok_or(Undecodable::Short)
    }
}

impl Kind {
    fn step(&mut self, input: &[u8], out: &mut [u8]) -> Step {
        match self {
            Self::Gzip(gzip) => gzip.step(input, out),
            Self::Deflate(inflate, is_over) => match inflate {
                _ if *is_over => over(input),
                Some(inflate) => {
                    let (read, made, ended) = inflated(inflate, input, out)?;
                    *is_over = ended;
                    Ok((read, made))
                }
                None => {
                    if let Some([first, second]) = input.first_chunk() {
                        // Two bytes that no stream of deflate alone begins with, in practice.
                        let both = u16::from_be_bytes([*first, *second]);
                        let is_wrapped = first & 0xf == 8 && both.is_multiple_of(31);
                        *inflate = Some(Decompress::new(is_wrapped));
                        return self.step(input, out);
                    }
                    Ok((0, 0))
                }
            },
            Self::Brotli(_, true) => over(input),
            Self::Brotli(state, is_over) => {
                let (mut left, mut room) = (input.len(), out.len());
                let (mut read, mut made, mut total) = (0, 0, 0);
                let result = BrotliDecompressStream(
                    &mut left, &mut read, input, &mut room, &mut made, out, &mut total, state,
                );
                match result {
                    BrotliResult::ResultFailure => return Err(Undecodable::Damaged),
                    BrotliResult::ResultSuccess => *is_over = true,
                    BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => {}
                }
                Ok((read, made))
            }
            Self::Zstd(zstd) => zstd.step(input, out),
        }
    }

    fn is_over(&self) -> bool {
        match self {
            Self::Gzip(gzip) => gzip.is_over(),
            Self::Deflate(_, is_over) | Self::Brotli(_, is_over) => *is_over,
            Self::Zstd(zstd) => zstd.is_over(),
        }
    }
}

/// Refuses bytes after the end: no program would read them, and they could be anything.
fn over(input: &[u8]) -> Step {
    if input.is_empty() {
        Ok((0, 0))
    } else {
        Err(Undecodable::Damaged)
    }
}

/// Runs one step of deflate: the number of bytes read and produced, and whether it has ended.
fn inflated(
    inflate: &mut Decompress,
    input: &[u8],
    out: &mut [u8],
) -> Result<(usize, usize, bool), Undecodable> {
    let (read, made) = (inflate.total_in(), inflate.total_out());
    let status = inflate.decompress(input, out, FlushDecompress::None);
    let ended = match status.map_err(|_| Undecodable::Damaged)? {
        Status::StreamEnd => true,
        Status::Ok | Status::BufError => false,
    };
    let (read, made) = (inflate.total_in() - read, inflate.total_out() - made);
    Ok((read as usize, made as usize, ended))
}
