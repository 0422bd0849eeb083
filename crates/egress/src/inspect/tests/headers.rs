//! Headers and targets that a server may read differently from how they were judged.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Body, Frame};
use hyper::client::conn::http2;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::*;

/// A rule for the origin, about these methods and paths.
fn rule(port: u16, methods: &[&str], paths: &[&str]) -> NetworkRule {
    let texts = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
    NetworkRule {
        to: format!("host.atoll.internal:{port}").parse().unwrap(),
        way: Way::Inspect,
        requests: Conditions {
            methods: texts(methods),
            paths: texts(paths)
                .into_iter()
                .map(|path| path.try_into().unwrap())
                .collect(),
            ..Conditions::default()
        },
        limits: RuleLimits::default(),
        origin: "a test".to_owned(),
    }
}

/// Sends a request on an HTTP/2 stream, and returns the status and text of the response.
async fn by_2<B>(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: Request<B>,
) -> (u16, String)
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: std::error::Error + Send + Sync,
{
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let answer = match sender.send_request(request).await {
        Ok(answer) => answer,
        Err(error) => return (0, error.to_string()),
    };
    let status = answer.status().as_u16();
    let body = match answer.into_body().collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return (status, error.to_string()),
    };
    (status, String::from_utf8_lossy(&body).into_owned())
}

/// An HTTP/2 client within TLS, and an origin that speaks HTTP/1.1 alone.
struct Between {
    signer: Signer,
    origin: Origin,
    outside: Outside,
}

impl Between {
    async fn new(methods: &[&str], paths: &[&str]) -> Self {
        let signer = Signer::new();
        let tls = signer.server("host.atoll.internal", &["http/1.1"], 4000);
        let origin = Origin::start(Some(tls), OK).await;
        let trust = Trust::with(&signer.authority(), vec![signer.root()]).unwrap();
        let outside = Outside::with(vec![rule(origin.port, methods, paths)], trust);
        Self {
            signer,
            origin,
            outside,
        }
    }

    async fn ask<B>(&self, headers: HeaderMap, body: B) -> (u16, String)
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: std::error::Error + Send + Sync,
    {
        let port = self.origin.port;
        let program = self.outside.connect("host.atoll.internal", port).await;
        let name = ServerName::try_from("host.atoll.internal").unwrap();
        let program = self.signer.client(&["h2"]).connect(name, program).await;
        let mut request = Request::post(format!("https://host.atoll.internal:{port}/a"))
            .body(body)
            .unwrap();
        *request.headers_mut() = headers;
        by_2(program.unwrap(), request).await
    }
}

/// A header with its value and the body by HTTP/2; the status, and a line that reaches the server.
type By2 = (
    &'static [u8],
    &'static [u8],
    &'static str,
    u16,
    &'static str,
);

const BY_2: &[By2] = &[
    (b"x-a", b"a b", "", 200, "x-a: a b\r\n"),
    (
        b"content-length",
        b"010",
        "abcdefghij",
        200,
        "content-length: 10\r\n",
    ),
    (b"content-length", b"", "", 400, ""),
    (b"content_length", b"5", "", 400, ""),
    (b"transfer_encoding", b"chunked", "", 400, ""),
    (b"keep.alive", b"a", "", 400, ""),
    (b"x-a", b" a", "", 200, "x-a: a\r\n"),
    (b"x-a", b"a\t", "", 200, "x-a: a\r\n"),
    (b"x\"a", b"a", "", 400, ""),
];

#[tokio::test]
async fn http_2_ambiguous_header_is_refused() {
    for (name, value, body, status, line) in BY_2 {
        let between = Between::new(&[], &[]).await;
        let mut headers = HeaderMap::new();
        headers.insert(
            HeaderName::from_lowercase(name).unwrap(),
            HeaderValue::from_bytes(value).unwrap(),
        );
        let body = Full::new(Bytes::from_static(body.as_bytes()));
        let (told, text) = between.ask(headers, body).await;
        let name = String::from_utf8_lossy(name);
        assert_eq!(told, *status, "{name}: {value:?}: {text}");
        let seen = between.origin.seen();
        assert_eq!(seen.is_empty(), *status != 200, "{name}: {value:?}: {seen}");
        assert!(seen.contains(line), "{name}: {value:?}: {seen}");
    }
}

