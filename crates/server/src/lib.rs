//! A server of living sandboxes, in two processes.
//!
//! The [`worker`] owns the engine: it checks each caller's token, decides, records, and holds the
//! sandboxes with what they write. The front ([`front_program`]) speaks HTTP and holds no right: it
//! hands each request on with the token that came with it, so a front that was taken over can do
//! what its callers can, and no more. Between them is one typed protocol ([`protocol`]), a
//! connection for each request; the front can end and begin again while sandboxes live.
//!
//! This crate must never make a sandbox, read a policy or write to the ledger itself: that is the
//! engine's. Start reading at [`protocol`], then at [`worker::serve`].

mod configuration;
mod front;
mod lifecycle;
mod line;
mod mcp;
pub mod protocol;
mod ready;
mod rfc3339;
mod started;
mod tls;
mod tool_facts;
pub mod worker;

pub use configuration::{
    Configuration, ConfigurationError, Defaults, Issuer, IssuerError, NetworkWord, Quota, Reserve,
    Tls, WebhookHost,
};
pub use front::{openapi, program as front_program};
pub use mcp::stdio::serve_stdio;
pub use protocol::CODE_INTERPRETER;
pub use started::FRONT;
pub use tls::{Identity, of_clients as tls_of_clients};

#[cfg(test)]
mod tests;
