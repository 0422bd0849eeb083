//! The signer process. The egress process decides, and tells it the purpose; it builds the data to
//! be signed itself: a login of the granted user, or a commit. It holds the connection to the
//! person's agent, or a key from a file, and nothing else.

use std::os::fd::{AsFd, OwnedFd};

use atoll_model::network::{
    CARRIAGE_BYTES_MAX, CREDENTIAL_BYTES_MAX, CredentialName, SIGNING_BYTES_MAX, Signed, Signer,
    Signing, SigningPurpose,
};
use atoll_sys::{credentials as rights, descriptor, memory, process, seccomp, socket};
use zeroize::Zeroizing;

use crate::ssh::filter::{self, GrantedKeys};
use crate::ssh::key::{OwnKey, algorithm_name};
use crate::ssh::own_agent::{OwnAgent, OwnAgentError};
use crate::ssh::{decoded, encoded, signer_filter};

/// The descriptor on which this process receives its description.
const LINE: i32 = 3;

/// Runs the signer process. Returns its exit status.
#[must_use]
pub fn program() -> u8 {
    u8::from(run().is_none())
}

/// The means to sign: the grants, the person's agent, and keys from files.
struct Signatures {
    granted: Vec<GrantedKeys>,
    agent: Option<OwnAgent>,
    own: Vec<(CredentialName, OwnKey)>,
}

fn run() -> Option<()> {
    descriptor::close_from(LINE as u32 + 1).ok()?;
    process::set_name(c"atoll-signer").ok()?;
    // Before there is a key: another process of this user could look on.
    atoll_egress::hold_alone().ok()?;
    memory::set_erasing(true);
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

/// Reads the keys that wait on a socket, a message for each of these names, in their order.
fn read_own(names: &[CredentialName], values: &OwnedFd) -> Option<Vec<(CredentialName, OwnKey)>> {
    let one = |name: &CredentialName| {
        let mut text = Zeroizing::new(vec![0_u8; CREDENTIAL_BYTES_MAX]);
        let (got, _) = socket::receive(values.as_fd(), &mut text).ok()?;
        let key = OwnKey::read(text.get(..got)?).ok()?;
        Some((name.clone(), key))
    };
    names.iter().map(one).collect()
}

/// Confines this process: no file, no network, no other process and no right.
fn confine() -> std::io::Result<()> {
    rights::forbid_new_privileges()?;
    rights::keep_capabilities(0)?;
    seccomp::install(&signer_filter::filter(), "signer-filter")
}

impl Signatures {
    fn sign(&mut self, asked: &Signing) -> Result<Vec<u8>, String> {
        let unknown = || "it was asked for something else".to_owned();
        let is_it = |one: &&GrantedKeys| one.grant.name == asked.name;
        let granted = self.granted.iter().find(is_it).ok_or_else(unknown)?;
        let key = granted.key(asked.key).ok_or_else(unknown)?.to_vec();
        let data = data(granted, &key, asked).ok_or_else(unknown)?;
        if let Some((_, own)) = self.own.iter().find(|(name, _)| *name == asked.name) {
            return match own.public() == key {
                true => own
                    .sign(&data)
                    .ok_or_else(|| "the key cannot sign".to_owned()),
                false => Err(unknown()),
            };
        }
        by_agent(&mut self.agent, &key, &data, filter::flags(asked.algorithm))
    }
}

/// Returns a signature by the person's agent, which is not asked any more once it has failed.
fn by_agent(
    asked: &mut Option<OwnAgent>,
    key: &[u8],
    data: &[u8],
    flags: u32,
) -> Result<Vec<u8>, String> {
    let gone = "your agent has failed before, and is not asked again: start a new run";
    let mut agent = asked.take().ok_or(gone)?;
    let signed = agent.sign(key, data, flags);
    // After anything else an answer may come late: it would be that to the next request.
    if matches!(signed, Ok(_) | Err(OwnAgentError::Refused)) {
        *asked = Some(agent);
    }
    signed.map_err(|error| format!("your agent has not signed: {error}"))
}

/// Builds the data to be signed.
fn data(granted: &GrantedKeys, key: &[u8], asked: &Signing) -> Option<Vec<u8>> {
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};

    use super::*;
    use crate::ssh::wire::Writer;

    #[test]
    fn signer_failed_agent_is_not_asked_again() {
        const KIND: &[u8] = b"ssh-ed25519";
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let point = pair.public_key().as_ref();
        let key = Writer::new().string(KIND).string(point).done();
        let signature = |data: &[u8]| {
            let made = Writer::new().string(KIND).string(pair.sign(data).as_ref());
            made.done()
        };
        let right = signature(b"data");
        let signed = |data| Writer::new().byte(14).string(&signature(data)).done();
        for (first, why) in [
            (signed(b"data"), None),
            (vec![5], Some("refuses")),
            (signed(b"other"), Some("not one of this key")),
            (vec![12, 0, 0, 0, 0], Some("something else")),
            ([signed(b"data"), vec![0]].concat(), Some("something else")),
            (Vec::new(), Some("something else")),
        ] {
            let (near, mut far) = UnixStream::pair().unwrap();
            let mut agent = Some(OwnAgent::from_connection(near.into()).unwrap());
            for answer in [&first, &signed(b"data")] {
                far.write_all(&Writer::new().string(answer).done()).unwrap();
            }
            let mut ask = || by_agent(&mut agent, &key, b"data", 0);
            let (one, two) = (ask(), ask());
            match why {
                None => assert_eq!(one, Ok(right.clone())),
                Some(why) => assert!(one.clone().unwrap_err().contains(why), "{one:?}"),
            }
            let is_used_on = why.is_none_or(|why| why == "refuses");
            assert_eq!(two.is_ok(), is_used_on, "{why:?}: {two:?}");
            drop(agent);
            // The second question has not even been put.
            let mut asked = Vec::new();
            // It ends with an error where an answer was not read.
            let _ = far.read_to_end(&mut asked);
            let questions = asked.windows(key.len()).filter(|part| *part == key);
            assert_eq!(questions.count(), 1 + usize::from(is_used_on));
        }
    }
}
