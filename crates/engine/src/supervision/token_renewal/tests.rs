use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use atoll_sys::descriptor;

use super::*;
use crate::supervision::login_renewal::{Renewable, Renewals};

fn token(top: &Path) -> TokenRenewal {
    let file = top.join("refresh");
    fs::write(&file, "first\r\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    TokenRenewal {
        name: "api".to_owned(),
        from: "its file".to_owned(),
        place: TokenPlace::File {
            file,
            own: top.join("own"),
        },
    }
}

fn hear(line: &OwnedFd) -> KeptSaid {
    let heard = descriptor::wait_readable([Some(line.as_fd())], Some(60_000)).unwrap();
    assert!(heard[0]);
    let mut message = vec![0; 2 * LOGIN_FILE_BYTES_MAX];
    let (got, _) = socket::receive(line.as_fd(), &mut message).unwrap();
    serde_json::from_slice(&message[..got]).unwrap()
}

fn told(said: &KeptSaid) -> String {
    match said {
        KeptSaid::There(token) => format!("there {}", token.text()),
        KeptSaid::Unkept(why) => format!("unkept {why}"),
        KeptSaid::Written => "written".to_owned(),
        KeptSaid::Unfit(why) => format!("unfit {why}"),
    }
}

fn begin(renewals: &mut Renewals, token: &TokenRenewal) -> OwnedFd {
    renewals.begin(&Renewable::Token(token.clone())).unwrap()
}

#[test]
fn the_next_one_waits_and_finds_what_the_one_before_was_given() {
    let top = tempfile::tempdir().unwrap();
    let token = token(top.path());
    let file = top.path().join("refresh");
    let (mut one, mut other) = (Renewals::default(), Renewals::default());
    let first = begin(&mut one, &token);
    assert_eq!(told(&hear(&first)), "there first");
    let second = begin(&mut other, &token);
    let waits = descriptor::wait_readable([Some(second.as_fd())], Some(200)).unwrap();
    assert_eq!(waits, [false]);
    say(&first, &KeptToken::new("second")).unwrap();
    assert_eq!(told(&hear(&first)), "written");
    assert_eq!(fs::read_to_string(&file).unwrap(), "second\r\n");
    let mode = fs::metadata(&file).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode, 0o600);
    assert_eq!(told(&hear(&second)), "there second");
    drop(second);
    one.finish();
    let rotated = one.rotated();
    assert_eq!(rotated.len(), 1);
    assert_eq!(rotated[0].unkept, None);
    // Who was given nothing has nothing to tell.
    assert!(other.rotated().is_empty());
}

#[test]
fn what_somebody_has_put_there_meanwhile_stays() {
    let top = tempfile::tempdir().unwrap();
    let token = token(top.path());
    let file = top.path().join("refresh");
    let mut renewals = Renewals::default();
    for (theirs, said, then) in [
        ("theirs\n", "there theirs", "theirs\n"),
        // The same, with another end.
        ("first", "written", "second"),
    ] {
        fs::write(&file, "first\r\n").unwrap();
        let line = begin(&mut renewals, &token);
        assert_eq!(told(&hear(&line)), "there first");
        fs::write(&file, theirs).unwrap();
        say(&line, &KeptToken::new("second")).unwrap();
        assert_eq!(told(&hear(&line)), said);
        assert_eq!(fs::read_to_string(&file).unwrap(), then);
    }
    // A link that came meanwhile is not written through.
    fs::write(&file, "first\n").unwrap();
    let line = begin(&mut renewals, &token);
    let _ = hear(&line);
    let elsewhere = top.path().join("elsewhere");
    fs::rename(&file, &elsewhere).unwrap();
    symlink(&elsewhere, &file).unwrap();
    say(&line, &KeptToken::new("second")).unwrap();
    assert_eq!(told(&hear(&line)), "unfit its file: it is a symbolic link");
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "first\n");
    renewals.finish();
    let unkept = renewals.rotated()[0].unkept.clone();
    assert!(unkept.is_some_and(|why| why.contains("symbolic link")));
}

#[test]
fn what_can_be_kept_nowhere_is_told_once_it_is_given() {
    let top = tempfile::tempdir().unwrap();
    let mut token = token(top.path());
    token.place = TokenPlace::Nowhere;
    let mut renewals = Renewals::default();
    // Asked by and not replaced: there is nothing to tell.
    let line = begin(&mut renewals, &token);
    assert!(matches!(hear(&line), KeptSaid::Unkept(_)));
    drop(line);
    renewals.finish();
    assert!(renewals.rotated().is_empty());
    let line = begin(&mut renewals, &token);
    let _ = hear(&line);
    say(&line, &KeptToken::new("second")).unwrap();
    assert!(matches!(hear(&line), KeptSaid::Unkept(_)));
    renewals.finish();
    assert!(renewals.rotated()[0].unkept.is_some());
}
