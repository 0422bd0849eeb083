//! Strict parsing of a program's first packet to PostgreSQL (its documentation, "Message Formats").

/// The longest first packet, bytes: `MAX_STARTUP_PACKET_LENGTH` of PostgreSQL.
pub(crate) const PACKET_BYTES_MAX: usize = 10_000;
/// A packet's header: its length with these bytes, and its code.
pub(crate) const HEADER_BYTES: usize = 8;
/// The most parameters that a program may name.
const PARAMETERS_MAX: usize = 64;

const PROTOCOL_3_0: u32 = 3 << 16;
const CANCEL: u32 = 80_877_102;
const TLS: u32 = 80_877_103;
const GSS: u32 = 80_877_104;

/// A first packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Packet {
    /// `SSLRequest`.
    Tls,
    /// `GSSENCRequest`.
    Gss,
    /// `CancelRequest`: the query of another connection is to end.
    Cancel(Key),
    /// `StartupMessage`.
    Startup(Startup),
}

/// The key by which one connection cancels the query of another.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) process: u32,
    pub(crate) secret: u32,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Key").finish_non_exhaustive()
    }
}

/// The content of a startup message: the login, and parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Startup {
    pub(crate) user: String,
    pub(crate) database: String,
    /// All other parameters, in order, as they were written.
    pub(crate) parameters: Vec<(String, String)>,
}

/// The reason for which a packet is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketError {
    /// Another version of the protocol than 3.0.
    Version,
    /// A feature that is never allowed, with the reason.
    Refused(&'static str),
    /// A packet that cannot be parsed in one way only, with the reason.
    Malformed(&'static str),
}

impl PacketError {
    /// Returns the reason as a sentence.
    pub(crate) fn why(self) -> &'static str {
        match self {
            Self::Version => "it speaks another version of the protocol than 3.0",
            Self::Refused(why) | Self::Malformed(why) => why,
        }
    }
}

/// Returns the whole length of the packet whose first bytes these are.
pub(crate) fn length(header: [u8; 4]) -> Result<usize, PacketError> {
    let length = usize::try_from(u32::from_be_bytes(header)).unwrap_or(usize::MAX);
    match (HEADER_BYTES..=PACKET_BYTES_MAX).contains(&length) {
        true => Ok(length),
        false => Err(PacketError::Malformed(
            "its first packet has no length of one",
        )),
    }
}

/// Parses a whole packet, without its length.
pub(crate) fn read(packet: &[u8]) -> Result<Packet, PacketError> {
    let (code, rest) = number(packet).ok_or(PacketError::Malformed("its first packet is cut"))?;
    let alone = |packet| match rest {
        [] => Ok(packet),
        [_, ..] => Err(PacketError::Malformed("something follows what it asks")),
    };
    match code {
        TLS => alone(Packet::Tls),
        GSS => alone(Packet::Gss),
        CANCEL => cancel(rest).map(Packet::Cancel),
        PROTOCOL_3_0 => startup(rest).map(Packet::Startup),
        _ => Err(PacketError::Version),
    }
}

fn number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (first, rest) = bytes.split_first_chunk()?;
    Some((u32::from_be_bytes(*first), rest))
}

fn cancel(rest: &[u8]) -> Result<Key, PacketError> {
    let key = || {
        let (process, rest) = number(rest)?;
        let (secret, rest) = number(rest)?;
        rest.is_empty().then_some(Key { process, secret })
    };
    key().ok_or(PacketError::Malformed(
        "what it wants ended has no key of one",
    ))
}

fn startup(rest: &[u8]) -> Result<Startup, PacketError> {
    let mut user = None;
    let mut database = None;
    let mut parameters: Vec<(String, String)> = Vec::new();
    let mut rest = rest;
    loop {
        let name;
        (name, rest) = text(rest)?;
        if name.is_empty() {
            break;
        }
        let value;
        (value, rest) = text(rest)?;
        // Servers and what stands before them may make no difference between upper and lower case.
        let is_known = |(known, _): &(String, String)| known.eq_ignore_ascii_case(name);
        let twice = match name {
            "user" => user.replace(value.to_owned()).is_some(),
            "database" => database.replace(value.to_owned()).is_some(),
            _ => {
                check(name, value)?;
                let twice = parameters.iter().any(is_known);
                parameters.push((name.to_owned(), value.to_owned()));
                twice
            }
        };
        if twice {
            return Err(PacketError::Malformed("it names a parameter twice"));
        }
        if parameters.len() > PARAMETERS_MAX {
            return Err(PacketError::Malformed("it names too many parameters"));
        }
    }
    if !rest.is_empty() {
        return Err(PacketError::Malformed("something follows its parameters"));
    }
    let user = user.filter(|user| !user.is_empty());
    let user = user.ok_or(PacketError::Malformed("it names no user"))?;
    // Without one it is the user's (as the server takes it).
    let database = database.filter(|database| !database.is_empty());
    let database = database.unwrap_or_else(|| user.clone());
    Ok(Startup {
        user,
        database,
        parameters,
    })
}

