//! The encoding, byte for byte; its uniqueness; and that arbitrary bytes are refused and do nothing
//! else.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::wire::{LIST_MAX, TEXT_BYTES_MAX};
use crate::*;

/// Returns a description with every part present, and numbers that identify their places.
fn full_spec() -> SandboxSpec {
    SandboxSpec {
        identity: Identity::Shifted {
            uid: 1000,
            gid: 1001,
            base: 0x7000_0000,
            count: 65_536,
        },
        capabilities: ROOT_CAPABILITIES,
        fenced: false,
        nesting: Nesting::Refused,
        host_name: b"atoll".to_vec(),
        cgroup_tasks: vec![b"/c/memory/tasks".to_vec(), b"/c/pids/tasks".to_vec()],
        cgroup_unified: Some(b"/c/unified".to_vec()),
        cgroup_directories: vec![b"/c/memory".to_vec()],
        memory: Room {
            bytes: 1 << 28,
            inodes: 65_536,
        },
        operations: every_operation(),
        permissions: vec![Permission {
            path: b"/w".to_vec(),
            rights: 0b1101,
            connect: true,
        }],
        landlock_version: 7,
        resource_limits: vec![ResourceLimit {
            resource: 6,
            value: 4_096,
        }],
        watch: Watch {
            memory_bytes: 1 << 30,
            wall_clock_ms: 60_000,
        },
        deny_debugging: true,
        deny_sockets: false,
        deny_set_id: true,
        deny_memory_programs: false,
        funnel: Some(Funnel {
            connections_max: 512,
            host_ports: std::array::from_fn(|index| [11434, 0][index.min(1)]),
        }),
        inward: 64,
        terminal: Some(Terminal {
            rows: 24,
            columns: 80,
        }),
        one_exec: true,
    }
}

fn full_exec() -> ExecSpec {
    ExecSpec {
        terminal: ExecTerminal::Own(Terminal {
            rows: 24,
            columns: 80,
        }),
        arguments: vec![b"sh".to_vec(), b"-c".to_vec(), b"exit 3".to_vec()],
        environment: vec![b"PATH=/usr/bin".to_vec()],
        directory: b"/w".to_vec(),
        mode_mask: 0o027,
        user: Some(User { uid: 3, gid: 4 }),
    }
}

fn every_operation() -> Vec<Operation> {
    let path = || b"p".to_vec();
    let source = |name: &[u8], inode: u64| Source {
        path: name.to_vec(),
        device: 0x0801,
        inode,
    };
    vec![
        Operation::Directory {
            path: path(),
            mode: 0o755,
            owned: true,
        },
        Operation::Link {
            path: path(),
            to: b"/run".to_vec(),
        },
        Operation::File {
            path: path(),
            mode: 0o600,
            content: b"a\0b".to_vec(),
        },
        Operation::Memory {
            path: path(),
            mode: 0o1777,
        },
        Operation::ReadOnly {
            path: path(),
            source: source(b"/usr", 1),
            empty: source(b"/empty", 2),
            as_caller: true,
        },
        Operation::ReadOnlyFile {
            path: path(),
            source: source(b"/etc/hosts", 3),
            as_caller: false,
        },
        Operation::Layer {
            path: path(),
            lower: vec![source(b"/l", 4), source(b"/m", 10)],
            own: 1,
            upper: source(b"/u", 5),
            work: source(b"/k", 6),
            linked: true,
            volatile: true,
        },
        Operation::Writable {
            path: path(),
            source: source(b"/w", 7),
            as_caller: true,
        },
        Operation::ReadOnlyWhole {
            path: path(),
            source: source(b"/etc", 9),
        },
        Operation::Seal { path: path() },
        Operation::Part { path: path() },
        Operation::Device {
            path: path(),
            source: source(b"/dev/null", 8),
        },
        Operation::Terminals {
            path: path(),
            max: 64,
        },
        Operation::Processes { path: path() },
        Operation::HideFile {
            path: path(),
            null: source(b"/dev/null", 8),
        },
        Operation::HideDirectory { path: path() },
        Operation::Pin { path: path() },
        Operation::Inexecutable { path: path() },
    ]
}

