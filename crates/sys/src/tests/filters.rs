//! Tests of the filter assembler: a filter's verdict is that of its rules.

use proptest::collection::vec;
use proptest::prelude::*;

use super::interpreter::{Seen, Verdict, run};
use super::{call, in_child};
use crate::seccomp::{
    Action, Condition, Guard, Guarded, Instruction, Rule, Test, assemble, install,
};

#[cfg(target_arch = "x86_64")]
const HERE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const HERE: u32 = 0xC000_00B7;

const OTHERWISE: u16 = 38;

/// Value lists, static because conditions require it.
const LISTS: [&[u32]; 6] = [
    &[],
    &[0],
    &[1, 2, 3],
    &[0xffff_ffff, 7],
    &[0x5412, 0x541c],
    &[0, 0x0200_0000, 16, 2, 10],
];

const GUARDED: [&[Guarded]; 4] = [
    &[],
    &[Guarded {
        only: None,
        condition: condition(0, u32::MAX, Test::In(LISTS[2]), 97),
    }],
    &[
        Guarded {
            only: None,
            condition: condition(0, u32::MAX, Test::In(LISTS[5]), 97),
        },
        Guarded {
            only: Some(Guard {
                argument: 0,
                mask: u32::MAX,
                values: &[16],
            }),
            condition: condition(2, u32::MAX, Test::In(&[0]), 93),
        },
        Guarded {
            only: Some(Guard {
                argument: 0,
                mask: u32::MAX,
                values: &[2, 10],
            }),
            condition: condition(1, 0xf, Test::NotIn(&[3, 4]), 1),
        },
    ],
    &[
        Guarded {
            only: Some(Guard {
                argument: 5,
                mask: u32::MAX,
                values: &[],
            }),
            condition: condition(2, u32::MAX, Test::In(&[]), 93),
        },
        Guarded {
            only: Some(Guard {
                argument: 1,
                mask: u32::MAX,
                values: &[0, 1],
            }),
            condition: condition(1, 1, Test::In(&[1]), 22),
        },
    ],
];

const fn condition(argument: u8, mask: u32, test: Test, refuse: u16) -> Condition {
    Condition {
        argument,
        mask,
        test,
        refuse,
        // Of each kind some are told of.
        tell: refuse.is_multiple_of(2),
    }
}

/// Evaluates the rules naively, one after another.
fn naive(rules: &[Rule], seen: &Seen) -> Verdict {
    let otherwise = Verdict::Error(OTHERWISE);
    if seen.architecture != HERE || seen.call >= 0x4000_0000 {
        return otherwise;
    }
    let Some(rule) = rules.iter().rev().find(|rule| rule.call == seen.call) else {
        return otherwise;
    };
    match rule.action {
        Action::Allow => Verdict::Allow,
        Action::Judge | Action::Tell(_) => Verdict::Judge,
        Action::Refuse(error) => Verdict::Error(error),
        Action::If(condition) => broken(&condition, seen).unwrap_or(Verdict::Allow),
        Action::All(conditions) => conditions
            .iter()
            .filter(|one| {
                one.only.is_none_or(|guard| {
                    guard
                        .values
                        .contains(&(low(seen, guard.argument) & guard.mask))
                })
            })
            .find_map(|one| broken(&one.condition, seen))
            .unwrap_or(Verdict::Allow),
    }
}

/// Returns the verdict for a call that fails a condition.
fn broken(condition: &Condition, seen: &Seen) -> Option<Verdict> {
    let value = low(seen, condition.argument) & condition.mask;
    let holds = match condition.test {
        Test::In(values) => values.contains(&value),
        Test::NotIn(values) => !values.contains(&value),
    };
    let refused = match condition.tell {
        true => Verdict::Judge,
        false => Verdict::Error(condition.refuse),
    };
    (!holds).then_some(refused)
}

fn low(seen: &Seen, argument: u8) -> u32 {
    seen.arguments[usize::from(argument)] as u32
}

fn tests() -> impl Strategy<Value = Test> {
    (any::<bool>(), 0..LISTS.len()).prop_map(|(within, list)| {
        if within {
            Test::In(LISTS[list])
        } else {
            Test::NotIn(LISTS[list])
        }
    })
}

