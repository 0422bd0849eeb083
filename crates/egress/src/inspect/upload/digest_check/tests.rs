//! Bodies with an expected digest, however they arrive.

use std::future::poll_fn;

use hyper::HeaderMap;

use super::*;

/// A body of these frames, of known end or not.
struct Pieces {
    frames: VecDeque<Frame<Bytes>>,
    is_end_known: bool,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Poll::Ready(self.frames.pop_front().map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.is_end_known && self.frames.is_empty()
    }
}

fn data(text: &str) -> Frame<Bytes> {
    Frame::data(Bytes::copy_from_slice(text.as_bytes()))
}

/// Returns what is sent of these frames with the digest of this text, and whether they end well.
async fn left(told: &str, frames: Vec<Frame<Bytes>>, is_end_known: bool) -> (String, bool) {
    let misuse = Misuse {
        name: "key".parse().unwrap(),
        why: "it is another one".to_owned(),
        instead: String::new(),
        is_alert: true,
    };
    let mut told = DigestCheck::new(digest(told.as_bytes()), misuse);
    let frames = frames.into();
    let mut rest = Pieces {
        frames,
        is_end_known,
    };
    let mut left = String::new();
    loop {
        match poll_fn(|context| told.poll(&mut rest, context)).await {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(bytes) => left += std::str::from_utf8(&bytes).unwrap(),
                Err(_) => left += " and trailers",
            },
            Some(Err(broken)) => {
                assert!(matches!(broken, BodyError::AnotherBody(_)), "{broken}");
                return (left, false);
            }
            None => {
                assert!(told.is_over());
                return (left, true);
            }
        }
    }
}

#[tokio::test]
async fn body_with_other_digest_is_not_sent_whole() {
    for is_end_known in [false, true] {
        let pieces = || vec![data("one "), data("two "), data("three")];
        let all = left("one two three", pieces(), is_end_known).await;
        assert_eq!(all, ("one two three".to_owned(), true));
        for told in ["one two threE", "one two three ", "", "one two thre"] {
            let (left, ended) = left(told, pieces(), is_end_known).await;
            let before = if is_end_known { "one " } else { "one two " };
            assert_eq!((left.as_str(), ended), (before, false), "{told}");
        }
        // An empty piece is no end that may wait in the place of the last one.
        let empty = || vec![data("one "), data("two"), data(""), data("")];
        let (sent, ended) = left("another", empty(), is_end_known).await;
        assert_eq!((sent.as_str(), ended), ("one ", false));
        let all = left("one two", empty(), is_end_known).await;
        assert_eq!(all, ("one two".to_owned(), true));
        let one = left("another", vec![data("one")], is_end_known).await;
        assert_eq!(one, (String::new(), false));
        let trailers = || vec![data("one"), Frame::trailers(HeaderMap::new())];
        let all = left("one", trailers(), is_end_known).await;
        assert_eq!(all, ("one and trailers".to_owned(), true));
        assert_eq!(
            left("two", trailers(), is_end_known).await,
            (String::new(), false)
        );
        let none = left("", Vec::new(), is_end_known).await;
        assert_eq!(none, (String::new(), true));
    }
}
