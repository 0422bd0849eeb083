//! The search for secrets: where keywords are, the expressions of their rules.

use std::ops::Range;

use regex::bytes::{Captures, Regex};

use super::plausible::{Check, Name, Value, is_assigned, is_sample};
use super::{Rule, Rules, entropy};
use crate::{FINDINGS_MAX, Finding, Lines, Unscanned};

/// The bytes around a keyword that an expression of ours is searched in, at first.
const BEFORE: usize = 160;
const AFTER: usize = 480;
/// The most bytes of a secret that is assigned, with its name.
const ASSIGNED_BYTES_MAX: usize = 1_400;
/// The longest name before its word that counts, bytes.
const NAME_BYTES_MAX: usize = 60;

/// Places of a rule's keywords.
#[derive(Clone, Default)]
struct Places {
    is_any: bool,
    /// The neighbourhoods, in order and apart.
    near: Vec<Range<usize>>,
    /// The places at which keywords begin.
    at: Vec<usize>,
}

impl Rules {
    /// Finds secrets, each by the first rule that fits.
    pub(crate) fn scan(&self, content: &[u8]) -> Result<Vec<Finding>, Unscanned> {
        let mut search = Search {
            rules: self,
            content,
            found: Vec::new(),
            taken: Vec::new(),
            lines: Lines::of(content),
        };
        for (rule, places) in self.rules.iter().zip(self.places(content)) {
            if places.is_any || rule.keywords.is_empty() {
                search.rule(rule, &places)?;
            }
            if search.found.len() >= FINDINGS_MAX {
                break;
            }
        }
        Ok(search.found)
    }

    /// Returns the places of the keywords, for each rule.
    fn places(&self, content: &[u8]) -> Vec<Places> {
        let mut places = vec![Places::default(); self.rules.len()];
        for found in self.keywords.find_overlapping_iter(content) {
            let of = self.of_keyword.get(found.pattern().as_usize());
            for index in of.into_iter().flatten() {
                let (Some(rule), Some(places)) = (self.rules.get(*index), places.get_mut(*index))
                else {
                    continue;
                };
                places.is_any = true;
                if rule.check == Some(Check::Assigned) {
                    places.at.push(found.start());
                } else if rule.is_own {
                    let start = found.start().saturating_sub(BEFORE);
                    let end = content.len().min(found.end() + AFTER);
                    match places.near.last_mut().filter(|last| start <= last.end) {
                        Some(last) => last.end = last.end.max(end),
                        None => places.near.push(start..end),
                    }
                }
            }
        }
        places
    }
}

struct Search<'a> {
    rules: &'a Rules,
    content: &'a [u8],
    found: Vec<Finding>,
    /// The places of what was found.
    taken: Vec<Range<usize>>,
    lines: Lines<'a>,
}

impl<'a> Search<'a> {
    fn rule(&mut self, rule: &Rule, places: &Places) -> Result<(), Unscanned> {
        let Some(expression) = rule.expression.compiled() else {
            return Err(Unscanned::Unreadable(format!(
                "the rule {} is invalid",
                rule.id
            )));
        };
        if rule.check == Some(Check::Assigned) {
            for at in &places.at {
                self.assigned(rule, expression, *at);
            }
        } else if rule.is_own && !rule.keywords.is_empty() {
            for near in &places.near {
                self.near(rule, expression, near.clone());
            }
        } else {
            self.near(rule, expression, 0..self.content.len());
        }
        Ok(())
    }

    /// Searches a part of the content; a match at its end is followed beyond it.
    fn near(&mut self, rule: &Rule, expression: &Regex, part: Range<usize>) {
        let (mut at, mut end) = (part.start, part.end);
        while self.found.len() < FINDINGS_MAX {
            let Some(head) = self.content.get(..end) else {
                return;
            };
            let Some(found) = expression.find_at(head, at) else {
                return;
            };
            if found.end() == end && end < self.content.len() {
                end = self.content.len().min(end + (end - part.start).max(AFTER));
                at = found.start();
                continue;
            }
            if let Some(captures) = expression.captures_at(head, found.start()) {
                self.captured(rule, &captures);
            }
            at = found.end().max(found.start() + 1);
            if at > part.end {
                return;
            }
        }
    }

    fn captured(&mut self, rule: &Rule, captures: &Captures<'_>) {
        let named = |name| captures.name(name);
        let quoted = named("quoted");
        let secret = match rule.check {
            Some(_) => quoted.or_else(|| named("plain")).or_else(|| named("other")),
            None => None,
        };
        let groups = rule.group.map_or(1..2, |group| group..group + 1);
        let secret = secret.or_else(|| groups.filter_map(|group| captures.get(group)).next());
        let Some(secret) = secret.or_else(|| captures.get(0)) else {
            return;
        };
        let text = String::from_utf8_lossy(secret.as_bytes());
        let value = Value {
            text: &text,
            is_quoted: quoted.is_some(),
        };
        if rule.check.is_none_or(|check| check.passes(value)) {
            self.add(rule, secret.range());
        }
    }

