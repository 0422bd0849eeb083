use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::client::{Client, identifier};
use crate::*;

/// A server with databases of its own, which ends with the test.
pub(super) struct World {
    root: TempDir,
    server: Child,
    programs: PathBuf,
}

const NOBODY: u32 = 65534;

fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    let mut programs = versions.map(|version| version.path().join("bin"));
    programs.find(|programs| programs.join("initdb").is_file())
}

/// Returns the programs. Without them the test fails, or the suite is told that it was skipped.
fn needed(name: &str) -> Option<PathBuf> {
    let found = programs();
    // A server refuses a user without an account.
    let own = format!(":{}:", rustix::process::geteuid().as_raw());
    let accounts = fs::read_to_string("/etc/passwd").unwrap();
    let has_account = accounts.lines().any(|line| line.contains(&own));
    let why = match (&found, has_account) {
        (None, _) => Some("PostgreSQL is not installed\tavoidable"),
        (Some(_), false) => Some("the user has no account\tunavoidable"),
        (Some(_), true) => None,
    };
    if let Some(why) = why {
        let file = std::env::var_os("ATOLL_SKIP_FILE").expect("PostgreSQL is needed");
        let line = format!("{name}\t{why}\n");
        let mut to = fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(file)
            .unwrap();
        std::io::Write::write_all(&mut to, line.as_bytes()).unwrap();
        return None;
    }
    found
}

/// Returns a command that runs as an ordinary user: a server refuses to run as root.
fn ordinary(program: impl AsRef<OsStr>) -> Command {
    if !rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    let id = NOBODY.to_string();
    command
        .args(["--reuid", &id, "--regid", &id, "--clear-groups"])
        .arg(program.as_ref());
    command
}

