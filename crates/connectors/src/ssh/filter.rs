//! Decisions on requests to the agent in a sandbox, and the data that is signed
//! (draft-ietf-sshm-ssh-agent, OpenSSH's PROTOCOL.agent and PROTOCOL.sshsig, RFC 4252). Pure: bytes
//! in, a verdict out.

use atoll_model::network::{
    Signing, SigningPurpose, SshAlgorithm, SshGrant, SshHash, SshKey, SshKeys,
};

use crate::ssh::key::{algorithm_name, is_signed};
use crate::ssh::wire::{Reader, Writer};
use crate::ssh::{decoded, encoded};

const FAILURE: u8 = 5;
const SUCCESS: u8 = 6;
const REQUEST_IDENTITIES: u8 = 11;
const IDENTITIES_ANSWER: u8 = 12;
const SIGN_REQUEST: u8 = 13;
const SIGN_RESPONSE: u8 = 14;
const EXTENSION: u8 = 27;
/// All other requests that change the keys of an agent, or lock it.
const CHANGES: [u8; 8] = [17, 18, 19, 20, 21, 22, 23, 25];

const SESSION_BIND: &[u8] = b"session-bind@openssh.com";
/// SSH_MSG_USERAUTH_REQUEST (RFC 4252).
const LOGIN: u8 = 50;
const PLAIN: &[u8] = b"publickey";
const BOUND: &[u8] = b"publickey-hostbound-v00@openssh.com";
const COMMIT_MARK: &[u8] = b"SSHSIG";
const COMMIT_NAMESPACE: &[u8] = b"git";
/// Flags of a signature request: the hash for RSA keys.
const RSA_SHA256: u32 = 2;
const RSA_SHA512: u32 = 4;

/// The longest session identifier, bytes: the exchange hash of a key exchange.
const SESSION_BYTES_MAX: usize = 128;

/// A grant with its keys in wire format.
#[derive(Clone, Debug)]
pub(crate) struct GrantedKeys {
    pub(crate) grant: SshGrant,
    keys: Vec<(Vec<u8>, String)>,
    host_keys: Vec<Vec<u8>>,
}

/// Brings grants and their keys together. Returns `None` where they do not fit.
pub(crate) fn granted(grants: &[SshGrant], keys: &[SshKeys]) -> Option<Vec<GrantedKeys>> {
    let one = |grant: &SshGrant| {
        let its = keys.iter().find(|one| one.name == grant.name)?;
        let key = |one: &SshKey| Some((decoded(&one.key)?, one.comment.clone()));
        Some(GrantedKeys {
            grant: grant.clone(),
            keys: its.keys.iter().map(key).collect::<Option<_>>()?,
            host_keys: its
                .host_keys
                .iter()
                .map(|one| decoded(&one.key))
                .collect::<Option<_>>()?,
        })
    };
    grants.iter().map(one).collect()
}

impl GrantedKeys {
    pub(crate) fn key(&self, at: usize) -> Option<&[u8]> {
        self.keys.get(at).map(|(key, _)| key.as_slice())
    }

    fn is_of_host(&self, key: &[u8]) -> bool {
        self.host_keys.iter().any(|one| one == key)
    }
}

/// The decision on a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// An answer.
    Answer(Vec<u8>),
    /// A signature to be made, once it is recorded.
    Sign {
        /// The index of the grant.
        granted: usize,
        /// The data to sign, and its purpose.
        signing: Signing,
    },
    /// A refusal.
    Refuse {
        /// The index of the grant that it could have been for, if there is one.
        granted: Option<usize>,
        /// The reason.
        why: &'static str,
    },
}

/// A connection to the agent in the sandbox.
#[derive(Debug, Default)]
pub(crate) struct Session {
    state: State,
}

#[derive(Debug, Default)]
enum State {
    /// No host has proven its key.
    #[default]
    Unbound,
    /// This host has.
    Bound { host_key: Vec<u8>, session: Vec<u8> },
    /// A binding was refused: nothing is signed any more.
    Spoiled,
}