/// Splits off a text that a zero byte ends. Returns it, and the rest.
fn text(bytes: &[u8]) -> Result<(&str, &[u8]), PacketError> {
    let end = bytes.iter().position(|byte| *byte == 0);
    let end = end.ok_or(PacketError::Malformed("its parameters have no end"))?;
    let (text, rest) = bytes.split_at(end);
    let text = std::str::from_utf8(text).map_err(|_| PacketError::Malformed("it is no UTF-8"))?;
    if text.chars().any(char::is_control) {
        return Err(PacketError::Malformed("it has a control character"));
    }
    Ok((text, rest.get(1..).unwrap_or_default()))
}

/// Checks that a parameter does not change which server, user or database the login is for: only
/// those that could be set later as well.
fn check(name: &str, value: &str) -> Result<(), PacketError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.".contains(&byte);
    let is = |other: &str| name.eq_ignore_ascii_case(other);
    if !name.bytes().all(is_plain) {
        return Err(PacketError::Malformed("the name of a parameter is none"));
    }
    if is("user") || is("database") {
        return Err(PacketError::Malformed(
            "it writes `user` or `database` otherwise",
        ));
    }
    if is("replication") {
        return Err(PacketError::Refused(
            "it asks for replication, which is not signed in to",
        ));
    }
    if name.to_ascii_lowercase().starts_with("_pq_") {
        return Err(PacketError::Refused(
            "it asks for an extension of the protocol",
        ));
    }
    match is("options") && !are_settings(value) {
        true => Err(PacketError::Refused(
            "its `options` are other ones than -c NAME=VALUE of a well-known setting: some services take them for another server",
        )),
        false => Ok(()),
    }
}

/// The settings allowed in `options`: those of PostgreSQL (its documentation, "Server
/// Configuration") that affect how a session reads, writes and waits. Other names, such as
/// `cluster`, `endpoint` and `project`, select another server at proxies before it.
const SETTINGS: &[&str] = &[
    "application_name",
    "bytea_output",
    "client_encoding",
    "client_min_messages",
    "cursor_tuple_fraction",
    "datestyle",
    "default_statistics_target",
    "default_transaction_deferrable",
    "default_transaction_isolation",
    "default_transaction_read_only",
    "effective_cache_size",
    "enable_bitmapscan",
    "enable_hashagg",
    "enable_hashjoin",
    "enable_indexonlyscan",
    "enable_indexscan",
    "enable_material",
    "enable_mergejoin",
    "enable_nestloop",
    "enable_seqscan",
    "enable_sort",
    "extra_float_digits",
    "from_collapse_limit",
    "geqo",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "intervalstyle",
    "jit",
    "join_collapse_limit",
    "lc_messages",
    "lc_monetary",
    "lc_numeric",
    "lc_time",
    "lock_timeout",
    "maintenance_work_mem",
    "max_parallel_workers_per_gather",
    "plan_cache_mode",
    "random_page_cost",
    "row_security",
    "search_path",
    "seq_page_cost",
    "standard_conforming_strings",
    "statement_timeout",
    "synchronous_commit",
    "tcp_keepalives_count",
    "tcp_keepalives_idle",
    "tcp_keepalives_interval",
    "tcp_user_timeout",
    "timezone",
    "transaction_timeout",
    "work_mem",
];

/// Returns whether options consist of `-c NAME=VALUE` with well-known settings.
fn are_settings(options: &str) -> bool {
    let mut words = options.split(' ').filter(|word| !word.is_empty());
    while let Some(word) = words.next() {
        let setting = match word.strip_prefix("-c") {
            Some("") => words.next(),
            Some(setting) => Some(setting),
            None => None,
        };
        let Some((name, value)) = setting.and_then(|setting| setting.split_once('=')) else {
            return false;
        };
        let is_known = SETTINGS
            .iter()
            .any(|known| known.eq_ignore_ascii_case(name));
        // A backslash would join it to the next word, and a value with a `=` can be taken for an
        // option of its own.
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"\\=".contains(&byte);
        if !is_known || !value.bytes().all(is_plain) {
            return false;
        }
    }
    true
}

impl Startup {
    /// Encodes a packet with the same content, in one canonical form.
    pub(crate) fn packet(&self) -> Vec<u8> {
        let own = [("user", &self.user), ("database", &self.database)];
        let further = self.parameters.iter();
        let all = own
            .into_iter()
            .chain(further.map(|(name, value)| (name.as_str(), value)));
        let mut body = PROTOCOL_3_0.to_be_bytes().to_vec();
        for (name, value) in all {
            for text in [name, value] {
                body.extend_from_slice(text.as_bytes());
                body.push(0);
            }
        }
        body.push(0);
        framed(&body)
    }
}

/// Encodes `SSLRequest`.
pub(crate) fn tls_request() -> Vec<u8> {
    framed(&TLS.to_be_bytes())
}

/// Encodes `CancelRequest`.
pub(crate) fn cancel_request(key: Key) -> Vec<u8> {
    let words = [CANCEL, key.process, key.secret];
    framed(&words.map(u32::to_be_bytes).concat())
}

fn framed(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], body].concat()
}
