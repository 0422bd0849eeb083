#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use atoll_model::network::{AskedBody, AskedRequest, FlowKind, FlowLogin, Scheme};

use super::*;

const WHO: Who = Who { uid: 1, pid: 2 };
const ONCE: Decision = Decision::Grant {
    scope: Scope::Once,
    breadth: ApprovalScope::Same,
};
const DENY: Decision = Decision::Deny {};

fn call(path: &str, body: &str) -> AskedCall {
    let digest = |text: &str| CallDigest::new(Sha256::digest(text).into());
    AskedCall {
        signs: None,
        kind: FlowKind::Request,
        host: "example.com".to_owned(),
        port: 443,
        request: Some(AskedRequest {
            scheme: Scheme::Https,
            method: "POST".to_owned(),
            path: path.to_owned(),
            query: None,
            path_digest: digest(path),
            target_digest: digest(path),
            confidence: None,
            is_web_socket: false,
            headers_digest: digest("headers"),
            telling_headers_digest: digest("headers"),
            telling_headers: Vec::new(),
            further_headers: 0,
            body: Some(AskedBody {
                bytes: body.len() as u64,
                digest: digest(body),
                beginning: body.to_owned(),
            }),
        }),
        login: None,
        credentials: Vec::new(),
        rule: "example.com (a test)".to_owned(),
        policies: 0,
    }
}

/// Returns the number and digest of the new request.
fn asked(step: &Step) -> (u32, CallDigest) {
    match &step.news[..] {
        [
            ApprovalNews::Asked {
                approval, digest, ..
            },
        ] => (*approval, *digest),
        other => panic!("{other:?}"),
    }
}

fn granted(step: &Step) -> Vec<u64> {
    let said = step.said.iter();
    said.filter_map(|(id, _, consent)| match consent {
        Consent::Granted { .. } => Some(*id),
        Consent::Denied { .. } => None,
    })
    .collect()
}

fn denied(step: &Step) -> Vec<(u64, NoConsent)> {
    let said = step.said.iter();
    said.filter_map(|(id, _, consent)| match consent {
        Consent::Granted { .. } => None,
        Consent::Denied { why } => Some((*id, *why)),
    })
    .collect()
}

fn grant(scope: Scope, breadth: ApprovalScope) -> Decision {
    Decision::Grant { scope, breadth }
}

#[test]
fn a_yes_lets_one_call_go_and_what_was_shown_alone() {
    let now = Instant::now();
    let mut all = Approvals::default();
    let question = asked(&all.ask(1, call("/a", "x"), now));
    // The same twice is one question, and once is one of them.
    assert_eq!(all.ask(2, call("/a", "x"), now), Step::default());
    assert_eq!(all.pending(now)[0].waiting, 2);
    let other = asked(&all.ask(3, call("/a", "y"), now));
    assert_ne!(question.1, other.1, "another body is another question");
    let swapped = (question.0, other.1);
    assert!(all.decide(swapped, ONCE, WHO, now).is_err());
    let step = all.decide(question, ONCE, WHO, now).unwrap();
    assert_eq!(granted(&step), [1]);
    assert!(matches!(
        step.news[..],
        [ApprovalNews::Granted { .. }, ApprovalNews::Asked { .. }]
    ));
    let late = all.decide(question, DENY, WHO, now).unwrap_err();
    assert!(late.contains("answered already"), "{late}");
    assert_eq!(all.pending(now).len(), 2);
    assert!(all.decide((99, question.1), ONCE, WHO, now).is_err());
}

#[test]
fn time_and_departure_are_denials() {
    let now = Instant::now();
    let mut all = Approvals::default();
    let first = asked(&all.ask(1, call("/a", ""), now));
    all.ask(2, call("/b", ""), now);
    let step = all.leave(2);
    assert!(matches!(
        step.news[..],
        [ApprovalNews::Denied {
            why: NoConsent::Left,
            ..
        }]
    ));
    assert_eq!(all.due(), Some(now + ASKING_PATIENCE));
    let later = now + ASKING_PATIENCE;
    assert_eq!(
        all.expire(later - Duration::from_millis(1)),
        Step::default()
    );
    // An answer that comes too late is none, also before anybody has looked.
    assert!(all.decide(first, ONCE, WHO, later).is_err());
    assert_eq!(denied(&all.expire(later)), [(1, NoConsent::Late)]);
    assert!(all.decide(first, ONCE, WHO, later).is_err());
    all.ask(3, call("/c", ""), later);
    assert_eq!(denied(&all.end()), [(3, NoConsent::Ended)]);
    assert!(!all.is_asking());
}

