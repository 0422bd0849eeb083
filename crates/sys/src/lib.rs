//! The only crate with unsafe: system calls that a boundary is built from.
