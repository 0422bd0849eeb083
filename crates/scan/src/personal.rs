//! Personal data in texts.

use crate::pii::{PiiKind, find_pii};
use crate::{Finding, Lines};

/// Finds personal data; content that is no text has its readable parts looked at.
pub(crate) fn scan(content: &[u8]) -> Vec<Finding> {
    let mut found = Vec::new();
    let (mut at, mut lines) = (0, Lines::of(content));
    // What is no UTF-8 parts texts, and is no text itself.
    for chunk in content.utf8_chunks() {
        let text = chunk.valid();
        for one in find_pii(text) {
            let confidence = match one.kind {
                PiiKind::Card | PiiKind::Iban => 95,
                PiiKind::Email => 90,
                PiiKind::Phone | PiiKind::Ssn => 70,
            };
            let byte = at + one.at.start;
            found.push(lines.finding(one.kind.name(), byte, confidence));
            if found.len() >= crate::FINDINGS_MAX {
                return found;
            }
        }
        at += text.len() + chunk.invalid().len();
    }
    found
}
