//! Times checkpoints, for benchmarks:
//!
//! - `times files DIRECTORY COUNT` makes a tree of that many files, and takes, settles, compares and
//!   restores it after an effect on each hundredth.
//! - `times postgres TARGET SQL` takes, runs the effect by `psql`, settles and restores, and makes a
//!   plain `CREATE DATABASE … TEMPLATE` to compare with.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use atoll_checkpoint::{Limits, Overwrite, Target, changes, discard, restore, settle, take};

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["files", directory, count] => files(Path::new(directory), count.parse()?),
        ["postgres", target, sql] => postgres(&target.parse()?, sql),
        _ => Err("usage: times files DIRECTORY COUNT | times postgres TARGET SQL".into()),
    }
}

fn timed<T>(name: &str, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let value = work();
    println!(
        "{name:<24} {:>9.1} ms",
        start.elapsed().as_secs_f64() * 1000.0
    );
    value
}

fn files(directory: &Path, count: usize) -> Outcome {
    let tree = directory.join("tree");
    let path = |number: usize| tree.join(format!("{}/{}/{number}", number / 10_000, number / 100));
    for number in 0..count {
        if number % 100 == 0 {
            path(number).parent().map_or(Ok(()), fs::create_dir_all)?;
        }
        fs::write(path(number), format!("{number:>2000}"))?;
    }
    let target = Target::Files { path: tree.clone() };
    let effect = || {
        (0..count)
            .step_by(100)
            .try_for_each(|number| fs::write(path(number), "effect"))
    };
    measure(&target, directory, effect)?;
    timed("cp -a, to compare with", || {
        let mut copy = Command::new("cp");
        copy.arg("-a")
            .arg(&tree)
            .arg(directory.join("cp-a"))
            .status()
    })?;
    Ok(())
}

fn measure(
    target: &Target,
    directory: &Path,
    effect: impl FnOnce() -> std::io::Result<()>,
) -> Outcome {
    let (dir, kept) = (directory.join("checkpoint"), directory.join("kept"));
    let limits = Limits::default();
    let mut taken = timed("take", || take(target, "times", &dir, &limits))?;
    println!(
        "{:?}, {} entries, {} bytes",
        taken.how, taken.entries, taken.bytes
    );
    effect()?;
    timed("settle", || settle(&mut taken, &dir))?;
    let found = timed("changes", || changes(&taken, &dir))?;
    println!("{} changes", found.len());
    let restored = timed("restore", || {
        restore(&taken, &dir, &kept, Overwrite::No, &limits)
    })?;
    println!(
        "{} restored, {} left",
        restored.restored.len(),
        restored.left.len()
    );
    timed("discard", || discard(&taken, &dir))?;
    if let Some(taken) = &restored.kept {
        discard(taken, &kept)?;
    }
    Ok(())
}

fn postgres(target: &Target, sql: &str) -> Outcome {
    let Target::Postgres(database) = target else {
        return Err("that is no PostgreSQL database".into());
    };
    let psql = |name: &str, sql: &str| {
        let mut psql = Command::new("psql");
        psql.args(["-X", "-q", "-d", name, "-c", sql]);
        let given = [("PGHOST", &database.host), ("PGUSER", &database.user)];
        psql.envs(
            given
                .into_iter()
                .filter_map(|(name, value)| Some((name, value.as_ref()?))),
        );
        psql.status().map(|_| ())
    };
    let name = database.database.as_str();
    let directory = std::env::temp_dir().join(format!("atoll-times-{}", std::process::id()));
    for strategy in ["FILE_COPY", "WAL_LOG"] {
        let copy = format!("CREATE DATABASE times_copy TEMPLATE \"{name}\" STRATEGY {strategy}");
        timed(&format!("createdb -T, {strategy}"), || {
            psql("postgres", &copy)
        })?;
        psql("postgres", "DROP DATABASE times_copy")?;
    }
    measure(target, &directory, || psql(name, sql))?;
    Ok(fs::remove_dir_all(&directory)?)
}
