//! LibreChat's code API beneath `/librechat`. Each run, and each upload, is a sandbox of its own; its
//! home, which is `/mnt/data` too, keeps the files until its time is over.

mod run;

use std::collections::BTreeMap;
use std::io;

use atoll_ledger::hex;
use atoll_model::RESIDENT;
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Request, StatusCode, header};
use axum::response::Response;
use futures_util::StreamExt;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::Front;
use super::answers::{body, json as answer_json, status, with_retry};
use super::control::{credential, not_offered};
use super::form::{drained, parts_of, wrong_body};
use super::transfer::{fetch, store};
use crate::protocol::{
    CODE_INTERPRETER, Create, CreateAsk, Credential, EntryFacts, Kill, Kind, ListDirectory, Refusal,
};
use crate::rfc3339::rfc3339;

/// The beginning of the paths of this API.
pub(super) const PREFIX: &str = "/librechat/";
/// The note of a sandbox that was made for this API.
const NOTE: &str = "librechat";
/// The characters of a file's id, as the client checks them.
const ID_CHARACTERS: usize = 21;
/// The most files of one session that are listed, and the levels of directories.
const FILES_MAX: usize = 200;
const FILES_DEPTH: u32 = 8;
/// The longest name of a file, bytes.
const NAME_BYTES_MAX: usize = 255;

/// Answers a request of the API.
pub(super) async fn answer(front: &Front, request: Request<Body>) -> Response {
    let (parts, content) = request.into_parts();
    let answered = carry_out(front, &parts, content).await;
    answered.unwrap_or_else(|refusal| {
        let mut body = json!({ "error": refusal.told() });
        if let (Kind::Quota, Some(body)) = (refusal.kind, body.as_object_mut()) {
            body.insert("error".to_owned(), json!("rate_limited"));
            body.insert("message".to_owned(), json!(refusal.told()));
            let seconds = refusal.retry_after_s.unwrap_or(1);
            body.insert("retry_after_seconds".to_owned(), json!(seconds));
        }
        with_retry(answer_json(status(refusal.kind), &body), &refusal)
    })
}

async fn carry_out(front: &Front, parts: &Parts, content: Body) -> Result<Response, Refusal> {
    let path = parts.uri.path().strip_prefix(PREFIX).unwrap_or_default();
    let path: Vec<&str> = path.trim_matches('/').split('/').collect();
    let key = credential(&parts.headers);
    match (parts.method.as_str(), path.as_slice()) {
        ("POST", ["exec"]) => run::answer(front, &key, &parts.headers, body(content).await?).await,
        ("POST", ["upload"] | ["upload", "batch"]) => {
            drained(content, async |content| {
                upload(front, &key, &parts.headers, content).await
            })
            .await
        }
        ("GET", ["download", session, file]) => {
            let session = Session::new(front, &key, session);
            let path = session.file(file).await?.path;
            let none = HeaderMap::new();
            fetch(front, key.clone(), Some(&session.sandbox), path, &none).await
        }
        ("GET", ["sessions", session, "objects", file]) => {
            let session = Session::new(front, &key, session);
            let file = session.file(file).await?;
            Ok(answer_json(StatusCode::OK, &session.listed(&file)))
        }
        ("GET", ["files", session]) => {
            let session = Session::new(front, &key, session);
            let files = session.files().await?;
            let all: Vec<Value> = files.iter().map(|file| session.listed(file)).collect();
            Ok(answer_json(StatusCode::OK, &all))
        }
        _ => Err(not_offered(parts)),
    }
}

/// The sandbox that keeps the files of a run, or of an upload.
struct Session<'a> {
    front: &'a Front,
    key: &'a Credential,
    sandbox: String,
}

impl<'a> Session<'a> {
    fn new(front: &'a Front, key: &'a Credential, sandbox: &str) -> Self {
        Self {
            front,
            key,
            sandbox: sandbox.to_owned(),
        }
    }

    async fn begin(front: &'a Front, key: &'a Credential) -> Result<Self, Refusal> {
        let ask = CreateAsk {
            template: CODE_INTERPRETER.to_owned(),
            metadata: BTreeMap::from([(NOTE.to_owned(), "session".to_owned())]),
            // Users see its id.
            private_ports: true,
            ..CreateAsk::default()
        };
        let made = front.call(key.clone(), Create(Box::new(ask))).await?;
        Ok(Self::new(front, key, &made.sandbox.id))
    }

    /// Ends it: nothing in it is wanted any more.
    async fn end(&self) {
        // At its time it ends by itself.
        let killed = self.front.call_in(self.key.clone(), &self.sandbox, Kill {});
        let _ = killed.await;
    }

