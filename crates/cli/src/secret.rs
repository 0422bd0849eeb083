//! `atoll secret`: the vault of sealed credentials, and the key that opens it.

mod typed;

use std::io::{IsTerminal, Read};

use atoll_egress::secret::BYTES_MIN;
use atoll_egress::{SECRET_BYTES_MAX, VaultKey, VaultSealError};
use atoll_engine::configuration::Places;
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::printable::printable;
use atoll_engine::secrets::{Stopped, existing, key_file, key_of, keyring, record};
use atoll_ledger::host_text;
use atoll_model::{civil_date, format_duration};
use atoll_store::{KeyKept, Vault};
use serde_json::json;
use zeroize::Zeroizing;

use crate::arguments::{
    KeyPlace, ListSecretsArguments, RemoveSecretsArguments, SecretAction, SecretArguments,
    SetSecretArguments, UnlockArguments, VaultKeyArguments,
};
use crate::output::Output;

/// The shortest passphrase, bytes: a shorter one could be found by trying for a day.
const PASSPHRASE_BYTES_MIN: usize = 8;

/// Puts secrets in, names them or takes them out.
pub fn secret(arguments: SecretArguments, output: &Output) -> Result<u8, Failure> {
    let places = Places::read()?;
    if matches!(
        arguments.action,
        SecretAction::Set(_) | SecretAction::Key(_) | SecretAction::Unlock(_)
    ) {
        atoll_egress::hold_alone()
            .doing("this process cannot be closed to others, so it reads no secret")?;
    }
    match arguments.action {
        SecretAction::Set(arguments) => set(&places, arguments, output),
        SecretAction::List(arguments) => list(&places, &arguments, output),
        SecretAction::Remove(arguments) => remove(&places, arguments, output),
        SecretAction::Key(arguments) => keep_key(&places, &arguments, output),
        SecretAction::Unlock(arguments) => unlock(&places, &arguments, output),
        SecretAction::Lock(_) => lock(&places, output),
    }
}

fn set(places: &Places, arguments: SetSecretArguments, output: &Output) -> Result<u8, Failure> {
    let SetSecretArguments { name, file } = arguments;
    let secret = match file {
        Some(path) => {
            let shown = printable(path.as_os_str().as_encoded_bytes());
            let unread = |error| {
                Failure::new(format!("{shown} cannot be read"))
                    .because(error)
                    .advise(format!(
                        "atoll secret set {name} --file FILE takes a file of yours"
                    ))
            };
            whole(std::fs::File::open(&path).map_err(unread)?)?
        }
        None => asked(output, &format!("The secret {name} (nothing is shown): "))?,
    };
    if secret.is_empty() {
        return Err(Failure::new(format!("nothing was given for {name}"))
            .advise(format!("printf %s \"$TOKEN\" | atoll secret set {name}")));
    }
    let state = places.open_state()?;
    let mut is_new = true;
    Vault::change(&state, |vault| {
        let key = key_of(places, vault)?;
        let sealed = key.seal(name.as_str(), &secret)?;
        is_new = !vault.secrets().contains_key(&name);
        vault.put(name.clone(), sealed, std::time::SystemTime::now())?;
        Ok::<(), Stopped>(())
    })?;
    record(&state, "secret.set", json!({ "name": name }))?;
    let how = if is_new { "is kept" } else { "is replaced" };
    output.say(&format!("{name} {how}, sealed.\n"));
    if secret.len() < BYTES_MIN {
        output.warn(&format!(
            "{name} has {} bytes: no credential can be made of it, which takes {BYTES_MIN}, of which \
             64 bits cannot be guessed",
            secret.len()
        ));
    }
    Ok(0)
}

