//! PostgreSQL's client programs. They take a password from a passfile or from `PGPASSWORD`, and never
//! from their arguments.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::private_file;
use super::properties::Properties;
use crate::program::{command, failure, output};
use crate::{Database, Error};

/// The variables that are handed on if this process has them.
const VARIABLES: [&str; 9] = [
    "HOME",
    "PGHOST",
    "PGPASSFILE",
    "PGPASSWORD",
    "PGPORT",
    "PGSSLCERT",
    "PGSSLKEY",
    "PGSSLROOTCERT",
    "PGUSER",
];
const PSQL: &str = "psql";
const PG_DUMP: &str = "pg_dump";
const PG_RESTORE: &str = "pg_restore";
/// The codes of an object in use, and of missing rights.
const IN_USE: &str = "55006";
const NO_RIGHT: &str = "42501";
/// `CREATE DATABASE` can be told how to copy since this version.
const HAS_STRATEGY: u64 = 150_000;
/// The line by which newer programs limit what an archive may do, with a word of chance.
const RESTRICT: &str = "\\restrict ";
const RESTRICT_LINES: usize = 20;

/// A statement that the server refused.
pub(crate) struct Refused {
    code: String,
    message: String,
}

impl Refused {
    pub fn is_about_use_or_rights(&self) -> bool {
        [IN_USE, NO_RIGHT].contains(&self.code.as_str())
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        failure(PSQL, &refused.message)
    }
}

/// The client programs for a server.
pub(crate) struct Client<'a> {
    database: &'a Database,
    wait: Duration,
}

/// Quotes a name.
pub(crate) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Quotes a text.
pub(crate) fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// Returns the connection string of a database.
fn connection(name: &str) -> String {
    format!(
        "dbname='{}'",
        name.replace('\\', "\\\\").replace('\'', "\\'")
    )
}

impl<'a> Client<'a> {
    pub fn new(database: &'a Database, wait: Duration) -> Self {
        Self { database, wait }
    }

