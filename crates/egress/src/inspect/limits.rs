//! What a request and a connection may be at most.

use std::time::Duration;

/// The longest head of a request or an answer, bytes.
pub(crate) const HEAD_BYTES_MAX: usize = 64 * 1024;
/// The longest path, without its query, bytes: it is recorded whole.
pub(crate) const PATH_BYTES_MAX: usize = 8 * 1024;
/// How long a program may take to say something, seconds: also between two requests.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(120);
/// How long a program may take over the first bytes, before it is taken for one that
/// waits for the server to speak.
pub(crate) const FIRST_BYTES_PATIENCE: Duration = Duration::from_secs(15);
/// How long a program may take over the beginning of TLS.
pub(crate) const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(30);
/// How many requests there can be at once in one connection by HTTP/2.
pub(crate) const STREAMS_MAX: u32 = 128;
/// How many streams a program may have reset that are still known.
pub(crate) const RESETS_MAX: usize = 32;
/// How much of one body may be on its way by HTTP/2, bytes.
pub(crate) const STREAM_WINDOW_BYTES: u32 = 512 * 1024;
/// How much of all bodies of one connection may be, bytes.
pub(crate) const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;
