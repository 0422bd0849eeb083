//! Frames in every split, masked and not.

use super::*;
use crate::secret::{Secret, placeholder};

const REAL: &[u8] = b"ghp_r3alK3yOfTh1sT3stWh1chN0bodyM4yS33";

fn stands() -> Vec<u8> {
    placeholder(REAL, &[7; 32]).unwrap()
}

fn frame(first: u8, payload: &[u8], key: Option<[u8; 4]>) -> Vec<u8> {
    let masked = if key.is_some() { 0x80 } else { 0 };
    let mut frame = vec![first];
    match payload.len() {
        length @ 0..126 => frame.push(masked | length as u8),
        length @ 126..65536 => {
            frame.push(masked | 126);
            frame.extend((length as u16).to_be_bytes());
        }
        length => {
            frame.push(masked | 127);
            frame.extend((length as u64).to_be_bytes());
        }
    }
    frame.extend(key.iter().flatten());
    let begin = frame.len();
    frame.extend(payload);
    keyed(&mut frame[begin..], key, 0);
    frame
}

/// Returns a long message in two frames with a ping between them, and a short one.
fn talk(value: &[u8], key: Option<[u8; 4]>) -> Vec<u8> {
    let long = [&[b'.'; 70_000][..], value, b" end"].concat();
    let (one, two) = long.split_at(70_000 + 9);
    let ping = [b"ping ", value].concat();
    [
        frame(0x01, one, key),
        frame(0x89, &ping, key),
        frame(0x80, two, key),
        frame(0x82, value, key),
    ]
    .concat()
}

fn masked(stream: &[u8], length: usize) -> Result<Vec<u8>, Fault> {
    let secret = Secret::new(REAL.to_vec()).unwrap();
    let masks = Masks::new(vec![(secret, stands())]).unwrap();
    let (mut masked, mut out) = (FrameMask::new(&masks), Vec::new());
    for chunk in stream.chunks(length) {
        masked.feed(chunk, &mut out)?;
    }
    assert!(!masked.holds());
    Ok(out)
}

fn searched(stream: &[u8], length: usize) -> Result<(), Fault> {
    let mut searched = FrameSearch::new(&Placeholders::new(vec![stands()]).unwrap());
    stream
        .chunks(length)
        .try_for_each(|chunk| searched.feed(chunk))
}

#[test]
fn web_socket_frames_are_masked_in_place() {
    for key in [None, Some([1, 2, 3, 4])] {
        for length in [1, 3, 125, 4096, 1 << 20] {
            let out = masked(&talk(REAL, key), length).unwrap();
            assert!(out == talk(&stands(), key), "{key:?}, {length}");
        }
    }
}

#[test]
fn web_socket_partial_value_is_withheld() {
    let secret = Secret::new(REAL.to_vec()).unwrap();
    let masks = Masks::new(vec![(secret, stands())]).unwrap();
    for key in [None, Some([1, 2, 3, 4])] {
        // A frame for each byte, with a ping after each: more parts than wait for short ones.
        let talk = |value: &[u8]| {
            let frames = value.iter().enumerate().flat_map(|(place, byte)| {
                let first = if place == 0 { 0x01 } else { 0x00 };
                [frame(first, &[*byte], key), frame(0x89, b"ping", key)]
            });
            let last = frame(0x80, b"!", key);
            frames.chain([last]).collect::<Vec<_>>().concat()
        };
        let (whole, expected) = (talk(REAL), talk(&stands()));
        let told = whole.len() * 8 / REAL.len();
        for step in [1, 13, 200] {
            let (mut masked, mut out) = (FrameMask::new(&masks), Vec::new());
            let mut is_held = false;
            for chunk in whole.chunks(step) {
                masked.feed(chunk, &mut out).unwrap();
                is_held |= masked.holds() && !masked.is_short();
                if masked.holds() && masked.is_short() {
                    masked.release(&mut out);
                }
            }
            assert!(is_held && !masked.holds());
            assert_eq!(out.len(), expected.len());
            assert!(out[told..] == expected[told..], "{key:?}, {step}");
        }
    }
    // No end of it is waited for in ever more memory.
    let begun = [frame(0x01, b"12345678", None), [0x00, 0x00].repeat(6000)].concat();
    let fault = masked(&begun, 64).unwrap_err();
    assert_eq!(fault, Fault::Scattered);
    let short = [frame(0x01, b"1234567", None), [0x00, 0x00].repeat(6000)].concat();
    assert_eq!(masked(&short, 64).unwrap().len(), short.len());
}

#[test]
fn web_socket_value_across_messages_is_masked() {
    let (one, two) = REAL.split_at(9);
    let stream = [frame(0x82, one, None), frame(0x82, two, None)].concat();
    let expected = [frame(0x82, one, None), frame(0x82, &stands()[9..], None)].concat();
    assert_eq!(masked(&stream, 4096).unwrap(), expected);
}

#[test]
fn web_socket_placeholder_across_frames_is_found() {
    for key in [None, Some([9, 8, 7, 6])] {
        for length in [1, 7, 4096, 1 << 20] {
            assert_eq!(searched(&talk(b"nothing of the kind", key), length), Ok(()));
            let cut = [
                frame(1, &stands()[..9], key),
                frame(0x80, &stands()[9..], key),
            ];
            for carries in [
                talk(&stands(), key),
                cut.concat(),
                frame(0x89, &stands(), key),
                frame(0x88, &stands(), key),
            ] {
                let fault = searched(&carries, length).unwrap_err();
                assert!(matches!(fault, Fault::Found(_)), "{key:?}, {length}");
            }
        }
    }
}

#[test]
fn web_socket_malformed_frame_is_stopped() {
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0xc1, 0x00],
        &[0x83, 0x00],
        &[0x09, 0x00],
        &[0x89, 0x7e, 0x00, 0x7e],
    ] {
        assert_eq!(searched(bytes, 1), Err(Fault::Malformed), "{bytes:?}");
        assert_eq!(masked(bytes, 64), Err(Fault::Malformed), "{bytes:?}");
    }
}
