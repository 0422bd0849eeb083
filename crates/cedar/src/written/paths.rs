//! Path patterns as conditions.

use atoll_model::network::{PathPattern, Reading, Segment};

use super::rows;
use crate::quoting::{escape, quoted};
use crate::segments::NAMED_MAX;

/// Returns the condition under which a path matches a pattern; `None` if the pattern has more
/// segments than have names.
pub(crate) fn condition(pattern: &PathPattern, reading: Reading) -> Option<String> {
    let record = match reading {
        Reading::Letter => "context",
        Reading::Liberal => "context.loose",
    };
    let mut segments = pattern.segments(reading);
    if reading == Reading::Liberal && segments.last().is_some_and(is_nothing) {
        // A path ends the same with a '/' or without.
        segments.pop();
    }
    let many = segments.iter().position(|one| *one == Segment::Any);
    let mut conditions = match many {
        None if segments.iter().all(|one| matches!(one, Segment::One(_))) => {
            vec![format!("{record}.path == {}", quoted(&joined(&segments)))]
        }
        None => {
            let mut all = vec![format!("{record}.depth == {}", segments.len())];
            all.extend(named(&segments, record, 's')?);
            all
        }
        Some(at) => {
            let (before, after) = (segments.get(..at)?, segments.get(at + 1..)?);
            let mut all = Vec::new();
            let least = before.len() + after.len();
            if least > 0 {
                all.push(format!("{record}.depth >= {least}"));
            }
            all.extend(named(before, record, 's')?);
            let from_end: Vec<Segment> = after.iter().rev().cloned().collect();
            all.extend(named(&from_end, record, 'e')?);
            all
        }
    };
    if let (Some(query), Reading::Letter) = (pattern.query(), reading) {
        conditions.push(format!(
            "context has query && context.query == {}",
            quoted(query)
        ));
    }
    Some(match conditions.as_slice() {
        [] => format!("{record}.path like \"*\""),
        all => rows::joined(" && ", all),
    })
}

fn is_nothing(segment: &Segment) -> bool {
    matches!(segment, Segment::One(text) if text.is_empty())
}

fn joined(segments: &[Segment]) -> String {
    let texts = segments.iter().map(|one| match one {
        Segment::One(text) => format!("/{text}"),
        Segment::Any | Segment::Between(_, _) => String::new(),
    });
    texts.collect()
}

/// Returns a condition for each segment, by its name counted from one end.
fn named(segments: &[Segment], record: &str, end: char) -> Option<Vec<String>> {
    if segments.len() > NAMED_MAX {
        return None;
    }
    let all = segments.iter().enumerate().map(|(at, segment)| {
        let name = format!("{end}{}", at + 1);
        let has = format!("{record}.segments has {name}");
        let path = format!("{record}.segments.{name}");
        match segment {
            Segment::Any => has,
            Segment::One(text) => format!("{has} && {path} == {}", quoted(text)),
            Segment::Between(before, after) => {
                let mut like = String::new();
                escape_like(before, &mut like);
                like.push('*');
                escape_like(after, &mut like);
                let nothing = quoted(&format!("{before}{after}"));
                format!("{has} && {path} like \"{like}\" && {path} != {nothing}")
            }
        }
    });
    Some(all.collect())
}

fn escape_like(text: &str, out: &mut String) {
    for (at, part) in text.split('*').enumerate() {
        if at > 0 {
            out.push_str("\\*");
        }
        escape(part, out);
    }
}
