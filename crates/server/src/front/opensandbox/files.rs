//! Files of a sandbox, as execd has them.

use std::collections::BTreeMap;
use std::io;

use atoll_model::RESIDENT;
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use bytes::BytesMut;
use futures_util::StreamExt;
use http_body_util::{BodyExt, Limited};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use super::{Inside, named, number};
use crate::front::answers::{body, body_list, empty, json as answer_json, parsed};
use crate::front::ask::Next;
use crate::front::control::not_offered;
use crate::front::form::{drained, parts_of, wrong_body};
use crate::front::transfer::{fetch, store};
use crate::line::Stream;
use crate::protocol::{
    self, End, EntryFacts, Kind, ListDirectory, MakeDirectory, Refusal, Remove, StartAsk, Stat,
};
use crate::rfc3339::rfc3339;

/// The longest description of a file in an upload, bytes.
const DESCRIPTION_BYTES_MAX: usize = 64 * 1024;
/// The longest file in which text is replaced, bytes.
const REPLACED_BYTES_MAX: usize = 16 << 20;
/// The most files in which text is replaced at once; others wait.
const REPLACED_MAX: usize = 8;
/// The levels of directories that are searched.
const SEARCHED_DEPTH: u32 = 32;
/// The longest pattern, bytes.
const PATTERN_BYTES_MAX: usize = 256;
/// The longest message of a program that changes modes, bytes.
const MESSAGE_BYTES_MAX: usize = 4096;

/// Answers a request about files.
pub(super) async fn answer(
    inside: &Inside<'_>,
    parts: &Parts,
    path: &[&str],
    content: Body,
) -> Result<Response, Refusal> {
    match (parts.method.as_str(), path) {
        ("GET", ["files", "info"]) => info(inside, parts).await,
        ("GET", ["files", "download"]) => download(inside, parts).await,
        ("POST", ["files", "upload"]) => {
            drained(content, async |content| {
                upload(inside, parts, content).await
            })
            .await
        }
        ("POST", ["files", "permissions"]) => {
            let all: BTreeMap<String, Permission> = body(content).await?;
            set_modes(inside, &all).await?;
            Ok(empty(StatusCode::OK))
        }
        ("POST", ["files", "mv"]) => {
            for Move { src, dest } in body_list::<Move>(content).await? {
                let (from, to) = (src, dest);
                inside.call(protocol::Move { from, to }).await?;
            }
            Ok(empty(StatusCode::OK))
        }
        ("POST", ["files", "replace"]) => replace(inside, body(content).await?).await,
        ("GET", ["files", "search"]) => search(inside, parts).await,
        ("GET", ["directories", "list"]) => {
            let depth = number(parts, "depth")?
                .unwrap_or(1)
                .clamp(1, u64::from(SEARCHED_DEPTH));
            let depth = u32::try_from(depth).unwrap_or(1);
            let path = path_of(parts)?;
            let entries = inside.call(ListDirectory { path, depth }).await?;
            let all: Vec<Value> = entries.iter().map(described).collect();
            Ok(answer_json(StatusCode::OK, &all))
        }
        ("POST", ["directories"]) => {
            let all: BTreeMap<String, Permission> = body(content).await?;
            for path in all.keys() {
                let path = path.clone();
                inside.call(MakeDirectory { path }).await?;
            }
            set_modes(inside, &all).await?;
            Ok(empty(StatusCode::OK))
        }
        ("DELETE", ["files" | "directories"]) => {
            for path in named(parts, "path") {
                inside.call(Remove { path }).await?;
            }
            Ok(empty(StatusCode::OK))
        }
        _ => Err(not_offered(parts)),
    }
}

