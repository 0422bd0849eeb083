//! Credentials printed by a command of the person's: the recording side runs it, and its output
//! comes here by a pipe.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime};

use atoll_model::network::{COMMAND_OUTPUT_BYTES_MAX, CommandEnd, CredentialName};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::answer::{self, key};
use super::fetch::FetchError;
use super::values::FetchedValues;
use crate::Egress;
use crate::control_channel::CommandMessage;

/// The additional time for the recording side, which enforces the command's time limit itself.
const GRACE: Duration = Duration::from_secs(5);
/// The longest time for which processes that a command has started may hold its output open after
/// its end.
const DRAINED: Duration = Duration::from_millis(500);
/// The most bytes read at once.
const BLOCK_BYTES: usize = 4 * 1024;
/// The longest line of its error output that is reported, letters.
const LINE_LETTERS_MAX: usize = 200;
/// The shortest run of word letters that could be a key, bytes.
const SECRET_BYTES_MIN: usize = 16;
/// The shortest part of its output that is redacted from the report, bytes.
const PRINTED_BYTES_MIN: usize = 4;

/// The output of a command.
struct CommandOutput {
    output: Zeroizing<Vec<u8>>,
    errors: Zeroizing<Vec<u8>>,
}

/// Has the command of a credential run, and reads its output.
///
/// # Errors
/// [`FetchError`]: the reason why there is no value, without the command's output.
pub(super) async fn fetch(
    egress: &Egress,
    index: usize,
    name: &CredentialName,
    patience: Duration,
) -> Result<FetchedValues, FetchError> {
    let held = egress.credentials.get(index);
    let is_key = held.is_some_and(|held| !held.part.is_whole());
    let nobody = || "nobody runs its command any more".to_owned();
    let mut heard = egress.control.command(name).map_err(|_| nobody())?;
    let late = |_| format!("its command took longer than {} s", patience.as_secs());
    let ran = async {
        let outputs = match heard.recv().await {
            Some(CommandMessage::Running(outputs)) => outputs,
            Some(CommandMessage::Ran(end)) => return Err(failure_text(end, patience).into()),
            Some(CommandMessage::Renewing(_)) | None => return Err(nobody().into()),
        };
        let (written, end) = follow(outputs, &mut heard).await?;
        match end.ok_or_else(nobody)? {
            CommandEnd::Exited(0) => {
                let read = match is_key {
                    true => key::read(&written.output, SystemTime::now()),
                    false => answer::read(&written.output).map(FetchedValues::from),
                };
                read.map_err(|why| format!("its command: {why}").into())
            }
            // What it says may hold a key, however it is masked: it is for outside alone.
            end => {
                let hint = match (is_key, end) {
                    (true, CommandEnd::Exited(_)) => key::LOG_IN,
                    (_, _) => "",
                };
                Err(FetchError {
                    why: format!("{}{hint}", failure_text(end, patience)),
                    said: last_line(&written),
                })
            }
        }
    };
    timeout(patience + GRACE, ran).await.map_err(late)?
}

/// Reads both outputs until it has ended.
async fn follow(
    [output, errors]: [OwnedFd; 2],
    heard: &mut mpsc::Receiver<CommandMessage>,
) -> Result<(CommandOutput, Option<CommandEnd>), String> {
    let room = || Zeroizing::new(Vec::with_capacity(COMMAND_OUTPUT_BYTES_MAX + BLOCK_BYTES));
    let mut written = CommandOutput {
        output: room(),
        errors: room(),
    };
    let end = {
        let reading = async {
            let (output, errors) = tokio::join!(
                read(output, &mut written.output, OverlongOutput::Refused),
                read(errors, &mut written.errors, OverlongOutput::LetGo)
            );
            // What is said beside is of no consequence.
            let _ = errors;
            output
        };
        tokio::pin!(reading);
        let ending = async {
            loop {
                match heard.recv().await {
                    Some(CommandMessage::Ran(end)) => break Some(end),
                    Some(CommandMessage::Running(_) | CommandMessage::Renewing(_)) => {}
                    None => break None,
                }
            }
        };
        tokio::pin!(ending);
        let unread = |error: io::Error| format!("its command: {error}");
        tokio::select! {
            read = &mut reading => {
                read.map_err(unread)?;
                ending.await
            }
            end = &mut ending => {
                // A daemon that it has left behind can hold its outputs.
                if let Ok(read) = timeout(DRAINED, reading).await {
                    read.map_err(unread)?;
                }
                end
            }
        }
    };
    Ok((written, end))
}

/// The handling of an output that is too long.
#[derive(Clone, Copy)]
enum OverlongOutput {
    /// An error: all of it is needed.
    Refused,
    /// The beginning is dropped: the end is needed.
    LetGo,
}