fn list(places: &Places, arguments: &ListSecretsArguments, output: &Output) -> Result<u8, Failure> {
    let vault = existing(places)?;
    let secrets = vault.iter().flat_map(Vault::secrets);
    if arguments.json {
        let secrets: Vec<_> = secrets
            .map(|(name, secret)| json!({ "name": name, "changed-s": secret.changed_s }))
            .collect();
        let path = vault.as_ref().map(|vault| host_text(vault.path()));
        output.json(&json!({ "secrets": secrets, "path": path }));
        return Ok(0);
    }
    let mut text = String::new();
    for (name, secret) in secrets {
        let (year, month, day) = civil_date(secret.changed_s / 86_400);
        text.push_str(&format!("{name}  {year}-{month:02}-{day:02}\n"));
    }
    if text.is_empty() {
        output.say("There are no secrets. atoll secret set NAME puts one in.\n");
    }
    output.result(&text);
    Ok(0)
}

fn remove(
    places: &Places,
    arguments: RemoveSecretsArguments,
    output: &Output,
) -> Result<u8, Failure> {
    let state = places.open_state()?;
    let known = existing(places)?;
    let is_known = |name: &&_| {
        let mut all = known.iter().flat_map(|vault| vault.secrets().keys());
        all.any(|one| one == *name)
    };
    if let Some(unknown) = arguments.names.iter().find(|name| !is_known(name)) {
        return Err(Failure::new(format!("there is no secret {unknown}"))
            .because("nothing was removed")
            .advise("atoll secret list names those that there are"));
    }
    Vault::change(&state, |vault| {
        for name in &arguments.names {
            vault.remove(name);
        }
        Ok::<(), Stopped>(())
    })?;
    for name in arguments.names {
        record(&state, "secret.removed", json!({ "name": name }))?;
        output.say(&format!("{name} is removed.\n"));
    }
    Ok(0)
}

fn keep_key(
    places: &Places,
    arguments: &VaultKeyArguments,
    output: &Output,
) -> Result<u8, Failure> {
    let Some(to) = arguments.kept else {
        return show_key(places, output);
    };
    let passphrase = match to {
        KeyPlace::File => None,
        KeyPlace::Passphrase => Some(chosen(output)?),
    };
    let state = places.open_state()?;
    Vault::change(&state, |vault| {
        let key = key_of(places, vault)?;
        match &passphrase {
            None => {
                key_file(places, vault)?.write(key.expose())?;
                vault.keep_key(KeyKept::File);
            }
            Some(passphrase) => {
                // Another key: who has a copy of a file with the old one opens nothing.
                let new = VaultKey::generate()?;
                vault.reseal(|name, sealed| {
                    let secret = key.open(name.as_str(), sealed)?;
                    new.seal(name.as_str(), &secret)
                })?;
                let wrapped = new.wrap(passphrase)?;
                vault.keep_key(KeyKept::Passphrase { wrapped });
            }
        }
        Ok::<(), Stopped>(())
    })?;
    let kept = match to {
        KeyPlace::File => "file",
        KeyPlace::Passphrase => "passphrase",
    };
    // Only now that the vault says so, and while nobody else changes it: what is cut short
    // before leaves both ways.
    Vault::change(&state, |vault| {
        if matches!(vault.key(), KeyKept::Passphrase { .. }) {
            key_file(places, vault)?.remove()?;
        }
        // What an unlock has kept may open nothing any more.
        keyring::forget(vault.path());
        Ok::<(), Stopped>(())
    })?;
    record(&state, "vault.key-kept", json!({ "how": kept }))?;
    show_key(places, output)
}

fn show_key(places: &Places, output: &Output) -> Result<u8, Failure> {
    let vault = existing(places)?;
    let text = match vault.as_ref().map(|vault| (vault.key(), vault)) {
        None => "There are no secrets yet, and no key.\n".to_owned(),
        Some((KeyKept::File, vault)) => {
            let file = key_file(places, vault)?;
            let is_there = file.read(|_| ()).map_err(Stopped::from)?.is_some();
            let path = file.path();
            let path = printable(path.as_os_str().as_encoded_bytes());
            match is_there {
                true => format!("The key is in {path}.\n"),
                false => format!("The key is to be in {path}, and is not there.\n"),
            }
        }
        Some((KeyKept::Passphrase { .. }, vault)) => {
            let now = match keyring::key(vault.path()) {
                Some(_) => "unlocked",
                None => "locked",
            };
            format!("A passphrase gives the key; it is {now} now.\n")
        }
    };
    output.say(&text);
    Ok(0)
}

