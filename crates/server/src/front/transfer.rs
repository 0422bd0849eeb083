//! Whole files, by plain HTTP: what a signed link is for.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use flate2::write::GzDecoder;
use futures_util::StreamExt;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use super::Front;
use super::answers::{json as answer_json, refused, refused_in};
use super::ask::Line;
use super::envd::{named_user, token};
use super::form::{drained, parts_of, wrong_body};
use super::gathered::Gathered;
use super::idle::timed;
use super::packed::{PACKED_BYTES, Packed, unpacked};
use crate::protocol::{
    ByteRange, Credential, EntryFacts, FileFacts, In, Kind, Read, Refusal, Write,
};

/// The bytes that are read from a file at once.
const BLOCK_BYTES: usize = 512 * 1024;

/// The parts of a link.
#[derive(Debug, Default)]
struct Link {
    path: String,
    user: String,
    signature: Option<String>,
    expires_s: Option<u64>,
}

impl Link {
    fn read(query: &str) -> Result<Self, Refusal> {
        let mut link = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match name.as_ref() {
                "path" => link.path = value.into_owned(),
                "username" => link.user = value.into_owned(),
                "signature" => link.signature = Some(value.into_owned()),
                "signature_expiration" => {
                    let wrong = |_| Refusal::new(Kind::Invalid, "signature_expiration is no time");
                    link.expires_s = Some(value.parse().map_err(wrong)?);
                }
                _ => {}
            }
        }
        Ok(link)
    }

    fn credential(&self, headers: &HeaderMap) -> Credential {
        match (token(headers), &self.signature) {
            (token @ Credential::Token(_), _) => token,
            (_, Some(signature)) => Credential::Signature {
                signature: signature.clone(),
                user: self.user.clone(),
                path: self.path.clone(),
                expires_s: self.expires_s,
            },
            (none, None) => none,
        }
    }
}

/// Returns the credential of a request about a file.
pub(super) fn credential(headers: &HeaderMap, uri: &Uri) -> Credential {
    let link = Link::read(uri.query().unwrap_or_default());
    link.map_or(Credential::Nothing, |link| link.credential(headers))
}

/// Answers a request about a file, of a sandbox or of the one that the signature finds.
pub(crate) async fn answer(
    front: &Front,
    sandbox: Option<&str>,
    request: Request<Body>,
) -> Response {
    let (parts, body) = request.into_parts();
    let answered = match parts.method {
        Method::GET => download(front, sandbox, &parts).await,
        Method::POST => upload(front, sandbox, &parts, body).await,
        _ => Err(Refusal::new(Kind::Invalid, "/files takes GET and POST")),
    };
    answered.unwrap_or_else(|refusal| match sandbox {
        Some(sandbox) => refused_in(sandbox, &refusal),
        None => refused(&refusal),
    })
}

fn within<R>(sandbox: Option<&str>, ask: R) -> In<R> {
    In {
        sandbox: sandbox.map(str::to_owned),
        ask,
    }
}

async fn download(
    front: &Front,
    sandbox: Option<&str>,
    parts: &Parts,
) -> Result<Response, Refusal> {
    let link = Link::read(parts.uri.query().unwrap_or_default())?;
    named_user(&link.user)?;
    let credential = link.credential(&parts.headers);
    fetch(front, credential, sandbox, link.path, &parts.headers).await
}

/// Sends a file, or the part of it that the headers ask for.
pub(crate) async fn fetch(
    front: &Front,
    credential: Credential,
    sandbox: Option<&str>,
    path: String,
    headers: &HeaderMap,
) -> Result<Response, Refusal> {
    let range = asked_range(headers);
    let ask = Read { path, range };
    let line = front.begin(credential, within(sandbox, ask)).await?;
    send(line, range.is_some()).await
}

/// Returns the part of a file that the headers ask for.
pub(crate) fn asked_range(headers: &HeaderMap) -> Option<ByteRange> {
    let range = headers.get(header::RANGE)?.to_str().ok()?;
    read_range(range)
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
    let kind = HeaderValue::from_static("application/octet-stream");
    headers.insert(header::CONTENT_TYPE, kind);
    // A browser is to keep it, never to show it.
    let kept = HeaderValue::from_static("attachment");
    headers.insert(header::CONTENT_DISPOSITION, kept);
    let sniffed = HeaderValue::from_static("nosniff");
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, sniffed);
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

async fn upload(
    front: &Front,
    sandbox: Option<&str>,
    parts: &Parts,
    body: Body,
) -> Result<Response, Refusal> {
    drained(body, async |body| {
        upload_of(front, sandbox, parts, body).await
    })
    .await
}

