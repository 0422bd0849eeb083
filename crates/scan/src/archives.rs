//! Archives: what they would write, and how much, without writing any of it.

use std::collections::HashSet;

use crate::unpack::{Bound, Entry, EntryKind, Visitor, visit};
use crate::{Finding, Unscanned};

pub(crate) fn scan(content: &[u8]) -> Result<Vec<Finding>, Unscanned> {
    let mut look = Look {
        found: Vec::new(),
        names: HashSet::new(),
    };
    visit(content, &mut look)?;
    Ok(look.found)
}

struct Look {
    found: Vec<Finding>,
    /// The names so far, as a file system would take them for the same.
    names: HashSet<String>,
}

impl Visitor for Look {
    fn entry(&mut self, entry: &Entry<'_>) {
        self.name(entry.within, entry.name);
        match entry.kind {
            EntryKind::Link => {
                self.add("link", entry.name, 90);
                entry.target.iter().for_each(|to| self.leads_out(to));
            }
            EntryKind::Special => self.add("special-file", entry.name, 95),
            EntryKind::File | EntryKind::Directory => {}
        }
    }

    fn content(&mut self, _: &str, _: &[u8], _: bool) -> Result<(), Unscanned> {
        Ok(())
    }

    fn bound(&mut self, bound: Bound, place: &str) -> Result<(), Unscanned> {
        let rule = match bound {
            Bound::Depth => "nested-archives",
            Bound::Entries => "many-entries",
            Bound::Growth => "grows-without-bounds",
            Bound::Encrypted => "encrypted",
            Bound::Overlap => "overlapping-entries",
        };
        self.add(rule, place, 95);
        Ok(())
    }
}

impl Look {
    /// Looks at the name of an entry.
    fn name(&mut self, within: &str, name: &str) {
        self.leads_out(name);
        if name
            .chars()
            .any(|one| one.is_control() || is_reordering(one))
        {
            self.add("hidden-characters", name, 90);
        }
        // As file systems without case take it, and those that take compositions for the same.
        let folded: String = name
            .trim_end_matches('/')
            .chars()
            .flat_map(char::to_lowercase)
            .collect();
        let folded = folded.replace('\\', "/");
        if !self.names.insert(format!("{within}\0{}", plain(&folded))) {
            self.add("same-name-twice", name, 80);
        }
    }

    fn leads_out(&mut self, path: &str) {
        let parts = path.split(['/', '\\']);
        let is_absolute = path.starts_with(['/', '\\']) || path.get(1..2) == Some(":");
        if is_absolute {
            self.add("absolute-path", path, 95);
        }
        if parts.into_iter().any(|part| part == "..") {
            self.add("leads-out", path, 95);
        }
    }

    fn add(&mut self, rule: &str, entry: &str, confidence: u8) {
        if self.found.len() < crate::FINDINGS_MAX {
            self.found.push(Finding::at_entry(rule, entry, confidence));
        }
    }
}

/// Returns a name without the marks that are composed with a letter, so that both of its forms are one.
fn plain(name: &str) -> String {
    use unicode_normalization::UnicodeNormalization as _;
    name.nfkc().collect()
}

/// Returns whether a character changes the order in which others are shown (UAX 9).
fn is_reordering(one: char) -> bool {
    matches!(one, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
