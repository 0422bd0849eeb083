//! The list of commands that carry a string (OSC).

use atoll_engine::printable::is_deceptive;
use atoll_model::TerminalRights;

use super::control::number;
use super::removal::{Judgement, Removal};

/// A window's title; longer ones are cut.
const TITLE_CHARACTERS_MAX: usize = 256;
/// The address of a link, as terminals limit it.
const LINK_BYTES_MAX: usize = 2_083;
/// The name by which the pieces of a link belong together.
const LINK_ID_BYTES_MAX: usize = 250;
/// A colour, as `rgb:ffff/ffff/ffff` or a name.
const COLOUR_BYTES_MAX: usize = 64;
/// The longest text of a prompt mark after its letter, bytes.
const MARK_BYTES_MAX: usize = 256;

/// Judges `OSC body`. The number is read as terminals do and written anew, so that `052` is not
/// something else than `52`.
pub(super) fn judge_command(body: &[u8], rights: TerminalRights) -> Judgement {
    let (digits, rest) = split_once(body);
    let Some(command) = number(digits).filter(|_| !digits.is_empty()) else {
        return Judgement::Remove(Removal::Unknown);
    };
    let rest = rest.unwrap_or_default();
    match command {
        0..=2 if rights.title => rewrite(command, Some(&title(rest)), None),
        0..=2 => Judgement::Remove(Removal::Title),
        4 => palette(rest, rights),
        8 => hyperlink(rest),
        10..=12 => colour(command, rest, rights),
        52 => clipboard(rest, rights),
        104 if is_list_of_numbers(rest) => {
            rewrite(command, Some(rest).filter(|rest| !rest.is_empty()), None)
        }
        110..=112 if rest.is_empty() => rewrite(command, None, None),
        133 if is_prompt_mark(rest) => rewrite(command, Some(rest), None),
        9 | 99 | 777 => Judgement::Remove(Removal::Notification),
        _ => Judgement::Remove(Removal::Unknown),
    }
}

/// Judges `ESC k body`.
pub(super) fn judge_title(body: &[u8], rights: TerminalRights) -> Judgement {
    if !rights.title {
        return Judgement::Remove(Removal::Title);
    }
    Judgement::Rewrite {
        body: title(body),
        removed: None,
    }
}

fn rewrite(command: u16, rest: Option<&[u8]>, removed: Option<Removal>) -> Judgement {
    let mut body = command.to_string().into_bytes();
    if let Some(rest) = rest {
        body.push(b';');
        body.extend_from_slice(rest);
    }
    Judgement::Rewrite { body, removed }
}

/// Titles are shown outside the terminal, where text direction counts as well.
fn title(text: &[u8]) -> Vec<u8> {
    String::from_utf8_lossy(text)
        .chars()
        .filter(|&character| !is_deceptive(character))
        .take(TITLE_CHARACTERS_MAX)
        .collect::<String>()
        .into_bytes()
}

/// Judges `OSC 4 ; index ; colour …`: `?` in place of a colour asks for it.
fn palette(rest: &[u8], rights: TerminalRights) -> Judgement {
    let parts: Vec<&[u8]> = rest.split(|&byte| byte == b';').collect();
    let mut asks = false;
    for pair in parts.chunks(2) {
        let &[index, value] = pair else {
            return Judgement::Remove(Removal::Malformed);
        };
        asks |= value == b"?";
        let indexed = !index.is_empty() && number(index).is_some();
        if !indexed || !(value == b"?" || is_colour(value)) {
            return Judgement::Remove(Removal::Malformed);
        }
    }
    if asks && !rights.queries {
        return Judgement::Remove(Removal::Query);
    }
    rewrite(4, Some(rest), None)
}

/// Judges `OSC 10`, `11`, `12`: the colours of text, background and cursor, one each.
fn colour(command: u16, rest: &[u8], rights: TerminalRights) -> Judgement {
    match rest {
        b"?" if rights.queries => rewrite(command, Some(rest), None),
        b"?" => Judgement::Remove(Removal::Query),
        _ if is_colour(rest) => rewrite(command, Some(rest), None),
        _ => Judgement::Remove(Removal::Malformed),
    }
}

fn is_colour(value: &[u8]) -> bool {
    (1..=COLOUR_BYTES_MAX).contains(&value.len())
        && value
            .iter()
            .all(|&byte| byte.is_ascii_alphanumeric() || b"#:/.,-".contains(&byte))
}

fn is_list_of_numbers(rest: &[u8]) -> bool {
    rest.split(|&byte| byte == b';')
        .all(|part| number(part).is_some())
}

/// Judges `OSC 8 ; parameters ; address`. Passes only addresses that a browser or a mail program
/// opens; `file:` would open what the program itself has made. In place of any other, a link that
/// is still open is closed.
fn hyperlink(rest: &[u8]) -> Judgement {
    let (parameters, address) = split_once(rest);
    let address = address.unwrap_or_default();
    if address.is_empty() {
        return rewrite(8, Some(b";"), None);
    }
    if !is_web_address(address) {
        return rewrite(8, Some(b";"), Some(Removal::Hyperlink));
    }
    let id = parameters
        .split(|&byte| byte == b':')
        .find(|parameter| is_link_id(parameter));
    let rest = [id.unwrap_or_default(), address].join(&b';');
    rewrite(8, Some(&rest), None)
}

fn is_web_address(address: &[u8]) -> bool {
    let begins = |scheme: &[u8]| {
        address
            .get(..scheme.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    (begins(b"http://") || begins(b"https://") || begins(b"mailto:"))
        && address.len() <= LINK_BYTES_MAX
        && address.iter().all(u8::is_ascii_graphic)
}

fn is_link_id(parameter: &[u8]) -> bool {
    parameter.strip_prefix(b"id=").is_some_and(|id| {
        (1..=LINK_ID_BYTES_MAX).contains(&id.len())
            && id
                .iter()
                .all(|&byte| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte))
    })
}

/// Judges `OSC 52 ; which ; base64`: writing, never reading (`?`) and never clearing.
fn clipboard(rest: &[u8], rights: TerminalRights) -> Judgement {
    let refused = Judgement::Remove(Removal::Clipboard);
    let (which, content) = split_once(rest);
    let content = content.unwrap_or_default();
    let known = which.iter().all(|&byte| b"cpqs01234567".contains(&byte));
    if rights.clipboard && known && is_base64(content) {
        rewrite(52, Some(rest), None)
    } else {
        refused
    }
}

fn is_base64(content: &[u8]) -> bool {
    let padding = content
        .iter()
        .rev()
        .take_while(|&&byte| byte == b'=')
        .count();
    let digits = content.get(..content.len() - padding).unwrap_or_default();
    padding <= 2
        && content.len().is_multiple_of(4)
        && !digits.is_empty()
        && digits
            .iter()
            .all(|&byte| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/')
}

/// Marks around prompts and their output, which terminals use for jumping.
fn is_prompt_mark(rest: &[u8]) -> bool {
    matches!(
        rest,
        [b'A' | b'B' | b'C' | b'D' | b'L' | b'N' | b'P']
            | [b'A' | b'B' | b'C' | b'D' | b'L' | b'N' | b'P', b';', ..]
    ) && rest.len() <= MARK_BYTES_MAX
        && rest
            .iter()
            .all(|&byte| byte.is_ascii_alphanumeric() || b";=_-.%".contains(&byte))
}

/// Splits at the first `;`: the text before it, and the text after it if there is one.
fn split_once(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    let mut parts = text.splitn(2, |&byte| byte == b';');
    (parts.next().unwrap_or_default(), parts.next())
}
