//! Files of a sandbox, as execd has them.

use std::collections::BTreeSet;

use bytes::BytesMut;
use http_body_util::{BodyExt, Limited};
use tokio::sync::Semaphore;

use crate::front::dialect::*;

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
pub(super) async fn answer(sandbox: &Sandbox, path: &[&str], request: Request<Body>) -> Answered {
    let query = Query::of(request.uri());
    match (request.method().as_str(), path) {
        ("GET", ["files", "info"]) => return info(sandbox, &query).await,
        ("GET", ["files", "download"]) => {
            return download(sandbox, &query, request.headers()).await;
        }
        ("POST", ["files", "upload"]) => {
            let (parts, content) = request.into_parts();
            let upload = async |content| upload(sandbox, &parts.headers, content).await;
            drained(content, upload).await?;
        }
        ("POST", ["files", "permissions"]) => set_modes(sandbox, &body(request).await?).await?,
        ("POST", ["files", "mv"]) => {
            for Move { src, dest } in body_list::<Move>(request).await? {
                let (from, to) = (src, dest);
                sandbox.call(protocol::Move { from, to }).await?;
            }
        }
        ("POST", ["files", "replace"]) => return replace(sandbox, body(request).await?).await,
        ("GET", ["files", "search"]) => return search(sandbox, &query).await,
        ("GET", ["directories", "list"]) => {
            let depth = query.checked_number("depth")?.unwrap_or(1_u64);
            let depth = u32::try_from(depth).unwrap_or(u32::MAX);
            let depth = depth.clamp(1, SEARCHED_DEPTH);
            let path = path_of(&query)?;
            let entries = sandbox.call(ListDirectory { path, depth }).await?;
            return each(&entries, described);
        }
        ("POST", ["directories"]) => {
            let all: BTreeMap<String, Permission> = body(request).await?;
            for path in all.keys().cloned() {
                sandbox.call(MakeDirectory { path }).await?;
            }
            set_modes(sandbox, &all).await?;
        }
        ("DELETE", ["files" | "directories"]) => {
            for path in query.all("path").cloned() {
                sandbox.call(Remove { path }).await?;
            }
        }
        _ => return Err(not_offered(&request)),
    }
    Ok(empty(StatusCode::OK))
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

fn path_of(query: &Query) -> Result<String, Refusal> {
    let missing = || Refusal::invalid("path is missing");
    query.one("path").ok_or_else(missing)
}

fn described(entry: &EntryFacts) -> Value {
    let kind = match (&entry.target, entry.kind.as_str()) {
        (Some(_), _) => "symlink",
        (None, kind @ ("file" | "directory")) => kind,
        (None, _) => "other",
    };
    let changed = rfc3339(entry.modified_ns.into());
    // Its digits are octal.
    let mode = format!("{:o}", entry.mode & 0o7777).parse::<u32>();
    json!({
        "path": entry.path,
        "type": kind,
        "size": entry.size,
        "mode": mode.unwrap_or(0),
        "owner": entry.owner,
        "group": entry.group,
        "modified_at": changed,
        // When it was made is not kept.
        "created_at": changed,
    })
}

async fn info(sandbox: &Sandbox, query: &Query) -> Answered {
    let mut all = Map::new();
    for path in query.all("path").cloned() {
        let entry = sandbox.call(Stat { path: path.clone() }).await?;
        all.insert(path, described(&entry));
    }
    ok(&all)
}

async fn download(sandbox: &Sandbox, query: &Query, headers: &HeaderMap) -> Answered {
    if ["offset", "limit"]
        .iter()
        .any(|name| query.one(name).is_some())
    {
        let what = "offset and limit: files are not read by lines here";
        return Err(Refusal::invalid(what).advise("use Range for a part of a file"));
    }
    sandbox.fetch(path_of(query)?, headers).await
}

/// Writes the files of a form, each after its description.
async fn upload(sandbox: &Sandbox, headers: &HeaderMap, content: Body) -> Result<(), Refusal> {
    let mut form = form_of(headers, content).await?;
    let mut described: Option<Description> = None;
    let mut modes = BTreeMap::new();
    while let Some(mut part) = form.next().await? {
        match part.name() {
            Some("metadata") => {
                let mut text = BytesMut::new();
                while let Some(block) = part.chunk().await.map_err(|error| wrong_body(&error))? {
                    text.extend_from_slice(&block);
                    if text.len() > DESCRIPTION_BYTES_MAX {
                        return Err(Refusal::invalid("metadata is too long"));
                    }
                }
                described = Some(parsed(&text)?);
            }
            Some("file") => {
                let missing = || Refusal::invalid("a file has no metadata before it");
                let Description { path, permission } = described.take().ok_or_else(missing)?;
                permission.check()?;
                sandbox.store(&path, content_of(part)).await?;
                modes.insert(path, permission);
            }
            _ => {
                return Err(Refusal::invalid("a part is neither metadata nor file"));
            }
        }
    }
    set_modes(sandbox, &modes).await
}

impl Permission {
    /// Refuses what nobody in a sandbox can set.
    fn check(&self) -> Result<(), Refusal> {
        let mut names = self.owner.iter().chain(&self.group);
        if names.any(|name| !name.is_empty() && name != RESIDENT.name) {
            let what = format!("every file is of {} here", RESIDENT.name);
            return Err(Refusal::new(Kind::Forbidden, what).advise("leave out owner and group"));
        }
        let is_octal = |mode: u32| mode <= 7777 && !mode.to_string().contains(['8', '9']);
        match self.mode {
            Some(mode) if !is_octal(mode) => {
                let what = format!("mode {mode} is none: four octal digits at most");
                Err(Refusal::invalid(what))
            }
            _ => Ok(()),
        }
    }
}

/// Sets the modes of files, by the sandbox's own program.
async fn set_modes(sandbox: &Sandbox, all: &BTreeMap<String, Permission>) -> Result<(), Refusal> {
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
        let ran = sandbox.run(ask, MESSAGE_BYTES_MAX).await?;
        if ran.end != End::Exited(0) {
            return Err(Refusal::invalid(ran.stderr.text().trim()));
        }
    }
    Ok(())
}

