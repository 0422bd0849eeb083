//! Sealed memory, numbers of descriptors, waiting.

use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use super::{call, in_child, last_error, number, open_numbers};
use crate::descriptor;

#[test]
fn sealed_memory_cannot_be_changed() {
    let memory = descriptor::sealed_memory(c"test", b"as it is").unwrap();
    assert!(descriptor::is_sealed(memory.as_fd()).unwrap());
    let raw = memory.as_raw_fd();
    assert_eq!(number(descriptor::write_all(&memory, b"more")), libc::EPERM);
    for length in [0, 100] {
        // SAFETY: integers only.
        assert_eq!(unsafe { libc::ftruncate(raw, length) }, -1);
        assert_eq!(last_error(), libc::EPERM, "{length}");
    }
    let shared = libc::MAP_SHARED as u64;
    let writable = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    assert_eq!(
        call(libc::SYS_mmap, [0, 4_096, writable, shared, raw as u64, 0]),
        Err(libc::EPERM)
    );
    // Seals themselves are sealed, and a way around by opening anew is none.
    // SAFETY: integers only.
    let sealed = unsafe { libc::fcntl(raw, libc::F_ADD_SEALS, libc::F_SEAL_FUTURE_WRITE) };
    assert_eq!(sealed, -1);
    let again = std::ffi::CString::new(format!("/proc/self/fd/{raw}")).unwrap();
    if let Ok(again) = descriptor::open_for_writing(&again, libc::O_RDWR) {
        assert_eq!(number(descriptor::write_all(&again, b"more")), libc::EPERM);
    }
    let content = descriptor::read_from_start(memory.as_fd(), 100).unwrap();
    assert_eq!(content, b"as it is");
}

#[test]
fn what_is_not_sealed_is_told_apart() {
    // SAFETY: the name is a C string.
    let raw = unsafe { libc::memfd_create(c"open".as_ptr(), libc::MFD_ALLOW_SEALING) };
    let memory = descriptor::owned(raw);
    let seals = [
        libc::F_SEAL_SHRINK,
        libc::F_SEAL_GROW,
        libc::F_SEAL_WRITE,
        libc::F_SEAL_SEAL,
    ];
    for seal in seals {
        assert!(!descriptor::is_sealed(memory.as_fd()).unwrap());
        // SAFETY: integers only.
        assert_eq!(unsafe { libc::fcntl(raw, libc::F_ADD_SEALS, seal) }, 0);
    }
    assert!(descriptor::is_sealed(memory.as_fd()).unwrap());
    let null: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
    assert_eq!(number(descriptor::is_sealed(null.as_fd())), libc::EINVAL);
}

#[test]
fn reading_a_whole_file_has_its_limit() {
    let content: Vec<u8> = (0..40_000_u32).map(|one| one as u8).collect();
    let memory = descriptor::sealed_memory(c"test", &content).unwrap();
    let read = |bytes_max| descriptor::read_from_start(memory.as_fd(), bytes_max);
    assert_eq!(read(40_000).unwrap(), content);
    assert_eq!(
        read(40_000).unwrap(),
        content,
        "it starts at the start again"
    );
    assert_eq!(read(39_999).unwrap_err().kind(), ErrorKind::InvalidData);
    let empty = descriptor::sealed_memory(c"test", b"").unwrap();
    assert_eq!(descriptor::read_from_start(empty.as_fd(), 0).unwrap(), b"");
}

fn closes_on_exec(number: i32) -> bool {
    // SAFETY: F_GETFD takes no further argument.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    assert!(flags >= 0, "{number} is closed");
    flags & libc::FD_CLOEXEC != 0
}

#[test]
fn every_new_descriptor_closes_on_exec() {
    let (one, two) = descriptor::pipe().unwrap();
    let (three, four) = crate::socket::pair().unwrap();
    let memory = descriptor::sealed_memory(c"test", b"").unwrap();
    let place = descriptor::open_place(None, c"/").unwrap();
    let beneath = descriptor::open_beneath(place.as_fd(), c"dev/null", 0, 0).unwrap();
    let written = descriptor::open_for_writing(c"/dev/null", libc::O_WRONLY).unwrap();
    for fd in [one, two, three, four, memory, place, beneath, written] {
        assert!(closes_on_exec(fd.as_raw_fd()));
    }
}

#[test]
fn descriptors_are_put_at_their_numbers() {
    in_child(|| {
        let (reading, writing) = descriptor::pipe().unwrap();
        descriptor::place_at(writing.as_fd(), 40).unwrap();
        assert!(!closes_on_exec(40));
        assert!(
            closes_on_exec(writing.as_raw_fd()),
            "the original stays as it was"
        );
        // Onto itself: it survives exec from then on.
        descriptor::place_at(reading.as_fd(), reading.as_raw_fd()).unwrap();
        assert!(!closes_on_exec(reading.as_raw_fd()));
        let inherited = descriptor::inherited(40).unwrap();
        assert!(closes_on_exec(40));
        descriptor::write_all(&inherited, b"x").unwrap();
        let mut byte = [0_u8];
        assert_eq!(descriptor::read(reading.as_fd(), &mut byte).unwrap(), 1);
        assert_eq!(number(descriptor::inherited(41)), libc::EBADF);
    });
}

#[test]
fn descriptors_are_closed_from_a_number_on() {
    in_child(|| {
        let null = descriptor::open_for_writing(c"/dev/null", 0).unwrap();
        for number in [50, 60, 900] {
            descriptor::place_at(null.as_fd(), number).unwrap();
        }
        descriptor::close_on_exec_from(60).unwrap();
        assert!(!closes_on_exec(50));
        assert!(closes_on_exec(60) && closes_on_exec(900));
        std::mem::forget(null);
        descriptor::close_from(3).unwrap();
        assert!(
            open_numbers().iter().all(|number| *number < 3),
            "{:?}",
            open_numbers()
        );
    });
}

#[test]
fn waiting_ends_with_something_to_read_or_the_time() {
    let (reading, writing) = descriptor::pipe().unwrap();
    let (other, _kept) = descriptor::pipe().unwrap();
    let ready = |timeout_ms| {
        descriptor::wait_readable([Some(reading.as_fd()), Some(other.as_fd())], timeout_ms).unwrap()
    };
    let started = Instant::now();
    assert_eq!(ready(Some(30)), [false, false]);
    assert!(started.elapsed() >= Duration::from_millis(30));
    assert_eq!(ready(Some(0)), [false, false]);
    descriptor::write_all(&writing, b"x").unwrap();
    assert_eq!(ready(None), [true, false]);
    descriptor::read(reading.as_fd(), &mut [0_u8; 8]).unwrap();
    drop(writing);
    assert_eq!(ready(None), [true, false], "the other end is gone");
    assert_eq!(
        descriptor::read(reading.as_fd(), &mut [0_u8; 8]).unwrap(),
        0
    );
}
