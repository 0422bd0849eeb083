//! The search for canaries finds each form of a value at each place.

use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use e2e::World;
use e2e::canary::forms;

/// Returns a value, unique to each test, with characters that each form escapes in its own way.
fn value(of: &str) -> String {
    let process = std::process::id();
    format!("c4nary{process}+Of/{of}=\"quoted\" \\ and ~tilde?")
}

/// Returns those forms that can be part of a file's name.
fn name_forms(value: &str) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = forms(value.as_bytes())
        .into_iter()
        .map(|(_, text)| text)
        .collect();
    all.retain(|text| text.len() <= 250 && !text.contains(&b'/') && !text.contains(&0));
    assert!(all.len() > 8);
    all
}

fn path_of(below: &Path, name: Vec<u8>) -> PathBuf {
    below.join(std::ffi::OsString::from_vec(name))
}

#[test]
fn each_form_is_what_other_programs_write() {
    let world = World::new("each_form_is_what_other_programs_write");
    let text = value("0thers");
    let script = "import base64, json, sys, urllib.parse as u\nv = sys.argv[1].encode()\n\
        for one in [v, v.hex().encode(), v.hex().upper().encode(), u.quote(v, safe='').encode(), \
        u.quote_plus(v).encode(), json.dumps(v.decode())[1:-1].encode(), v[::-1], \
        v.decode().encode('utf-16-le')[:-1], json.dumps(v.decode())[1:-1].replace('/', '\\\\/').encode()]:\n  print(one.hex())\n\
        for n in range(3):\n  part = v[n:][:len(v[n:]) // 3 * 3]\n  \
        print(base64.b64encode(part).hex()); print(base64.urlsafe_b64encode(part).hex())";
    let told = world
        .host("python3")
        .args(["-c", script, &text])
        .run()
        .success();
    let ours: Vec<String> = forms(text.as_bytes())
        .into_iter()
        .map(|(_, form)| form.iter().map(|byte| format!("{byte:02x}")).collect())
        .collect();
    assert_eq!(told.out().lines().count(), 15, "{told}");
    for line in told.out().lines() {
        assert!(ours.iter().any(|form| form == line), "{line}: {ours:?}");
    }
}

#[test]
fn each_form_is_found_at_each_place() {
    let world = World::new("each_form_is_found_at_each_place");
    let text = value("Pl4ces");
    world.canary(&text, &["source"]);
    world.write(world.top().join("source"), &text);
    assert_eq!(world.canaries_found(), [""; 0]);

    let forms = forms(text.as_bytes());
    let temporary = tempfile::Builder::new()
        .prefix("atoll-canary-")
        .tempdir_in("/var/tmp")
        .unwrap();
    let places = [
        world.state().join("atoll/ledger/000.seg"),
        world.state().join("atoll/layers/run/upper/file"),
        world.config().join("atoll/a.toml"),
        world.home().join(".cache/deep/er/file"),
        world.path("file"),
        world.path("source"),
        temporary.path().join("below/file"),
    ];
    for place in places {
        for (form, bytes) in &forms {
            let around = [b"\x00\x01\n\xff".as_slice(), bytes, b"\xff after"].concat();
            world.write(&place, around);
            let found = world.canaries_found();
            let [line] = &found[..] else {
                panic!("{form} in {}: {found:?}", place.display());
            };
            assert!(line.contains(&*place.to_string_lossy()), "{form}: {line}");
            assert!(line.contains(&format!("{form:?}")), "{form}: {line}");
        }
        fs::remove_file(&place).unwrap();
        assert_eq!(world.canaries_found(), [""; 0]);
    }
    for (form, bytes) in &forms {
        // Neither the beginning nor the end of a form is one.
        world.write(
            "part",
            [&bytes[1..], b"\n", &bytes[..bytes.len() - 1]].concat(),
        );
        let found = world.canaries_found();
        assert!(
            !format!("{found:?}").contains(&format!("{form:?}")),
            "{found:?}"
        );
    }
    fs::remove_file(world.path("part")).unwrap();
}

