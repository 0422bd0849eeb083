//! Questions to a person, before something goes out.
//!
//! What is asked about waits here, so that what they say yes to is what goes out: nothing of
//! it can change meanwhile. Who asks and does not wait takes the question back.

use std::time::Duration;

use atoll_model::network::{
    ASKED_TEXT_BYTES_MAX, ASKING_PATIENCE, AskedBody, AskedCall, AskedRequest, CallDigest, Consent,
    Flow, NetworkRule, NoConsent,
};
use bytes::Bytes;
use hyper::http::request::Parts;
use sha2::{Digest, Sha256};
use tokio::time::timeout;

use super::head::Head;
use crate::Egress;
use crate::line::Line;
use crate::refusals::shown;

/// How much longer is waited here than where the question is shown, which tells of its end.
const MORE_PATIENCE: Duration = Duration::from_secs(5);

/// A question that is open. Dropped, it is taken back.
struct Open<'a> {
    line: &'a Line,
    id: u64,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.line.leave(self.id);
    }
}

/// Waits for a person's word about a call. The number of the approval.
///
/// # Errors
/// [`NoConsent`]: it does not go out. Nobody to ask is the same.
pub(crate) async fn consent(egress: &Egress, call: AskedCall) -> Result<u32, NoConsent> {
    let digest = digest_of(&call).ok_or(NoConsent::Mismatch)?;
    let (id, said) = egress.line.ask(call)?;
    let open = Open {
        line: &egress.line,
        id,
    };
    let said = tokio::select! {
        said = timeout(ASKING_PATIENCE + MORE_PATIENCE, said) => said,
        () = egress.is_over() => return Err(NoConsent::Ended),
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

/// That of a call, as the side that shows it makes it too.
fn digest_of(call: &AskedCall) -> Option<CallDigest> {
    serde_json::to_vec(call).ok().map(|text| hash(&text))
}

fn hash(bytes: &[u8]) -> CallDigest {
    CallDigest::new(Sha256::digest(bytes).into())
}

/// A connection whose bytes are carried as they are, once a database is signed in to where
/// its flow says so.
pub(crate) fn connection(flow: &Flow, rule: &NetworkRule) -> AskedCall {
    AskedCall {
        kind: flow.kind,
        host: flow.host.clone(),
        port: flow.port,
        request: None,
        login: flow.login.clone(),
        credentials: flow.credentials.clone(),
        rule: rule.told(),
    }
}

/// A request, with its whole body.
pub(crate) fn request(
    (flow, rule): (&Flow, &NetworkRule),
    parts: &Parts,
    head: &Head,
    body: Option<&Bytes>,
) -> AskedCall {
    let query = parts.uri.path_and_query().and_then(|both| both.query());
    let path = head.target.path();
    let request = flow.request.as_ref().map(|request| AskedRequest {
        scheme: request.scheme,
        method: request.method.clone(),
        path: shown(path, ASKED_TEXT_BYTES_MAX).into_owned(),
        query: query.map(|query| shown(query, ASKED_TEXT_BYTES_MAX).into_owned()),
        path_digest: hash(path.as_bytes()),
        target_digest: hash(head.target.as_written().as_bytes()),
        is_web_socket: head.is_web_socket,
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

/// How a body begins, as text.
fn beginning(body: &[u8]) -> String {
    let first = body.get(..ASKED_TEXT_BYTES_MAX).unwrap_or(body);
    String::from_utf8_lossy(first).into_owned()
}
