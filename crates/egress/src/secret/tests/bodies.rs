//! Bodies that are searched and masked while they stream.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use hyper::header::{HeaderMap, HeaderValue};
use tokio::time::Sleep;

use super::super::{Coding, MaskedBody, Placeholders, SearchedBody, StreamError};
use super::{REAL, coding, masks, stands};

/// A pause longer than anything is held back.
const PAUSE: std::time::Duration = std::time::Duration::from_secs(2);

/// A body of frames; `None` is a pause.
struct Frames(VecDeque<Option<Frame<Bytes>>>, Option<Pin<Box<Sleep>>>);

impl Body for Frames {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        loop {
            if let Some(pause) = &mut self.1 {
                std::task::ready!(pause.as_mut().poll(context));
                self.1 = None;
            }
            match self.0.pop_front() {
                Some(Some(frame)) => return Poll::Ready(Some(Ok(frame))),
                Some(None) => self.1 = Some(Box::pin(tokio::time::sleep(PAUSE))),
                None => return Poll::Ready(None),
            }
        }
    }
}

fn pieces(bytes: &[u8], length: usize) -> Frames {
    let frames = bytes
        .chunks(length)
        .map(|piece| Some(Frame::data(Bytes::copy_from_slice(piece))));
    Frames(frames.collect(), None)
}

fn trailers(value: &str) -> Frame<Bytes> {
    let mut headers = HeaderMap::new();
    headers.insert("x-said", HeaderValue::from_str(value).unwrap());
    Frame::trailers(headers)
}

type Read<Error> = (Vec<Vec<u8>>, Option<HeaderMap>, Option<Error>);

/// Reads a whole body.
fn read<B: Body<Data = Bytes> + Unpin>(mut body: B) -> Read<B::Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (mut data, mut trailers) = (Vec::new(), None);
        loop {
            let frame = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context));
            match frame.await {
                None => return (data, trailers, None),
                Some(Err(error)) => return (data, trailers, Some(error)),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(piece) => data.push(piece.to_vec()),
                    Err(frame) => trailers = frame.into_trailers().ok(),
                },
            }
        }
    })
}

#[test]
fn masked_body_covers_codings_and_trailers() {
    let masks = masks(&[REAL]);
    let text = coding::text();
    let expected = masks.whole(&text).unwrap();
    assert!(stands(&text, REAL.as_bytes()) && !stands(&expected[..4000], REAL.as_bytes()));
    for length in [1, 13, 100_000] {
        let mut frames = pieces(&text, length);
        frames.0.push_back(Some(trailers(REAL)));
        let (data, trailers, error) = read(MaskedBody::new(frames, &masks, None));
        assert!(error.is_none() && data.concat() == expected);
        let said = trailers.unwrap()["x-said"].clone();
        assert!(said.len() == REAL.len() && said != REAL);
        for (coding, _, bytes) in coding::coded() {
            let body = MaskedBody::new(pieces(&bytes, length), &masks, Some(coding));
            assert!(body.is_decoded() && body.size_hint().exact().is_none());
            let (data, _, error) = read(body);
            assert!(error.is_none() && data.concat() == expected, "{coding:?}");
        }
    }
    let cut = &coding::coded()[0].2[..500];
    let (_, _, error) = read(MaskedBody::new(
        pieces(cut, 100),
        &masks,
        Some(Coding::Gzip),
    ));
    assert!(matches!(error, Some(StreamError::Undecodable(_))));
}

#[test]
fn masked_body_releases_held_bytes_on_pause() {
    let mut frames = pieces(b"data: yes", 100);
    frames.0.push_back(None);
    frames.0.extend(pieces(b", no", 100).0);
    let (data, _, error) = read(MaskedBody::new(frames, &masks(&[REAL]), None));
    assert!(error.is_none());
    assert_eq!(data, [&b"data: "[..], b"yes", b", ", b"no"]);
}

/// Returns a body of pieces with a pause after each but the last.
fn paused(pieces: &[&[u8]]) -> Frames {
    let frames = pieces.iter().flat_map(|piece| {
        let data = Frame::data(Bytes::copy_from_slice(piece));
        [Some(data), None]
    });
    let mut frames: VecDeque<_> = frames.collect();
    frames.pop_back();
    Frames(frames, None)
}