fn every_report() -> Vec<(Report, Vec<u8>)> {
    let failed = Report::Failed {
        stage: Stage::Tree,
        error: 2,
        detail: b"usr".to_vec(),
    };
    vec![
        (Report::Started { pid: 0x0102_0304 }, vec![0, 4, 3, 2, 1]),
        (Report::Terminal, vec![1]),
        (Report::Network, vec![11]),
        (Report::Ready, vec![2]),
        (Report::ServerEnded, vec![13]),
        (Report::Executing { pid: 0x0102 }, vec![14, 2, 1, 0, 0]),
        (
            failed,
            [&[3, 5, 2, 0, 0, 0, 3, 0, 0, 0][..], b"usr"].concat(),
        ),
        (
            Report::NotExecuted { error: -2 },
            vec![4, 0xfe, 0xff, 0xff, 0xff],
        ),
        (
            Report::Stopped {
                exec: ExecId(0x0102),
                signal: 20,
            },
            vec![5, 2, 1, 0, 0, 20],
        ),
        (Report::MemoryReached, vec![6]),
        (Report::TimeReached, vec![9]),
        (
            Report::Attempt {
                call: b"mount".to_vec(),
                pid: 3,
                count: 0x1_0000_0002,
            },
            [
                &[10, 5, 0, 0, 0][..],
                b"mount",
                &[3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0],
            ]
            .concat(),
        ),
        (
            Report::Ended {
                exec: ExecId(2),
                signalled: true,
                number: 9,
            },
            vec![7, 2, 0, 0, 0, 1, 9],
        ),
        (
            Report::Ended {
                exec: ExecId::FIRST,
                signalled: false,
                number: 3,
            },
            vec![7, 0, 0, 0, 0, 0, 3],
        ),
        (
            Report::Gone {
                cpu_us: 0x1_0000_0002,
                memory_peak_bytes: 3,
            },
            vec![8, 2, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0],
        ),
    ]
}

const ORDERS: [(Order, &[u8]); 6] = [
    (Order::Freeze, &[3]),
    (Order::Thaw, &[4]),
    (Order::Signal(ExecId(1), 15), &[0, 1, 0, 0, 0, 15]),
    (Order::Signal(ExecId::FIRST, 0), &[0, 0, 0, 0, 0, 0]),
    (Order::Continue(ExecId(0x0102)), &[1, 2, 1, 0, 0]),
    (Order::End, &[2]),
];