/// The permissions of a file, whose digits are octal.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Permission {
    mode: Option<u32>,
    owner: Option<String>,
    group: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Move {
    src: String,
    dest: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Replace {
    old: String,
    new: String,
}

/// The description of a file in an upload.
#[derive(Deserialize)]
struct Description {
    path: String,
    #[serde(flatten)]
    permission: Permission,
}

fn path_of(parts: &Parts) -> Result<String, Refusal> {
    let missing = || Refusal::new(Kind::Invalid, "path is missing");
    named(parts, "path").next().ok_or_else(missing)
}

fn described(entry: &EntryFacts) -> Value {
    let kind = match (&entry.target, entry.kind.as_str()) {
        (Some(_), _) => "symlink",
        (None, kind @ ("file" | "directory")) => kind,
        (None, _) => "other",
    };
    let changed = rfc3339(entry.modified_ns.into());
    // Its digits are octal.
    let mode = format!("{:o}", entry.mode & 0o7777)
        .parse::<u32>()
        .unwrap_or(0);
    json!({
        "path": entry.path,
        "type": kind,
        "size": entry.size,
        "mode": mode,
        "owner": entry.owner,
        "group": entry.group,
        "modified_at": changed,
        // When it was made is not kept.
        "created_at": changed,
    })
}

async fn info(inside: &Inside<'_>, parts: &Parts) -> Result<Response, Refusal> {
    let mut all = Map::new();
    for path in named(parts, "path") {
        let ask = Stat { path: path.clone() };
        all.insert(path, described(&inside.call(ask).await?));
    }
    Ok(answer_json(StatusCode::OK, &all))
}

async fn download(inside: &Inside<'_>, parts: &Parts) -> Result<Response, Refusal> {
    if named(parts, "offset")
        .chain(named(parts, "limit"))
        .next()
        .is_some()
    {
        let what = "offset and limit: files are not read by lines here";
        return Err(Refusal::new(Kind::Invalid, what).advise("use Range for a part of a file"));
    }
    let (credential, path) = (inside.credential.clone(), path_of(parts)?);
    let sandbox = Some(inside.sandbox);
    fetch(inside.front, credential, sandbox, path, &parts.headers).await
}

/// Writes the files of a form, each after its description.
async fn upload(inside: &Inside<'_>, parts: &Parts, content: Body) -> Result<Response, Refusal> {
    let kind = parts
        .headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let boundary = multer::parse_boundary(kind.unwrap_or_default());
    let mut all = parts_of(content, boundary.map_err(|error| wrong_body(&error))?).await?;
    let mut described: Option<Description> = None;
    let mut modes = BTreeMap::new();
    while let Some(mut part) = all.next().await? {
        match part.name() {
            Some("metadata") => {
                let mut text = BytesMut::new();
                while let Some(block) = part.chunk().await.map_err(|error| wrong_body(&error))? {
                    text.extend_from_slice(&block);
                    if text.len() > DESCRIPTION_BYTES_MAX {
                        return Err(Refusal::new(Kind::Invalid, "metadata is too long"));
                    }
                }
                let description: Description = parsed(&text)?;
                described = Some(description);
            }
            Some("file") => {
                let missing = || Refusal::new(Kind::Invalid, "a file has no metadata before it");
                let Description { path, permission } = described.take().ok_or_else(missing)?;
                permission.check()?;
                let blocks = part.map(|block| block.map_err(io::Error::other));
                let (front, credential) = (inside.front, &inside.credential);
                let blocks = Body::from_stream(blocks);
                store(front, credential, inside.sandbox, &path, blocks).await?;
                modes.insert(path, permission);
            }
            _ => {
                return Err(Refusal::new(
                    Kind::Invalid,
                    "a part is neither metadata nor file",
                ));
            }
        }
    }
    set_modes(inside, &modes).await?;
    Ok(empty(StatusCode::OK))
}

impl Permission {
    /// Refuses what nobody in a sandbox can set.
    fn check(&self) -> Result<(), Refusal> {
        let is_other = |name: &Option<String>| {
            name.as_ref()
                .is_some_and(|name| !name.is_empty() && name != RESIDENT.name)
        };
        if is_other(&self.owner) || is_other(&self.group) {
            let what = format!("every file is of {} here", RESIDENT.name);
            return Err(Refusal::new(Kind::Forbidden, what).advise("leave out owner and group"));
        }
        let is_octal = |mode: u32| {
            mode <= 7777
                && mode
                    .to_string()
                    .bytes()
                    .all(|digit| (b'0'..=b'7').contains(&digit))
        };
        match self.mode {
            Some(mode) if !is_octal(mode) => {
                let what = format!("mode {mode} is none: four octal digits at most");
                Err(Refusal::new(Kind::Invalid, what))
            }
            _ => Ok(()),
        }
    }
}

/// Sets the modes of files, by the sandbox's own program.
async fn set_modes(inside: &Inside<'_>, all: &BTreeMap<String, Permission>) -> Result<(), Refusal> {
    let mut by_mode: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for (path, permission) in all {
        permission.check()?;
        if let Some(mode) = permission.mode.filter(|mode| *mode != 0) {
            by_mode.entry(mode).or_default().push(path.clone());
        }
    }
    for (mode, paths) in by_mode {
        let command = ["chmod".to_owned(), mode.to_string(), "--".to_owned()];
        let ask = StartAsk {
            command: command.into_iter().chain(paths).collect(),
            ..StartAsk::default()
        };
        run(inside, ask).await?;
    }
    Ok(())
}

/// Runs a program to its end, which is to be a good one.
async fn run(inside: &Inside<'_>, ask: StartAsk) -> Result<(), Refusal> {
    let (mut line, _) = inside.start(ask).await?;
    let mut message = Vec::new();
    loop {
        match line.next().await? {
            Next::Content(Stream::Error, content) => {
                let room = MESSAGE_BYTES_MAX.saturating_sub(message.len());
                message
                    .extend_from_slice(content.get(..room.min(content.len())).unwrap_or_default());
            }
            Next::Content(..) => {}
            Next::Message(End::Exited(0)) => return Ok(()),
            Next::Message(_) => {
                let message = String::from_utf8_lossy(&message);
                return Err(Refusal::new(Kind::Invalid, message.trim()));
            }
        }
    }
}

/// The files in which text is replaced.
static REPLACED: Semaphore = Semaphore::const_new(REPLACED_MAX);

/// Replaces text in files.
async fn replace(inside: &Inside<'_>, all: BTreeMap<String, Replace>) -> Result<Response, Refusal> {
    let mut told = Map::new();
    for (path, Replace { old, new }) in all {
        if old.is_empty() {
            return Err(Refusal::new(
                Kind::Invalid,
                format!("{path}: there is no text to replace"),
            ));
        }
        let _place = REPLACED.acquire().await;
        let (front, credential) = (inside.front, &inside.credential);
        let none = HeaderMap::new();
        let sandbox = Some(inside.sandbox);
        let file = fetch(front, credential.clone(), sandbox, path.clone(), &none).await?;
        let read = Limited::new(file.into_body(), REPLACED_BYTES_MAX)
            .collect()
            .await;
        let long = |_| Refusal::new(Kind::Invalid, format!("{path}: it is too long for that"));
        let text = read.map_err(long)?.to_bytes();
        let other = |_| Refusal::new(Kind::Invalid, format!("{path}: it is no text"));
        let text = String::from_utf8(text.to_vec()).map_err(other)?;
        let (count, bytes) = replaced(&text, &old, &new);
        if bytes > REPLACED_BYTES_MAX {
            let what = format!("{path}: it would have {bytes} bytes, of {REPLACED_BYTES_MAX}");
            return Err(Refusal::new(Kind::Invalid, what));
        }
        let text = Body::from(text.replace(&old, &new));
        store(front, credential, inside.sandbox, &path, text).await?;
        told.insert(path, json!({ "replacedCount": count }));
    }
    Ok(answer_json(StatusCode::OK, &told))
}

/// Returns how often a text is replaced, and the bytes of what becomes of it.
fn replaced(text: &str, old: &str, new: &str) -> (usize, usize) {
    let count = text.matches(old).count();
    let kept = text.len() - count * old.len();
    (count, kept.saturating_add(count.saturating_mul(new.len())))
}

/// Finds files by a pattern of their names, or of their paths below the directory.
async fn search(inside: &Inside<'_>, parts: &Parts) -> Result<Response, Refusal> {
    let root = path_of(parts)?;
    let pattern = named(parts, "pattern")
        .next()
        .unwrap_or_else(|| "**".to_owned());
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(Refusal::new(Kind::Invalid, "the pattern is too long"));
    }
    let ask = ListDirectory {
        path: root.clone(),
        depth: SEARCHED_DEPTH,
    };
    let entries = inside.call(ask).await?;
    let is_one = |entry: &&EntryFacts| {
        let below = entry
            .path
            .strip_prefix(root.as_str())
            .unwrap_or(&entry.path);
        let below = below.trim_start_matches('/');
        let name = below.rsplit('/').next().unwrap_or_default();
        let whole = if pattern.contains('/') { below } else { name };
        entry.kind != "directory" && matches(pattern.as_bytes(), whole.as_bytes())
    };
    let all: Vec<Value> = entries.iter().filter(is_one).map(described).collect();
    Ok(answer_json(StatusCode::OK, &all))
}

