//! `atoll template`: builds what sandboxes of a server begin with, in a sandbox.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::thread;

use atoll_engine::failure::{Doing, Failure};
use atoll_engine::printable::printable;
use atoll_engine::sandboxes::{
    CreateSandbox, Engine, PriorAnswer, Requested, Sandbox, Workspace, remove_home,
};
use atoll_engine::supervision::ExecRequest;
use atoll_launcher::LAUNCHER;
use atoll_model::{Ending, LimitKey, Served};
use atoll_server::CODE_INTERPRETER;
use atoll_server::worker::templates::{self, PACKAGES};

use crate::arguments::{BuildTemplateArguments, TemplateAction, TemplateArguments};
use crate::output::Output;
use crate::sandbox::{build as builds, template as served};

/// The packages where none are named.
const USUAL: [&str; 13] = [
    "beautifulsoup4",
    "ipython",
    "lxml",
    "matplotlib",
    "numpy",
    "openpyxl",
    "pandas",
    "pillow",
    "requests",
    "scikit-learn",
    "scipy",
    "seaborn",
    "sympy",
];

/// The signs in what pip writes that it could not reach a host.
const UNREACHED: [&str; 5] = [
    "Failed to establish a new connection",
    "Max retries exceeded",
    "NewConnectionError",
    "ConnectTimeoutError",
    "name resolution",
];

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
    let place = templates::place(engine.state());
    fs::create_dir_all(&place).doing("the template has no place")?;
    output.say(&format!(
        "Installing {} in a sandbox.\n",
        packages.join(", ")
    ));
    let sandbox = engine.create(&wanted(&arguments.allow))?;
    install(&sandbox, &packages, output)?;
    let new = place.join("new");
    remove_home(&new)?;
    sandbox.kill_keeping_home(&new)?;
    let number = next(&place);
    let done = place.join(number.to_string());
    templates::furnish_in(&new).doing("the interpreter cannot be written")?;
    fs::rename(&new, &done).doing("the template cannot be put in its place")?;
    output.result(&format!("{}\n", done.display()));
    output.say("A server takes it for the sandboxes that it makes from now on (atoll serve).\n");
    Ok(())
}

/// Returns a number that no build has had.
fn next(place: &Path) -> u64 {
    let all = fs::read_dir(place).into_iter().flatten().flatten();
    let numbers = all.filter_map(|one| one.file_name().to_str()?.parse::<u64>().ok());
    numbers.max().unwrap_or(0) + 1
}

/// Returns the request for the sandbox: it reaches PyPI, to read.
fn wanted(allow: &[String]) -> CreateSandbox {
    CreateSandbox {
        workspace: Workspace::Own(Box::new(Served {
            sandbox: "template".to_owned(),
            caller: Some("atoll template build".to_owned()),
            template: CODE_INTERPRETER.to_owned(),
            ..Served::default()
        })),
        requested: Requested {
            presets: vec!["pip".to_owned()],
            allow: allow.to_vec(),
            limits: [
                (LimitKey::Memory, "4GiB".to_owned()),
                (LimitKey::Disk, "20GiB".to_owned()),
            ]
            .into(),
            ..Requested::default()
        },
        discard: true,
        is_attended: false,
        home: None,
        template: None,
        frozen: None,
        made_at: None,
        system: None,
        answer: PriorAnswer::Nobody,
    }
}

/// Installs packages, and shows what pip says.
fn install(sandbox: &Sandbox, packages: &[&str], output: &Output) -> Result<(), Failure> {
    let options = [
        "python3",
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "--no-cache-dir",
        "--no-warn-script-location",
        "--only-binary=:all:",
        "--progress-bar=off",
        "--target",
        PACKAGES,
    ];
    let command = options.iter().chain(packages);
    let request = ExecRequest {
        command: command.map(Into::into).collect(),
        directory: None,
        environment: vec![
            "TMPDIR=/home/user".into(),
            "PIP_ROOT_USER_ACTION=ignore".into(),
        ],
        served: None,
        answer: PriorAnswer::Nobody,
    };
    let pipe = || io::pipe().doing("no pipe can be made");
    let ((nothing, _), (out, out_end), (err, err_end)) = (pipe()?, pipe()?, pipe()?);
    let streams = [nothing.into(), out_end.into(), err_end.into()];
    let mut exec = sandbox.start(request, streams, None)?;
    let (last, is_unreached) = thread::scope(|scope| {
        let errors = scope.spawn(|| shown(err, output));
        let (_, is_unreached) = shown(out, output);
        let (last, is_too) = errors.join().unwrap_or_default();
        (last, is_unreached || is_too)
    });
    match exec.wait()? {
        Ending::Exited { status: 0 } => Ok(()),
        _ if is_unreached => Err(Failure::new("PyPI could not be reached")
            .because(last)
            .advise(
                "this machine has to reach pypi.org and files.pythonhosted.org itself; --allow HOST \
                 opens a mirror that /etc/pip.conf names",
            )),
        ending => Err(Failure::new("pip could not install the packages")
            .because(if last.is_empty() {
                format!("{ending:?}")
            } else {
                last
            })
            .advise("python3 with pip is needed on this machine (apt install python3-pip)")),
    }
}

/// Shows lines as they come; returns the last, and whether one says that a host was not reached.
fn shown(from: io::PipeReader, output: &Output) -> (String, bool) {
    let (mut last, mut is_unreached) = (String::new(), false);
    for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
        last = printable(&line);
        is_unreached |= UNREACHED.iter().any(|sign| last.contains(sign));
        output.say(&format!("  {last}\n"));
    }
    (last, is_unreached)
}
