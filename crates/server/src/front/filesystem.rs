//! E2B's file system service.

use super::dialect::*;
use super::envelopes::{Envelopes, connect, message, ping_every, stream};
use super::senders::check_user;

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
pub(crate) async fn answer(sandbox: &Sandbox, method: &str, request: Request<Body>) -> Response {
    if method == "WatchDir" {
        return watch(sandbox, request).await;
    }
    let (parts, body) = request.into_parts();
    let answered = async {
        let text = whole(body).await?;
        check_user(&parts.headers)?;
        carry_out(sandbox, method, parsed(&text)?).await
    };
    connect(&sandbox.id, answered.await)
}

async fn carry_out(sandbox: &Sandbox, method: &str, asked: Asked) -> Result<Value, Refusal> {
    let (path, watcher, recursive) = (asked.path, asked.watcher_id, asked.recursive);
    let one = |found: EntryFacts| json!({ "entry": entry(&found) });
    Ok(match method {
        "Stat" => one(sandbox.call(Stat { path }).await?),
        "ListDir" => {
            let depth = asked.depth.max(1);
            let all = sandbox.call(ListDirectory { path, depth }).await?;
            json!({ "entries": all.iter().map(entry).collect::<Vec<_>>() })
        }
        "MakeDir" => one(sandbox.call(MakeDirectory { path }).await?),
        "Move" => {
            let (from, to) = (asked.source, asked.destination);
            one(sandbox.call(Move { from, to }).await?)
        }
        "Remove" => {
            sandbox.call(Remove { path }).await?;
            json!({})
        }
        "CreateWatcher" => {
            let watcher = sandbox.call(MakeWatcher { path, recursive }).await?;
            json!({ "watcherId": watcher })
        }
        "GetWatcherEvents" => {
            let changes = sandbox.call(ReadWatcher { watcher }).await?;
            json!({ "events": changes.iter().map(event).collect::<Vec<_>>() })
        }
        "RemoveWatcher" => {
            sandbox.call(RemoveWatcher { watcher }).await?;
            json!({})
        }
        _ => {
            let what = format!("filesystem.Filesystem has no {method}");
            return Err(Refusal::new(Kind::NotFound, what));
        }
    })
}

/// Streams changes in a directory.
async fn watch(sandbox: &Sandbox, request: Request<Body>) -> Response {
    let (parts, body) = request.into_parts();
    let begun = async {
        let text = Envelopes::only(whole(body).await?)?;
        check_user(&parts.headers)?;
        let asked: Asked = parsed(&text)?;
        let ask = Watch {
            path: asked.path,
            recursive: asked.recursive,
        };
        let mut line = sandbox.begin(ask).await?;
        line.reply().await.map(|()| line)
    };
    let ping = ping_every(&parts.headers);
    let pass_on =
        |line, out: Out| pass_on(line, out.alive(message(&json!({ "keepalive": {} })), ping));
    stream(&sandbox.id, begun.await, pass_on).await
}

/// Passes on changes, until one of both sides is gone.
async fn pass_on(mut line: Line<(), Vec<ChangeFacts>>, out: Out) {
    if !out.send(message(&json!({ "start": {} }))).await {
        return;
    }
    while let Some(Next::Message(changes)) = out.next(&mut line).await {
        for change in &changes {
            let event = json!({ "filesystem": event(change) });
            if !out.send(message(&event)).await {
                return;
            }
        }
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
    let described = json!({
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
    with(described, "symlinkTarget", entry.target.as_ref())
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