fn actions() -> impl Strategy<Value = Action> {
    let masks = prop_oneof![Just(u32::MAX), Just(0xf), Just(0), any::<u32>()];
    prop_oneof![
        4 => Just(Action::Allow),
        2 => (1..4_096_u16).prop_map(Action::Refuse),
        1 => (1..4_096_u16).prop_map(Action::Tell),
        1 => Just(Action::Judge),
        2 => (0..6_u8, masks, tests(), 1..200_u16)
            .prop_map(|(argument, mask, test, refuse)| Action::If(condition(argument, mask, test, refuse))),
        2 => (0..GUARDED.len()).prop_map(|which| Action::All(GUARDED[which])),
    ]
}

fn rules() -> impl Strategy<Value = Vec<Rule>> {
    vec(
        (0..500_u32, actions()).prop_map(|(call, action)| Rule { call, action }),
        0..400,
    )
}

/// Returns boundary values, and any others.
fn values() -> impl Strategy<Value = u64> {
    let low = prop_oneof![
        Just(0_u32),
        Just(1),
        Just(2),
        Just(3),
        Just(7),
        Just(10),
        Just(16),
        Just(0x5412),
        Just(0xffff_ffff),
        any::<u32>(),
    ];
    let high = prop_oneof![Just(0_u32), Just(1), Just(0xffff_ffff), any::<u32>()];
    (low, high).prop_map(|(low, high)| u64::from(high) << 32 | u64::from(low))
}

