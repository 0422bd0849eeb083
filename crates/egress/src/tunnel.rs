//! Connections of programs: each is decided on, recorded, dialled and carried.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use atoll_model::network::{Flow, Look, NoConsent};
use tokio::time::timeout;

use crate::control_channel::FlowOutcome;
use crate::destination::{Destination, refuse_another};
use crate::dial::{Route, UpstreamStream, dial};
use crate::inspect::approval;
use crate::limits::{BudgetRequest, BudgetShare, Direction, late};
use crate::opening::{Opening, StopReason};
use crate::origin_error::why_not;
use crate::policies::{ApprovalNeed, Forbidden, PolicySnapshot};
use crate::program_stream::{ProgramStream, reset};
use crate::proxy_reply::Reject;
use crate::pump::pump;
use crate::resolve::{ResolveError, addresses};
use crate::scan::Scan;
use crate::{Egress, inspect};

/// The longest time a server may take to accept a connection.
const DIAL_PATIENCE: Duration = Duration::from_secs(10);

/// Carries a connection to a program's destination, if that is allowed.
pub(crate) async fn judge(egress: &Arc<Egress>, mut program: ProgramStream, to: Destination) {
    let now = egress.policies.now();
    let mut flow = to.flow();
    flow.policies = now.version();
    if let Some((credential, why)) = egress.credentials.misused_by(&to.host) {
        flow.credentials.push(credential);
        return refuse(egress, program, flow, why).await;
    }
    let found = egress.network().connection(&to.host, to.port);
    // Where tokens of a login are issued nothing is carried unseen, whoever asks for a tunnel.
    let is_issuer = || egress.credentials.are_issued_at(&to.host, to.port);
    let found = found.map(|(rule, look)| match look {
        Look::Past if is_issuer() => (rule, Look::Into),
        look => (rule, look),
    });
    // By what a person is asked is asked again once they would be.
    if let Ok((_, look)) = found
        && let Err(forbidden) = now.connection(&to.host, to.port, look)
    {
        return refuse_with(egress, program, flow, forbidden.why, &forbidden.shown).await;
    }
    let (part, approval) = match found {
        Ok((rule, Look::Past)) => {
            flow.rule = Some(rule.told());
            match egress.budgets.begin(rule, BudgetRequest::Tunnel) {
                // A person is asked once it is known as whom.
                Ok(part) if egress.postgres_logins(&to).next().is_some() => {
                    return sign_in(egress, program, to, flow, part).await;
                }
                Ok(part) => match consent(egress, &program, &to, &mut flow).await {
                    Ok(approval) => (part, approval),
                    Err((why, shown)) => {
                        return refuse_with(egress, program, flow, why, &shown).await;
                    }
                },
                Err(excess) => {
                    let what = place(&flow);
                    egress.control.refuse_beyond(flow, &excess);
                    return program.end(Reject::Refused, &what, &excess.why()).await;
                }
            }
        }
        Ok((_, Look::Into)) => {
            return match program.grant().await {
                Ok(()) => inspect::serve(egress, program, &to).await,
                Err(_) => program.reset(),
            };
        }
        Err(unreachable) => {
            // Where a rule is written is not for programs.
            let (why, shown) = (unreachable.why(), unreachable.why_inside());
            return refuse_with(egress, program, flow, why, &shown).await;
        }
    };
    match addresses(egress, &to.host, to.port, None).await {
        Ok(addresses) => {
            connect(egress, program, to, flow, approval, addresses, part).await;
        }
        Err(ResolveError::Refused { why, shown }) => {
            refuse_with(egress, program, flow, why, &shown).await;
        }
        Err(ResolveError::Unknown(why)) => {
            // It was allowed, and somebody was asked for its name.
            let what = place(&flow);
            let why = format!("DNS lookup failed: {why}");
            let Ok(opened) = egress.control.open(flow, false).await else {
                return program.reset();
            };
            let failure = FlowOutcome::nothing(why.clone()).at_last(true);
            egress.control.close(&opened, failure);
            program.end(Reject::Unreachable, &what, &why).await;
        }
    }
}

/// Carries a connection to a database whose login Atoll injects.
async fn sign_in(
    egress: &Arc<Egress>,
    program: ProgramStream,
    to: Destination,
    flow: Flow,
    part: Option<BudgetShare>,
) {
    match &egress.connectors.postgres {
        Some(connector) => connector.serve(egress, program, to, flow, part).await,
        None => {
            let why = "this build of Atoll has no connector for PostgreSQL".to_owned();
            refuse(egress, program, flow, why).await;
        }
    }
}

/// Waits for a person's approval of a tunnel, where rules need one. Returns the approval's number,
/// or the reasons for which there is none: for the record, and for the program.
async fn consent(
    egress: &Egress,
    program: &ProgramStream,
    to: &Destination,
    flow: &mut Flow,
) -> Result<Option<u32>, (String, String)> {
    let (host, port) = (&to.host, to.port);
    let forbidden = |one: Forbidden| (one.why, one.shown);
    let rule = egress.network().asks_of_connection(host, port);
    let now = egress.policies.now();
    flow.policies = now.version();
    let asks = now.begin_connection(host, port, Look::Past);
    let Some(asked) = ApprovalNeed::beside(rule, asks.map_err(forbidden)?) else {
        return Ok(None);
    };
    let approval = tokio::select! {
        given = approval::consent(egress, approval::connection(flow, asked.clone())) => given,
        () = program.is_gone() => Err(NoConsent::Left),
    };
    let approval = approval.map_err(|why| (why.why().to_owned(), why.why().to_owned()))?;
    // While a person was waited for it has become another time, and labels or other policies may
    // have come.
    let now = egress.policies.now();
    flow.policies = now.version();
    let granted = now.connection(host, port, Look::Past);
    ApprovalNeed::still(&asked, rule, granted.map_err(forbidden)?).map_err(forbidden)?;
    Ok(Some(approval))
}

