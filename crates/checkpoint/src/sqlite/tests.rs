use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;

use super::Version;
use crate::*;

struct World {
    root: TempDir,
}

impl World {
    fn new(mode: &str) -> Self {
        let world = Self {
            root: tempfile::tempdir().unwrap(),
        };
        let writer = world.open();
        writer.pragma_update(None, "journal_mode", mode).unwrap();
        writer
            .execute_batch("CREATE TABLE t (a TEXT); INSERT INTO t VALUES ('before')")
            .unwrap();
        world
    }

    fn dir(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn open(&self) -> Connection {
        let connection = Connection::open(self.dir("db")).unwrap();
        connection.busy_timeout(Duration::from_secs(5)).unwrap();
        connection
    }

    fn take(&self) -> Taken {
        let target = Target::Sqlite {
            path: self.dir("db"),
        };
        take(&target, "s1", &self.dir("cp"), &Limits::default()).unwrap()
    }

    fn origins(&self, taken: &Taken) -> Vec<Origin> {
        let changes = changes(taken, &self.dir("cp")).unwrap();
        changes.iter().map(|one| one.origin).collect()
    }

    fn restore(&self, taken: &Taken, kept: &str, overwrite: Overwrite) -> Restored {
        let (dir, kept) = (self.dir("cp"), self.dir(kept));
        restore(taken, &dir, &kept, overwrite, &Limits::default()).unwrap()
    }
}

use std::path::PathBuf;

fn rows(connection: &Connection) -> Vec<String> {
    let mut statement = connection
        .prepare("SELECT a FROM t ORDER BY rowid")
        .unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

fn check_restored_while_open(mode: &str) {
    let world = World::new(mode);
    let other = world.open();
    other
        .execute_batch("INSERT INTO t VALUES ('in the log')")
        .unwrap();
    let mut taken = world.take();
    assert_eq!((taken.how, taken.entries), (How::Backup, 1));
    let mut filler = "x".repeat(5000);
    other
        .execute("INSERT INTO t VALUES (?1)", [&filler])
        .unwrap();
    other
        .execute_batch("UPDATE t SET a = 'effect' WHERE a = 'before'")
        .unwrap();
    settle(&mut taken, &world.dir("cp")).unwrap();
    assert_eq!(world.origins(&taken), [Origin::Effect]);
    let restored = world.restore(&taken, "kept", Overwrite::No);
    assert_eq!((restored.restored.len(), restored.left.len()), (1, 0));
    assert_eq!(rows(&other), ["before", "in the log"], "{mode}");
    assert_eq!(world.origins(&taken), []);
    other.execute_batch("PRAGMA integrity_check").unwrap();
    // Others write on; then the restore cannot be undone without them.
    let kept = restored.kept.unwrap();
    assert_eq!(load(&world.dir("kept")).unwrap(), kept);
    let limits = Limits::default();
    let (from, to) = (world.dir("kept"), world.dir("undone"));
    restore(&kept, &from, &to, Overwrite::No, &limits).unwrap();
    filler.truncate(5000);
    assert_eq!(rows(&other), ["effect", "in the log", &filler], "{mode}");
    discard(&taken, &world.dir("cp")).unwrap();
    assert!(!world.dir("cp").exists());
}

#[test]
fn database_with_a_log_is_restored_while_others_have_it_open() {
    check_restored_while_open("wal");
}

#[test]
fn database_without_a_log_is_restored_while_others_have_it_open() {
    check_restored_while_open("delete");
}

#[test]
fn open_transactions_do_not_count() {
    let world = World::new("wal");
    let mut other = world.open();
    let change = other.transaction().unwrap();
    change
        .execute_batch("INSERT INTO t VALUES ('not committed')")
        .unwrap();
    let mut taken = world.take();
    settle(&mut taken, &world.dir("cp")).unwrap();
    assert_eq!(world.origins(&taken), []);
    change.commit().unwrap();
    assert_eq!(world.origins(&taken), [Origin::Since]);
    // None of it is the effect's: no restore touches it.
    assert_eq!(world.restore(&taken, "kept", Overwrite::Yes).left.len(), 1);
    assert_eq!(rows(&world.open()), ["before", "not committed"]);
}

#[test]
fn restore_waits_for_an_open_writer_only_so_long() {
    for mode in ["wal", "delete"] {
        let world = World::new(mode);
        let mut taken = world.take();
        world
            .open()
            .execute_batch("INSERT INTO t VALUES ('effect')")
            .unwrap();
        settle(&mut taken, &world.dir("cp")).unwrap();
        let mut other = world.open();
        let change = other.transaction().unwrap();
        change
            .execute_batch("INSERT INTO t VALUES ('open')")
            .unwrap();
        let limits = Limits {
            wait: Duration::from_millis(50),
            ..Limits::default()
        };
        let (dir, kept) = (world.dir("cp"), world.dir("kept"));
        let refused = restore(&taken, &dir, &kept, Overwrite::No, &limits).unwrap_err();
        assert!(matches!(refused, Error::Busy(_)), "{mode}: {refused}");
        change.rollback().unwrap();
        assert_eq!(rows(&world.open()), ["before", "effect"]);
        // Nothing was restored: so it can be done again.
        assert_eq!(resume(&taken, &dir, &kept, &limits).unwrap(), None);
        assert_eq!(
            world.restore(&taken, "kept", Overwrite::No).restored.len(),
            1
        );
        assert_eq!(rows(&world.open()), ["before"]);
        let resumed = resume(&taken, &dir, &kept, &limits).unwrap().unwrap();
        assert_eq!(resumed.kept, Some(load(&kept).unwrap()));
    }
}

#[test]
fn locked_database_is_not_taken() {
    let world = World::new("delete");
    let other = world.open();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let limits = Limits {
        wait: Duration::from_millis(50),
        ..Limits::default()
    };
    let target = Target::Sqlite {
        path: world.dir("db"),
    };
    let refused = take(&target, "s1", &world.dir("cp"), &limits).unwrap_err();
    assert!(matches!(refused, Error::Busy(_)), "{refused}");
    assert!(!world.dir("cp").exists());
}

#[test]
fn writes_since_the_effect_are_a_conflict() {
    let world = World::new("wal");
    let mut taken = world.take();
    world
        .open()
        .execute_batch("INSERT INTO t VALUES ('effect')")
        .unwrap();
    settle(&mut taken, &world.dir("cp")).unwrap();
    world
        .open()
        .execute_batch("INSERT INTO t VALUES ('a person')")
        .unwrap();
    assert_eq!(world.origins(&taken), [Origin::Both]);
    let restored = world.restore(&taken, "kept", Overwrite::No);
    assert_eq!(restored.left[0].origin, Some(Origin::Both));
    assert_eq!(rows(&world.open()).len(), 3);
    let restored = world.restore(&taken, "kept", Overwrite::Yes);
    assert_eq!(rows(&world.open()), ["before"]);
    let kept = Connection::open(world.dir("kept/database.sqlite")).unwrap();
    assert_eq!(rows(&kept), ["before", "effect", "a person"]);
    assert!(restored.kept.is_some());
}

#[test]
fn way_of_storing_is_no_change() {
    let world = World::new("wal");
    let mut taken = world.take();
    settle(&mut taken, &world.dir("cp")).unwrap();
    let other = world.open();
    other
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
    other.pragma_update(None, "journal_mode", "delete").unwrap();
    assert_eq!(world.origins(&taken), []);
}

#[test]
fn removed_database_is_made_again() {
    let world = World::new("delete");
    let mut taken = world.take();
    std::fs::remove_file(world.dir("db")).unwrap();
    settle(&mut taken, &world.dir("cp")).unwrap();
    std::fs::write(world.dir("db-journal"), "x").unwrap();
    let restored = world.restore(&taken, "kept", Overwrite::No);
    assert!(
        restored.left[0].why.contains("would be applied"),
        "{restored:?}"
    );
    std::fs::remove_file(world.dir("db-journal")).unwrap();
    let restored = world.restore(&taken, "kept", Overwrite::No);
    assert_eq!((restored.kept, restored.restored.len()), (None, 1));
    assert_eq!(rows(&world.open()), ["before"]);
}

#[test]
fn version_tells_a_write_of_others() {
    for mode in ["wal", "delete"] {
        let world = World::new(mode);
        let reader = world.open();
        let header = std::fs::File::open(world.dir("db")).unwrap();
        let version = || Version::of(&reader, &header).unwrap();
        rows(&reader);
        let first = version();
        rows(&reader);
        assert!(first == version(), "{mode}");
        world
            .open()
            .execute_batch("INSERT INTO t VALUES ('more')")
            .unwrap();
        assert!(first != version(), "{mode}");
    }
}

#[test]
fn larger_database_than_allowed_is_refused() {
    let world = World::new("wal");
    let limits = Limits {
        bytes_max: Some(4096),
        ..Limits::default()
    };
    let target = Target::Sqlite {
        path: world.dir("db"),
    };
    let refused = take(&target, "s1", &world.dir("cp"), &limits).unwrap_err();
    assert!(refused.to_string().contains("has 8192 bytes"), "{refused}");
}
