//! The findings for people and for machines.

use atoll_engine::delegation::Step;
use atoll_engine::doctor::facts::Facts;
use atoll_engine::doctor::finding::{Finding, Grade, Group, Holds};
use atoll_engine::printable::printable;
use atoll_model::Mode;
use serde_json::{Value, json};

use crate::render::{Paint, Style, counted, fold};

/// Columns before the text of a finding: its mark and its name.
const MARK_COLUMNS: usize = 8;
const NAME_COLUMNS: usize = 18;
/// Narrower terminals have the text on a line of its own.
const NARROW: usize = 64;

/// The schema of the JSON document; a new number when members change.
const SCHEMA: &str = "atoll-doctor-1";

const GROUPS: [(Group, &str); 5] = [
    (Group::Kernel, "kernel"),
    (Group::Boundary, "boundary"),
    (Group::Limits, "limits"),
    (Group::Proofs, "proofs of policies"),
    (Group::Known, "known errors in these versions"),
];

/// Formats the findings for people: a line for each, remedies beneath; folded if there are columns
/// to fold at.
pub fn text(
    findings: &[Finding],
    mode: Option<Mode>,
    facts: &Facts,
    paint: Paint,
    columns: Option<usize>,
) -> String {
    let verdict = verdict(findings, mode);
    let mut text = String::new();
    for piece in fold(&verdict, columns.unwrap_or(usize::MAX)) {
        text.push_str(&format!("{}\n", paint.style(Style::Strong, piece)));
    }
    for (group, title) in GROUPS {
        let of_group: Vec<&Finding> = findings.iter().filter(|one| one.group == group).collect();
        if of_group.is_empty() {
            continue;
        }
        text.push_str(&format!("\n{}\n", paint.style(Style::Strong, title)));
        for finding in of_group {
            row(&mut text, finding, facts, paint, columns);
        }
    }
    text
}

fn verdict(findings: &[Finding], mode: Option<Mode>) -> String {
    let weaker = findings.iter().filter(|one| one.grade == Grade::Weaker);
    let weaker = weaker.count() as u64;
    let holds = match mode {
        None => return "atoll run does not start here: see what is missing".to_owned(),
        Some(Mode::Full) => "atoll run holds programs in namespaces of their own (mode full)",
        Some(Mode::Fence) => "atoll run fences programs in (mode fence, atoll help fence)",
    };
    match weaker {
        0 => format!("{holds}; nothing is weaker than on other hosts"),
        _ => format!(
            "{holds}; {}",
            counted(weaker, "thing is weaker", "things are weaker")
        ),
    }
}

fn row(text: &mut String, finding: &Finding, facts: &Facts, paint: Paint, columns: Option<usize>) {
    let (style, mark) = match finding.grade {
        Grade::Good => (Style::Good, "ok"),
        Grade::Note => (Style::Faint, "note"),
        Grade::Weaker => (Style::Notable, "weaker"),
        Grade::Missing => (Style::Bad, "missing"),
    };
    let is_narrow = columns.is_some_and(|columns| columns < NARROW);
    let name = &finding.name;
    let head = paint.style(style, &format!("{mark:MARK_COLUMNS$}"));
    let indent = if is_narrow {
        MARK_COLUMNS
    } else {
        MARK_COLUMNS + NAME_COLUMNS
    };
    let pieces = |words: &str| -> Vec<String> {
        let words = printable(words.as_bytes());
        match columns {
            None => vec![words],
            Some(columns) => {
                let room = columns.saturating_sub(indent + 1).max(NARROW / 4);
                fold(&words, room).into_iter().map(str::to_owned).collect()
            }
        }
    };
    let mut found = pieces(&finding.found).into_iter();
    // A name that is longer than its column stands alone.
    if is_narrow || name.len() >= NAME_COLUMNS {
        text.push_str(&format!("{head}{name}\n"));
    } else {
        let first = found.next().unwrap_or_default();
        text.push_str(format!("{head}{name:NAME_COLUMNS$}{first}").trim_end());
        text.push('\n');
    }
    let mut beneath = |style: Option<Style>, words: &str| {
        let words = style.map_or_else(|| words.to_owned(), |style| paint.style(style, words));
        text.push_str(&format!("{:indent$}{words}\n", ""));
    };
    found.for_each(|piece| beneath(None, &piece));
    for piece in finding.why.iter().flat_map(|why| pieces(why)) {
        beneath(Some(Style::Faint), &piece);
    }
    for step in &finding.fixes {
        // Never folded: it is there to be pasted.
        beneath(
            Some(Style::Command),
            &printable(typed(step, facts).as_bytes()),
        );
    }
}

/// Formats a fix as the present user types it.
fn typed(step: &Step, facts: &Facts) -> String {
    if !step.by_root || facts.uid != 0 && !facts.programs.contains(&"sudo") {
        return step.line();
    }
    let remark = step.remark.map(|remark| format!("    # {remark}"));
    let remark = remark.unwrap_or_default();
    if facts.uid == 0 {
        return format!("{}{remark}", step.command);
    }
    let is_one = |byte: u8| byte.is_ascii_alphanumeric() || b" -_./=:,@".contains(&byte);
    if step.command.bytes().all(is_one) && !step.command.starts_with("cd ") {
        format!("sudo {}{remark}", step.command)
    } else {
        let quoted = step.command.replace('\'', r"'\''");
        format!("sudo sh -c '{quoted}'{remark}")
    }
}

/// Formats the findings as JSON (docs/doctor.md).
pub fn document(findings: &[Finding], mode: Option<Mode>, facts: &Facts, status: u8) -> Value {
    let limits = facts
        .holding
        .as_ref()
        .map_or(&[][..], |holding| &holding.limits);
    let limits: serde_json::Map<String, Value> = limits
        .iter()
        .map(|one| (one.limit.clone(), Value::from(one.by.clone())))
        .collect();
    json!({
        "schema": SCHEMA,
        "version": env!("CARGO_PKG_VERSION"),
        "status": status,
        "mode": mode.map(|mode| match mode {
            Mode::Full => "full",
            Mode::Fence => "fence",
        }),
        "kernel": { "release": facts.kernel.0, "upstream": facts.kernel.1.map(|one| one.to_string()) },
        "limits-held-by": limits,
        "findings": findings.iter().map(member).collect::<Vec<Value>>(),
    })
}

fn member(finding: &Finding) -> Value {
    let holds = |holds: Holds| match holds {
        Holds::Whole => "whole",
        Holds::Partly => "partly",
        Holds::Not => "not",
    };
    json!({
        "group": match finding.group {
            Group::Kernel => "kernel",
            Group::Boundary => "boundary",
            Group::Limits => "limits",
            Group::Proofs => "proofs",
            Group::Known => "known-errors",
        },
        "name": finding.name,
        "grade": match finding.grade {
            Grade::Good => "ok",
            Grade::Note => "note",
            Grade::Weaker => "weaker",
            Grade::Missing => "missing",
        },
        "found": finding.found,
        "why": finding.why,
        "held": finding.promise.map(|(full, fence)| json!({
            "full": holds(full),
            "fence": holds(fence),
        })),
        "fixes": finding.fixes.iter().map(|step| json!({
            "command": step.command,
            "by-root": step.by_root,
            "remark": step.remark,
        })).collect::<Vec<Value>>(),
    })
}
