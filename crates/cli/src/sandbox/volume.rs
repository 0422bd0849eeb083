//! `atoll volume`: a client of a server's own API; and volumes of `atoll sandbox create`.

use atoll_engine::failure::Failure;
use serde_json::{Value, json};
use ureq::SendBody;

use super::{Server, encoded, mebibytes, text_of};
use crate::arguments::{VolumeAction, VolumeArguments};
use crate::output::Output;

/// The beginning of the addresses of volumes.
const VOLUMES: &str = "/v1/volumes";

/// Carries out `atoll volume`.
///
/// # Errors
/// When the server cannot be asked, or refuses.
pub fn volume(arguments: &VolumeArguments, output: &Output) -> Result<u8, Failure> {
    let server = Server::of_environment()?;
    match &arguments.action {
        VolumeAction::Create(arguments) => {
            let ask = json!({
                "name": arguments.name,
                "size_mib": mebibytes(arguments.size.as_deref(), "--size")?,
                "from": arguments.from,
            });
            let made = server.json("POST", VOLUMES, &ask)?;
            print_made(&made, arguments.json, output);
        }
        VolumeAction::Snapshot(arguments) => {
            let path = format!("{VOLUMES}/{}/snapshots", encoded(&arguments.volume));
            let made = server.json("POST", &path, &json!({ "name": arguments.name }))?;
            print_made(&made, arguments.json, output);
        }
        VolumeAction::List(arguments) => {
            let all = server.json("GET", VOLUMES, &Value::Null)?;
            match arguments.json {
                true => output.json(&all),
                false => list(&all, output),
            }
        }
        VolumeAction::Delete(arguments) => {
            let path = format!("{VOLUMES}/{}", encoded(&arguments.volume));
            server.ask("DELETE", &path, SendBody::none())?;
        }
    }
    Ok(0)
}

fn print_made(made: &Value, is_json: bool, output: &Output) {
    if is_json {
        return output.json(made);
    }
    let volume = made.pointer("/volume").unwrap_or(&Value::Null);
    output.result(&format!("{}\n", text_of(volume, "id")));
}

fn list(all: &Value, output: &Output) {
    let all = all.as_array().map(Vec::as_slice).unwrap_or_default();
    if all.is_empty() {
        output.say("There is no volume; atoll volume create makes one.\n");
    }
    for one in all {
        let [id, name, size] = ["id", "name", "size_mib"].map(|name| text_of(one, name));
        let access = match one.get("read_only") {
            Some(Value::Bool(true)) => "read-only",
            _ => "writable",
        };
        output.result(&format!("{id}  {name}  {size} MiB  {access}\n"));
    }
}

/// Reads `NAME:PATH`, or `NAME:PATH:ro`.
pub(super) fn mounts(texts: &[String]) -> Result<Vec<Value>, Failure> {
    let mount = |text: &String| {
        let (name, rest) = text.split_once(':')?;
        let (path, read_only) = match rest.strip_suffix(":ro") {
            Some(path) => (path, true),
            None => (rest, false),
        };
        // What follows another colon would be a part of the path, and mounted for writing.
        let is_whole = !name.is_empty() && path.starts_with('/') && !path.contains(':');
        is_whole.then(|| json!({ "name": name, "path": path, "read_only": read_only }))
    };
    let all: Option<Vec<Value>> = texts.iter().map(mount).collect();
    all.ok_or_else(|| {
        Failure::new("--volume takes NAME:PATH, or NAME:PATH:ro")
            .advise("--volume models:/mnt/models:ro")
    })
}