/// Headers that make some servers see another method or path.
const OTHER_METHODS: [&str; 10] = [
    "X-HTTP-Method-Override",
    "X_HTTP_METHOD_OVERRIDE",
    "X-Http_Method-Override",
    "x.http.method.override",
    "HTTP_X_HTTP_METHOD_OVERRIDE",
    "X_HTTP_Method",
    "HTTP-Method-Override",
    "Method-Override",
    "X-Method",
    "x_method_override",
];
const OTHER_PATHS: [&str; 8] = [
    "X-Original-URL",
    "X_Original_Url",
    "X-Rewrite-URL",
    "HTTP_X_REWRITE_URL",
    "X-Forwarded-Path",
    "X-Forwarded-Prefix",
    "X_Forwarded_Uri",
    "X-Original-URI",
];

#[tokio::test]
async fn overriding_header_is_refused_under_rules() {
    let methods = OTHER_METHODS.iter().map(|name| (*name, true));
    let paths = OTHER_PATHS.iter().map(|name| (*name, false));
    for (name, is_method) in methods.chain(paths) {
        for (methods, paths, is_refused) in [
            (&["POST"][..], &[][..], is_method),
            (&[], &["/a"], !is_method),
            (&["POST"], &["/a"], true),
            (&[], &[], false),
        ] {
            // One name of each kind meets all rules, the others those that are about it.
            let is_first = [OTHER_METHODS[0], OTHER_PATHS[0]].contains(&name);
            let is_alone = methods.is_empty() != paths.is_empty();
            let is_tried = is_first || (is_refused && is_alone);
            if !is_tried {
                continue;
            }
            for (header, body) in [
                (name.to_owned(), "0\r\n\r\n".to_owned()),
                (
                    format!("Trailer: {name}, X-Other\r\nX-Other"),
                    format!("0\r\n{name}: /secret\r\n\r\n"),
                ),
            ] {
                let origin = Origin::start(None, OK).await;
                let port = origin.port;
                let outside = Outside::with(vec![rule(port, methods, paths)], no_trust());
                let program = outside.connect("host.atoll.internal", port).await;
                let said = format!(
                    "POST /a HTTP/1.1\r\nHost: host.atoll.internal:{port}\r\n{header}: /secret\r\n\
                     Transfer-Encoding: chunked\r\n\r\n{body}"
                );
                let heard = say(program, said.as_bytes()).await;
                let status = if is_refused { " 403 " } else { " 200 " };
                assert!(
                    heard.contains(status),
                    "{methods:?} {paths:?} {said}: {heard}"
                );
                assert_eq!(origin.seen().is_empty(), is_refused, "{said}");
            }
        }
    }
}

/// A body of unknown length.
struct Pieces(VecDeque<Frame<Bytes>>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(Ok))
    }
}

/// Unannounced trailers by HTTP/2, and whether the request comes to its end.
const TRAILERS: &[(&[u8], &[u8], bool)] = &[
    (b"x-checksum", b"1", true),
    (b"x_http_method_override", b"DELETE", false),
    (b"x-original-url", b"/secret", false),
    (b"content_length", b"5", false),
    (b"x-a", b"a ", true),
    (b"x\"a", b"a", false),
];

#[tokio::test]
async fn ambiguous_trailer_breaks_off() {
    for (name, value, is_whole) in TRAILERS {
        let between = Between::new(&["POST"], &["/a"]).await;
        let mut trailers = HeaderMap::new();
        trailers.insert(
            HeaderName::from_lowercase(name).unwrap(),
            HeaderValue::from_bytes(value).unwrap(),
        );
        let abc = Frame::data(Bytes::from_static(b"abc"));
        let body = Pieces([abc, Frame::trailers(trailers)].into());
        let (status, text) = between.ask(HeaderMap::new(), body).await;
        let name = String::from_utf8_lossy(name);
        assert_eq!(status == 200, *is_whole, "{name}: {status} {text}");
        let seen = between.origin.seen();
        assert_eq!(
            seen.ends_with("\r\n0\r\n\r\n"),
            *is_whole,
            "{name}: {seen:?}"
        );
    }
}

