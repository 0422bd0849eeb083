use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::Duration;

use atoll_model::network::{Authority, Network, NetworkRule};

use super::*;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn open(place: &Place, now: SystemTime) -> CertificateAuthority {
    CertificateAuthority::open(&place.state, now).unwrap()
}

fn file(place: &Place) -> PathBuf {
    place.state.path().join("authority/authority.json")
}

pub(super) fn network(allow: &[&str]) -> Network {
    let rules: Vec<_> = allow
        .iter()
        .map(|to| json!({ "to": to, "origin": "a test" }))
        .collect();
    serde_json::from_value(json!({ "allow": rules, "deny": [] })).unwrap()
}

fn issued(authority: &CertificateAuthority, allow: &[&str]) -> Authority {
    let run = run_id(1);
    authority.issue(&run, &network(allow), now(), DAY).unwrap()
}

/// Returns a certificate as `openssl x509 -text` prints it.
fn text(certificate: &str) -> String {
    let temporary = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(temporary.path(), certificate).unwrap();
    let told = std::process::Command::new("openssl")
        .args(["x509", "-noout", "-text", "-in"])
        .arg(temporary.path())
        .output()
        .unwrap();
    assert!(told.status.success(), "{told:?}");
    String::from_utf8(told.stdout).unwrap()
}

#[test]
fn it_is_made_once_and_its_owners_alone() {
    let place = Place::new();
    assert!(CertificateAuthority::read(&place.state).unwrap().is_none());
    let made = open(&place, now());
    assert!(made.is_new());
    let found = open(&place, now() + DAY);
    assert!(!found.is_new());
    assert_eq!(found.fingerprint(), made.fingerprint());
    assert_eq!(found.former(now()).count(), 0);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&file(&place)), 0o600);
    assert_eq!(mode(file(&place).parent().unwrap()), 0o700);
    // What shows it to a log shows no key.
    let kept = std::fs::read_to_string(file(&place)).unwrap();
    assert!(kept.contains("PRIVATE KEY"));
    assert!(!format!("{made:?}").contains("PRIVATE"));
    let text = text(made.certificate());
    assert!(text.contains("CA:TRUE, pathlen:1"), "{text}");
}

#[test]
fn threads_that_need_it_first_at_once_get_the_same() {
    let place = Place::new();
    let told: Vec<(String, bool)> = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let one = open(&place, now());
                    (one.fingerprint().to_owned(), one.is_new())
                })
            })
            .collect();
        asked.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(told.iter().all(|(one, _)| *one == told[0].0), "{told:?}");
    assert_eq!(told.iter().filter(|(_, is_new)| *is_new).count(), 1);
}