/// Encodes SSH_AGENT_FAILURE.
pub(crate) fn failure() -> Vec<u8> {
    vec![FAILURE]
}

/// Encodes SSH_AGENT_SIGN_RESPONSE.
pub(crate) fn response(signature: &[u8]) -> Vec<u8> {
    Writer::new().byte(SIGN_RESPONSE).string(signature).done()
}

/// The refusal of a host whose key is not the expected one.
const HOST_UNKNOWN: &str = "the host has shown a key that is not among those by which a host of [ssh] is \
                            known (`host-keys`, or known_hosts): it is another host, or its key has \
                            changed";
/// The refusal of a login for another user or host.
const USER_UNKNOWN: &str =
    "the login is for another user or host than `user` and `to` of [ssh] say";

fn refuse(granted: Option<usize>, why: &'static str) -> Verdict {
    Verdict::Refuse { granted, why }
}

impl Session {
    /// Decides on a message, without its length.
    pub(crate) fn judge(&mut self, all: &[GrantedKeys], message: &[u8]) -> Verdict {
        let mut reader = Reader::new(message);
        match reader.byte() {
            Some(REQUEST_IDENTITIES) => Verdict::Answer(self.identities(all)),
            Some(SIGN_REQUEST) => self.sign(all, reader),
            Some(EXTENSION) => match reader.string() {
                Some(SESSION_BIND) => self.bind(all, reader),
                // Clients ask for what an agent may not have, and go on without.
                Some(_) | None => Verdict::Answer(failure()),
            },
            Some(kind) if CHANGES.contains(&kind) => {
                refuse(None, "the keys of an agent inside cannot be changed")
            }
            Some(_) | None => Verdict::Answer(failure()),
        }
    }

    /// Returns the granted keys: all, or those for the host that has proven its key.
    fn identities(&self, all: &[GrantedKeys]) -> Vec<u8> {
        let is_shown = |one: &&GrantedKeys| match &self.state {
            State::Unbound => true,
            State::Bound { host_key, .. } => one.is_of_host(host_key),
            State::Spoiled => false,
        };
        let mut shown: Vec<&(Vec<u8>, String)> = Vec::new();
        for pair in all.iter().filter(is_shown).flat_map(|one| &one.keys) {
            if !shown.iter().any(|(key, _)| *key == pair.0) {
                shown.push(pair);
            }
        }
        let count = u32::try_from(shown.len()).unwrap_or_default();
        let mut answer = Writer::new().byte(IDENTITIES_ANSWER).number(count);
        for (key, comment) in shown {
            answer = answer.string(key).string(comment.as_bytes());
        }
        answer.done()
    }

    /// Takes the key of the session's host, which must have signed the session identifier: once,
    /// and not for a forwarded agent.
    fn bind(&mut self, all: &[GrantedKeys], reader: Reader<'_>) -> Verdict {
        let before = std::mem::replace(&mut self.state, State::Spoiled);
        let Some((host_key, session, signature, is_forwarding)) = read_bind(reader) else {
            return refuse(None, "a session with a host was told of in another form");
        };
        if !matches!(before, State::Unbound) {
            return refuse(None, "one connection to the agent is for one session");
        }
        let Some(granted) = all.iter().position(|one| one.is_of_host(host_key)) else {
            return refuse(None, HOST_UNKNOWN);
        };
        if is_forwarding {
            return refuse(Some(granted), "the agent is not forwarded to another host");
        }
        if !is_signed(host_key, signature, session) {
            return refuse(Some(granted), "the host's signature is not its own");
        }
        self.state = State::Bound {
            host_key: host_key.to_vec(),
            session: session.to_vec(),
        };
        Verdict::Answer(vec![SUCCESS])
    }

