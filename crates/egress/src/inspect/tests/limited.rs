//! Requests whose rule has limits.

use std::num::NonZero;

use atoll_model::network::{Limit, RuleLimits};

use super::*;

/// Allows one port of a host, and of a server at this address, within limits.
fn way(port: u16, limits: &RuleLimits) -> Outside {
    let rule = |host: &str| NetworkRule {
        to: format!("{host}:{port}").parse().unwrap(),
        way: Way::Inspect,
        limits: limits.clone(),
        ..NetworkRule::learning()
    };
    Outside::with(
        vec![rule("host.atoll.internal"), rule("127.0.0.1")],
        no_trust(),
    )
}

/// Returns a request to that host.
fn request(port: u16, head: &str, body: &str) -> String {
    let (first, rest) = head.split_once('\n').unwrap_or((head, ""));
    let rest: String = rest.lines().map(|line| format!("{line}\r\n")).collect();
    format!("{first} HTTP/1.1\r\nHost: host.atoll.internal:{port}\r\n{rest}\r\n{body}")
}

/// Checks that the response contains this text, and waits for the report of a refusal by this
/// limit.
async fn told(way: &Outside, heard: &str, holds: &str, limit: Limit) -> FlowReport {
    assert!(heard.contains(holds), "{holds} is not in {heard}");
    let is_it = |report: &&FlowReport| matches!(report, FlowReport::Refused { flow, .. } if flow.limit == Some(limit));
    let soon = async {
        loop {
            let found = way.told.lock().unwrap().iter().find(is_it).cloned();
            match found {
                Some(found) => return found,
                None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    timeout(PATIENCE, soon).await.unwrap()
}

#[tokio::test]
async fn requests_beyond_limit_are_answered_locally() {
    let origin = Origin::start(None, OK).await;
    let limits = RuleLimits {
        requests: Some("2/h".parse().unwrap()),
        ..RuleLimits::default()
    };
    let way = way(origin.port, &limits);
    let program = way.connect("host.atoll.internal", origin.port).await;
    let asked = request(origin.port, "GET /a", "");
    let heard = say(program, asked.repeat(4).as_bytes()).await;
    assert_eq!(heard.matches("HTTP/1.1 200 OK").count(), 2, "{heard}");
    assert_eq!(heard.matches("HTTP/1.1 429 ").count(), 2, "{heard}");
    assert_eq!(origin.seen().matches("GET /a").count(), 2);
    for words in [
        "retry-after: 1",
        "\"what\":\"GET http://host.atoll.internal:",
        "more requests than its rule allows (requests = \\\"2/h\\\")",
        "\"rule\":\"host.atoll.internal:",
        "\"how_to_ask\":\"wait as long as Retry-After says",
    ] {
        assert!(heard.contains(words), "{words} is not in {heard}");
    }
    let _ = told(&way, &heard, "429", Limit::Requests).await;
}

#[tokio::test]
async fn overlong_body_never_looks_whole() {
    let origin = Origin::start(None, OK).await;
    let limits = RuleLimits {
        body: Some(8),
        ..RuleLimits::default()
    };
    let way = way(origin.port, &limits);
    let connect = || way.connect("host.atoll.internal", origin.port);
    // A length that is told: nothing is sent.
    let asked = request(origin.port, "POST /told\nContent-Length: 9", "123456789");
    let heard = say(connect().await, asked.as_bytes()).await;
    let _ = told(&way, &heard, "HTTP/1.1 413 ", Limit::Body).await;
    assert_eq!(origin.seen(), "");
    // Just as long as it may be, in pieces or at once.
    let fits = request(origin.port, "POST /fits\nContent-Length: 8", "12345678");
    let chunks = "4\r\n1234\r\n4\r\n5678\r\n0\r\n\r\n";
    let pieces = request(
        origin.port,
        "POST /pieces\nTransfer-Encoding: chunked",
        chunks,
    );
    for asked in [fits, pieces] {
        let heard = say(connect().await, asked.as_bytes()).await;
        assert!(heard.contains("200 OK"), "{heard}");
    }
    // One that is not told: it comes to no end.
    origin.seen.lock().unwrap().clear();
    let chunks = "4\r\n1234\r\n5\r\n56789\r\n0\r\n\r\n";
    let long = request(origin.port, "POST /long\nTransfer-Encoding: chunked", "");
    let mut program = connect().await;
    program.write_all(long.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let (first, rest) = chunks.split_at(9);
    program.write_all(first.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let _ = say(program, rest.as_bytes()).await;
    let seen = origin.seen();
    assert!(seen.contains("POST /long"), "{seen}");
    assert!(!seen.contains("56789"), "{seen}");
    assert!(!seen.contains("\r\n0\r\n"), "{seen}");
}

#[tokio::test]
async fn undeclared_overlong_body_is_answered() {
    // Who answers only at the body's end never does.
    let origin = Origin::start(None, "").await;
    let limits = RuleLimits {
        body: Some(8),
        ..RuleLimits::default()
    };
    let way = way(origin.port, &limits);
    let program = way.connect("host.atoll.internal", origin.port).await;
    let chunks = "4\r\n1234\r\n5\r\n56789\r\n0\r\n\r\n";
    let long = request(
        origin.port,
        "POST /long\nTransfer-Encoding: chunked",
        chunks,
    );
    let heard = say(program, long.as_bytes()).await;
    let _ = told(&way, &heard, "HTTP/1.1 413 ", Limit::Body).await;
    let ends = way.ends(1).await;
    assert_eq!(ends[0].limit, Some(Limit::Body));
    assert!(!origin.seen().contains("\r\n0\r\n"), "{}", origin.seen());
}

#[tokio::test]
async fn upload_limit_of_run_holds() {
    let origin = Origin::start(None, OK).await;
    let limits = RuleLimits {
        upload: NonZero::new(400),
        ..RuleLimits::default()
    };
    let way = way(origin.port, &limits);
    let program = way.connect("host.atoll.internal", origin.port).await;
    let long = "x".repeat(100);
    let asked = request(origin.port, &format!("GET /{long}"), "");
    let heard = say(program, asked.repeat(5).as_bytes()).await;
    let sent = heard.matches("200 OK").count();
    assert!((2..=3).contains(&sent), "{heard}");
    assert_eq!(origin.seen().matches("GET /x").count(), sent);
    let _ = told(&way, &heard, "HTTP/1.1 403 ", Limit::Upload).await;
}

#[tokio::test]
async fn download_limit_of_run_holds() {
    let answer =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n4\r\nefgh\r\n0\r\n\r\n";
    let origin = Origin::start(None, answer).await;
    let limits = RuleLimits {
        download: NonZero::new(11),
        ..RuleLimits::default()
    };
    let way = way(origin.port, &limits);
    let asked = request(origin.port, "GET /", "");
    let program = way.connect("host.atoll.internal", origin.port).await;
    let heard = say(program, asked.as_bytes()).await;
    assert!(heard.ends_with("0\r\n\r\n"), "{heard}");
    // The second breaks off: nobody takes it for a whole one.
    let program = way.connect("host.atoll.internal", origin.port).await;
    let heard = say(program, asked.as_bytes()).await;
    assert!(!heard.contains("\r\n0\r\n"), "{heard}");
    let ends = way.ends(2).await;
    assert_eq!(ends[0].limit, None);
    assert_eq!(ends[1].limit, Some(Limit::Download));
    let _ = told(&way, "", "", Limit::Download).await;
    // From then on nothing.
    let before = origin.seen();
    let program = way.connect("host.atoll.internal", origin.port).await;
    let heard = say(program, asked.as_bytes()).await;
    assert!(heard.contains("HTTP/1.1 403 "), "{heard}");
    assert_eq!(origin.seen(), before);
}

#[tokio::test]
async fn request_beyond_duration_is_ended() {
    let limits = RuleLimits {
        duration_ms: NonZero::new(200),
        ..RuleLimits::default()
    };
    // Before there is an answer it is one.
    let origin = Origin::start(None, "").await;
    let way_of = |port| way(port, &limits);
    let way = way_of(origin.port);
    let asked = request(origin.port, "GET /slow", "");
    let program = way.connect("host.atoll.internal", origin.port).await;
    let heard = say(program, asked.as_bytes()).await;
    let _ = told(&way, &heard, "HTTP/1.1 504 ", Limit::Duration).await;
    assert_eq!(way.ends(1).await[0].limit, Some(Limit::Duration));
    // Within an answer it breaks off, also where nobody reads it.
    let begins = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc";
    let origin = Origin::start(None, begins).await;
    let way = way_of(origin.port);
    let mut program = way.connect("host.atoll.internal", origin.port).await;
    let asked = request(origin.port, "GET /slow", "");
    program.write_all(asked.as_bytes()).await.unwrap();
    let ends = way.ends(1).await;
    assert_eq!(
        (ends[0].status, ends[0].limit),
        (Some(200), Some(Limit::Duration))
    );
    assert!(ends[0].duration_us < 2_000_000, "{ends:?}");
}

#[tokio::test]
async fn rate_limit_slows_both_directions() {
    let body = "x".repeat(300);
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 300\r\n\r\n{body}");
    let origin = Origin::start(None, Box::leak(answer.into_boxed_str())).await;
    let limits = RuleLimits {
        rate: NonZero::new(1000),
        ..RuleLimits::default()
    };
    let way = way(origin.port, &limits);
    let asked = request(origin.port, "POST /\nContent-Length: 300", &body);
    let mut program = way.connect("host.atoll.internal", origin.port).await;
    program.write_all(asked.as_bytes()).await.unwrap();
    let ends = way.ends(1).await;
    // The answer comes as soon as the head has.
    assert!(ends[0].duration_us >= 300_000, "{ends:?}");
    assert_eq!((ends[0].up_bytes, ends[0].down_bytes), (300, 300));
    assert_eq!(ends[0].failure, None);
    assert!(origin.seen().ends_with(&body));
}

#[tokio::test]
async fn concurrent_requests_are_limited() {
    let origin = Origin::start(None, "").await;
    let limits = RuleLimits {
        connections: NonZero::new(1),
        ..RuleLimits::default()
    };
    let way = way(origin.port, &limits);
    let asked = request(origin.port, "GET /", "");
    let mut first = way.connect("host.atoll.internal", origin.port).await;
    first.write_all(asked.as_bytes()).await.unwrap();
    let arrived = async {
        while origin.seen().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, arrived).await.unwrap();
    let second = way.connect("host.atoll.internal", origin.port).await;
    let heard = say(second, asked.as_bytes()).await;
    let _ = told(&way, &heard, "HTTP/1.1 429 ", Limit::Connections).await;
    assert!(heard.contains("retry-after: 1"), "{heard}");
    assert_eq!(origin.seen().matches("GET /").count(), 1);
    // Once it is over another one may go.
    drop(first);
    let _ = way.ends(1).await;
    let third = way.connect("host.atoll.internal", origin.port).await;
    let _ = say(third, asked.as_bytes()).await;
    assert_eq!(origin.seen().matches("GET /").count(), 2);
}
