//! E2B's file system service.

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Front;
use super::answers::{connect, gone, parsed, whole};
use super::ask::{Line, within};
use super::envd::{check_user, token};
use super::envelopes::{Envelopes, Out, streamed};
use super::process::ping_every;
use crate::protocol::{
    ChangeFacts, EntryFacts, Kind, ListDirectory, MakeDirectory, MakeWatcher, Move, ReadWatcher,
    Refusal, Remove, RemoveWatcher, Stat, Watch,
};
use crate::rfc3339::rfc3339;

#[derive(Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[derive(Default)]
struct Asked {
    path: String,
    depth: u32,
    source: String,
    destination: String,
    recursive: bool,
    #[serde(alias = "watcher_id")]
    watcher_id: String,
}

/// Answers a request of the service.
pub(crate) async fn answer(
    front: &Front,
    sandbox: &str,
    method: &str,
    request: Request<Body>,
) -> Response {
    if method == "WatchDir" {
        return watch(front, sandbox, request).await;
    }
    let (parts, body) = request.into_parts();
    let answered = async {
        let text = whole(body).await?;
        check_user(&parts.headers)?;
        let credential = token(&parts.headers);
        let asked: Asked = parsed(&text)?;
        let path = asked.path.clone();
        let recursive = asked.recursive;
        let watcher = asked.watcher_id;
        Ok(match method {
            "Stat" => {
                let found = front.call_in(credential, sandbox, Stat { path }).await?;
                json!({ "entry": entry(&found) })
            }
            "ListDir" => {
                let depth = asked.depth.max(1);
                let ask = ListDirectory { path, depth };
                let all = front.call_in(credential, sandbox, ask).await?;
                json!({ "entries": all.iter().map(entry).collect::<Vec<_>>() })
            }
            "MakeDir" => {
                let ask = MakeDirectory { path };
                json!({ "entry": entry(&front.call_in(credential, sandbox, ask).await?) })
            }
            "Move" => {
                let (from, to) = (asked.source, asked.destination);
                let ask = Move { from, to };
                json!({ "entry": entry(&front.call_in(credential, sandbox, ask).await?) })
            }
            "Remove" => {
                front.call_in(credential, sandbox, Remove { path }).await?;
                json!({})
            }
            "CreateWatcher" => {
                let ask = MakeWatcher { path, recursive };
                json!({ "watcherId": front.call_in(credential, sandbox, ask).await? })
            }
            "GetWatcherEvents" => {
                let ask = ReadWatcher { watcher };
                let changes = front.call_in(credential, sandbox, ask).await?;
                json!({ "events": changes.iter().map(event).collect::<Vec<_>>() })
            }
            "RemoveWatcher" => {
                let ask = RemoveWatcher { watcher };
                front.call_in(credential, sandbox, ask).await?;
                json!({})
            }
            _ => {
                let what = format!("filesystem.Filesystem has no {method}");
                return Err(Refusal::new(Kind::NotFound, what));
            }
        })
    };
    connect(sandbox, answered.await)
}

/// Streams changes in a directory.
async fn watch(front: &Front, sandbox: &str, request: Request<Body>) -> Response {
    let (parts, body) = request.into_parts();
    let ping = ping_every(&parts.headers);
    let began = async {
        let text = Envelopes::only(whole(body).await?)?;
        check_user(&parts.headers)?;
        let asked: Asked = parsed(&text)?;
        let ask = Watch {
            path: asked.path,
            recursive: asked.recursive,
        };
        let mut line = front
            .begin(token(&parts.headers), within(sandbox, ask))
            .await?;
        line.reply().await.map(|()| line)
    };
    let (out, response) = streamed();
    match began.await {
        Err(refusal) if refusal.kind == Kind::NoSandbox => return gone(sandbox),
        Err(refusal) => out.end(Some(&refusal)).await,
        Ok(line) => drop(tokio::spawn(pass_on(line, out, ping))),
    }
    response
}

/// Passes on changes, until one of both sides is gone.
async fn pass_on(mut line: Line<(), Vec<ChangeFacts>>, out: Out, ping: Duration) {
    let mut told = out.message(&json!({ "start": {} })).await;
    while told {
        told = tokio::select! {
            changes = line.last() => match changes {
                Ok(changes) => {
                    let mut is_told = true;
                    for change in &changes {
                        let event = json!({ "filesystem": event(change) });
                        is_told = is_told && out.message(&event).await;
                    }
                    is_told
                }
                // Its sandbox is gone.
                Err(_) => return out.abort().await,
            },
            () = out.closed() => return,
            () = tokio::time::sleep(ping) => out.message(&json!({ "keepalive": {} })).await,
        };
    }
}

fn event(change: &ChangeFacts) -> Value {
    let kind = match change.kind.as_str() {
        "created" => "EVENT_TYPE_CREATE",
        "written" => "EVENT_TYPE_WRITE",
        "removed" => "EVENT_TYPE_REMOVE",
        "renamed" => "EVENT_TYPE_RENAME",
        _ => "EVENT_TYPE_CHMOD",
    };
    json!({ "name": change.name, "type": kind })
}

/// Describes a file.
pub(crate) fn entry(entry: &EntryFacts) -> Value {
    let name = entry.path.rsplit('/').next().unwrap_or_default();
    let kind = match entry.kind.as_str() {
        "file" => "FILE_TYPE_FILE",
        "directory" => "FILE_TYPE_DIRECTORY",
        "link" => "FILE_TYPE_SYMLINK",
        _ => "FILE_TYPE_UNSPECIFIED",
    };
    let mut described = json!({
        "name": name,
        "type": kind,
        "path": entry.path,
        "size": entry.size.to_string(),
        "mode": entry.mode & 0o777,
        "permissions": permissions(entry),
        "owner": entry.owner,
        "group": entry.group,
        "modifiedTime": rfc3339(entry.modified_ns.into()),
    });
    if let (Some(fields), Some(target)) = (described.as_object_mut(), &entry.target) {
        fields.insert("symlinkTarget".to_owned(), json!(target));
    }
    described
}

/// Writes permissions as Go's `FileMode` does.
fn permissions(entry: &EntryFacts) -> String {
    let mut text = String::from(match (entry.kind.as_str(), &entry.target) {
        (_, Some(_)) => "L",
        ("directory", None) => "d",
        _ => "-",
    });
    for shift in [6, 3, 0] {
        for (bit, letter) in [(4, 'r'), (2, 'w'), (1, 'x')] {
            let is_set = entry.mode >> shift & bit != 0;
            text.push(if is_set { letter } else { '-' });
        }
    }
    text
}
