//! The dialects before a worker that is none: what each makes of its answers and refusals.

use atoll_sys::socket;
use axum::body::to_bytes;
use axum::http::StatusCode;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::*;
use crate::line::{self, Frame, Stream};
use crate::protocol::{Ask, Hello, Kind, Refusal};

const KINDS: [Kind; 11] = [
    Kind::Invalid,
    Kind::Unauthenticated,
    Kind::Forbidden,
    Kind::NoSandbox,
    Kind::NotFound,
    Kind::Exists,
    Kind::Quota,
    Kind::NoSpace,
    Kind::Late,
    Kind::Unavailable,
    Kind::Fault,
];
/// The status of each kind, in their order.
const STATUSES: [u16; 11] = [400, 401, 403, 404, 404, 409, 429, 507, 504, 503, 500];

const ID: &str = "i0123456789abcdefghij";

/// A message or content of a worker, after a request.
enum Said {
    Message(Value),
    Content(Stream, &'static str),
}

type Answer = Result<Vec<Said>, Refusal>;

/// Returns what answers requests, with a worker that answers by a closure.
fn front(worker: impl Fn(Value) -> Answer + Send + Sync + 'static) -> Router {
    let (near, far) = socket::pair().unwrap();
    let worker = Arc::new(worker);
    tokio::task::spawn_blocking(move || {
        while let Ok((1.., sockets)) = socket::receive(far.as_fd(), &mut [0; 1]) {
            let socket = sockets.into_iter().next().unwrap();
            tokio::spawn(serve(socket.into(), Arc::clone(&worker)));
        }
    });
    let front = Arc::new(Front {
        dial: Dial::new(near).unwrap(),
        is_logged: false,
        is_secure: false,
    });
    router(&front, McpAccess::default())
}

async fn serve<W: Fn(Value) -> Answer>(socket: std::os::unix::net::UnixStream, worker: Arc<W>) {
    let (mut reader, mut writer) = line::split(socket).unwrap();
    let Ok(Some(Frame::Message(hello))) = reader.next::<Hello>().await else {
        return;
    };
    let answer = match hello.ask {
        Ask::Permit(_) => Ok(vec![Said::Message(Value::Null)]),
        ask => worker(serde_json::to_value(ask).unwrap()),
    };
    match answer {
        Err(refusal) => writer.message(&Err::<(), _>(refusal)).await.unwrap(),
        Ok(all) => {
            for said in all {
                // Who has what it needs goes.
                let _ = match said {
                    Said::Message(message) => writer.message(&Ok::<_, Refusal>(message)).await,
                    Said::Content(stream, text) => writer.content(stream, text.as_bytes()).await,
                };
            }
        }
    }
}

/// Makes a request: a method and a target, headers, and a body of JSON.
fn request(line: &str, headers: &[(&str, &str)], body: &str) -> Request<Body> {
    let (method, target) = line.split_once(' ').unwrap();
    let mut request = Request::builder().method(method).uri(target);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.header("content-length", body.len());
    request.body(Body::from(body.to_owned())).unwrap()
}

async fn answer(front: &Router, request: Request<Body>) -> (u16, HeaderMap, String) {
    let response = front.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, 1 << 20).await.unwrap();
    let text = String::from_utf8(body.to_vec()).unwrap();
    (parts.status.as_u16(), parts.headers, text)
}

/// Checks the status and body of every kind of refusal, and that a request says when to try again.
async fn check_refusals(
    line: &str,
    body: &str,
    headers: &[(&str, &str)],
    expected: impl Fn(Kind, u16) -> (u16, Value),
) {
    for (kind, status) in KINDS.into_iter().zip(STATUSES) {
        let refusal = Refusal {
            retry_after_s: Some(7),
            ..Refusal::new(kind, "why").advise("do that")
        };
        let front = front(move |_| Err(refusal.clone()));
        let (status_of, headers, answered) = answer(&front, request(line, headers, body)).await;
        let (status, expected) = expected(kind, status);
        let answered: Value = serde_json::from_str(&answered).unwrap();
        assert_eq!(
            (status_of, &answered),
            (status, &expected),
            "{line} {kind:?}"
        );
        let retry = headers
            .get("retry-after")
            .map(|value| value.to_str().unwrap());
        assert_eq!(retry, (status != 502).then_some("7"), "{line} {kind:?}");
    }
}

const MESSAGE: &str = "why: do that";

