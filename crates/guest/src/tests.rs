#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use atoll_frame::wire::Malformed;
use atoll_sys::socket;
use proptest::prelude::*;

use crate::{Answer, Ask, Change, Entry, EntryKind, FileUse, TELL_BYTES_MAX, serve};

/// A file server in a thread, with the other end of its socket.
fn server() -> OwnedFd {
    let (near, far) = socket::pair().unwrap();
    std::thread::spawn(move || serve(&far));
    near
}

fn hear(socket: &OwnedFd) -> (Answer, Option<OwnedFd>) {
    let mut buffer = vec![0; TELL_BYTES_MAX];
    let (got, mut descriptors) = socket::receive(socket.as_fd(), &mut buffer).unwrap();
    (
        Answer::from_bytes(&buffer[..got]).unwrap(),
        descriptors.pop(),
    )
}

fn ask(socket: &OwnedFd, ask: &Ask) -> Answer {
    socket::send(socket.as_fd(), &ask.to_bytes(), &[]).unwrap();
    hear(socket).0
}

fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

fn only(answer: Answer) -> Entry {
    match answer {
        Answer::Entries {
            mut entries,
            more: false,
        } if entries.len() == 1 => entries.remove(0),
        other => panic!("{other:?}"),
    }
}

#[test]
fn files_are_made_described_moved_and_removed() {
    let top = tempfile::tempdir().unwrap();
    let at = |name: &str| bytes(&top.path().join(name));
    let socket = server();
    let made = only(ask(&socket, &Ask::MakeDirectory { path: at("a/b") }));
    assert_eq!((made.kind, made.mode), (EntryKind::Directory, 0o755));
    let again = ask(&socket, &Ask::MakeDirectory { path: at("a/b") });
    assert_eq!(again, Answer::Failed { error: 17 });
    fs::write(top.path().join("a/b/file"), "content").unwrap();
    symlink("b/file", top.path().join("a/link")).unwrap();
    symlink("nowhere", top.path().join("a/loose")).unwrap();
    let link = only(ask(&socket, &Ask::Stat { path: at("a/link") }));
    let real = top.path().canonicalize().unwrap().join("a/b/file");
    assert_eq!(
        (link.kind, link.size, link.target),
        (EntryKind::File, 7, Some(bytes(&real)))
    );
    let loose = only(ask(
        &socket,
        &Ask::Stat {
            path: at("a/loose"),
        },
    ));
    assert_eq!(
        (loose.kind, loose.target),
        (EntryKind::Link, Some(b"nowhere".to_vec()))
    );
    let moved = Ask::Move {
        from: at("a/b/file"),
        to: at("c/d/other"),
    };
    assert_eq!(only(ask(&socket, &moved)).path, at("c/d/other"));
    assert_eq!(ask(&socket, &moved), Answer::Failed { error: 2 });
    for _ in 0..2 {
        assert_eq!(ask(&socket, &Ask::Remove { path: at("a") }), Answer::Done);
    }
    assert_eq!(
        ask(&socket, &Ask::Stat { path: at("a") }),
        Answer::Failed { error: 2 }
    );
}

