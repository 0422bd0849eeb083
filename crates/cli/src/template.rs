//! `atoll template`: builds what sandboxes of a server begin with, in a sandbox.

use atoll_engine::failure::Failure;
use atoll_engine::sandboxes::Engine;
use atoll_launcher::LAUNCHER;
use atoll_server::CODE_INTERPRETER;
use atoll_server::worker::packages::{USUAL, Wanted, install};

use crate::arguments::{BuildTemplateArguments, TemplateAction, TemplateArguments};
use crate::output::Output;
use crate::sandbox::{build as builds, template as served};

/// Carries out `atoll template`.
///
/// # Errors
/// When the template cannot be built.
pub fn template(arguments: &TemplateArguments, output: &Output) -> Result<u8, Failure> {
    match &arguments.action {
        TemplateAction::Build(arguments) => build(arguments, output).map(|()| 0),
        TemplateAction::List(arguments) => served::list(arguments, output),
        TemplateAction::Delete(arguments) => served::delete(arguments),
    }
}

fn build(arguments: &BuildTemplateArguments, output: &Output) -> Result<(), Failure> {
    if let Some(file) = &arguments.file {
        return builds::from_dockerfile(&arguments.name, file, output);
    }
    if let Some(image) = &arguments.from {
        return builds::from_image(&arguments.name, image, output);
    }
    if arguments.name == served::DESKTOP {
        if !arguments.packages.is_empty() || !arguments.allow.is_empty() {
            return Err(Failure::new("desktop has the packages that it has").advise(
                "build a template from it: Template().from_template(\"desktop\") of E2B's SDK",
            ));
        }
        return served::build_desktop(output);
    }
    if arguments.name != CODE_INTERPRETER {
        let what = format!("there is no template {:?} to build", arguments.name);
        return Err(Failure::new(what)
            .because(format!(
                "{CODE_INTERPRETER} and {} are shipped",
                served::DESKTOP
            ))
            .advise("--file Dockerfile, or --from IMAGE, says what it is built from"));
    }
    // An option of pip could do more than install.
    if let Some(odd) = arguments.packages.iter().find(|one| one.starts_with('-')) {
        return Err(Failure::new(format!("{odd} is no package")));
    }
    let named = arguments.packages.iter().map(String::as_str);
    let packages: Vec<&str> = match arguments.packages.is_empty() {
        true => USUAL.to_vec(),
        false => named.collect(),
    };
    let engine = Engine::open(LAUNCHER)?;
    output.say(&format!(
        "Installing {} in a sandbox.\n",
        packages.join(", ")
    ));
    let wanted = Wanted {
        packages: &packages,
        allow: &arguments.allow,
        by: "atoll template build",
        scratch: "new",
    };
    let shown = |line: &str| output.say(&format!("  {line}\n"));
    let done = install(&engine, &wanted, |_| {}, shown)?;
    output.result(&format!("{}\n", done.display()));
    output.say("A server takes it for the sandboxes that it makes from now on (atoll serve).\n");
    Ok(())
}
