use std::fmt::{self, Display, Formatter, Write};
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Error;

/// The thing that a checkpoint is taken of. Its short form is `files:PATH`, `sqlite:PATH`,
/// `git:PATH`, `postgres:NAME`, or `postgres://USER@HOST:PORT/NAME`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Target {
    /// A file, or a directory with all that is in it.
    Files {
        /// The path.
        path: PathBuf,
    },
    /// A SQLite database, with its write-ahead log.
    Sqlite {
        /// The path.
        path: PathBuf,
    },
    /// The refs and HEAD of a git repository. Its work tree is a target of its own.
    Git {
        /// The repository, or its work tree.
        path: PathBuf,
    },
    /// A PostgreSQL database.
    Postgres(Database),
}

/// A PostgreSQL database, and the way to reach it. A password is never part of it: the client
/// programs take it from a passfile, or from `PGPASSWORD` of this process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Database {
    /// The name.
    pub database: String,
    /// The host, or the directory of the server's socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The file with the password, in libpq's format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passfile: Option<PathBuf>,
    /// The TLS mode, as libpq names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sslmode: Option<String>,
}

impl Target {
    /// Returns it with an absolute path, whose directories are no links.
    pub(crate) fn resolved(&self) -> Result<Self, Error> {
        Ok(match self {
            Self::Files { path } => Self::Files {
                path: resolved(path)?,
            },
            Self::Sqlite { path } => Self::Sqlite {
                path: resolved(path)?,
            },
            Self::Git { path } => Self::Git {
                path: resolved(path)?,
            },
            Self::Postgres(database) => Self::Postgres(database.clone()),
        })
    }
}

/// Resolves all of a path but its last name, which is never followed.
fn resolved(path: &Path) -> Result<PathBuf, Error> {
    let absolute = std::path::absolute(path).map_err(Error::on("resolve", path))?;
    let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return Err(refused(&path.to_string_lossy(), "it has no last name"));
    };
    let whole = fs::canonicalize(parent)
        .map_err(Error::on("resolve", parent))?
        .join(name);
    if whole.to_str().is_none() {
        return Err(refused(&path.to_string_lossy(), "the path is not UTF-8"));
    }
    match whole.is_symlink() {
        true => Err(Error::Link(whole)),
        false => Ok(whole),
    }
}

fn refused(text: &str, why: &'static str) -> Error {
    Error::Target {
        text: text.to_owned(),
        why,
    }
}

impl FromStr for Target {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (kind, rest) = text
            .split_once(':')
            .ok_or_else(|| refused(text, "it has no colon"))?;
        if rest.is_empty() {
            return Err(refused(text, "nothing is named"));
        }
        let path = PathBuf::from(rest);
        match kind {
            "files" => Ok(Self::Files { path }),
            "sqlite" => Ok(Self::Sqlite { path }),
            "git" => Ok(Self::Git { path }),
            "postgres" | "postgresql" => Database::parse(rest)
                .map(Self::Postgres)
                // Not the text: a password may be in it.
                .map_err(|why| refused("postgres:…", why)),
            _ => Err(refused(text, "its kind is not known")),
        }
    }
}

impl Display for Target {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Files { path } => write!(to, "files:{}", path.display()),
            Self::Sqlite { path } => write!(to, "sqlite:{}", path.display()),
            Self::Git { path } => write!(to, "git:{}", path.display()),
            Self::Postgres(database) => write!(to, "postgres:{database}"),
        }
    }
}

impl Database {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let schemes = ["postgres://", "postgresql://", "//"];
        let Some(url) = schemes.iter().find_map(|one| text.strip_prefix(one)) else {
            return Ok(Self {
                database: text.to_owned(),
                ..Self::default()
            });
        };
        let (url, query) = url.split_once('?').unwrap_or((url, ""));
        let (server, name) = url.split_once('/').ok_or("it names no database")?;
        let (user, server) = server.rsplit_once('@').unwrap_or(("", server));
        if user.contains(':') {
            return Err("a password must not be in it");
        }
        let (host, port) = match server.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (
                host,
                Some(port.parse().map_err(|_| "its port is no number")?),
            ),
            _ => (server, None),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let mut parsed = Self {
            database: decoded(name)?,
            host: some(decoded(host)?),
            port,
            user: some(decoded(user)?),
            ..Self::default()
        };
        if parsed.database.is_empty() {
            return Err("it names no database");
        }
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').ok_or("a parameter has no value")?;
            let value = decoded(value)?;
            match key {
                "host" => parsed.host = some(value),
                "user" => parsed.user = some(value),
                "port" => {
                    parsed.port = value
                        .parse()
                        .map(Some)
                        .map_err(|_| "its port is no number")?
                }
                "passfile" => parsed.passfile = some(value).map(PathBuf::from),
                "sslmode" => parsed.sslmode = some(value),
                "password" => return Err("a password must not be in it"),
                _ => {
                    return Err(
                        "it has a parameter other than host, port, user, passfile, sslmode",
                    );
                }
            }
        }
        Ok(parsed)
    }
}

impl Display for Database {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        if Self::parse(&self.database).as_ref() == Ok(self) {
            return to.write_str(&self.database);
        }
        to.write_str("//")?;
        if let Some(user) = &self.user {
            write!(to, "{}@", encoded(user))?;
        }
        to.write_str(&encoded(self.host.as_deref().unwrap_or_default()))?;
        if let Some(port) = self.port {
            write!(to, ":{port}")?;
        }
        write!(to, "/{}", encoded(&self.database))?;
        let passfile = self.passfile.as_ref().map(|path| path.to_string_lossy());
        let parameters = [
            ("passfile", passfile.as_deref()),
            ("sslmode", self.sslmode.as_deref()),
        ];
        let given = parameters
            .iter()
            .filter_map(|(key, value)| Some((key, (*value)?)));
        for (index, (key, value)) in given.enumerate() {
            let mark = if index == 0 { '?' } else { '&' };
            write!(to, "{mark}{key}={}", encoded(value))?;
        }
        Ok(())
    }
}

fn some(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

fn decoded(text: &str) -> Result<String, &'static str> {
    unescape(text)
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .ok_or("it is not percent-encoded as it should be")
}

fn encoded(text: &str) -> String {
    escape(text.as_bytes(), |byte| {
        byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
    })
}

/// Writes bytes as text, each that is not plain as `%` and two digits.
pub(crate) fn escape(bytes: &[u8], is_plain: impl Fn(u8) -> bool) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match is_plain(*byte) {
            true => text.push(char::from(*byte)),
            // Writing to a string does not fail.
            false => _ = write!(text, "%{byte:02X}"),
        }
    }
    text
}

/// Reads what [`escape`] has written.
pub(crate) fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            plain => plain,
        });
    }
    Some(bytes)
}

#[cfg(test)]
mod tests;
