use std::os::unix::fs::symlink;

use super::*;

struct World(tempfile::TempDir);

impl World {
    fn new() -> Self {
        let world = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(world.path("data/sub")).unwrap();
        fs::write(world.path("data/b.txt"), "two\n").unwrap();
        fs::write(world.path("data/sub/a.txt"), "one\n").unwrap();
        world
    }

    fn path(&self, below: &str) -> PathBuf {
        self.0.path().join(below)
    }

    fn copy(&self, bounds: &InputBounds) -> Result<InputFacts, String> {
        let state = StateDir::open(&self.path("state")).unwrap();
        let mut copier = Copier {
            state: &state,
            tenant: None,
            bounds,
            bytes: 0,
            files: 0,
        };
        let input = Input {
            name: atoll_model::InputName::parse("data").unwrap(),
            source: InputSource::Path(self.path("data")),
        };
        let copied = copier.stage(&input, &self.path("copy"));
        copied.map_err(|error| error.to_string())
    }
}

/// By `find -type f | sort | xargs sha256sum | sha256sum`, as Go's dirhash says.
#[test]
fn directories_have_the_digest_of_dirhash() {
    let world = World::new();
    let copied = world.copy(&InputBounds::default()).unwrap();
    let line = |text: &str, name: &str| format!("{}  {name}\n", hex(&Sha256::digest(text)));
    let lines = line("two\n", "b.txt") + &line("one\n", "sub/a.txt");
    assert_eq!(copied.digest, hex(&Sha256::digest(lines)));
    assert!(copied.is_directory);
    assert_eq!((copied.bytes, copied.files), (8, 3));
    assert_eq!(fs::read(world.path("copy/sub/a.txt")).unwrap(), b"one\n");
}

#[test]
fn bounds_hold() {
    let bounds = |bytes, files, types: &[&str]| InputBounds {
        bytes,
        files,
        types: types.iter().map(|one| (*one).to_owned()).collect(),
    };
    let check = |bounds: &InputBounds, why: &str| {
        let error = World::new().copy(bounds).unwrap_err();
        assert!(error.contains(why), "{error}");
    };
    assert!(World::new().copy(&bounds(8, 3, &["text/plain"])).is_ok());
    check(&bounds(7, 3, &[]), "larger than 7 B");
    check(&bounds(8, 2, &[]), "files and directories than 2");
    check(
        &bounds(8, 3, &["image/*"]),
        "is text/plain, and the profile takes image/*",
    );
}

#[test]
fn links_stay_within_and_nothing_else_is_taken() {
    let world = World::new();
    symlink("../b.txt", world.path("data/sub/up")).unwrap();
    world.copy(&InputBounds::default()).unwrap();
    let target = fs::read_link(world.path("copy/sub/up")).unwrap();
    assert_eq!(target, Path::new("../b.txt"));
    for target in ["/etc/passwd", "../../outside", "..", "sub/../../x"] {
        let world = World::new();
        symlink(target, world.path("data/link")).unwrap();
        let error = world.copy(&InputBounds::default()).unwrap_err();
        assert!(error.contains("leads out"), "{target}: {error}");
    }
    let world = World::new();
    let pipe = world.path("data/pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
    let error = world.copy(&InputBounds::default()).unwrap_err();
    assert!(error.contains("neither a file nor a directory"), "{error}");
}
