//! Logins that are renewed: the egress process, which requests the new tokens, has them written
//! to the host's file from here before they are used.
//!
//! A renewal holds the file's lock from reading the tokens to writing the new ones, so that of
//! several runs one requests new tokens and the others find them. It has a thread of its own,
//! which ends when its peer is gone; nothing else in this process ever sees a token.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use atoll_model::network::{
    FieldPath, LOGIN_FILE_BYTES_MAX, LoginTokens, Renewal, RenewalSaid, Renewed,
};
use atoll_sys::{descriptor, socket};
use serde::Serialize;
use zeroize::Zeroizing;

use crate::supervision::login_file::{
    LoginFileError, LoginLock, LoginText, renewed, scope, tokens,
};
use crate::supervision::token_renewal::{self, Rotated, RotatedToken, TokenRenewal};

/// The most concurrent renewals.
const RENEWALS_MAX: usize = 32;
/// The longest wait for another run's renewal of the same file.
pub(crate) const LOCK_PATIENCE: Duration = Duration::from_secs(45);
/// The longest wait for the issuer's answer. The egress process gives up earlier.
const ASKING: Duration = Duration::from_secs(60);
/// The most attempts to write, each after another program has changed other fields.
const ATTEMPTS_MAX: usize = 3;
/// The longest message, bytes: a file's tokens with each letter escaped.
const MESSAGE_BYTES_MAX: usize = 2 * LOGIN_FILE_BYTES_MAX;
/// The longest wait at the end for renewals that have something to write.
const FAREWELL: Duration = Duration::from_secs(3);
const FAREWELL_PAUSE: Duration = Duration::from_millis(2);

/// A login that is renewed, with its file.
#[derive(Clone, Debug)]
pub struct LoginRenewal {
    /// The name of the login in the rules.
    pub name: String,
    /// The file, absolute.
    pub file: PathBuf,
    /// A directory of Atoll's own, which no sandbox ever sees.
    pub own: PathBuf,
    /// The path of the access token in the file.
    pub access: FieldPath,
    /// The way of renewing.
    pub renewal: Renewal,
}

impl LoginRenewal {
    /// Returns the file's facts about its access token; `None` if there is no token for
    /// renewing it.
    #[must_use]
    pub fn facts(&self, text: &LoginText) -> Option<LoginFacts> {
        let there = tokens(text.text(), &self.access, &self.renewal).ok()?;
        Some(LoginFacts {
            ends_s: there.ends_s,
            scope: scope(text.text(), &self.renewal),
        })
    }
}

/// The facts about an access token in a login file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginFacts {
    /// The time of expiry, seconds since 1970.
    pub ends_s: Option<u64>,
    /// The scope of the token.
    pub scope: Option<String>,
}

/// A login whose file has new tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenewedLogin {
    /// The name of the login in the rules.
    pub name: String,
    /// The file, absolute.
    pub file: PathBuf,
    /// The time of the last write.
    pub at: SystemTime,
    /// The number of writes.
    pub times: u64,
}

/// The renewals in progress.
#[derive(Debug, Default)]
pub(crate) struct Renewals {
    running: Vec<JoinHandle<()>>,
    /// The logins written so far.
    written: Arc<Mutex<Vec<RenewedLogin>>>,
    /// The results for refresh tokens of other credentials.
    rotated: Rotated,
}

/// A credential that is renewed.
#[derive(Clone, Debug)]
pub(crate) enum Renewable {
    /// A login of an agent.
    Login(Box<LoginRenewal>),
    /// The secret by which a credential is requested.
    Token(TokenRenewal),
}

