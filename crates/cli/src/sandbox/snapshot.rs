//! `atoll snapshot`: the files that sandboxes of a server were copied to.

use atoll_engine::failure::Failure;
use serde_json::Value;
use ureq::SendBody;

use super::{Server, encoded, text_of};
use crate::arguments::{SnapshotAction, SnapshotsArguments};
use crate::output::Output;

/// The beginning of the addresses of snapshots.
const SNAPSHOTS: &str = "/v1/snapshots";

/// Carries out `atoll snapshot`.
///
/// # Errors
/// When the server cannot be asked, or refuses.
pub fn snapshots(arguments: &SnapshotsArguments, output: &Output) -> Result<u8, Failure> {
    let server = Server::of_environment()?;
    match &arguments.action {
        SnapshotAction::List(arguments) => {
            let all = server.json("GET", SNAPSHOTS, &Value::Null)?;
            match arguments.json {
                true => output.json(&all),
                false => list(&all, output),
            }
        }
        SnapshotAction::Delete(arguments) => {
            let path = format!("{SNAPSHOTS}/{}", encoded(&arguments.snapshot));
            server.ask("DELETE", &path, SendBody::none())?;
        }
    }
    Ok(0)
}

fn list(all: &Value, output: &Output) {
    let all = all.as_array().map(Vec::as_slice).unwrap_or_default();
    if all.is_empty() {
        output.say("There is no snapshot; atoll sandbox snapshot ID makes one.\n");
    }
    for one in all {
        let [id, sandbox, name] = ["id", "sandbox", "name"].map(|name| text_of(one, name));
        let line = format!("{id}  of {sandbox}  {name}");
        output.result(&format!("{}\n", line.trim_end()));
    }
}
