//! What Atoll's own processes may call once a program runs beside them: a program
//! that takes one of them over gets no more than this.

use atoll_sys::seccomp::{Action, Call, Instruction, Rule, assemble};

use super::needed::NEEDED;
use super::{ALLOWED, CONDITIONAL, EPERM, Group, REFUSED};

/// One of Atoll's own processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// The launcher, which waits for the end of its sandbox.
    Launcher,
    /// The same in a fence, where it ends what is left.
    FenceLauncher,
    /// The first process, where control groups count memory.
    Init,
    /// The same where it counts memory itself.
    Counting,
    /// The first process of a fence, which judges calls and makes them itself.
    Judge,
}

/// Calls that some of these processes need, and why.
#[derive(Debug)]
pub struct Needed {
    /// Who.
    pub by: &'static [Process],
    /// Why.
    pub reason: &'static str,
    /// On what it depends.
    pub action: Action,
    /// They themselves.
    pub calls: &'static [Call],
}

/// The calls with these names, as the tables of programs have them.
pub(super) const fn named<const N: usize>(names: [&str; N]) -> [Call; N] {
    let mut calls = [super::call("", super::NONE, super::NONE); N];
    let (mut left, mut names): (&mut [Call], &[&str]) = (&mut calls, &names);
    while let ([call, rest @ ..], [name, further @ ..]) = (left, names) {
        *call = find(name);
        (left, names) = (rest, further);
    }
    calls
}

/// One that no table has gets no number, so that nothing is allowed by mistake.
const fn find(name: &str) -> Call {
    let mut conditional = CONDITIONAL;
    while let [one, rest @ ..] = conditional {
        if is_same(one.call.name, name) {
            return one.call;
        }
        conditional = rest;
    }
    match find_in(ALLOWED, name) {
        Some(call) => call,
        None => match find_in(REFUSED, name) {
            Some(call) => call,
            None => super::call("", super::NONE, super::NONE),
        },
    }
}

const fn find_in(mut groups: &'static [Group], name: &str) -> Option<Call> {
    while let [group, further @ ..] = groups {
        let mut calls = group.calls;
        while let [call, rest @ ..] = calls {
            if is_same(call.name, name) {
                return Some(*call);
            }
            calls = rest;
        }
        groups = further;
    }
    None
}

const fn is_same(one: &str, other: &str) -> bool {
    let (mut one, mut other) = (one.as_bytes(), other.as_bytes());
    while let ([first, rest @ ..], [second, further @ ..]) = (one, other) {
        if *first != *second {
            return false;
        }
        (one, other) = (rest, further);
    }
    one.is_empty() && other.is_empty()
}

/// The rules for a process; the last one for a call counts.
#[must_use]
pub fn own_rules(process: Process) -> Vec<Rule> {
    let needed = NEEDED.iter().filter(|needed| needed.by.contains(&process));
    let rules = needed.flat_map(|needed| {
        let numbers = needed.calls.iter().filter_map(Call::number);
        numbers.map(|call| Rule {
            call,
            action: needed.action,
        })
    });
    rules.collect()
}

/// The filter for a process.
#[must_use]
pub fn own(process: Process) -> Vec<Instruction> {
    assemble(&own_rules(process), EPERM)
}