impl Renewals {
    /// Starts a renewal. Returns the peer's end of its socket.
    pub(crate) fn begin(&mut self, what: &Renewable) -> io::Result<OwnedFd> {
        self.running.retain(|one| !one.is_finished());
        if self.running.len() >= RENEWALS_MAX {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let (theirs, line) = socket::pair()?;
        descriptor::never_block(theirs.as_fd())?;
        let what = what.clone();
        let (written, rotated) = (Arc::clone(&self.written), Arc::clone(&self.rotated));
        let renews = move || match what {
            Renewable::Login(login) => renew(&login, &line, &written),
            Renewable::Token(token) => token_renewal::renew(&token, &line, &rotated),
        };
        self.running
            .push(std::thread::Builder::new().spawn(renews)?);
        Ok(theirs)
    }

    /// Returns whether a renewal is in progress.
    pub(crate) fn are_open(&self) -> bool {
        self.running.iter().any(|one| !one.is_finished())
    }

    /// Waits until received tokens are written. No more are sent.
    pub(crate) fn finish(&mut self) {
        let until = Instant::now() + FAREWELL;
        while self.are_open() && Instant::now() < until {
            std::thread::sleep(FAREWELL_PAUSE);
        }
        self.running.clear();
    }

    /// Returns the logins written, each once.
    pub(crate) fn written(&self) -> Vec<RenewedLogin> {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.clone()
    }

    /// Returns the replaced refresh tokens of other credentials, each credential once.
    pub(crate) fn rotated(&self) -> Vec<RotatedToken> {
        let rotated = self.rotated.lock().unwrap_or_else(PoisonError::into_inner);
        rotated.clone()
    }
}

/// Notes that a login's file was written.
fn note(login: &LoginRenewal, written: &Mutex<Vec<RenewedLogin>>) {
    let mut written = written.lock().unwrap_or_else(PoisonError::into_inner);
    let at = SystemTime::now();
    match written.iter_mut().find(|one| one.file == login.file) {
        Some(known) => {
            known.at = at;
            known.times = known.times.saturating_add(1);
        }
        None => written.push(RenewedLogin {
            name: login.name.clone(),
            file: login.file.clone(),
            at,
            times: 1,
        }),
    }
}

/// Describes why a renewal fails, without anything of the file.
fn unfit(why: impl std::fmt::Display) -> RenewalSaid {
    RenewalSaid::Unfit(format!("its login file: {why}"))
}

fn renew(login: &LoginRenewal, line: &OwnedFd, all: &Mutex<Vec<RenewedLogin>>) {
    let (lock, before, there) = match begun(login, line) {
        Ok(begun) => begun,
        Err(said) => {
            let _ = say(line, &said);
            return;
        }
    };
    if say(line, &RenewalSaid::There(there)).is_err() {
        return;
    }
    if !is_said(line, ASKING) {
        return;
    }
    let mut message = Zeroizing::new(vec![0; MESSAGE_BYTES_MAX]);
    let Ok((got @ 1.., _)) = socket::receive(line.as_fd(), &mut message) else {
        return;
    };
    let by = serde_json::from_slice::<Renewed>(message.get(..got).unwrap_or_default());
    let said = match by {
        Ok(by) => written(login, &lock, before, &by),
        Err(_) => unfit("what it is to hold cannot be read"),
    };
    if matches!(said, RenewalSaid::Written) {
        note(login, all);
    }
    let _ = say(line, &said);
}

/// Returns whether nothing was sent, and the peer is there.
pub(crate) fn is_unsaid(line: &OwnedFd) -> bool {
    let waits = descriptor::wait_readable([Some(line.as_fd())], Some(0));
    matches!(waits, Ok([false]))
}

/// Waits for a message or the peer's end; returns whether one came in time.
pub(crate) fn is_said(line: &OwnedFd, patience: Duration) -> bool {
    let until = Instant::now() + patience;
    loop {
        let left = until.saturating_duration_since(Instant::now()).as_millis();
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        match descriptor::wait_readable([Some(line.as_fd())], Some(left)) {
            Ok([true]) => return true,
            // A signal may have come between.
            Ok([false]) if left > 0 => {}
            Ok([false]) | Err(_) => return false,
        }
    }
}

/// Takes the lock and reads the tokens.
fn begun(
    login: &LoginRenewal,
    line: &OwnedFd,
) -> Result<(LoginLock, LoginText, LoginTokens), RenewalSaid> {
    // Nothing is said before it is answered: then who asks is gone.
    let is_wanted = || is_unsaid(line);
    let lock = LoginLock::take(&login.file, &login.own, LOCK_PATIENCE, &is_wanted);
    let lock = lock.map_err(unfit)?;
    let before = lock.read().map_err(unfit)?.ok_or_else(gone)?;
    let there = tokens(before.text(), &login.access, &login.renewal).map_err(unfit)?;
    Ok((lock, before, there))
}

fn gone() -> RenewalSaid {
    unfit("it is not there any more: log in again outside")
}

/// Writes the new tokens. If another program has written a different login meanwhile, that is
/// newer, and stays.
fn written(
    login: &LoginRenewal,
    lock: &LoginLock,
    mut before: LoginText,
    by: &Renewed,
) -> RenewalSaid {
    let (access, renewal) = (&login.access, &login.renewal);
    for _ in 0..ATTEMPTS_MAX {
        let text = match renewed(before.text(), access, renewal, by, SystemTime::now()) {
            Ok(text) => text,
            Err(error) => return unfit(error),
        };
        match lock.write(Some(&before), &text) {
            Ok(()) => return RenewalSaid::Written,
            Err(LoginFileError::Changed) => {}
            Err(error) => return unfit(error),
        }
        let now = match lock.read() {
            Ok(Some(now)) => now,
            Ok(None) => return gone(),
            Err(error) => return unfit(error),
        };
        let both = |text: &LoginText| tokens(text.text(), access, renewal);
        match (both(&before), both(&now)) {
            (Ok(old), Ok(new)) if old.refresh == new.refresh => before = now,
            (_, Ok(new)) => return RenewalSaid::There(new),
            (_, Err(error)) => return unfit(error),
        }
    }
    unfit(LoginFileError::Changed)
}

pub(crate) fn say(line: &OwnedFd, said: &impl Serialize) -> io::Result<()> {
    // Never larger, so that it leaves no copy behind.
    let mut message = Zeroizing::new(Vec::with_capacity(MESSAGE_BYTES_MAX));
    serde_json::to_writer(&mut *message, said)?;
    socket::send(line.as_fd(), &message, &[])
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use atoll_model::network::{PublishedSecret, RenewalForm, RenewalRequest};

    use super::*;

    fn login(top: &std::path::Path) -> LoginRenewal {
        let file = top.join("auth.json");
        fs::write(&file, OLD).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        LoginRenewal {
            name: "agent".to_owned(),
            file,
            own: top.join("own"),
            access: "access".parse().unwrap(),
            renewal: Renewal {
                request: RenewalRequest {
                    token: "https://login.example/token".parse().unwrap(),
                    client: "one".to_owned(),
                    published: PublishedSecret::None,
                    form: RenewalForm::Form,
                    scope: Vec::new(),
                },
                refresh: "refresh".parse().unwrap(),
                id: None,
                scopes: None,
                expires: None,
                noted: None,
            },
        }
    }

    const OLD: &str = "{\"access\":\"old-a\",\"refresh\":\"old-r\",\"more\":1}";
    const NEW: &str = "{\"access\":\"new-a\",\"refresh\":\"new-r\",\"more\":1}";

    fn hear(line: &OwnedFd) -> RenewalSaid {
        let heard = descriptor::wait_readable([Some(line.as_fd())], Some(60_000)).unwrap();
        assert!(heard[0]);
        let mut message = vec![0; MESSAGE_BYTES_MAX];
        let (got, _) = socket::receive(line.as_fd(), &mut message).unwrap();
        serde_json::from_slice(&message[..got]).unwrap()
    }

    fn there(said: &RenewalSaid) -> (&str, &str) {
        match said {
            RenewalSaid::There(tokens) => (&tokens.access, &tokens.refresh),
            RenewalSaid::Written => panic!("it is written"),
            RenewalSaid::Unfit(why) => panic!("{why}"),
        }
    }

    fn by() -> Renewed {
        Renewed {
            access: "new-a".to_owned(),
            refresh: Some("new-r".to_owned()),
            id: None,
            ends_s: None,
        }
    }

    #[test]
    fn one_asks_and_the_next_finds_what_it_was_given() {
        let top = tempfile::tempdir().unwrap();
        let login = login(top.path());
        let (mut one, mut other) = (Renewals::default(), Renewals::default());
        let first = one
            .begin(&Renewable::Login(Box::new(login.clone())))
            .unwrap();
        assert_eq!(there(&hear(&first)), ("old-a", "old-r"));
        let second = other
            .begin(&Renewable::Login(Box::new(login.clone())))
            .unwrap();
        // It waits for the first.
        let waits = descriptor::wait_readable([Some(second.as_fd())], Some(200)).unwrap();
        assert_eq!(waits, [false]);
        say(&first, &by()).unwrap();
        assert!(matches!(hear(&first), RenewalSaid::Written));
        assert_eq!(fs::read_to_string(&login.file).unwrap(), NEW);
        assert_eq!(there(&hear(&second)), ("new-a", "new-r"));
        // What was said is written, though nobody listens any more.
        let mut third = by();
        third.refresh = Some("third".to_owned());
        say(&second, &third).unwrap();
        drop(second);
        other.finish();
        let text = fs::read_to_string(&login.file).unwrap();
        assert!(text.contains("third"), "{text}");
        // Each tells of what it has written.
        let written = |all: &Renewals| all.written().first().map(|one| one.times);
        assert_eq!((written(&one), written(&other)), (Some(1), Some(1)));
        assert_eq!(other.written()[0].file, login.file);
    }

    #[test]
    fn another_login_that_came_meanwhile_stays_and_other_fields_do_not_matter() {
        let top = tempfile::tempdir().unwrap();
        let login = login(top.path());
        let mut renewals = Renewals::default();
        for (theirs, stays) in [
            (
                OLD.replace("old-r", "their-r").replace("old-a", "their-a"),
                true,
            ),
            (OLD.replace(":1", ":2"), false),
        ] {
            fs::write(&login.file, OLD).unwrap();
            let line = renewals
                .begin(&Renewable::Login(Box::new(login.clone())))
                .unwrap();
            let _ = there(&hear(&line));
            fs::write(&login.file, &theirs).unwrap();
            say(&line, &by()).unwrap();
            let said = hear(&line);
            let text = fs::read_to_string(&login.file).unwrap();
            if stays {
                assert_eq!(there(&said), ("their-a", "their-r"));
                assert_eq!(text, theirs);
            } else {
                assert!(matches!(said, RenewalSaid::Written));
                assert_eq!(text, NEW.replace(":1", ":2"));
            }
        }
        fs::remove_file(&login.file).unwrap();
        let line = renewals
            .begin(&Renewable::Login(Box::new(login.clone())))
            .unwrap();
        let RenewalSaid::Unfit(why) = hear(&line) else {
            panic!("there is none");
        };
        assert!(why.contains("not there any more"), "{why}");
    }
}