fn calls() -> impl Strategy<Value = Seen> {
    let numbers = prop_oneof![
        8 => 0..500_u32,
        1 => 0x3fff_fff0..0x4000_0200_u32,
        1 => any::<u32>(),
    ];
    let architectures = prop_oneof![8 => Just(HERE), 1 => Just(0x4000_0003_u32), 1 => any::<u32>()];
    (numbers, architectures, prop::array::uniform6(values())).prop_map(
        |(call, architecture, arguments)| Seen {
            call,
            architecture,
            arguments,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_filter_says_what_its_rules_say(rules in rules(), calls in vec(calls(), 1..60)) {
        let program = assemble(&rules, OTHERWISE);
        for seen in calls {
            prop_assert_eq!(run(&program, &seen).verdict, naive(&rules, &seen), "{:?}", seen);
        }
        for rule in &rules {
            let arguments = [16, 3, 0, 1, 2, 0x5412];
            let seen = Seen { call: rule.call, architecture: HERE, arguments };
            prop_assert_eq!(run(&program, &seen).verdict, naive(&rules, &seen), "{:?}", seen);
        }
    }

    #[test]
    fn high_halves_of_arguments_have_no_effect(
        rules in rules(),
        calls in vec(calls(), 1..60),
        high in any::<u32>(),
    ) {
        let program = assemble(&rules, OTHERWISE);
        for seen in calls {
            let arguments = seen.arguments
                .map(|value| value & 0xffff_ffff | u64::from(high) << 32);
            let other = Seen { arguments, ..seen };
            prop_assert_eq!(run(&program, &seen), run(&program, &other));
        }
    }
}

#[test]
fn the_tree_is_shallow() {
    // The two comparisons of architecture and numbering come first.
    for (count, comparisons_max) in [(0, 2), (1, 3), (10, 7), (100, 10), (400, 12)] {
        let rules: Vec<Rule> = (0..count)
            .map(|one| Rule {
                call: one * 3,
                action: Action::Allow,
            })
            .collect();
        let program = assemble(&rules, OTHERWISE);
        let deepest = (0..count * 3 + 5)
            .map(|call| {
                let seen = Seen {
                    call,
                    architecture: HERE,
                    arguments: [0; 6],
                };
                run(&program, &seen).comparisons
            })
            .max()
            .unwrap();
        assert!(
            deepest <= comparisons_max,
            "{count} rules: {deepest} comparisons"
        );
    }
}

#[test]
fn other_architectures_and_numberings_are_refused() {
    let rules: Vec<Rule> = (0..500)
        .map(|call| Rule {
            call,
            action: Action::Allow,
        })
        .collect();
    let program = assemble(&rules, OTHERWISE);
    let cases = [
        (39, HERE, Verdict::Allow),
        (39, 0x4000_0003, Verdict::Error(OTHERWISE)),
        (39, 0, Verdict::Error(OTHERWISE)),
        (39, HERE ^ 0x8000_0000, Verdict::Error(OTHERWISE)),
        (39 | 0x4000_0000, HERE, Verdict::Error(OTHERWISE)),
        (0x4000_0000, HERE, Verdict::Error(OTHERWISE)),
        (u32::MAX, HERE, Verdict::Error(OTHERWISE)),
        (39 | 0x8000_0000, HERE, Verdict::Error(OTHERWISE)),
        (500, HERE, Verdict::Error(OTHERWISE)),
    ];
    for (call, architecture, expected) in cases {
        let seen = Seen {
            call,
            architecture,
            arguments: [0; 6],
        };
        assert_eq!(
            run(&program, &seen).verdict,
            expected,
            "{call:#x} {architecture:#x}"
        );
    }
}

#[test]
fn the_last_rule_for_a_call_counts() {
    let rules = [
        Rule {
            call: 7,
            action: Action::Allow,
        },
        Rule {
            call: 7,
            action: Action::Refuse(1),
        },
        Rule {
            call: 8,
            action: Action::Refuse(2),
        },
        Rule {
            call: 8,
            action: Action::Allow,
        },
    ];
    let program = assemble(&rules, OTHERWISE);
    for (call, expected) in [(7, Verdict::Error(1)), (8, Verdict::Allow)] {
        let seen = Seen {
            call,
            architecture: HERE,
            arguments: [0; 6],
        };
        assert_eq!(run(&program, &seen).verdict, expected);
    }
}

#[test]
fn the_kernel_reads_a_filter_as_the_interpreter_does() {
    in_child(|| {
        let socket: &[Guarded] = GUARDED[2];
        let mut rules: Vec<Rule> = (0..600)
            .map(|call| Rule {
                call,
                action: Action::Allow,
            })
            .collect();
        let refuse = |call: libc::c_long, action| Rule {
            call: call as u32,
            action,
        };
        rules.push(refuse(libc::SYS_getpriority, Action::Refuse(95)));
        rules.push(refuse(libc::SYS_socket, Action::All(socket)));
        let no_pushing = condition(1, u32::MAX, Test::NotIn(&[0x5412]), 71);
        rules.push(refuse(libc::SYS_ioctl, Action::If(no_pushing)));
        crate::credentials::forbid_new_privileges().unwrap();
        install(&assemble(&rules, OTHERWISE), "seccomp").unwrap();
        assert_eq!(call(libc::SYS_getpriority, [0; 6]), Err(95));
        assert!(call(libc::SYS_getpid, [0; 6]).is_ok());
        // A call that no rule names.
        assert_eq!(call(700, [0; 6]), Err(38));
        // Unix, and netlink with protocol 0, but none with another one.
        assert!(call(libc::SYS_socket, [16, 3, 0, 0, 0, 0]).is_ok());
        assert_eq!(call(libc::SYS_socket, [16, 3, 4, 0, 0, 0]), Err(93));
        assert_eq!(
            call(libc::SYS_socket, [16, 3, 4 | 1 << 40, 0, 0, 0]),
            Err(93)
        );
        assert!(call(libc::SYS_socket, [2, 1, 0, 0, 0, 0]).is_ok());
        assert_eq!(call(libc::SYS_socket, [2, 3, 0, 0, 0, 0]), Err(1));
        assert_eq!(call(libc::SYS_socket, [40, 1, 0, 0, 0, 0]), Err(97));
        // What the program hides in the high half does not count.
        assert_eq!(call(libc::SYS_ioctl, [99, 0x5412, 0, 0, 0, 0]), Err(71));
        assert_eq!(
            call(libc::SYS_ioctl, [99, 0x5412 | 1 << 32, 0, 0, 0, 0]),
            Err(71)
        );
        assert_eq!(
            call(libc::SYS_ioctl, [99, 0x5413, 0, 0, 0, 0]),
            Err(libc::EBADF)
        );
        #[cfg(target_arch = "x86_64")]
        assert_eq!(call(0x4000_0000 | libc::SYS_getpid, [0; 6]), Err(38));
    });
}

#[test]
fn a_filter_that_is_too_long_is_refused() {
    let long = vec![
        Instruction {
            code: 0x06,
            if_true: 0,
            if_false: 0,
            operand: 0x7fff_0000
        };
        70_000
    ];
    let error = install(&long, "seccomp").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    in_child(move || {
        crate::credentials::forbid_new_privileges().unwrap();
        assert_eq!(
            super::number(install(&long[..5_000], "seccomp")),
            libc::EINVAL
        );
    });
}