    fn sign(&mut self, all: &[GrantedKeys], mut reader: Reader<'_>) -> Verdict {
        let mut asked = || {
            let asked = (reader.string()?, reader.string()?, reader.number()?);
            reader.end()?;
            Some(asked)
        };
        let Some((key, data, flags)) = asked() else {
            return refuse(None, "a signature was asked for in another form");
        };
        let holds = |one: &GrantedKeys| one.keys.iter().any(|(one, _)| one == key);
        let Some(first) = all.iter().position(holds) else {
            return refuse(None, "the key is none that is granted");
        };
        let Some(algorithm) = algorithm(key, flags) else {
            return refuse(
                Some(first),
                "the signature would be of a kind that nobody trusts",
            );
        };
        match data.starts_with(COMMIT_MARK) {
            true => self.sign_commit(all, key, data, algorithm, first),
            false => self.sign_login(all, key, data, algorithm, first),
        }
    }

    fn sign_login(
        &self,
        all: &[GrantedKeys],
        key: &[u8],
        data: &[u8],
        algorithm: SshAlgorithm,
        first: usize,
    ) -> Verdict {
        let Some(login) = Login::read(data, key, algorithm) else {
            return refuse(Some(first), "it is no login that was to be signed");
        };
        let State::Bound { host_key, session } = &self.state else {
            let why = "the host has not shown its key, as OpenSSH from 8.9 on has it do";
            return refuse(Some(first), why);
        };
        if login.session != session || login.bound_to.is_some_and(|one| one != host_key) {
            return refuse(Some(first), "the login is for another session");
        }
        let is_its = |one: &GrantedKeys| {
            one.is_of_host(host_key)
                && one.grant.user.as_bytes() == login.user
                && one.keys.iter().any(|(one, _)| one == key)
        };
        let Some(granted) = all.iter().position(is_its) else {
            return refuse(Some(first), USER_UNKNOWN);
        };
        let purpose = SigningPurpose::Login {
            session: encoded(session),
            bound_to: login.bound_to.map(encoded),
        };
        signing(all, granted, key, algorithm, purpose)
    }

    fn sign_commit(
        &self,
        all: &[GrantedKeys],
        key: &[u8],
        data: &[u8],
        algorithm: SshAlgorithm,
        first: usize,
    ) -> Verdict {
        let Some((hash, digest)) = read_commit(data) else {
            return refuse(Some(first), "it is nothing of git's that was to be signed");
        };
        if !matches!(self.state, State::Unbound) {
            return refuse(Some(first), "a host does not ask for a commit's signature");
        }
        let is_its = |one: &GrantedKeys| {
            one.grant.signs_commits && one.keys.iter().any(|(one, _)| one == key)
        };
        let Some(granted) = all.iter().position(is_its) else {
            return refuse(Some(first), "no `sign-commits` lets this key sign commits");
        };
        let digest = encoded(digest);
        let purpose = SigningPurpose::Commit { hash, digest };
        signing(all, granted, key, algorithm, purpose)
    }
}

fn signing(
    all: &[GrantedKeys],
    granted: usize,
    key: &[u8],
    algorithm: SshAlgorithm,
    purpose: SigningPurpose,
) -> Verdict {
    let found = all.get(granted).and_then(|one| {
        let at = one.keys.iter().position(|(one, _)| one == key)?;
        Some((one.grant.name.clone(), at))
    });
    match found {
        Some((name, key)) => Verdict::Sign {
            granted,
            signing: Signing {
                name,
                key,
                algorithm,
                purpose,
            },
        },
        None => refuse(None, "the key is none that is granted"),
    }
}

type SessionBind<'a> = (&'a [u8], &'a [u8], &'a [u8], bool);

