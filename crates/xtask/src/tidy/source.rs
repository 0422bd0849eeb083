//! A minimal reader of Rust: it separates code from comments and literals, and finds functions and
//! items that are there for tests alone.
//!
//! The files are formatted by rustfmt and compile, so nothing here needs to
//! understand more than comments, literals and brackets.

/// The stand-in for each character of a string or character literal, so that a line inside a long
/// literal still counts as a line of code.
const LITERAL: char = '"';

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// The line that holds `fn`, counted from 1.
    pub(crate) line: usize,
    /// Lines from there to the closing brace, without blank lines and comments.
    pub(crate) lines: usize,
    /// True if `#[test]` is among its attributes.
    pub(crate) is_test: bool,
}

/// Returns the text with comments blanked and literals filled; lines stay where they are.
pub(crate) fn mask(text: &str) -> String {
    let mut cursor = Cursor::new(text);
    while let Some(current) = cursor.peek(0) {
        match (current, cursor.peek(1)) {
            ('/', Some('/')) => cursor.line_comment(),
            ('/', Some('*')) => cursor.block_comment(),
            ('"', _) => cursor.string(),
            ('r', Some('"' | '#')) if cursor.starts_raw_string() => cursor.raw_string(),
            ('\'', _) => cursor.character_or_lifetime(),
            _ => cursor.keep(),
        }
    }
    cursor.masked
}

/// The attributes of items that no build for users has: they are compiled for tests only, or into
/// the program that lets a test leave a defence out. Literals are masked.
const MARKS: [&str; 2] = [
    "#[cfg(test)]",
    "#[cfg(feature = \"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\")]", // "without_defences"
];

/// Returns masked text without the items that are compiled for tests only.
pub(crate) fn without_tests(masked: &str) -> String {
    let mut rest = masked;
    let mut kept = String::with_capacity(masked.len());
    let next = |rest: &str| {
        let found = MARKS
            .iter()
            .filter_map(|mark| Some((rest.find(mark)?, mark.len())));
        found.min()
    };
    while let Some((at, length)) = next(rest) {
        let (before, marked) = rest.split_at(at);
        let after = marked.get(length..).unwrap_or_default();
        kept.push_str(before);
        let end = item_end(after).unwrap_or(after.len());
        let (item, remaining) = after.split_at_checked(end).unwrap_or((after, ""));
        kept.extend(item.chars().filter(|character| *character == '\n'));
        rest = remaining;
    }
    kept.push_str(rest);
    kept
}

/// Returns every function with a body in masked text.
pub(crate) fn functions(masked: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for (start, word) in words(masked) {
        if word != "fn" {
            continue;
        }
        let after = masked.get(start + 2..).unwrap_or_default();
        let name: String = after
            .trim_start()
            .chars()
            .take_while(|character| is_word(*character))
            .collect();
        // `fn(u8)` is a type, and a signature without a body ends in `;`.
        let Some(length) = item_end(after).filter(|_| !name.is_empty()) else {
            continue;
        };
        let body = after.get(..length).unwrap_or_default();
        if !body.ends_with('}') {
            continue;
        }
        let before = masked.get(..start).unwrap_or_default();
        found.push(Function {
            name,
            line: before.matches('\n').count() + 1,
            lines: body.lines().filter(|line| !line.trim().is_empty()).count(),
            is_test: has_test_attribute(before),
        });
    }
    found
}

/// Returns the words of a text, each with the byte that it begins at.
pub(crate) fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.split(|character| !is_word(character))
        .filter(|word| !word.is_empty())
        .map(move |word| (word.as_ptr().addr() - text.as_ptr().addr(), word))
}

