//! Checks of a policy file before Cedar reads it: bounds, and the characters allowed in it.

use crate::depth::{self, Depth, INSTEAD};
use crate::fault::Fault;

/// The longest file of policies, bytes.
pub const SOURCE_BYTES_MAX: usize = 1 << 20;
/// The most policies of one layer.
pub const POLICIES_MAX: usize = 4_000;
/// The longest single policy, bytes.
pub(crate) const POLICY_BYTES_MAX: usize = 8 << 10;
/// The most brackets that can be open at once.
const OPEN_MAX: usize = 32;
/// The most entries in one set, and members in one record.
pub(crate) const ENTRIES_MAX: usize = 256;

/// Checks a file by its bytes alone: look-alike characters are refused, and so is anything that
/// would overflow the parser's stack.
pub(crate) fn read<'a>(file: &str, content: &'a [u8]) -> Result<&'a str, Fault> {
    if content.len() > SOURCE_BYTES_MAX {
        let what = format!("it is longer than {SOURCE_BYTES_MAX} bytes");
        return Err(Fault::at(file, "", 0, what));
    }
    let text = std::str::from_utf8(content).map_err(|error| {
        let begin = content.get(..error.valid_up_to()).unwrap_or_default();
        let begin = String::from_utf8_lossy(begin);
        Fault::at(file, &begin, error.valid_up_to(), "it is not UTF-8")
    })?;
    let mut scan = Scan::default();
    let mut characters = text.char_indices().peekable();
    while let Some((at, one)) = characters.next() {
        let next = characters.peek().map(|(_, next)| *next);
        line_end(one, next)
            .and_then(|()| scan.take(one, at))
            .map_err(|(what, hint)| Fault::at(file, text, at, what).hint(hint))?;
        if let Some(ended) = scan.ended.take() {
            not_too_deep(file, text.get(..=at).unwrap_or_default(), &ended)?;
        }
    }
    not_too_deep(file, text, &scan.end())?;
    Ok(text)
}

/// Refuses a policy that is too deep, by its name, before anything recurses into its operators. The
/// policy ends where `text` does.
fn not_too_deep(file: &str, text: &str, ended: &Ended) -> Result<(), Fault> {
    if ended.depth <= depth::DEPTH_MAX {
        return Ok(());
    }
    let policy = text.get(ended.begin..).unwrap_or_default();
    let id = policy.split_once("@id(\"");
    let id = id.and_then(|(_, id)| id.split('"').next());
    let which = match id.filter(|id| is_id(id)) {
        Some(id) => format!("policy {id}"),
        None => "the policy that begins here".to_owned(),
    };
    let what = format!(
        "{which} is {} operators deep, all its conditions together, and no more than {} can be \
         decided on for certain",
        ended.depth,
        depth::DEPTH_MAX
    );
    Err(Fault::at(file, text, ended.begin, what).hint(INSTEAD))
}

/// A policy whose end has been seen.
#[derive(Debug)]
struct Ended {
    /// The byte offset at which it begins.
    begin: usize,
    depth: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Within {
    #[default]
    Code,
    /// After one `/`.
    Slash,
    Comment,
    Text,
    /// After a `\` in a text.
    Escape,
}

/// The state of scanning a file.
#[derive(Debug, Default)]
struct Scan {
    within: Within,
    /// The number of commas seen in each open bracket.
    open: Vec<usize>,
    /// The bytes since the last policy ended.
    policy_bytes: usize,
    /// The byte offset at which the policy begins, once anything of it has been seen.
    begin: Option<usize>,
    depth: Depth,
    ended: Option<Ended>,
}

type Wrong = (String, &'static str);

impl Scan {
    /// Takes one character, at this byte offset.
    fn take(&mut self, one: char, at: usize) -> Result<(), Wrong> {
        if self.within == Within::Comment {
            if one == '\n' {
                self.within = Within::Code;
            }
            return may_be_read(one);
        }
        let is_plain = matches!(one, ' '..='~' | '\n' | '\t' | '\r');
        if !is_plain {
            let what = format!("{:?} stands outside a comment", one);
            let hint = "write it as an escape, as \\u{fc}: what looks alike is then seen to differ";
            return Err((what, hint));
        }
        self.policy_bytes += 1;
        if self.policy_bytes > POLICY_BYTES_MAX {
            let what = format!("a policy is longer than {POLICY_BYTES_MAX} bytes");
            return Err((what, "write several"));
        }
        if !matches!(self.within, Within::Escape | Within::Text) {
            self.depth.take(one);
            if !one.is_ascii_whitespace() && one != '/' {
                self.begin.get_or_insert(at);
            }
        }
        self.within = match (self.within, one) {
            (Within::Escape, _) => Within::Text,
            (Within::Text, '\\') => Within::Escape,
            (Within::Text, '"') => Within::Code,
            (Within::Text, _) => Within::Text,
            (Within::Slash, '/') => Within::Comment,
            (_, '/') => Within::Slash,
            (_, '"') => Within::Text,
            (_, _) => {
                self.code(one)?;
                Within::Code
            }
        };
        Ok(())
    }

    fn code(&mut self, one: char) -> Result<(), Wrong> {
        match one {
            '(' | '[' | '{' => {
                self.open.push(0);
                if self.open.len() > OPEN_MAX {
                    let what = format!("more than {OPEN_MAX} brackets are open");
                    return Err((what, "write several policies"));
                }
            }
            ')' | ']' | '}' => {
                self.open.pop();
            }
            ',' => {
                if let Some(commas) = self.open.last_mut() {
                    *commas += 1;
                    if *commas >= ENTRIES_MAX {
                        let what = format!("a list has more than {ENTRIES_MAX} entries");
                        return Err((what, "write several policies"));
                    }
                }
            }
            ';' if self.open.is_empty() => {
                self.policy_bytes = 0;
                self.ended = Some(self.end());
            }
            _ => {}
        }
        Ok(())
    }

    /// Ends the current policy.
    fn end(&mut self) -> Ended {
        Ended {
            begin: self.begin.take().unwrap_or(0),
            depth: self.depth.end(),
        }
    }
}

/// Refuses a carriage return without a line feed. Cedar ends a line there, and so a comment, while
/// hardly any viewer does: what follows would count as code and look like a comment.
fn line_end(one: char, next: Option<char>) -> Result<(), Wrong> {
    match (one, next) {
        ('\r', Some('\n')) => Ok(()),
        ('\r', _) => {
            let what = "a carriage return stands without a line feed after it".to_owned();
            Err((what, "end lines by \\n or by \\r\\n"))
        }
        (_, _) => Ok(()),
    }
}

/// Refuses characters in a comment that hide text or change its order. Any language is allowed.
fn may_be_read(one: char) -> Result<(), Wrong> {
    let is_hidden = one.is_control() && !matches!(one, '\n' | '\t' | '\r')
        || matches!(
            one,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}' | '\u{2028}'..='\u{202e}'
        )
        || matches!(one, '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{206f}');
    if is_hidden {
        let what = format!("{one:?} hides or turns around what a comment says");
        return Err((what, "leave it out"));
    }
    Ok(())
}

/// The longest `@id`, bytes.
pub(crate) const ID_BYTES_MAX: usize = 128;

/// Returns whether a text is an id of characters that people can tell apart, as they compare ids
/// too.
pub(crate) fn is_id(text: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/".contains(&byte);
    (1..=ID_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_known)
}
