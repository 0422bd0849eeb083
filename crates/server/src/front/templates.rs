//! Templates that are built, in the form of E2B's control API.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answers::{body, empty, json as answer_json};
use super::control::{credential, not_offered, pairs};
use super::{Front, authority, kept};
use crate::protocol::{
    BuildFacts, BuildFrom, BuildLine, BuildPlan, BuildState, BuildStep, CODE_INTERPRETER,
    Credential, GetBuild, GetTemplate, Kind, LinkUpload, ListTemplates, Refusal, RegistryLogin,
    RemoveTemplate, RequestBuild, RequestedBuild, StartBuild, TEMPLATES, TemplateFacts, Upload,
};
use crate::rfc3339::time_of;

/// The most steps of a build.
const STEPS_MAX: usize = 200;
/// The tag of a name without one.
const TAG: &str = "default";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    name: Option<String>,
    alias: Option<String>,
    tags: Option<Vec<String>>,
    cpu_count: Option<u32>,
    #[serde(rename = "memoryMB")]
    memory_mib: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Start {
    from_image: Option<String>,
    from_template: Option<String>,
    from_image_registry: Option<Login>,
    from_layout: Option<Layout>,
    #[serde(default)]
    force: bool,
    #[serde(default)]
    steps: Vec<Step>,
    start_cmd: Option<String>,
    ready_cmd: Option<String>,
}

/// An image in an upload: no part of E2B's API.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Layout {
    upload: String,
    name: Option<String>,
}