fn read_bind(mut reader: Reader<'_>) -> Option<SessionBind<'_>> {
    let (host_key, session, signature) = (reader.string()?, reader.string()?, reader.string()?);
    let is_forwarding = reader.flag()?;
    reader.end()?;
    let is_session = (1..=SESSION_BYTES_MAX).contains(&session.len());
    is_session.then_some((host_key, session, signature, is_forwarding))
}

fn algorithm(key: &[u8], flags: u32) -> Option<SshAlgorithm> {
    let wanted = match flags {
        RSA_SHA256 => SshAlgorithm::RsaSha256,
        RSA_SHA512 => SshAlgorithm::RsaSha512,
        _ => SshAlgorithm::OfKey,
    };
    let kinds = [wanted, SshAlgorithm::OfKey];
    kinds
        .into_iter()
        .find(|one| algorithm_name(key, *one).is_some())
}

/// Returns the flags for this algorithm in a request to another agent.
pub(crate) fn flags(algorithm: SshAlgorithm) -> u32 {
    match algorithm {
        SshAlgorithm::OfKey => 0,
        SshAlgorithm::RsaSha256 => RSA_SHA256,
        SshAlgorithm::RsaSha512 => RSA_SHA512,
    }
}

/// The parts of a login that the program chooses.
struct Login<'a> {
    session: &'a [u8],
    user: &'a [u8],
    bound_to: Option<&'a [u8]>,
}

impl<'a> Login<'a> {
    /// Parses a login for this key: only its one canonical encoding is accepted.
    fn read(data: &'a [u8], key: &[u8], algorithm: SshAlgorithm) -> Option<Self> {
        let mut reader = Reader::new(data);
        let session = reader.string()?;
        reader.byte()?;
        let user = reader.string()?;
        let (_service, method) = (reader.string()?, reader.string()?);
        reader.flag()?;
        let (_algorithm, _key) = (reader.string()?, reader.string()?);
        let bound_to = match method == BOUND {
            true => Some(reader.string()?),
            false => None,
        };
        let name = algorithm_name(key, algorithm)?;
        let same = login(session, user, name, key, bound_to);
        (same == data).then_some(Self {
            session,
            user,
            bound_to,
        })
    }
}

/// Encodes the data that is signed for a login (RFC 4252, section 7; OpenSSH's PROTOCOL, section
/// 3.1).
pub(crate) fn login(
    session: &[u8],
    user: &[u8],
    algorithm: &[u8],
    key: &[u8],
    bound_to: Option<&[u8]>,
) -> Vec<u8> {
    let method = bound_to.map_or(PLAIN, |_| BOUND);
    let login = Writer::new()
        .string(session)
        .byte(LOGIN)
        .string(user)
        .string(b"ssh-connection")
        .string(method)
        .byte(1)
        .string(algorithm)
        .string(key);
    match bound_to {
        Some(host_key) => login.string(host_key).done(),
        None => login.done(),
    }
}

fn read_commit(data: &[u8]) -> Option<(SshHash, &[u8])> {
    let mut reader = Reader::new(data);
    reader.exact(COMMIT_MARK)?;
    let (_namespace, _reserved) = (reader.string()?, reader.string()?);
    let hash = match reader.string()? {
        b"sha256" => SshHash::Sha256,
        b"sha512" => SshHash::Sha512,
        _ => return None,
    };
    let digest = reader.string()?;
    let is_digest = digest.len() == hash.digest_bytes();
    (is_digest && commit(hash, digest) == data).then_some((hash, digest))
}

/// Encodes the data that is signed for git (PROTOCOL.sshsig).
pub(crate) fn commit(hash: SshHash, digest: &[u8]) -> Vec<u8> {
    Writer::new()
        .exact(COMMIT_MARK)
        .string(COMMIT_NAMESPACE)
        .string(b"")
        .string(hash.name().as_bytes())
        .string(digest)
        .done()
}

/// Returns whether a signature is for a commit.
pub(crate) fn is_for_commit(signing: &Signing) -> bool {
    match signing.purpose {
        SigningPurpose::Login { .. } => false,
        SigningPurpose::Commit { .. } => true,
    }
}

#[cfg(test)]
mod tests;
