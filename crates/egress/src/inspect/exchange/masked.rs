//! Masking of real values in responses, in a run that has credentials: in every inspected response,
//! since one host can pass on what another one sent it.

use std::sync::Arc;

use http_body::Body;
use http_body_util::BodyExt;
use hyper::StatusCode;
use hyper::header::{
    ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, ETAG, HeaderMap, HeaderName, HeaderValue,
};
use hyper::http::response::Parts;

use super::Exchange;
use crate::inspect::body::ResponseBody;
use crate::inspect::ranges::{DeliveredPart, PaddedRange, WindowedBody};
use crate::secret::{Coding, Masks, Undecodable};

/// Headers that describe the compressed response, and are wrong once it is decompressed (RFC 9530).
const OF_COMPRESSED: [HeaderName; 6] = [
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-md5"),
];
/// The header with the compression of gRPC messages, each compressed by itself.
const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");

/// Returns the response's body as the program gets it, and updates its head to match.
///
/// # Errors
/// The reason why it cannot be searched, in words.
pub(super) async fn masked(
    exchange: &Arc<Exchange>,
    parts: &mut Parts,
    body: ResponseBody,
) -> Result<ResponseBody, String> {
    let egress = &exchange.egress;
    let Some(masks) = egress.credentials.masks() else {
        return Ok(body);
    };
    let is_part = parts.status == StatusCode::PARTIAL_CONTENT && exchange.ranged.is_some();
    if body.is_end_stream() && !is_part {
        return Ok(body);
    }
    let cut = part(
        exchange.ranged.as_ref(),
        &masks,
        parts.status,
        &parts.headers,
    )?;
    let coding = coding_of(parts).map_err(|error| error.to_string())?;
    let held = egress.bodies.decoding(coding).await?;
    if coding.is_some() {
        unpack(&mut parts.headers);
    }
    let body = body.masked(&masks, coding, Arc::clone(exchange), held);
    let Some(cut) = cut else {
        return Ok(body);
    };
    cut.tell(&mut parts.headers);
    let mut window = WindowedBody::new(body, &cut);
    if cut.take > 0 {
        return Ok(ResponseBody::Part(Box::new(window)));
    }
    // Whoever writes an answer of no bytes asks for none, and this one would never end.
    while let Some(frame) = window.frame().await {
        frame.map_err(|broken| broken.to_string())?;
    }
    parts.status = StatusCode::RANGE_NOT_SATISFIABLE;
    Ok(ResponseBody::empty())
}

/// Returns whether a range was requested and a response with this head can be handed on neither as
/// that range nor as the whole: the whole must be requested then.
pub(super) fn is_unfit(exchange: &Exchange, status: StatusCode, headers: &HeaderMap) -> bool {
    let (ranged, masks) = (
        exchange.ranged.as_ref(),
        exchange.egress.credentials.masks(),
    );
    ranged.is_some() && masks.is_some_and(|masks| part(ranged, &masks, status, headers).is_err())
}

/// Returns the part of a response that is handed on; `None` for all of it.
fn part(
    ranged: Option<&PaddedRange>,
    masks: &Masks,
    status: StatusCode,
    headers: &HeaderMap,
) -> Result<Option<DeliveredPart>, String> {
    match (status, ranged) {
        (StatusCode::PARTIAL_CONTENT, Some(ranged)) => cut(ranged, masks, headers).map(Some),
        (StatusCode::PARTIAL_CONTENT, None) => {
            Err("it is a part, and all of it was asked for".to_owned())
        }
        (status, Some(ranged)) => ranged.is_all(status.is_success(), headers).map(|()| None),
        (_, None) => Ok(None),
    }
}

/// Returns the part of a partial response that is handed on.
fn cut(ranged: &PaddedRange, masks: &Masks, headers: &HeaderMap) -> Result<DeliveredPart, String> {
    let is_plain = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    if !headers.get_all(CONTENT_ENCODING).iter().all(is_plain) {
        return Err(
            "it is a part of what is compressed, which cannot be looked through".to_owned(),
        );
    }
    if (masks.longest() as u64) > ranged.margin() {
        return Err("there is another credential by now: ask again".to_owned());
    }
    ranged.cut(headers)
}

/// Returns the response's content coding.
fn coding_of(parts: &Parts) -> Result<Option<Coding>, Undecodable> {
    let is_plain = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    let coding = Coding::of(&parts.headers)?;
    if !parts.headers.get_all(GRPC_ENCODING).iter().all(is_plain) {
        return Err(Undecodable::Unknown);
    }
    Ok(coding)
}

/// Updates a response's head to describe a decompressed body: its entity tag becomes a weak one
/// (RFC 9110, 8.8.1), and no ranges can be requested.
fn unpack(headers: &mut HeaderMap) {
    for name in &OF_COMPRESSED {
        headers.remove(name);
    }
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("none"));
    let tag = headers.get(ETAG).map(HeaderValue::as_bytes);
    if let Some(strong) = tag.filter(|tag| !tag.starts_with(b"W/")) {
        match HeaderValue::from_bytes(&[b"W/", strong].concat()) {
            Ok(weak) => headers.insert(ETAG, weak),
            Err(_) => headers.remove(ETAG),
        };
    }
}

#[cfg(test)]
mod tests {
    use hyper::Response;

    use super::*;

    fn parts(status: u16, headers: &[(&str, &str)]) -> Parts {
        let response = headers.iter().fold(
            Response::builder().status(status),
            |response, (name, value)| response.header(*name, *value),
        );
        response.body(()).unwrap().into_parts().0
    }

    #[test]
    fn masked_response_head_loses_its_coding() {
        let mut packed = parts(
            200,
            &[
                ("content-encoding", "br"),
                ("content-length", "7"),
                ("etag", "\"a\""),
                ("accept-ranges", "bytes"),
                ("repr-digest", "sha-256=:x:"),
                ("content-type", "text/plain"),
            ],
        );
        assert_eq!(coding_of(&packed), Ok(Some(Coding::Brotli)));
        unpack(&mut packed.headers);
        let mut left: Vec<String> = packed
            .headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        left.sort();
        let expected = [
            "accept-ranges: none",
            "content-type: text/plain",
            "etag: W/\"a\"",
        ];
        assert_eq!(left, expected);
        unpack(&mut packed.headers);
        assert_eq!(packed.headers[ETAG], "W/\"a\"");
    }

    #[test]
    fn masked_response_unreadable_coding_is_refused() {
        for (status, headers, is_known) in [
            (200, &[][..], true),
            (200, &[("content-encoding", "gzip")], true),
            (200, &[("content-encoding", "compress")], false),
            (200, &[("content-encoding", "gzip, br")], false),
            (200, &[("grpc-encoding", "identity")], true),
            (200, &[("grpc-encoding", "gzip")], false),
        ] {
            let parts = parts(status, headers);
            assert_eq!(coding_of(&parts).is_ok(), is_known, "{status} {headers:?}");
        }
    }
}
