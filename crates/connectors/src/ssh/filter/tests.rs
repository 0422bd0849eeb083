use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use proptest::prelude::*;

use super::*;

/// A host's or a person's key.
struct Pair(Ed25519KeyPair);

impl Pair {
    fn new(seed: u8) -> Self {
        Self(Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap())
    }

    fn public(&self) -> Vec<u8> {
        let point = self.0.public_key().as_ref();
        Writer::new().string(b"ssh-ed25519").string(point).done()
    }

    fn sign(&self, data: &[u8]) -> Vec<u8> {
        let signature = self.0.sign(data);
        Writer::new()
            .string(b"ssh-ed25519")
            .string(signature.as_ref())
            .done()
    }
}

const HOST: u8 = 1;
const KEY: u8 = 2;
const SESSION: &[u8] = b"the session's identifier";

fn all(signs_commits: bool) -> Vec<GrantedKeys> {
    let key = |seed| crate::ssh::public_key(&Pair::new(seed).public(), "mine").unwrap();
    let grant = SshGrant {
        name: "git".parse().unwrap(),
        host: "git.example".parse().unwrap(),
        port: 22,
        user: "git".to_owned(),
        signs_commits,
        origin: "a profile".to_owned(),
    };
    let keys = SshKeys {
        name: grant.name.clone(),
        keys: vec![key(KEY)],
        host_keys: vec![key(HOST)],
    };
    granted(&[grant], &[keys]).unwrap()
}

fn bind(host: &Pair, signed: &[u8], is_forwarding: u8) -> Vec<u8> {
    Writer::new()
        .byte(EXTENSION)
        .string(SESSION_BIND)
        .string(&host.public())
        .string(SESSION)
        .string(&host.sign(signed))
        .byte(is_forwarding)
        .done()
}

fn ask(key: &Pair, data: &[u8]) -> Vec<u8> {
    Writer::new()
        .byte(SIGN_REQUEST)
        .string(&key.public())
        .string(data)
        .number(0)
        .done()
}

fn to_log_in(session: &[u8], user: &[u8], bound_to: Option<&[u8]>) -> Vec<u8> {
    let key = Pair::new(KEY);
    let data = login(session, user, b"ssh-ed25519", &key.public(), bound_to);
    ask(&key, &data)
}

/// Returns the decision on the last of these messages, on one connection.
fn last(all: &[GrantedKeys], messages: &[Vec<u8>]) -> Verdict {
    let mut session = Session::default();
    let verdicts: Vec<Verdict> = messages
        .iter()
        .map(|message| session.judge(all, message))
        .collect();
    verdicts.into_iter().next_back().unwrap()
}

#[test]
fn ssh_login_is_signed_for_own_host_and_user_only() {
    let host = || Pair::new(HOST);
    let bound = || bind(&host(), SESSION, 0);
    let plain = || to_log_in(SESSION, b"git", None);
    let named = |key: &Pair| to_log_in(SESSION, b"git", Some(&key.public()));
    let other = Pair::new(3);
    for (messages, is_signed) in [
        (vec![bound(), plain()], true),
        (vec![bound(), named(&host())], true),
        // The host has to have shown its key.
        (vec![plain()], false),
        (vec![bind(&other, SESSION, 0), plain()], false),
        (vec![bind(&host(), b"another session", 0), plain()], false),
        // Once, and to nobody beyond it.
        (vec![bound(), bound(), plain()], false),
        (vec![bind(&host(), SESSION, 1), plain()], false),
        (vec![bound(), bind(&host(), SESSION, 1), plain()], false),
        (vec![bind(&host(), SESSION, 2), plain()], false),
        // What was refused once spoils what comes after it.
        (vec![bind(&other, SESSION, 0), bound(), plain()], false),
        (vec![bound(), to_log_in(b"another", b"git", None)], false),
        (vec![bound(), to_log_in(SESSION, b"root", None)], false),
        (vec![bound(), named(&other)], false),
        (vec![bound(), ask(&Pair::new(KEY), b"anything else")], false),
        (vec![bound(), ask(&other, b"anything else")], false),
    ] {
        let verdict = last(&all(true), &messages);
        match (is_signed, verdict) {
            (
                true,
                Verdict::Sign {
                    granted: 0,
                    signing,
                },
            ) => {
                assert!(matches!(signing.purpose, SigningPurpose::Login { .. }));
            }
            (false, Verdict::Refuse { .. }) => {}
            (_, other) => panic!("{is_signed} {other:?}"),
        }
    }
}

