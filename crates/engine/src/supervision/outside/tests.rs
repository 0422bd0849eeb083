//! Tests of the recording side, in which the test is the egress process.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::cell::RefCell;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;

use atoll_model::network::{ApprovalScope, AskedCall, FlowKind, FlowReport, Issue, Scope};
use atoll_sandbox::{Decision, Declined, SettledOf};

use atoll_ledger::{Armed, ClosedExec, LedgerError};
use atoll_model::{Ending, Escalate, PublishPort};
use atoll_policy::ExecGrant;

use super::*;
use crate::supervision::OutputFilter;
use crate::supervision::control::Answer;

/// A gate that publishes ports, or refuses them, and records what it did.
struct Ports<'a> {
    refuses: bool,
    recorded: &'a RefCell<Vec<String>>,
}

impl CallGate for Ports<'_> {
    fn publish(
        &self,
        asked: PublishPort,
        _: &[Published],
        effect: &mut dyn PortEffect,
    ) -> Result<(), Declined> {
        let mut recorded = self.recorded.borrow_mut();
        if self.refuses {
            recorded.push("refused".to_owned());
            return Err(Declined {
                why: "policies say no".to_owned(),
                advice: String::new(),
            });
        }
        effect.prepare()?;
        recorded.push(match asked.waits_for_second {
            true => "agreed".to_owned(),
            false => "published".to_owned(),
        });
        effect.carry_out(&Published {
            port: asked.port,
            origin: "a test".to_owned(),
            asked: None,
        });
        Ok(())
    }

    fn escalate(&self, _: Escalate) -> Result<(), Declined> {
        Ok(())
    }

    fn allow(&self, _: Who, _: &str, _: Allowance, _: &mut dyn HostEffect) -> Result<(), Declined> {
        panic!("nobody asks for it")
    }

    fn remember(&self, _: &str) -> Result<(), Declined> {
        panic!("nobody asks for it")
    }

    fn reload(&self, _: Who, _: Option<&Versions>) -> Result<NewPolicies, Declined> {
        panic!("nobody asks for it")
    }

    fn compare(&self) -> Result<(Versions, String), Declined> {
        panic!("nobody asks for it")
    }
}

fn message(id: u64) -> Vec<u8> {
    let flow = Flow {
        credentials: Vec::new(),
        login: None,
        policies: 0,
        kind: FlowKind::Tunnel,
        host: "example.com".to_owned(),
        address: None,
        via: None,
        port: 443,
        rule: None,
        request: None,
        limit: None,
    };
    let waits = true;
    let report = FlowReport::Open {
        id,
        flow,
        waits,
        approval: None,
    };
    serde_json::to_vec(&report).unwrap()
}

/// Reports one connection with `left` bytes of the budget left. Returns how much it takes,
/// whether it was recorded and let go on, and why nothing more is carried, if so.
fn told_with(left: u64) -> (u64, usize, bool, Option<String>) {
    let (line, far) = socket::pair().unwrap();
    descriptor::never_block(line.as_fd()).unwrap();
    // Who carries is a process, which is ended.
    let mut carrier = Command::new("sleep")
        .arg("600")
        .process_group(0)
        .spawn()
        .unwrap();
    let network = Network::default();
    let issuer = |_: &_| Ok(None);
    let mut recorded = 0;
    let mut record = |news: &[FlowEvent<'_>]| {
        let opened = news
            .iter()
            .filter(|one| matches!(one, FlowEvent::Opened { .. }));
        recorded += opened.count();
        true
    };
    let mut outside = Outside::new(&network, &issuer, &mut record);
    let pid = carrier.id();
    outside.state = State::Carrying {
        line,
        pid,
        signer: None,
    };
    outside.told_bytes = TOLD_BYTES_MAX - left;
    let message = message(1);
    socket::send(far.as_fd(), &message, &[]).unwrap();
    // Hears what it is told, and ends then.
    let orders = thread::spawn(move || {
        let (mut orders, mut order) = (Vec::new(), [0; 256]);
        while orders.len() < 2
            && let Ok((got @ 1.., _)) = socket::receive(far.as_fd(), &mut order)
        {
            orders.push(String::from_utf8_lossy(&order[..got]).into_owned());
        }
        orders
    });
    assert!(outside.attend(), "it was recorded");
    let carries = !outside.waits_on().is_empty();
    let failure = outside.finish().failure;
    let orders = orders.join().unwrap();
    let recorded_now = [FlowOrder::Recorded { id: 1 }, FlowOrder::End];
    let expected = recorded_now.map(|order| serde_json::to_string(&order).unwrap());
    assert_eq!(orders, expected, "what is recorded goes on, until the end");
    // It has been waited for already where it was ended.
    let _ = carrier.wait();
    (message.len() as u64, recorded, carries, failure)
}

