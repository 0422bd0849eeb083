//! Volumes and their files, in the form of E2B's APIs.

use super::dialect::*;
use super::files::{asked_range, send, take};

/// A volume to make, as E2B's SDKs ask for it.
#[derive(Deserialize)]
struct New {
    name: String,
}

/// Carries out a request about volumes.
pub(crate) async fn answer(caller: &Caller, rest: &[&str], request: Request<Body>) -> Answered {
    let own = |status, own: OwnVolume| {
        // A key whose scopes do not reach files gets no token.
        let described = json!({
            "volumeID": own.volume.id,
            "name": own.volume.name,
            "token": own.token.unwrap_or_default(),
            "domain": null,
        });
        Ok(answer_json(status, &described))
    };
    let id = rest.first().map(|id| (*id).to_owned()).unwrap_or_default();
    match (request.method().as_str(), rest) {
        ("GET", []) => {
            let all = caller.call(ListVolumes {}).await?;
            let told = |one: &VolumeFacts| json!({ "volumeID": one.id, "name": one.name });
            each(&all, told)
        }
        ("POST", []) => {
            let New { name } = body(request).await?;
            let ask = MakeVolume(VolumeAsk {
                name,
                ..VolumeAsk::default()
            });
            own(StatusCode::CREATED, caller.call(ask).await?)
        }
        ("GET", [_]) => own(StatusCode::OK, caller.call(GetVolume { id }).await?),
        ("DELETE", [_]) => done(
            StatusCode::NO_CONTENT,
            caller.call(RemoveVolume { id }).await,
        ),
        _ => Err(not_offered(&request)),
    }
}

/// Reads a number of a query.
fn number(query: &Query, name: &str) -> Result<Option<u32>, Refusal> {
    let read = |value: &String| {
        let what = || format!("{name} is {value:?}, and no number");
        value.parse().map_err(|_| Refusal::invalid(what()))
    };
    query.all(name).next().map(read).transpose()
}

/// Refuses another owner than the one that programs are.
fn check_owner(asked: Option<u32>, own: u32) -> Result<(), Refusal> {
    match asked {
        Some(id) if id != own => Err(Refusal::invalid(format!(
            "the owner {id}: files of a volume belong to {own}, who programs are"
        ))
        .advise("leave uid and gid out")),
        Some(_) | None => Ok(()),
    }
}

/// The body of a change of a file.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Change {
    uid: Option<u32>,
    gid: Option<u32>,
    mode: Option<u32>,
}

/// Carries out a request about the files of a volume.
pub(crate) async fn content(
    caller: &Caller,
    volume: &str,
    what: &str,
    request: Request<Body>,
) -> Answered {
    let query = Query::of(request.uri());
    let (depth, mode) = (number(&query, "depth")?, number(&query, "mode")?);
    check_owner(number(&query, "uid")?, RESIDENT.uid)?;
    check_owner(number(&query, "gid")?, RESIDENT.gid)?;
    let force = query.one("force");
    let force = force.map(|force| matches!(&*force, "true" | "True" | "1"));
    let missing = || Refusal::invalid("path says which file, and is missing");
    let path = query.one("path").ok_or_else(missing)?;
    let volume = volume.to_owned();
    let (status, entry) = match (request.method().as_str(), what) {
        ("GET", "path") => {
            let ask = StatContent { path };
            (StatusCode::OK, caller.call(OfVolume { volume, ask }).await?)
        }
        ("GET", "dir") => {
            let depth = depth.unwrap_or(1);
            let ask = ListContent { path, depth };
            let all = caller.call(OfVolume { volume, ask }).await?;
            return each(&all, stat);
        }
        ("POST", "dir") => {
            let parents = force == Some(true);
            let ask = MakeContentDirectory {
                path,
                mode,
                parents,
            };
            let made = caller.call(OfVolume { volume, ask }).await?;
            (StatusCode::CREATED, made)
        }
        ("DELETE", "path") => {
            let ask = RemoveContent { path };
            let removed = caller.call(OfVolume { volume, ask }).await;
            return done(StatusCode::NO_CONTENT, removed);
        }
        ("GET", "file") => {
            let range = asked_range(request.headers());
            let ask = ReadContent { path, range };
            let line = caller.begin(OfVolume { volume, ask }).await?;
            return send(line, range.is_some()).await;
        }
        ("PUT", "file") => {
            let ask = WriteContent {
                path: path.clone(),
                mode,
                replaces: force != Some(false),
            };
            let line = caller.begin(OfVolume { volume, ask }).await?;
            (
                StatusCode::CREATED,
                take(line, &path, request.into_body()).await?,
            )
        }
        ("PATCH", "path") => {
            let Change { uid, gid, mode } = body(request).await?;
            check_owner(uid, RESIDENT.uid)?;
            check_owner(gid, RESIDENT.gid)?;
            let ask = SetContentMode { path, mode };
            (StatusCode::OK, caller.call(OfVolume { volume, ask }).await?)
        }
        _ => return Err(not_offered(&request)),
    };
    Ok(answer_json(status, &stat(&entry)))
}

/// Describes a file as E2B's SDKs read it.
fn stat(entry: &ContentFacts) -> Value {
    let name = entry.path.rsplit('/').next().unwrap_or_default();
    let described = json!({
        "name": if name.is_empty() { "/" } else { name },
        "type": entry.kind,
        "path": entry.path,
        "size": entry.size,
        "mode": entry.mode,
        "uid": entry.uid,
        "gid": entry.gid,
        "atime": rfc3339(entry.accessed_ns.into()),
        "mtime": rfc3339(entry.modified_ns.into()),
        "ctime": rfc3339(entry.changed_ns.into()),
    });
    with(described, "target", entry.target.as_ref())
}
