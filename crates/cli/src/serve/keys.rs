//! `atoll serve keys`: makes, lists and revokes keys, also beside a server that runs.

use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use atoll_engine::configuration::Places;
use atoll_engine::failure::Failure;
use atoll_engine::printable::printable;
use atoll_model::parse_duration;
use atoll_store::{
    FIRST_TENANT, ISSUER_MARK, KeyRecord, KeyStore as _, NewKey, Role, Scope, Scopes, ServedStore,
};
use serde_json::{Value, json};

use super::{line, made, store, unusable};
use crate::arguments::{CreateKeyArguments, KeysAction, KeysArguments, ListKeysArguments};
use crate::output::Output;

pub(super) fn keys(
    places: &Places,
    arguments: &KeysArguments,
    output: &Output,
) -> Result<u8, Failure> {
    let store = store(places)?;
    match &arguments.action {
        KeysAction::Create(arguments) => create_key(&store, arguments, output),
        KeysAction::List(arguments) => list_keys(&store, arguments, output),
        KeysAction::Revoke(arguments) => {
            revoke_key(&store, &arguments.id)?;
            line(
                output,
                &format!("key {} is revoked", printable(arguments.id.as_bytes())),
            );
            Ok(0)
        }
    }
}

fn revoke_key(store: &ServedStore, id: &str) -> Result<(), Failure> {
    let refused = |why: String| {
        Failure::new("no key is revoked")
            .because(why)
            .advise("atoll serve keys list shows the ids")
    };
    if id.starts_with("e2b_") {
        return Err(refused("that is a key, and not its id".to_owned()));
    }
    let all = store.keys().map_err(|error| unusable(&error))?;
    match all.iter().find(|record| record.id == id) {
        Some(record) if record.revoked_s.is_some() => {
            Err(refused(format!("{id} is revoked already")))
        }
        _ => store
            .revoke_key(id)
            .map_err(|error| refused(error.to_string())),
    }
}

fn create_key(
    store: &ServedStore,
    arguments: &CreateKeyArguments,
    output: &Output,
) -> Result<u8, Failure> {
    let role = arguments.role.as_deref().unwrap_or(Role::User.name());
    let role = Role::parse(role).ok_or_else(|| {
        let names: Vec<_> = Role::ALL.iter().map(|role| role.name()).collect();
        Failure::new(format!("there is no role {role:?}"))
            .advise(format!("--role {}", names.join(", ")))
    })?;
    let tenant = arguments.tenant.as_deref().unwrap_or(FIRST_TENANT);
    if arguments.name.is_empty() || tenant.is_empty() {
        return Err(Failure::new(
            "a key has a name and a tenant, and none of them is empty",
        ));
    }
    if arguments.name.contains(ISSUER_MARK) {
        return Err(
            Failure::new(format!("no key has {ISSUER_MARK:?} in its name"))
                .because("that is in the names of callers with an issuer's token"),
        );
    }
    let wanted = NewKey {
        tenant,
        name: &arguments.name,
        role,
        scopes: scopes(&arguments.scope)?,
        expires_s: expires_s(arguments.expires.as_deref())?,
    };
    let (key, record) = made(store, &wanted)?;
    match arguments.json {
        true => {
            let mut told = described(&record);
            if let Some(fields) = told.as_object_mut() {
                fields.insert("key".to_owned(), json!(key));
            }
            output.json(&told);
        }
        false => {
            line(output, &key);
            let name = printable(record.name.as_bytes());
            let text = format!(
                "key {} of {name}, {} in {}{}; it is shown this once",
                record.id,
                record.role.name(),
                printable(record.tenant.as_bytes()),
                told_scopes(&record)
            );
            let _ = writeln!(io::stderr(), "{text}");
        }
    }
    Ok(0)
}

/// Reads the time until which a key is good; returns when that is over, seconds since 1970.
fn expires_s(text: Option<&str>) -> Result<Option<u64>, Failure> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let expires = text.map(parse_duration).transpose().map_err(|error| {
        Failure::new("--expires is no time")
            .because(error)
            .advise("--expires 30d")
    })?;
    Ok(expires.map(|time| (now + time).as_secs()))
}

/// Reads the scopes of a key; without any it may all that its role may.
fn scopes(names: &[String]) -> Result<Scopes, Failure> {
    if let Some(name) = names.iter().find(|name| Scope::parse(name).is_none()) {
        return Err(
            Failure::new(format!("there is no scope {name:?}")).advise(format!(
                "--scope {}",
                Scope::ALL.map(Scope::name).join(", ")
            )),
        );
    }
    Ok(match names.is_empty() {
        true => Scopes::All,
        false => Scopes::of(names.iter().map(String::as_str)),
    })
}

/// Tells of a key's scopes, if it has some.
fn told_scopes(record: &KeyRecord) -> String {
    let names = record.scopes.names();
    names.map_or_else(String::new, |names| format!(" for {}", names.join(", ")))
}

fn list_keys(
    store: &ServedStore,
    arguments: &ListKeysArguments,
    output: &Output,
) -> Result<u8, Failure> {
    let records = store.keys().map_err(|error| unusable(&error))?;
    if arguments.json {
        let all: Vec<Value> = records.iter().map(described).collect();
        output.json(&json!(all));
        return Ok(0);
    }
    if records.is_empty() {
        line(
            output,
            "There are no keys yet; atoll serve makes the first.",
        );
    }
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    for record in records {
        let state = match (record.revoked_s, record.expires_s) {
            (Some(_), _) => "revoked",
            (None, Some(at)) if at <= now.as_secs() => "expired",
            (None, _) => "valid",
        };
        line(
            output,
            &format!(
                "{}  {:<13}  {state:<7}  {}  {}{}",
                record.id,
                record.role.name(),
                printable(record.tenant.as_bytes()),
                printable(record.name.as_bytes()),
                told_scopes(&record),
            ),
        );
    }
    Ok(0)
}

fn described(record: &KeyRecord) -> Value {
    json!({
        "id": record.id,
        "tenant": record.tenant,
        "name": record.name,
        "role": record.role.name(),
        "scopes": record.scopes.names(),
        "created_s": record.created_s,
        "expires_s": record.expires_s,
        "revoked_s": record.revoked_s,
    })
}