/// Targets, and what is requested of the server; empty where they are refused.
const TARGETS: &[(&str, &str)] = &[
    ("GET /a", "GET /a"),
    ("GET /a#b", "GET /a"),
    ("GET /a?b#c?d", "GET /a?b"),
    ("GET /a%23b", "GET /a%23b"),
    ("GET /a|b", "GET /a|b"),
    ("GET /[a]{b}^", "GET /[a]{b}^"),
    ("GET /a\"b", ""),
    ("GET /a`b", ""),
    ("GET /a?b|c", "GET /a?b|c"),
    ("OPTIONS *", "OPTIONS *"),
    ("OPTIONS /", "OPTIONS /"),
    ("OPTIONS http://HOST", "OPTIONS /"),
    ("OPTIONS http://HOST/", "OPTIONS /"),
    ("OPTIONS http://HOST/a", "OPTIONS /a"),
    ("GET http://HOST", "GET /"),
];

#[tokio::test]
async fn target_is_sent_as_it_was_judged() {
    for (target, sent) in TARGETS {
        let origin = Origin::start(None, OK).await;
        let host = format!("host.atoll.internal:{}", origin.port);
        let outside = Outside::with(vec![rule(origin.port, &[], &[])], no_trust());
        let program = outside.connect("host.atoll.internal", origin.port).await;
        let line = target.replace("HOST", &host);
        let said = format!("{line} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let heard = say(program, said.as_bytes()).await;
        let seen = origin.seen();
        let first = seen.split(" HTTP/1.1\r\n").next().unwrap_or_default();
        assert_eq!(first, *sent, "{target}: {heard}");
    }
}

#[tokio::test]
async fn http_2_to_older_server_is_explained() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 1024]).await;
        let answer = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
        let _ = stream.write_all(answer).await;
    });
    let outside = Outside::with(vec![rule(port, &[], &[])], no_trust());
    let program = outside.connect("host.atoll.internal", port).await;
    let mut request = Request::get(format!("http://host.atoll.internal:{port}/a"))
        .body(Empty::<Bytes>::new())
        .unwrap();
    *request.version_mut() = Version::HTTP_2;
    let (status, text) = timeout(PATIENCE, by_2(program, request)).await.unwrap();
    assert_eq!(status, 502, "{text}");
    for part in ["HTTP/2 without TLS", "have the program ask by HTTP/1.1"] {
        assert!(text.contains(part), "{text}");
    }
    let end = &outside.ends(1).await[0];
    let failure = end.failure.as_deref().unwrap();
    assert!(failure.contains("HTTP/2 without TLS"), "{failure}");
}

/// Starts a server that reads a length as C does, as octal if it begins with 0, and records the
/// first line of each request that it sees.
async fn octal_server() -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let written = Arc::clone(&seen);
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut bytes = Vec::new();
        loop {
            while let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
                let length = head
                    .lines()
                    .find_map(|line| line.strip_prefix("content-length: "));
                let length = length.map_or(0, |text| match text.strip_prefix('0') {
                    Some(octal) => usize::from_str_radix(octal, 8).unwrap_or(0),
                    None => text.parse().unwrap(),
                });
                let whole = end + 4 + length;
                if bytes.len() < whole {
                    break;
                }
                bytes.drain(..whole);
                let line = head.lines().next().unwrap_or_default().to_owned();
                written.lock().unwrap().push(line);
                let _ = stream.write_all(OK.as_bytes()).await;
            }
            if stream.read_buf(&mut bytes).await.is_ok_and(|got| got == 0) {
                return;
            }
        }
    });
    (port, seen)
}

#[tokio::test]
async fn octal_reading_server_sees_no_hidden_request() {
    let hidden = "GET /secret HTTP/1.1\r\nHost: a\r\n\r\n";
    let body = format!("{}{hidden}", "a".repeat(0o100));
    // As long as it is for who reads it as decimal.
    let body = format!("{body:<100}");
    for (length, is_sent) in [("0100", true), ("100", true), ("0x64", false)] {
        let (port, seen) = octal_server().await;
        let outside = Outside::with(vec![rule(port, &[], &["/open"])], no_trust());
        let program = outside.connect("host.atoll.internal", port).await;
        let said = format!(
            "POST /open HTTP/1.1\r\nHost: host.atoll.internal:{port}\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        );
        let heard = say(program, said.as_bytes()).await;
        let status = if is_sent { " 200 " } else { " 400 " };
        assert!(heard.contains(status), "{length}: {heard}");
        let expected = if is_sent {
            &["post /open http/1.1"][..]
        } else {
            &[]
        };
        assert_eq!(*seen.lock().unwrap(), expected, "{length}");
    }
}
