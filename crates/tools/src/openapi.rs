//! Tools made of the operations of an OpenAPI document.

mod dialect;
mod document;
mod request;
#[cfg(test)]
mod tests;

pub(crate) use document::read;
pub use request::Operation;
pub(crate) use request::{HttpRequest, check_segments, checked_base};
