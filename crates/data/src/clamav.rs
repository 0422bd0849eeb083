//! ClamAV, where its daemon runs on this host: clamd(8) is given the content over its socket (`INSTREAM`
//! of its protocol), and looks at it as its own user.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use atoll_scan::Finding;

use crate::verdict::{Verdict, WHY_CHARS_MAX};

/// Its name as a scanner.
pub(crate) const NAME: &str = "clamav";
/// The variable that names its socket, where that is at another place.
const VARIABLE: &str = "ATOLL_CLAMD";
/// The places of its socket in distributions.
const SOCKETS: [&str; 4] = [
    "/run/clamav/clamd.ctl",
    "/run/clamav/clamd.sock",
    "/run/clamd.scan/clamd.sock",
    "/run/clamd.sock",
];
/// The longest wait for a word of it.
const PATIENCE: Duration = Duration::from_secs(60);
/// The bytes that are sent at once.
const CHUNK_BYTES: usize = 256 << 10;
/// The largest content that it looks at all of, as it comes (`MaxFileSize` of clamd.conf(5)), bytes.
const CONTENT_BYTES_MAX: usize = 25_000_000;
/// The longest answer, bytes.
const ANSWER_BYTES_MAX: u64 = 4 << 10;

/// Returns its socket; `None` if it runs nowhere.
pub(crate) fn socket() -> Option<PathBuf> {
    match std::env::var_os(VARIABLE) {
        // Named, and not there: that is a failure, and no scanner that is missing.
        Some(named) => Some(PathBuf::from(named)).filter(|path| !path.as_os_str().is_empty()),
        None => SOCKETS.iter().map(PathBuf::from).find(|path| path.exists()),
    }
}

/// Has it look at a content.
pub(crate) fn scan(socket: &Path, content: &[u8]) -> Verdict {
    let told = |error: io::Error| {
        let why = format!("{}: {error}", socket.display());
        Verdict::Failed(why.chars().take(WHY_CHARS_MAX).collect())
    };
    match ask(socket, content).map_or_else(told, |answer| verdict(&answer)) {
        // It passes over what is larger than it looks at, without a word.
        Verdict::Clean if content.len() > CONTENT_BYTES_MAX => {
            Verdict::Failed("it is larger than clamd looks at by default".to_owned())
        }
        verdict => verdict,
    }
}

fn ask(socket: &Path, content: &[u8]) -> io::Result<Vec<u8>> {
    let mut clamd = UnixStream::connect(socket)?;
    clamd.set_read_timeout(Some(PATIENCE))?;
    clamd.set_write_timeout(Some(PATIENCE))?;
    let mut send = || {
        clamd.write_all(b"zINSTREAM\0")?;
        for chunk in content.chunks(CHUNK_BYTES) {
            let length = u32::try_from(chunk.len()).unwrap_or(u32::MAX);
            clamd.write_all(&length.to_be_bytes())?;
            clamd.write_all(chunk)?;
        }
        clamd.write_all(&0_u32.to_be_bytes())
    };
    let sent: io::Result<()> = send();
    let mut answer = Vec::new();
    // It says why it reads no further.
    let read = clamd.take(ANSWER_BYTES_MAX).read_to_end(&mut answer);
    match (answer.is_empty(), sent, read) {
        // Of what was not sent it has said nothing.
        (false, Err(error), _) if answer.ends_with(b"OK\0") => Err(error),
        (false, ..) => Ok(answer),
        (true, Err(error), _) | (true, Ok(()), Err(error)) => Err(error),
        (true, Ok(()), Ok(_)) => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Reads `stream: OK`, `stream: NAME FOUND`, or an error.
fn verdict(answer: &[u8]) -> Verdict {
    let text = String::from_utf8_lossy(answer);
    let text = text.trim_end_matches(['\0', '\n']);
    let said = text.strip_prefix("stream: ").unwrap_or_default();
    match (said, said.strip_suffix(" FOUND")) {
        ("OK", _) => Verdict::Clean,
        (_, Some(name)) if !name.is_empty() => Verdict::Found(vec![Finding {
            rule: name.chars().take(WHY_CHARS_MAX).collect(),
            place: "content".to_owned(),
            confidence: 95,
        }]),
        _ => Verdict::Failed(
            format!("clamd says {text:?}")
                .chars()
                .take(WHY_CHARS_MAX)
                .collect(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_word_that_all_is_well_is_one() {
        assert_eq!(verdict(b"stream: OK\0"), Verdict::Clean);
        let Verdict::Found(found) = verdict(b"stream: Eicar-Test-Signature FOUND\0") else {
            panic!("nothing was found");
        };
        assert_eq!(found[0].rule, "Eicar-Test-Signature");
        for other in [
            &b""[..],
            b"OK",
            b"stream: ",
            b"stream:  FOUND",
            b"INSTREAM size limit exceeded. ERROR\0",
            b"stream: OK FOUND or not\0",
        ] {
            assert!(matches!(verdict(other), Verdict::Failed(_)), "{other:?}");
        }
    }
}
