//! An assembler for system call filters (seccomp(2)): rules as data, in a binary tree over the
//! call's number, so that a call passes about eight comparisons instead of hundreds.

use std::io;
use std::os::fd::{OwnedFd, RawFd};

use libc::{SECCOMP_FILTER_FLAG_NEW_LISTENER, SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV};

use crate::check;
use crate::descriptor::owned;

/// The action on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The kernel makes the call.
    Allow,
    /// The call fails with this error number.
    Refuse(u16),
    /// The call waits for the holder of the filter's listener, who so learns of it and lets it fail
    /// with this error number.
    Tell(u16),
    /// The call is made only if the argument meets the condition.
    If(Condition),
    /// The call is made only if all conditions hold; the first one that does not determines the
    /// error.
    All(&'static [Guarded]),
    /// The call waits for the decision of the listener's holder (see [`crate::judging`]).
    Judge,
}

/// A condition on the low 32 bits of one argument: the kernel itself reads only those of an `int`,
/// so comparing all 64 would let a caller hide a value behind high bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The argument, 0 to 5.
    pub argument: u8,
    /// The bits to compare.
    pub mask: u32,
    /// The comparison of the masked value.
    pub test: Test,
    /// The error number if the condition does not hold.
    pub refuse: u16,
    /// True if the refused call is reported to the listener's holder, as with [`Action::Tell`].
    pub tell: bool,
}

impl Condition {
    /// Returns the condition with refused calls reported to the listener's holder.
    #[must_use]
    pub const fn told(self) -> Self {
        Self { tell: true, ..self }
    }
}

/// A condition that applies only to some calls: a socket's protocol has another meaning in each
/// family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guarded {
    /// The calls that it applies to; `None` for all.
    pub only: Option<Guard>,
    /// The condition.
    pub condition: Condition,
}

/// A selection of calls by the low 32 bits of one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The argument, 0 to 5.
    pub argument: u8,
    /// The bits to compare.
    pub mask: u32,
    /// The masked values to select.
    pub values: &'static [u32],
}

/// A comparison of a masked argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// Equality with one of these values.
    In(&'static [u32]),
    /// Inequality with all of these values.
    NotIn(&'static [u32]),
}

/// One rule: the action on one system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The number of the call.
    pub call: u32,
    /// The action.
    pub action: Action,
}

/// Returns a condition: the masked argument passes the test, otherwise the call fails with
/// `refuse`.
#[must_use]
pub const fn on(argument: u8, mask: u32, test: Test, refuse: u16) -> Condition {
    Condition {
        argument,
        mask,
        test,
        refuse,
        tell: false,
    }
}

/// Returns a condition that applies to every call.
#[must_use]
pub const fn always(condition: Condition) -> Guarded {
    Guarded {
        only: None,
        condition,
    }
}

/// Returns a condition that applies if the first argument is one of these.
#[must_use]
pub const fn only(values: &'static [u32], condition: Condition) -> Guarded {
    Guarded {
        only: Some(Guard {
            argument: 0,
            mask: u32::MAX,
            values,
        }),
        condition,
    }
}

/// A system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The name.
    pub name: &'static str,
    /// The number on x86-64; [`NONE`] if there is none.
    pub x86_64: i64,
    /// The number on arm64; [`NONE`] if there is none.
    pub aarch64: i64,
}

/// The number of a call that an architecture does not have.
pub const NONE: i64 = -1;

impl Call {
    /// Returns the number on the architecture that this is built for.
    #[must_use]
    pub fn number(&self) -> Option<u32> {
        let number = if cfg!(target_arch = "aarch64") {
            self.aarch64
        } else {
            self.x86_64
        };
        u32::try_from(number).ok()
    }
}

/// Returns a call with its name and numbers.
#[must_use]
pub const fn call(name: &'static str, x86_64: i64, aarch64: i64) -> Call {
    Call {
        name,
        x86_64,
        aarch64,
    }
}

/// One instruction of classic BPF, in the kernel's form.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// The operation.
    pub code: u16,
    /// The number of instructions to skip if a test holds.
    pub if_true: u8,
    /// The number of instructions to skip if it does not.
    pub if_false: u8,
    /// The operand.
    pub operand: u32,
}

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;

