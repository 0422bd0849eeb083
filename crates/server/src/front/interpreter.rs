//! A client of the code interpreter in a sandbox. A program of the sandbox answers: nothing rests on
//! what it says, all of it has a limit, and results are passed on as they are.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout, timeout_at};

use super::caller::Sandbox;
use super::port::open;
use crate::protocol::{INTERPRETER_PORT, Kind, Refusal};

/// The longest event of a cell, bytes.
const EVENT_BYTES_MAX: usize = 16 << 20;
/// The longest event that needs no place among the large ones, bytes.
const SMALL_BYTES_MAX: usize = 256 * 1024;
/// The most large events at once, of all sandboxes together; others wait.
const LARGE_MAX: usize = 8;
/// The longest time for a large event to come.
const LARGE_WITHIN: Duration = Duration::from_secs(30);
/// The longest answer to any other request, bytes, and the longest time for it.
const ANSWER_BYTES_MAX: usize = 1 << 20;
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// The large events that come, or are passed on.
static LARGE: Semaphore = Semaphore::const_new(LARGE_MAX);

/// A place among the large events, for as long as anything of one is held.
pub(crate) type Place = Option<Arc<SemaphorePermit<'static>>>;

/// Something that happens while a cell is executed. Its values are JSON, and nothing else is known of
/// them.
#[derive(Debug, Deserialize)]
pub(crate) struct Event<'a> {
    #[serde(rename = "type", borrow)]
    pub(crate) kind: Cow<'a, str>,
    pub(crate) execution_count: Option<u64>,
    /// The text that was written, or that a result is.
    #[serde(borrow)]
    pub(crate) text: Option<&'a RawValue>,
    pub(crate) html: Option<&'a RawValue>,
    pub(crate) markdown: Option<&'a RawValue>,
    pub(crate) latex: Option<&'a RawValue>,
    pub(crate) svg: Option<&'a RawValue>,
    pub(crate) png: Option<&'a RawValue>,
    pub(crate) jpeg: Option<&'a RawValue>,
    pub(crate) pdf: Option<&'a RawValue>,
    pub(crate) json: Option<&'a RawValue>,
    pub(crate) javascript: Option<&'a RawValue>,
    /// Further parts of a result, by the types of their content.
    pub(crate) extra: Option<&'a RawValue>,
    #[serde(default)]
    pub(crate) is_main_result: bool,
    /// The parts of an error.
    pub(crate) name: Option<&'a RawValue>,
    pub(crate) value: Option<&'a RawValue>,
    pub(crate) traceback: Option<&'a RawValue>,
}

impl<'a> Event<'a> {
    /// Returns the parts of a result by the types of their content; its text is of this one.
    pub(crate) fn parts(&self, text: &'static str) -> [(&'static str, Option<&'a RawValue>); 10] {
        [
            (text, self.text),
            ("text/html", self.html),
            ("text/markdown", self.markdown),
            ("text/latex", self.latex),
            ("image/svg+xml", self.svg),
            ("image/png", self.png),
            ("image/jpeg", self.jpeg),
            ("application/pdf", self.pdf),
            ("application/json", self.json),
            ("application/javascript", self.javascript),
        ]
    }
}

/// An event as it came.
pub(crate) struct Line {
    text: Bytes,
    pub(crate) place: Place,
}

/// The events of a cell. To drop them interrupts it.
pub(crate) struct Events {
    body: Incoming,
    got: BytesMut,
    /// The bytes in which no end of a line is.
    looked: usize,
}

impl Sandbox {
    /// Executes a cell in the default context of a language.
    pub(crate) async fn execute(&self, language: &str, code: &str) -> Result<Events, Refusal> {
        let asked = json!({ "language": language, "code": code, "keeps_quotes": true });
        self.execute_asked(&asked).await
    }

    /// Executes a cell in a context.
    pub(crate) async fn execute_by_id(&self, context: &str, code: &str) -> Result<Events, Refusal> {
        let asked = json!({ "context_id": context, "code": code, "keeps_quotes": true });
        self.execute_asked(&asked).await
    }

    async fn execute_asked(&self, asked: &Value) -> Result<Events, Refusal> {
        let body = self.send(Method::POST, "/execute", Some(asked)).await?;
        Ok(Events {
            body,
            got: BytesMut::new(),
            looked: 0,
        })
    }

    /// Interrupts the cell that the default context of a language executes, or starts its kernel
    /// again; without such a context there is nothing to do.
    pub(crate) async fn steer(&self, language: &str, what: &str) -> Result<(), Refusal> {
        let all = self.contexts().await?;
        match all.iter().find(|one| one.language == language) {
            Some(context) => self.steer_by_id(&context.id, what).await,
            None => Ok(()),
        }
    }

    /// Does the same with a context.
    pub(crate) async fn steer_by_id(&self, context: &str, what: &str) -> Result<(), Refusal> {
        let path = format!("/contexts/{}/{what}", id(context)?);
        self.in_time(self.send(Method::POST, &path, None))
            .await
            .map(drop)
    }