fn every_request() -> Vec<(Request, Vec<u8>)> {
    vec![
        (Request::Exec(ExecId(0x0102)), vec![0, 2, 1, 0, 0]),
        (Request::Files(None), vec![1, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        (
            Request::Files(Some(User { uid: 3, gid: 4 })),
            vec![1, 1, 3, 0, 0, 0, 4, 0, 0, 0],
        ),
    ]
}

/// Formats bytes as hexadecimal text: 32 per line.
fn hexadecimal(bytes: &[u8]) -> String {
    bytes
        .chunks(32)
        .map(|line| {
            line.iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
                + "\n"
        })
        .collect()
}

#[test]
fn the_bytes_of_a_description_are_fixed() {
    let bytes = full_spec().to_bytes();
    let path = "src/golden/spec.hex";
    if std::env::var_os("ATOLL_UPDATE_GOLDEN").is_some() {
        std::fs::write(path, hexadecimal(&bytes)).unwrap();
    }
    assert_eq!(
        hexadecimal(&bytes),
        std::fs::read_to_string(path).unwrap(),
        "another form is another VERSION: launchers refuse what they do not know"
    );
    assert_eq!(SandboxSpec::from_bytes(&bytes), Ok(full_spec()));
}

#[test]
fn exec_bytes_are_fixed() {
    let bytes = full_exec().to_bytes();
    let expected = [
        &[3, 0, 0, 0, 2, 1, 24, 0, 80, 0, 3, 0, 0, 0][..],
        b"\x02\0\0\0sh\x02\0\0\0-c\x06\0\0\0exit 3",
        b"\x01\0\0\0\x0d\0\0\0PATH=/usr/bin\x02\0\0\0/w\x17\0\0\0",
        b"\x01\x03\0\0\0\x04\0\0\0",
    ];
    assert_eq!(bytes, expected.concat(), "another form is another VERSION");
    for terminal in [
        full_exec().terminal,
        ExecTerminal::None,
        ExecTerminal::Session,
        ExecTerminal::Given,
    ] {
        let spec = ExecSpec {
            terminal,
            ..full_exec()
        };
        assert_eq!(ExecSpec::from_bytes(&spec.to_bytes()), Ok(spec));
    }
}

#[test]
fn exec_of_nothing_is_refused() {
    let without = ExecSpec {
        arguments: Vec::new(),
        ..full_exec()
    };
    let read = ExecSpec::from_bytes(&without.to_bytes());
    assert_eq!(read, Err(Malformed::Short));
    let nul = || b"a\0b".to_vec();
    for spec in [
        ExecSpec {
            arguments: vec![nul()],
            ..full_exec()
        },
        ExecSpec {
            environment: vec![nul()],
            ..full_exec()
        },
        ExecSpec {
            directory: nul(),
            ..full_exec()
        },
    ] {
        let read = ExecSpec::from_bytes(&spec.to_bytes());
        assert_eq!(read, Err(Malformed::Nul), "{spec:?}");
    }
    // A size without a terminal of its own, and the reverse.
    for (at, byte) in [(4, 0), (4, 4), (5, 0)] {
        let mut bytes = full_exec().to_bytes();
        bytes[at] = byte;
        let read = ExecSpec::from_bytes(&bytes);
        assert_eq!(read, Err(Malformed::Tag), "{byte} at {at}");
    }
}

#[test]
fn the_bytes_of_orders_and_reports_are_fixed() {
    for (order, bytes) in ORDERS {
        assert_eq!(order.to_bytes(), bytes, "{order:?}");
        assert_eq!(Order::from_bytes(bytes), Ok(order));
    }
    for (request, bytes) in every_request() {
        assert_eq!(request.to_bytes(), bytes, "{request:?}");
        assert_eq!(Request::from_bytes(&bytes), Ok(request));
    }
    for (report, bytes) in every_report() {
        assert_eq!(report.to_bytes(), bytes, "{report:?}");
        assert_eq!(Report::from_bytes(&bytes), Ok(report));
    }
}

#[test]
fn the_name_of_a_call_is_short() {
    let named = |bytes: usize| {
        let report = Report::Attempt {
            call: vec![b'a'; bytes],
            pid: 1,
            count: 1,
        };
        match Report::from_bytes(&report.to_bytes()) {
            Ok(Report::Attempt { call, .. }) => call.len(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!([0, 32, 33, 400].map(named), [0, 32, 32, 32]);
    let told = |call: &[u8]| [&[10, call.len() as u8, 0, 0, 0][..], call, &[0; 12]].concat();
    assert!(Report::from_bytes(&told(&[b'a'; 32])).is_ok());
    let too_long = Report::from_bytes(&told(&[b'a'; 33]));
    assert_eq!(too_long, Err(Malformed::TooMany));
    assert_eq!(Report::from_bytes(&told(b"a\0b")), Err(Malformed::Nul));
}

#[test]
fn the_numbers_of_stages_are_fixed() {
    let numbers = [
        (Stage::Description, 0),
        (Stage::Namespaces, 1),
        (Stage::Ids, 2),
        (Stage::ControlGroups, 3),
        (Stage::Network, 4),
        (Stage::Tree, 5),
        (Stage::Root, 6),
        (Stage::Limits, 7),
        (Stage::Rights, 8),
        (Stage::Terminal, 9),
        (Stage::Landlock, 10),
        (Stage::Filter, 11),
        (Stage::Start, 12),
        (Stage::Directory, 13),
    ];
    for (stage, number) in numbers {
        let report = Report::Failed {
            stage,
            error: 1,
            detail: Vec::new(),
        };
        assert_eq!(report.to_bytes()[1], number, "{stage:?}");
        assert_eq!(Report::from_bytes(&report.to_bytes()), Ok(report));
    }
    assert_eq!(
        Report::from_bytes(&[3, 14, 0, 0, 0, 0, 0, 0, 0, 0]),
        Err(Malformed::Tag)
    );
}

/// Decodes some bytes and encodes the result again, if there is one.
type Rewrite = fn(&[u8]) -> Option<Vec<u8>>;

fn rewrite_spec(bytes: &[u8]) -> Option<Vec<u8>> {
    SandboxSpec::from_bytes(bytes)
        .ok()
        .map(|spec| spec.to_bytes())
}

fn rewrite_report(bytes: &[u8]) -> Option<Vec<u8>> {
    Report::from_bytes(bytes)
        .ok()
        .map(|report| report.to_bytes())
}

fn rewrite_order(bytes: &[u8]) -> Option<Vec<u8>> {
    Order::from_bytes(bytes).ok().map(Order::to_bytes)
}

fn rewrite_exec(bytes: &[u8]) -> Option<Vec<u8>> {
    ExecSpec::from_bytes(bytes).ok().map(|spec| spec.to_bytes())
}

fn rewrite_request(bytes: &[u8]) -> Option<Vec<u8>> {
    let request = Request::from_bytes(bytes).ok();
    request.map(|request| request.to_bytes())
}

const READERS: [Rewrite; 5] = [
    rewrite_spec,
    rewrite_exec,
    rewrite_report,
    rewrite_order,
    rewrite_request,
];

/// Returns one message of each kind of this crate, with its decoder.
fn every_message() -> Vec<(Vec<u8>, Rewrite)> {
    let mut messages: Vec<(Vec<u8>, Rewrite)> = Vec::new();
    messages.push((full_spec().to_bytes(), rewrite_spec));
    let own = SandboxSpec {
        capabilities: 0,
        identity: Identity::Own {
            uid: 1000,
            gid: 100,
        },
        cgroup_unified: None,
        terminal: None,
        operations: Vec::new(),
        ..full_spec()
    };
    messages.push((own.to_bytes(), rewrite_spec));
    messages.push((nested_spec(Nesting::All).to_bytes(), rewrite_spec));
    for (_, bytes) in every_report() {
        messages.push((bytes, rewrite_report));
    }
    messages.push((full_exec().to_bytes(), rewrite_exec));
    for (_, bytes) in every_request() {
        messages.push((bytes, rewrite_request));
    }
    for (_, bytes) in ORDERS {
        messages.push((bytes.to_vec(), rewrite_order));
    }
    messages
}

#[test]
fn every_message_that_is_cut_or_goes_on_is_refused() {
    for (bytes, rewrite) in every_message() {
        for length in 0..bytes.len() {
            assert_eq!(rewrite(&bytes[..length]), None, "{length} of {bytes:?}");
        }
        for more in [0, 1, 255] {
            let longer = [&bytes[..], &[more]].concat();
            assert_eq!(rewrite(&longer), None, "{bytes:?} and {more}");
        }
    }
}

#[test]
fn every_message_with_one_other_byte_is_refused_or_means_something_else() {
    for (bytes, rewrite) in every_message() {
        let mut changed = bytes.clone();
        for position in 0..bytes.len() {
            for flip in 1..=255_u8 {
                changed[position] = bytes[position] ^ flip;
                if let Some(again) = rewrite(&changed) {
                    assert_eq!(again, changed, "byte {position} of {bytes:?}");
                }
            }
            changed[position] = bytes[position];
        }
    }
}

#[test]
fn what_is_absent_has_no_second_form() {
    let absent = SandboxSpec {
        cgroup_unified: None,
        terminal: None,
        ..full_spec()
    };
    let empty = SandboxSpec {
        cgroup_unified: Some(Vec::new()),
        terminal: Some(Terminal {
            rows: 0,
            columns: 0,
        }),
        ..full_spec()
    };
    for spec in [absent, empty] {
        assert_eq!(SandboxSpec::from_bytes(&spec.to_bytes()), Ok(spec));
    }
}

#[test]
fn identities_outside_of_their_block_are_refused() {
    let shifted = |uid, gid, base, count| Identity::Shifted {
        uid,
        gid,
        base,
        count,
    };
    let unmapped = |uid, gid| Identity::Unmapped { uid, gid };
    let cases = [
        (Identity::Own { uid: 0, gid: 0 }, true),
        (
            Identity::Own {
                uid: u32::MAX,
                gid: u32::MAX,
            },
            true,
        ),
        (shifted(0, 0, 1, 1), true),
        (shifted(65_535, 65_535, 0x7000_0000, 65_536), true),
        (shifted(65_536, 0, 0x7000_0000, 65_536), false),
        (shifted(0, 65_536, 0x7000_0000, 65_536), false),
        // The kernel's id 0 is nobody's.
        (shifted(0, 0, 0, 65_536), false),
        (shifted(0, 0, 1, 0), false),
        (shifted(0, 0, u32::MAX - 5, 5), true),
        (shifted(0, 0, u32::MAX - 5, 6), false),
        (unmapped(0x7000_0000, 0x7000_0000), true),
        (unmapped(0, 0x7000_0000), false),
        (unmapped(0x7000_0000, 0), false),
    ];
    for (identity, expected) in cases {
        let spec = SandboxSpec {
            identity,
            capabilities: 0,
            ..full_spec()
        };
        let read = SandboxSpec::from_bytes(&spec.to_bytes());
        assert_eq!(read.is_ok(), expected, "{identity:?}");
    }
}

#[test]
fn only_root_inside_has_rights_and_only_the_listed_ones() {
    let own = Identity::Own { uid: 1, gid: 2 };
    let root = |ranged| Identity::Root {
        uid: 1,
        gid: 2,
        ranged,
    };
    const SYS_ADMIN: u64 = 1 << 21;
    let shifted = full_spec().identity;
    for (identity, capabilities, expected) in [
        (own, 0, true),
        (own, 1, false),
        (root(false), ROOT_CAPABILITIES, true),
        (root(true), ROOT_CAPABILITIES, true),
        (root(true), ROOT_CAPABILITIES | SYS_ADMIN, false),
        (Identity::Unmapped { uid: 1, gid: 2 }, 0, true),
        (Identity::Unmapped { uid: 1, gid: 2 }, 1, false),
        (shifted, ROOT_CAPABILITIES, true),
        (shifted, SYS_ADMIN, false),
        (shifted, u64::MAX, false),
        (own, NEST_AS_ROOT, false),
        (shifted, NEST_AS_ROOT, false),
    ] {
        let spec = SandboxSpec {
            identity,
            capabilities,
            ..full_spec()
        };
        let read = SandboxSpec::from_bytes(&spec.to_bytes());
        assert_eq!(
            read.as_ref().ok(),
            expected.then_some(&spec),
            "{identity:?}"
        );
    }
}

#[test]
fn root_inside_has_no_power_over_the_kernel() {
    // CAP_SETPCAP, CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_MODULE … CAP_SYS_ADMIN and all
    // that came after it, but for none.
    let numbers = (0..64).filter(|number| ROOT_CAPABILITIES & (1 << number) != 0);
    assert_eq!(numbers.collect::<Vec<u64>>(), [0, 1, 3, 4, 5, 6, 7]);
}

#[test]
fn another_version_is_refused() {
    let mut bytes = full_spec().to_bytes();
    for version in [0, 1, 255] {
        bytes[0] = version;
        assert_eq!(SandboxSpec::from_bytes(&bytes), Err(Malformed::Tag));
    }
}

#[test]
fn nul_bytes_are_refused_where_a_path_or_argument_stands() {
    let nul = || b"a\0b".to_vec();
    let operation = |operation| SandboxSpec {
        operations: vec![operation],
        ..full_spec()
    };
    let cases = [
        SandboxSpec {
            host_name: nul(),
            ..full_spec()
        },
        SandboxSpec {
            cgroup_tasks: vec![nul()],
            ..full_spec()
        },
        SandboxSpec {
            cgroup_unified: Some(nul()),
            ..full_spec()
        },
        SandboxSpec {
            cgroup_directories: vec![nul()],
            ..full_spec()
        },
        operation(Operation::Seal { path: nul() }),
        operation(Operation::Link {
            path: b"p".to_vec(),
            to: nul(),
        }),
        operation(Operation::Device {
            path: b"p".to_vec(),
            source: Source {
                path: nul(),
                device: 0,
                inode: 0,
            },
        }),
    ];
    for spec in cases {
        assert_eq!(
            SandboxSpec::from_bytes(&spec.to_bytes()),
            Err(Malformed::Nul),
            "{spec:?}"
        );
    }
}

#[test]
fn a_text_has_its_longest_length() {
    for (length, expected) in [
        (TEXT_BYTES_MAX, Ok(())),
        (TEXT_BYTES_MAX + 1, Err(Malformed::TooMany)),
    ] {
        let spec = SandboxSpec {
            cgroup_tasks: vec![vec![b'a'; length]],
            ..full_spec()
        };
        assert_eq!(
            SandboxSpec::from_bytes(&spec.to_bytes()).map(drop),
            expected,
            "{length}"
        );
    }
}

#[test]
fn a_list_has_its_longest_length() {
    for (length, expected) in [(LIST_MAX, Ok(())), (LIST_MAX + 1, Err(Malformed::TooMany))] {
        let spec = SandboxSpec {
            cgroup_tasks: vec![b"a".to_vec(); length],
            ..full_spec()
        };
        assert_eq!(
            SandboxSpec::from_bytes(&spec.to_bytes()).map(drop),
            expected,
            "{length}"
        );
    }
}

#[test]
fn a_description_has_its_longest_length() {
    let without = full_spec().to_bytes().len();
    let mut left = SPEC_BYTES_MAX - without;
    let mut spec = full_spec();
    while left > 0 {
        // Each text costs four bytes beside its own.
        let length = (left - 4).min(TEXT_BYTES_MAX);
        let length = if left - 4 - length < 4 {
            left - 4
        } else {
            length
        };
        let length = if length > TEXT_BYTES_MAX {
            TEXT_BYTES_MAX / 2
        } else {
            length
        };
        spec.cgroup_tasks.push(vec![b'a'; length]);
        left -= length + 4;
    }
    let bytes = spec.to_bytes();
    assert_eq!(bytes.len(), SPEC_BYTES_MAX);
    assert!(SandboxSpec::from_bytes(&bytes).is_ok());
    spec.host_name.push(b'a');
    assert_eq!(
        SandboxSpec::from_bytes(&spec.to_bytes()),
        Err(Malformed::TooMany)
    );
}

#[test]
fn a_detail_is_cut_to_what_a_message_holds() {
    let failed = |length: usize| Report::Failed {
        stage: Stage::Tree,
        error: 2,
        detail: vec![b'a'; length],
    };
    for (length, kept) in [(0, 0), (399, 399), (400, 400), (401, 400), (100_000, 400)] {
        let bytes = failed(length).to_bytes();
        assert!(bytes.len() <= MESSAGE_BYTES_MAX);
        assert_eq!(Report::from_bytes(&bytes), Ok(failed(kept)), "{length}");
    }
    let mut longer = failed(400).to_bytes();
    longer.push(b'a');
    longer[6..10].copy_from_slice(&401_u32.to_le_bytes());
    assert_eq!(Report::from_bytes(&longer), Err(Malformed::TooMany));
    let too_long = vec![3; MESSAGE_BYTES_MAX + 1];
    assert_eq!(Report::from_bytes(&too_long), Err(Malformed::TooMany));
}

/// Returns the memory that a description holds, bytes.
fn held(spec: &SandboxSpec) -> usize {
    let texts = |list: &Vec<Vec<u8>>| -> usize {
        list.capacity() * size_of::<Vec<u8>>() + list.iter().map(Vec::capacity).sum::<usize>()
    };
    let source = |source: &Source| source.path.capacity();
    let operation = |operation: &Operation| -> usize {
        match operation {
            Operation::Directory { path, .. }
            | Operation::Memory { path, .. }
            | Operation::Seal { path }
            | Operation::Pin { path }
            | Operation::Inexecutable { path }
            | Operation::Terminals { path, .. }
            | Operation::Processes { path }
            | Operation::Part { path }
            | Operation::HideDirectory { path } => path.capacity(),
            Operation::Link { path, to } => path.capacity() + to.capacity(),
            Operation::File { path, content, .. } => path.capacity() + content.capacity(),
            Operation::ReadOnly {
                path,
                source: from,
                empty,
                ..
            } => path.capacity() + source(from) + source(empty),
            Operation::ReadOnlyFile {
                path, source: from, ..
            }
            | Operation::ReadOnlyWhole { path, source: from }
            | Operation::Writable {
                path, source: from, ..
            }
            | Operation::Device { path, source: from }
            | Operation::HideFile { path, null: from } => path.capacity() + source(from),
            Operation::Layer {
                path,
                lower,
                own: _,
                upper,
                work,
                linked: _,
                volatile: _,
            } => {
                path.capacity()
                    + lower.capacity() * size_of::<Source>()
                    + lower.iter().map(source).sum::<usize>()
                    + source(upper)
                    + source(work)
            }
        }
    };
    texts(&spec.cgroup_tasks)
        + texts(&spec.cgroup_directories)
        + spec.operations.capacity() * size_of::<Operation>()
        + spec.operations.iter().map(operation).sum::<usize>()
        + spec.permissions.capacity() * size_of::<Permission>()
        + spec
            .permissions
            .iter()
            .map(|one| one.path.capacity())
            .sum::<usize>()
        + spec.resource_limits.capacity() * size_of::<ResourceLimit>()
        + spec.host_name.capacity()
}

/// The most memory of a decoded description, in multiples of the message's bytes: the smallest
/// operation takes five bytes in a message and a whole `Operation` in memory, and a growing list
/// holds up to twice its content.
const MEMORY_TIMES_MAX: usize = 80;

#[test]
fn no_message_takes_more_memory_than_a_small_multiple_of_its_length() {
    let smallest = SandboxSpec {
        operations: vec![Operation::Seal { path: Vec::new() }; LIST_MAX],
        cgroup_tasks: vec![Vec::new(); LIST_MAX],
        ..full_spec()
    };
    let bytes = smallest.to_bytes();
    let decoded = SandboxSpec::from_bytes(&bytes).unwrap();
    assert!(
        held(&decoded) <= MEMORY_TIMES_MAX * bytes.len(),
        "{}",
        held(&decoded)
    );
}

#[test]
fn a_length_that_lies_sets_no_memory_aside() {
    // A list of the longest length, of which nothing is there: refused at its
    // first item, before anything was allocated for the others.
    let empty = SandboxSpec {
        host_name: Vec::new(),
        cgroup_tasks: Vec::new(),
        ..full_spec()
    };
    let mut bytes = empty.to_bytes();
    let tasks_at = 4 + 17 + 8 + 1 + 1 + 4;
    bytes[tasks_at..tasks_at + 4].copy_from_slice(&(LIST_MAX as u32).to_le_bytes());
    bytes.truncate(tasks_at + 4);
    assert_eq!(SandboxSpec::from_bytes(&bytes), Err(Malformed::Short));
    bytes[tasks_at..].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(SandboxSpec::from_bytes(&bytes), Err(Malformed::TooMany));
    // The same for a text.
    let mut bytes = empty.to_bytes();
    bytes[31..35].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(SandboxSpec::from_bytes(&bytes), Err(Malformed::TooMany));
}

fn texts() -> impl Strategy<Value = Vec<u8>> {
    vec(1..=255_u8, 0..24)
}

fn lists() -> impl Strategy<Value = Vec<Vec<u8>>> {
    vec(texts(), 0..4)
}

fn identities() -> impl Strategy<Value = Identity> {
    prop_oneof![
        any::<(u32, u32)>().prop_map(|(uid, gid)| Identity::Own { uid, gid }),
        any::<(u32, u32, bool)>().prop_map(|(uid, gid, ranged)| Identity::Root {
            uid,
            gid,
            ranged,
        }),
        (1..=u32::MAX, 1..=u32::MAX).prop_map(|(uid, gid)| Identity::Unmapped { uid, gid }),
        (1..u32::MAX, 1..100_000_u32, any::<u32>(), any::<u32>()).prop_map(
            |(base, count, uid, gid)| {
                let count = count.min(u32::MAX - base);
                Identity::Shifted {
                    uid: uid % count,
                    gid: gid % count,
                    base,
                    count,
                }
            }
        ),
    ]
}

fn sources() -> impl Strategy<Value = Source> {
    (texts(), any::<u64>(), any::<u64>()).prop_map(|(path, device, inode)| Source {
        path,
        device,
        inode,
    })
}

fn operations() -> impl Strategy<Value = Operation> {
    let numbers = (any::<u32>(), any::<bool>());
    let places = (sources(), sources(), sources());
    let content = vec(any::<u8>(), 0..24);
    (0..18_u8, texts(), texts(), content, numbers, places).prop_map(
        |(which, path, to, content, (small, flag), (one, two, three))| match which {
            0 => Operation::Directory {
                path,
                mode: small,
                owned: flag,
            },
            1 => Operation::Link { path, to },
            2 => Operation::File {
                path,
                mode: small,
                content,
            },
            3 => Operation::Memory { path, mode: small },
            4 => Operation::ReadOnly {
                path,
                source: one,
                empty: two,
                as_caller: flag,
            },
            5 => Operation::ReadOnlyFile {
                path,
                source: one,
                as_caller: flag,
            },
            6 => Operation::Layer {
                path,
                lower: vec![one],
                own: small,
                upper: two,
                work: three,
                linked: !flag,
                volatile: flag,
            },
            7 => Operation::Writable {
                path,
                source: one,
                as_caller: flag,
            },
            14 => Operation::ReadOnlyWhole { path, source: one },
            8 => Operation::Seal { path },
            13 => Operation::Pin { path },
            15 => Operation::Inexecutable { path },
            16 => Operation::Part { path },
            9 => Operation::Device { path, source: one },
            10 => Operation::Terminals { path, max: small },
            11 => Operation::Processes { path },
            12 => Operation::HideFile { path, null: one },
            _ => Operation::HideDirectory { path },
        },
    )
}

fn permissions() -> impl Strategy<Value = Permission> {
    (texts(), any::<u64>(), any::<bool>()).prop_map(|(path, rights, connect)| Permission {
        path,
        rights,
        connect,
    })
}

fn specs() -> impl Strategy<Value = SandboxSpec> {
    let groups = (lists(), option::of(texts()), lists());
    let tree = (vec(operations(), 0..8), vec(permissions(), 0..4));
    let limits = vec(any::<(u32, u64)>(), 0..4);
    let numbers = (any::<u32>(), any::<[u64; 4]>(), any::<[bool; 4]>());
    let terminal = option::of(any::<(u16, u16)>());

    (
        identities(),
        groups,
        tree,
        limits,
        numbers,
        terminal,
        texts(),
    )
        .prop_map(
            |(identity, groups, tree, limits, numbers, terminal, host_name)| {
                // Without a tree of its own and shifted ids.
                let fenced = numbers.0 & 1 == 1
                    && tree.0.is_empty()
                    && host_name.is_empty()
                    && matches!(identity, Identity::Own { .. });
                SandboxSpec {
                    identity,
                    capabilities: match identity {
                        Identity::Own { .. } | Identity::Unmapped { .. } => 0,
                        Identity::Root { .. } | Identity::Shifted { .. } => {
                            numbers.1[0] & ROOT_CAPABILITIES
                        }
                    },
                    fenced,
                    nesting: match numbers.1[1] % 3 {
                        _ if !tree.1.is_empty() || numbers.2[2] || numbers.2[3] => Nesting::Refused,
                        _ if matches!(identity, Identity::Unmapped { .. }) => Nesting::Refused,
                        // Whoever has no tree may be fenced.
                        _ if tree.0.is_empty() => Nesting::Refused,
                        0 => Nesting::Refused,
                        1 => Nesting::ButGroups,
                        _ => Nesting::All,
                    },
                    host_name,
                    cgroup_tasks: groups.0,
                    cgroup_unified: groups.1,
                    cgroup_directories: groups.2,
                    memory: Room {
                        bytes: numbers.1[2],
                        inodes: numbers.1[3],
                    },
                    operations: tree.0,
                    permissions: tree.1,
                    landlock_version: numbers.0,
                    resource_limits: limits
                        .into_iter()
                        .map(|(resource, value)| ResourceLimit { resource, value })
                        .collect(),
                    watch: Watch {
                        memory_bytes: numbers.1[0],
                        wall_clock_ms: numbers.1[1],
                    },
                    deny_debugging: numbers.2[0],
                    deny_sockets: numbers.2[1],
                    deny_set_id: numbers.2[2],
                    deny_memory_programs: numbers.2[3],
                    funnel: (numbers.0 & 2 == 0 && !numbers.2[1]).then(|| Funnel {
                        connections_max: (numbers.0 >> 1).max(1),
                        host_ports: [(numbers.0 >> 8) as u16; HOST_PORTS_MAX],
                    }),
                    // A fence has no doors inward: it shares the host's network.
                    inward: if numbers.2[1] || fenced {
                        0
                    } else {
                        (numbers.0 % 65) as u8
                    },
                    terminal: terminal.map(|(rows, columns)| Terminal { rows, columns }),
                    one_exec: numbers.0 & 4 == 0,
                }
            },
        )
}

/// Returns a description whose program may nest, without the parts that exclude nesting.
fn nested_spec(nesting: Nesting) -> SandboxSpec {
    SandboxSpec {
        nesting,
        permissions: Vec::new(),
        deny_set_id: false,
        ..full_spec()
    }
}

#[test]
fn nothing_that_landlock_or_one_tree_of_mounts_holds_goes_with_nesting() {
    let own = Identity::Own { uid: 1, gid: 2 };
    for nesting in [Nesting::Refused, Nesting::ButGroups, Nesting::All] {
        let nested = nested_spec(nesting);
        assert_eq!(
            SandboxSpec::from_bytes(&nested.to_bytes()).as_ref(),
            Ok(&nested)
        );
        let fenced = SandboxSpec {
            identity: own,
            capabilities: 0,
            fenced: true,
            host_name: Vec::new(),
            operations: Vec::new(),
            funnel: None,
            inward: 0,
            ..nested.clone()
        };
        let with_rules = SandboxSpec {
            permissions: full_spec().permissions,
            ..nested.clone()
        };
        let live = SandboxSpec {
            deny_set_id: true,
            ..nested.clone()
        };
        let zero = SandboxSpec {
            identity: own,
            capabilities: NEST_AS_ROOT,
            ..nested.clone()
        };
        let read = SandboxSpec::from_bytes(&zero.to_bytes());
        assert_eq!(read.is_ok(), nesting != Nesting::Refused, "{zero:?}");
        let more = SandboxSpec {
            capabilities: NEST_AS_ROOT | 1,
            ..zero
        };
        assert!(SandboxSpec::from_bytes(&more.to_bytes()).is_err());
        let listed = SandboxSpec {
            deny_memory_programs: true,
            ..nested
        };
        for spec in [fenced, with_rules, live, listed] {
            let read = SandboxSpec::from_bytes(&spec.to_bytes());
            assert_eq!(read.is_ok(), nesting == Nesting::Refused, "{spec:?}");
        }
    }
}

#[test]
fn a_fence_has_no_tree_no_name_and_no_shifted_ids() {
    let fence = SandboxSpec {
        identity: Identity::Own { uid: 1, gid: 2 },
        capabilities: 0,
        fenced: true,
        host_name: Vec::new(),
        operations: Vec::new(),
        inward: 0,
        ..full_spec()
    };
    let without_a_network = SandboxSpec {
        funnel: None,
        ..fence.clone()
    };
    for spec in [&fence, &without_a_network] {
        assert_eq!(SandboxSpec::from_bytes(&spec.to_bytes()).as_ref(), Ok(spec));
    }
    let with_a_tree = SandboxSpec {
        operations: every_operation(),
        ..fence.clone()
    };
    let with_a_name = SandboxSpec {
        host_name: b"atoll".to_vec(),
        ..fence.clone()
    };
    let shifted = SandboxSpec {
        identity: full_spec().identity,
        ..fence
    };
    for spec in [with_a_tree, with_a_name, shifted] {
        assert_eq!(
            SandboxSpec::from_bytes(&spec.to_bytes()),
            Err(Malformed::Tag)
        );
    }
}

proptest! {
    #[test]
    fn descriptions_are_read_as_they_were_written(spec in specs()) {
        let bytes = spec.to_bytes();
        let read = SandboxSpec::from_bytes(&bytes).unwrap();
        prop_assert!(held(&read) <= MEMORY_TIMES_MAX * bytes.len());
        prop_assert_eq!(read, spec);
    }

    #[test]
    fn failures_are_read_as_they_were_written(
        error in any::<i32>(),
        detail in vec(any::<u8>(), 0..=400),
    ) {
        let report = Report::Failed { stage: Stage::Landlock, error, detail };
        prop_assert_eq!(Report::from_bytes(&report.to_bytes()), Ok(report));
    }

    #[test]
    fn any_bytes_are_refused_or_canonical(bytes in vec(any::<u8>(), 0..700)) {
        for rewrite in READERS {
            if let Some(again) = rewrite(&bytes) {
                prop_assert_eq!(&again, &bytes);
            }
        }
    }

    /// Random bytes alone seldom get past the first tag.
    #[test]
    fn any_bytes_amid_a_description_are_refused_or_canonical(
        spec in specs(),
        at in any::<prop::sample::Index>(),
        noise in vec(any::<u8>(), 1..12),
    ) {
        let mut bytes = spec.to_bytes();
        let at = at.index(bytes.len());
        for (to, from) in bytes[at..].iter_mut().zip(noise) {
            *to = from;
        }
        if let Some(again) = rewrite_spec(&bytes) {
            prop_assert_eq!(again, bytes);
        }
    }
}
