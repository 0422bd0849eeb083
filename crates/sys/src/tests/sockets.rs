//! Messages with descriptors.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use super::{in_child, number, open_numbers};
use crate::{descriptor, socket};

#[test]
fn messages_keep_their_borders() {
    let (one, two) = socket::pair().unwrap();
    let mut buffer = [0_u8; 16];
    for message in [&b"first"[..], b"2"] {
        socket::send(one.as_fd(), message, &[]).unwrap();
    }
    for expected in [&b"first"[..], b"2"] {
        let (got, descriptors) = socket::receive(two.as_fd(), &mut buffer).unwrap();
        assert_eq!(&buffer[..got], expected);
        assert!(descriptors.is_empty());
    }
    drop(one);
    let (got, _) = socket::receive(two.as_fd(), &mut buffer).unwrap();
    assert_eq!(got, 0, "the other end is gone");
    // An error, not a signal that ends the test.
    assert_eq!(number(socket::send(two.as_fd(), b"x", &[])), libc::EPIPE);
}

#[test]
fn descriptors_arrive_in_order_and_work() {
    let (one, two) = socket::pair().unwrap();
    let pipes: Vec<_> = (0..socket::DESCRIPTORS_MAX)
        .map(|_| descriptor::pipe().unwrap())
        .collect();
    let ends: Vec<BorrowedFd<'_>> = pipes.iter().map(|(_, writing)| writing.as_fd()).collect();
    socket::send(one.as_fd(), b"m", &ends).unwrap();
    let (got, received) = socket::receive(two.as_fd(), &mut [0_u8; 8]).unwrap();
    assert_eq!((got, received.len()), (1, socket::DESCRIPTORS_MAX));
    for (index, ((reading, writing), end)) in pipes.into_iter().zip(received).enumerate() {
        drop(writing);
        // SAFETY: F_GETFD touches no memory.
        let flags = unsafe { libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(&end), libc::F_GETFD) };
        assert_eq!(flags, libc::FD_CLOEXEC);
        let mut end = std::fs::File::from(end);
        end.write_all(&[index as u8]).unwrap();
        drop(end);
        let mut content = Vec::new();
        std::fs::File::from(reading)
            .read_to_end(&mut content)
            .unwrap();
        assert_eq!(content, [index as u8]);
    }
}

#[test]
fn more_descriptors_than_a_message_carries_are_refused() {
    let (one, two) = socket::pair().unwrap();
    let many = vec![two.as_fd(); socket::DESCRIPTORS_MAX + 1];
    let error = socket::send(one.as_fd(), b"m", &many).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_message_that_was_cut_is_an_error_and_leaks_nothing() {
    // Alone in its process, so that the numbers are its own.
    in_child(|| {
        let (one, two) = socket::pair().unwrap();
        let before = open_numbers();
        for _ in 0..10 {
            socket::send(
                one.as_fd(),
                b"longer than the buffer",
                &[one.as_fd(), two.as_fd()],
            )
            .unwrap();
            let error = socket::receive(two.as_fd(), &mut [0_u8; 4]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidData);
            assert_eq!(open_numbers(), before);
        }
        // The line itself still works.
        socket::send(one.as_fd(), b"m", &[]).unwrap();
        assert_eq!(socket::receive(two.as_fd(), &mut [0_u8; 4]).unwrap().0, 1);
    });
}

#[test]
fn a_set_of_descriptors_that_was_cut_is_an_error_and_leaks_nothing() {
    in_child(|| {
        let (one, two) = socket::pair().unwrap();
        // More than any receiver here has room for, by hand.
        let raw: Vec<i32> = vec![std::os::fd::AsRawFd::as_raw_fd(&one); 200];
        send_many(&one, &raw);
        let before = open_numbers();
        let error = socket::receive(two.as_fd(), &mut [0_u8; 8]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert_eq!(open_numbers(), before);
    });
}

/// Sends one byte with more descriptors than this crate would ever send.
fn send_many(socket: &std::os::fd::OwnedFd, raw: &[i32]) {
    let bytes = size_of_val(raw);
    let mut control = vec![0_u64; 256];
    let mut byte = *b"m";
    let mut part = libc::iovec {
        iov_base: byte.as_mut_ptr().cast(),
        iov_len: 1,
    };
    // SAFETY: the records live through the calls; `control` is aligned and has
    // room for the header and two hundred numbers.
    unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = libc::CMSG_SPACE(bytes as u32) as usize;
        let first = libc::CMSG_FIRSTHDR(&raw const header);
        (*first).cmsg_level = libc::SOL_SOCKET;
        (*first).cmsg_type = libc::SCM_RIGHTS;
        (*first).cmsg_len = libc::CMSG_LEN(bytes as u32) as usize;
        std::ptr::copy_nonoverlapping(raw.as_ptr().cast(), libc::CMSG_DATA(first), bytes);
        let number = std::os::fd::AsRawFd::as_raw_fd(socket);
        assert_eq!(libc::sendmsg(number, &raw const header, 0), 1);
    }
}