/// Returns whether a pattern is good for a text: `?` is one character, `*` any of one name, `**` any.
/// The time is that of both lengths together multiplied, whatever the pattern.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    // For each beginning of the text whether the pattern so far is good for it.
    let mut good = vec![false; text.len() + 1];
    if let Some(first) = good.first_mut() {
        *first = true;
    }
    let mut rest = pattern;
    while let Some((&first, after)) = rest.split_first() {
        let is_deep = first == b'*' && after.first() == Some(&b'*');
        rest = if is_deep {
            after.get(1..).unwrap_or_default()
        } else {
            after
        };
        let mut next = vec![false; text.len() + 1];
        let mut before = false;
        for (place, (now, was)) in next.iter_mut().zip(&good).enumerate() {
            let last = place.checked_sub(1).and_then(|last| text.get(last));
            let was_before = place.checked_sub(1).and_then(|last| good.get(last)) == Some(&true);
            *now = match (first, last) {
                (b'*', last) => *was || (before && (is_deep || last != Some(&b'/'))),
                (b'?', Some(last)) => was_before && *last != b'/',
                (first, Some(last)) => was_before && first == *last,
                (_, None) => false,
            };
            before = *now;
        }
        good = next;
    }
    good.last() == Some(&true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_matched() {
        let cases = [
            ("*.py", "a.py", true),
            ("*.py", "a.pyc", false),
            ("**", "a/b/c", true),
            ("*", "a/b", false),
            ("a/**/c.?", "a/b/d/c.x", true),
            ("a/*/c", "a/b/d/c", false),
            ("", "", true),
            ("", "a", false),
            ("?", "", false),
            ("*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
        ];
        for (pattern, text, expected) in cases {
            let good = matches(pattern.as_bytes(), text.as_bytes());
            assert_eq!(good, expected, "{pattern} {text}");
        }
    }

    #[test]
    fn replaced_texts_are_measured_before_they_are_made() {
        for (text, old, new) in [("aaab", "a", "bb"), ("aaa", "aa", ""), ("", "a", "b")] {
            let (count, bytes) = replaced(text, old, new);
            assert_eq!(bytes, text.replace(old, new).len(), "{text}");
            assert_eq!(count, text.matches(old).count(), "{text}");
        }
        assert_eq!(replaced("aa", "a", &"b".repeat(1 << 20)), (2, 2 << 20));
    }

    #[test]
    fn modes_have_octal_digits() {
        let permission = |mode| Permission {
            mode: Some(mode),
            owner: None,
            group: Some(RESIDENT.name.to_owned()),
        };
        for (mode, good) in [
            (755, true),
            (644, true),
            (7777, true),
            (789, false),
            (10000, false),
        ] {
            assert_eq!(permission(mode).check().is_ok(), good, "{mode}");
        }
    }
}
