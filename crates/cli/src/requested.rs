//! The conversion of a run's options to the types of policy: the files that they name are read, and
//! limits and durations are parsed.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use atoll_engine::configuration;
use atoll_engine::failure::{Doing, Failure};
use atoll_model::{
    Input, InputName, InputSource, InvalidLimit, LimitKey, parse_duration, parse_limit,
};
use atoll_policy::{EarlierPurposes, Outputs, Requested, RequestedProfile, nearest};

use crate::arguments::{self, Command, RunArguments};

/// Converts the arguments to the types of policy.
pub(crate) fn requested(arguments: &RunArguments) -> Result<Requested, Failure> {
    let mut limits = Vec::with_capacity(arguments.limit.len());
    for text in &arguments.limit {
        let (key, value) = parse_limit(text).map_err(|error| limit_mistake(text, &error))?;
        limits.push((key, value.to_owned()));
    }
    let timeout = arguments.timeout.as_ref().map(|text| {
        let time = parse_duration(text).doing("--timeout is not usable");
        time.map_err(|failure| failure.advise("atoll run --timeout 90s -- …"))
    });
    let timeout = timeout.transpose()?;
    let inputs = arguments.input.iter().map(|text| input(text));
    let inputs = inputs.collect::<Result<_, _>>()?;
    let found = |option: &str, path: &PathBuf| {
        path.canonicalize()
            .doing(&format!("{option} {} cannot be read", path.display()))
            .map_err(|failure| failure.advise("name a file or directory that is there"))
    };
    let read_only_dirs = arguments.ro.iter().map(|path| found("--ro", path));
    let read_only_dirs = read_only_dirs.collect::<Result<_, _>>()?;
    let read_write_dirs = arguments.rw.iter().map(|path| found("--rw", path));
    let read_write_dirs: Vec<PathBuf> = read_write_dirs.collect::<Result<_, _>>()?;
    if let Some(file) = read_write_dirs.iter().find(|path| !path.is_dir()) {
        let what = format!("--rw {} is not a directory", file.display());
        return Err(Failure::new(what).advise("name the directory that it is in"));
    }
    Ok(Requested {
        profile: arguments
            .profile
            .as_ref()
            .map(|name| requested_profile(name))
            .transpose()?,
        login: arguments.login.clone(),
        live: arguments.live,
        layered: false,
        root: arguments.root,
        system: None,
        nesting: arguments.nesting,
        outputs: match arguments.outputs {
            true => Outputs::Required,
            false => Outputs::None,
        },
        inputs,
        keep_caches: arguments.keep_caches,
        read_only_dirs,
        read_write_dirs,
        allow: arguments.allow.clone(),
        allowed: Vec::new(),
        tunnel: arguments.tunnel.clone(),
        presets: arguments.preset.clone(),
        trust: arguments.trust.clone(),
        mode: arguments.mode.clone(),
        task: arguments.task.clone(),
        purpose: arguments.purpose.clone(),
        earlier: EarlierPurposes::default(),
        in_session: arguments.session.is_some() || arguments.resume.is_some(),
        deny: arguments.deny.clone(),
        ask: arguments.ask.clone(),
        publish: arguments.publish.clone(),
        host_ports: arguments.host_port.clone(),
        learn: arguments.learn,
        limits,
        timeout,
        environment: arguments.env.clone(),
    })
}

/// Reads `--input NAME=SOURCE`.
fn input(text: &OsStr) -> Result<Input, Failure> {
    let what = || format!("--input {} is not usable", text.to_string_lossy());
    let form = "atoll run --input sales=data/2026.csv -- …";
    let bytes = text.as_bytes();
    let split = bytes.iter().position(|byte| *byte == b'=');
    let split = split.and_then(|at| Some((bytes.get(..at)?, bytes.get(at + 1..)?)));
    let Some((name, source)) = split else {
        let why = "it has a name, =, and a path or artifact:ID";
        return Err(Failure::new(what()).because(why).advise(form));
    };
    let name = str::from_utf8(name).ok().and_then(InputName::parse);
    let name = name.ok_or_else(|| {
        let why =
            "a name is of letters, digits, `.`, `_` and `-`, and begins with none of `.` and `-`";
        Failure::new(what()).because(why).advise(form)
    })?;
    let known = str::from_utf8(source).ok().and_then(InputSource::parse);
    let source = match known {
        Some(source) => source.map_err(|why| Failure::new(what()).because(why).advise(form))?,
        None => {
            let path = Path::new(OsStr::from_bytes(source)).canonicalize();
            let path = path.doing(&what());
            let advice = "name a file or directory that is there, or artifact:ID";
            InputSource::Path(path.map_err(|failure| failure.advise(advice))?)
        }
    };
    Ok(Input { name, source })
}

/// Reads the command line that began a run.
///
/// # Errors
/// When it is none any more.
pub(crate) fn of_line(line: &[OsString]) -> Result<Requested, &'static str> {
    let Ok(Command::Run(arguments)) = arguments::read(line) else {
        return Err("the run's options are not known any more");
    };
    requested(&arguments).map_err(|_| "a file that an option of the run names is gone")
}

/// Reads a profile by its name, or from a file: whatever has a slash or ends in `.toml`.
///
/// # Errors
/// When the file cannot be read.
pub(crate) fn requested_profile(text: &OsStr) -> Result<RequestedProfile, Failure> {
    let path = Path::new(text);
    let named = text.to_string_lossy();
    if !named.contains('/') && path.extension().is_none_or(|end| end != "toml") {
        return Ok(RequestedProfile::Named(named.into_owned()));
    }
    let absolute = std::path::absolute(path).doing("the profile's path is not usable")?;
    configuration::read_optional(&absolute)?
        .map(RequestedProfile::File)
        .ok_or_else(|| {
            Failure::new(format!("there is no profile {}", path.display()))
                .advise("atoll profile list shows the profiles with a name")
        })
}

fn limit_mistake(text: &str, error: &InvalidLimit) -> Failure {
    let meant = match error {
        InvalidLimit::Unknown(name) => nearest(name, LimitKey::names()),
        InvalidLimit::Form(_) | InvalidLimit::Value { .. } => None,
    };
    let value = text.split_once('=').map_or("", |(_, value)| value);
    Failure::new("--limit is not usable")
        .because(error)
        .advise(match meant {
            Some(name) => format!("did you mean --limit {name}={value}?"),
            None => "atoll run --limit memory=2GiB -- …".to_owned(),
        })
}