fn unlock(places: &Places, arguments: &UnlockArguments, output: &Output) -> Result<u8, Failure> {
    let vault = existing(places)?;
    let kept = vault.as_ref().map(|vault| (vault.key(), vault.path()));
    let Some((KeyKept::Passphrase { wrapped }, path)) = kept else {
        return Err(Failure::new("there is no passphrase to unlock with")
            .advise("atoll secret key passphrase has the key kept by one"));
    };
    let passphrase = asked(output, "The passphrase (nothing is shown): ")?;
    let key = VaultKey::unwrap(wrapped, &passphrase).map_err(|fault| {
        Failure::new("the vault stays locked").because(match fault {
            VaultSealError::Sealed => "it is another passphrase".to_owned(),
            other => other.to_string(),
        })
    })?;
    keyring::keep(path, &key, arguments.lasts).map_err(|error| {
        Failure::new("this kernel does not keep the key")
            .because(error)
            .advise("atoll secret key file keeps it in a file")
    })?;
    output.say(&format!(
        "Unlocked for {}; atoll secret lock forgets it before.\n",
        format_duration(arguments.lasts)
    ));
    Ok(0)
}

fn lock(places: &Places, output: &Output) -> Result<u8, Failure> {
    let vault = existing(places)?;
    let was_there = vault.is_some_and(|vault| keyring::forget(vault.path()));
    output.say(match was_there {
        true => "Locked.\n",
        false => "It was not unlocked.\n",
    });
    Ok(0)
}

/// Reads a new passphrase, typed twice on a terminal.
fn chosen(output: &Output) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let first = asked(output, "A new passphrase (nothing is shown): ")?;
    if first.len() < PASSPHRASE_BYTES_MIN {
        return Err(Failure::new("that passphrase is too short")
            .because(format!(
                "it has to have {PASSPHRASE_BYTES_MIN} bytes or more"
            ))
            .advise("take some words that nobody would put together"));
    }
    if std::io::stdin().is_terminal() && asked(output, "Once more: ")? != first {
        return Err(Failure::new("these were two passphrases").because("nothing was changed"));
    }
    Ok(first)
}

/// Reads a secret, typed without echo, or else all of standard input without its last newline.
fn asked(output: &Output, question: &str) -> Result<Zeroizing<Vec<u8>>, Failure> {
    if std::io::stdin().is_terminal() {
        output.say(question);
        let typed = typed::unseen(SECRET_BYTES_MAX);
        output.say("\n");
        return typed
            .ok_or_else(|| Failure::new("nothing was changed").because("it was cancelled"));
    }
    // Past the standard library's buffer, which nobody would wipe.
    let input = rustix::io::dup(std::io::stdin()).doing("the secret cannot be read")?;
    let mut given = whole(std::fs::File::from(input))?;
    if given.ends_with(b"\n") {
        given.pop();
    }
    if given.ends_with(b"\r") {
        given.pop();
    }
    Ok(given)
}

/// Reads everything, into memory that is wiped.
fn whole(from: impl Read) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let limit = SECRET_BYTES_MAX.saturating_add(1);
    // With room for all of it: what a vector leaves behind when it grows is not wiped.
    let mut bytes = Zeroizing::new(Vec::with_capacity(limit.saturating_add(1)));
    let mut limited = from.take(limit as u64);
    limited
        .read_to_end(&mut bytes)
        .doing("the secret cannot be read")?;
    if bytes.len() > SECRET_BYTES_MAX {
        return Err(Failure::new("nothing was kept")
            .because(VaultSealError::TooLong)
            .advise("a secret is a token, a key or a small file: name what it is about alone"));
    }
    Ok(bytes)
}