/// Reads an output, up to the limit.
async fn read(from: OwnedFd, to: &mut Vec<u8>, excess: OverlongOutput) -> io::Result<()> {
    // What it is could not be asked here.
    let mut from = pipe::Receiver::from_owned_fd_unchecked(from)?;
    let mut block = Zeroizing::new([0; BLOCK_BYTES]);
    loop {
        let got = from.read(&mut block[..]).await?;
        if got == 0 {
            return Ok(());
        }
        if to.len() + got > COMMAND_OUTPUT_BYTES_MAX {
            match excess {
                OverlongOutput::Refused => {
                    let why = format!("it prints more than {COMMAND_OUTPUT_BYTES_MAX} bytes");
                    return Err(io::Error::other(why));
                }
                OverlongOutput::LetGo => drop(to.drain(..to.len() / 2)),
            }
        }
        to.extend_from_slice(block.get(..got).unwrap_or_default());
    }
}

/// Returns why there is no value, in words.
fn failure_text(end: CommandEnd, patience: Duration) -> String {
    match end {
        CommandEnd::Exited(status) => format!("its command ended with status {status}"),
        CommandEnd::Signalled(signal) => format!("signal {signal} ended its command"),
        CommandEnd::Late => format!("its command took longer than {} s", patience.as_secs()),
        CommandEnd::Unstarted(0) => "its command is not started again so soon".to_owned(),
        CommandEnd::Unstarted(error) => format!(
            "its command cannot be started: {}",
            io::Error::from_raw_os_error(error)
        ),
    }
}

/// Returns the last line of its error output, without what could be a secret.
fn last_line(written: &CommandOutput) -> String {
    let lines = written.errors.split(|byte| *byte == b'\n');
    let mut lines = lines.map(<[u8]>::trim_ascii);
    let Some(line) = lines.rfind(|line| !line.is_empty()) else {
        return String::new();
    };
    // First of all, since one within a key would hide it from what follows.
    let is_shown = |letter: &char| !letter.is_control() && !is_format(*letter);
    let line = String::from_utf8_lossy(line);
    let mut told: String = line.chars().filter(is_shown).collect();
    let printed = String::from_utf8_lossy(&written.output);
    let printed = Zeroizing::new(printed.into_owned());
    // As a whole, and what follows a name, as in `password=…` or `user:…`.
    let words = printed.split(|letter| !is_of_word(letter));
    let named = printed.split(|letter| !is_of_word(letter) || "=:".contains(letter));
    for part in words.chain(named) {
        if part.len() >= PRINTED_BYTES_MIN && told.contains(part) {
            told = told.replace(part, "***");
        }
    }
    let told = without_secrets(&told);
    told.chars().take(LINE_LETTERS_MAX).collect()
}

/// Returns whether a letter is one of those that keys consist of, in any usual encoding.
fn is_of_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "+/._~=-:".contains(letter)
}

/// Returns whether a letter is invisible and changes how others are shown (Unicode 16, category Cf,
/// and the line and paragraph separators).
fn is_format(letter: char) -> bool {
    matches!(
        letter,
        '\u{ad}'
            | '\u{600}'..='\u{605}'
            | '\u{61c}'
            | '\u{6dd}'
            | '\u{70f}'
            | '\u{890}'..='\u{891}'
            | '\u{8e2}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{110bd}'
            | '\u{110cd}'
            | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0001}'
            | '\u{e0020}'..='\u{e007f}'
    )
}

/// Returns a text without what could be a key: long runs of word letters.
fn without_secrets(text: &str) -> String {
    let mut told = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest
            .find(|letter| !is_of_word(letter))
            .unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        match word.len() >= SECRET_BYTES_MIN {
            true => told.push_str("***"),
            false => told.push_str(word),
        }
        let mut letters = after.chars();
        told.extend(letters.next());
        rest = letters.as_str();
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_error_output_is_shown_without_secrets() {
        let told = |output: &str, errors: &str| {
            last_line(&CommandOutput {
                output: Zeroizing::new(output.as_bytes().to_vec()),
                errors: Zeroizing::new(errors.as_bytes().to_vec()),
            })
        };
        for (output, errors, expected) in [
            ("", "", ""),
            ("", "one\n\nlast: not logged in \n\n", "last: not logged in"),
            (
                "secret-word\n",
                "cannot renew secret-word now",
                "cannot renew *** now",
            ),
            ("", "bad token ghp_0123456789abcdefgh012", "bad token ***"),
            (
                "",
                "see https://example.com/some/path, it is short/of/15abc",
                "see ***, it is short/of/15abc",
            ),
            ("", "refused abcdefgh/ijkl.mno now", "refused *** now"),
            ("password=short-one\n", "not short-one", "not ***"),
            ("", "token=Zm9v:YmFy~abc+/=", "***"),
            ("", "ghp_01234\u{200b}56789\u{202e}abcdef\u{ad}gh012", "***"),
            ("", "a\u{1b}[31mred\u{7}", "a[31mred"),
        ] {
            assert_eq!(told(output, errors), expected);
        }
        assert_eq!(told("", &"word ".repeat(1000)).len(), LINE_LETTERS_MAX);
    }
}