#[test]
fn a_lease_has_an_end_and_covers_nothing_else() {
    let now = Instant::now();
    let mut all = Approvals::default();
    let first = asked(&all.ask(1, call("/a", "x"), now));
    all.ask(2, call("/a", "y"), now);
    let elsewhere = asked(&all.ask(3, call("/b", "x"), now));
    let lease = grant(Scope::Seconds { seconds: 60 }, ApprovalScope::Same);
    let step = all.decide(first, lease, WHO, now).unwrap();
    assert_eq!(granted(&step), [1, 2], "what waits for the same goes too");
    assert_eq!(granted(&all.ask(4, call("/a", "z"), now)), [4]);
    assert_eq!(all.leases(now)[0].uses, 3);
    // A credential that was not shown is not covered.
    let mut with = call("/a", "x");
    with.credentials = vec!["key".parse().unwrap()];
    assert!(granted(&all.ask(5, with, now)).is_empty());
    let later = now + Duration::from_secs(60);
    assert!(granted(&all.ask(6, call("/a", "z"), later)).is_empty());
    let over = all.expire(later);
    assert!(matches!(
        over.news[..],
        [ApprovalNews::LeaseEnded {
            uses: 3,
            by: None,
            ..
        }]
    ));
    // For the rule, and taken back.
    let whole = grant(Scope::Run, ApprovalScope::Rule);
    all.decide(elsewhere, whole, WHO, later).unwrap();
    assert_eq!(granted(&all.ask(7, call("/any", "z"), later)), [7]);
    let number = elsewhere.0;
    let in_force = format!("the lease of question {number} is in force");
    assert_eq!(all.missing(number), in_force);
    all.revoke(number, WHO).unwrap();
    let over = format!("the lease of question {number} has ended");
    assert_eq!(all.revoke(number, WHO).unwrap_err(), over);
    assert_eq!(all.missing(number), over);
    assert_eq!(
        all.revoke(number + 100, WHO).unwrap_err(),
        format!("there is no lease {}", number + 100)
    );
    assert!(granted(&all.ask(8, call("/any", "z"), later)).is_empty());
    for seconds in [0, LEASE_SECONDS_MAX + 1] {
        assert!(until(Scope::Seconds { seconds }, now).is_err());
    }
}

/// Other policies may ask about more by the same rule name, which no person has approved.
#[test]
fn a_lease_for_a_rule_is_not_for_policies_that_came_later() {
    let now = Instant::now();
    let mut all = Approvals::default();
    let question = asked(&all.ask(1, call("/a", "x"), now));
    let late = AskedCall {
        policies: 1,
        ..call("/b", "x")
    };
    let whole = grant(Scope::Run, ApprovalScope::Rule);
    all.decide(question, whole, WHO, now).unwrap();
    assert_eq!(granted(&all.ask(2, call("/b", "x"), now)), [2]);
    let anew = asked(&all.ask(3, late.clone(), now));
    // Nor is one that is granted by the later ones for what the earlier ones still ask about.
    let other = asked(&all.ask(
        4,
        AskedCall {
            rule: "other".to_owned(),
            ..late
        },
        now,
    ));
    all.decide(other, whole, WHO, now).unwrap();
    let before = AskedCall {
        rule: "other".to_owned(),
        ..call("/c", "x")
    };
    assert!(granted(&all.ask(5, before, now)).is_empty());
    // The same call is still the same.
    let same = all.decide(anew, grant(Scope::Run, ApprovalScope::Same), WHO, now);
    assert_eq!(granted(&same.unwrap()), [3]);
    let again = AskedCall {
        policies: 2,
        ..call("/b", "x")
    };
    assert_eq!(granted(&all.ask(6, again, now)), [6]);
}