#[test]
fn a_list_of_any_length_comes_in_order() {
    let top = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..2_000).map(|number| format!("{number:0100}")).collect();
    for name in &names {
        fs::write(top.path().join(name), "").unwrap();
    }
    fs::create_dir_all(top.path().join("z/deep")).unwrap();
    let socket = server();
    for (depth, further) in [(1, 1), (2, 2)] {
        let list = Ask::List {
            path: bytes(top.path()),
            depth,
        };
        socket::send(socket.as_fd(), &list.to_bytes(), &[]).unwrap();
        let mut all = Vec::new();
        loop {
            match hear(&socket).0 {
                Answer::Entries { entries, more } => {
                    all.extend(entries);
                    if !more {
                        break;
                    }
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(all.len(), names.len() + further);
        assert!(all.is_sorted_by(|one, other| one.path < other.path));
    }
    let of_file = Ask::List {
        path: bytes(&top.path().join(&names[0])),
        depth: 1,
    };
    assert_eq!(ask(&socket, &of_file), Answer::Failed { error: 20 });
}

#[test]
fn only_regular_files_are_opened() {
    let top = tempfile::tempdir().unwrap();
    let at = |name: &str| bytes(&top.path().join(name));
    let socket = server();
    let write = Ask::Open {
        path: at("new/file"),
        file_use: FileUse::Write(0o640),
    };
    socket::send(socket.as_fd(), &write.to_bytes(), &[]).unwrap();
    let (answer, file) = hear(&socket);
    assert_eq!((answer, file.is_some()), (Answer::File, true));
    let mode = fs::metadata(top.path().join("new/file"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o640);
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, top.path().join("pipe"), kind, mode, 0).unwrap();
    symlink("/dev/zero", top.path().join("zero")).unwrap();
    for (name, errors) in [
        ("new", [21, 21]),
        ("pipe", [22, 6]),
        ("zero", [22, 22]),
        ("none", [2, 0]),
    ] {
        for (file_use, error) in [FileUse::Read, FileUse::Write(0o600)]
            .into_iter()
            .zip(errors)
        {
            let open = Ask::Open {
                path: at(name),
                file_use,
            };
            if error > 0 {
                assert_eq!(
                    ask(&socket, &open),
                    Answer::Failed { error },
                    "{name} {file_use:?}"
                );
            }
        }
    }
}

#[test]
fn changes_are_told_in_order_and_up_to_the_question() {
    let top = tempfile::tempdir().unwrap();
    fs::create_dir(top.path().join("sub")).unwrap();
    let socket = server();
    let watch = Ask::Watch {
        path: bytes(top.path()),
        recursive: true,
    };
    assert_eq!(ask(&socket, &watch), Answer::Done);
    let place = |name: &str| top.path().join(name);
    fs::write(place("sub/a"), "x").unwrap();
    fs::rename(place("sub/a"), place("b")).unwrap();
    fs::set_permissions(place("b"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::remove_file(place("b")).unwrap();
    socket::send(socket.as_fd(), &watch.to_bytes(), &[]).unwrap();
    let mut told = Vec::new();
    loop {
        match hear(&socket).0 {
            Answer::Changed {
                change,
                name,
                lost: false,
            } => {
                told.push((change, String::from_utf8(name).unwrap()));
            }
            Answer::Done => break,
            other => panic!("{other:?}"),
        }
    }
    let expected = [
        (Change::Created, "sub/a"),
        (Change::Written, "sub/a"),
        (Change::Renamed, "sub/a"),
        (Change::Created, "b"),
        (Change::Attributes, "b"),
        (Change::Removed, "b"),
    ];
    let expected: Vec<_> = expected
        .map(|(change, name)| (change, name.to_owned()))
        .into();
    assert_eq!(told, expected);
}

#[test]
fn other_paths_and_modes_are_refused() {
    let read = |path: &[u8]| {
        Ask::from_bytes(
            &Ask::Stat {
                path: path.to_vec(),
            }
            .to_bytes(),
        )
        .map(drop)
    };
    let longest = [&b"/"[..], &[b'a'; 4095]].concat();
    assert_eq!(read(&longest), Ok(()));
    assert_eq!(
        read(&[&longest[..], b"a"].concat()),
        Err(Malformed::TooMany)
    );
    assert_eq!(read(b"w"), Err(Malformed::Tag));
    assert_eq!(read(b""), Err(Malformed::Tag));
    assert_eq!(read(b"/a\0"), Err(Malformed::Nul));
    let set_id = Ask::Open {
        path: b"/w".to_vec(),
        file_use: FileUse::Write(0o4755),
    };
    assert_eq!(Ask::from_bytes(&set_id.to_bytes()), Err(Malformed::Tag));
}

fn any_entry() -> impl Strategy<Value = Entry> {
    let path = || proptest::collection::vec(1_u8.., 0..40);
    let kind = prop::sample::select(vec![
        EntryKind::File,
        EntryKind::Directory,
        EntryKind::Link,
        EntryKind::Other,
    ]);
    let numbers = (
        any::<u64>(),
        any::<u16>(),
        any::<u32>(),
        any::<u32>(),
        any::<i64>(),
        any::<u32>(),
    );
    (path(), kind, numbers, prop::option::of(path())).prop_map(|(path, kind, numbers, target)| {
        let (size, mode, uid, gid, modified_s, modified_ns) = numbers;
        Entry {
            path,
            kind,
            size,
            mode,
            uid,
            gid,
            modified_s,
            modified_ns,
            target,
        }
    })
}

proptest! {
    #[test]
    fn answers_are_read_as_written(entries in prop::collection::vec(any_entry(), 0..8), more: bool) {
        let answer = Answer::Entries { entries, more };
        prop_assert_eq!(Answer::from_bytes(&answer.to_bytes()), Ok(answer));
    }

    #[test]
    fn whatever_comes_is_read_or_refused(message in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(answer) = Answer::from_bytes(&message) {
            prop_assert_eq!(answer.to_bytes(), message.clone());
        }
        if let Ok(ask) = Ask::from_bytes(&message) {
            prop_assert_eq!(ask.to_bytes(), message);
        }
    }
}