#[derive(Deserialize)]
struct Login {
    #[serde(rename = "type")]
    kind: Option<String>,
    username: Option<String>,
    password: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Step {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    args: Vec<String>,
    files_hash: Option<String>,
}

/// Answers a request about templates.
pub(crate) async fn answer(
    front: &Front,
    parts: &Parts,
    rest: &[&str],
    content: Body,
) -> Result<Response, Refusal> {
    let key = credential(&parts.headers);
    let get = parts.method == Method::GET;
    let post = parts.method == Method::POST;
    match rest {
        [] if get => list(front, key).await,
        [] if post => request(front, key, body(content).await?).await,
        ["aliases", name] if get => alias(front, key, name).await,
        [id] if get => one(front, key, id).await,
        [id] if parts.method == Method::DELETE => remove(front, parts, key, id).await,
        [id, "files", upload] if get => link(front, parts, key, id, upload).await,
        [id, "files", upload] if parts.method == Method::PUT => {
            upload_of(front, parts, id, upload, content).await
        }
        [id, "builds", build] if post => {
            let plan = plan(body(content).await?)?;
            let ask = StartBuild {
                template: (*id).to_owned(),
                build: (*build).to_owned(),
                plan: Box::new(plan),
            };
            front.call(key, ask).await?;
            Ok(empty(StatusCode::ACCEPTED))
        }
        [id, "builds", build, "status"] if get => status(front, parts, key, id, build).await,
        _ => Err(not_offered(parts)),
    }
}

async fn list(front: &Front, key: Credential) -> Result<Response, Refusal> {
    let all = front.call(key, ListTemplates {}).await?;
    // What is shipped is nobody's own there.
    let own = all.iter().filter(|one| one.id != CODE_INTERPRETER);
    let all: Vec<Value> = own.map(described).collect();
    Ok(answer_json(StatusCode::OK, &all))
}

async fn one(front: &Front, key: Credential, id: &str) -> Result<Response, Refusal> {
    let ask = GetTemplate { id: id.to_owned() };
    let facts = front.call(key, ask).await?;
    Ok(answer_json(StatusCode::OK, &described(&facts)))
}

async fn alias(front: &Front, key: Credential, name: &str) -> Result<Response, Refusal> {
    let told = |id: &str, is_public: bool| {
        let body = json!({ "templateID": id, "public": is_public });
        Ok(answer_json(StatusCode::OK, &body))
    };
    if TEMPLATES.contains(&name) {
        return told(name, true);
    }
    let id = name.to_owned();
    told(&front.call(key, GetTemplate { id }).await?.id, false)
}

async fn remove(
    front: &Front,
    parts: &Parts,
    key: Credential,
    id: &str,
) -> Result<Response, Refusal> {
    let ask = RemoveTemplate { id: id.to_owned() };
    match front.call(key, ask).await {
        Ok(()) => Ok(empty(StatusCode::NO_CONTENT)),
        // Snapshots are removed by the same path.
        Err(refusal) if refusal.kind == Kind::NotFound => kept::remove(front, parts, id).await,
        Err(refusal) => Err(refusal),
    }
}

fn described(one: &TemplateFacts) -> Value {
    json!({
        "templateID": one.id,
        "buildID": one.id,
        "aliases": [one.name],
        "names": [one.name],
        "public": false,
        "cpuCount": one.cpus,
        "memoryMB": one.memory_mib,
        "diskSizeMB": 0,
        "createdAt": time_of(one.created_ms),
        "updatedAt": time_of(one.created_ms),
        "createdBy": null,
        "lastSpawnedAt": null,
        "spawnCount": one.sandboxes,
        "buildCount": 1,
        "buildStatus": "ready",
        "envdVersion": super::control::ENVD_VERSION,
    })
}

async fn request(front: &Front, key: Credential, asked: Request) -> Result<Response, Refusal> {
    let name = asked.name.or(asked.alias);
    let name = name.ok_or_else(|| Refusal::new(Kind::Invalid, "the template has no name"))?;
    let tags = asked.tags.unwrap_or_default();
    // Each tag would be a template of its own: the first one is.
    let name = match tags.first() {
        Some(tag) if tag != TAG && !name.contains(':') => format!("{name}:{tag}"),
        _ => name,
    };
    let ask = RequestBuild {
        name: name.clone(),
        cpus: asked.cpu_count,
        memory_mib: asked.memory_mib,
    };
    let RequestedBuild { template, build } = front.call(key, ask).await?;
    let tags = match tags.is_empty() {
        true => vec![TAG.to_owned()],
        false => tags,
    };
    let body = json!({
        "templateID": template,
        "buildID": build,
        "public": false,
        "names": [name],
        "tags": tags,
        "aliases": [name],
    });
    Ok(answer_json(StatusCode::ACCEPTED, &body))
}

/// Tells where files for a build go. That they are there already is nothing that a caller learns.
async fn link(
    front: &Front,
    parts: &Parts,
    key: Credential,
    id: &str,
    upload: &str,
) -> Result<Response, Refusal> {
    let ask = LinkUpload {
        template: id.to_owned(),
    };
    let token = front.call(key, ask).await?;
    let host = authority(&parts.headers, &parts.uri).unwrap_or("localhost");
    let scheme = if front.is_secure { "https" } else { "http" };
    let url = format!("{scheme}://{host}/templates/{id}/files/{upload}?token={token}");
    Ok(answer_json(
        StatusCode::CREATED,
        &json!({ "present": false, "url": url }),
    ))
}

async fn upload_of(
    front: &Front,
    parts: &Parts,
    id: &str,
    upload: &str,
    content: Body,
) -> Result<Response, Refusal> {
    let query = parts.uri.query().unwrap_or_default();
    let token = pairs(query).find(|(name, _)| name == "token");
    let ask = Upload {
        template: id.to_owned(),
        upload: upload.to_owned(),
        token: token.map(|(_, token)| token).unwrap_or_default(),
    };
    let line = front.begin(Credential::Nothing, ask).await?;
    line.fill(content).await?;
    Ok(empty(StatusCode::OK))
}

fn plan(asked: Start) -> Result<BuildPlan, Refusal> {
    let login = asked.from_image_registry.map(login).transpose()?;
    let from = match (asked.from_image, asked.from_template, asked.from_layout) {
        (Some(name), None, None) => BuildFrom::Image {
            name,
            login: login.map(Box::new),
        },
        (None, Some(name), None) => BuildFrom::Template(name),
        (None, None, Some(Layout { upload, name })) => BuildFrom::Layout { upload, name },
        (None, None, None) => BuildFrom::Host,
        _ => {
            let what = "fromImage, fromTemplate and fromLayout are one or another";
            return Err(Refusal::new(Kind::Invalid, what));
        }
    };
    if asked.steps.len() > STEPS_MAX {
        let what = format!("a build has {STEPS_MAX} steps at most");
        return Err(Refusal::new(Kind::Invalid, what).advise("join commands with &&"));
    }
    let steps = asked.steps.into_iter().map(step);
    Ok(BuildPlan {
        from,
        steps: steps.collect::<Result<_, _>>()?,
        start: asked.start_cmd.filter(|command| !command.is_empty()),
        ready: asked.ready_cmd.filter(|command| !command.is_empty()),
        force: asked.force,
    })
}

fn login(asked: Login) -> Result<RegistryLogin, Refusal> {
    match (asked.kind.as_deref(), asked.username, asked.password) {
        (None | Some("registry"), Some(user), Some(password)) => {
            Ok(RegistryLogin { user, password })
        }
        _ => {
            let what = "fromImageRegistry is a user name and a password";
            Err(Refusal::new(Kind::Invalid, what).advise("those of clouds are not taken"))
        }
    }
}

fn step(asked: Step) -> Result<BuildStep, Refusal> {
    let wrong = |what: &str| {
        let what = format!("a step {} {what}", asked.kind);
        Err(Refusal::new(Kind::Invalid, what))
    };
    let word = |at: usize| asked.args.get(at).cloned();
    let word_of = |at: usize| word(at).filter(|word| !word.is_empty());
    Ok(match (asked.kind.as_str(), word_of(0)) {
        ("RUN", Some(command)) => BuildStep::Run {
            command,
            user: word_of(1),
        },
        ("WORKDIR", Some(directory)) => BuildStep::Directory(directory),
        ("USER", Some(user)) => BuildStep::User(user),
        ("ENV", Some(_)) => {
            let mut variables = BTreeMap::new();
            for pair in asked.args.chunks(2) {
                match pair {
                    [name, value] => drop(variables.insert(name.clone(), value.clone())),
                    _ => return wrong("has a name without a value"),
                }
            }
            BuildStep::Environment(variables)
        }
        ("COPY", Some(from)) => match (word_of(1), asked.files_hash) {
            (Some(to), Some(upload)) => BuildStep::Copy {
                upload,
                from,
                to,
                owner: word_of(2),
                mode: word_of(3),
            },
            _ => return wrong("has no target, or no files"),
        },
        (_, None) => return wrong("says nothing"),
        _ => return wrong("is not known: RUN, COPY, ENV, WORKDIR and USER are"),
    })
}

async fn status(
    front: &Front,
    parts: &Parts,
    key: Credential,
    id: &str,
    build: &str,
) -> Result<Response, Refusal> {
    let query = parts.uri.query().unwrap_or_default();
    let number = |wanted: &str| {
        let found = pairs(query).find(|(name, _)| name == wanted);
        found.and_then(|(_, value)| value.parse::<usize>().ok())
    };
    let ask = GetBuild {
        template: id.to_owned(),
        build: build.to_owned(),
        from: number("logsOffset").unwrap_or(0),
        limit: number("limit").unwrap_or(usize::MAX),
    };
    let facts = front.call(key, ask).await?;
    Ok(answer_json(StatusCode::OK, &progress(id, build, &facts)))
}

fn progress(id: &str, build: &str, facts: &BuildFacts) -> Value {
    let line = |one: &BuildLine| {
        json!({
            "timestamp": time_of(one.at_ms),
            "level": if one.is_error { "warn" } else { "info" },
            "message": one.text,
            "step": one.step,
        })
    };
    let lines: Vec<Value> = facts.lines.iter().map(line).collect();
    let texts: Vec<&String> = facts.lines.iter().map(|one| &one.text).collect();
    let state = match facts.state {
        BuildState::Waiting => "waiting",
        BuildState::Building => "building",
        BuildState::Ready => "ready",
        BuildState::Failed => "error",
    };
    let mut told = json!({
        "templateID": id,
        "buildID": build,
        "status": state,
        "logs": texts,
        "logEntries": lines,
    });
    if let (Some(why), Some(fields)) = (&facts.why, told.as_object_mut()) {
        let reason = json!({ "message": why, "step": facts.step });
        fields.insert("reason".to_owned(), reason);
    }
    told
}