/// The files in which text is replaced.
static REPLACED: Semaphore = Semaphore::const_new(REPLACED_MAX);

/// Replaces text in files.
async fn replace(sandbox: &Sandbox, all: BTreeMap<String, Replace>) -> Answered {
    let mut counts = Map::new();
    for (path, Replace { old, new }) in all {
        let wrong = |what: &str| Refusal::invalid(format!("{path}: {what}"));
        if old.is_empty() {
            return Err(wrong("there is no text to replace"));
        }
        let _place = REPLACED.acquire().await;
        let file = sandbox.fetch(path.clone(), &HeaderMap::new()).await?;
        let read = Limited::new(file.into_body(), REPLACED_BYTES_MAX).collect();
        let text = read.await.map_err(|_| wrong("it is too long for that"))?;
        let text = String::from_utf8(text.to_bytes().to_vec());
        let text = text.map_err(|_| wrong("it is no text"))?;
        let (count, bytes) = replaced(&text, &old, &new);
        if bytes > REPLACED_BYTES_MAX {
            let what = format!("it would have {bytes} bytes, of {REPLACED_BYTES_MAX}");
            return Err(wrong(&what));
        }
        let text = text.replace(&old, &new);
        sandbox.store(&path, Body::from(text)).await?;
        counts.insert(path, json!({ "replacedCount": count }));
    }
    ok(&counts)
}

/// Returns how often a text is replaced, and the bytes of what becomes of it.
fn replaced(text: &str, old: &str, new: &str) -> (usize, usize) {
    let count = text.matches(old).count();
    let kept = text.len() - count * old.len();
    (count, kept.saturating_add(count.saturating_mul(new.len())))
}

/// Finds files by a pattern of their names, or of their paths below the directory.
async fn search(sandbox: &Sandbox, query: &Query) -> Answered {
    let root = path_of(query)?;
    let pattern = query.one("pattern").unwrap_or_else(|| "**".to_owned());
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(Refusal::invalid("the pattern is too long"));
    }
    let ask = ListDirectory {
        path: root.clone(),
        depth: SEARCHED_DEPTH,
    };
    let entries = sandbox.call(ask).await?;
    let is_one = |entry: &&EntryFacts| {
        let below = entry.path.strip_prefix(&root).unwrap_or(&entry.path);
        let below = below.trim_start_matches('/');
        let name = below.rsplit('/').next().unwrap_or_default();
        let whole = if pattern.contains('/') { below } else { name };
        entry.kind != "directory" && matches(pattern.as_bytes(), whole.as_bytes())
    };
    each(entries.iter().filter(is_one), described)
}

/// Returns whether a pattern is good for a text: `?` is one character, `*` any of one name, `**` any.
/// The time is that of both lengths together multiplied, whatever the pattern.
fn matches(mut pattern: &[u8], text: &[u8]) -> bool {
    // The places of the text up to which the pattern so far is good for it.
    let mut good = BTreeSet::from([0]);
    while let Some((&first, after)) = pattern.split_first() {
        let deep = pattern.strip_prefix(b"**");
        pattern = deep.unwrap_or(after);
        let mut next = BTreeSet::new();
        for at in good {
            match (first, text.get(at)) {
                // What follows it is there already.
                (b'*', _) if next.contains(&at) => {}
                (b'*', _) => {
                    let rest = text.iter().skip(at);
                    let any = rest.take_while(|byte| deep.is_some() || **byte != b'/');
                    next.extend(at..=at + any.count());
                }
                (b'?', Some(b'/')) | (_, None) => {}
                (first, Some(byte)) if first != b'?' && first != *byte => {}
                (_, Some(_)) => drop(next.insert(at + 1)),
            }
        }
        good = next;
    }
    good.contains(&text.len())
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
