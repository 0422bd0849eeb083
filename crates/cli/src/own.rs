//! This program, as other programs start it.

use std::env;
use std::fs;
use std::path::PathBuf;

use atoll_engine::failure::{Doing, Failure};
use serde_json::{Map, Value};

/// Returns the variables that name Atoll's directories, where they are set: some agents start
/// programs without them.
pub fn environment() -> Map<String, Value> {
    let named = ["XDG_CONFIG_HOME", "XDG_STATE_HOME"].into_iter();
    let named = named.filter_map(|name| Some((name.to_owned(), env::var(name).ok()?.into())));
    named.collect()
}

/// Returns the path of this program.
///
/// # Errors
/// When it is not known.
pub fn path() -> Result<PathBuf, Failure> {
    let own = env::current_exe().and_then(fs::canonicalize);
    own.doing("this program's own path cannot be found")
}

/// Returns the line that has a shell start this program with these words.
///
/// # Errors
/// When its path is not known, or no text.
pub fn line(words: &[&str]) -> Result<String, Failure> {
    let path = path()?;
    let own = path.to_str().ok_or_else(|| {
        Failure::new(format!("{} cannot be written to settings", path.display()))
            .because("its name is no text")
    })?;
    let set = environment();
    let set = set
        .iter()
        .filter_map(|(name, value)| Some(format!("{name}={}", value.as_str()?)));
    let set: Vec<String> = set.collect();
    let env = (!set.is_empty()).then_some("env");
    let set = env.into_iter().chain(set.iter().map(String::as_str));
    let words = set.chain([own]).chain(words.iter().copied());
    Ok(words.map(quoted).collect::<Vec<_>>().join(" "))
}

/// Returns a text as one word of any shell, whatever is in it.
pub fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-./_".contains(&byte);
    match !word.is_empty() && word.bytes().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::quoted;

    #[test]
    fn whatever_is_quoted_is_one_word() {
        for word in [
            "",
            "a b",
            "'; rm -rf ~; '",
            "$(id)`id`",
            "\n\\\t\"!*",
            "''",
            "ä\u{1b}",
        ] {
            let line = format!("printf %s {}", quoted(word));
            let shell = Command::new("sh").args(["-c", &line]).output().unwrap();
            assert_eq!(String::from_utf8(shell.stdout).unwrap(), word);
        }
    }
}
