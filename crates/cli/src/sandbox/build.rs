//! Builds of templates at a server: files are uploaded, the log is shown as it comes.

use std::fs::{self, File};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use atoll_engine::failure::{Doing, Failure};
use atoll_engine::printable::printable;
use serde_json::{Value, json};
use ureq::SendBody;

use super::{Server, context, dockerfile, encoded, text_of};
use crate::output::Output;

/// The beginning of the name of an image in a layout on disk.
const LAYOUT: &str = "oci:";
/// The name of the upload that holds a layout.
const LAYOUT_UPLOAD: &str = "layout";
/// The time between two looks how far a build is.
const LOOK: Duration = Duration::from_millis(500);

/// A build that waits for its plan.
pub(super) struct Build<'a> {
    server: &'a Server,
    template: String,
    build: String,
}

impl<'a> Build<'a> {
    pub(super) fn begin(server: &'a Server, asked: &Value) -> Result<Self, Failure> {
        let begun = server.json("POST", "/v3/templates", asked)?;
        Ok(Self {
            server,
            template: text_of(&begun, "templateID"),
            build: text_of(&begun, "buildID"),
        })
    }

    /// Uploads files under a name that steps call them by.
    fn upload(&self, name: &str, files: File) -> Result<(), Failure> {
        let path = format!("/templates/{}/files/{name}", encoded(&self.template));
        let told = self.server.json("GET", &path, &Value::Null)?;
        let url = text_of(&told, "url");
        let (_, query) = url.split_once('?').unwrap_or_default();
        let path = format!("{path}?{query}");
        let sent = self
            .server
            .ask("PUT", &path, SendBody::from_owned_reader(files));
        sent.map(drop)
    }

    /// Has a plan carried out, and shows what that says; returns the template.
    pub(super) fn carry_out(&self, plan: &Value, output: &Output) -> Result<String, Failure> {
        let at = format!(
            "{}/builds/{}",
            encoded(&self.template),
            encoded(&self.build)
        );
        let mut text = std::io::Cursor::new(plan.to_string().into_bytes());
        let path = format!("/v2/templates/{at}");
        self.server
            .ask("POST", &path, SendBody::from_reader(&mut text))?;
        let mut seen = 0;
        loop {
            let path = format!("/templates/{at}/status?logsOffset={seen}");
            let told = self.server.json("GET", &path, &Value::Null)?;
            let lines = told.get("logs").and_then(Value::as_array);
            for line in lines.into_iter().flatten().filter_map(Value::as_str) {
                output.say(&format!("  {}\n", printable(line.as_bytes())));
                seen += 1;
            }
            match told.get("status").and_then(Value::as_str) {
                // The rest of the log comes first.
                _ if lines.is_some_and(|lines| !lines.is_empty()) => {}
                Some("ready") => return Ok(self.template.clone()),
                Some("building" | "waiting") => sleep(LOOK),
                _ => {
                    let reason = told.get("reason").unwrap_or(&Value::Null);
                    return Err(Failure::new("the template could not be built")
                        .because(text_of(reason, "message")));
                }
            }
        }
    }
}

/// Builds a template from a Dockerfile and the directory that it is in.
///
/// # Errors
/// When the file is not taken, or the server cannot build it.
pub(crate) fn from_dockerfile(name: &str, file: &Path, output: &Output) -> Result<(), Failure> {
    let shown = file.display().to_string();
    let text = fs::read_to_string(file).doing(&format!("{shown} cannot be read"))?;
    let read = dockerfile::read(&text).map_err(|mistake| mistake.failure(&shown))?;
    if !read.left_out.is_empty() {
        let all: Vec<&str> = read.left_out.iter().map(String::as_str).collect();
        output.say(&format!(
            "left out: {}; programs of a template are started in its sandboxes\n",
            all.join(", ")
        ));
    }
    let directory = file.parent().filter(|path| !path.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    let server = Server::of_environment()?;
    let build = Build::begin(&server, &json!({ "name": name }))?;
    if read.copies {
        output.say(&format!("sending {}\n", directory.display()));
        build.upload(dockerfile::CONTEXT, context::packed(directory)?)?;
    }
    let layout = read.from.strip_prefix(LAYOUT).map(Path::new);
    let leads_out = |path: &Path| path.is_absolute() || path.iter().any(|part| part == "..");
    if layout.is_some_and(leads_out) {
        let what = format!("{shown}: {} leads out of its directory", read.from);
        let advice = format!("atoll template build {name} --from takes it");
        return Err(Failure::new(what).advise(advice));
    }
    // Relative to the Dockerfile, as its files are.
    let mut plan = begun_with(&build, &read.from, directory, output)?;
    if let Some(plan) = plan.as_object_mut() {
        plan.insert("steps".to_owned(), json!(read.steps));
    }
    done(&build.carry_out(&plan, output)?, name, output);
    Ok(())
}

/// Builds a template that is an image.
///
/// # Errors
/// When the server cannot have it.
pub(crate) fn from_image(name: &str, image: &str, output: &Output) -> Result<(), Failure> {
    let server = Server::of_environment()?;
    let build = Build::begin(&server, &json!({ "name": name }))?;
    let plan = begun_with(&build, image, Path::new("."), output)?;
    done(&build.carry_out(&plan, output)?, name, output);
    Ok(())
}

/// Returns the plan of a build that begins with an image: of a registry, or of a layout on disk.
fn begun_with(
    build: &Build<'_>,
    image: &str,
    directory: &Path,
    output: &Output,
) -> Result<Value, Failure> {
    let Some(layout) = image.strip_prefix(LAYOUT) else {
        return Ok(json!({ "fromImage": image }));
    };
    // As skopeo and podman have it: the directory, and the name of an image in it.
    let (path, of) = match layout.rsplit_once(':') {
        Some((path, of)) if !of.contains('/') => (path, Some(of)),
        _ => (layout, None),
    };
    let path = directory.join(path);
    if !path.join("index.json").is_file() {
        let what = format!("{} is no layout of images", path.display());
        return Err(Failure::new(what)
            .because("it has no index.json (OCI Image Layout Specification)")
            .advise("skopeo copy docker://debian:12 oci:DIR:12 makes one"));
    }
    output.say(&format!("sending {}\n", path.display()));
    build.upload(LAYOUT_UPLOAD, context::packed(&path)?)?;
    Ok(json!({ "fromLayout": { "upload": LAYOUT_UPLOAD, "name": of } }))
}

fn done(template: &str, name: &str, output: &Output) {
    output.result(&format!("{template}\n"));
    output.say(&format!(
        "Sandboxes of the key's tenant are made from it by the name {name}.\n"
    ));
}
