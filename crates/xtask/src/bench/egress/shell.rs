//! A shell that does one command after another, outside or in one sandbox, so that the sandbox's
//! egress process stays the same from turn to turn, as its peers do.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};

/// The line prefix that ends the output of a command; the status follows it.
const END: &str = "end-of-turn ";

/// The script of the shell. A command that hangs is a failure of its contender alone.
const LOOP: &str = "while IFS= read -r line; do
    timeout 120 sh -c \"$line\" </dev/null
    printf '\\nend-of-turn %s\\n' $?
done";

pub(crate) struct Shell {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
    errors: PathBuf,
}

impl Shell {
    /// Starts a shell with the words of `front` before it.
    pub(crate) fn start(front: &[&str], directory: &Path, errors: &Path) -> Result<Self> {
        let words = [front, &["sh", "-c", LOOP]].concat();
        let (program, arguments) = words.split_first().context("a shell without a name")?;
        let mut child = Command::new(program)
            .args(arguments)
            .current_dir(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(errors)?)
            .spawn()
            .with_context(|| format!("cannot start {program}"))?;
        let output = child.stdout.take().context("a shell without output")?;
        Ok(Self {
            input: child.stdin.take(),
            output: BufReader::new(output).lines(),
            errors: errors.to_path_buf(),
            child,
        })
    }

    /// Returns the id of the process that was started: for a sandbox, the one that records.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Runs a command to its end, and returns the lines that it printed.
    pub(crate) fn ask(&mut self, command: &str) -> Result<Vec<String>> {
        self.say(command)?;
        let (lines, end) = self.until(END)?;
        if end != "0" {
            bail!("{command}: status {end}: {}", self.last_words());
        }
        Ok(lines)
    }

    /// Starts a command, without waiting for its end.
    pub(crate) fn say(&mut self, command: &str) -> Result<()> {
        let input = self.input.as_mut().context("the shell is closed")?;
        writeln!(input, "{command}").context("the shell has ended")
    }

    /// Returns the lines before one that begins so, and the rest of that one.
    pub(crate) fn until(&mut self, beginning: &str) -> Result<(Vec<String>, String)> {
        let mut lines = Vec::new();
        for line in self.output.by_ref() {
            let line = line?;
            if let Some(rest) = line.strip_prefix(beginning) {
                return Ok((lines, rest.to_owned()));
            }
            if line.starts_with(END) {
                break;
            }
            lines.push(line);
        }
        bail!("it ended before it said {beginning}: {}", self.last_words());
    }

    fn last_words(&self) -> String {
        let said = fs::read(&self.errors).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let mut lines = said.lines().rev();
        let last = lines.find(|line| !line.trim().is_empty());
        last.unwrap_or_default().to_owned()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // A shell without input ends, and its sandbox with it.
        self.input = None;
        let _ = self.child.wait();
    }
}
