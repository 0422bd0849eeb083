use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// A program's exit status and output.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Its status.
    pub status: ExitStatus,
    /// Its standard output, or that to its terminal.
    pub stdout: Vec<u8>,
    /// Its standard error; empty with a terminal.
    pub stderr: Vec<u8>,
}

impl Outcome {
    /// Returns the exit status as a shell shows it.
    #[must_use]
    pub fn code(&self) -> i32 {
        self.status
            .code()
            .unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }

    /// Returns standard output as text.
    #[must_use]
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Returns standard error as text.
    #[must_use]
    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Parses standard output as JSON.
    ///
    /// # Panics
    /// When it is something else.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|why| panic!("no JSON: {why}\n{self}"))
    }

    /// Checks the exit status, and returns the outcome.
    ///
    /// # Panics
    /// When it is another one.
    #[must_use]
    pub fn expect_status(self, code: i32) -> Self {
        assert!(self.code() == code, "expected status {code}\n{self}");
        self
    }

    /// Checks that the program succeeded, and returns the outcome.
    ///
    /// # Panics
    /// When it did not.
    #[must_use]
    pub fn success(self) -> Self {
        self.expect_status(0)
    }

    /// Checks that standard error has all these words, upper and lower case alike.
    ///
    /// # Panics
    /// When one is missing.
    pub fn says<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> &Self {
        let said = self.err().to_lowercase();
        for word in words {
            assert!(
                said.contains(&word.to_lowercase()),
                "nothing says {word:?}\n{self}"
            );
        }
        self
    }

    /// Checks that an error names the failure, its reason, and the next step.
    ///
    /// # Panics
    /// When one of these is missing, or Atoll broke down.
    pub fn is_clear_error<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> &Self {
        assert!(!self.err().contains("panicked"), "it broke down\n{self}");
        self.says(["error:"]).says(words)
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = |bytes: &[u8]| {
            let end = bytes.len().min(4000);
            String::from_utf8_lossy(&bytes[..end]).into_owned()
        };
        write!(
            out,
            "{}\n--- standard output ---\n{}\n--- standard error ---\n{}",
            self.status,
            shown(&self.stdout),
            shown(&self.stderr)
        )
    }
}