/// The gate of a run in which no exec is asked for.
struct NoExecs;

impl ExecGate for NoExecs {
    fn open(&self, _: &AskedExec<'_>) -> Result<Armed<ExecGrant>, Box<Answer>> {
        unreachable!("no exec is asked for")
    }

    fn close(
        &self,
        _: Armed<ExecGrant>,
        _: Result<Ending, &str>,
        _: Duration,
    ) -> Result<ClosedExec, LedgerError> {
        unreachable!("no exec is asked for")
    }

    fn settle(&self, _: Result<ClosedExec, LedgerError>) -> bool {
        true
    }

    fn filter(&self) -> Box<dyn OutputFilter> {
        unreachable!("no exec is asked for")
    }
}

#[test]
fn nothing_is_carried_once_the_records_have_filled_what_a_run_has() {
    // The control: with room for it all, more can come.
    let (bytes, recorded, carries, failure) = told_with(1 << 20);
    assert_eq!((recorded, carries, failure), (1, true, None));
    let (_, recorded, carries, failure) = told_with(bytes);
    assert_eq!((recorded, carries, failure), (1, true, None), "just full");
    let (_, recorded, carries, failure) = told_with(bytes - 1);
    assert_eq!((recorded, carries), (1, false), "and beyond");
    let said = "their records have filled the 1024 MiB that a run has";
    assert_eq!(failure.as_deref(), Some(said));
}