#[test]
fn who_asks_again_and_again_is_not_heard() {
    let mut now = Instant::now();
    let mut all = Approvals::default();
    let mut quiet = COOLING;
    for id in 0..4 {
        let question = asked(&all.ask(id, call("/a", &id.to_string()), now));
        all.decide(question, DENY, WHO, now).unwrap();
        let step = all.ask(
            100,
            call("/a", "another body"),
            now + quiet - Duration::from_millis(1),
        );
        assert_eq!(denied(&step), [(100, NoConsent::Cooling)]);
        now += quiet.max(RATE_TIME);
        quiet = (quiet * 2).min(COOLING_MAX);
    }
    // Others are heard, but not without end.
    let mut put = 0;
    for id in 0..100 {
        let step = all.ask(id, call(&format!("/{id}"), ""), now);
        put += usize::from(!step.news.is_empty());
    }
    assert_eq!(put, QUESTIONS_PER_TIME);
    let mut all = Approvals::default();
    for id in 0..=ASKING_MAX as u64 {
        let step = all.ask(id, call("/same", ""), now);
        assert_eq!(denied(&step).is_empty(), id < ASKING_MAX as u64);
    }
}

#[test]
fn a_lease_is_for_the_same_login_and_the_same_telling_headers() {
    let now = Instant::now();
    let mut all = Approvals::default();
    let question = asked(&all.ask(1, call("/a", "x"), now));
    let lease = grant(Scope::Run, ApprovalScope::Same);
    let step = all.decide(question, lease, WHO, now).unwrap();
    assert_eq!(granted(&step), [1]);
    // The control.
    assert_eq!(granted(&all.ask(2, call("/a", "other"), now)), [2]);
    let digest = CallDigest::new([7; 32]);
    let mut other = call("/a", "x");
    let request = other.request.as_mut().unwrap();
    request.telling_headers_digest = digest;
    let second = asked(&all.ask(3, other.clone(), now));
    // After a no another header does not have a person asked again.
    let _ = all.decide(second, DENY, WHO, now).unwrap();
    other.request.as_mut().unwrap().telling_headers_digest = CallDigest::new([8; 32]);
    assert_eq!(denied(&all.ask(4, other, now)), [(4, NoConsent::Cooling)]);

    let login = |database: &str, credential: &str| AskedCall {
        kind: FlowKind::Postgres,
        request: None,
        login: Some(FlowLogin {
            user: "app".to_owned(),
            database: database.to_owned(),
        }),
        credentials: vec![credential.parse().unwrap()],
        ..call("/a", "x")
    };
    let question = asked(&all.ask(5, login("shop", "shop"), now));
    let _ = all.decide(question, lease, WHO, now).unwrap();
    assert_eq!(granted(&all.ask(6, login("shop", "shop"), now)), [6]);
    assert!(all.ask(7, login("second", "shop"), now).said.is_empty());
    assert!(all.ask(8, login("shop", "admin"), now).said.is_empty());
}

#[test]
fn a_lease_of_one_use_of_a_key_is_none_of_another() {
    let now = Instant::now();
    let use_of = |kind, signs: u8| AskedCall {
        kind,
        request: None,
        credentials: vec!["key".parse().unwrap()],
        signs: Some(CallDigest::new([signs; 32])),
        ..call("/a", "x")
    };
    let tunnel = AskedCall {
        kind: FlowKind::Tunnel,
        request: None,
        ..call("/a", "x")
    };
    let kinds = [
        use_of(FlowKind::SshLogin, 1),
        use_of(FlowKind::CommitSignature, 1),
        tunnel,
    ];
    for breadth in [ApprovalScope::Same, ApprovalScope::Rule] {
        for (own, one) in kinds.iter().enumerate() {
            let mut all = Approvals::default();
            let about = asked(&all.ask(1, one.clone(), now));
            let lease = Decision::Grant {
                scope: Scope::Run,
                breadth,
            };
            let _ = all.decide(about, lease, WHO, now).unwrap();
            for (other, call) in kinds.iter().enumerate() {
                let id = 10 + other as u64;
                let covered = granted(&all.ask(id, call.clone(), now)) == [id];
                assert_eq!(covered, own == other, "{breadth:?} {one:?} {call:?}");
            }
        }
    }
    // Each signature is a question of its own, though a lease holds for all.
    let mut all = Approvals::default();
    let first = asked(&all.ask(1, use_of(FlowKind::CommitSignature, 1), now));
    let second = asked(&all.ask(2, use_of(FlowKind::CommitSignature, 2), now));
    assert_ne!(first, second);
}