    /// Writes a file below the home; returns what it is then.
    async fn store(&self, name: &str, content: Body) -> Result<EntryFacts, Refusal> {
        let path = format!("{}/{}", RESIDENT.home, plain(name)?);
        let stored = store(self.front, self.key, &self.sandbox, &path, content).await?;
        Ok(EntryFacts { path, ..stored })
    }

    /// Lists the files that are not hidden.
    async fn files(&self) -> Result<Vec<EntryFacts>, Refusal> {
        let ask = ListDirectory {
            path: RESIDENT.home.to_owned(),
            depth: FILES_DEPTH,
        };
        let all = self.front.call_in(self.key.clone(), &self.sandbox, ask);
        let all = all.await?;
        let is_shown = |one: &EntryFacts| {
            let hidden = name_of(one).split('/').any(|part| part.starts_with('.'));
            one.kind == "file" && one.target.is_none() && !hidden
        };
        Ok(all.into_iter().filter(is_shown).take(FILES_MAX).collect())
    }

    /// Finds a file by its id.
    async fn file(&self, id: &str) -> Result<EntryFacts, Refusal> {
        let none = || {
            Refusal::new(
                Kind::NotFound,
                format!("there is no file {id} in the session"),
            )
        };
        let mut files = self.files().await?.into_iter();
        files
            .find(|one| file_id(name_of(one)) == id)
            .ok_or_else(none)
    }

    /// Describes a file in a list.
    fn listed(&self, file: &EntryFacts) -> Value {
        let name = name_of(file);
        json!({
            "name": format!("{}/{}", self.sandbox, file_id(name)),
            "id": file_id(name),
            "session_id": self.sandbox,
            "size": file.size,
            "lastModified": rfc3339(file.modified_ns.into()),
            "metadata": { "original-filename": name },
        })
    }
}

/// Returns the name of a file below the home.
fn name_of(file: &EntryFacts) -> &str {
    let below = file.path.strip_prefix(RESIDENT.home);
    below.unwrap_or(&file.path).trim_start_matches('/')
}

/// Returns the id of a file: the client takes no name for one.
fn file_id(name: &str) -> String {
    let mut id = hex(&Sha256::digest(name.as_bytes()));
    id.truncate(ID_CHARACTERS);
    id
}

/// Returns a name if it stays below the home.
fn plain(name: &str) -> Result<&str, Refusal> {
    let name = name.strip_prefix("/mnt/data/").unwrap_or(name);
    let is_odd = |part: &str| matches!(part, "" | "." | "..") || part.contains('\0');
    if name.len() > NAME_BYTES_MAX || name.split('/').any(is_odd) {
        return Err(Refusal::new(
            Kind::Invalid,
            format!("{name:?} is no name of a file here"),
        ));
    }
    Ok(name)
}

/// Keeps the files of a form in a new session.
async fn upload(
    front: &Front,
    key: &Credential,
    headers: &HeaderMap,
    content: Body,
) -> Result<Response, Refusal> {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let boundary = multer::parse_boundary(kind.unwrap_or_default());
    let mut all = parts_of(content, boundary.map_err(|error| wrong_body(&error))?).await?;
    let session = Session::begin(front, key).await?;
    let mut files = Vec::new();
    let stored = async {
        while let Some(part) = all.next().await? {
            let Some(name) = part.file_name().map(str::to_owned) else {
                // Whose file it is: that of the key's tenant.
                continue;
            };
            if files.len() >= FILES_MAX {
                let what = format!("{FILES_MAX} files are the most at once");
                return Err(Refusal::new(Kind::Invalid, what));
            }
            let blocks = part.map(|block| block.map_err(io::Error::other));
            session.store(&name, Body::from_stream(blocks)).await?;
            let id = file_id(plain(&name)?);
            files.push(json!({ "status": "success", "fileId": id, "id": id, "filename": name }));
        }
        match files.is_empty() {
            true => Err(Refusal::new(Kind::Invalid, "there is no file in the form")),
            false => Ok(()),
        }
    };
    if let Err(refusal) = stored.await {
        session.end().await;
        return Err(refusal);
    }
    let body = json!({
        "message": "success",
        "session_id": session.sandbox,
        "storage_session_id": session.sandbox,
        "files": files,
        "succeeded": files.len(),
        "failed": 0,
    });
    Ok(answer_json(StatusCode::OK, &body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_below_the_home() {
        for (name, good) in [
            ("a.txt", true),
            ("a/b c.txt", true),
            ("/mnt/data/a.txt", true),
            ("/etc/passwd", false),
            ("../a", false),
            ("a/../../b", false),
            ("a//b", false),
            ("", false),
            (".", false),
            ("a\0b", false),
        ] {
            assert_eq!(plain(name).is_ok(), good, "{name:?}");
        }
        assert_eq!(file_id("a.txt").len(), ID_CHARACTERS);
    }
}
