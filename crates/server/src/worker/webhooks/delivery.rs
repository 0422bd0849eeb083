//! Sends what waits in the store: signed, of each tenant its share at once, one of each webhook at a
//! time so that none holds up the others.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use atoll_model::network::HostPart;
use atoll_store::Delivery;
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::{Id, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

use super::target::Target;
use super::{Sender, Webhooks};
use crate::lifecycle::rendered;
use crate::rfc3339::milliseconds;
use crate::worker::answers::AGAIN;
use crate::worker::events::facts;
use crate::worker::shares::{Of, Share};

/// The longest time for an attempt, and to connect to one address.
const ATTEMPTED_WITHIN: Duration = Duration::from_secs(10);
const CONNECTED_WITHIN: Duration = Duration::from_secs(3);
/// The attempts of a delivery, and the time between two.
const ATTEMPTS: u32 = 4;
const RETRIED_AFTER_MS: u64 = 10_000;
/// The longest time between two looks at what waits.
const LOOK: Duration = Duration::from_secs(60);
/// The longest time that the end of the server waits for deliveries, and between two looks.
const SETTLED_WITHIN: Duration = Duration::from_secs(3);
const SETTLED_LOOK: Duration = Duration::from_millis(50);
/// The longest head of an answer, bytes. Its body is not read.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// The `User-Agent`.
const WHO: &str = concat!("atoll/", env!("CARGO_PKG_VERSION"));

/// The deliveries under way.
struct UnderWay {
    tasks: JoinSet<()>,
    webhooks: HashMap<Id, String>,
    /// The turn of each webhook that was served last.
    turns: BTreeMap<String, u64>,
    turn: u64,
}

impl Webhooks {
    /// Delivers what waits, for ever.
    pub(in crate::worker) async fn deliver_webhooks(self: &Arc<Self>) {
        let mut under_way = UnderWay {
            tasks: JoinSet::new(),
            webhooks: HashMap::new(),
            turns: BTreeMap::new(),
            turn: 0,
        };
        loop {
            let pause = self.begin_due(&mut under_way);
            tokio::select! {
                () = self.woken.notified() => {}
                Some(ended) = under_way.tasks.join_next_with_id() => {
                    let id = ended.map_or_else(|error| error.id(), |(id, ())| id);
                    under_way.webhooks.remove(&id);
                }
                () = sleep(pause) => {}
            }
        }
    }

    /// Begins the deliveries that are due, as many as may be; returns the time to the next look.
    fn begin_due(self: &Arc<Self>, under_way: &mut UnderWay) -> Duration {
        let waiting = match self.server.store.next_deliveries() {
            Ok(waiting) => waiting,
            Err(error) => {
                eprintln!("atoll serve: {error}");
                return AGAIN;
            }
        };
        let now_ms = milliseconds(SystemTime::now());
        let mut turns = std::mem::take(&mut under_way.turns);
        let mut due = Vec::new();
        let mut pause = LOOK;
        for one in waiting {
            let turn = turns.remove(&one.webhook);
            if let Some(turn) = turn {
                under_way.turns.insert(one.webhook.clone(), turn);
            }
            if under_way.webhooks.values().any(|busy| *busy == one.webhook) {
                continue;
            }
            match one.next_ms.checked_sub(now_ms) {
                None | Some(0) => due.push((turn.unwrap_or(0), one)),
                Some(left) => pause = pause.min(Duration::from_millis(left)),
            }
        }
        due.sort_by_key(|(turn, one)| (*turn, one.next_ms));
        for (_, one) in due {
            let Ok(share) = self.server.shares.take(Of::Deliveries, &one.tenant, 1) else {
                // Looked at again once one of those under way has ended, or a name is found.
                pause = pause.min(AGAIN);
                continue;
            };
            under_way.turn += 1;
            under_way.turns.insert(one.webhook.clone(), under_way.turn);
            let webhook = one.webhook.clone();
            let own = Arc::clone(self);
            let task = under_way
                .tasks
                .spawn(async move { own.deliver(one, share).await });
            under_way.webhooks.insert(task.id(), webhook);
        }
        pause
    }

    /// Makes one attempt, and notes its outcome.
    async fn deliver(&self, one: Delivery, share: Share) {
        let share = Arc::new(share);
        let (number, webhook, id) = (one.number, one.webhook.clone(), one.id.clone());
        let is_last = one.attempts.saturating_add(1) >= ATTEMPTS;
        let sent = timeout(ATTEMPTED_WITHIN, self.sender.send(one, &share)).await;
        let failure = match sent {
            Ok(Ok(200..=299)) => None,
            Ok(Ok(status)) => Some(format!("it answered {status}")),
            Ok(Err(why)) => Some(why),
            Err(_) => Some(format!("no answer in {} s", ATTEMPTED_WITHIN.as_secs())),
        };
        let noted = match failure {
            None => {
                self.delivered.fetch_add(1, Ordering::Relaxed);
                self.server.store.end_delivery(number)
            }
            Some(why) if is_last => {
                eprintln!("atoll serve: webhook {webhook} did not get delivery {id}: {why}");
                self.given_up.fetch_add(1, Ordering::Relaxed);
                self.server.store.end_delivery(number)
            }
            Some(_) => {
                let next_ms = milliseconds(SystemTime::now()) + RETRIED_AFTER_MS;
                self.server.store.retry_delivery(number, next_ms)
            }
        };
        if let Err(error) = noted {
            eprintln!("atoll serve: {error}");
            // Else it is sent again and again.
            sleep(AGAIN).await;
        }
    }

    /// Waits until what is due was attempted, for a short time: the rest is sent by the next server.
    pub(in crate::worker) async fn settle_webhooks(&self) {
        let until = Instant::now() + SETTLED_WITHIN;
        while Instant::now() < until {
            let now_ms = milliseconds(SystemTime::now());
            let waiting = self.server.store.next_deliveries().unwrap_or_default();
            if !waiting.iter().any(|one| one.next_ms <= now_ms) {
                return;
            }
            sleep(SETTLED_LOOK).await;
        }
    }
}

impl Sender {
    /// Sends a delivery; returns the status of the answer.
    pub(super) async fn send(&self, one: Delivery, share: &Arc<Share>) -> Result<u16, String> {
        let target = Target::parse(&one.url)?;
        // What was allowed once can lead elsewhere now.
        let addresses = target.addresses(&self.named, share).await;
        let addresses = addresses.map_err(|why| why.to_string())?;
        let stream = connected(&addresses).await?;
        let request = request(&target, one, milliseconds(SystemTime::now()) / 1000)?;
        if !target.is_tls {
            return answered(stream, request).await;
        }
        let config = self.tls.get_or_init(client_config).clone();
        let config = config.ok_or("TLS cannot be spoken")?;
        let name = match &target.host {
            HostPart::Address(address) => ServerName::IpAddress((*address).into()),
            HostPart::Name(name) => ServerName::try_from(name.to_string())
                .map_err(|_| "no certificate can be for such a name")?,
        };
        let secured = TlsConnector::from(config).connect(name, stream).await;
        answered(secured.map_err(|error| error.to_string())?, request).await
    }
}

/// Connects to the first address that answers; these and no others were checked.
async fn connected(addresses: &[SocketAddr]) -> Result<TcpStream, String> {
    let mut why = "it has no address".to_owned();
    for address in addresses {
        match timeout(CONNECTED_WITHIN, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => why = error.to_string(),
            Err(_) => "it cannot be connected to in time".clone_into(&mut why),
        }
    }
    Err(why)
}

/// Makes the request of a delivery.
fn request(target: &Target, one: Delivery, now_s: u64) -> Result<Request<Full<Bytes>>, String> {
    let body = rendered(&facts(&one.tenant, one.event)).to_string();
    let request = Request::builder()
        .method(Method::POST)
        .uri(&target.path)
        .header(HOST, &target.authority)
        .header(USER_AGENT, WHO)
        .header(CONTENT_TYPE, "application/json")
        .header("e2b-webhook-id", &one.webhook)
        .header("e2b-delivery-id", &one.id)
        .header("e2b-signature-version", "v1")
        .header("e2b-signature", e2b_signature(&one.secret, &body))
        .header("atoll-timestamp", now_s)
        .header("atoll-signature", signature(&one.secret, now_s, &body))
        .body(Full::new(Bytes::from(body)));
    request.map_err(|error| error.to_string())
}

/// Signs a body as E2B does: a digest of the secret and the body, unpadded base64.
pub(super) fn e2b_signature(secret: &str, body: &str) -> String {
    BASE64_STANDARD_NO_PAD.encode(Sha256::digest([secret, body].concat()))
}

/// Signs a body and the time at which it is sent: HMAC-SHA-256.
pub(super) fn signature(secret: &str, now_s: u64, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let tag = hmac::sign(&key, format!("{now_s}.{body}").as_bytes());
    let digits = tag.as_ref().iter().map(|byte| format!("{byte:02x}"));
    format!("v1={}", digits.collect::<String>())
}

/// Sends a request, and reads the head of its answer. A redirect is an answer like any other.
async fn answered(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Result<u16, String> {
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_BYTES_MAX);
    let handshake = builder.handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
    // Ended with this function, whatever the other side does.
    let mut carried = JoinSet::new();
    carried.spawn(async move { drop(connection.await) });
    let response = sender.send_request(request).await;
    let response = response.map_err(|error| error.to_string())?;
    Ok(response.status().as_u16())
}

/// Prepares TLS with the authorities that this host trusts (`SSL_CERT_FILE` names others).
fn client_config() -> Option<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions().ok()?;
    let builder = builder.with_root_certificates(roots);
    Some(Arc::new(builder.with_no_client_auth()))
}