/// Two persons are needed; the owner is user 1000.
fn by_two() -> Approvals {
    let mut all = Approvals::default();
    all.widened_by(DualControlRule::TwoPersons {
        owner: 1000,
        approvers: vec![1001, 1002],
    });
    all
}

const ALL: Decision = Decision::Grant {
    scope: Scope::Run,
    breadth: ApprovalScope::Rule,
};

fn user(uid: u32) -> Who {
    Who { uid, pid: 2 }
}

#[test]
fn who_can_say_the_second_yes_is_told() {
    let now = Instant::now();
    let wanting = |all: &Approvals| all.pending(now)[0].second.clone().map(|one| one.persons);
    let mut all = by_two();
    let about = asked(&all.ask(1, call("/a", "x"), now));
    assert_eq!(wanting(&all), Some(vec![1000, 1001, 1002]));
    let _ = all.decide(about, ALL, user(1001), now).unwrap();
    assert_eq!(wanting(&all), Some(vec![1000, 1002]));
    all.widened_by(DualControlRule::Unheard {});
    assert_eq!(wanting(&all), None);
    let mut all = Approvals::default();
    let _ = all.ask(1, call("/a", "x"), now);
    assert_eq!(wanting(&all), None);
}

#[test]
fn one_person_is_never_two() {
    let now = Instant::now();
    let mut all = by_two();
    let about = asked(&all.ask(1, call("/a", "x"), now));
    // Root, and whoever else may answer the run, count only where they are named.
    for stranger in [0, 1003] {
        let none = all.decide(about, ALL, user(stranger), now);
        assert!(none.unwrap_err().contains("none of those who count"));
    }
    let first = all.decide(about, ALL, user(1000), now).unwrap();
    assert!(first.said.is_empty(), "nothing goes out");
    assert!(matches!(first.news[..], [ApprovalNews::Agreed { .. }]));
    assert_eq!(all.pending(now)[0].agreed.unwrap().by, user(1000));
    for pid in [2, 3] {
        let again = all.decide(about, ALL, Who { pid, ..user(1000) }, now);
        assert!(again.unwrap_err().contains("another one has to"));
    }
    assert!(all.leases(now).is_empty());
    // What is equal waits for both as well.
    assert!(all.ask(2, call("/a", "x"), now).said.is_empty());
    let second = all.decide(about, ALL, user(1001), now).unwrap();
    assert_eq!(granted(&second), [1, 2]);
    assert_eq!(all.leases(now)[0].by, user(1001));
    // Two of those who are named are two as well, without the run's own.
    let mut all = by_two();
    let about = asked(&all.ask(1, call("/a", "x"), now));
    let first = all.decide(about, ALL, user(1002), now).unwrap();
    assert!(granted(&first).is_empty());
    assert_eq!(
        granted(&all.decide(about, ALL, user(1001), now).unwrap()),
        [1]
    );
    // A single call takes one, and so does everything where nobody asks for two.
    let mut all = by_two();
    let about = asked(&all.ask(1, call("/a", "x"), now));
    assert_eq!(
        granted(&all.decide(about, ONCE, user(1000), now).unwrap()),
        [1]
    );
    let mut all = Approvals::default();
    let about = asked(&all.ask(1, call("/a", "x"), now));
    assert_eq!(granted(&all.decide(about, ALL, user(7), now).unwrap()), [1]);
}