    /// Looks at a value whose name has its word here.
    fn assigned(&mut self, rule: &Rule, expression: &Regex, at: usize) {
        let content = self.content;
        let end = content.len().min(at + ASSIGNED_BYTES_MAX);
        let Some(part) = content.get(at..end) else {
            return;
        };
        if self.found.len() >= FINDINGS_MAX || !expression.is_match(part) {
            return;
        }
        let Some(captures) = expression.captures(part) else {
            return;
        };
        let quoted = captures.name("quoted");
        let Some(secret) = quoted.or_else(|| captures.name("plain")) else {
            return;
        };
        let word = captures
            .name("word")
            .map_or(&[][..], |word| word.as_bytes());
        let before = name_before(content, at);
        let is_word = match (before.last(), word.first()) {
            (Some(last), Some(first)) if last.is_ascii_alphabetic() => {
                last.is_ascii_lowercase() && first.is_ascii_uppercase()
            }
            _ => true,
        };
        // As a part of an identifier, `arn:..:secret:name`.
        let is_part = before.is_empty() && at > 0 && content.get(at - 1) == Some(&b':');
        let lower = |bytes: &[u8]| String::from_utf8_lossy(bytes).to_ascii_lowercase();
        let before = lower(before);
        let name = Name {
            before: before.trim_end_matches(['_', '-', '.']),
            word: &lower(word),
            is_word,
            is_called: captures
                .name("sep")
                .is_some_and(|sign| sign.as_bytes() == b"("),
        };
        let text = String::from_utf8_lossy(secret.as_bytes());
        let value = Value {
            text: &text,
            is_quoted: quoted.is_some(),
        };
        if !is_part && is_written(part, &captures) && is_assigned(&name, value) {
            self.add(rule, at + secret.start()..at + secret.end());
        }
    }

    /// Adds a secret, but where another rule has found it, or it is allowed.
    fn add(&mut self, rule: &Rule, place: Range<usize>) {
        let bytes = self.content.get(place.clone()).unwrap_or_default();
        let is_taken = |other: &Range<usize>| other.start < place.end && place.start < other.end;
        if rule.entropy.is_some_and(|least| entropy(bytes) < least)
            || rule.allowed.has(bytes)
            || self.rules.allowed.has(bytes)
            || rule.is_own && rule.check.is_none() && is_sample(bytes)
            || self.taken.iter().any(is_taken)
        {
            return;
        }
        let is_sure = rule.entropy.is_none() && rule.check.is_none();
        let confidence = if is_sure { 95 } else { 70 };
        let finding = self.lines.finding(&rule.id, place.start, confidence);
        self.found.push(finding);
        self.taken.push(place);
    }
}

/// Returns the part of a name before a place.
fn name_before(content: &[u8], at: usize) -> &[u8] {
    let before = content.get(at.saturating_sub(NAME_BYTES_MAX)..at);
    let before = before.unwrap_or_default();
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.".contains(byte);
    let length = before.iter().rev().take_while(|byte| is_of_name(byte));
    before
        .get(before.len() - length.count()..)
        .unwrap_or_default()
}

/// Returns whether a name and its value are written as an assignment is: what is between them needs
/// quotes, or none, and both quotes are the same.
fn is_written(part: &[u8], captures: &Captures<'_>) -> bool {
    let text = |name| captures.name(name).map_or(&[][..], |one| one.as_bytes());
    let (quoted, plain) = (captures.name("quoted"), captures.name("plain"));
    let is_fit = match text("sep") {
        b"," => {
            let is_name = text("close").iter().any(|byte| b"\"'`".contains(byte));
            is_name && text("quoted").iter().any(u8::is_ascii_digit)
        }
        b">" => plain.is_some_and(|plain| part.get(plain.end()) == Some(&b'<')),
        b"(" | b"==" | b"===" | b"!=" | b"!==" | [b'{', ..] => quoted.is_some(),
        [b':', rest @ .., b'='] if !rest.is_empty() => quoted.is_some(),
        _ => true,
    };
    let is_closed = quoted.is_none_or(|quoted| {
        let open = quoted.start().checked_sub(1).and_then(|at| part.get(at));
        let rest = part.get(quoted.end()..).unwrap_or_default();
        open == rest.iter().find(|byte| **byte != b'\\')
    });
    is_fit && is_closed
}
