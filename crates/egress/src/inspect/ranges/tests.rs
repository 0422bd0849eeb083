//! Tests of ranges with and without their margin.

use std::collections::VecDeque;
use std::future::poll_fn;

use super::*;

fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&'static str, &str)| {
        let value = HeaderValue::try_from(*value).unwrap();
        (HeaderName::from_static(name), value)
    };
    let mut headers = HeaderMap::new();
    headers.extend(all.iter().map(pair));
    headers
}

/// Returns the length of a part with this `Content-Range`; 0 if that cannot be read.
fn length_of(came: &str) -> String {
    part(came)
        .map_or(0, |(first, last, _)| last - first + 1)
        .to_string()
}

fn read(range: &str) -> Option<PaddedRange> {
    PaddedRange::read(&Method::GET, &headers(&[("range", range)]), 10)
}

#[test]
fn range_is_requested_with_margin() {
    for (range, asked) in [
        ("bytes=100-199", "bytes=90-209"),
        ("bytes=0-3", "bytes=0-13"),
        ("bytes=5-5", "bytes=0-15"),
        ("Bytes= 100-", "bytes=90-"),
        ("bytes=-7", "bytes=-17"),
        (
            "bytes=0-18446744073709551615",
            "bytes=0-18446744073709551615",
        ),
    ] {
        let header = read(range).and_then(|read| read.header());
        assert_eq!(header.unwrap(), asked, "{range}");
    }
    for range in [
        "bytes=0-3,5-7",
        "bytes=4-3",
        "bytes=-0",
        "bytes=-",
        "bytes=+1-3",
        "bytes=1-18446744073709551616",
        "lines=0-3",
        "bytes",
        "",
    ] {
        assert_eq!(read(range), None, "{range}");
    }
    let two = headers(&[("range", "bytes=0-3"), ("range", "bytes=5-7")]);
    assert_eq!(PaddedRange::read(&Method::GET, &two, 10), None);
    let one = headers(&[("range", "bytes=0-3")]);
    assert_eq!(PaddedRange::read(&Method::PUT, &one, 10), None);
    assert_eq!(PaddedRange::read(&Method::GET, &HeaderMap::new(), 10), None);
}

#[test]
fn range_response_is_cut_to_request() {
    // The range, what the server says it is, and what is before it, in it and told of it.
    for (range, came, skip, take, told) in [
        (
            "bytes=100-199",
            "bytes 90-209/1000",
            10,
            100,
            "bytes 100-199/1000",
        ),
        (
            "bytes=100-199",
            "bytes 90-209/*",
            10,
            100,
            "bytes 100-199/*",
        ),
        (
            "bytes=100-199",
            "bytes 90-149/150",
            10,
            50,
            "bytes 100-149/150",
        ),
        (
            "bytes=100-199",
            "bytes 90-199/200",
            10,
            100,
            "bytes 100-199/200",
        ),
        ("bytes=3-5", "bytes 0-15/16", 3, 3, "bytes 3-5/16"),
        (
            "bytes=100-",
            "bytes 90-999/1000",
            10,
            900,
            "bytes 100-999/1000",
        ),
        (
            "bytes=-7",
            "bytes 983-999/1000",
            10,
            7,
            "bytes 993-999/1000",
        ),
        ("bytes=-7", "bytes 0-3/4", 0, 4, "bytes 0-3/4"),
        // The end of all is before it.
        ("bytes=100-199", "bytes 90-95/96", 10, 0, "bytes */96"),
    ] {
        let mut head = headers(&[
            ("content-range", came),
            ("content-length", &length_of(came)),
            ("x-amz-checksum-crc32", "AAAAAA=="),
            ("etag", "\"1\""),
        ]);
        let cut = read(range).unwrap().cut(&head).unwrap();
        assert_eq!((cut.skip, cut.take), (skip, take), "{range} {came}");
        cut.tell(&mut head);
        assert_eq!(head[CONTENT_RANGE], told, "{range} {came}");
        let length = head.get(CONTENT_LENGTH).map(|one| one.to_str().unwrap());
        assert_eq!(length, (take > 0).then_some(&*take.to_string()));
        let is_all = take == cut.came;
        assert_eq!(head.contains_key("x-amz-checksum-crc32"), is_all, "{came}");
        assert!(head.contains_key("etag"));
    }
    for (range, came) in [
        ("bytes=100-199", "bytes 100-199/1000"),
        ("bytes=100-199", "bytes 89-209/1000"),
        ("bytes=100-199", "bytes 90-208/1000"),
        ("bytes=100-199", "bytes 90-208/*"),
        ("bytes=100-199", "bytes 90-210/1000"),
        ("bytes=100-199", "bytes 90-209/209"),
        ("bytes=100-199", "bytes */1000"),
        ("bytes=100-199", "bytes 90-209"),
        ("bytes=100-199", "lines 90-209/1000"),
        ("bytes=100-", "bytes 90-998/1000"),
        ("bytes=100-", "bytes 90-999/*"),
        ("bytes=-7", "bytes 983-999/*"),
        ("bytes=-7", "bytes 984-999/1000"),
        ("bytes=0-3", "bytes 9-3/1000"),
    ] {
        let told = [
            ("content-range", came),
            ("content-length", &length_of(came)),
        ];
        let cut = read(range).unwrap().cut(&headers(&told));
        assert!(cut.is_err(), "{range} {came}: {cut:?}");
    }
    let ranged = read("bytes=100-199").unwrap();
    let one = ("content-range", "bytes 90-209/1000");
    let length = ("content-length", "120");
    assert!(ranged.cut(&headers(&[one, length])).is_ok());
    assert!(ranged.cut(&headers(&[one, one, length])).is_err());
    assert!(ranged.cut(&headers(&[length])).is_err());
}