fn gone() -> (u16, Value) {
    let message = "The sandbox was not found";
    (
        502,
        json!({ "sandboxId": ID, "message": message, "code": 502 }),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn e2b_refusals_are_those_of_its_services() {
    let own = |_, status| (status, json!({ "code": status, "message": MESSAGE }));
    for line in [
        "GET /sandboxes/i1",
        "POST /sandboxes/i1/pause",
        "GET /templates/a",
    ] {
        check_refusals(line, "{}", &[("x-api-key", "k")], own).await;
    }
    let inside = [("e2b-sandbox-id", ID), ("x-access-token", "t")];
    check_refusals("GET /metrics", "{}", &inside, |kind, status| match kind {
        Kind::NoSandbox => gone(),
        _ => own(kind, status),
    })
    .await;
    let codes = [
        "invalid_argument",
        "unauthenticated",
        "permission_denied",
        "not_found",
        "not_found",
        "already_exists",
        "resource_exhausted",
        "resource_exhausted",
        "deadline_exceeded",
        "unavailable",
        "internal",
    ];
    for line in [
        "POST /filesystem.Filesystem/Stat",
        "POST /process.Process/List",
    ] {
        check_refusals(line, "{}", &inside, |kind, status| {
            let code = KINDS.iter().position(|one| *one == kind).unwrap();
            let body = json!({ "code": codes[code], "message": MESSAGE });
            match kind {
                Kind::NoSandbox => gone(),
                Kind::NoSpace => (429, body),
                _ => (status, body),
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn opensandbox_refusals_have_its_codes() {
    let codes = [
        "INVALID_REQUEST",
        "UNAUTHORIZED",
        "FORBIDDEN",
        "SANDBOX_NOT_FOUND",
        "NOT_FOUND",
        "CONFLICT",
        "QUOTA_EXCEEDED",
        "NO_SPACE",
        "TIMEOUT",
        "UNAVAILABLE",
        "INTERNAL_ERROR",
    ];
    let headers = [("open-sandbox-api-key", "k")];
    for line in [
        "GET /opensandbox/v1/sandboxes",
        "DELETE /opensandbox/v1/sandboxes/i1",
        "GET /opensandbox/execd/i1/files/info?path=a",
        "GET /opensandbox/execd/i1/command/status/1",
    ] {
        check_refusals(line, "{}", &headers, |kind, status| {
            let code = KINDS.iter().position(|one| *one == kind).unwrap();
            (status, json!({ "code": codes[code], "message": MESSAGE }))
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn jupyter_and_librechat_refusals_are_messages() {
    let key = [("authorization", "Bearer k")];
    check_refusals("GET /jupyter/api/kernels", "{}", &key, |_, status| {
        (status, json!({ "message": MESSAGE, "reason": null }))
    })
    .await;
    check_refusals("GET /librechat/files/i1", "{}", &key, |kind, status| {
        let body = match kind {
            Kind::Quota => json!({
                "error": "rate_limited",
                "message": MESSAGE,
                "retry_after_seconds": 7,
            }),
            _ => json!({ "error": MESSAGE }),
        };
        (status, body)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn own_refusals_are_problem_details() {
    for (line, body) in [
        ("GET /v1/keys", ""),
        ("GET /v1/sandboxes/i1", ""),
        ("POST /v1/sandboxes/i1/run", r#"{"command":["true"]}"#),
        ("GET /v1/sandboxes/i1/processes/1/output", ""),
    ] {
        check_refusals(line, body, &[("x-api-key", "k")], |_, status| {
            let title = StatusCode::from_u16(status).unwrap().canonical_reason();
            let body = json!({
                "type": "about:blank",
                "title": title,
                "status": status,
                "detail": "why",
                "advice": "do that",
            });
            (status, body)
        })
        .await;
    }
}

/// A worker in whose sandbox a program writes to both outputs, and returns 3.
fn runs(asked: &Value) -> Answer {
    let process = &asked["in"]["ask"]["process"];
    assert!(
        process.get("start").or(process.get("attach")).is_some(),
        "{asked}"
    );
    Ok(vec![
        Said::Message(json!({ "pid": 5, "lost": 0, "at": 0 })),
        Said::Content(Stream::Output, "out"),
        Said::Content(Stream::Error, "err"),
        Said::Message(json!({ "exited": 3 })),
    ])
}

/// Returns the messages of a stream, without what surrounds them and the time of each.
fn messages(text: &str) -> Vec<Value> {
    let all = text.split(|one: char| one.is_control()).filter_map(|line| {
        let begin = line.find('{')?;
        serde_json::from_str::<Value>(&line[begin..]).ok()
    });
    all.map(|mut message| {
        message.as_object_mut().unwrap().remove("timestamp");
        message
    })
    .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exec_is_one_stream_in_each_dialect() {
    let front = front(|asked| runs(&asked));
    let envelope = |text: &str| {
        let length = u32::try_from(text.len()).unwrap().to_be_bytes();
        [&[0], &length[..], text.as_bytes()].concat()
    };
    let start = envelope(r#"{"process":{"cmd":"x"}}"#);
    let inside = [("e2b-sandbox-id", ID), ("x-access-token", "t")];
    let start = String::from_utf8(start).unwrap();
    let key = [("x-api-key", "k")];
    let token = [("x-execd-access-token", "t")];
    let ran = json!({
        "pid": 5, "exit": 3, "signal": null, "ended": null,
        "stdout": "out", "stderr": "err", "truncated": false,
    });
    let error = json!({
        "ename": "CommandExecError", "evalue": "3", "traceback": ["exit status 3"],
    });
    let end = json!({
        "exitCode": 3, "exited": true, "status": "exit status 3", "error": "exit status 3",
    });
    let cases = [
        (
            request("POST /v1/sandboxes/i1/run", &key, r#"{"command":["x"]}"#),
            vec![ran],
        ),
        (
            request("GET /v1/sandboxes/i1/processes/5/output", &key, ""),
            vec![
                json!({ "stream": "stdout", "base64": "b3V0" }),
                json!({ "stream": "stderr", "base64": "ZXJy" }),
                json!({ "exited": 3 }),
            ],
        ),
        (
            request(
                "POST /opensandbox/execd/i1/command",
                &token,
                r#"{"command":"x"}"#,
            ),
            vec![
                json!({ "type": "init", "text": "5" }),
                json!({ "type": "stdout", "text": "out" }),
                json!({ "type": "stderr", "text": "err" }),
                json!({ "type": "error", "error": error }),
            ],
        ),
        (
            request("POST /process.Process/Start", &inside, &start),
            vec![
                json!({ "event": { "start": { "pid": 5 } } }),
                json!({ "event": { "data": { "stdout": "b3V0" } } }),
                json!({ "event": { "data": { "stderr": "ZXJy" } } }),
                json!({ "event": { "end": end } }),
                json!({}),
            ],
        ),
    ];
    for (request, expected) in cases {
        let target = request.uri().clone();
        let (status, _, text) = answer(&front, request).await;
        assert_eq!((status, messages(&text)), (200, expected), "{target}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn descriptions_are_in_the_form_of_each_dialect() {
    let file = json!({
        "path": "/home/user/a", "kind": "file", "size": 1, "mode": 0o644, "owner": "user",
        "group": "user", "modified_ns": 0, "target": null,
    });
    let sandbox = json!({
        "id": ID, "run": "r", "template": "base", "state": "running", "auto_pause": false,
        "auto_resume": false, "started_ms": 0, "ends_ms": 1000, "session": null,
        "metadata": { "jupyter-kernel": "python3" }, "cpus": 1, "memory_mib": 2, "disk_mib": 3,
        "processes": 4, "network": "closed", "asked": null,
    });
    let listed = json!({ "sandboxes": [sandbox], "cursor": null, "running": 1 });
    let worker = move |asked: Value| {
        let message = match asked.pointer("/in/ask/file") {
            Some(ask) if ask.get("stat").is_some() => file.clone(),
            Some(_) => json!([file]),
            None if asked.get("list_sandboxes").is_some() => listed.clone(),
            None => sandbox.clone(),
        };
        Ok(vec![Said::Message(message)])
    };
    let front = front(worker);
    let inside = [("e2b-sandbox-id", ID), ("x-access-token", "t")];
    let opensandbox = [("open-sandbox-api-key", "k")];
    let key = [("authorization", "Bearer k")];
    let cases = [
        (
            request("GET /v1/sandboxes", &key, ""),
            "/sandboxes/0/id",
            json!(ID),
        ),
        (
            request("GET /sandboxes", &key, ""),
            "/0/sandboxID",
            json!(ID),
        ),
        (
            request("GET /sandboxes/i1", &key, ""),
            "/lifecycle/onTimeout",
            json!("kill"),
        ),
        (
            request("GET /opensandbox/v1/sandboxes?pageSize=1", &opensandbox, ""),
            "/pagination/totalItems",
            json!(1),
        ),
        (
            request("GET /jupyter/api/kernels", &key, ""),
            "/0/id",
            json!("i0123-4567-89ab-cdef-ghij"),
        ),
        (
            request("GET /v1/sandboxes/i1/files/stat?path=a", &key, ""),
            "/path",
            json!("/home/user/a"),
        ),
        (
            request(
                "POST /filesystem.Filesystem/Stat",
                &inside,
                r#"{"path":"a"}"#,
            ),
            "/entry/permissions",
            json!("-rw-r--r--"),
        ),
        (
            request(
                "GET /opensandbox/execd/i1/files/info?path=a",
                &opensandbox,
                "",
            ),
            "/a/mode",
            json!(644),
        ),
        (
            request("GET /librechat/files/i1", &key, ""),
            "/0/metadata/original-filename",
            json!("a"),
        ),
    ];
    for (request, pointer, expected) in cases {
        let target = request.uri().clone();
        let (status, _, text) = answer(&front, request).await;
        let body: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (status, body.pointer(pointer)),
            (200, Some(&expected)),
            "{target}: {body}"
        );
    }
}