/// The first number of the x32 interface of x86-64, which has numbers of its own for the same
/// calls.
const FOREIGN_NUMBERS: u32 = 0x4000_0000;

const LOAD: u16 = 0x20;
const MASK: u16 = 0x54;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;
const RETURN_ALLOW: u32 = 0x7fff_0000;
const RETURN_ERROR: u32 = 0x0005_0000;
const RETURN_LISTENER: u32 = 0x7fc0_0000;
/// The mask of a filter's return value without its data: with a listener the kernel ignores the
/// data.
const RETURN_ACTION: u32 = 0xffff_0000;

const EPERM: u32 = 1;

const OFFSET_NUMBER: u32 = 0;
const OFFSET_ARCHITECTURE: u32 = 4;
const OFFSET_ARGUMENTS: u32 = 16;

/// Assembles rules into a filter. Calls without a rule, of another architecture, and of foreign
/// numberings fail with `otherwise`. Of several rules for one call the last one applies.
#[must_use]
pub fn assemble(rules: &[Rule], otherwise: u16) -> Vec<Instruction> {
    let refuse = refusal(otherwise);
    let mut program = vec![
        instruction(LOAD, OFFSET_ARCHITECTURE),
        branch(JUMP_EQUAL, ARCHITECTURE, 1, 0),
        refuse,
        instruction(LOAD, OFFSET_NUMBER),
        branch(JUMP_AT_LEAST, FOREIGN_NUMBERS, 0, 1),
        refuse,
    ];
    program.extend(tree(&spans(rules, otherwise)));
    program
}

/// Returns the first call of each run of calls with the same action, from 0 on without a gap. Most
/// neighbours are treated alike, so there are far fewer runs than calls, and the kernel has far
/// less to translate at each start.
fn spans(rules: &[Rule], otherwise: u16) -> Vec<(u32, Action)> {
    let mut sorted: Vec<Rule> = rules.to_vec();
    sorted.reverse();
    sorted.sort_by_key(|rule| rule.call);
    sorted.dedup_by_key(|rule| rule.call);
    let gap = Action::Refuse(otherwise);
    let mut spans = vec![(0, gap)];
    let mut add = |start: u32, action: Action| match spans.last_mut() {
        Some((_, last)) if *last == action => {}
        Some((begin, last)) if *begin == start => *last = action,
        _ => spans.push((start, action)),
    };
    let mut expected = 0;
    for rule in sorted {
        if rule.call != expected {
            add(expected, gap);
        }
        add(rule.call, rule.action);
        expected = rule.call.saturating_add(1);
    }
    add(expected, gap);
    spans
}

/// Assembles the part of the filter that decides among these runs; it always returns.
fn tree(spans: &[(u32, Action)]) -> Vec<Instruction> {
    let (low, high) = spans.split_at(spans.len() / 2);
    let Some((border, action)) = high.first() else {
        return Vec::new();
    };
    if low.is_empty() {
        return act(*action);
    }
    let low = tree(low);
    let mut program = match u8::try_from(low.len()) {
        Ok(skip) => vec![branch(JUMP_AT_LEAST, *border, skip, 0)],
        // A jump's own skip counts are one byte: farther sides are reached by an
        // unconditional jump, whose operand is 32 bits wide.
        Err(_) => vec![
            branch(JUMP_AT_LEAST, *border, 0, 1),
            instruction(JUMP, low.len() as u32),
        ],
    };
    program.extend(low);
    program.extend(tree(high));
    program
}

/// Assembles the instructions of an action; they always return.
fn act(action: Action) -> Vec<Instruction> {
    let allow = instruction(RETURN, RETURN_ALLOW);
    let mut program = Vec::new();
    match action {
        Action::Allow => {}
        Action::Refuse(error) => return vec![refusal(error)],
        Action::Judge => return vec![instruction(RETURN, RETURN_LISTENER | EPERM)],
        Action::Tell(error) => return vec![wait(error)],
        Action::If(condition) => program.extend(demand(&condition)),
        Action::All(conditions) => {
            for one in conditions {
                let demanded = demand(&one.condition);
                if let Some(guard) = one.only {
                    program.extend(skip_unless(&guard, demanded.len()));
                }
                program.extend(demanded);
            }
        }
    }
    program.push(allow);
    program
}

