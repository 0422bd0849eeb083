//! DNS answers: nothing is queried upstream before a name may be reached, and each answer is a
//! stand-in address of Atoll's own.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use atoll_model::network::{Flow, FlowKind, HostName, Network, SANDBOX_NAME};
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::{DNSClass, RData, Record, RecordType};
use quinn_udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use crate::Egress;
use crate::names::{self, Names};
use crate::policies::PolicySnapshot;

/// The TTL of an answer, seconds: it stays true for the sandbox's life.
const TTL_SECONDS: u32 = 300;

/// The longest query that is read, bytes.
pub(crate) const QUESTION_BYTES_MAX: usize = 4096;

/// The longest time a program may take over a DNS query by TCP.
const QUESTION_PATIENCE: Duration = Duration::from_secs(10);
/// The extended error code "Prohibited" (RFC 8914).
const PROHIBITED: u16 = 18;
/// The EDNS option of extended errors (RFC 8914).
const EXTENDED_ERROR: u16 = 15;
/// The largest UDP payload, as announced by EDNS, bytes.
const PAYLOAD_BYTES: u16 = 1232;

/// The outcome of a query.
#[derive(Debug)]
pub(crate) struct QueryOutcome {
    /// The answer, if there is one.
    pub(crate) answer: Option<Vec<u8>>,
    /// The name that was refused.
    pub(crate) refused: Option<RefusedName>,
}

/// A name that may not be queried.
#[derive(Debug)]
pub(crate) struct RefusedName {
    pub(crate) name: String,
    /// The reason, for the record.
    pub(crate) why: String,
    /// The reason, for the program.
    told: String,
}

/// Answers DNS queries by UDP, each from the address that it was sent to.
pub(crate) async fn serve(egress: Arc<Egress>, socket: UdpSocket) {
    let Ok(state) = UdpSocketState::new(UdpSockRef::from(&socket)) else {
        return;
    };
    let mut buffer = vec![0_u8; QUESTION_BYTES_MAX];
    loop {
        let ready = tokio::select! {
            ready = socket.readable() => ready,
            () = egress.run_ended() => return,
        };
        if ready.is_err() {
            return;
        }
        let mut meta = [RecvMeta::default()];
        let received = socket.try_io(tokio::io::Interest::READABLE, || {
            let mut buffers = [io::IoSliceMut::new(&mut buffer)];
            state.recv(UdpSockRef::from(&socket), &mut buffers, &mut meta)
        });
        let [meta] = meta;
        if received.is_err() {
            continue;
        }
        let questions = buffer.get(..meta.len).unwrap_or_default();
        // The kernel joins datagrams of the same length (udp(7), `UDP_GRO`).
        for question in questions.chunks(meta.stride.max(1)) {
            let Some(reply) = answered(&egress, question) else {
                continue;
            };
            let transmit = Transmit {
                destination: meta.addr,
                ecn: None,
                contents: &reply,
                segment_size: None,
                src_ip: meta.dst_ip,
            };
            // Who asks again is answered again.
            let _ = socket.try_io(tokio::io::Interest::WRITABLE, || {
                state.send(UdpSockRef::from(&socket), &transmit)
            });
        }
    }
}

/// Answers DNS queries by TCP (RFC 7766): each query and answer follows its length.
pub(crate) async fn serve_over_tcp(egress: &Egress, mut program: TcpStream) {
    loop {
        let question = async {
            let length = usize::from(program.read_u16().await?);
            let mut question = vec![0_u8; length];
            program.read_exact(&mut question).await?;
            io::Result::Ok(question)
        };
        let Ok(Ok(question)) = timeout(QUESTION_PATIENCE, question).await else {
            return;
        };
        let Some(answer) = answered(egress, &question) else {
            return;
        };
        let Ok(length) = u16::try_from(answer.len()) else {
            return;
        };
        let framed = [&length.to_be_bytes()[..], &answer].concat();
        let sent = timeout(QUESTION_PATIENCE, program.write_all(&framed)).await;
        if !matches!(sent, Ok(Ok(()))) {
            return;
        }
    }
}

/// Answers a query, and reports a refused name.
pub(crate) fn answered(egress: &Egress, question: &[u8]) -> Option<Vec<u8>> {
    let (network, now) = (egress.network(), egress.policies.now());
    let QueryOutcome { answer, refused } = answer(question, network, &now, &egress.names);
    if let Some(refused) = refused {
        // Nobody is to allow a host by a name with a placeholder in it.
        let misused = egress.credentials.misused_in(&refused.name);
        let (credentials, why) = match misused {
            Some((credential, why)) => (vec![credential], why),
            None => (Vec::new(), refused.why),
        };
        let flow = Flow {
            credentials,
            policies: now.version(),
            ..Flow::to(FlowKind::Name, refused.name, 0)
        };
        egress.control.refuse(flow, why);
    }
    answer
}

