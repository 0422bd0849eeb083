//! A second reader of what the filter lets through, for tests and for fuzzing
//! (`fuzz/fuzz_targets/escape.rs` takes this file in by its path). It shares
//! nothing with the filter, so that a mistake has to be made twice.

use atoll_model::TerminalRights;

/// Reads output independently of the filter, and returns the first mistake in it.
pub(crate) fn inspect(out: &[u8], rights: TerminalRights) -> Result<(), String> {
    let text = std::str::from_utf8(out).map_err(|error| error.to_string())?;
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        rest = &rest[character.len_utf8()..];
        match character {
            '\x1b' => rest = inspect_sequence(rest, rights)?,
            '\x07'..='\x0f' => {}
            other if other.is_control() => return Err(format!("control {other:?}")),
            _ => {}
        }
    }
    Ok(())
}

fn inspect_sequence(rest: &str, rights: TerminalRights) -> Result<&str, String> {
    let kind = rest.chars().next().ok_or("a lone escape")?;
    let rest = &rest[1..];
    match kind {
        '[' => {
            let end = rest
                .find(|character: char| ('@'..='~').contains(&character))
                .ok_or("no end")?;
            let (body, last) = (&rest[..end], &rest[end..=end]);
            if !body.bytes().all(|byte| (0x20..=0x3f).contains(&byte)) {
                return Err(format!("body {body:?}"));
            }
            // Terminals read numbers: 021 is 21.
            let first = body.split(';').next().unwrap_or_default();
            let window = (last == "t").then(|| first.trim_start_matches('0'));
            let asks = "cnxy".contains(last)
                || body.ends_with('$')
                || (last == "q" && body.starts_with('>'))
                || (last == "u" && body.starts_with(['?', '<', '=', '>']))
                || window.is_some_and(|window| !matches!(window, "22" | "23"));
            if asks && !rights.queries {
                return Err(format!("asks {body:?}{last}"));
            }
            let never = last == "i"
                || matches!(window, Some("20" | "21"))
                || (matches!(window, Some("22" | "23")) && !rights.title);
            if never {
                return Err(format!("never {body:?}{last}"));
            }
            Ok(&rest[end + 1..])
        }
        ']' | 'k' => {
            let end = rest.find(['\x07', '\x1b']).ok_or("no end")?;
            let body = &rest[..end];
            let number = body.split(';').next().unwrap_or_default();
            let refused = match number {
                _ if kind == 'k' => !rights.title,
                "0" | "1" | "2" => !rights.title,
                "52" => !rights.clipboard || body.contains('?'),
                "4" | "10" | "11" | "12" => !rights.queries && body.contains('?'),
                "8" | "104" | "110" | "111" | "112" | "133" => false,
                _ => true,
            };
            if refused || body.chars().any(char::is_control) {
                return Err(format!("command {body:?}"));
            }
            let after = &rest[end..];
            after
                .strip_prefix('\x07')
                .or_else(|| after.strip_prefix("\x1b\\"))
                .ok_or_else(|| format!("ends with {after:?}"))
        }
        '(' | ')' => rest
            .strip_prefix(['0', 'A', 'B', 'U'])
            .ok_or_else(|| format!("set {rest:?}")),
        '7' | '8' | 'c' | 'D' | 'E' | 'H' | 'M' | '=' | '>' => Ok(rest),
        other => Err(format!("escape {other:?}")),
    }
}