/// Assembles a condition: execution continues after it if the condition holds, and returns if not.
fn demand(condition: &Condition) -> Vec<Instruction> {
    let mut program = vec![load(condition.argument), instruction(MASK, condition.mask)];
    let refuse = match condition.tell {
        true => wait(condition.refuse),
        false => refusal(condition.refuse),
    };
    match condition.test {
        Test::In(values) => {
            // Behind the last comparison stands the refusal, to be skipped.
            for (index, value) in values.iter().enumerate() {
                program.push(branch(JUMP_EQUAL, *value, (values.len() - index) as u8, 0));
            }
            program.push(refuse);
        }
        Test::NotIn(values) => {
            for value in values {
                program.push(branch(JUMP_EQUAL, *value, 0, 1));
                program.push(refuse);
            }
        }
    }
    program
}

/// Skips `count` instructions unless the guard selects the call.
fn skip_unless(guard: &Guard, count: usize) -> Vec<Instruction> {
    let mut program = vec![load(guard.argument), instruction(MASK, guard.mask)];
    for (index, value) in guard.values.iter().enumerate() {
        let skip = (guard.values.len() - index) as u8;
        program.push(branch(JUMP_EQUAL, *value, skip, 0));
    }
    program.push(instruction(JUMP, count as u32));
    program
}

/// Loads the low half of an argument.
const fn load(argument: u8) -> Instruction {
    let low_half = if cfg!(target_endian = "little") { 0 } else { 4 };
    instruction(LOAD, OFFSET_ARGUMENTS + 8 * argument as u32 + low_half)
}

const fn refusal(error: u16) -> Instruction {
    instruction(RETURN, RETURN_ERROR | error as u32)
}

/// Waits for the listener; the data is the error if there is none.
const fn wait(error: u16) -> Instruction {
    instruction(RETURN, RETURN_LISTENER | error as u32)
}

/// Converts a filter to one without a listener: calls that would wait for it fail at once.
#[must_use]
pub fn without_listener(mut program: Vec<Instruction>) -> Vec<Instruction> {
    for one in &mut program {
        if one.code == RETURN && one.operand & RETURN_ACTION == RETURN_LISTENER {
            one.operand = RETURN_ERROR | (one.operand & !RETURN_ACTION);
        }
    }
    program
}

const fn instruction(code: u16, operand: u32) -> Instruction {
    branch(code, operand, 0, 0)
}

const fn branch(code: u16, operand: u32, if_true: u8, if_false: u8) -> Instruction {
    Instruction {
        code,
        if_true,
        if_false,
        operand,
    }
}

/// Confines this process, and all that it starts, to a filter for good. A test can turn it off by
/// the name `_called`.
///
/// # Errors
/// EACCES unless new privileges were forbidden before; EINVAL for a filter that
/// the kernel does not take.
pub fn install(program: &[Instruction], _called: &str) -> io::Result<()> {
    #[cfg(feature = "without_defences")]
    if crate::without::is(_called) {
        return Ok(());
    }
    set_filter(program, 0).map(drop)
}

/// Confines this process as [`install`] does, with a listener for the calls that wait. With
/// `uninterrupted`, a call that the listener has received is interrupted by nothing but the
/// caller's end (Linux 5.19).
///
/// # Errors
/// Those of [`install`]; EBUSY where a filter has a listener already.
pub fn install_with_listener(
    program: &[Instruction],
    uninterrupted: bool,
    _called: &str,
) -> io::Result<OwnedFd> {
    let killable = match uninterrupted {
        true => SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV,
        false => 0,
    };
    #[cfg(feature = "without_defences")]
    if crate::without::is(_called) {
        // To which no call ever comes.
        // SAFETY: plain numbers.
        let silent = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) });
        return silent.map(owned);
    }
    let flags = SECCOMP_FILTER_FLAG_NEW_LISTENER | killable;
    set_filter(program, flags).map(|raw| owned(raw as RawFd))
}

fn set_filter(program: &[Instruction], flags: libc::c_ulong) -> io::Result<libc::c_long> {
    const SET_MODE_FILTER: u32 = 1;
    let header = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        filter: program.as_ptr().cast_mut().cast(),
    };
    // SAFETY: header and instructions live through the call, which copies them.
    check(unsafe { libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, flags, &raw const header) })
}