    fn command(&self, program: &'static str) -> Command {
        let mut command = command(program);
        for name in VARIABLES {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        let of = self.database;
        let port = of.port.map(|port| port.to_string());
        let passfile = of.passfile.as_deref().and_then(Path::to_str);
        let given = [
            ("PGHOST", of.host.as_deref()),
            ("PGPORT", port.as_deref()),
            ("PGUSER", of.user.as_deref()),
            ("PGPASSFILE", passfile),
            ("PGSSLMODE", of.sslmode.as_deref()),
            ("PGAPPNAME", Some("atoll-checkpoint")),
            ("PGCONNECT_TIMEOUT", Some("10")),
            ("PGCLIENTENCODING", Some("UTF8")),
        ];
        let given = given
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)));
        command.envs(given);
        // A question for a password would wait for nobody.
        command.arg("--no-password");
        command
    }

    fn psql(&self, sql: &str) -> Result<Result<String, Refused>, Error> {
        // The copied database itself must have no connection.
        let name = match self.database.database.as_str() {
            "postgres" => "template1",
            _ => "postgres",
        };
        let mut psql = self.command(PSQL);
        psql.args([
            "-X",
            "-A",
            "-t",
            "-q",
            "-v",
            "ON_ERROR_STOP=1",
            "-v",
            "VERBOSITY=verbose",
        ])
        .args(["-d", &connection(name), "-c", sql]);
        let output = output(&mut psql, PSQL, b"")?;
        if output.status.success() {
            let text = String::from_utf8_lossy(&output.stdout);
            return Ok(Ok(text.trim_end_matches('\n').to_owned()));
        }
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        let mut words = message.split(": ").map(str::trim);
        let is_code = |word: &&str| {
            let is_plain = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_uppercase();
            word.len() == 5 && word.bytes().all(is_plain) && *word != "ERROR" && *word != "FATAL"
        };
        let code = words.find(is_code).unwrap_or_default().to_owned();
        Ok(Err(Refused { code, message }))
    }

    /// Runs a script in a database, up to its first error; returns what it printed, and the message of
    /// the error.
    pub fn script(&self, name: &str, sql: &[u8]) -> Result<(String, Option<String>), Error> {
        let mut psql = self.command(PSQL);
        psql.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1"])
            .args(["-d", &connection(name), "-f", "-"]);
        let output = output(&mut psql, PSQL, sql)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let refused = (!output.status.success()).then(|| text(&output.stderr));
        Ok((text(&output.stdout), refused))
    }

    /// Runs statements; several are one transaction.
    pub fn run(&self, sql: &str) -> Result<(), Error> {
        self.ask(sql).map(|_| ())
    }

    pub fn ask(&self, sql: &str) -> Result<String, Error> {
        Ok(self.psql(sql)??)
    }

    pub fn exists(&self, name: &str) -> Result<bool, Error> {
        let sql = format!(
            "SELECT count(*) FROM pg_database WHERE datname = {}",
            literal(name)
        );
        Ok(self.ask(&sql)? == "1")
    }

    /// Returns the number of connections to a database, after ending them if that is allowed.
    pub fn free(&self, name: &str, end: bool) -> Result<u64, Error> {
        let of = format!(
            "FROM pg_stat_activity WHERE datname = {} AND backend_type = 'client backend'",
            literal(name)
        );
        let count = self
            .ask(&format!("SELECT count(*) {of}"))?
            .parse()
            .unwrap_or(0);
        if count == 0 || !end {
            return Ok(count);
        }
        // What waits for a database without connections waits for those that are about to end.
        self.run(&format!("SELECT pg_terminate_backend(pid) {of}"))?;
        Ok(0)
    }

    /// Makes a database as a copy of another.
    pub fn copy(&self, from: &str, to: &str, properties: &Properties) -> Result<(), Refused> {
        let lost = |error: Error| Refused {
            code: String::new(),
            message: error.to_string(),
        };
        let version = self.ask("SHOW server_version_num").map_err(lost)?;
        let strategy = match version.parse().unwrap_or(0) >= HAS_STRATEGY {
            true => " STRATEGY FILE_COPY",
            false => "",
        };
        let sql = format!(
            "CREATE DATABASE {} TEMPLATE {} OWNER {}{strategy}",
            identifier(to),
            identifier(from),
            identifier(&properties.owner)
        );
        self.psql(&sql).map_err(lost)?.map(|_| ())
    }

    pub fn create_empty(&self, name: &str, properties: &Properties) -> Result<(), Error> {
        self.run(&format!(
            "CREATE DATABASE {} TEMPLATE template0 OWNER {} ENCODING {} LC_COLLATE {} LC_CTYPE {}",
            identifier(name),
            identifier(&properties.owner),
            literal(&properties.encoding),
            literal(&properties.collate),
            literal(&properties.ctype),
        ))
    }

    pub fn allow_connections(&self, name: &str, allow: bool) -> Result<(), Error> {
        let name = identifier(name);
        self.run(&format!("ALTER DATABASE {name} ALLOW_CONNECTIONS {allow}"))
    }

    pub fn drop_database(&self, name: &str) -> Result<(), Error> {
        self.run(&format!("DROP DATABASE IF EXISTS {}", identifier(name)))
    }

    fn pg_dump(&self, name: &str) -> Command {
        let mut dump = self.command(PG_DUMP);
        dump.arg(format!("--lock-wait-timeout={}", self.wait.as_millis()));
        dump.args(["-d", &connection(name)]);
        dump
    }

    pub fn dump(&self, name: &str, into: &Path) -> Result<(), Error> {
        let fault = || Error::on("write", into);
        let archive = private_file(into)?;
        let mut dump = self.pg_dump(name);
        dump.arg("-Fc")
            .stdout(archive.try_clone().map_err(fault())?)
            .stderr(Stdio::piped());
        ended(&mut dump, PG_DUMP)?;
        archive.sync_all().map_err(fault())
    }

    /// Reads an archive into an empty database.
    pub fn fill(&self, name: &str, archive: &Path) -> Result<(), Error> {
        let mut restore = self.command(PG_RESTORE);
        restore.args([
            "--exit-on-error",
            "--single-transaction",
            "-d",
            &connection(name),
        ]);
        restore
            .arg(archive)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        ended(&mut restore, PG_RESTORE)
    }

    /// Returns a digest of all that a database holds, as `pg_dump` writes it.
    pub fn digest(&self, name: &str, properties: &Properties) -> Result<String, Error> {
        digest(&mut self.pg_dump(name), PG_DUMP, properties)
    }

    pub fn digest_of_archive(
        &self,
        archive: &Path,
        properties: &Properties,
    ) -> Result<String, Error> {
        let mut restore = command(PG_RESTORE);
        restore.args(["-f", "-"]).arg(archive);
        digest(&mut restore, PG_RESTORE, properties)
    }
}

fn ended(command: &mut Command, program: &'static str) -> Result<(), Error> {
    let child = command
        .spawn()
        .map_err(|error| failure(program, &error.to_string()))?;
    let output = child
        .wait_with_output()
        .map_err(|error| failure(program, &error.to_string()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(failure(program, &String::from_utf8_lossy(&output.stderr))),
    }
}

fn digest(
    command: &mut Command,
    program: &'static str,
    properties: &Properties,
) -> Result<String, Error> {
    let failed = |error: std::io::Error| failure(program, &error.to_string());
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(properties.text().as_bytes());
    let mut lines = child
        .stdout
        .take()
        .map(|out| BufReader::with_capacity(1 << 16, out));
    let mut line = Vec::new();
    let mut unrestrict = None;
    let mut number = 0;
    while let Some(lines) = &mut lines {
        line.clear();
        if lines.read_until(b'\n', &mut line).map_err(failed)? == 0 {
            break;
        }
        number += 1;
        let word = line
            .strip_prefix(RESTRICT.as_bytes())
            .filter(|_| number <= RESTRICT_LINES);
        match (word, &unrestrict) {
            (Some(word), None) => unrestrict = Some([b"\\unrestrict ", word].concat()),
            (_, Some(end)) if line == *end => {}
            _ => _ = hasher.update(&line),
        }
    }
    let output = child.wait_with_output().map_err(failed)?;
    match output.status.success() {
        true => Ok(hasher.finalize().to_hex().to_string()),
        false => Err(failure(program, &String::from_utf8_lossy(&output.stderr))),
    }
}
