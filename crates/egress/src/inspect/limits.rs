//! Limits of requests and connections.

use std::time::Duration;

/// The longest head of a request or a response, bytes.
pub(crate) const HEAD_BYTES_MAX: usize = 64 * 1024;
/// The longest path, without its query, bytes: it is recorded whole.
pub(crate) const PATH_BYTES_MAX: usize = 8 * 1024;
/// The longest silence of a program, also between two requests.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(120);
/// The longest wait for a program's first bytes, before it is taken for one that waits for the
/// server to speak.
pub(crate) const FIRST_BYTES_PATIENCE: Duration = Duration::from_secs(15);
/// The longest time for a program's TLS handshake.
pub(crate) const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(30);
/// The most concurrent requests on one HTTP/2 connection.
pub(crate) const STREAMS_MAX: u32 = 128;
/// The most streams that a program has reset and that are still remembered.
pub(crate) const RESETS_MAX: usize = 32;
/// The HTTP/2 flow control window of one body, bytes.
pub(crate) const STREAM_WINDOW_BYTES: u32 = 512 * 1024;
/// The HTTP/2 flow control window of all bodies of a connection, bytes.
pub(crate) const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;
