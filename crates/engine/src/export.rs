//! The ledger's events in the forms of other programs.

pub mod ocsf;
pub mod otlp;
