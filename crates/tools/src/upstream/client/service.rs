//! Calls of a service over HTTP: one request, and its answer as a result.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use serde_json::{Map, Value};

use super::dial::Dialer;
use super::http::{Http, body_of, client, explained, headers};
use crate::block::Block;
use crate::json;
use crate::openapi::HttpRequest;
use crate::upstream::frames::{Given, Trust};

/// The largest answer that is read, bytes.
const ANSWER_BYTES_MAX: usize = 2 << 20;

/// A service.
#[derive(Clone)]
pub(super) struct Service {
    http: Http,
    headers: Arc<HashMap<HeaderName, HeaderValue>>,
}

impl Service {
    pub(super) fn new(dialer: Dialer, trust: Trust) -> io::Result<Self> {
        Ok(Self {
            http: client(dialer, &trust.roots)?,
            headers: Arc::new(headers(&trust)?),
        })
    }

    /// Sends a request, and describes the answer: one with a status of 400 or more has failed.
    pub(super) async fn answer(self, request: Map<String, Value>) -> Option<Result<Given, String>> {
        Some(self.answered(request).await)
    }

    async fn answered(self, request: Map<String, Value>) -> Result<Given, String> {
        let wanted = serde_json::from_value(Value::Object(request));
        let wanted: HttpRequest = wanted.map_err(|error| error.to_string())?;
        let sent = format!("{} {}", wanted.method, wanted.url);
        let mut request = Request::builder().method(&*wanted.method).uri(&wanted.url);
        request = request.header(ACCEPT, "application/json, */*;q=0.5");
        // No argument stands beside a header that the table has.
        let is_own = |name: &String| {
            self.headers
                .keys()
                .any(|own| own.as_str().eq_ignore_ascii_case(name))
        };
        for (name, value) in wanted.headers.iter().filter(|(name, _)| !is_own(name)) {
            request = request.header(name, value);
        }
        for (name, value) in &*self.headers {
            request = request.header(name, value);
        }
        let body = Full::new(Bytes::from(wanted.body.unwrap_or_default()));
        let request = request.body(body).map_err(|error| error.to_string())?;
        let response = self.http.request(request).await;
        let response = response.map_err(|error| explained(&error))?;
        let status = response.status();
        let kind = response.headers().get(CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind
            .split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .to_ascii_lowercase();
        let is_json = kind == "application/json" || kind.ends_with("+json");
        let body = body_of(response.into_body(), ANSWER_BYTES_MAX).await?;
        let text = String::from_utf8_lossy(&body).into_owned();
        // What cannot be read in one way is text.
        let value = is_json.then(|| json::parse(&text, ANSWER_BYTES_MAX).ok());
        let is_error = status.as_u16() >= 400;
        let shown = match (is_error, text.is_empty()) {
            (true, _) => format!("{status}\n{text}").trim_end().to_owned(),
            (false, true) => status.to_string(),
            (false, false) => text,
        };
        Ok(Given {
            blocks: vec![Block::text(shown)],
            // MCP has objects alone there.
            structured: value
                .flatten()
                .filter(|value| value.is_object() && !is_error),
            is_error,
            sent: Some(sent),
            status: Some(status.as_u16()),
            asks: None,
        })
    }
}
