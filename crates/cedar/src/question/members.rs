//! The members of a question's context.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::IpAddr;

use atoll_model::network::{HostPart, Request};
use cedar_policy::RestrictedExpression;

use super::{Exec, Follows, Needs};
use crate::{ArtifactFacts, ChangeFacts, Served, ShadowFacts, segments};

/// The most arguments of an exec that policies are asked about.
const ARGUMENTS_MAX: usize = 4096;

/// The most bytes of all arguments of an exec that policies are asked about.
const ARGUMENTS_BYTES_MAX: usize = 256 << 10;

pub(super) fn of_server(served: &Served) -> Result<(String, RestrictedExpression), String> {
    let mut members = vec![
        text("tenant", &served.tenant),
        text("template", &served.template),
        texts("metadata", &served.metadata),
        texts("volumes", &served.volumes),
    ];
    let caller = served.caller.as_deref();
    members.extend(caller.map(|caller| text("caller", caller)));
    let record = RestrictedExpression::new_record(members).map_err(|error| error.to_string())?;
    Ok(("served".to_owned(), record))
}

pub(super) fn of_exec(
    exec: &Exec<'_>,
    needs: Needs,
    to: &mut Vec<(String, RestrictedExpression)>,
) -> Result<(), String> {
    let directory = exec.directory.to_str();
    let directory = directory.ok_or("the directory that it starts in is not UTF-8")?;
    to.push(text("directory", directory));
    to.push(text("sandbox", exec.sandbox));
    to.push(truth("terminal", exec.terminal));
    if !needs.arguments {
        return Ok(());
    }
    let bytes: usize = exec.arguments.iter().map(|one| one.len()).sum();
    if exec.arguments.len() > ARGUMENTS_MAX || bytes > ARGUMENTS_BYTES_MAX {
        return Err(format!(
            "it has more than {ARGUMENTS_MAX} arguments, or more than {ARGUMENTS_BYTES_MAX} bytes \
             of them"
        ));
    }
    let one = |argument: &OsString| {
        let argument = argument.to_str().ok_or("an argument is not UTF-8")?;
        Ok(RestrictedExpression::new_string(argument.to_owned()))
    };
    let all = exec.arguments.iter().map(one);
    let all = all.collect::<Result<Vec<_>, String>>()?;
    to.push(("arguments".to_owned(), RestrictedExpression::new_set(all)));
    Ok(())
}

pub(super) fn of_request(
    request: &Request<'_>,
    needs: Needs,
    to: &mut Vec<(String, RestrictedExpression)>,
) -> Result<(), String> {
    let path = request.target.path();
    to.push(long("port", i64::from(request.port)));
    to.extend(address(request.host));
    to.push(text("scheme", &request.scheme.to_string()));
    to.push(text("method", request.method));
    to.push(text("path", path));
    to.extend(request.target.query().map(|query| text("query", query)));
    to.push(long("depth", segments::depth(path)));
    to.push(truth("unclear", request.target.unclear().is_some()));
    let record = |path: &str| segments::record(path).ok_or("a path has no segments");
    if needs.segments {
        to.push(("segments".to_owned(), record(path)?));
    }
    if needs.loose {
        let path = segments::loose(path);
        let method = request.method.to_ascii_uppercase();
        let mut loose = vec![
            text("method", &method),
            text("path", &path),
            long("depth", segments::depth(&path)),
        ];
        if needs.segments {
            loose.push(("segments".to_owned(), record(&path)?));
        }
        let loose = RestrictedExpression::new_record(loose).map_err(|error| error.to_string())?;
        to.push(("loose".to_owned(), loose));
    }
    Ok(())
}

/// Returns whether a request sends more than a plain query for a resource. A method in another case
/// is another method.
pub(super) fn sends(request: &Request<'_>, follows: Follows) -> bool {
    follows != Follows::Nothing || !["GET", "HEAD"].contains(&request.method)
}

pub(super) fn address(host: &HostPart) -> Option<(String, RestrictedExpression)> {
    match host {
        HostPart::Name(_) => None,
        HostPart::Address(address) => Some(ip("ip", *address)),
    }
}

fn ip(name: &str, address: IpAddr) -> (String, RestrictedExpression) {
    let address = RestrictedExpression::new_ip(address.to_string());
    (name.to_owned(), address)
}

pub(super) fn text(name: &str, value: &str) -> (String, RestrictedExpression) {
    let value = RestrictedExpression::new_string(value.to_owned());
    (name.to_owned(), value)
}

pub(super) fn texts(name: &str, values: &BTreeSet<String>) -> (String, RestrictedExpression) {
    let values = values.iter().cloned();
    let values = values.map(RestrictedExpression::new_string);
    (name.to_owned(), RestrictedExpression::new_set(values))
}

pub(super) fn long(name: &str, value: i64) -> (String, RestrictedExpression) {
    (name.to_owned(), RestrictedExpression::new_long(value))
}

pub(super) fn truth(name: &str, value: bool) -> (String, RestrictedExpression) {
    (name.to_owned(), RestrictedExpression::new_bool(value))
}

/// Adds what is known of changes that are applied.
pub(super) fn of_changes(
    changes: &ChangeFacts,
    to: &mut Vec<(String, RestrictedExpression)>,
) -> Result<(), String> {
    to.extend(changes.run.as_deref().map(|run| text("run", run)));
    let paths = changes.paths;
    let paths = paths.map(|paths| i64::try_from(paths).unwrap_or(i64::MAX));
    to.extend(paths.map(|paths| long("paths", paths)));
    let checks = changes.checks.as_deref();
    to.extend(checks.map(|checks| text("checks", checks)));
    to.extend(changes.shadowed.as_ref().map(of_shadow).transpose()?);
    to.extend(made_by(changes));
    Ok(())
}

/// Returns what is known of the change set of a shadow run.
fn of_shadow(change: &ShadowFacts) -> Result<(String, RestrictedExpression), String> {
    let count = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let mut members = vec![
        text("kind", &change.kind),
        text("tool", &change.tool),
        text("digest", &change.digest),
        long("bytes", count(change.bytes)),
    ];
    members.extend(change.files.map(|files| long("files", count(files))));
    if let Some(rows) = change.rows {
        members.push(long("rows", count(rows)));
        members.push(texts("tables", &change.tables));
    }
    let method = change.method.as_deref();
    members.extend(method.map(|method| text("method", method)));
    members.extend(change.status.map(|status| long("status", status.into())));
    let record = RestrictedExpression::new_record(members).map_err(|error| error.to_string())?;
    Ok(("change".to_owned(), record))
}

/// Returns what is known of an artifact.
pub(super) fn of_artifact(
    artifact: &ArtifactFacts,
) -> Result<(String, RestrictedExpression), String> {
    let mut members = vec![
        long("bytes", i64::try_from(artifact.bytes).unwrap_or(i64::MAX)),
        text("media", &artifact.media),
        truth("clean", artifact.clean),
        texts("scans", &artifact.scans),
        texts("found", &artifact.found),
        truth("interrupted", artifact.interrupted),
    ];
    let tenant = artifact.tenant.as_deref();
    members.extend(tenant.map(|tenant| text("tenant", tenant)));
    let record = RestrictedExpression::new_record(members).map_err(|error| error.to_string())?;
    Ok(("artifact".to_owned(), record))
}

/// Returns the user number of who started the run that made changes.
pub(super) fn made_by(changes: &ChangeFacts) -> Option<(String, RestrictedExpression)> {
    changes.made_by.map(|user| long("made_by", user.into()))
}
