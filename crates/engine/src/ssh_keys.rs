//! Keys of SSH of a run: found where its rules say they are, and handed on to who signs.

use std::io::{ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use atoll_connectors::ssh::{
    Identity, KNOWN_HOSTS_BYTES_MAX, OwnAgent, OwnKey, OwnKeyError, decoded, fingerprint,
    host_keys, public_key,
};
use atoll_model::network::{CREDENTIAL_BYTES_MAX, HostPart, SSH_KEYS_MAX, SshKey, SshKeys};
use atoll_policy::{Rules, SshKeySource, SshRule};
use zeroize::Zeroizing;

use crate::configuration::Places;
use crate::failure::{Doing, Failure, Hint};
use crate::notice::Notices;
use crate::secrets;
use crate::supervision::SshHandover;

/// The system-wide known hosts file, where host keys are accepted and revoked.
const GLOBAL_KNOWN_HOSTS: &str = "/etc/ssh/ssh_known_hosts";

/// Finds them; nothing where the rules name none.
pub fn read(
    rules: &Rules,
    places: &Places,
    home: &Path,
    workspace: &Path,
    notices: &dyn Notices,
) -> Result<Option<SshHandover>, Failure> {
    if rules.ssh().next().is_none() {
        return Ok(None);
    }
    let mut handover = SshHandover::new().doing("keys of SSH cannot be handed on")?;
    let mut agent = None;
    for rule in rules.ssh() {
        let host_keys = pinned(rule, home)?;
        let name = rule.grant.name.clone();
        let with = |keys: Vec<SshKey>| SshKeys {
            name: name.clone(),
            keys,
            host_keys: host_keys.clone(),
        };
        match &rule.source {
            SshKeySource::Agent(wanted) => {
                let identities = match &mut agent {
                    Some((_, identities)) => identities,
                    None => {
                        let (_, identities) = agent.insert(of_person(rule)?);
                        identities
                    }
                };
                handover.add(with(chosen(rule, wanted.as_deref(), identities)?));
            }
            SshKeySource::File(path) => {
                let text = from_file(rule, path, rules, workspace)?;
                warn_of_open(rule, path, notices);
                let key = own(rule, &text, &path.display().to_string())?;
                add_own(&mut handover, with(vec![key]), &text)?;
            }
            SshKeySource::Vault(wanted) => {
                let text = secrets::open(places, wanted)?;
                let key = own(rule, &text, &format!("the vault's secret {wanted}"))?;
                add_own(&mut handover, with(vec![key]), &text)?;
            }
        }
    }
    if let Some((agent, _)) = agent {
        handover.take_agent(agent.into_connection());
    }
    Ok(Some(handover))
}

fn add_own(handover: &mut SshHandover, keys: SshKeys, text: &[u8]) -> Result<(), Failure> {
    let added = handover.add_own(keys, text);
    added.doing("a key of SSH cannot be handed on")
}

fn unusable(rule: &SshRule) -> Failure {
    let grant = &rule.grant;
    Failure::new(format!("[ssh.{}] cannot be used for {grant}", grant.name))
}

/// Returns the keys by which its host is known.
fn pinned(rule: &SshRule, home: &Path) -> Result<Vec<SshKey>, Failure> {
    let (host, port) = (&rule.grant.host, rule.grant.port);
    let places: [PathBuf; 2] = [home.join(".ssh/known_hosts"), GLOBAL_KNOWN_HOSTS.into()];
    let texts = places.iter().map(|path| accepted(rule, path));
    let texts: Vec<String> = texts.collect::<Result<_, _>>()?;
    let key = |text: &String| decoded(text.split_once(' ')?.1);
    let is_pinned = !rule.host_keys.is_empty();
    let pinned = is_pinned.then(|| rule.host_keys.iter().filter_map(key).collect());
    let found = host_keys(pinned, &texts, host, port);
    let keys: Vec<SshKey> = found.iter().filter_map(|key| public_key(key, "")).collect();
    if keys.is_empty() {
        let name = match host {
            HostPart::Name(name) => name.to_string(),
            HostPart::Address(address) => address.to_string(),
        };
        return Err(unusable(rule)
            .because(
                "no key of that host is known that is not revoked: ~/.ssh/known_hosts has none",
            )
            .advise(format!(
                "connect to it once yourself and look at its key: ssh -p {port} {name}"
            ))
            .advise(
                "or write host-keys = [\"ssh-ed25519 AAAA…\"], as the host's owner publishes it",
            ));
    }
    Ok(keys.into_iter().take(SSH_KEYS_MAX).collect())
}

/// Reads the accepted and revoked host keys; empty if there is no such file. An unreadable file is
/// an error: it could revoke any key.
fn accepted(rule: &SshRule, path: &Path) -> Result<String, Failure> {
    let read = std::fs::File::open(path).and_then(|file| {
        let mut bytes = Vec::new();
        file.take(KNOWN_HOSTS_BYTES_MAX as u64 + 1)
            .read_to_end(&mut bytes)?;
        Ok(bytes)
    });
    let shown = path.display();
    let why = match read {
        Ok(bytes) if bytes.len() <= KNOWN_HOSTS_BYTES_MAX => {
            return Ok(String::from_utf8_lossy(&bytes).into_owned());
        }
        Ok(_) => format!("{shown} is longer than {KNOWN_HOSTS_BYTES_MAX} bytes"),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(String::new());
        }
        Err(error) => format!("{shown}: {error}"),
    };
    Err(unusable(rule)
        .because(format!("{why}, so nobody knows which keys it revokes"))
        .advise(Hint::Naming(
            "ls -l {} shows whether you may read it".to_owned(),
            path.to_owned(),
        )))
}

