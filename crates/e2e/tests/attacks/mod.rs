//! Ways by which other sandboxes were broken, tried for real.
//!
//! Each attack is a row of a table: a script with a small program beside it, its target, and the
//! control, in which the same attack succeeds: in a sandbox with one defence left out, or outside
//! where nothing can be left out. Its success is checked from outside of the sandbox: a canary that
//! is changed, a listener that is reached, a secret that is printed. Start reading at [`harness`],
//! then at any table.

mod communication;
mod degradation;
mod descriptors;
mod files;
pub mod harness;
mod kernel;
mod neighbours;
mod planted;
mod prey;
mod processes;
mod programs;
mod races;
mod roots;
mod sockets;
mod switch;
