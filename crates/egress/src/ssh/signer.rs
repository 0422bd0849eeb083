//! The process that signs. It is told for what, by who judges, and puts together what is
//! signed itself: a login of the granted user, or a commit. It holds the connection to the
//! person's agent, or a key out of a file, and nothing else.

use std::os::fd::{AsFd, OwnedFd};

use atoll_model::network::{
    CARRIAGE_BYTES_MAX, CREDENTIAL_BYTES_MAX, CredentialName, SIGNING_BYTES_MAX, Signed, Signer,
    Signing, SigningPurpose,
};
use atoll_sys::{credentials as rights, descriptor, process, seccomp, socket};
use zeroize::Zeroizing;

use crate::ssh::filter::{self, Granted};
use crate::ssh::key::{OwnKey, algorithm_name};
use crate::ssh::own_agent::OwnAgent;
use crate::ssh::{decoded, encoded};

/// The descriptor by which this process is told what it may sign.
const LINE: i32 = 3;

/// All that a process of its own does. Returns its exit status.
#[must_use]
pub fn program() -> u8 {
    u8::from(run().is_none())
}

/// Who signs.
struct Signatures {
    granted: Vec<Granted>,
    agent: Option<OwnAgent>,
    own: Vec<(CredentialName, OwnKey)>,
}

fn run() -> Option<()> {
    descriptor::close_from(LINE as u32 + 1).ok()?;
    process::set_name(c"atoll-signer").ok()?;
    // Before there is a key: another process of this user could look on.
    rights::forbid_inspection().ok()?;
    let start = descriptor::inherited(LINE).ok()?;
    let mut message = vec![0_u8; CARRIAGE_BYTES_MAX];
    let (got, given) = socket::receive(start.as_fd(), &mut message).ok()?;
    drop(start);
    let told: Signer = serde_json::from_slice(message.get(..got)?).ok()?;
    let mut given = given.into_iter();
    let line = given.next()?;
    let agent = match told.has_agent {
        true => Some(OwnAgent::from_connection(given.next()?).ok()?),
        false => None,
    };
    let own = match told.own.is_empty() {
        true => Vec::new(),
        false => read_own(&told.own, &given.next()?)?,
    };
    let mut signatures = Signatures {
        granted: filter::granted(&told.grants, &told.keys)?,
        agent,
        own,
    };
    confine().ok()?;
    let mut message = vec![0_u8; SIGNING_BYTES_MAX];
    loop {
        // The other side has ended.
        let (got @ 1.., _) = socket::receive(line.as_fd(), &mut message).ok()? else {
            return Some(());
        };
        let asked = serde_json::from_slice::<Signing>(message.get(..got)?).ok()?;
        let answer = match signatures.sign(&asked) {
            Ok(signature) => Signed::Signature(encoded(&signature)),
            Err(why) => Signed::Nothing(why),
        };
        let answer = serde_json::to_vec(&answer).ok()?;
        socket::send(line.as_fd(), &answer, &[]).ok()?;
    }
}

/// The keys that wait on a socket, a message for each of these, in their order.
fn read_own(names: &[CredentialName], values: &OwnedFd) -> Option<Vec<(CredentialName, OwnKey)>> {
    let one = |name: &CredentialName| {
        let mut text = Zeroizing::new(vec![0_u8; CREDENTIAL_BYTES_MAX]);
        let (got, _) = socket::receive(values.as_fd(), &mut text).ok()?;
        let key = OwnKey::read(text.get(..got)?).ok()?;
        Some((name.clone(), key))
    };
    names.iter().map(one).collect()
}

/// From here on there is no file, no network, no other process and no right.
fn confine() -> std::io::Result<()> {
    rights::forbid_new_privileges()?;
    rights::keep_capabilities(0)?;
    seccomp::install(&crate::filter::of_signer(), "signer-filter")
}

impl Signatures {
    fn sign(&mut self, asked: &Signing) -> Result<Vec<u8>, String> {
        let unknown = || "it was asked for something else".to_owned();
        let is_it = |one: &&Granted| one.grant.name == asked.name;
        let granted = self.granted.iter().find(is_it).ok_or_else(unknown)?;
        let key = granted.key(asked.key).ok_or_else(unknown)?.to_vec();
        let data = data(granted, &key, asked).ok_or_else(unknown)?;
        if let Some((_, own)) = self.own.iter().find(|(name, _)| *name == asked.name) {
            return match own.public() == key {
                true => Ok(own.sign(&data)),
                false => Err(unknown()),
            };
        }
        let agent = self.agent.as_mut().ok_or_else(unknown)?;
        let signed = agent.sign(&key, &data, filter::flags(asked.algorithm));
        signed.map_err(|error| format!("your agent has not signed: {error}"))
    }
}

/// What is signed.
fn data(granted: &Granted, key: &[u8], asked: &Signing) -> Option<Vec<u8>> {
    match &asked.purpose {
        SigningPurpose::Login { session, bound_to } => {
            let algorithm = algorithm_name(key, asked.algorithm)?;
            let bound_to = match bound_to {
                Some(host_key) => Some(decoded(host_key)?),
                None => None,
            };
            let user = granted.grant.user.as_bytes();
            let (session, bound_to) = (decoded(session)?, bound_to.as_deref());
            Some(filter::login(&session, user, algorithm, key, bound_to))
        }
        SigningPurpose::Commit { hash, digest } => {
            let digest = decoded(digest)?;
            let is_one = granted.grant.signs_commits && digest.len() == hash.digest_bytes();
            is_one.then(|| filter::commit(*hash, &digest))
        }
    }
}
