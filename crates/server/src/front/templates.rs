//! Templates that are built, in the form of E2B's control API.

use super::dialect::*;
use super::kept;

/// The most steps of a build.
const STEPS_MAX: usize = 200;
/// The tag of a name without one.
const TAG: &str = "default";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wanted {
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
pub(crate) async fn answer(caller: &Caller, rest: &[&str], request: Request<Body>) -> Answered {
    let query = Query::of(request.uri());
    let id = rest.first().map(|id| (*id).to_owned()).unwrap_or_default();
    match (request.method().as_str(), rest) {
        ("GET", []) => {
            let all = caller.call(ListTemplates {}).await?;
            // What is shipped is nobody's own there.
            let own = all.iter().filter(|one| one.id != CODE_INTERPRETER);
            each(own, described)
        }
        ("POST", []) => request_build(caller, body(request).await?).await,
        ("GET", ["aliases", name]) => alias(caller, name).await,
        ("GET", [_]) => ok(&described(&caller.call(GetTemplate { id }).await?)),
        ("DELETE", [_]) => {
            let ask = RemoveTemplate { id: id.clone() };
            match caller.call(ask).await {
                Ok(()) => Ok(empty(StatusCode::NO_CONTENT)),
                // Snapshots are removed by the same path.
                Err(refusal) if refusal.kind == Kind::NotFound => kept::remove(caller, &id).await,
                Err(refusal) => Err(refusal),
            }
        }
        ("GET", [_, "files", upload]) => link(caller, request, id, upload).await,
        ("PUT", [_, "files", upload]) => {
            let ask = Upload {
                template: id,
                upload: (*upload).to_owned(),
                token: query.one("token").unwrap_or_default(),
            };
            let anybody = Caller::new(&caller.front, Credential::Nothing);
            done(
                StatusCode::OK,
                anybody.begin(ask).await?.fill(request.into_body()).await,
            )
        }
        ("POST", [_, "builds", build]) => {
            let ask = StartBuild {
                plan: Box::new(plan(body(request).await?)?),
                template: id,
                build: (*build).to_owned(),
            };
            done(StatusCode::ACCEPTED, caller.call(ask).await)
        }
        ("GET", [_, "builds", build, "status"]) => {
            let ask = GetBuild {
                template: id.clone(),
                build: (*build).to_owned(),
                from: query.number("logsOffset").unwrap_or(0),
                limit: query.number("limit").unwrap_or(usize::MAX),
            };
            ok(&progress(&id, build, &caller.call(ask).await?))
        }
        _ => Err(not_offered(&request)),
    }
}

async fn alias(caller: &Caller, name: &str) -> Answered {
    let id = name.to_owned();
    if TEMPLATES.contains(&name) {
        return ok(&json!({ "templateID": id, "public": true }));
    }
    let found = caller.call(GetTemplate { id }).await?;
    ok(&json!({ "templateID": found.id, "public": false }))
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
        "envdVersion": super::listed::ENVD_VERSION,
    })
}

async fn request_build(caller: &Caller, asked: Wanted) -> Answered {
    let name = asked.name.or(asked.alias);
    let name = name.ok_or_else(|| Refusal::invalid("the template has no name"))?;
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
    let RequestedBuild { template, build } = caller.call(ask).await?;
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
async fn link(caller: &Caller, request: Request<Body>, id: String, upload: &str) -> Answered {
    let host = authority(request.headers(), request.uri()).unwrap_or("localhost");
    let scheme = if caller.front.is_secure {
        "https"
    } else {
        "http"
    };
    let at = format!("{scheme}://{host}/templates/{id}/files/{upload}");
    let token = caller.call(LinkUpload { template: id }).await?;
    let link = json!({ "present": false, "url": format!("{at}?token={token}") });
    Ok(answer_json(StatusCode::CREATED, &link))
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
            return Err(Refusal::invalid(what));
        }
    };
    if asked.steps.len() > STEPS_MAX {
        let what = format!("a build has {STEPS_MAX} steps at most");
        return Err(Refusal::invalid(what).advise("join commands with &&"));
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
            Err(Refusal::invalid(what).advise("those of clouds are not taken"))
        }
    }
}

fn step(asked: Step) -> Result<BuildStep, Refusal> {
    let wrong = |what: &str| {
        let what = format!("a step {} {what}", asked.kind);
        Err(Refusal::invalid(what))
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
    let told = json!({
        "templateID": id,
        "buildID": build,
        "status": state,
        "logs": texts,
        "logEntries": lines,
    });
    let reason = |why| json!({ "message": why, "step": facts.step });
    with(told, "reason", facts.why.as_ref().map(reason))
}
