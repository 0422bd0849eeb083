//! Rows of conditions, kept within the depth and length limits of a policy.

use std::fmt::Write as _;

use crate::source::{ENTRIES_MAX, POLICY_BYTES_MAX};

/// The most conditions side by side.
const ROW_MAX: usize = 8;
/// The target length of a policy that could be split, bytes.
const BYTES_MAX: usize = POLICY_BYTES_MAX / 2;
/// The overhead of one condition among many, bytes: its brackets, its share of the outer ones, and
/// the operator that joins it.
const AROUND_BYTES: usize = 16;

/// Joins conditions, each group of eight in brackets, and each eight of these groups again.
pub(super) fn joined(glue: &str, all: &[String]) -> String {
    let mut row = all.to_vec();
    while row.len() > ROW_MAX {
        let groups = row.chunks(ROW_MAX);
        row = groups
            .map(|some| format!("({})", some.join(glue)))
            .collect();
    }
    row.join(glue)
}

/// Returns the disjunction of conditions, as one condition that can stand anywhere.
pub(super) fn any(all: &[String]) -> String {
    match all {
        [one] => one.clone(),
        all => {
            let each: Vec<String> = all.iter().map(|one| format!("({one})")).collect();
            format!("({})", joined(" || ", &each))
        }
    }
}

/// Returns the condition that a member is one of these, of which there is at least one, in as many
/// lists as needed.
pub(super) fn listed(member: &str, all: &[String]) -> String {
    if let [one] = all {
        return format!("{member} == {one}");
    }
    let lists = all.chunks(ENTRIES_MAX);
    let lists = lists.map(|some| format!("[{}].contains({member})", some.join(", ")));
    any(&lists.collect::<Vec<_>>())
}

/// Splits conditions into parts, one for each policy, which is `around` bytes long without them.
pub(super) fn parts(all: &[String], around: usize) -> Vec<&[String]> {
    let mut parts = Vec::new();
    let (mut begin, mut bytes) = (0, around);
    for (at, one) in all.iter().enumerate() {
        let length = one.len() + AROUND_BYTES;
        if bytes + length > BYTES_MAX && at > begin {
            parts.extend(all.get(begin..at));
            (begin, bytes) = (at, around);
        }
        bytes += length;
    }
    parts.extend(all.get(begin..));
    parts
}

/// Returns whether the policy fits the target length.
pub(super) fn is_short(head: &str, when: &[String], unless: &[String]) -> bool {
    policy("permit", head, when, unless).len() <= BYTES_MAX
}

/// Formats one policy.
pub(super) fn policy(effect: &str, head: &str, when: &[String], unless: &[String]) -> String {
    let mut out = format!("{effect}(principal, {head})");
    for (word, conditions) in [("when", when), ("unless", unless)] {
        match conditions {
            [] => {}
            [one] => {
                let _ = write!(out, "\n{word} {{ {one} }}");
            }
            all => {
                let glue = if word == "when" {
                    " &&\n    "
                } else {
                    " ||\n    "
                };
                let _ = write!(out, "\n{word} {{\n    {}\n}}", joined(glue, all));
            }
        }
    }
    out.push_str(";\n");
    out
}
