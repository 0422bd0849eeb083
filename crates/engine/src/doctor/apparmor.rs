//! The AppArmor profile that lets `atoll` alone make user namespaces, where
//! kernel.apparmor_restrict_unprivileged_userns keeps them from ordinary users (apparmor.d(5)).
//!
//! It attaches to the program's path. The launcher is executed from memory and has no path: there
//! the kernel cannot look a name up, and a process whose profile has the flag `unconfined` stays in
//! its present profile. So the launcher and the first process of a sandbox have the profile's right
//! too, and nothing more has to be named. The profile does not confine the program, as its flag
//! says.

use std::path::Path;

use crate::shell::command_line;

/// The profile's name, and that of its file.
pub const NAME: &str = "atoll";
/// The path of the installed AppArmor profile.
pub const FILE: &str = "/etc/apparmor.d/atoll";

/// Returns the profile for a program at this path; an error, in words, if the path has characters
/// with a meaning in a profile.
pub fn profile(program: &Path) -> Result<String, String> {
    let path = program.to_str().unwrap_or_default();
    let is_plain = |one: char| one.is_alphanumeric() || "/._+-=,:~@% ".contains(one);
    if !path.starts_with('/') || !path.chars().all(is_plain) {
        return Err(format!(
            "{} has characters that AppArmor reads as a pattern",
            program.display()
        ));
    }
    Ok(format!(
        "# Lets {NAME} make user namespaces (kernel.apparmor_restrict_unprivileged_userns); holds\n\
         # nothing back. Whoever can write to the program below can use that right: better\n\
         # have it where only root writes, such as /usr/local/bin.\n\
         abi <abi/4.0>,\n\
         include <tunables/global>\n\
         \n\
         profile {NAME} \"{path}\" flags=(unconfined) {{\n\
         \x20 userns,\n\
         \n\
         \x20 include if exists <local/{NAME}>\n\
         }}\n"
    ))
}

/// Returns the command, for root, that writes the profile and loads it.
pub fn installation(program: &Path) -> String {
    format!(
        "{} doctor --apparmor-profile > {FILE} && apparmor_parser -r {FILE}",
        command_line(&[program.into()])
    )
}