#[test]
fn it_is_found_in_names_of_files_and_where_links_lead() {
    let world = World::new("it_is_found_in_names_of_files_and_where_links_lead");
    let text = value("N4mes").replace('/', "-");
    world.canary(&text, &[]);
    for form in name_forms(&text) {
        let path = path_of(&world.home(), form);
        fs::write(&path, "").unwrap();
        assert_eq!(world.canaries_found().len(), 1, "{}", path.display());
        fs::remove_file(&path).unwrap();
        fs::create_dir_all(&path).unwrap();
        assert_eq!(world.canaries_found().len(), 1, "{}", path.display());
        fs::remove_dir(&path).unwrap();
        symlink(&path, world.home().join("link")).unwrap();
        assert_eq!(world.canaries_found().len(), 1, "{}", path.display());
        fs::remove_file(world.home().join("link")).unwrap();
    }
    assert_eq!(world.canaries_found(), [""; 0]);
}

#[test]
fn it_is_found_in_what_programs_write() {
    let text = value("0utput");
    for (form, bytes) in forms(text.as_bytes()) {
        for (place, how) in [
            ("standard output", "cat form"),
            ("standard error", "cat form >&2"),
            ("terminal", "stty raw; cat form; sleep 0"),
        ] {
            let world = World::new("it_is_found_in_what_programs_write");
            world.canary(&text, &["workspace/form"]);
            world.write("form", &bytes);
            let _ = world.host_shell(how).control().run();
            assert_eq!(world.canaries_found(), [""; 0]);
            match place {
                "terminal" => {
                    let mut terminal = world.host_shell(how).on_terminal(24, 80);
                    let _ = terminal.wait().success();
                }
                _ => {
                    let _ = world.host_shell(how).run().success();
                }
            }
            let found = world.canaries_found();
            assert_eq!(found.len(), 1, "{form} {place}: {found:?}");
            assert!(found[0].contains(place), "{form}: {found:?}");
            // The end of a world finds it, too; its directory is gone all the same.
            let top = world.top().to_path_buf();
            let ended = catch_unwind(AssertUnwindSafe(move || drop(world)));
            let why = *ended.unwrap_err().downcast::<String>().unwrap();
            assert!(why.contains(place), "{why}");
            assert!(!top.exists());
        }
    }
}

#[test]
fn what_is_closed_is_searched_at_the_end_of_a_world() {
    let name = "what_is_closed_is_searched_at_the_end_of_a_world";
    let text = value("Cl0sed");
    for inside in ["file", "closed/file"] {
        let world = World::new(name);
        world.canary(&text, &[]);
        world.write(inside, &text);
        for one in [inside, inside.split('/').next().unwrap()] {
            fs::set_permissions(world.path(one), fs::Permissions::from_mode(0o0)).unwrap();
        }
        let ended = catch_unwind(AssertUnwindSafe(move || drop(world)));
        let why = *ended.unwrap_err().downcast::<String>().unwrap();
        assert!(why.contains(inside), "{why}");
    }
    // The control: a world that holds none ends well, and one that was told of none looks
    // for none.
    let world = World::new(name);
    world.canary(&text, &[]);
    world.write("file", "nothing of the kind");
    drop(world);
    let world = World::new(name);
    world.write("file", &text);
}

#[test]
fn each_value_has_places_of_its_own() {
    let world = World::new("each_value_has_places_of_its_own");
    let (one, other) = (value("0ne"), value("0ther"));
    world.canary(&one, &["one"]);
    world.canary(&other, &["other", "workspace/below"]);
    world.write(world.top().join("one"), &one);
    world.write(world.top().join("other"), &other);
    world.write("below/file", &other);
    world.write(world.top().join("internet/requests"), &one);
    assert_eq!(world.canaries_found(), [""; 0]);
    world.write(world.top().join("one"), format!("{one}\n{other}"));
    world.write("below/file", &one);
    let found = world.canaries_found();
    assert_eq!(found.len(), 2, "{found:?}");
    fs::remove_file(world.path("below/file")).unwrap();
    world.write(world.top().join("one"), "");
    // Of a value of several lines each one counts, wherever it stands.
    let lines = "-----BEGIN A KEY-----\nl1neOfTh3K3yInTheMiddle0\nl1neOfTh3K3yInTheMiddle1\n";
    world.canary(lines, &[]);
    world.write("line", "\"l1neOfTh3K3yInTheMiddle1\"");
    assert_eq!(world.canaries_found().len(), 1);
    fs::remove_file(world.path("line")).unwrap();
}
