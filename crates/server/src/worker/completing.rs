//! The sandbox's own part in a request for a program: its user, directory and variables.

use std::io::Read;

use atoll_model::{RESIDENT, ServedExec};
use tokio::task::spawn_blocking;

use super::answers::fault;
use super::files;
use super::living::Living;
use super::template::Rooted;
use crate::protocol::{Kind, Refusal, StartAsk};

/// The longest list of users that is read, bytes.
const USERS_BYTES_MAX: u64 = 1 << 20;
/// The number of ids in a sandbox.
const IDS: u32 = 65_536;
/// The user that has every right.
const ROOT: &str = "root";

/// A user of a sandbox.
struct User {
    name: String,
    uid: u32,
    gid: u32,
    home: String,
}

/// Completes a request by what is the sandbox's own.
pub(super) async fn completed(
    living: &Living,
    mut ask: StartAsk,
    by: &mut ServedExec,
) -> Result<StartAsk, Refusal> {
    match &living.spec.rooted {
        None => check_user(ask.user.as_deref())?,
        Some(rooted) => become_user(living, rooted, &mut ask, by).await?,
    }
    if let Some(directory) = &mut ask.directory {
        let path = files::place(directory).to_string_lossy().into_owned();
        let is_there = living.files.stat(&path).await;
        let missing = |_| Refusal::new(Kind::Invalid, format!("cwd '{directory}' does not exist"));
        is_there.map_err(missing)?;
        *directory = path;
    }
    let own = living.spec.environment.iter();
    let own = own.filter(|(name, _)| !ask.environment.contains_key(*name));
    let own: Vec<_> = own
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    ask.environment.extend(own);
    look_in_path(&mut ask);
    Ok(ask)
}

/// Has a program that is named without a path be looked for by the shell, where the sandbox or the
/// request has a search path of its own: the run's is another one.
fn look_in_path(ask: &mut StartAsk) {
    let is_named = |program: &String| !program.is_empty() && !program.contains('/');
    if ask.environment.contains_key("PATH") && ask.command.first().is_some_and(is_named) {
        let by_shell = ["/bin/sh", "-c", "exec \"$0\" \"$@\""].map(str::to_owned);
        ask.command.splice(0..0, by_shell);
    }
}

/// Finds the user that a program becomes. What the sandbox says of its users chooses among ids that
/// are all its own.
async fn become_user(
    living: &Living,
    rooted: &Rooted,
    ask: &mut StartAsk,
    by: &mut ServedExec,
) -> Result<(), Refusal> {
    let named = ask.user.clone().filter(|name| !name.is_empty());
    let named = named.unwrap_or_else(|| rooted.user.clone());
    // A group is that of its user.
    let name = named.split(':').next().unwrap_or_default();
    let user = user(living, name).await?;
    by.user = (user.uid != 0).then_some((user.uid, user.gid));
    if ask.directory.is_none() {
        let own = rooted
            .directory
            .clone()
            .filter(|_| rooted.user.split(':').next() == Some(name));
        ask.directory = own.or(Some(user.home.clone()));
    }
    let own = [
        ("HOME", &user.home),
        ("USER", &user.name),
        ("LOGNAME", &user.name),
    ];
    for (name, value) in own {
        let variables = &mut ask.environment;
        variables
            .entry(name.to_owned())
            .or_insert_with(|| value.clone());
    }
    Ok(())
}

async fn user(living: &Living, name: &str) -> Result<User, Refusal> {
    let user = |name: &str, uid: u32, gid: u32, home: &str| User {
        name: name.to_owned(),
        uid,
        gid,
        home: home.to_owned(),
    };
    if name == ROOT {
        return Ok(user(ROOT, 0, 0, "/root"));
    }
    if name == RESIDENT.name {
        return Ok(user(
            RESIDENT.name,
            RESIDENT.uid,
            RESIDENT.gid,
            RESIDENT.home,
        ));
    }
    let sandbox = std::sync::Arc::clone(&living.sandbox);
    let read = spawn_blocking(move || {
        let mut text = String::new();
        let file = sandbox.open(std::path::Path::new("/etc/passwd")).ok();
        let read = file.map(|file| file.take(USERS_BYTES_MAX).read_to_string(&mut text));
        read.is_some_and(|read| read.is_ok()).then_some(text)
    });
    let text = read
        .await
        .map_err(|error| fault(&error))?
        .unwrap_or_default();
    let number: Option<u32> = name.parse().ok();
    let found = text.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [found, _, uid, gid, _, home, ..] = fields.as_slice() else {
            return None;
        };
        let (uid, gid): (u32, u32) = (uid.parse().ok()?, gid.parse().ok()?);
        (*found == name || number == Some(uid)).then(|| user(found, uid, gid, home))
    });
    match (found, number) {
        (Some(found), _) if found.uid < IDS && found.gid < IDS => Ok(found),
        (None, Some(uid)) if uid < IDS => Ok(user(name, uid, uid, "/")),
        _ => Err(Refusal::new(
            Kind::Unauthenticated,
            format!("invalid username: '{name}'"),
        )),
    }
}

/// Refuses a user that no program can be.
fn check_user(user: Option<&str>) -> Result<(), Refusal> {
    match user {
        None | Some("") => Ok(()),
        Some(name) if name == RESIDENT.name => Ok(()),
        Some(name) => {
            let refusal =
                Refusal::new(Kind::Unauthenticated, format!("invalid username: '{name}'"));
            Err(refusal.advise(format!(
                "every program is {:?} in these sandboxes; those of a template that was built can \
                 be root",
                RESIDENT.name
            )))
        }
    }
}
