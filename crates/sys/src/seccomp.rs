//! A small assembler for system call filters (seccomp(2)): rules as data, in a
//! binary tree over the call's number, so that a call passes about eight
//! comparisons instead of hundreds.

use std::io;

use crate::check;

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is made.
    Allow,
    /// It fails with this error number.
    Refuse(u16),
    /// It is made only where the arguments agree.
    If(Condition),
}

/// A condition on one argument, of which the low 32 bits count: the kernel
/// itself reads only those of an `int`, so comparing all 64 would let a caller
/// hide a value behind high bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Which argument, 0 to 5.
    pub argument: u8,
    /// Bits that count.
    pub mask: u32,
    /// How the masked value is compared.
    pub test: Test,
    /// The error number where the condition does not hold.
    pub refuse: u16,
}

/// How a masked argument is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// It is one of these values.
    In(&'static [u32]),
    /// It is none of these values.
    NotIn(&'static [u32]),
}

/// One rule: what happens to one system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The call's number.
    pub call: u32,
    /// What happens.
    pub action: Action,
}

/// One instruction of classic BPF, as the kernel takes it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Operation.
    pub code: u16,
    /// How many instructions to skip when a test holds.
    pub if_true: u8,
    /// How many when it does not.
    pub if_false: u8,
    /// Operand.
    pub operand: u32,
}

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;

/// Calls from here on belong to the x32 interface of x86-64, which has numbers
/// of its own for the same calls.
const FOREIGN_NUMBERS: u32 = 0x4000_0000;

const LOAD: u16 = 0x20;
const MASK: u16 = 0x54;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;
const RETURN_ALLOW: u32 = 0x7fff_0000;
const RETURN_ERROR: u32 = 0x0005_0000;

const OFFSET_NUMBER: u32 = 0;
const OFFSET_ARCHITECTURE: u32 = 4;
const OFFSET_ARGUMENTS: u32 = 16;

/// Leaves of the tree are searched one by one from this size down.
const LEAF_RULES_MAX: usize = 2;

/// Assembles rules into a filter. Calls without a rule, of another
/// architecture, and of foreign numberings get `otherwise` as their error.
/// Of several rules for one call the last one counts.
#[must_use]
pub fn assemble(rules: &[Rule], otherwise: u16) -> Vec<Instruction> {
    let mut sorted: Vec<Rule> = rules.to_vec();
    sorted.reverse();
    sorted.sort_by_key(|rule| rule.call);
    sorted.dedup_by_key(|rule| rule.call);
    let refuse = instruction(RETURN, RETURN_ERROR | u32::from(otherwise));
    let mut program = vec![
        instruction(LOAD, OFFSET_ARCHITECTURE),
        branch(JUMP_EQUAL, ARCHITECTURE, 1, 0),
        refuse,
        instruction(LOAD, OFFSET_NUMBER),
        branch(JUMP_AT_LEAST, FOREIGN_NUMBERS, 0, 1),
        refuse,
    ];
    program.extend(tree(&sorted, refuse));
    program
}

/// The part of the filter that decides among these rules; it always returns.
fn tree(rules: &[Rule], refuse: Instruction) -> Vec<Instruction> {
    if rules.len() <= LEAF_RULES_MAX {
        let mut leaf = Vec::new();
        for rule in rules {
            let action = act(rule.action);
            leaf.push(branch(JUMP_EQUAL, rule.call, 0, action.len() as u8));
            leaf.extend(action);
        }
        leaf.push(refuse);
        return leaf;
    }
    let (low, high) = rules.split_at(rules.len() / 2);
    let border = high.first().map_or(0, |rule| rule.call);
    let low = tree(low, refuse);
    // A jump's own skip counts are one byte: the far side is reached by an
    // unconditional jump, whose operand is 32 bits wide.
    let mut program = vec![
        branch(JUMP_AT_LEAST, border, 0, 1),
        instruction(JUMP, low.len() as u32),
    ];
    program.extend(low);
    program.extend(tree(high, refuse));
    program
}

/// The instructions that carry an action out; they always return.
fn act(action: Action) -> Vec<Instruction> {
    let allow = instruction(RETURN, RETURN_ALLOW);
    let refuse = |error: u16| instruction(RETURN, RETURN_ERROR | u32::from(error));
    let condition = match action {
        Action::Allow => return vec![allow],
        Action::Refuse(error) => return vec![refuse(error)],
        Action::If(condition) => condition,
    };
    let low_half = if cfg!(target_endian = "little") { 0 } else { 4 };
    let offset = OFFSET_ARGUMENTS + 8 * u32::from(condition.argument) + low_half;
    let mut program = vec![instruction(LOAD, offset), instruction(MASK, condition.mask)];
    let (values, found, not_found) = match condition.test {
        Test::In(values) => (values, allow, refuse(condition.refuse)),
        Test::NotIn(values) => (values, refuse(condition.refuse), allow),
    };
    for (index, value) in values.iter().enumerate() {
        let to_found = (values.len() - index) as u8;
        program.push(branch(JUMP_EQUAL, *value, to_found, 0));
    }
    program.extend([not_found, found]);
    program
}

const fn instruction(code: u16, operand: u32) -> Instruction {
    Instruction { code, if_true: 0, if_false: 0, operand }
}

const fn branch(code: u16, operand: u32, if_true: u8, if_false: u8) -> Instruction {
    Instruction { code, if_true, if_false, operand }
}

/// Puts this process, and whatever it starts, under a filter for good.
///
/// # Errors
/// EACCES unless new privileges were forbidden before; EINVAL for a filter that
/// the kernel does not take.
pub fn install(program: &[Instruction]) -> io::Result<()> {
    const SET_MODE_FILTER: u32 = 1;
    #[repr(C)]
    struct Program {
        length: u16,
        instructions: *const Instruction,
    }
    let length = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let header = Program { length, instructions: program.as_ptr() };
    // SAFETY: header and instructions live through the call, which copies them.
    check(unsafe { libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, 0, &raw const header) })
        .map(drop)
}
