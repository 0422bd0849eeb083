//! Pauses, snapshots and forks, in the form of E2B's control API.

use super::dialect::*;
use super::listed::{created, created_body};

/// The body of each of these requests.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Keep {
    timeout: Option<u64>,
    memory: Option<bool>,
    count: Option<usize>,
    name: Option<String>,
}

/// Carries out a request that keeps a sandbox, or what it has.
pub(crate) async fn answer(sandbox: &Sandbox, what: &str, request: Request<Body>) -> Answered {
    let asked: Keep = body(request).await?;
    let timeout_s = asked.timeout;
    match what {
        "pause" => {
            let memory = asked.memory != Some(false);
            let memory = sandbox.call(protocol::Pause { memory }).await?;
            Ok(keeps(empty(StatusCode::NO_CONTENT), memory))
        }
        "connect" | "resume" => {
            let made = sandbox.call(Connect { timeout_s }).await?;
            let status = match made.resumed || what == "resume" {
                true => StatusCode::CREATED,
                false => StatusCode::OK,
            };
            Ok(created(&made, status))
        }
        "fork" => {
            let count = asked.count.unwrap_or(1);
            let made = sandbox.call(Fork { count, timeout_s }).await?;
            let all: Vec<Value> = made.forks.iter().map(fork).collect();
            Ok(filed(answer_json(StatusCode::CREATED, &all), made.filed))
        }
        _ => {
            let name = asked.name;
            let made = sandbox.call(Snapshot { name }).await?;
            let response = answer_json(StatusCode::CREATED, &told(&made.facts));
            Ok(filed(keeps(response, false), made.filed))
        }
    }
}

/// Says in an answer whether memory is kept, or files alone.
pub(crate) fn keeps(mut response: Response, memory: bool) -> Response {
    let kept = HeaderValue::from_static(if memory { "memory" } else { "files" });
    response.headers_mut().insert("atoll-kept", kept);
    response
}

/// Says in an answer whether files were copied.
pub(crate) fn filed(mut response: Response, how: Filed) -> Response {
    let how = HeaderValue::from_static(how.name());
    response.headers_mut().insert("atoll-files", how);
    response
}

fn fork(made: &Result<CreatedFacts, Refusal>) -> Value {
    match made {
        Ok(made) => json!({ "sandbox": created_body(made) }),
        Err(refusal) => json!({ "error": Dialect::E2b.body(refusal) }),
    }
}

fn told(facts: &SnapshotFacts) -> Value {
    let names: Vec<&String> = facts.name.iter().collect();
    json!({
        "snapshotID": facts.id,
        "names": names,
        "sandboxID": facts.sandbox,
        "createdAt": time_of(facts.created_ms),
    })
}

/// Lists the snapshots of a tenant: all in one part.
pub(crate) async fn snapshots(caller: &Caller, query: &Query) -> Answered {
    let (sandbox, name) = (query.one("sandboxID"), query.one("name"));
    let all = caller.call(ListSnapshots { sandbox }).await?;
    let own = all.iter().filter(|one| name.is_none() || one.name == name);
    each(own, told)
}

/// Removes a snapshot.
pub(crate) async fn remove(caller: &Caller, id: &str) -> Answered {
    let id = id.to_owned();
    done(
        StatusCode::NO_CONTENT,
        caller.call(RemoveSnapshot { id }).await,
    )
}