#[test]
fn what_others_could_read_or_nobody_can_is_not_used() {
    let place = Place::new();
    let _ = open(&place, now());
    let refused = |change: &dyn Fn(&Path), expected: &str| {
        let kept = std::fs::read(file(&place)).unwrap();
        change(&file(&place));
        let error = CertificateAuthority::open(&place.state, now()).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        let _ = std::fs::remove_file(file(&place));
        std::fs::write(file(&place), kept).unwrap();
        chmod(&file(&place), 0o600);
        chmod(file(&place).parent().unwrap(), 0o700);
        let _ = open(&place, now());
    };
    refused(&|path| chmod(path, 0o640), "not yours alone (mode 0640)");
    let directory = |path: &Path| chmod(path.parent().unwrap(), 0o750);
    refused(&directory, "not yours alone (mode 0750)");
    refused(&|path| std::fs::write(path, "{").unwrap(), "EOF");
    let changed = |path: &Path| {
        let text = std::fs::read_to_string(path).unwrap();
        std::fs::write(path, text.replace("\"v\": 1", "\"v\": 2")).unwrap();
    };
    refused(&changed, "another version");
    let linked = |path: &Path| {
        let elsewhere = path.with_file_name("elsewhere");
        std::fs::rename(path, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, path).unwrap();
    };
    refused(&linked, "cannot open");
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_replaced_one_is_trusted_for_a_while() {
    let place = Place::new();
    let first = open(&place, now());
    let second = CertificateAuthority::rotate(&place.state, now(), 30 * DAY).unwrap();
    assert_ne!(first.fingerprint(), second.fingerprint());
    let trusted = |authority: &CertificateAuthority, then: SystemTime| -> Vec<String> {
        let former = authority.former(then);
        former.map(|one| one.fingerprint.clone()).collect()
    };
    assert_eq!(trusted(&second, now() + 29 * DAY), [first.fingerprint()]);
    assert!(trusted(&second, now() + 30 * DAY).is_empty());
    let third = CertificateAuthority::rotate(&place.state, now() + DAY, 30 * DAY).unwrap();
    let both = [second.fingerprint(), first.fingerprint()];
    assert_eq!(trusted(&third, now() + DAY), both);
    // The keys of those before it are gone.
    let kept = std::fs::read_to_string(file(&place)).unwrap();
    assert_eq!(kept.matches("BEGIN PRIVATE KEY").count(), 1);
    let fourth = CertificateAuthority::rotate(&place.state, now() + DAY, Duration::ZERO).unwrap();
    assert!(trusted(&fourth, now() + DAY).is_empty());
    // What is read again is the same.
    let found = open(&place, now() + DAY);
    assert_eq!(found.fingerprint(), fourth.fingerprint());
}

#[test]
fn one_that_is_about_to_end_is_replaced() {
    let place = Place::new();
    let first = open(&place, now());
    assert_eq!(
        open(&place, now() + 8 * 365 * DAY).fingerprint(),
        first.fingerprint()
    );
    let later = now() + 10 * 365 * DAY - 300 * DAY;
    let second = open(&place, later);
    assert!(second.is_new());
    assert_eq!(second.former(later).count(), 1);
    assert!(second.valid_until() > later + 9 * 365 * DAY);
}

#[test]
fn a_runs_authority_names_what_the_run_may_reach() {
    let place = Place::new();
    let authority = open(&place, now());
    for (allow, expected, unexpected) in [
        (
            &["example.com", "*.example.org:443"][..],
            &["DNS:example.com", "DNS:example.org", "IP:0.0.0.0/0.0.0.0"][..],
            "nobody.invalid",
        ),
        (
            &["10.1.0.0/16:443", "[2001:db8::1]"],
            &[
                "DNS:nobody.invalid",
                "IP:10.1.0.0/255.255.0.0",
                "IP:2001:DB8:0:0:0:0:0:1/",
            ],
            "Excluded",
        ),
        (&["example.com", "*"], &[], "Name Constraints"),
    ] {
        let text = text(&issued(&authority, allow).certificate);
        for one in expected {
            assert!(text.contains(one), "{one} of {allow:?}: {text}");
        }
        assert!(
            !text.contains(unexpected),
            "{unexpected} of {allow:?}: {text}"
        );
        assert!(text.contains("CA:TRUE, pathlen:0"), "{text}");
        assert!(text.contains("CN = Atoll run "), "{text}");
        assert!(text.contains("TLS Web Server Authentication"), "{text}");
    }
    let many: Vec<String> = (0..65).map(|one| format!("host-{one}.example")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let of = |names: &[&str]| text(&issued(&authority, names).certificate);
    assert!(!of(&many).contains("Name Constraints"));
    assert!(of(&many[1..]).contains("host-64.example"));
    // Who learns what is reached learns of any host.
    let learning = Network {
        learn: Some(NetworkRule::learning()),
        ..network(&["example.com"])
    };
    let learning = authority.issue(&run_id(1), &learning, now(), DAY).unwrap();
    assert!(!text(&learning.certificate).contains("Name Constraints"));
    // No two runs have the same key, and neither is the deployment's.
    let [one, other] = [(); 2].map(|()| issued(&authority, &["example.com"]));
    assert_ne!(one.key, other.key);
    let kept = std::fs::read_to_string(file(&place)).unwrap();
    assert!(!kept.contains(one.key.lines().nth(1).unwrap()));
}

#[test]
fn a_runs_authority_ends_with_its_run() {
    let place = Place::new();
    let authority = open(&place, now());
    let network = network(&["example.com"]);
    let until = |lasts: Duration| {
        let issued = authority.issue(&run_id(1), &network, now(), lasts).unwrap();
        let text = text(&issued.certificate);
        let (_, rest) = text.split_once("Not After : ").unwrap();
        rest.lines().next().unwrap().to_owned()
    };
    assert_eq!(until(DAY), "Jan 16 08:00:00 2027 GMT");
    // No longer than what signs it.
    assert_eq!(until(20 * 365 * DAY), "Jan 15 08:00:00 2037 GMT");
    assert_eq!(until(Duration::MAX), "Jan 15 08:00:00 2037 GMT");
}
