//! The request to the engine for a sandbox: its network by the words of the server, its limits and
//! variables.

use atoll_engine::sandboxes::{CreateSandbox, Outputs, PriorAnswer, Requested, Workspace};
use atoll_model::{Ending, Input, InputName, InputSource, LimitKey, Served};

use super::process::limit_name;
use crate::configuration::{Defaults, NetworkWord};
use crate::protocol::{CreateAsk, InputAsk, Kind, NetworkAsk, Refusal, describe_limit};

/// The most notes of a sandbox, and variables.
const NOTES_MAX: usize = 64;
/// The longest note or variable, bytes.
const NOTE_BYTES_MAX: usize = 4096;
/// The most destinations in a list of a network's.
const DESTINATIONS_MAX: usize = 256;
/// The longest destination, bytes.
const DESTINATION_BYTES_MAX: usize = 256;

/// Tells why a sandbox has ended that no caller has.
pub(super) fn ended_by_itself(ending: &Ending) -> String {
    match ending {
        Ending::Limited { limit } => describe_limit(&limit_name(*limit)),
        Ending::Exited { .. } => "it was stopped on the server's machine (atoll stop)".to_owned(),
        Ending::Signalled { .. } => "its first process was ended".to_owned(),
        Ending::NotFound | Ending::NotExecutable | Ending::Interrupted => {
            "it did not come to its end".to_owned()
        }
    }
}

/// Returns the request to the engine.
pub(super) fn wanted(
    served: Served,
    reach: Reach,
    ask: Vec<String>,
    limits: &Defaults,
    cpus: Option<u32>,
) -> CreateSandbox {
    let cpus = cpus.map(|cpus| (LimitKey::Cpu, cpus.to_string()));
    let of_memory = |mebibytes: u64| format!("{mebibytes}MiB");
    CreateSandbox {
        workspace: Workspace::Own(Box::new(served)),
        requested: Requested {
            presets: reach.presets,
            allow: reach.allow,
            ask,
            limits: [
                (LimitKey::Memory, of_memory(limits.memory_mib)),
                // In memory; what callers write there no process is charged for.
                (LimitKey::Tmp, of_memory((limits.memory_mib / 2).max(1))),
                (LimitKey::Disk, of_memory(limits.disk_mib)),
                (LimitKey::Processes, limits.processes.to_string()),
            ]
            .into_iter()
            .chain(cpus)
            .collect(),
            outputs: Outputs::WherePossible,
            ..Requested::default()
        },
        discard: true,
        // Whatever policies ask about is decided over the server too.
        is_attended: true,
        home: None,
        template: None,
        frozen: None,
        made_at: None,
        system: None,
        answer: PriorAnswer::Nobody,
        parent: None,
        begins_with: None,
    }
}

/// Checks what no type holds.
pub(super) fn check(ask: &CreateAsk) -> Result<(), Refusal> {
    if ask.port_host.as_ref().is_some_and(|host| !is_host(host)) {
        let what = "maskRequestHost is no host: letters, digits, . - : and ${PORT}";
        return Err(Refusal::new(Kind::Invalid, what));
    }
    if let Some(session) = &ask.session {
        check_session(session)?;
    }
    for (what, list) in [("metadata", &ask.metadata), ("envVars", &ask.environment)] {
        let is_long = |(name, value): (&String, &String)| {
            name.len() > NOTE_BYTES_MAX || value.len() > NOTE_BYTES_MAX
        };
        if list.len() > NOTES_MAX || list.iter().any(is_long) {
            let what = format!("{what} has {NOTES_MAX} entries of {NOTE_BYTES_MAX} bytes at most");
            return Err(Refusal::new(Kind::Invalid, what));
        }
        let is_odd = |name: &String| name.is_empty() || name.contains(['=', '\0']);
        if what == "envVars" && list.keys().any(is_odd)
            || list.values().any(|value| value.contains('\0'))
        {
            return Err(Refusal::new(
                Kind::Invalid,
                format!("{what} has a name that none can have"),
            ));
        }
    }
    Ok(())
}