/// Has the connection recorded, then makes it.
async fn connect(
    egress: &Egress,
    mut program: ProgramStream,
    to: Destination,
    mut flow: Flow,
    approval: Option<u32>,
    places: Vec<Route>,
    part: Option<BudgetShare>,
) {
    let mut places = places.into_iter().peekable();
    while let Some(place) = places.next() {
        (flow.address, flow.via) = (place.address(), place.via(egress));
        if egress.touch(&flow).await.is_err() {
            return program.reset();
        }
        let opened = egress.control.open_by(flow.clone(), true, approval).await;
        let Ok(opened) = opened else {
            return program.reset();
        };
        let dialled = dial(egress, &to.host, to.port, place);
        let dialled = match timeout(DIAL_PATIENCE, dialled).await {
            Ok(dialled) => dialled,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
        match dialled {
            Ok(server) => {
                if let Err(error) = program.grant().await {
                    let failure = FlowOutcome::nothing(error.to_string());
                    return egress.control.close(&opened, failure);
                }
                let policies = flow.policies;
                let limits = part.as_ref();
                let ended = relay(egress, program, server, &to, place, policies, limits).await;
                let failure = match ended.stopped {
                    Some(StopReason::ForAnother(why)) => {
                        refuse_another(egress, to.flow(), why.clone());
                        Some(why)
                    }
                    Some(StopReason::Beyond(excess)) => {
                        egress.control.refuse_beyond(flow, &excess);
                        None
                    }
                    Some(StopReason::Carries { found, place }) => {
                        Some(inspect::misused(egress, flow, found, place))
                    }
                    Some(StopReason::Failed(why)) => Some(why),
                    None => None,
                };
                let carried = FlowOutcome {
                    bytes: ended.bytes,
                    failure,
                    ..FlowOutcome::default()
                };
                let excess = part.as_ref().and_then(BudgetShare::excess);
                return egress.control.close(&opened, carried.ended_by(excess));
            }
            Err(error) => {
                let failure = why_not(&error);
                let carried = FlowOutcome::nothing(failure);
                let carried = carried.at_last(places.peek().is_none());
                egress.control.close(&opened, carried);
            }
        }
    }
    let what = to.flow();
    let why = "the host cannot be reached";
    program.end(Reject::Unreachable, &place(&what), why).await;
}

/// The end of a connection.
struct RelayEnd {
    bytes: [u64; 2],
    stopped: Option<StopReason>,
}

/// Carries bytes in both directions, once the first ones are for no host but the one asked for.
async fn relay(
    egress: &Egress,
    program: ProgramStream,
    server: UpstreamStream,
    to: &Destination,
    place: Route,
    policies: u32,
    part: Option<&BudgetShare>,
) -> RelayEnd {
    let (host, port) = (&to.host, to.port);
    let may = |now: &PolicySnapshot<'_>| now.connection(host, port, Look::Past).map(drop);
    let (mut program, first) = program.into_parts();
    let UpstreamStream {
        stream: mut server,
        wide: _wide,
    } = server;
    let carried = [AtomicU64::new(0), AtomicU64::new(0)];
    let [up, down] = &carried;
    let mut scans = Scan::both(&egress.credentials);
    let work = async {
        let opening = Opening {
            program: &mut program,
            server: &mut server,
            held: first,
            up,
            down,
            part,
            scans: &mut scans,
        };
        opening.pass(host, &egress.credentials).await?;
        let (from_program, mut to_program) = program.split();
        let (from_server, mut to_server) = server.split();
        let [out, back] = &mut scans;
        let both = tokio::try_join!(
            pump(part, Direction::Up, out, &from_program, &mut to_server, up),
            pump(
                part,
                Direction::Down,
                back,
                &from_server,
                &mut to_program,
                down
            ),
        );
        both.map(drop)
    };
    let worked = tokio::select! {
        worked = work => worked,
        excess = late(part) => Err(StopReason::Beyond(excess)),
        why = egress.lost(host, Some(place), policies, may) => Err(StopReason::Failed(why)),
        () = egress.run_ended() => Err(StopReason::Failed("the sandbox ended".to_owned())),
    };
    if worked.is_err() {
        reset(server);
        reset(program);
    }
    RelayEnd {
        bytes: carried.map(AtomicU64::into_inner),
        stopped: worked.err(),
    }
}

pub(crate) async fn refuse(egress: &Egress, program: ProgramStream, flow: Flow, why: String) {
    refuse_with(egress, program, flow, why.clone(), &why).await;
}

/// Refuses a connection, where a program learns less than is recorded.
async fn refuse_with(
    egress: &Egress,
    program: ProgramStream,
    flow: Flow,
    why: String,
    shown: &str,
) {
    let what = place(&flow);
    egress.control.refuse(flow, why);
    program.end(Reject::Refused, &what, shown).await;
}

/// Returns the destination of a connection as text.
fn place(flow: &Flow) -> String {
    format!("{}:{}", flow.host, flow.port)
}