impl World {
    pub(super) fn new(name: &str) -> Option<Self> {
        let programs = needed(name)?;
        // The path of a socket is at most 107 bytes long.
        let root = tempfile::tempdir_in("/tmp").unwrap();
        fs::set_permissions(root.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let home = root.path().join("server");
        fs::create_dir(&home).unwrap();
        if rustix::process::geteuid().is_root() {
            chown(&home, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let data = home.join("data");
        let mut initdb = ordinary(programs.join("initdb"));
        initdb
            .args(["-N", "-A", "trust", "-U", "owner", "--locale=C.UTF-8", "-D"])
            .arg(&data);
        let made = initdb.current_dir(&home).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        let rules = "local all locked scram-sha-256\nlocal all all trust\n";
        fs::write(data.join("pg_hba.conf"), rules).unwrap();
        let mut server = ordinary(programs.join("postgres"));
        server.arg("-D").arg(&data).arg("-k").arg(&home);
        server
            .args(["-c", "listen_addresses=", "-c", "fsync=off"])
            .current_dir(&home);
        let log = fs::File::create(root.path().join("log")).unwrap();
        server.stdout(Stdio::null()).stderr(log);
        let world = Self {
            server: server.spawn().unwrap(),
            root,
            programs,
        };
        world.wait();
        Some(world)
    }

    fn wait(&self) {
        for _ in 0..600 {
            let mut ready = Command::new(self.programs.join("pg_isready"));
            ready.arg("-q").arg("-h").arg(self.home());
            if ready.status().unwrap().success() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!(
            "{}",
            fs::read_to_string(self.root.path().join("log")).unwrap()
        );
    }

    fn home(&self) -> String {
        format!("{}/server", self.root.path().display())
    }

    pub(super) fn dir(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub(super) fn database(&self, name: &str) -> Database {
        Database {
            database: name.to_owned(),
            host: Some(self.home()),
            user: Some("owner".to_owned()),
            ..Database::default()
        }
    }

    pub(super) fn psql(&self, database: &str, sql: &str) -> Command {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args([
            "-X",
            "-A",
            "-t",
            "-q",
            "-v",
            "ON_ERROR_STOP=1",
            "-U",
            "owner",
            "-h",
        ]);
        let name = database.replace('\\', "\\\\").replace('\'', "\\'");
        psql.arg(self.home())
            .args(["-d", &format!("dbname='{name}'"), "-c", sql]);
        psql
    }

    pub(super) fn sql(&self, database: &str, sql: &str) -> String {
        let output = self.psql(database, sql).output().unwrap();
        assert!(output.status.success(), "{sql}: {output:?}");
        String::from_utf8(output.stdout)
            .unwrap()
            .trim_end()
            .to_owned()
    }

    /// Makes a database with tables, a view, a sequence, and properties of its own.
    fn create(&self, name: &str) -> Target {
        let quoted = identifier(name);
        self.sql("postgres", "CREATE ROLE app");
        self.sql("postgres", &format!("CREATE DATABASE {quoted} OWNER app"));
        let tables = "CREATE TABLE t (id serial PRIMARY KEY, a text, \"Odd \"\"name\" bytea);
            INSERT INTO t (a) SELECT 'row ' || g || E'\\restrict x' FROM generate_series(1, 1000) g;
            CREATE VIEW v AS SELECT count(*) FROM t; GRANT SELECT ON t TO app;";
        self.sql(name, tables);
        let properties = format!(
            "ALTER DATABASE {quoted} SET search_path TO public, \"Odd schema\";
             ALTER DATABASE {quoted} SET application_name TO 'it''s \\ here';
             ALTER ROLE app IN DATABASE {quoted} SET work_mem TO '5MB';
             GRANT CREATE ON DATABASE {quoted} TO app WITH GRANT OPTION;
             REVOKE CONNECT ON DATABASE {quoted} FROM PUBLIC;
             ALTER DATABASE {quoted} CONNECTION LIMIT 77;
             COMMENT ON DATABASE {quoted} IS 'it''s a \\ comment'"
        );
        self.sql("postgres", &properties);
        Target::Postgres(self.database(name))
    }

    /// Returns properties and content of a database.
    fn state(&self, name: &str) -> String {
        let database = self.database(name);
        let client = Client::new(&database, Limits::default().wait);
        let properties = super::Properties::read(&client, name).unwrap();
        let tables = "SELECT count(*), sum(id), max(a), (SELECT count FROM v) FROM t";
        format!("{} {}", properties.text(), self.sql(name, tables))
    }

    fn databases(&self) -> Vec<String> {
        let sql =
            "SELECT datname FROM pg_database WHERE NOT datistemplate AND datname <> 'postgres'
            ORDER BY 1";
        self.sql("postgres", sql)
            .lines()
            .map(str::to_owned)
            .collect()
    }

    fn take(&self, target: &Target) -> Taken {
        take(target, "p-1", &self.dir("cp"), &Limits::default()).unwrap()
    }

    fn effect(&self, name: &str) {
        let quoted = identifier(name);
        self.sql(
            name,
            "DELETE FROM t WHERE id > 10; INSERT INTO t (a) VALUES ('effect')",
        );
        self.sql(
            "postgres",
            &format!("ALTER DATABASE {quoted} SET work_mem TO '7MB'"),
        );
        self.sql(
            "postgres",
            &format!("GRANT CONNECT ON DATABASE {quoted} TO PUBLIC"),
        );
    }

    fn restore(&self, taken: &Taken, kept: &str, overwrite: Overwrite) -> Restored {
        let (dir, kept) = (self.dir("cp"), self.dir(kept));
        restore(taken, &dir, &kept, overwrite, &Limits::default()).unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let server = rustix::process::Pid::from_child(&self.server);
        // This is a fast shutdown: connections are ended.
        let _ = rustix::process::kill_process(server, rustix::process::Signal::INT);
        let _ = self.server.wait();
    }
}

fn check_restored(world: &World, name: &str, how: How) {
    let target = world.create(name);
    let before = world.state(name);
    let mut open = (how == How::Dump).then(|| sleeping(world, name));
    let mut taken = world.take(&target);
    assert_eq!(taken.how, how);
    if let Some(open) = &mut open {
        world.sql(
            "postgres",
            &format!("SELECT pg_terminate_backend(pid) {SLEEPING}"),
        );
        open.wait().unwrap();
    }
    world.effect(name);
    settle(&mut taken, &world.dir("cp")).unwrap();
    let after = world.state(name);
    assert_ne!(before, after);
    let listed = changes(&taken, &world.dir("cp")).unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (listed[0].difference, listed[0].origin),
        (Difference::Modified, Origin::Effect)
    );
    let restored = world.restore(&taken, "kept", Overwrite::No);
    assert_eq!(restored.restored, [name]);
    assert_eq!(world.state(name), before);
    if how == How::Template {
        assert_eq!(changes(&taken, &world.dir("cp")).unwrap(), []);
    }
    // The next row has the next number: sequences are restored too.
    let next = "INSERT INTO t (a) VALUES ('x') RETURNING id";
    assert_eq!(world.sql(name, &format!("BEGIN; {next}; ROLLBACK")), "1001");
    world.sql(name, "SELECT setval('t_id_seq', 1000)");
    let kept = restored.kept.unwrap();
    let (from, to) = (world.dir("kept"), world.dir("undone"));
    let undone = restore(&kept, &from, &to, Overwrite::No, &Limits::default()).unwrap();
    assert_eq!(undone.restored, [name], "{undone:?}");
    assert_eq!(world.state(name), after);
    discard(&undone.kept.unwrap(), &to).unwrap();
    discard(&kept, &from).unwrap();
    discard(&taken, &world.dir("cp")).unwrap();
    assert_eq!(world.databases(), [name]);
}

const SLEEPING: &str = "FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'";

/// Opens a connection that stays, and returns when it is there.
fn sleeping(world: &World, name: &str) -> Child {
    let mut psql = world.psql(name, "SELECT pg_sleep(600)");
    let child = psql
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while world.sql("postgres", &format!("SELECT count(*) {SLEEPING}")) != "1" {
        std::thread::yield_now();
    }
    child
}

#[test]
fn database_is_restored_from_a_copy_on_the_server() {
    let name = "database_is_restored_from_a_copy_on_the_server";
    if let Some(world) = World::new(name) {
        check_restored(&world, "shop", How::Template);
    }
}

#[test]
fn database_in_use_is_restored_from_an_archive() {
    let name = "database_in_use_is_restored_from_an_archive";
    if let Some(world) = World::new(name) {
        check_restored(&world, "shop", How::Dump);
    }
}

#[test]
fn database_with_an_odd_name_is_restored() {
    if let Some(world) = World::new("database_with_an_odd_name_is_restored") {
        let name = "We\"ird 'n\\am=e äöü and longer than names may be with an id";
        check_restored(&world, name, How::Template);
    }
}

#[test]
fn connections_are_ended_only_when_allowed() {
    let Some(world) = World::new("connections_are_ended_only_when_allowed") else {
        return;
    };
    let target = world.create("shop");
    let mut taken = world.take(&target);
    world.effect("shop");
    settle(&mut taken, &world.dir("cp")).unwrap();
    let after = world.state("shop");
    let mut open = sleeping(&world, "shop");
    let (dir, kept) = (world.dir("cp"), world.dir("kept"));
    let limits = Limits::default();
    let refused = restore(&taken, &dir, &kept, Overwrite::No, &limits).unwrap_err();
    assert!(
        matches!(refused, Error::InUse { count: 1, .. }),
        "{refused}"
    );
    assert_eq!(world.databases(), ["atoll_cp_p_1", "shop"]);
    assert_eq!(world.state("shop"), after);
    assert_eq!(open.try_wait().unwrap(), None);
    assert_eq!(resume(&taken, &dir, &kept, &limits).unwrap(), None);
    let limits = Limits {
        end_connections: true,
        ..Limits::default()
    };
    let restored = restore(&taken, &dir, &kept, Overwrite::No, &limits).unwrap();
    assert_eq!(restored.restored, ["shop"]);
    assert!(!open.wait().unwrap().success());
    let resumed = resume(&taken, &dir, &kept, &limits).unwrap().unwrap();
    assert_eq!(resumed, restored);
    assert_eq!(world.databases().len(), 3);
}

#[test]
fn writes_since_the_effect_are_a_conflict() {
    let Some(world) = World::new("writes_since_the_effect_are_a_conflict") else {
        return;
    };
    let target = world.create("shop");
    let mut taken = world.take(&target);
    settle(&mut taken, &world.dir("cp")).unwrap();
    assert_eq!(changes(&taken, &world.dir("cp")).unwrap(), []);
    world.sql("shop", "UPDATE t SET a = E'\\restrict y' WHERE id = 7");
    let origin = |taken: &Taken| changes(taken, &world.dir("cp")).unwrap()[0].origin;
    assert_eq!(origin(&taken), Origin::Since);
    world.effect("shop");
    settle(&mut taken, &world.dir("cp")).unwrap();
    assert_eq!(origin(&taken), Origin::Effect);
    world.sql("shop", "INSERT INTO t (a) VALUES ('a person')");
    let now = world.state("shop");
    let restored = world.restore(&taken, "kept", Overwrite::No);
    assert_eq!((restored.kept, restored.left.len()), (None, 1));
    assert_eq!(world.state("shop"), now);
    assert_eq!(world.databases(), ["atoll_cp_p_1", "shop"]);
    let restored = world.restore(&taken, "kept", Overwrite::Yes);
    assert_eq!(restored.restored, ["shop"]);
    assert_eq!(world.sql("shop", "SELECT count(*) FROM t"), "1000");
    // Of the database that was replaced nothing is lost.
    let kept = world
        .databases()
        .into_iter()
        .find(|name| name.contains("_kept_"))
        .unwrap();
    let name = identifier(&kept);
    world.sql(
        "postgres",
        &format!("ALTER DATABASE {name} ALLOW_CONNECTIONS true"),
    );
    assert_eq!(
        world.sql(&kept, "SELECT count(*) FROM t WHERE a = 'a person'"),
        "1"
    );
}

#[test]
fn failed_restore_leaves_the_database_alone() {
    let Some(world) = World::new("failed_restore_leaves_the_database_alone") else {
        return;
    };
    let target = world.create("shop");
    let mut taken = world.take(&target);
    world.effect("shop");
    settle(&mut taken, &world.dir("cp")).unwrap();
    changes(&taken, &world.dir("cp")).unwrap();
    let after = world.state("shop");
    world.sql("postgres", "DROP DATABASE atoll_cp_p_1");
    let (dir, kept) = (world.dir("cp"), world.dir("kept"));
    let limits = Limits::default();
    restore(&taken, &dir, &kept, Overwrite::No, &limits).unwrap_err();
    assert_eq!(world.databases(), ["shop"]);
    assert_eq!(world.state("shop"), after);
    // So it is where the process died before the names were exchanged.
    let id = fs::read_to_string(kept.join("id"))
        .unwrap()
        .replace('-', "_");
    world.sql("postgres", &format!("CREATE DATABASE shop_atoll_new_{id}"));
    assert_eq!(resume(&taken, &dir, &kept, &limits).unwrap(), None);
    assert_eq!(world.databases(), ["shop"]);
}

#[test]
fn dropped_database_is_made_again() {
    let Some(world) = World::new("dropped_database_is_made_again") else {
        return;
    };
    let target = world.create("shop");
    let before = world.state("shop");
    let mut taken = world.take(&target);
    world.sql("postgres", "DROP DATABASE shop");
    settle(&mut taken, &world.dir("cp")).unwrap();
    let restored = world.restore(&taken, "kept", Overwrite::No);
    assert_eq!((restored.kept, restored.restored.len()), (None, 1));
    assert_eq!(world.state("shop"), before);
}

#[test]
fn password_comes_from_a_passfile_alone() {
    let Some(world) = World::new("password_comes_from_a_passfile_alone") else {
        return;
    };
    world.create("shop");
    world.sql(
        "postgres",
        "CREATE ROLE locked LOGIN SUPERUSER PASSWORD 'hunter2'",
    );
    let mut database = world.database("shop");
    database.user = Some("locked".to_owned());
    let limits = Limits::default();
    let refused = take(
        &Target::Postgres(database.clone()),
        "p-1",
        &world.dir("cp"),
        &limits,
    );
    assert!(refused.unwrap_err().to_string().contains("password"));
    let passfile = world.dir("pass");
    fs::write(&passfile, "*:*:*:locked:hunter2\n").unwrap();
    fs::set_permissions(&passfile, PermissionsExt::from_mode(0o600)).unwrap();
    database.passfile = Some(passfile);
    let target = Target::Postgres(database);
    let taken = take(&target, "p-1", &world.dir("cp"), &limits).unwrap();
    assert_eq!(taken.how, How::Template);
    let record = fs::read_to_string(world.dir("cp/checkpoint.json")).unwrap();
    assert!(!record.contains("hunter2"));
}

#[test]
fn role_without_rights_gets_an_archive() {
    let Some(world) = World::new("role_without_rights_gets_an_archive") else {
        return;
    };
    world.create("shop");
    let reader = "CREATE ROLE reader LOGIN; GRANT pg_read_all_data TO reader;
        GRANT CONNECT ON DATABASE shop TO reader";
    world.sql("postgres", reader);
    let mut database = world.database("shop");
    database.user = Some("reader".to_owned());
    let limits = Limits {
        bytes_max: Some(1),
        ..Limits::default()
    };
    let target = Target::Postgres(database);
    let refused = take(&target, "p-1", &world.dir("cp"), &limits).unwrap_err();
    assert!(matches!(refused, Error::TooLarge { .. }), "{refused}");
    let taken = world.take(&target);
    assert_eq!(taken.how, How::Dump);
    let mode = fs::metadata(world.dir("cp/database.dump"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}