#[test]
fn a_credential_that_the_run_does_not_have_is_not_taken_for_given_up() {
    let network = Network::default();
    let issuer = |_: &_| Ok(None);
    let mut recorded = 0;
    let mut record = |news: &[FlowEvent<'_>]| {
        recorded += news.len();
        true
    };
    let mut handover = CredentialBundle::new().unwrap();
    handover.issue(Issue {
        login: "known".parse().unwrap(),
        token: "https://example.com/token".parse().unwrap(),
        claims: Vec::new(),
        is_caught: false,
    });
    let mut outside = Outside::new(&network, &issuer, &mut record).handing(Some(&handover));
    let mut give_up = |json: &str| {
        let said = serde_json::from_str(json).unwrap();
        outside.give_up(&said, Who::own())
    };
    // Nothing of what is said with it counts either.
    let answer = give_up(r#"{"deny-hosts":["example.com"],"no-credentials":["known","knwon"]}"#);
    let Answer::Refused(declined) = answer else {
        panic!("it is declined: {answer:?}")
    };
    assert_eq!(declined.why, "the run has no credential knwon, only known");
    let answer = give_up(r#"{"no-credentials":["known"]}"#);
    assert!(
        matches!(&answer, Answer::GivenUp { new, .. } if new.len() == 1),
        "{answer:?}"
    );
    // Of what was given up before nothing is new.
    let answer = give_up(r#"{"no-credentials":["known"]}"#);
    assert!(
        matches!(&answer, Answer::GivenUp { new, all } if new.is_empty() && all.iter().count() == 1),
        "{answer:?}"
    );
    let answer = give_up(r#"{"network":"none"}"#);
    assert!(
        matches!(&answer, Answer::GivenUp { new, all } if new.len() == 1 && all.iter().count() == 2),
        "{answer:?}"
    );
    drop(outside);
    assert_eq!(recorded, 2);
}

/// Runs a sandbox under dual control, whose name another process may have taken. Returns what
/// was recorded, the notices at the terminal, and the answer to its own user about a port.
fn widened_by_two(is_taken: bool) -> (Vec<String>, Vec<SecondApproval>, Answer) {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};

    let own = rustix::process::getuid().as_raw();
    let second = 1_800_000_000 + u64::from(std::process::id());
    let run = atoll_model::RunId::new(second, u32::from(is_taken));
    let name = format!("atoll/second/{own}/{run}");
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let taken = is_taken.then(|| UnixListener::bind_addr(&address).unwrap());
    let network = Network::default();
    let issuer = |_: &_| Ok(None);
    let recorded = RefCell::default();
    let gate = Ports {
        refuses: false,
        recorded: &recorded,
    };
    let mut record = |news: &[FlowEvent<'_>]| {
        let news = news.iter().map(|one| format!("{one:?}"));
        recorded.borrow_mut().extend(news);
        true
    };
    let widening = crate::supervision::DualControlRule::TwoPersons {
        owner: own,
        approvers: vec![own + 1],
    };
    let live = Live {
        run: &run,
        has_network: false,
        directory: &|| Err(io::ErrorKind::NotFound.into()),
        gate: &gate,
        widening: &widening,
        assign: &|_| (),
        execs: &NoExecs,
        owner: None,
    };
    let mut outside = Outside::new(&network, &issuer, &mut record).asked(Some(live));
    // Nobody else takes it while the run goes on, also where its own socket cannot be made.
    outside.opens_at = Some(Instant::now());
    assert!(outside.attend() && outside.is_unspoken);
    assert!(UnixListener::bind_addr(&address).is_err());
    let port = PublishedPort {
        outside: 1,
        inside: 2,
    };
    let answer = outside.answer(Who::own(), crate::supervision::Question::Publish(port));
    let told = outside.of_two();
    assert!(outside.of_two().is_empty(), "it is told once");
    drop(outside);
    assert_eq!(UnixListener::bind_addr(&address).is_err(), is_taken);
    drop(taken);
    (recorded.into_inner(), told, answer)
}

#[test]
fn where_a_runs_name_is_taken_two_persons_widen_nothing_and_that_is_told() {
    let (recorded, told, answer) = widened_by_two(true);
    assert_eq!(told, [SecondApproval::Unheard]);
    assert!(recorded[0].starts_with("Unheard"), "{recorded:?}");
    let Answer::Refused(declined) = answer else {
        panic!("it is declined: {answer:?}")
    };
    assert!(declined.why.contains("cannot be heard"), "{declined:?}");
    // The control: where it is free it waits for the other one.
    let (recorded, told, answer) = widened_by_two(false);
    assert!(matches!(told[..], [SecondApproval::Port(_)]), "{told:?}");
    assert!(recorded[0].starts_with("agreed"), "{recorded:?}");
    let Answer::Agreed(second) = answer else {
        panic!("it waits: {answer:?}")
    };
    assert_eq!(second.persons, [second.owner + 1]);
}

/// Has persons say something to a run under dual control, whose ports are refused or not.
/// Returns what was recorded, and the notices at its terminal.
fn said_by_two(
    refuses: bool,
    say: &mut dyn FnMut(&mut Outside<'_>, Who, Who),
) -> (Vec<String>, Vec<SecondApproval>) {
    let own = Who::own();
    let other = Who {
        uid: own.uid + 1,
        pid: 1,
    };
    let second = 1_800_100_000 + u64::from(std::process::id());
    let run = atoll_model::RunId::new(
        second,
        rustix::thread::gettid().as_raw_nonzero().get() as u32,
    );
    let network = Network::default();
    let issuer = |_: &_| Ok(None);
    let recorded = RefCell::default();
    let gate = Ports {
        refuses,
        recorded: &recorded,
    };
    let mut record = |news: &[FlowEvent<'_>]| {
        let news = news.iter().map(|one| format!("{one:?}"));
        recorded.borrow_mut().extend(news);
        true
    };
    let widening = crate::supervision::DualControlRule::TwoPersons {
        owner: own.uid,
        approvers: vec![other.uid],
    };
    let live = Live {
        run: &run,
        has_network: false,
        directory: &|| Err(io::ErrorKind::NotFound.into()),
        gate: &gate,
        widening: &widening,
        assign: &|_| (),
        execs: &NoExecs,
        owner: None,
    };
    let mut outside = Outside::new(&network, &issuer, &mut record).asked(Some(live));
    say(&mut outside, own, other);
    let told = outside.of_two();
    drop(outside);
    (recorded.into_inner(), told)
}

const PORT: PublishedPort = PublishedPort {
    outside: 1,
    inside: 2,
};

/// Each is an event on disk, and happens without the owner's presence.
#[test]
fn another_person_begins_only_so_many_yeses_to_ports() {
    let mut heard = 0;
    let (recorded, _) = said_by_two(false, &mut |outside, own, other| {
        for _ in 0..1_000 {
            let answer = outside.answer(other, crate::supervision::Question::Publish(PORT));
            heard += usize::from(matches!(answer, Answer::Agreed(_)));
            // Twice by the same person is once.
            let again = outside.answer(other, crate::supervision::Question::Publish(PORT));
            assert!(matches!(again, Answer::Refused(_)), "{again:?}");
            // As after its time.
            outside.agreed_port = None;
        }
        // Whose run it is begins it still.
        let answer = outside.answer(own, crate::supervision::Question::Publish(PORT));
        assert!(matches!(answer, Answer::Agreed(_)), "{answer:?}");
    });
    assert_eq!((heard, recorded.len()), (64, 65), "{recorded:?}");
    // What is not published whoever says so is no question to anybody else.
    let (recorded, told) = said_by_two(true, &mut |outside, _, other| {
        for _ in 0..1_000 {
            let answer = outside.answer(other, crate::supervision::Question::Publish(PORT));
            assert!(matches!(answer, Answer::Refused(_)), "{answer:?}");
        }
    });
    assert!(told.is_empty(), "{told:?}");
    assert_eq!(recorded.len(), 64);
    assert!(recorded.iter().all(|one| one.starts_with("refused")));
}

#[test]
fn the_second_yes_is_told_to_whose_run_it_is() {
    let port = |told: &[SecondApproval]| match told {
        [SecondApproval::Port(_), SecondApproval::Settled(settled)]
        | [SecondApproval::Settled(settled)] => settled.of.clone(),
        told => panic!("it is told: {told:?}"),
    };
    let (_, told) = said_by_two(false, &mut |outside, own, other| {
        let _ = outside.answer(own, crate::supervision::Question::Publish(PORT));
        let _ = outside.answer(other, crate::supervision::Question::Publish(PORT));
    });
    // Nothing carries connections in this test, so that none can be published.
    let why = "its connections are not carried any more";
    let refused = Some(why.to_owned());
    assert_eq!(
        port(&told),
        SettledOf::Port {
            port: PORT,
            refused
        }
    );
    let mut call = AskedCall {
        signs: None,
        kind: FlowKind::Tunnel,
        host: "example.com".to_owned(),
        port: 443,
        request: None,
        login: None,
        credentials: Vec::new(),
        rule: "a rule".to_owned(),
        policies: 0,
    };
    let (_, told) = said_by_two(false, &mut |outside, own, other| {
        outside.ask_person(1, call.clone());
        let [pending] = &outside.approvals.pending(Instant::now())[..] else {
            panic!("it is asked")
        };
        let about = (pending.approval, pending.digest);
        let scope = Scope::Run;
        let breadth = ApprovalScope::Same;
        let yes = Decision::Grant { scope, breadth };
        let answer = outside.decide(about, yes, other);
        assert!(matches!(answer, Answer::Agreed(_)), "{answer:?}");
        let answer = outside.decide(about, yes, own);
        assert!(matches!(answer, Answer::Done {}), "{answer:?}");
        // A no after a yes is told as well.
        call.host = "other.example".to_owned();
        outside.ask_person(2, call.clone());
        let [pending] = &outside.approvals.pending(Instant::now())[..] else {
            panic!("it is asked")
        };
        let about = (pending.approval, pending.digest);
        let _ = outside.decide(about, yes, own);
        let answer = outside.decide(about, Decision::Deny {}, other);
        assert!(matches!(answer, Answer::Done {}), "{answer:?}");
    });
    let granted: Vec<_> = told
        .iter()
        .map(|one| match one {
            SecondApproval::Settled(settled) => match &settled.of {
                SettledOf::Question { granted, .. } => (settled.by.uid, *granted),
                other => panic!("it is a question: {other:?}"),
            },
            other => panic!("it is settled: {other:?}"),
        })
        .collect();
    let own = Who::own().uid;
    let yes = Some((Scope::Run, ApprovalScope::Same));
    assert_eq!(granted, [(own, yes), (own + 1, None)]);
}
