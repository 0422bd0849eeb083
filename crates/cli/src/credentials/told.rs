//! Removes credentials from what the caller passes to the program: the command, and the
//! environment. A shell expands `$TOKEN` in a command before Atoll sees it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use atoll_engine::configuration;
use atoll_engine::failure::Failure;
use atoll_policy::Rules;
use atoll_sandbox::Handover;

use crate::arguments::RunArguments;
use crate::output::Output;

/// The command and the caller's environment, free of credential values.
pub struct Words {
    pub command: Vec<OsString>,
    pub environment: Vec<(OsString, OsString)>,
}

/// Replaces the values of credentials by their placeholders. To be called once all are read, while
/// no other thread uses the environment.
///
/// # Errors
/// A variable that is set in the sandbox holds one, or an option that is recorded.
pub fn told(
    handover: Option<&mut Handover>,
    (rules, arguments): (&Rules, &RunArguments),
    output: &Output,
) -> Result<Words, Failure> {
    let Some(handover) = handover else {
        return Ok(Words {
            command: arguments.command.clone(),
            environment: configuration::environment(),
        });
    };
    if let Some((variable, name)) = handover.held_in(rules.variables_set()) {
        return Err(Failure::new(format!(
            "the variable {variable} that is set inside holds the value of credential {name}"
        ))
        .because("a program is to hold what stands for it alone")
        .advise(format!(
            "leave {variable} out where it is set (--env, [environment] set): what stands for the \
             credential is in its own variable inside"
        )));
    }
    let options = arguments.boundary_options();
    let session = arguments
        .session
        .as_ref()
        .map(|name| format!("--session={name}").into());
    let options: Vec<OsString> = options.into_iter().chain(session).collect();
    let said = options.iter().map(|option| (option, option.as_os_str()));
    if let Some((option, name)) = handover.held_in(said) {
        let mut parts = option.as_bytes().split(|byte| *byte == b'=');
        let option = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
        return Err(
            Failure::new(format!("{option} holds the value of credential {name}"))
                .because("how a run was asked for is written down")
                .advise(format!(
                    "say {option} without it: inside it is in the credential's own variable"
                )),
        );
    }
    let told = handover.told(&arguments.command);
    for name in &told.replaced {
        output.say(&format!(
            "atoll: the command holds the value of credential {name}: what stands for it is in its place\n"
        ));
    }
    let mut environment = configuration::environment();
    environment.retain(|(name, _)| told.variables.iter().all(|(one, _)| one != name));
    environment.extend(told.variables);
    Ok(Words {
        command: told.command,
        environment,
    })
}
