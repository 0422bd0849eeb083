//! LibreChat's code API beneath `/librechat`. Each run, and each upload, is a sandbox of its own; its
//! home, which is `/mnt/data` too, keeps the files until its time is over.

mod run;

use atoll_ledger::hex;
use sha2::{Digest, Sha256};

use super::dialect::*;
use super::senders::credential;

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
pub(super) async fn answer(front: &Arc<Front>, request: Request<Body>) -> Response {
    let caller = Caller::new(front, credential(request.headers()));
    let answered = carry_out(&caller, request).await;
    answered.unwrap_or_else(|refusal| Dialect::LibreChat.refused(&refusal))
}

async fn carry_out(caller: &Caller, request: Request<Body>) -> Answered {
    let path = request.uri().path().to_owned();
    let path = path.strip_prefix(PREFIX).unwrap_or_default();
    let path: Vec<&str> = path.trim_matches('/').split('/').collect();
    let session = |id: &str| Session(caller.sandbox(id));
    match (request.method().as_str(), path.as_slice()) {
        ("POST", ["exec"]) => run::answer(caller, request).await,
        ("POST", ["upload"] | ["upload", "batch"]) => {
            let (parts, content) = request.into_parts();
            let upload = async |content| upload(caller, &parts.headers, content).await;
            drained(content, upload).await
        }
        ("GET", ["download", id, file]) => session(id).content(file).await,
        ("GET", ["sessions", id, "objects", file]) => {
            let session = session(id);
            ok(&session.listed(&session.file(file).await?))
        }
        ("GET", ["files", id]) => {
            let session = session(id);
            let files = session.files().await?;
            each(&files, |file| session.listed(file))
        }
        _ => Err(not_offered(&request)),
    }
}

/// The sandbox that keeps the files of a run, or of an upload.
struct Session(Sandbox);

impl Session {
    async fn begin(caller: &Caller) -> Result<Self, Refusal> {
        let ask = CreateAsk {
            template: CODE_INTERPRETER.to_owned(),
            metadata: BTreeMap::from([(NOTE.to_owned(), "session".to_owned())]),
            // Users see its id.
            private_ports: true,
            ..CreateAsk::default()
        };
        let made = caller.call(Create(Box::new(ask))).await?;
        Ok(Self(caller.sandbox(&made.sandbox.id)))
    }

    /// Ends it: nothing in it is wanted any more.
    async fn end(&self) {
        // At its time it ends by itself.
        let _ = self.0.call(Kill {}).await;
    }

    /// Writes a file below the home; returns what it is then.
    async fn store(&self, name: &str, content: Body) -> Result<EntryFacts, Refusal> {
        let path = format!("{}/{}", RESIDENT.home, plain(name)?);
        let stored = self.0.store(&path, content).await?;
        Ok(EntryFacts { path, ..stored })
    }

    /// Sends a file.
    async fn content(&self, id: &str) -> Answered {
        let path = self.file(id).await?.path;
        self.0.fetch(path, &HeaderMap::new()).await
    }

    /// Lists the files that are not hidden.
    async fn files(&self) -> Result<Vec<EntryFacts>, Refusal> {
        let ask = ListDirectory {
            path: RESIDENT.home.to_owned(),
            depth: FILES_DEPTH,
        };
        let all = self.0.call(ask).await?;
        let is_shown = |one: &EntryFacts| {
            let hidden = name_of(one).split('/').any(|part| part.starts_with('.'));
            one.kind == "file" && one.target.is_none() && !hidden
        };
        Ok(all.into_iter().filter(is_shown).take(FILES_MAX).collect())
    }

    /// Finds a file by its id.
    async fn file(&self, id: &str) -> Result<EntryFacts, Refusal> {
        let what = || format!("there is no file {id} in the session");
        let mut files = self.files().await?.into_iter();
        let found = files.find(|one| file_id(name_of(one)) == id);
        found.ok_or_else(|| Refusal::new(Kind::NotFound, what()))
    }

    /// Describes a file in a list.
    fn listed(&self, file: &EntryFacts) -> Value {
        let (name, session) = (name_of(file), &self.0.id);
        let id = file_id(name);
        json!({
            "name": format!("{session}/{id}"),
            "id": id,
            "session_id": session,
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
        let what = format!("{name:?} is no name of a file here");
        return Err(Refusal::invalid(what));
    }
    Ok(name)
}

/// Refuses more files than there can be at once.
fn check_count(files: usize) -> Result<(), Refusal> {
    match files <= FILES_MAX {
        true => Ok(()),
        false => {
            let what = format!("{FILES_MAX} files are the most at once");
            Err(Refusal::invalid(what))
        }
    }
}

/// Keeps the files of a form in a new session.
async fn upload(caller: &Caller, headers: &HeaderMap, content: Body) -> Answered {
    let mut form = form_of(headers, content).await?;
    let session = Session::begin(caller).await?;
    let mut files = Vec::new();
    let stored = async {
        while let Some(part) = form.next().await? {
            let Some(name) = part.file_name().map(str::to_owned) else {
                // Whose file it is: that of the key's tenant.
                continue;
            };
            check_count(files.len() + 1)?;
            session.store(&name, content_of(part)).await?;
            let id = file_id(plain(&name)?);
            files.push(json!({ "status": "success", "fileId": id, "id": id, "filename": name }));
        }
        match files.is_empty() {
            true => Err(Refusal::invalid("there is no file in the form")),
            false => Ok(()),
        }
    };
    if let Err(refusal) = stored.await {
        session.end().await;
        return Err(refusal);
    }
    ok(&json!({
        "message": "success",
        "session_id": session.0.id,
        "storage_session_id": session.0.id,
        "files": files,
        "succeeded": files.len(),
        "failed": 0,
    }))
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