/// Answers a query.
pub(crate) fn answer(
    question: &[u8],
    network: &Network,
    policies: &PolicySnapshot<'_>,
    names: &Mutex<Names>,
) -> QueryOutcome {
    let silent = QueryOutcome {
        answer: None,
        refused: None,
    };
    let Ok(asked) = Message::from_vec(question) else {
        return silent;
    };
    if asked.metadata.message_type != MessageType::Query {
        return silent;
    }
    let mut reply = Message::response(asked.metadata.id, asked.metadata.op_code);
    reply.metadata.recursion_desired = asked.metadata.recursion_desired;
    reply.metadata.recursion_available = true;
    let mut refused = None;
    match &*asked.queries {
        [query] if asked.metadata.op_code == OpCode::Query => {
            reply.add_query(query.clone());
            match judge(query, network, policies) {
                Ok(QueriedName::Name(name)) => reply_with(&mut reply, query, &name, names),
                Ok(QueriedName::Itself) => {
                    let (four, six) = (Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
                    add_address(&mut reply, query, four, six);
                }
                Err(refusal) => {
                    // Who hears that it is refused asks again, musl's resolver for five seconds.
                    // Without a SOA record nobody keeps the answer (RFC 2308, section 5).
                    reply.metadata.response_code = ResponseCode::NXDomain;
                    refused = Some(refusal);
                }
            }
        }
        _ => reply.metadata.response_code = ResponseCode::NotImp,
    }
    if asked.edns.is_some() {
        let mut edns = Edns::new();
        edns.set_max_payload(PAYLOAD_BYTES);
        if let Some(refusal) = &refused {
            let mut told = PROHIBITED.to_be_bytes().to_vec();
            told.extend_from_slice(format!("Atoll: {}", refusal.told).as_bytes());
            edns.options_mut()
                .insert(EdnsOption::Unknown(EXTENDED_ERROR, told));
        }
        reply.set_edns(edns);
    }
    QueryOutcome {
        answer: reply.to_vec().ok(),
        refused,
    }
}

/// The owner of the queried name.
enum QueriedName {
    /// A host that may be reached.
    Name(HostName),
    /// The sandbox itself, whose name many programs look up when they start: it leads to its
    /// loopback.
    Itself,
}

/// Decides on a query: returns the owner of the name, where it may be reached.
fn judge(
    query: &Query,
    network: &Network,
    policies: &PolicySnapshot<'_>,
) -> Result<QueriedName, RefusedName> {
    let shown = query.name.to_ascii();
    let shown = shown.strip_suffix('.').unwrap_or(&shown);
    let refusal = |why: String, told: Option<String>| RefusedName {
        name: shown.to_owned(),
        told: told.unwrap_or_else(|| why.clone()),
        why,
    };
    if query.query_class != DNSClass::IN {
        let why = "only names of the internet are known";
        return Err(refusal(why.to_owned(), None));
    }
    let name = HostName::parse(shown).map_err(|error| refusal(error.to_string(), None))?;
    if names::is_proxy(&name) || names::is_sandbox_api(&name) {
        return Ok(QueriedName::Name(name));
    }
    if name.as_str() == SANDBOX_NAME && !network.is_named(&name) {
        return Ok(QueriedName::Itself);
    }
    match network.name(&name) {
        Ok(_) => match policies.name(&name) {
            Ok(()) => Ok(QueriedName::Name(name)),
            Err(forbidden) => Err(refusal(forbidden.why, Some(forbidden.shown))),
        },
        Err(unreachable) => {
            let told = unreachable.why_inside();
            Err(refusal(unreachable.why(), Some(told)))
        }
    }
}

fn reply_with(reply: &mut Message, query: &Query, name: &HostName, names: &Mutex<Names>) {
    let known = names.lock().map(|mut names| names.addresses(name));
    let Ok(Some((four, six))) = known else {
        reply.metadata.response_code = ResponseCode::ServFail;
        return;
    };
    add_address(reply, query, four, six);
}

fn add_address(reply: &mut Message, query: &Query, four: Ipv4Addr, six: Ipv6Addr) {
    let data = match query.query_type {
        RecordType::A => RData::A(four.into()),
        RecordType::AAAA => RData::AAAA(six.into()),
        // There is a host of that name, and nothing else is known of it.
        _ => return,
    };
    reply.add_answer(Record::from_rdata(query.name.clone(), TTL_SECONDS, data));
}

/// Returns whether a connection is to a name server, whichever it is.
pub(crate) fn is_name_server(to: SocketAddr) -> bool {
    to.port() == 53
}