#[test]
fn ssh_commit_is_signed_only_where_granted() {
    let key = || Pair::new(KEY);
    let digest = [7; 64];
    let data = commit(SshHash::Sha512, &digest);
    let of_namespace = |namespace: &[u8]| {
        Writer::new()
            .exact(b"SSHSIG")
            .string(namespace)
            .string(b"")
            .string(b"sha512")
            .string(&digest)
            .done()
    };
    assert_eq!(of_namespace(b"git"), data);
    for (data, grants, is_signed) in [
        (data.clone(), true, true),
        (data.clone(), false, false),
        (of_namespace(b"file"), true, false),
        (of_namespace(b""), true, false),
        (commit(SshHash::Sha256, &digest), true, false),
        ([&data[..], b"more"].concat(), true, false),
        (data[..data.len() - 1].to_vec(), true, false),
    ] {
        let verdict = last(&all(grants), &[ask(&key(), &data)]);
        assert_eq!(
            matches!(verdict, Verdict::Sign { .. }),
            is_signed,
            "{verdict:?}"
        );
    }
    // Nor on a connection that is for a host.
    let bound = bind(&Pair::new(HOST), SESSION, 0);
    let verdict = last(&all(true), &[bound, ask(&key(), &data)]);
    assert!(matches!(verdict, Verdict::Refuse { .. }), "{verdict:?}");
}

#[test]
fn ssh_agent_lists_granted_keys_only() {
    let key = Pair::new(KEY).public();
    let listed = Writer::new()
        .byte(IDENTITIES_ANSWER)
        .number(1)
        .string(&key)
        .string(b"mine")
        .done();
    let list = || vec![REQUEST_IDENTITIES];
    assert_eq!(
        last(&all(false), &[list()]),
        Verdict::Answer(listed.clone())
    );
    let bound = bind(&Pair::new(HOST), SESSION, 0);
    assert_eq!(last(&all(false), &[bound, list()]), Verdict::Answer(listed));
    // To whom it is forwarded it shows none.
    let forwarded = bind(&Pair::new(HOST), SESSION, 1);
    let none = Writer::new().byte(IDENTITIES_ANSWER).number(0).done();
    assert_eq!(
        last(&all(false), &[forwarded, list()]),
        Verdict::Answer(none)
    );
    for kind in CHANGES {
        let verdict = last(&all(false), &[vec![kind, 0, 0]]);
        assert!(matches!(verdict, Verdict::Refuse { .. }), "{kind}");
    }
    for unknown in [vec![], vec![1], vec![EXTENSION], vec![255, 1]] {
        assert_eq!(last(&all(false), &[unknown]), Verdict::Answer(failure()));
    }
}

proptest! {
    /// Nothing but the exact bytes of a login is signed: any change makes it none.
    #[test]
    fn ssh_login_other_bytes_are_refused(at: prop::sample::Index, to: u8, more in any::<Vec<u8>>()) {
        let bound = bind(&Pair::new(HOST), SESSION, 0);
        let key = Pair::new(KEY);
        let data = login(SESSION, b"git", b"ssh-ed25519", &key.public(), None);
        let mut changed = data.clone();
        changed[at.index(data.len())] = to;
        for other in [changed, [&data[..], &more].concat(), more] {
            let verdict = last(&all(true), &[bound.clone(), ask(&key, &other)]);
            let is_signed = matches!(verdict, Verdict::Sign { .. });
            prop_assert_eq!(is_signed, other == data);
        }
    }

    /// Any bytes are answered, and sign nothing.
    #[test]
    fn ssh_agent_any_bytes_never_panic(messages in prop::collection::vec(any::<Vec<u8>>(), 1..4)) {
        let verdict = last(&all(true), &messages);
        let is_signed = matches!(verdict, Verdict::Sign { .. });
        prop_assert!(!is_signed);
    }

    /// A signature with a byte changed, or by another key, is no host's.
    #[test]
    fn ssh_session_bind_needs_host_signature(at: prop::sample::Index, by in 1_u8..) {
        let host = Pair::new(HOST);
        let mut signature = host.sign(SESSION);
        prop_assert!(is_signed(&host.public(), &signature, SESSION));
        let at = at.index(signature.len());
        signature[at] ^= by;
        prop_assert!(!is_signed(&host.public(), &signature, SESSION));
    }
}