async fn upload_of(
    front: &Front,
    sandbox: Option<&str>,
    parts: &Parts,
    body: Body,
) -> Result<Response, Refusal> {
    let link = Link::read(parts.uri.query().unwrap_or_default())?;
    named_user(&link.user)?;
    let credential = link.credential(&parts.headers);
    let text = |name: header::HeaderName| parts.headers.get(name).and_then(|one| one.to_str().ok());
    let mut packed = match text(header::CONTENT_ENCODING) {
        None | Some("identity") => Packed::Not,
        Some("gzip") => Packed::Gzip(Box::new(GzDecoder::new(Vec::new()))),
        Some(_) => {
            return Err(Refusal::new(
                Kind::Invalid,
                "Content-Encoding is gzip, or nothing",
            ));
        }
    };
    check_before(&link, &parts.headers)?;
    let kind = text(header::CONTENT_TYPE).unwrap_or_default();
    let mut written = Vec::new();
    let body = match (&packed, multer::parse_boundary(kind)) {
        // The parts are packed together.
        (Packed::Gzip(_), Ok(_)) => unpacked(body, std::mem::replace(&mut packed, Packed::Not)),
        _ => body,
    };
    if let Ok(boundary) = multer::parse_boundary(kind) {
        let mut all = parts_of(body, boundary).await?;
        while let Some(part) = all.next().await? {
            let path = match (&*link.path, part.file_name()) {
                ("", Some(name)) => name.to_owned(),
                ("", None) => return Err(Refusal::new(Kind::Invalid, "a part has no file name")),
                (path, _) => path.to_owned(),
            };
            let line = begin(front, sandbox, &credential, &path).await?;
            let blocks = part.map(|block| block.map_err(io::Error::other));
            let blocks = std::pin::pin!(blocks);
            written.push(write(line, blocks, &mut Packed::Not, &path).await?);
        }
    } else if link.path.is_empty() {
        return Err(Refusal::new(
            Kind::Invalid,
            "path says where the file goes, and is missing",
        ));
    } else {
        let line = begin(front, sandbox, &credential, &link.path).await?;
        let blocks = body
            .into_data_stream()
            .map(|block| block.map_err(io::Error::other));
        let blocks = std::pin::pin!(blocks);
        written.push(write(line, blocks, &mut packed, &link.path).await?);
    }
    Ok(answer_json(StatusCode::OK, &written))
}

/// Refuses what can be refused before anything of the body is read.
fn check_before(link: &Link, headers: &HeaderMap) -> Result<(), Refusal> {
    let mut names = headers.keys();
    if names.any(|name| name.as_str().starts_with("x-metadata-")) {
        let what = "files have no metadata on this server";
        return Err(Refusal::new(Kind::Forbidden, what));
    }
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    match (&link.signature, link.expires_s) {
        (Some(_), Some(expires_s)) if expires_s <= now.as_secs() => Err(Refusal::new(
            Kind::Unauthenticated,
            "signature is already expired",
        )),
        _ => Ok(()),
    }
}

/// Writes a body to a file; returns what the file is then.
pub(crate) async fn store(
    front: &Front,
    credential: &Credential,
    sandbox: &str,
    path: &str,
    body: Body,
) -> Result<EntryFacts, Refusal> {
    let line = begin(front, Some(sandbox), credential, path).await?;
    let blocks = timed(body).into_data_stream();
    let blocks = blocks.map(|block| block.map_err(io::Error::other));
    written(line, path, std::pin::pin!(blocks), &mut Packed::Not).await
}

/// Writes a body to a file that is handed over; returns what is told of it then.
pub(crate) async fn take<M: DeserializeOwned>(
    line: Line<(), M>,
    path: &str,
    body: Body,
) -> Result<M, Refusal> {
    let take = async |body: Body| {
        let blocks = body.into_data_stream();
        let blocks = blocks.map(|block| block.map_err(io::Error::other));
        written(line, path, std::pin::pin!(blocks), &mut Packed::Not).await
    };
    drained(body, take).await
}

async fn begin(
    front: &Front,
    sandbox: Option<&str>,
    credential: &Credential,
    path: &str,
) -> Result<Line<(), EntryFacts>, Refusal> {
    let ask = Write {
        path: path.to_owned(),
    };
    front.begin(credential.clone(), within(sandbox, ask)).await
}

/// Writes the blocks of one file; returns its description of E2B's.
async fn write(
    line: Line<(), EntryFacts>,
    blocks: impl futures_util::Stream<Item = io::Result<Bytes>> + Unpin,
    packed: &mut Packed,
    path: &str,
) -> Result<Value, Refusal> {
    let entry = written(line, path, blocks, packed).await?;
    let at = if entry.path.is_empty() {
        path
    } else {
        &entry.path
    };
    let name = at.rsplit('/').next().unwrap_or_default();
    Ok(json!({ "path": at, "name": name, "type": "file" }))
}

async fn written<M: DeserializeOwned>(
    mut line: Line<(), M>,
    path: &str,
    mut blocks: impl futures_util::Stream<Item = io::Result<Bytes>> + Unpin,
    packed: &mut Packed,
) -> Result<M, Refusal> {
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
