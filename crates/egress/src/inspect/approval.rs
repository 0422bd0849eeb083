//! Approval requests: questions to a person before something is sent.
//!
//! The call waits here, so that exactly what the person approves is sent and none of it can change
//! meanwhile. A question whose caller stops waiting is withdrawn.

use std::time::Duration;

use atoll_model::network::{
    ASKED_HEADERS_MAX, ASKED_SHORT_BYTES_MAX, ASKED_TEXT_BYTES_MAX, ASKING_PATIENCE, AskedBody,
    AskedCall, AskedHeader, AskedRequest, CallDigest, Consent, Flow, NoConsent, Signing,
};
use bytes::Bytes;
use hyper::header::HeaderMap;
use sha2::{Digest, Sha256};
use tokio::time::timeout;

use super::head;
use super::injection::OutgoingRequest;
use crate::Egress;
use crate::control_channel::ControlChannel;
use crate::limits::Direction;
use crate::refusals::shown;

/// The time waited here beyond the patience of the side that shows the question, which reports its
/// end.
const MORE_PATIENCE: Duration = Duration::from_secs(5);

/// An open question; withdrawn when dropped.
struct OpenQuestion<'a> {
    control: &'a ControlChannel,
    id: u64,
}

impl Drop for OpenQuestion<'_> {
    fn drop(&mut self) {
        self.control.withdraw(self.id);
    }
}

/// Waits for a person's decision about a call, and returns the approval's number.
///
/// # Errors
/// [`NoConsent`]: the call is not sent. Having no approver to ask is the same.
pub(crate) async fn consent(egress: &Egress, call: AskedCall) -> Result<u32, NoConsent> {
    let digest = digest_of(&call).ok_or(NoConsent::Mismatch)?;
    let (id, said) = egress.control.ask(call)?;
    let open = OpenQuestion {
        control: &egress.control,
        id,
    };
    let said = tokio::select! {
        said = timeout(ASKING_PATIENCE + MORE_PATIENCE, said) => said,
        () = egress.run_ended() => return Err(NoConsent::Ended),
    };
    let (about, consent) = match said {
        Ok(Ok(said)) => said,
        Ok(Err(_)) => return Err(NoConsent::Ended),
        Err(_) => return Err(NoConsent::Late),
    };
    drop(open);
    match consent {
        Consent::Granted { approval } if about == digest => Ok(approval),
        Consent::Granted { .. } => Err(NoConsent::Mismatch),
        Consent::Denied { why } => Err(why),
    }
}

/// Returns the digest of a call, computed just as the side that shows it does.
fn digest_of(call: &AskedCall) -> Option<CallDigest> {
    serde_json::to_vec(call).ok().map(|text| hash(&text))
}

fn hash(bytes: &[u8]) -> CallDigest {
    CallDigest::new(Sha256::digest(bytes).into())
}

/// Describes an uninspected connection, or a database session after its login where the flow says
/// so.
pub(crate) fn connection(flow: &Flow, rule: String) -> AskedCall {
    AskedCall {
        kind: flow.kind,
        host: flow.host.clone(),
        port: flow.port,
        request: None,
        login: flow.login.clone(),
        signs: None,
        credentials: flow.credentials.clone(),
        rule,
        policies: flow.policies,
    }
}

/// Describes one signature by an SSH key, bound to exactly what is signed.
pub(crate) fn signature(flow: &Flow, rule: String, signing: &Signing) -> AskedCall {
    let whole = serde_json::to_vec(signing);
    AskedCall {
        signs: whole.ok().map(|text| hash(&text)),
        ..connection(flow, rule)
    }
}

/// Describes a request with its whole body, as the program wrote it.
pub(super) fn request(outgoing: &OutgoingRequest, rule: String, body: Option<&Bytes>) -> AskedCall {
    let OutgoingRequest {
        parts, head, flow, ..
    } = outgoing;
    let mut sent = parts.headers.clone();
    outgoing.leave.redactions.take_out(Direction::Up, &mut sent);
    let headers = Headers::of(sent, outgoing.injection.is_signed());
    let query = parts.uri.path_and_query().and_then(|both| both.query());
    let path = head.target.path();
    let request = flow.request.as_ref().map(|request| AskedRequest {
        scheme: request.scheme,
        method: request.method.clone(),
        path: shown(path, ASKED_TEXT_BYTES_MAX).into_owned(),
        query: query.map(|query| shown(query, ASKED_TEXT_BYTES_MAX).into_owned()),
        path_digest: hash(path.as_bytes()),
        target_digest: hash(head.target.as_written().as_bytes()),
        confidence: request.confidence,
        is_web_socket: head.is_web_socket,
        headers_digest: headers.digest,
        telling_headers_digest: headers.telling_digest,
        telling_headers: headers.telling.clone(),
        further_headers: headers.further,
        body: body.map(|body| AskedBody {
            bytes: body.len() as u64,
            digest: hash(body),
            beginning: beginning(body),
        }),
    });
    AskedCall {
        request,
        ..connection(flow, rule)
    }
}

