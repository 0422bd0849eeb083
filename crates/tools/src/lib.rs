//! Typed tools: what they are, who may call them, and the way of a call to its answer.
//!
//! A tool is data ([`Tool`]), read from `tools.toml` and `tools/*.toml` into a [`Registry`]. A
//! [`Session`] offers a caller the tools that policies let it call, parses and checks the arguments
//! of a call once, has the engine decide and record it, and carries it out by a [`Runner`], which
//! has the sandboxes. What comes back is cleaned before a model reads it.
//!
//! This crate must never know HTTP servers or terminals. Start reading at [`Session::call`].

mod answer;
mod block;
mod breaker;
mod budget;
mod cleaned;
mod confined;
mod database;
mod exec;
mod filter;
mod guard;
mod json;
mod keys;
mod limits;
mod offers;
mod openapi;
mod pack;
mod recording;
mod registry;
mod results;
mod runner;
mod schema;
mod scope;
mod session;
mod shadow;
mod template;
mod tool;
mod undoing;
mod unwinding;
mod upstream;
mod way_back;
mod written;

pub use answer::{Answer, Refusal};
pub use block::{Block, Contents, text_of};
pub use breaker::{Changed, State};
pub use cleaned::{Cleaned, clean_answer};
pub use confined::confine;
pub use exec::{Cancel, OUTPUT_BYTES_MAX, Program, Ran, RanEnd, content, run};
pub use filter::Pii;
pub use guard::Guard;
pub use json::{InvalidJson, parse};
pub use limits::Exceeded;
pub use pack::{Files as PackFiles, PACK_BYTES_MAX, Pack, files_in as pack_files};
pub use recording::{RecordedCall, Recording};
pub use registry::{Problem, Registry, ToolSwitches};
pub use results::Part;
pub use runner::{LocalRunner, Runner, over};
pub use schema::Schema;
pub use session::{Asked, ChangedLists, Listing, May, Seen, Session};
pub use shadow::{Approver, ChangeSet, ShadowEnd, ShadowReport};
pub use tool::{OfUpstream, Output, SandboxLife, Tool, Work};
pub use unwinding::{Person, Step, Unwound, unwind, way_back_of};
pub use upstream::Upstream;
pub use upstream::client::{CLIENT, client_program};
pub use upstream::frames::{Answers, Askable, Asks, Form, Offered, Said};
pub use upstream::pins::{Difference, Kind, Pins, is_made_by};
pub use way_back::{Inverse, WayBack};
