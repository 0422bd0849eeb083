//! Removes credentials from what the caller passes to the program: the command, and the
//! environment. A shell expands `$TOKEN` in a command before Atoll sees it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use atoll_policy::Rules;

use crate::configuration;
use crate::failure::Failure;
use crate::notice::{Notice, Notices};
use crate::supervision::CredentialBundle;

/// The command and the caller's environment, free of credential values.
pub struct Words {
    /// The command.
    pub command: Vec<OsString>,
    /// The environment.
    pub environment: Vec<(OsString, OsString)>,
}

/// The words by which a run was asked for.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// The command.
    pub command: &'a [OsString],
    /// The options that are recorded.
    pub options: &'a [OsString],
}

/// Replaces the values of credentials by their placeholders. To be called once all are read, while
/// no other thread uses the environment.
///
/// # Errors
/// A variable that is set in the sandbox holds one, or an option that is recorded.
pub fn told(
    handover: Option<&mut CredentialBundle>,
    rules: &Rules,
    asked: Asked<'_>,
    notices: &dyn Notices,
) -> Result<Words, Failure> {
    let Some(handover) = handover else {
        return Ok(Words {
            command: asked.command.to_owned(),
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
    let said = asked
        .options
        .iter()
        .map(|option| (option, option.as_os_str()));
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
    let told = handover.told(asked.command);
    for name in &told.replaced {
        notices.notice(Notice::Replaced(name.to_string()));
    }
    let mut environment = configuration::environment();
    environment.retain(|(name, _)| told.variables.iter().all(|(one, _)| one != name));
    environment.extend(told.variables);
    Ok(Words {
        command: told.command,
        environment,
    })
}