/// A request ends with its answer; a connection stays open.
#[test]
fn one_person_alone_opens_nothing_that_stays() {
    let now = Instant::now();
    let tunnel = AskedCall {
        kind: FlowKind::Tunnel,
        request: None,
        ..call("/a", "x")
    };
    let mut web_socket = call("/a", "x");
    web_socket.request.as_mut().unwrap().is_web_socket = true;
    let database = AskedCall {
        kind: FlowKind::Postgres,
        request: None,
        login: Some(FlowLogin {
            user: "app".to_owned(),
            database: "shop".to_owned(),
        }),
        ..call("/a", "x")
    };
    for stays in [tunnel, web_socket, database] {
        let mut all = by_two();
        let about = asked(&all.ask(1, stays.clone(), now));
        assert!(all.goes_on(about.0));
        let first = all.decide(about, ONCE, user(1000), now).unwrap();
        assert!(first.said.is_empty(), "nothing goes out");
        assert!(matches!(first.news[..], [ApprovalNews::Agreed { .. }]));
        // Both have said once, and so it is.
        let second = all.decide(about, ONCE, user(1001), now).unwrap();
        assert_eq!(granted(&second), [1]);
        assert!(all.leases(now).is_empty());
        // The control: where it takes one, one is enough.
        let mut all = Approvals::default();
        let about = asked(&all.ask(1, stays, now));
        assert_eq!(
            granted(&all.decide(about, ONCE, user(7), now).unwrap()),
            [1]
        );
    }
    let mut all = by_two();
    let about = asked(&all.ask(1, call("/a", "x"), now));
    assert!(!all.goes_on(about.0));
    // Where the other one cannot be heard nobody's yes counts.
    all.widened_by(DualControlRule::Unheard {});
    let unheard = all.decide(about, ALL, user(1000), now).unwrap_err();
    assert!(unheard.contains("cannot be heard"), "{unheard}");
    assert_eq!(
        granted(&all.decide(about, ONCE, user(1000), now).unwrap()),
        [1]
    );
}

#[test]
fn of_two_the_narrower_counts_and_time_denies() {
    let now = Instant::now();
    let seconds = |seconds| grant(Scope::Seconds { seconds }, ApprovalScope::Same);
    for (first, second) in [
        (ALL, seconds(60)),
        (seconds(60), ALL),
        (seconds(60), seconds(900)),
    ] {
        let mut all = by_two();
        let about = asked(&all.ask(1, call("/a", "x"), now));
        let _ = all.decide(about, first, user(1000), now).unwrap();
        let later = now + Duration::from_secs(5);
        let _ = all.decide(about, second, user(1001), later).unwrap();
        let lease = &all.leases(later)[0];
        assert_eq!(
            (lease.left_seconds, lease.breadth),
            (Some(60), ApprovalScope::Same)
        );
    }
    // The other one never comes, and comes too late.
    let mut all = by_two();
    let about = asked(&all.ask(1, call("/a", "x"), now));
    let _ = all.decide(about, ALL, user(1000), now).unwrap();
    let late = now + ASKING_PATIENCE;
    assert!(all.decide(about, ALL, user(1001), late).is_err());
    assert_eq!(denied(&all.expire(late)), [(1, NoConsent::Unseconded)]);
    assert!(all.leases(late).is_empty());
    // A program that does not wait for the other one has left, as without any yes.
    let mut all = by_two();
    let about = asked(&all.ask(1, call("/a", "x"), now));
    let _ = all.decide(about, ALL, user(1000), now).unwrap();
    assert!(matches!(
        all.leave(1).news[..],
        [ApprovalNews::Denied {
            why: NoConsent::Left,
            ..
        }]
    ));
    // A no of anybody's counts at once, and a yes after it for nothing.
    let mut all = by_two();
    let about = asked(&all.ask(1, call("/a", "x"), now));
    let _ = all.decide(about, ALL, user(1000), now).unwrap();
    let no = all.decide(about, DENY, user(1001), now).unwrap();
    assert_eq!(denied(&no), [(1, NoConsent::Person)]);
    assert!(all.decide(about, ALL, user(1002), now).is_err());
}
