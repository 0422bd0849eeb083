//! Profiles of AWS's command line, as its two files define them ("Shared config and credentials
//! files" of the reference guide of AWS's SDKs and tools).

use std::path::PathBuf;

use atoll_model::network::COMMAND_PATIENCE;
use atoll_policy::{CommandProgram, CommandSource};

/// The setting that names the command which prints a key; [`ROLES`] name a role instead.
const PROCESS: &str = "credential_process";
const ROLES: [&str; 2] = ["role_arn", "web_identity_token_file"];
/// The prefixes of the settings of single sign-on, and of a login by a browser.
const SIGN_ON: [&str; 2] = ["sso_", "login_session"];

/// The characters that mean something to a shell but not to a program that runs none, within double
/// quotes and outside of them: some of AWS's programs run a command by a shell, others do not.
const UNCLEAR_QUOTED: &str = "$`\\";
const UNCLEAR: &str = "$`\\|&;<>()*?[]{}";
/// Such characters that count only at the beginning of a word.
const UNCLEAR_FIRST: &str = "~#";

/// The kind of file that defines profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The file of keys, in which a heading is the bare name of a profile.
    Keys,
    /// The file of all settings.
    Settings,
}

/// The entries of one profile in one file.
#[derive(Debug, Default)]
pub(super) struct Profile<'a>(Vec<Entry<'a>>);

#[derive(Debug)]
struct Entry<'a> {
    key: &'a str,
    value: &'a str,
    /// Set when the value continues on the next line.
    goes_on: bool,
}

/// The reason why a profile names no usable command.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoCommand {
    /// The profile has no such setting.
    Unnamed,
    /// The profile gets its key in another way, by this setting.
    OtherWay(String),
    /// The profile names a command that is not run, for this reason.
    Unclear(String),
}

impl<'a> Profile<'a> {
    /// Reads a profile from a file's text.
    pub(super) fn read(text: &'a str, kind: Kind, profile: &str) -> Self {
        let mut entries: Vec<Entry<'a>> = Vec::new();
        let mut is_its = false;
        for line in text.lines() {
            let line = line.trim_end();
            if let Some(heading) = line.strip_prefix('[') {
                let name = heading.split_once(']').map(|(name, _)| name.trim());
                is_its = name.is_some_and(|name| is_of(name, kind, profile));
            } else if !is_its || line.trim_start().starts_with(['#', ';']) || line.is_empty() {
                continue;
            } else if line.starts_with([' ', '\t']) {
                if let Some(last) = entries.last_mut() {
                    last.goes_on = true;
                }
            } else if let Some((key, value)) = line.split_once(['=', ':']) {
                entries.push(Entry {
                    key: key.trim(),
                    value: value.trim(),
                    goes_on: false,
                });
            }
        }
        Self(entries)
    }

    /// Returns the last entry of a key, as AWS's programs do.
    fn entry(&self, key: &str) -> Option<&Entry<'a>> {
        let mut all = self.0.iter().rev();
        all.find(|entry| entry.key.eq_ignore_ascii_case(key))
    }

    /// Returns a value that is set and not empty.
    pub(super) fn value(&self, key: &str) -> Option<&'a str> {
        let entry = self.entry(key)?;
        Some(entry.value).filter(|value| !value.is_empty())
    }

    fn has(&self, is_it: impl Fn(&str) -> bool) -> Option<&'a str> {
        let mut all = self.0.iter();
        let found = all.find(|entry| is_it(&entry.key.to_ascii_lowercase()));
        found.map(|entry| entry.key)
    }
}

/// Returns whether a heading is of a profile.
fn is_of(heading: &str, kind: Kind, profile: &str) -> bool {
    let name = match kind {
        Kind::Keys => return heading == profile,
        Kind::Settings if heading == "default" => heading,
        Kind::Settings => match heading.strip_prefix("profile") {
            Some(name) if name.starts_with([' ', '\t']) => name.trim(),
            Some(_) | None => return false,
        },
    };
    let quoted = ['"', '\''].into_iter().find_map(|mark| {
        let inner = name.strip_prefix(mark)?;
        inner.strip_suffix(mark)
    });
    quoted.unwrap_or(name) == profile
}