#[test]
fn masked_body_waits_for_possible_secret() {
    let masks = masks(&[REAL]);
    let text = format!("key: {REAL} end");
    let expected = masks.whole(text.as_bytes()).unwrap();
    let last = text.len() - " end".len() - 1;
    let (begun, rest) = text.as_bytes().split_at(last);
    let (data, _, error) = read(MaskedBody::new(paused(&[begun, rest]), &masks, None));
    assert!(error.is_none());
    assert_eq!(data[0], b"key: ");
    assert_eq!(data.concat(), expected);
    // Of each coding up to the last byte but a few, where all of the value is in it.
    for (coding, _, bytes) in coding::coded() {
        let expected = masks.whole(&coding::text()).unwrap();
        let (begun, rest) = bytes.split_at(bytes.len() / 2);
        let body = MaskedBody::new(paused(&[begun, rest]), &masks, Some(coding));
        let (data, _, error) = read(body);
        assert!(error.is_none() && data.concat() == expected, "{coding:?}");
    }
    // On its way out nothing is secret, and somebody may wait for it.
    let body = MaskedBody::outgoing(paused(&[begun, rest]), masks.stream());
    let (data, _, error) = read(body);
    assert!(error.is_none());
    assert_eq!(data[1], &begun[5..]);
}

#[test]
fn masked_body_stalled_in_secret_breaks_off() {
    let masks = masks(&[REAL]);
    let stalled = |pieces: &[&[u8]]| {
        let mut body = MaskedBody::new(paused(pieces), &masks, None);
        body.stall_max = Some(PAUSE / 4);
        let (data, _, error) = read(body);
        (
            data.concat(),
            matches!(error, Some(StreamError::Stalled(_))),
        )
    };
    let (begun, rest) = REAL.as_bytes().split_at(REAL.len() - 1);
    let held = [b"key: ", begun].concat();
    assert_eq!(stalled(&[&held, rest]), (b"key: ".to_vec(), true));
    // What is no secret at all does as well: it makes no difference.
    let word = b"key: ItIsAllTheSameWhatThisWordIs";
    assert_eq!(stalled(&[word, b" "]), (b"key: ".to_vec(), true));
    // Nor does the end of a message, which whoever sends it puts where they like.
    let message = |text: &[u8]| [&[0, 0, 0, 0, text.len() as u8][..], text].concat();
    let forged = [&message(b".")[..], &message(begun)].concat();
    assert_eq!(stalled(&[&forged, rest]), (forged[..11].to_vec(), true));
    // The control: one that ends with few such characters goes on.
    let plain = [message(b"it is done."), message(b".")];
    assert_eq!(stalled(&[&plain[0], &plain[1]]), (plain.concat(), false));
}

#[test]
fn searched_body_placeholder_ends_it() {
    let placeholders = Placeholders::new(vec![REAL.as_bytes().to_vec()]).unwrap();
    let text = coding::text();
    let harmless = vec![b'x'; 5000];
    for length in [1, 13, 100_000] {
        let body = SearchedBody::new(pieces(&text, length), &placeholders, None);
        let (data, _, error) = read(body);
        assert!(matches!(error, Some(StreamError::Found(_))));
        assert!(!stands(&data.concat(), REAL.as_bytes()));
        for (coding, _, bytes) in coding::coded() {
            let (data, _, error) = read(SearchedBody::new(
                pieces(&bytes, length),
                &placeholders,
                Some(coding),
            ));
            assert!(matches!(error, Some(StreamError::Found(_))), "{coding:?}");
            assert!(data.concat().len() < bytes.len());
        }
        let mut frames = pieces(&harmless, length);
        frames.0.push_back(Some(trailers("nothing")));
        let (data, trailers, error) = read(SearchedBody::new(frames, &placeholders, None));
        assert!(error.is_none() && trailers.is_some() && data.concat() == harmless);
    }
    let mut frames = pieces(&harmless, 1000);
    frames.0.push_back(Some(trailers(REAL)));
    let (_, trailers, error) = read(SearchedBody::new(frames, &placeholders, None));
    assert!(trailers.is_none() && matches!(error, Some(StreamError::Found(_))));
    // What cannot be read does not leave.
    let (data, _, error) = read(SearchedBody::new(
        pieces(&harmless, 1000),
        &placeholders,
        Some(Coding::Gzip),
    ));
    assert!(data.is_empty() && matches!(error, Some(StreamError::Undecodable(_))));
}
