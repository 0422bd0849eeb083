//! E2B's service in a sandbox: which of its parts a request is for, and who asks.

use super::dialect::*;
use super::senders::token;
use super::{filesystem, process, transfer};
use axum::http::Method;

/// Answers a request of a sandbox's service.
pub(crate) async fn answer(front: &Arc<Front>, id: &str, request: Request<Body>) -> Response {
    let path = request.uri().path().to_owned();
    let get = request.method() == Method::GET;
    let sandbox = Caller::new(front, token(request.headers())).sandbox(id);
    if let Some(method) = path.strip_prefix("/process.Process/") {
        return process::answer(&sandbox, method, request).await;
    }
    if let Some(method) = path.strip_prefix("/filesystem.Filesystem/") {
        return filesystem::answer(&sandbox, method, request).await;
    }
    let answered = match path.as_str() {
        "/health" if get => {
            let anybody = Caller::new(front, Credential::Nothing).sandbox(id);
            let alive = anybody.call(Alive {}).await;
            alive.map(|()| empty(StatusCode::NO_CONTENT))
        }
        "/files" => return transfer::answer(front, Some(id), request).await,
        "/metrics" if get => {
            let measures = sandbox.call(Measure {}).await;
            measures.and_then(|measures| ok(&measured(&measures)))
        }
        _ => {
            let what = format!("{path} is not offered");
            Err(Refusal::new(Kind::NotFound, what))
        }
    };
    answered.unwrap_or_else(|refusal| Dialect::E2b.refused_in(id, &refusal))
}

fn measured(measures: &Measures) -> serde_json::Value {
    json!({
        "ts": measures.at_s,
        "cpu_count": measures.cpus,
        "cpu_used_pct": measures.cpu_percent,
        "mem_total": measures.memory_bytes_max,
        "mem_used": measures.memory_bytes,
        "mem_cache": 0,
        "disk_total": measures.disk_bytes_max,
        "disk_used": measures.disk_bytes,
    })
}