/// Returns the command that prints the key of a profile, and the file that names it: the file of
/// keys goes before the other one.
///
/// # Errors
/// [`NoCommand`].
pub(super) fn command(
    keys: &Profile<'_>,
    settings: &Profile<'_>,
) -> Result<(CommandSource, Kind), NoCommand> {
    let is_role = |key: &str| ROLES.contains(&key);
    let is_sign_on = |key: &str| SIGN_ON.iter().any(|start| key.starts_with(start));
    let role = keys.has(is_role).or_else(|| settings.has(is_role));
    let sign_on = keys.has(is_sign_on).or_else(|| settings.has(is_sign_on));
    let named = keys.entry(PROCESS).map(|entry| (entry, Kind::Keys));
    let named = named.or_else(|| Some((settings.entry(PROCESS)?, Kind::Settings)));
    let Some((entry, kind)) = named else {
        return Err(match role.or(sign_on) {
            Some(key) => NoCommand::OtherWay(key.to_owned()),
            None => NoCommand::Unnamed,
        });
    };
    if let Some(role) = role {
        return Err(NoCommand::Unclear(format!(
            "it has {role} beside {PROCESS}: programs of AWS differ in which of them they take"
        )));
    }
    if entry.goes_on {
        let why = format!("its {PROCESS} goes on in the next line");
        return Err(NoCommand::Unclear(why));
    }
    let parsed = parse(entry.value).map_err(|why| format!("its {PROCESS} {why}"));
    parsed
        .map(|command| (command, kind))
        .map_err(NoCommand::Unclear)
}

/// Splits a command into words, only where a shell and a program without one would split it alike.
fn parse(text: &str) -> Result<CommandSource, String> {
    let mut words = words(text)?.into_iter();
    let program = words.next().filter(|program| !program.is_empty());
    let program = program.ok_or("is empty")?;
    let program = match program.contains('/') {
        false => CommandProgram::Named(program),
        true if program.starts_with('/') => CommandProgram::At(PathBuf::from(program)),
        true => return Err("names its program by a path that does not begin with /".to_owned()),
    };
    Ok(CommandSource {
        program,
        arguments: words.collect(),
        patience: COMMAND_PATIENCE,
    })
}