/// Connects to the person's agent, and lists its keys.
fn of_person(rule: &SshRule) -> Result<(OwnAgent, Vec<Identity>), Failure> {
    let start = "eval \"$(ssh-agent)\" && ssh-add starts one with your key";
    let socket = std::env::var_os("SSH_AUTH_SOCK").filter(|socket| !socket.is_empty());
    let Some(socket) = socket else {
        let failure = unusable(rule).because("its key is to be in your agent, and you have none");
        return Err(failure.advise(start));
    };
    let asked = OwnAgent::connect(Path::new(&socket)).and_then(|mut agent| {
        let identities = agent.identities()?;
        Ok((agent, identities))
    });
    asked.map_err(|error| {
        let why = format!("your agent at {}: {error}", socket.display());
        unusable(rule).because(why).advise(start)
    })
}

/// Returns the agent's keys that are granted.
fn chosen(
    rule: &SshRule,
    wanted: Option<&str>,
    identities: &[Identity],
) -> Result<Vec<SshKey>, Failure> {
    let is_wanted = |one: &&Identity| wanted.is_none_or(|wanted| fingerprint(&one.key) == wanted);
    let keys = identities.iter().filter(is_wanted);
    // A certificate is no key of its own.
    let is_plain = |key: &SshKey| !key.kind.contains("-cert-");
    // What its owner calls it is nobody else's: the grant's name says enough.
    let name = rule.grant.name.as_str();
    let keys = keys.filter_map(|one| public_key(&one.key, name));
    let keys: Vec<SshKey> = keys.filter(is_plain).take(SSH_KEYS_MAX).collect();
    if keys.is_empty() {
        let why = match wanted {
            Some(wanted) => format!("your agent has no key {wanted}"),
            None => "your agent has no key".to_owned(),
        };
        return Err(unusable(rule)
            .because(why)
            .advise("ssh-add -l shows those that it has, ssh-add FILE gives it one"));
    }
    Ok(keys)
}

fn from_file(
    rule: &SshRule,
    path: &Path,
    rules: &Rules,
    workspace: &Path,
) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let shown = path.display();
    // By its own name, whatever leads to it; what policy sees is what is written.
    let real = path.canonicalize();
    if real.is_ok_and(|real| rules.shows(&real, workspace)) {
        return Err(unusable(rule)
            .because(format!("{shown} can be read inside"))
            .advise("keep it where no sandbox looks, in your agent, or in the vault"));
    }
    let small = |facts: std::fs::Metadata| {
        let is_it = facts.is_file() && facts.len() <= CREDENTIAL_BYTES_MAX as u64;
        is_it.then_some(()).ok_or(ErrorKind::InvalidInput.into())
    };
    let read = std::fs::metadata(path).and_then(small);
    let read = read.and_then(|()| std::fs::read(path));
    let text = read.map_err(|error| {
        let advice = match error.kind() {
            ErrorKind::NotFound => {
                "name the file of your key (ls ~/.ssh), make one (ssh-keygen -t ed25519 -N '' -f \
                 {}), or write key = \"agent\""
            }
            ErrorKind::InvalidInput => "name a private key's file: ls -l {}",
            _ => "ls -l {} shows whether you may read it",
        };
        let why = match error.kind() {
            ErrorKind::NotFound => format!("there is no {shown}"),
            ErrorKind::InvalidInput => format!("{shown} is no file of a key"),
            _ => format!("{shown}: {error}"),
        };
        let hint = Hint::Naming(advice.to_owned(), path.to_owned());
        unusable(rule).because(why).advise(hint)
    })?;
    Ok(Zeroizing::new(text))
}

/// Warns of a key that others can read: ssh itself would not take it.
fn warn_of_open(rule: &SshRule, path: &Path, notices: &dyn Notices) {
    let mode = path
        .metadata()
        .map_or(0, |facts| facts.permissions().mode());
    if mode & 0o077 != 0 {
        let (name, text) = (&rule.grant.name, path.display());
        notices.warn(format!(
            "[ssh.{name}]: others than its owner can read {text}: `chmod go-rwx {text}` keeps it"
        ));
    }
}

/// Parses the public key of a signing key.
fn own(rule: &SshRule, text: &[u8], from: &str) -> Result<SshKey, Failure> {
    let key = OwnKey::read(text).map_err(|error| {
        let advice = match error {
            OwnKeyError::Form => "name the private key's file, not the one that ends in .pub",
            OwnKeyError::Locked | OwnKeyError::Kind => {
                "give it to your agent (ssh-add FILE), and write key = \"SHA256:…\" as ssh-add -l shows it"
            }
            OwnKeyError::Memory => "let programs lock more of their memory: ulimit -l 8192",
        };
        unusable(rule)
            .because(format!("{from}: {error}"))
            .advise(advice)
    })?;
    let name = rule.grant.name.as_str();
    public_key(key.public(), name).ok_or_else(|| unusable(rule).because("its key is none"))
}
