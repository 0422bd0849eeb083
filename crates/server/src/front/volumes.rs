//! Volumes and their files, in the form of E2B's APIs.

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use atoll_model::RESIDENT;

use super::Front;
use super::answers::{body, empty, json as answer_json};
use super::ask::strange;
use super::control::{credential, not_offered, pairs};
use super::transfer::{asked_range, send, take};
use crate::protocol::{Ask, ContentAsk, ContentFacts, Kind, Refusal, Reply, VolumeAsk, VolumesAsk};
use crate::rfc3339::rfc3339;

/// A volume to make, as E2B's SDKs ask for it.
#[derive(Deserialize)]
struct New {
    name: String,
}

/// Carries out a request about volumes.
pub(crate) async fn answer(
    front: &Front,
    parts: &Parts,
    rest: &[&str],
    content: Body,
) -> Result<Response, Refusal> {
    let ask = match (parts.method.as_str(), rest) {
        ("GET", []) => VolumesAsk::List,
        ("POST", []) => {
            let New { name } = body(content).await?;
            VolumesAsk::Make(VolumeAsk {
                name,
                ..VolumeAsk::default()
            })
        }
        ("GET", [id]) => VolumesAsk::Get {
            id: (*id).to_owned(),
        },
        ("DELETE", [id]) => VolumesAsk::Remove {
            id: (*id).to_owned(),
        },
        _ => return Err(not_offered(parts)),
    };
    let made = matches!(ask, VolumesAsk::Make(_));
    match front
        .ask(credential(&parts.headers), Ask::Volumes(ask))
        .await?
    {
        Reply::Done => Ok(empty(StatusCode::NO_CONTENT)),
        Reply::Volumes(all) => {
            let told = |one: &crate::protocol::VolumeFacts| json!({ "volumeID": one.id, "name": one.name });
            let all: Vec<Value> = all.iter().map(told).collect();
            Ok(answer_json(StatusCode::OK, &all))
        }
        Reply::Volume(facts, token) => {
            let status = if made {
                StatusCode::CREATED
            } else {
                StatusCode::OK
            };
            // A key whose scopes do not reach files gets no token.
            let told = json!({
                "volumeID": facts.id,
                "name": facts.name,
                "token": token.unwrap_or_default(),
                "domain": null,
            });
            Ok(answer_json(status, &told))
        }
        _ => Err(strange()),
    }
}

/// The parameters of a request about a file.
#[derive(Debug, Default)]
struct Wanted {
    path: Option<String>,
    depth: Option<u32>,
    mode: Option<u32>,
    force: Option<bool>,
}

impl Wanted {
    fn read(query: &str) -> Result<Self, Refusal> {
        let mut wanted = Self::default();
        for (name, value) in pairs(query) {
            match &*name {
                "path" => wanted.path = Some(value),
                "depth" => wanted.depth = Some(number(&name, &value)?),
                "mode" => wanted.mode = Some(number(&name, &value)?),
                "uid" => check_owner(Some(number(&name, &value)?), RESIDENT.uid)?,
                "gid" => check_owner(Some(number(&name, &value)?), RESIDENT.gid)?,
                "force" => wanted.force = Some(matches!(&*value, "true" | "True" | "1")),
                _ => {}
            }
        }
        Ok(wanted)
    }
}

fn number(name: &str, value: &str) -> Result<u32, Refusal> {
    let wrong = |_| Refusal::new(Kind::Invalid, format!("{name} is {value:?}, and no number"));
    value.parse().map_err(wrong)
}

/// Refuses another owner than the one that programs are.
fn check_owner(asked: Option<u32>, own: u32) -> Result<(), Refusal> {
    match asked {
        Some(id) if id != own => Err(Refusal::new(
            Kind::Invalid,
            format!("the owner {id}: files of a volume belong to {own}, who programs are"),
        )
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
    front: &Front,
    parts: &Parts,
    volume: &str,
    what: &str,
    content: Body,
) -> Result<Response, Refusal> {
    let Wanted {
        path,
        depth,
        mode,
        force,
    } = Wanted::read(parts.uri.query().unwrap_or_default())?;
    let missing = || Refusal::new(Kind::Invalid, "path says which file, and is missing");
    let path = path.ok_or_else(missing)?;
    let at = path.clone();
    let range = asked_range(&parts.headers);
    let ask = match (&parts.method, what) {
        (&Method::GET, "path") => ContentAsk::Stat { path },
        (&Method::GET, "dir") => {
            let depth = depth.unwrap_or(1);
            ContentAsk::List { path, depth }
        }
        (&Method::POST, "dir") => ContentAsk::MakeDirectory {
            path,
            mode,
            parents: force == Some(true),
        },
        (&Method::DELETE, "path") => ContentAsk::Remove { path },
        (&Method::GET, "file") => ContentAsk::Read { path, range },
        (&Method::PUT, "file") => ContentAsk::Write {
            path,
            mode,
            replaces: force != Some(false),
        },
        (&Method::PATCH, "path") => {
            let Change { uid, gid, mode } = body(content).await?;
            check_owner(uid, RESIDENT.uid)?;
            check_owner(gid, RESIDENT.gid)?;
            let ask = ContentAsk::SetMode { path, mode };
            return told(front, parts, volume, ask, StatusCode::OK).await;
        }
        _ => return Err(not_offered(parts)),
    };
    match ask {
        ContentAsk::Read { .. } => {
            let line = front
                .begin(credential(&parts.headers), of(volume, ask))
                .await?;
            send(line, range.is_some()).await
        }
        ContentAsk::Write { .. } => {
            let line = front
                .begin(credential(&parts.headers), of(volume, ask))
                .await?;
            let reply = take(line, &at, content).await?;
            described(reply, false, StatusCode::CREATED)
        }
        ContentAsk::MakeDirectory { .. } => {
            told(front, parts, volume, ask, StatusCode::CREATED).await
        }
        _ => told(front, parts, volume, ask, StatusCode::OK).await,
    }
}

fn of(volume: &str, ask: ContentAsk) -> Ask {
    Ask::Content {
        volume: volume.to_owned(),
        ask,
    }
}

async fn told(
    front: &Front,
    parts: &Parts,
    volume: &str,
    ask: ContentAsk,
    status: StatusCode,
) -> Result<Response, Refusal> {
    let is_list = matches!(ask, ContentAsk::List { .. });
    let reply = front
        .ask(credential(&parts.headers), of(volume, ask))
        .await?;
    described(reply, is_list, status)
}

fn described(reply: Reply, is_list: bool, status: StatusCode) -> Result<Response, Refusal> {
    match reply {
        Reply::Done => Ok(empty(StatusCode::NO_CONTENT)),
        Reply::Content(entries) if is_list => {
            let all: Vec<Value> = entries.iter().map(stat).collect();
            Ok(answer_json(status, &all))
        }
        Reply::Content(entries) => match entries.as_slice() {
            [entry] => Ok(answer_json(status, &stat(entry))),
            _ => Err(strange()),
        },
        _ => Err(strange()),
    }
}

/// Describes a file as E2B's SDKs read it.
fn stat(entry: &ContentFacts) -> Value {
    let name = entry.path.rsplit('/').next().unwrap_or_default();
    let mut told = json!({
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
    if let (Some(told), Some(target)) = (told.as_object_mut(), &entry.target) {
        told.insert("target".to_owned(), json!(target));
    }
    told
}