#[test]
fn range_response_contradicting_head_is_refused() {
    let ranged = read("bytes=100-199").unwrap();
    let came = ("content-range", "bytes 90-209/1000");
    let right = ("content-length", "120");
    let several = ("content-type", "Multipart/byteranges; boundary=x");
    assert!(ranged.cut(&headers(&[came, right])).is_ok());
    for further in [
        &[][..],
        &[("content-length", "121")],
        &[("content-length", "x")],
        &[right, ("content-length", "121")],
        &[right, several],
    ] {
        let told = [&[came], further].concat();
        assert!(ranged.cut(&headers(&told)).is_err(), "{further:?}");
    }
    let end = u64::MAX;
    let endless = read(&format!("bytes=0-{end}")).unwrap();
    let came = format!("bytes 0-{end}/*");
    let told = [("content-range", &came[..]), ("content-length", "0")];
    assert!(endless.cut(&headers(&told)).is_err());
}

#[test]
fn range_response_undeclared_is_never_the_whole() {
    let is_all = |range: &str, is_success, told: &[(&'static str, &str)]| {
        read(range)
            .unwrap()
            .is_all(is_success, &headers(told))
            .is_ok()
    };
    let length = |bytes| [("content-length", bytes)];
    for range in ["bytes=100-199", "bytes=11-", "bytes=-7"] {
        for told in [&length("120")[..], &length("1000"), &[]] {
            assert!(!is_all(range, true, told), "{range} {told:?}");
        }
        assert!(is_all(range, false, &[("content-range", "bytes */96")]));
        assert!(is_all(range, false, &length("9")));
        assert!(!is_all(range, false, &[("content-range", "bytes 0-9/96")]));
    }
    for (range, told, expected) in [
        ("bytes=0-", &[][..], true),
        ("bytes=10-", &[], true),
        ("bytes=0-99", &[], false),
        ("bytes=0-99", &length("110"), false),
        ("bytes=0-99", &length("109"), true),
        ("bytes=0-99", &length("1000"), true),
        (
            "bytes=0-99",
            &[("content-range", "bytes 0-109/1000")],
            false,
        ),
    ] {
        assert_eq!(is_all(range, true, told), expected, "{range} {told:?}");
    }
}

struct Comes(VecDeque<Frame<Bytes>>, bool);

impl Body for Comes {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Poll::Ready(self.0.pop_front().map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.1 && self.0.is_empty()
    }
}

/// Returns what is handed on of these bytes, and whether the body ended well.
async fn handed_on(
    text: &str,
    part: usize,
    is_end_known: bool,
    cut: DeliveredPart,
) -> (String, bool) {
    let pieces = text.as_bytes().chunks(part).map(Bytes::copy_from_slice);
    let mut frames: VecDeque<_> = pieces.map(Frame::data).collect();
    if !is_end_known {
        frames.push_back(Frame::trailers(HeaderMap::new()));
    }
    let mut window = WindowedBody::new(Comes(frames, is_end_known), &cut);
    let mut handed_on = String::new();
    loop {
        match poll_fn(|context| Pin::new(&mut window).poll_frame(context)).await {
            Some(Ok(frame)) => {
                let left = window.inner.0.iter().filter_map(Frame::data_ref);
                // Whoever knows the length does not ask for the end: it is the last to go.
                let is_last = window.take == 0;
                assert!(!is_last || left.count() == 0, "{text} {part}");
                handed_on += std::str::from_utf8(&frame.into_data().unwrap()).unwrap();
            }
            Some(Err(_)) => return (handed_on, false),
            None => {
                assert!(window.is_end_stream());
                return (handed_on, true);
            }
        }
    }
}

#[tokio::test]
async fn windowed_body_ends_with_announced_length() {
    let cut = |skip, take| DeliveredPart {
        skip,
        take,
        came: 10,
        first: 0,
        all: None,
    };
    for part in 1..=10 {
        for is_end_known in [false, true] {
            let text = |skip, take| handed_on("0123456789", part, is_end_known, cut(skip, take));
            assert_eq!(text(3, 4).await, ("3456".to_owned(), true));
            assert_eq!(text(0, 10).await, ("0123456789".to_owned(), true));
            assert_eq!(text(10, 0).await, (String::new(), true));
            assert!(!text(3, 8).await.1);
            // Other than it was said to be, nobody knows what was where.
            for came in [
                "012345678",
                "0123456789a",
                "0123456789abcdefghijklmnopqrstuvwxyz",
            ] {
                let handed_on = handed_on(came, part, is_end_known, cut(0, 4)).await;
                assert!(!handed_on.1, "{came} {part}");
            }
        }
    }
}