/// Returns the inputs that a caller asks for.
pub(super) fn inputs(ask: &CreateAsk) -> Result<Vec<Input>, Refusal> {
    let input = |one: &InputAsk| {
        let name = InputName::parse(&one.name).ok_or_else(|| {
            let what = format!("{:?} is no name of an input", one.name);
            let how = "letters, digits, `.`, `_` and `-`, and neither `.` nor `-` at its begin";
            Refusal::new(Kind::Invalid, what).advise(how)
        })?;
        let source = InputSource::Artifact(one.artifact.clone());
        Ok(Input { name, source })
    };
    ask.inputs.iter().map(input).collect()
}

/// Returns whether a text can be the host of a request, once the port is in it.
fn is_host(text: &str) -> bool {
    let text = text.replace("${PORT}", "0");
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
    !text.is_empty() && text.len() <= NOTE_BYTES_MAX && text.bytes().all(fits)
}

/// The network of one sandbox.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    /// The word for it.
    pub(super) name: &'static str,
    pub(super) presets: Vec<String>,
    pub(super) allow: Vec<String>,
}

impl Reach {
    pub(super) fn is_closed(&self) -> bool {
        self.name == NetworkWord::Closed.name()
    }
}

/// All addresses, as E2B's SDKs write them.
const EVERYWHERE: &str = "0.0.0.0/0";

/// Returns the network of a sandbox: the server's, or less if the caller asks for less.
pub(super) fn narrowed(word: NetworkWord, asked: Option<&NetworkAsk>) -> Result<Reach, Refusal> {
    let whole = Reach {
        name: word.name(),
        presets: word.presets(),
        allow: word.allow(),
    };
    let Some(asked) = asked else {
        return Ok(whole);
    };
    for (what, list) in [("allowOut", &asked.allow), ("denyOut", &asked.deny)] {
        let is_long = |one: &String| one.len() > DESTINATION_BYTES_MAX;
        if list.len() > DESTINATIONS_MAX || list.iter().any(is_long) {
            let what = format!(
                "{what} has {DESTINATIONS_MAX} entries of {DESTINATION_BYTES_MAX} bytes at most"
            );
            return Err(Refusal::new(Kind::Invalid, what));
        }
    }
    let refused =
        |what: &str, advice: &str| Err(Refusal::new(Kind::Forbidden, what).advise(advice));
    if asked.deny.iter().any(|one| one != EVERYWHERE) {
        return refused(
            "denyOut names single addresses, and this server closes all or none",
            "denyOut: [\"0.0.0.0/0\"] with allowOut names what is reached instead",
        );
    }
    let closes = asked.internet == Some(false) || !asked.deny.is_empty();
    match (word, asked.allow.as_slice()) {
        (_, []) if closes => Ok(Reach {
            name: NetworkWord::Closed.name(),
            presets: Vec::new(),
            allow: Vec::new(),
        }),
        (_, []) => Ok(whole),
        (NetworkWord::Closed | NetworkWord::Registries, _) => refused(
            &format!(
                "allowOut: this server's sandboxes have the network \"{}\"",
                word.name()
            ),
            "network = \"internet\" in serve.toml lets callers name destinations",
        ),
        (NetworkWord::Internet, _) if !closes => Err(Refusal::new(
            Kind::Invalid,
            "allowOut without denyOut: [\"0.0.0.0/0\"] changes nothing",
        )),
        (NetworkWord::Internet, named) => Ok(Reach {
            name: "named",
            presets: Vec::new(),
            allow: named.to_vec(),
        }),
    }
}

/// The longest name of a session, bytes.
const SESSION_BYTES_MAX: usize = 40;

/// Checks the name of a session.
pub(super) fn check_session(name: &str) -> Result<(), Refusal> {
    let is_first = |byte: &u8| byte.is_ascii_alphanumeric();
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let is_name = name.as_bytes().first().is_some_and(is_first)
        && name.len() <= SESSION_BYTES_MAX
        && name.bytes().all(fits);
    match is_name {
        true => Ok(()),
        false => Err(Refusal::new(
            Kind::Invalid,
            format!(
                "a session's name has up to {SESSION_BYTES_MAX} letters, digits, '.', '_', '-', \
                 and begins with a letter or digit"
            ),
        )),
    }
}
