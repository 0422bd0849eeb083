//! The first process inside a sandbox.
