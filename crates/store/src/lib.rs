//! The ledger and the records of runs: the only crate that writes durable data.