/// Headers that mean nothing to an approver: a client's identification and what it can read,
/// message framing, digests of a body that has its own digest, and values that differ for each
/// request.
const HARMLESS: [&str; 33] = [
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "amz-sdk-invocation-id",
    "amz-sdk-request",
    "cache-control",
    "content-digest",
    "content-length",
    "content-md5",
    "date",
    "digest",
    "dnt",
    "expect",
    "host",
    "pragma",
    "priority",
    "repr-digest",
    "sec-ch-ua",
    "sec-ch-ua-mobile",
    "sec-ch-ua-platform",
    "sec-fetch-dest",
    "sec-fetch-mode",
    "sec-fetch-site",
    "sec-fetch-user",
    "sec-gpc",
    "sec-websocket-extensions",
    "sec-websocket-key",
    "sec-websocket-version",
    "traceparent",
    "tracestate",
    "upgrade-insecure-requests",
    "user-agent",
];
/// Headers of a signature that is verified and made anew: the key's name is shown instead.
const OF_SIGNATURES: [&str; 3] = ["authorization", "x-amz-content-sha256", "x-amz-date"];

/// The headers of a request, as an approver is shown them.
struct Headers {
    digest: CallDigest,
    telling_digest: CallDigest,
    telling: Vec<AskedHeader>,
    further: u32,
}

impl Headers {
    /// Takes the headers that are forwarded, as the program wrote them.
    fn of(mut written: HeaderMap, is_signed: bool) -> Self {
        head::strip(&mut written);
        let mut all: Vec<(&str, &[u8])> = written
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_bytes()))
            .collect();
        // Values of one name stay in their order, which means something.
        all.sort_by_key(|(name, _)| *name);
        let digest = digest_of_headers(&all);
        all.retain(|(name, _)| {
            !(HARMLESS.contains(name) || is_signed && OF_SIGNATURES.contains(name))
        });
        let telling = all.iter().take(ASKED_HEADERS_MAX).map(|(name, value)| {
            let value = String::from_utf8_lossy(value);
            AskedHeader {
                name: shown(name, ASKED_SHORT_BYTES_MAX).into_owned(),
                value: shown(&value, ASKED_SHORT_BYTES_MAX).into_owned(),
            }
        });
        let further = all.len().saturating_sub(ASKED_HEADERS_MAX);
        Self {
            digest,
            telling_digest: digest_of_headers(&all),
            telling: telling.collect(),
            further: u32::try_from(further).unwrap_or(u32::MAX),
        }
    }
}

/// Hashes headers with a length prefix for each part, so that no two lists collide.
fn digest_of_headers(all: &[(&str, &[u8])]) -> CallDigest {
    let mut hasher = Sha256::new();
    for part in all
        .iter()
        .flat_map(|(name, value)| [name.as_bytes(), value])
    {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    CallDigest::new(hasher.finalize().into())
}

/// Returns the first bytes of a body as text.
fn beginning(body: &[u8]) -> String {
    let first = body.get(..ASKED_TEXT_BYTES_MAX).unwrap_or(body);
    String::from_utf8_lossy(first).into_owned()
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderName;

    use super::*;

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        let all = all.iter();
        all.map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn approval_shows_meaningful_headers() {
        let first = headers(&[
            ("x-amz-copy-source", "/a/public"),
            ("user-agent", "one"),
            ("connection", "x-own"),
            ("x-own", "y"),
        ]);
        let of = |all: &HeaderMap| Headers::of(all.clone(), false);
        let one = of(&first);
        let names: Vec<&str> = one.telling.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["x-amz-copy-source"]);
        assert_eq!(one.telling[0].value, "/a/public");
        let other = of(&headers(&[
            ("x-amz-copy-source", "/a/private"),
            ("user-agent", "one"),
        ]));
        assert_ne!(one.digest, other.digest);
        assert_ne!(one.telling_digest, other.telling_digest);
        // The control: what means nothing is in the digest of all alone.
        let other = of(&headers(&[
            ("user-agent", "two"),
            ("x-amz-copy-source", "/a/public"),
        ]));
        assert_ne!(one.digest, other.digest);
        assert_eq!(one.telling_digest, other.telling_digest);
        let same = of(&headers(&[
            ("user-agent", "one"),
            ("x-amz-copy-source", "/a/public"),
        ]));
        assert_eq!(one.digest, same.digest);
    }

    #[test]
    fn approval_headers_are_bounded() {
        let long = "x".repeat(1000);
        let mut all = headers(&[("authorization", "AWS4 x"), ("x-amz-date", "now")]);
        let (checked, own) = (
            Headers::of(all.clone(), true),
            Headers::of(all.clone(), false),
        );
        assert_eq!([checked.telling.len(), own.telling.len()], [0, 2]);
        for _ in 0..ASKED_HEADERS_MAX {
            all.append("x-long", long.parse().unwrap());
        }
        let all = Headers::of(all, false);
        assert_eq!(all.telling.len(), ASKED_HEADERS_MAX);
        assert_eq!(all.further, 2);
        let longest = all.telling.iter().map(|one| one.value.len()).max();
        assert!(longest < Some(2 * ASKED_SHORT_BYTES_MAX), "{longest:?}");
    }
}
