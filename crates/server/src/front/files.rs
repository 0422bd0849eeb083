//! Files, as all dialects send and take them.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use flate2::write::GzDecoder;
use futures_util::StreamExt;
use serde::de::DeserializeOwned;
use tokio::task::spawn_blocking;

use super::answers::{Answered, header_of};
use super::ask::Line;
use super::caller::{Caller, Sandbox};
use super::form::drained;
use super::idle::{timed, wrong_body};
use crate::protocol::{ByteRange, EntryFacts, FileFacts, In, Read, Refusal, Write};

/// The bytes of a file that are read, or written, at once.
const BLOCK_BYTES: usize = 512 * 1024;
/// The most bytes that are unpacked at once: a thousand times as many can come of them.
const PACKED_BYTES: usize = 1024;

fn within<R>(sandbox: Option<&str>, ask: R) -> In<R> {
    In {
        sandbox: sandbox.map(str::to_owned),
        ask,
    }
}

/// Sends a file, or the part of it that the headers ask for.
pub(crate) async fn fetch(
    caller: &Caller,
    sandbox: Option<&str>,
    path: String,
    headers: &HeaderMap,
) -> Answered {
    let range = asked_range(headers);
    let line = caller.begin(within(sandbox, Read { path, range })).await?;
    send(line, range.is_some()).await
}

impl Sandbox {
    /// Sends a file, or the part of it that the headers ask for.
    pub(crate) async fn fetch(&self, path: String, headers: &HeaderMap) -> Answered {
        fetch(&self.caller, Some(&self.id), path, headers).await
    }

    /// Writes a body to a file; returns what the file is then.
    pub(crate) async fn store(&self, path: &str, body: Body) -> Result<EntryFacts, Refusal> {
        let (caller, id) = (&self.caller, Some(&*self.id));
        put(caller, id, path, timed(body), &mut Packed::Not).await
    }
}

/// Returns the part of a file that the headers ask for.
pub(crate) fn asked_range(headers: &HeaderMap) -> Option<ByteRange> {
    read_range(header_of(headers, "range")?)
}