fn words(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for letter in text.chars() {
        let is_unclear = match quote {
            Some('"') => UNCLEAR_QUOTED.contains(letter),
            Some(_) => false,
            None if word.is_none() => UNCLEAR.contains(letter) || UNCLEAR_FIRST.contains(letter),
            None => UNCLEAR.contains(letter),
        };
        if is_unclear || letter.is_control() && letter != '\t' {
            return Err(format!(
                "has {letter:?} in it, which a shell reads in its own way"
            ));
        }
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, ' ' | '\t') => words.extend(word.take()),
            (Some(_) | None, letter) => word.get_or_insert_default().push(letter),
        }
    }
    if quote.is_some() {
        return Err("has a quotation mark without another one".to_owned());
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_of_a_file_has_its_own_values_alone() {
        let text = "# keys\n[default]\naws_access_key_id = AKIAONE\naws_secret_access_key=a/b+c=\n\
                    [work]\n aws_session_token = no\naws_access_key_id=AKIATWO\n\
                    aws_access_key_id = AKIATHREE \n#aws_secret_access_key = no\n";
        let value = |name: &str, key: &str| Profile::read(text, Kind::Keys, name).value(key);
        assert_eq!(value("default", "aws_access_key_id"), Some("AKIAONE"));
        assert_eq!(value("default", "aws_secret_access_key"), Some("a/b+c="));
        assert_eq!(value("work", "aws_access_key_id"), Some("AKIATHREE"));
        assert_eq!(value("work", "aws_secret_access_key"), None);
        assert_eq!(value("work", "aws_session_token"), None);
        assert_eq!(value("other", "aws_access_key_id"), None);
    }

    #[test]
    fn a_profile_is_found_by_its_heading_in_either_file() {
        for (kind, heading, profile, is_it) in [
            (Kind::Keys, "work", "work", true),
            (Kind::Keys, "profile work", "work", false),
            (Kind::Settings, "profile work", "work", true),
            (Kind::Settings, "profile\t work ", "work", true),
            (Kind::Settings, "profile \"work\"", "work", true),
            (Kind::Settings, "profile 'my work'", "my work", true),
            (Kind::Settings, "profile my work", "my work", true),
            (Kind::Settings, "work", "work", false),
            (Kind::Settings, "profilework", "work", false),
            (Kind::Settings, "sso-session work", "work", false),
            (Kind::Settings, "default", "default", true),
            (Kind::Settings, "profile default", "default", true),
            (Kind::Settings, "profile other", "work", false),
        ] {
            let text = format!("[{heading}]\nregion = x\n");
            let found = Profile::read(&text, kind, profile).value("region");
            assert_eq!(found.is_some(), is_it, "{heading} {profile}");
        }
    }

    fn named(keys: &str, settings: &str) -> Result<(CommandSource, Kind), NoCommand> {
        let keys = format!("[other]\ncredential_process = no\n[work]\n{keys}\n");
        let settings = format!("[profile work]\n{settings}\n[profile other]\nrole_arn = no\n");
        command(
            &Profile::read(&keys, Kind::Keys, "work"),
            &Profile::read(&settings, Kind::Settings, "work"),
        )
    }

    #[test]
    fn a_command_is_taken_apart_as_a_shell_and_a_program_without_one_do() {
        let at = |path: &str| CommandProgram::At(path.into());
        let by = |name: &str| CommandProgram::Named(name.to_owned());
        for (text, program, arguments) in [
            ("/opt/bin/keys", at("/opt/bin/keys"), &[][..]),
            ("keys  --for\twork ", by("keys"), &["--for", "work"]),
            (
                "\"/opt/my bin/keys\" \"a b\" c\"d e\"f",
                at("/opt/my bin/keys"),
                &["a b", "cd ef"],
            ),
            ("keys '$x \\ y' \"\" ''", by("keys"), &["$x \\ y", "", ""]),
            (
                "keys arn:aws:iam::123456789012:role/a@b,c+d=~#e",
                by("keys"),
                &["arn:aws:iam::123456789012:role/a@b,c+d=~#e"],
            ),
            ("keys \"it's\" \"*?;|\"", by("keys"), &["it's", "*?;|"]),
        ] {
            let (command, kind) = named("", &format!("credential_process = {text}")).unwrap();
            assert_eq!((command.program, kind), (program, Kind::Settings), "{text}");
            assert_eq!(command.arguments, arguments, "{text}");
            assert_eq!(command.patience, COMMAND_PATIENCE);
        }
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_not_run() {
        for (text, why) in [
            ("", "is empty"),
            ("\"\" x", "is empty"),
            ("keys $HOME", "'$' in it"),
            ("keys \"$HOME\"", "'$' in it"),
            ("keys `id`", "'`' in it"),
            ("keys a\\ b", "'\\\\' in it"),
            ("keys \"a\\\"b\"", "'\\\\' in it"),
            ("~/bin/keys", "'~' in it"),
            ("keys ~/x", "'~' in it"),
            ("keys | other", "'|' in it"),
            ("keys;other", "';' in it"),
            ("keys & other", "'&' in it"),
            ("keys >x", "'>' in it"),
            ("keys $(x)", "'$' in it"),
            ("keys (x)", "'(' in it"),
            ("keys *.json", "'*' in it"),
            ("keys a?", "'?' in it"),
            ("keys [a]", "'[' in it"),
            ("keys {a,b}", "'{' in it"),
            ("keys # all of them", "'#' in it"),
            ("keys a\u{7}", "'\\u{7}' in it"),
            ("keys \"a", "quotation mark"),
            ("keys it's", "quotation mark"),
            ("bin/keys", "does not begin with /"),
            ("./keys", "does not begin with /"),
            ("keys\n  --more", "goes on in the next line"),
            ("keys\n\n  --more", "goes on in the next line"),
            ("keys\nrole_arn = arn:aws:iam::1:role/r", "role_arn beside"),
            ("keys\nRole_ARN: arn:aws:iam::1:role/r", "Role_ARN beside"),
            ("keys\nweb_identity_token_file = /x", "beside"),
        ] {
            let found = named("", &format!("credential_process = {text}"));
            let Err(NoCommand::Unclear(told)) = found else {
                panic!("{text}: {found:?}");
            };
            assert!(told.contains(why), "{text}: {told}");
        }
        // What is written below it and indented within a comment is none of it.
        assert!(named("", "credential_process = keys\n  # said of it\n").is_ok());
    }

    #[test]
    fn the_file_of_keys_goes_before_and_another_way_is_told() {
        let program = |found: Result<(CommandSource, Kind), NoCommand>| {
            let (command, kind) = found.unwrap();
            let CommandProgram::Named(name) = command.program else {
                panic!("{command:?}");
            };
            (name, kind)
        };
        let both = named("credential_process = one", "credential_process = two");
        assert_eq!(program(both), ("one".to_owned(), Kind::Keys));
        let last = named("", "credential_process = one\nCredential_Process: two");
        assert_eq!(program(last), ("two".to_owned(), Kind::Settings));
        // Tools for single sign-on write both, for programs that know one of them.
        let both = named("", "sso_start_url = https://x\ncredential_process = two");
        assert_eq!(program(both), ("two".to_owned(), Kind::Settings));
        for (key, settings) in [
            (
                "role_arn",
                "role_arn = arn:aws:iam::1:role/r\nsource_profile = a",
            ),
            ("sso_session", "region = x\nsso_session = a"),
            ("sso_start_url", "sso_start_url = https://x"),
            ("login_session", "login_session = arn:aws:iam::1:user/u"),
            ("web_identity_token_file", "web_identity_token_file = /x"),
        ] {
            let told = NoCommand::OtherWay(key.to_owned());
            assert_eq!(named("", settings), Err(told));
        }
        let by_keys = named("role_arn = arn:aws:iam::1:role/r", "credential_process = a");
        assert!(matches!(by_keys, Err(NoCommand::Unclear(_))));
        assert_eq!(named("", "region = x"), Err(NoCommand::Unnamed));
    }
}