/// Splits a list at the commas of its own level, and returns what follows the bracket that closes it.
pub(crate) fn list(text: &str) -> (Vec<&str>, &str) {
    let (mut depth, mut start, mut before, mut parts) = (0_usize, 0, ' ', Vec::new());
    for (at, character) in text.char_indices() {
        // The end of an arrow closes nothing.
        let closes = matches!(character, ')' | ']' | '}')
            || character == '>' && !matches!(before, '-' | '=');
        if depth == 0 && (closes || character == ',') {
            parts.push(text.get(start..at).unwrap_or_default());
            start = at + 1;
        }
        match character {
            '(' | '[' | '{' | '<' => depth += 1,
            _ if closes && depth == 0 => break,
            _ if closes => depth -= 1,
            _ => {}
        }
        before = character;
    }
    parts.retain(|part| !part.trim().is_empty());
    (parts, text.get(start..).unwrap_or_default())
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Returns the end of the item that starts here: after its `;`, or after the brace that closes its
/// first block.
fn item_end(text: &str) -> Option<usize> {
    let mut round_or_square = 0_usize;
    let mut braces = 0_usize;
    for (at, character) in text.char_indices() {
        match character {
            '(' | '[' => round_or_square += 1,
            ')' | ']' => round_or_square = round_or_square.saturating_sub(1),
            ';' if round_or_square == 0 && braces == 0 => return Some(at + 1),
            '{' => braces += 1,
            '}' => {
                braces = braces.saturating_sub(1);
                if braces == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

fn has_test_attribute(before: &str) -> bool {
    before
        .lines()
        .rev()
        // The line that holds `fn` itself, perhaps with `pub` or `async`.
        .skip(usize::from(!before.ends_with('\n')))
        .map(str::trim)
        .take_while(|line| line.is_empty() || line.starts_with("#["))
        .any(|line| line.contains("#[test]") || line.contains("::test"))
}

struct Cursor {
    characters: Vec<char>,
    at: usize,
    masked: String,
}

impl Cursor {
    fn new(text: &str) -> Self {
        Self {
            characters: text.chars().collect(),
            at: 0,
            masked: String::with_capacity(text.len()),
        }
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.characters.get(self.at + ahead).copied()
    }

    fn keep(&mut self) {
        if let Some(character) = self.peek(0) {
            self.masked.push(character);
        }
        self.at += 1;
    }

    fn put(&mut self, filler: char) {
        let newline = self.peek(0) == Some('\n');
        self.masked.push(if newline { '\n' } else { filler });
        self.at += 1;
    }

    fn line_comment(&mut self) {
        while self.peek(0).is_some_and(|character| character != '\n') {
            self.put(' ');
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0_usize;
        loop {
            match (self.peek(0), self.peek(1)) {
                (None, _) => return,
                (Some('/'), Some('*')) => {
                    depth += 1;
                    self.put(' ');
                }
                (Some('*'), Some('/')) => {
                    depth = depth.saturating_sub(1);
                    self.put(' ');
                    if depth == 0 {
                        return self.put(' ');
                    }
                }
                _ => {}
            }
            self.put(' ');
        }
    }

    fn string(&mut self) {
        self.put(LITERAL);
        while let Some(character) = self.peek(0) {
            self.put(LITERAL);
            match character {
                '\\' if self.peek(0).is_some() => self.put(LITERAL),
                '"' => return,
                _ => {}
            }
        }
    }

    fn starts_raw_string(&self) -> bool {
        // In `for"` the letter belongs to a word; in `br"` it does not.
        let before = self
            .at
            .checked_sub(1)
            .and_then(|at| self.characters.get(at));
        let in_word = before.is_some_and(|before| is_word(*before) && !matches!(before, 'b' | 'c'));
        !in_word && self.peek(1 + self.hashes(1)) == Some('"')
    }

    fn hashes(&self, from: usize) -> usize {
        let mut count = 0;
        while self.peek(from + count) == Some('#') {
            count += 1;
        }
        count
    }

    fn raw_string(&mut self) {
        let hashes = self.hashes(1);
        for _ in 0..hashes + 2 {
            self.put(LITERAL);
        }
        while let Some(character) = self.peek(0) {
            let closes = character == '"' && self.hashes(1) >= hashes;
            self.put(LITERAL);
            if closes {
                for _ in 0..hashes {
                    self.put(LITERAL);
                }
                return;
            }
        }
    }

    fn character_or_lifetime(&mut self) {
        if self.peek(1) == Some('\\') {
            // The escaped character may itself be a quote.
            for _ in 0..3 {
                self.put(LITERAL);
            }
            while self.peek(0).is_some_and(|character| character != '\'') {
                self.put(LITERAL);
            }
            self.put(LITERAL);
        } else if self.peek(2) == Some('\'') {
            for _ in 0..3 {
                self.put(LITERAL);
            }
        } else {
            self.keep();
        }
    }
}
