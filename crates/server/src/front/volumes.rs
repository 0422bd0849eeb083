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
use super::control::{credential, not_offered, pairs};
use super::transfer::{asked_range, send, take};
use crate::protocol::{
    ContentFacts, GetVolume, Kind, ListContent, ListVolumes, MakeContentDirectory, MakeVolume,
    OfVolume, OwnVolume, ReadContent, Refusal, RemoveContent, RemoveVolume, SetContentMode,
    StatContent, VolumeAsk, VolumeFacts, WriteContent,
};
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
    let key = credential(&parts.headers);
    let own = |status, own: OwnVolume| {
        // A key whose scopes do not reach files gets no token.
        let told = json!({
            "volumeID": own.volume.id,
            "name": own.volume.name,
            "token": own.token.unwrap_or_default(),
            "domain": null,
        });
        Ok(answer_json(status, &told))
    };
    match (parts.method.as_str(), rest) {
        ("GET", []) => {
            let all = front.call(key, ListVolumes {}).await?;
            let told = |one: &VolumeFacts| json!({ "volumeID": one.id, "name": one.name });
            let all: Vec<Value> = all.iter().map(told).collect();
            Ok(answer_json(StatusCode::OK, &all))
        }
        ("POST", []) => {
            let New { name } = body(content).await?;
            let ask = MakeVolume(VolumeAsk {
                name,
                ..VolumeAsk::default()
            });
            own(StatusCode::CREATED, front.call(key, ask).await?)
        }
        ("GET", [id]) => {
            let id = (*id).to_owned();
            own(StatusCode::OK, front.call(key, GetVolume { id }).await?)
        }
        ("DELETE", [id]) => {
            let id = (*id).to_owned();
            front.call(key, RemoveVolume { id }).await?;
            Ok(empty(StatusCode::NO_CONTENT))
        }
        _ => Err(not_offered(parts)),
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
    let wanted = Wanted::read(parts.uri.query().unwrap_or_default())?;
    let (mode, force) = (wanted.mode, wanted.force);
    let missing = || Refusal::new(Kind::Invalid, "path says which file, and is missing");
    let path = wanted.path.ok_or_else(missing)?;
    let key = credential(&parts.headers);
    let volume = volume.to_owned();
    let one = |status, entry| Ok(answer_json(status, &stat(&entry)));
    match (&parts.method, what) {
        (&Method::GET, "path") => {
            let ask = StatContent { path };
            let found = front.call(key, OfVolume { volume, ask }).await?;
            one(StatusCode::OK, found)
        }
        (&Method::GET, "dir") => {
            let depth = wanted.depth.unwrap_or(1);
            let ask = ListContent { path, depth };
            let all = front.call(key, OfVolume { volume, ask }).await?;
            let all: Vec<Value> = all.iter().map(stat).collect();
            Ok(answer_json(StatusCode::OK, &all))
        }
        (&Method::POST, "dir") => {
            let ask = MakeContentDirectory {
                path,
                mode,
                parents: force == Some(true),
            };
            let made = front.call(key, OfVolume { volume, ask }).await?;
            one(StatusCode::CREATED, made)
        }
        (&Method::DELETE, "path") => {
            let ask = RemoveContent { path };
            front.call(key, OfVolume { volume, ask }).await?;
            Ok(empty(StatusCode::NO_CONTENT))
        }
        (&Method::GET, "file") => {
            let range = asked_range(&parts.headers);
            let ask = ReadContent { path, range };
            let line = front.begin(key, OfVolume { volume, ask }).await?;
            send(line, range.is_some()).await
        }
        (&Method::PUT, "file") => {
            let ask = WriteContent {
                path: path.clone(),
                mode,
                replaces: force != Some(false),
            };
            let line = front.begin(key, OfVolume { volume, ask }).await?;
            one(StatusCode::CREATED, take(line, &path, content).await?)
        }
        (&Method::PATCH, "path") => {
            let Change { uid, gid, mode } = body(content).await?;
            check_owner(uid, RESIDENT.uid)?;
            check_owner(gid, RESIDENT.gid)?;
            let ask = SetContentMode { path, mode };
            let found = front.call(key, OfVolume { volume, ask }).await?;
            one(StatusCode::OK, found)
        }
        _ => Err(not_offered(parts)),
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
