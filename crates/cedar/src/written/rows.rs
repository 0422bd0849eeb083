//! Rows of conditions, none of which is deeper or longer than a policy can be.

use std::fmt::Write as _;

use crate::source::{ENTRIES_MAX, POLICY_BYTES_MAX};

/// How many stand side by side.
const ROW_MAX: usize = 8;
/// How long a policy is written where it can be shorter, bytes.
const BYTES_MAX: usize = POLICY_BYTES_MAX / 2;
/// What stands around one of many, bytes: its brackets, those that it shares, and what joins it.
const AROUND_BYTES: usize = 16;

/// All of these, each group of eight in brackets, and each eight of those.
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

/// That one of these holds, as one condition that stands anywhere.
pub(super) fn any(all: &[String]) -> String {
    match all {
        [one] => one.clone(),
        all => {
            let each: Vec<String> = all.iter().map(|one| format!("({one})")).collect();
            format!("({})", joined(" || ", &each))
        }
    }
}

/// That a member is one of these, of which there is one at least: in as many lists as that takes.
pub(super) fn listed(member: &str, all: &[String]) -> String {
    if let [one] = all {
        return format!("{member} == {one}");
    }
    let lists = all.chunks(ENTRIES_MAX);
    let lists = lists.map(|some| format!("[{}].contains({member})", some.join(", ")));
    any(&lists.collect::<Vec<_>>())
}

/// Parts of these, each for a policy that has so many bytes without it.
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

/// Whether one policy can say this.
pub(super) fn is_short(head: &str, when: &[String], unless: &[String]) -> bool {
    policy("permit", head, when, unless).len() <= BYTES_MAX
}

/// One policy.
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
