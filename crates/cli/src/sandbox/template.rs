//! `atoll template` of a server: its tenant's own templates, and the shipped one that is built there.

use atoll_engine::configuration::Places;
use atoll_engine::failure::Failure;
use atoll_server::CODE_INTERPRETER;
use atoll_server::worker::templates;
use serde_json::{Value, json};
use ureq::SendBody;

use super::build::Build;
use super::{Server, encoded, text_of};
use crate::arguments::{DeleteTemplateArguments, ListTemplatesArguments};
use crate::output::Output;

/// The beginning of the addresses of templates.
const TEMPLATES: &str = "/v1/templates";
/// The template with a desktop, as E2B's SDK names it.
pub(crate) const DESKTOP: &str = "desktop";
/// The Debian packages of it, a name in each line.
const PACKAGES: &str = include_str!("desktop/packages.txt");
/// The program that sets it up.
const SET_UP: &str = include_str!("desktop/setup.sh");
/// The memory of its sandboxes, MiB.
const MEMORY_MIB: u64 = 2_048;

/// Lists the templates that the tenant has built.
///
/// # Errors
/// When the server cannot be asked, or refuses.
pub(crate) fn list(arguments: &ListTemplatesArguments, output: &Output) -> Result<u8, Failure> {
    let server = match (Server::of_environment(), built_here()) {
        (Ok(server), _) => server,
        // What was built without a key is there without one.
        (Err(_), Some(number)) if !arguments.json => {
            output.result(&format!(
                "{CODE_INTERPRETER}  {CODE_INTERPRETER}  build {number} of this machine\n"
            ));
            output.say("Set ATOLL_API_KEY to see also the templates of its tenant.\n");
            return Ok(0);
        }
        (Err(failure), _) => return Err(failure),
    };
    let all = server.json("GET", TEMPLATES, &Value::Null)?;
    if arguments.json {
        output.json(&all);
        return Ok(0);
    }
    let all = all.as_array().map(Vec::as_slice).unwrap_or_default();
    if all.is_empty() {
        output.say("No custom templates. Built in: base, code-interpreter-v1.\n");
    }
    for one in all {
        let [id, name, sandboxes] = ["id", "name", "sandboxes"].map(|name| text_of(one, name));
        output.result(&format!("{id}  {name}  {sandboxes} sandboxes\n"));
    }
    Ok(0)
}

/// Returns the number of the last build of the interpreter's packages here.
fn built_here() -> Option<u64> {
    let places = Places::read().ok()?;
    templates::built(&places.state).map(|(number, _)| number)
}

/// Removes a template that nothing stands on.
///
/// # Errors
/// When the server cannot be asked, or refuses.
pub(crate) fn delete(arguments: &DeleteTemplateArguments) -> Result<u8, Failure> {
    let path = format!("{TEMPLATES}/{}", encoded(&arguments.template));
    let server = Server::of_environment()?;
    server.ask("DELETE", &path, SendBody::none()).map(|_| 0)
}

/// Builds the template with a desktop at a server, and shows what that says.
///
/// # Errors
/// When the server cannot be asked, refuses, or cannot build it.
pub(crate) fn build_desktop(output: &Output) -> Result<(), Failure> {
    let server = Server::of_environment()?;
    let asked = json!({ "name": DESKTOP, "memoryMB": MEMORY_MIB });
    let build = Build::begin(&server, &asked)?;
    let packages = PACKAGES.lines().collect::<Vec<_>>().join(" ");
    let install = format!(
        "export DEBIAN_FRONTEND=noninteractive; apt-get -q update && \
         apt-get -q install -y --no-install-recommends {packages} && \
         apt-get clean && rm -rf /var/lib/apt/lists/*"
    );
    let steps = [install.as_str(), SET_UP]
        .map(|command| json!({ "type": "RUN", "args": [command, "root"] }));
    let plan = json!({ "fromImage": "atoll/debian", "steps": steps });
    output.result(&format!("{}\n", build.carry_out(&plan, output)?));
    output.say(
        "Sandboxes of the key's tenant are made from it: E2B's desktop SDK does by default.\n",
    );
    Ok(())
}