    /// Returns the contexts.
    pub(crate) async fn contexts(&self) -> Result<Vec<Context>, Refusal> {
        self.in_time(async { read(self.send(Method::GET, "/contexts", None).await?).await })
            .await
    }

    /// Makes a context.
    pub(crate) async fn make_context(&self, language: &str) -> Result<Context, Refusal> {
        let asked = json!({ "language": language });
        let make = async { read(self.send(Method::POST, "/contexts", Some(&asked)).await?).await };
        self.in_time(make).await
    }

    /// Removes a context.
    pub(crate) async fn remove_context(&self, context: &str) -> Result<(), Refusal> {
        let path = format!("/contexts/{}", id(context)?);
        self.in_time(self.send(Method::DELETE, &path, None))
            .await
            .map(drop)
    }

    async fn in_time<T>(
        &self,
        asked: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        let late = |_| Refusal::new(Kind::Late, "the code interpreter does not answer");
        timeout(ANSWER_WITHIN, asked).await.map_err(late)?
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        asked: Option<&Value>,
    ) -> Result<Incoming, Refusal> {
        let (stream, _) = open(self, INTERPRETER_PORT).await?;
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| broken_off(&error))?;
        tokio::spawn(async move {
            // What went wrong is in the answer, or breaks it off.
            let _ = connection.await;
        });
        let body = asked.map(Value::to_string).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "localhost")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(body))
            .map_err(|error| broken_off(&error))?;
        let answer = sender.send_request(request).await;
        let answer = answer.map_err(|error| broken_off(&error))?;
        match answer.status() {
            StatusCode::OK | StatusCode::NO_CONTENT => Ok(answer.into_body()),
            StatusCode::NOT_FOUND => Err(Refusal::new(Kind::NotFound, "there is no such context")),
            StatusCode::BAD_REQUEST => {
                let what = "the code interpreter does not know this language";
                Err(Refusal::invalid(what)
                    .advise("python, javascript, typescript, bash, java or r"))
            }
            status => Err(broken_off(&status)),
        }
    }
}

/// A context, whose cells see what the ones before have left.
#[derive(Deserialize)]
pub(crate) struct Context {
    pub(crate) id: String,
    pub(crate) language: String,
}

/// Reads a short answer.
async fn read<T: DeserializeOwned>(body: Incoming) -> Result<T, Refusal> {
    let text = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    let text = text.map_err(|error| broken_off(&*error))?.to_bytes();
    serde_json::from_slice(&text).map_err(|error| broken_off(&error))
}

/// Returns a context's id where it can be a part of a path.
fn id(text: &str) -> Result<&str, Refusal> {
    let is_id = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match is_id {
        true => Ok(text),
        false => Err(Refusal::new(Kind::NotFound, "there is no such context")),
    }
}

impl Events {
    /// Waits for the next event; `None` after the last.
    pub(crate) async fn next(&mut self) -> Result<Option<Line>, Refusal> {
        while self.got.len() <= SMALL_BYTES_MAX {
            if let Some(text) = self.line() {
                return Ok(Some(Line { text, place: None }));
            }
            if !self.fill().await? {
                return Ok(None);
            }
        }
        let place = LARGE.acquire().await.map_err(|error| broken_off(&error))?;
        let place = Some(Arc::new(place));
        let until = Instant::now() + LARGE_WITHIN;
        loop {
            if let Some(text) = self.line() {
                return Ok(Some(Line { text, place }));
            }
            if self.got.len() > EVENT_BYTES_MAX {
                let what = format!("a result is longer than {} MiB", EVENT_BYTES_MAX >> 20);
                return Err(Refusal::invalid(what).advise("write it to a file"));
            }
            let late = |_| Refusal::new(Kind::Late, "a large result did not come in time");
            if !timeout_at(until, self.fill()).await.map_err(late)?? {
                return Ok(None);
            }
        }
    }

    /// Reads some more; returns whether there is any.
    async fn fill(&mut self) -> Result<bool, Refusal> {
        let Some(frame) = self.body.frame().await else {
            return Ok(false);
        };
        let frame = frame.map_err(|error| broken_off(&error))?;
        if let Ok(data) = frame.into_data() {
            self.got.extend_from_slice(&data);
        }
        Ok(true)
    }

    /// Takes the next whole line.
    fn line(&mut self) -> Option<Bytes> {
        let rest = self.got.get(self.looked..)?;
        match rest.iter().position(|byte| *byte == b'\n') {
            Some(place) => {
                let line = self.got.split_to(self.looked + place + 1);
                self.looked = 0;
                Some(line.freeze())
            }
            None => {
                self.looked = self.got.len();
                None
            }
        }
    }
}

impl Line {
    /// Reads the event.
    pub(crate) fn event(&self) -> Result<Event<'_>, Refusal> {
        serde_json::from_slice(&self.text).map_err(|error| broken_off(&error))
    }
}

pub(crate) fn broken_off(error: &(impl std::fmt::Display + ?Sized)) -> Refusal {
    let what = format!("the code interpreter has broken off: {error}");
    Refusal::new(Kind::Unavailable, what).advise("try again; a restart begins it anew")
}
