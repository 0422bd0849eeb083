//! An interpreter of classic BPF, as far as seccomp(2) filters need it. The tests of `init` use the
//! same file.

use super::Instruction;

/// The input of a filter for one system call (struct seccomp_data).
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) call: u32,
    pub(super) architecture: u32,
    pub(super) arguments: [u64; 6],
}

/// A filter's verdict, with the number of comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) verdict: Verdict,
    pub(super) comparisons: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Allow,
    Error(u16),
    /// The call waits for the listener's holder.
    Judge,
}

/// Runs a filter to its end. Panics at anything that the kernel would not accept.
pub(super) fn run(program: &[Instruction], seen: &Seen) -> Said {
    assert!(program.len() <= 4_096, "the kernel takes no more");
    let mut memory = Vec::new();
    memory.extend(seen.call.to_ne_bytes());
    memory.extend(seen.architecture.to_ne_bytes());
    memory.extend(0x7fff_1234_5678_u64.to_ne_bytes());
    for argument in seen.arguments {
        memory.extend(argument.to_ne_bytes());
    }
    let mut accumulator = 0_u32;
    let mut comparisons = 0;
    let mut at = 0;
    loop {
        let Instruction {
            code,
            if_true,
            if_false,
            operand,
        } = program[at];
        at += 1;
        let mut branch = |holds: bool| {
            comparisons += 1;
            at += usize::from(if holds { if_true } else { if_false });
        };
        match code {
            0x20 => {
                let offset = operand as usize;
                assert_eq!(offset % 4, 0, "the kernel refuses unaligned loads");
                let word = memory[offset..offset + 4].try_into().unwrap();
                accumulator = u32::from_ne_bytes(word);
            }
            0x54 => accumulator &= operand,
            0x05 => at += operand as usize,
            0x15 => branch(accumulator == operand),
            0x35 => branch(accumulator >= operand),
            0x06 => {
                let verdict = match operand {
                    0x7fff_0000 => Verdict::Allow,
                    wait if wait >> 16 == 0x7fc0 => Verdict::Judge,
                    error if error >> 16 == 5 => Verdict::Error(error as u16),
                    other => panic!("returned {other:#x}"),
                };
                return Said {
                    verdict,
                    comparisons,
                };
            }
            other => panic!("unknown operation {other:#x} at {}", at - 1),
        }
    }
}