/// Sends a file that is handed over, or the part of it that was asked for.
pub(crate) async fn send(mut line: Line<FileFacts>, is_part: bool) -> Result<Response, Refusal> {
    let FileFacts {
        size,
        first,
        length,
    } = line.reply().await?;
    let begin = (Arc::new(line.file().await?), first, length);
    let blocks = futures_util::stream::try_unfold(begin, async |(file, at, left)| {
        if left == 0 {
            return Ok::<_, io::Error>(None);
        }
        let of = Arc::clone(&file);
        // A thread for as long as the disk takes, and not the caller.
        let block = spawn_blocking(move || read_block(&of, at, left)).await??;
        let got = block.len() as u64;
        Ok(Some((block, (file, at + got, left - got))))
    });
    let mut response = Response::new(Body::from_stream(blocks));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    to_keep(headers);
    if is_part && length < size {
        let last = first + length.saturating_sub(1);
        let part = HeaderValue::from_str(&format!("bytes {first}-{last}/{size}"));
        if let Ok(part) = part {
            headers.insert(header::CONTENT_RANGE, part);
        }
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    Ok(response)
}

/// Tells a browser to keep what a program wrote, and never to show it.
pub(crate) fn to_keep(headers: &mut HeaderMap) {
    for (name, value) in [
        (header::CONTENT_TYPE, "application/octet-stream"),
        (header::CONTENT_DISPOSITION, "attachment"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// Reads the next block of a file of which so much is left.
fn read_block(file: &File, at: u64, left: u64) -> io::Result<Bytes> {
    let most = usize::try_from(left).unwrap_or(usize::MAX).min(BLOCK_BYTES);
    let mut block = BytesMut::zeroed(most);
    let got = file.read_at(&mut block, at)?;
    if got == 0 {
        // It has become shorter meanwhile: the length that was told cannot be kept.
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    block.truncate(got);
    Ok(block.freeze())
}

/// Reads a range of one part; any other is as if there were none (RFC 9110, 14.2).
fn read_range(text: &str) -> Option<ByteRange> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    match (first, last) {
        ("", count) => Some(ByteRange::Last(count.parse().ok()?)),
        (first, "") => Some(ByteRange::From(first.parse().ok()?, None)),
        (first, last) => {
            let (first, last) = (first.parse().ok()?, last.parse().ok()?);
            (first <= last).then_some(ByteRange::From(first, Some(last)))
        }
    }
}

/// Writes a body, which can come packed, to a file.
pub(crate) async fn put(
    caller: &Caller,
    sandbox: Option<&str>,
    path: &str,
    body: Body,
    packed: &mut Packed,
) -> Result<EntryFacts, Refusal> {
    let path = path.to_owned();
    let ask = Write { path: path.clone() };
    let line = caller.begin(within(sandbox, ask)).await?;
    written(line, &path, body, packed).await
}

/// Writes a body to a file that is handed over; returns what is told of it then.
pub(crate) async fn take<M: DeserializeOwned>(
    line: Line<(), M>,
    path: &str,
    body: Body,
) -> Result<M, Refusal> {
    let take = async |body| written(line, path, body, &mut Packed::Not).await;
    drained(body, take).await
}

async fn written<M: DeserializeOwned>(
    mut line: Line<(), M>,
    path: &str,
    body: Body,
    packed: &mut Packed,
) -> Result<M, Refusal> {
    let mut blocks = body.into_data_stream();
    line.reply().await?;
    let mut to = Gathered::new(line.file().await?);
    loop {
        // Told while it is written: its sandbox has ended, or there is no room left.
        let block = tokio::select! {
            early = line.last() => return early,
            block = blocks.next() => block,
        };
        let Some(block) = block else {
            break;
        };
        let mut block = block.map_err(|error| wrong_body(&error))?;
        let most = match packed {
            Packed::Not => usize::MAX,
            Packed::Gzip(_) => PACKED_BYTES,
        };
        while !block.is_empty() {
            let part = block.split_to(most.min(block.len()));
            let content = packed.unpack(part).map_err(|error| wrong_body(&error))?;
            let put = tokio::select! {
                biased;
                early = line.last() => return early,
                put = to.put(content) => put,
            };
            put.map_err(|error| Refusal::of_file(path, &error))?;
        }
    }
    let put = to.write().await;
    put.map_err(|error| Refusal::of_file(path, &error))?;
    let _ = line.writer.end().await;
    line.last().await
}

/// The encoding of a file's content.
pub(super) enum Packed {
    Not,
    Gzip(Box<GzDecoder<Vec<u8>>>),
}

impl Packed {
    pub(super) fn gzip() -> Self {
        Self::Gzip(Box::new(GzDecoder::new(Vec::new())))
    }

    /// Takes a part of a block, and returns what it holds.
    fn unpack(&mut self, part: Bytes) -> io::Result<Bytes> {
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

/// Blocks that are gathered, so that each wait for a thread is for many.
struct Gathered {
    file: Arc<File>,
    blocks: Vec<Bytes>,
    bytes: usize,
}

impl Gathered {
    fn new(file: File) -> Self {
        Self {
            file: Arc::new(file),
            blocks: Vec::new(),
            bytes: 0,
        }
    }

    /// Adds a block, and writes all once there are enough.
    async fn put(&mut self, block: Bytes) -> io::Result<()> {
        self.bytes += block.len();
        self.blocks.push(block);
        match self.bytes >= BLOCK_BYTES {
            true => self.write().await,
            false => Ok(()),
        }
    }

    /// Writes all that is there.
    async fn write(&mut self) -> io::Result<()> {
        self.bytes = 0;
        let (file, blocks) = (Arc::clone(&self.file), std::mem::take(&mut self.blocks));
        let mut blocks = blocks.into_iter();
        let write = move || blocks.try_for_each(|block| (&*file).write_all(&block));
        spawn_blocking(write).await?
    }
}
