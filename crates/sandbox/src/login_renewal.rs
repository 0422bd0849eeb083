//! Logins that are renewed: who asks for new tokens has them written back to the host's file
//! from here, before any of them is used.
//!
//! A renewal holds the file's lock from reading its tokens to writing the new ones, so that
//! of several runs one asks, and the others find what it was given. It has a thread of its
//! own, which ends when nobody listens to it any more; nothing else here ever sees a token.

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

use crate::login_file::{LoginFileError, LoginLock, LoginText, renewed, scope, tokens};
use crate::token_renewal::{self, Rotated, RotatedToken, TokenRenewal};

/// How many go on at once.
const RENEWALS_MAX: usize = 32;
/// How long another run's renewal of the same file is waited for.
pub(crate) const LOCK_PATIENCE: Duration = Duration::from_secs(45);
/// How long asking may take. Who asks gives up before.
const ASKING: Duration = Duration::from_secs(60);
/// How often what is written is put together anew where somebody has changed other fields.
const ATTEMPTS_MAX: usize = 3;
/// The longest message, bytes: a file's tokens with each letter escaped.
const MESSAGE_BYTES_MAX: usize = 2 * LOGIN_FILE_BYTES_MAX;
/// How long those are waited for at the end that have something to write.
const FAREWELL: Duration = Duration::from_secs(3);
const FAREWELL_PAUSE: Duration = Duration::from_millis(2);

/// A login that is renewed, and where that is written.
#[derive(Clone, Debug)]
pub struct LoginRenewal {
    /// What the rules call it.
    pub name: String,
    /// Its file, absolute.
    pub file: PathBuf,
    /// A directory of Atoll's own, which no program inside ever sees.
    pub own: PathBuf,
    /// Where in the file its access token is.
    pub access: FieldPath,
    /// How it is renewed.
    pub renewal: Renewal,
}

impl LoginRenewal {
    /// What the file says of its access token. None where there is nothing by which it is
    /// renewed.
    #[must_use]
    pub fn facts(&self, text: &LoginText) -> Option<LoginFacts> {
        let there = tokens(text.text(), &self.access, &self.renewal).ok()?;
        Some(LoginFacts {
            ends_s: there.ends_s,
            scope: scope(text.text(), &self.renewal),
        })
    }
}

/// What a login's file says of its access token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginFacts {
    /// When it ends, seconds since 1970.
    pub ends_s: Option<u64>,
    /// What it is good for.
    pub scope: Option<String>,
}

/// A login whose file has new tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenewedLogin {
    /// What the rules call it.
    pub name: String,
    /// Its file, absolute.
    pub file: PathBuf,
    /// When it was written, for the last time.
    pub at: SystemTime,
    /// How often.
    pub times: u64,
}

/// Those that go on.
#[derive(Debug, Default)]
pub(crate) struct Renewals {
    running: Vec<JoinHandle<()>>,
    /// What was written so far.
    written: Arc<Mutex<Vec<RenewedLogin>>>,
    /// What became of refresh tokens of other credentials.
    rotated: Rotated,
}

/// What is renewed.
#[derive(Clone, Debug)]
pub(crate) enum Renewable {
    /// A login of an agent's.
    Login(Box<LoginRenewal>),
    /// What a credential is asked for by.
    Token(TokenRenewal),
}

impl Renewals {
    /// Begins one. What who asks speaks by.
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

    /// Whether one goes on.
    pub(crate) fn are_open(&self) -> bool {
        self.running.iter().any(|one| !one.is_finished())
    }

    /// Waits until what was said is written. Nobody says anything any more.
    pub(crate) fn finish(&mut self) {
        let until = Instant::now() + FAREWELL;
        while self.are_open() && Instant::now() < until {
            std::thread::sleep(FAREWELL_PAUSE);
        }
        self.running.clear();
    }

    /// What was written, a login once.
    pub(crate) fn written(&self) -> Vec<RenewedLogin> {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.clone()
    }

    /// Which refresh tokens of other credentials were replaced, a credential once.
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

/// Why one comes to nothing. Nothing of the file is in the words.
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

/// Whether nothing is said, and somebody listens.
pub(crate) fn is_unsaid(line: &OwnedFd) -> bool {
    let waits = descriptor::wait_readable([Some(line.as_fd())], Some(0));
    matches!(waits, Ok([false]))
}

/// Waits so long until something is said. Whether it is, or nobody listens any more.
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

/// Takes the lock and reads what is there.
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

/// Writes it. What somebody else has written meanwhile was given later than what is asked by
/// here was read: where that is another login, it stays.
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
