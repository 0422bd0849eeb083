//! Exchanges in progress while the right to their destination is dropped.

use atoll_model::network::{GivenUp, GivenUpBy, Restriction};

use super::*;

/// Exchanges in progress: a name, the program's request, the response, and what the program sends
/// later.
const OPEN: &[(&str, &str, &str, &str)] = &[
    (
        "a request without an answer",
        "GET /open HTTP/1.1\r\nHost: HOST\r\n\r\n",
        "",
        "",
    ),
    (
        "an upload",
        "POST /open HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n",
        "",
        "5\r\nLATER\r\n",
    ),
    (
        "an upload that is answered already",
        "POST /open HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n",
        "5\r\nLATER\r\n",
    ),
    (
        "an answer",
        "GET /open HTTP/1.1\r\nHost: HOST\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n",
        "",
    ),
    (
        "a WebSocket",
        "GET /open HTTP/1.1\r\nHost: HOST\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
        "LATER",
    ),
];

fn give_up(way: &Outside, host: &str) {
    let what = Restriction::Host(host.to_owned().try_into().unwrap());
    let given = GivenUp {
        at_s: 1,
        by: GivenUpBy::Person { uid: 7 },
        what,
    };
    way.egress.policies.dropped.add_all(vec![given]);
}

#[tokio::test]
async fn dropped_address_ends_open_flow() {
    for is_limited in [false, true] {
        for (what, request, answer, later) in OPEN {
            ends(what, request, answer, later, is_limited).await;
        }
    }
}

async fn ends(what: &str, request: &str, answer: &'static str, later: &str, is_limited: bool) {
    let origin = Origin::start(None, answer).await;
    let name = format!("host.atoll.internal:{}", origin.port);
    let rule = |to: &str| NetworkRule {
        to: to.parse().unwrap(),
        way: Way::Inspect,
        limits: RuleLimits {
            body: is_limited.then_some(1 << 20),
            ..RuleLimits::default()
        },
        ..NetworkRule::learning()
    };
    let address = format!("127.0.0.1:{}", origin.port);
    let way = Outside::with(vec![rule(&name), rule(&address)], no_trust());
    let mut program = way.connect("host.atoll.internal", origin.port).await;
    let request = request.replace("HOST", &name);
    program.write_all(request.as_bytes()).await.unwrap();
    let body = if later.starts_with('5') {
        "abcd"
    } else {
        "/open"
    };
    let arrived = async {
        while !origin.seen().contains(body) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mut heard = Vec::new();
        let end = &answer.as_bytes()[answer.len().saturating_sub(4)..];
        while !heard.ends_with(end) {
            assert!(program.read_buf(&mut heard).await.unwrap() > 0, "{what}");
        }
    };
    timeout(PATIENCE, arrived).await.expect(what);
    // The control: another address ends nothing.
    give_up(&way, "192.0.2.1");
    let heard = timeout(Duration::from_millis(100), program.read(&mut [0; 1])).await;
    assert!(heard.is_err(), "{what} goes on: {heard:?}");
    give_up(&way, "127.0.0.1");
    let ended = way.ends(1).await;
    let failure = ended[0].failure.clone().unwrap_or_default();
    let is_told = failure.contains("the right to it was given up");
    assert!(is_told, "{what}: {:?}", ended[0]);
    let _ = program.write_all(later.as_bytes()).await;
    // A connection that could carry another request stays open until its program has said all.
    let _ = program.shutdown().await;
    let mut rest = Vec::new();
    let _ = timeout(PATIENCE, program.read_to_end(&mut rest))
        .await
        .expect(what);
    assert!(
        !origin.seen().contains("LATER"),
        "{what}: {}",
        origin.seen()
    );
}

#[tokio::test]
async fn dropped_right_repeated_waits_for_record() {
    let way = Outside::new(&[], 1, no_trust());
    let body = r#"{"deny-hosts":["example.com"]}"#;
    let request = format!(
        "POST /restrict HTTP/1.1\r\nHost: atoll.internal\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    for asked in 1..=2 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let program = TcpStream::connect(listener.local_addr().unwrap());
        let (program, accepted) = tokio::join!(program, listener.accept());
        let egress = Arc::clone(&way.egress);
        let arrival = ProgramStream::new(accepted.unwrap().0);
        tokio::spawn(async move { crate::sandbox_api::serve(&egress, arrival).await });
        let mut program = program.unwrap();
        program.write_all(request.as_bytes()).await.unwrap();
        let mut heard = Vec::new();
        let answered = async {
            while !heard.ends_with(b"}\n") {
                assert!(program.read_buf(&mut heard).await.unwrap() > 0, "an answer");
            }
        };
        timeout(PATIENCE, answered).await.unwrap();
        assert!(heard.starts_with(b"HTTP/1.1 200 "), "{heard:?}");
        // The answer waits for who records, each time.
        let told = way.told.lock().unwrap();
        let of = |report: &&FlowReport| matches!(report, FlowReport::GivesUp { .. });
        assert_eq!(told.iter().filter(of).count(), asked);
    }
}
