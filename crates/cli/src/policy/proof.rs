//! `atoll policy prove` and `diff`: proofs that no request can do something, and the changes of
//! another version.

use std::path::{Path, PathBuf};

use atoll_cedar::{
    Action, Case, Known, Layer, Layers, PolicyFile, Property, Proving, Refuted, Subject, Verdict,
};
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::policy_changes::changes;
use atoll_engine::printable::printable;
use atoll_engine::prover::Programs;
use atoll_policy::Requested;
use serde_json::{Map, Value, json};

use super::{broken, is_toml, read, rules_here, usual};
use crate::arguments::{DiffPolicyArguments, ProvePolicyArguments};
use crate::output::Output;
use crate::requested::requested_profile;

/// The exit statuses if a property is refuted, if it is not decided, and if the prover is missing.
const STATUS_REFUTED: u8 = 1;
const STATUS_UNKNOWN: u8 = 2;
const STATUS_MISSING: u8 = 3;
/// The address at which clouds serve a machine's own secrets to any client.
const METADATA: &str = "169.254.169.254";

/// The subject of a proof, and the command that asks a question about it.
struct Of {
    subject: Subject,
    /// The arguments of `atoll policy ask` that mean it; none where it cannot be asked.
    asked_by: Option<Vec<String>>,
    /// True if people have written all of it.
    is_written: bool,
    /// The layers without the lower ones, each with its name.
    upper: Vec<(String, Subject)>,
    usual: Case,
}

/// Proves properties, or shows requests that refute them.
pub(super) fn prove(arguments: &ProvePolicyArguments, output: &Output) -> Result<u8, Failure> {
    let mut of = of(arguments)?;
    let named = properties(arguments, &mut of)?;
    let programs = Programs::find();
    let (names, properties): (Vec<String>, Vec<Property>) = named.into_iter().unzip();
    let mut names = names.iter();
    let mut all = Vec::new();
    let mut status = 0;
    let mut found = |verdict: Verdict| {
        let verdict = match arguments.json {
            true => verdict,
            false => shortly(&programs, verdict),
        };
        let name = names.next().map_or("", String::as_str);
        status = worse(status, &verdict);
        if arguments.json {
            all.push(in_json(name, &verdict));
        } else {
            let text = in_words(name, &verdict, of.asked_by.as_deref(), &of.usual);
            tell(&text, output);
        }
    };
    proven(
        &programs,
        (&of.subject, properties),
        (arguments.seconds, &of.usual),
        &mut found,
    );
    if arguments.json {
        output.json(&json!({"properties": all}));
    }
    Ok(ended(&programs, status, output))
}

/// Returns the status, after a warning if the prover is missing.
fn ended(programs: &Result<Programs, String>, status: u8, output: &Output) -> u8 {
    match programs {
        Ok(_) => status,
        Err(why) => {
            output.warn(&format!("nothing is proven: {why}"));
            STATUS_MISSING
        }
    }
}

/// Replaces a verdict if the prover is missing: the missing program is reported once, at the end.
fn shortly(programs: &Result<Programs, String>, verdict: Verdict) -> Verdict {
    match programs {
        Ok(_) => verdict,
        Err(_) => Verdict::Unknown("there is nothing here to prove it with".to_owned()),
    }
}

/// Has properties proven if possible, and hands on each verdict.
pub(super) fn proven(
    programs: &Result<Programs, String>,
    (subject, properties): (&Subject, Vec<Property>),
    (seconds, usual): (u16, &Case),
    found: &mut dyn FnMut(Verdict),
) {
    let programs = match programs {
        Ok(programs) => programs,
        Err(why) => {
            let each = properties.iter();
            return each.for_each(|_| found(Verdict::Unknown(why.clone())));
        }
    };
    let asked = Proving {
        subject: subject.clone(),
        properties,
        solver: programs.solver.clone(),
        seconds,
        usual: usual.clone(),
    };
    programs.prove(&asked, found);
}

/// Returns the worse status: a refutation outweighs all.
fn worse(status: u8, verdict: &Verdict) -> u8 {
    match verdict {
        Verdict::Proven => status,
        Verdict::Refuted(_) => STATUS_REFUTED,
        Verdict::Unknown(_) if status == STATUS_REFUTED => STATUS_REFUTED,
        Verdict::Unknown(_) => STATUS_UNKNOWN,
    }
}

fn of(arguments: &ProvePolicyArguments) -> Result<Of, Failure> {
    let is_name = |path: &PathBuf| path.extension().is_none() && path.components().count() == 1;
    match arguments.of.as_slice() {
        [] => here(arguments),
        [name] if is_name(name) || is_toml(name) => profile(name),
        files => of_files(files),
    }
}

/// Returns all policies that count in the current directory, at a level of trust if one is named.
fn here(arguments: &ProvePolicyArguments) -> Result<Of, Failure> {
    let stated = Requested {
        trust: arguments.trust.clone(),
        mode: arguments.mode.clone(),
        ..Requested::default()
    };
    let rules = rules_here(stated)?;
    let files = rules.policy_files();
    if files.iter().all(|(_, files)| files.is_empty()) {
        return Err(
            Failure::new("no policies count here: profiles alone decide").advise(
                "atoll policy prove NAME is about a profile, atoll policy prove FILE about files",
            ),
        );
    }
    // What the rules state of a run, which policies see.
    let mut usual = usual();
    rules.state(&mut usual);
    let trusted = |files: &[(Layer, Vec<PolicyFile>)]| {
        subject(files).map(|mut subject| {
            subject.trust.clone_from(&usual.trust);
            subject.is_strict = usual.is_strict;
            subject
        })
    };
    let written = |layer: Layer| {
        let mut all = files.iter();
        all.any(|(one, files)| *one == layer && !files.is_empty())
    };
    let mut upper = Vec::new();
    for lowest in [Layer::Organisation, Layer::User] {
        if written(lowest) {
            let above = files.iter().filter(|(one, _)| *one <= lowest).cloned();
            let above: Vec<(Layer, Vec<PolicyFile>)> = above.collect();
            upper.push((lowest.to_string(), trusted(&above)?));
        }
    }
    let said = [("--trust", &arguments.trust), ("--mode", &arguments.mode)];
    let asked_by = said.iter().flat_map(|(option, value)| {
        let value = value.iter();
        value.flat_map(|value| [(*option).to_owned(), value.clone()])
    });
    Ok(Of {
        subject: trusted(files)?,
        asked_by: Some(asked_by.collect()),
        is_written: arguments.trust.is_none() && arguments.mode.is_none(),
        upper,
        usual,
    })
}

/// Reads the rights of a profile, in Cedar.
fn profile(name: &Path) -> Result<Of, Failure> {
    let rules = rules_here(Requested {
        profile: Some(requested_profile(name.as_os_str())?),
        ..Requested::default()
    })?;
    let here = std::env::current_dir().doing("the current directory cannot be used")?;
    let file = PolicyFile {
        name: format!("profile {}", name.display()),
        content: rules.show_cedar(Some(&here)).into_bytes(),
    };
    Ok(Of {
        subject: subject(&[(Layer::User, vec![file])])?,
        asked_by: None,
        is_written: false,
        upper: Vec::new(),
        usual: usual(),
    })
}

fn of_files(files: &[PathBuf]) -> Result<Of, Failure> {
    let each: Result<Vec<PolicyFile>, Failure> = files.iter().map(|path| read(path)).collect();
    let asked_by = files
        .iter()
        .flat_map(|path| ["--file".to_owned(), path.display().to_string()]);
    Ok(Of {
        subject: subject(&[(Layer::User, each?)])?,
        asked_by: Some(asked_by.collect()),
        is_written: true,
        upper: Vec::new(),
        usual: usual(),
    })
}

fn compiled(files: &[(Layer, Vec<PolicyFile>)]) -> Result<Layers, Failure> {
    Layers::compile(files, &Known::default()).map_err(|faults| broken(&faults, files))
}

/// Prepares files for the prover; mistakes in them are errors.
fn subject(files: &[(Layer, Vec<PolicyFile>)]) -> Result<Subject, Failure> {
    compiled(files)?;
    Subject::new(files).map_err(Failure::new)
}

fn one_file(path: &Path) -> Result<Subject, Failure> {
    subject(&[(Layer::User, vec![read(path)?])])
}

/// Returns the named properties, or the generally useful ones if none is named.
fn properties(
    arguments: &ProvePolicyArguments,
    of: &mut Of,
) -> Result<Vec<(String, Property)>, Failure> {
    let mut all = Vec::new();
    if arguments.never_errors {
        all.push(("never-errors".to_owned(), Property::NeverErrors));
    }
    if arguments.every_policy_matters {
        all.push((
            "every-policy-matters".to_owned(),
            Property::EveryPolicyMatters,
        ));
    }
    for host in &arguments.nobody_reaches {
        all.push(nobody_reaches(host)?);
    }
    for name in &arguments.never_allows {
        let action = Action::named(name);
        let action = action.ok_or_else(|| {
            Failure::new(format!("{name:?} is nothing that is asked for"))
                .advise("atoll policy ask --help names all actions")
        })?;
        let condition = arguments.condition.clone();
        let of = condition
            .iter()
            .map(|condition| format!(" where {condition}"));
        let title = format!("never-allows {name}{}", of.collect::<String>());
        all.push((title, Property::NeverAllows { action, condition }));
    }
    for path in &arguments.only_tightens {
        let title = format!("only-tightens {}", path.display());
        all.push((title, Property::OnlyTightens(one_file(path)?)));
    }
    for path in &arguments.same {
        let title = format!("same {}", path.display());
        all.push((title, Property::Same(one_file(path)?)));
    }
    if !all.is_empty() {
        return Ok(all);
    }
    all.push(("never-errors".to_owned(), Property::NeverErrors));
    if of.is_written {
        all.push((
            "every-policy-matters".to_owned(),
            Property::EveryPolicyMatters,
        ));
    }
    all.push(nobody_reaches(METADATA)?);
    for (name, layers) in of.upper.drain(..) {
        let title = format!("only-tightens the {name}'s policies");
        all.push((title, Property::OnlyTightens(layers)));
    }
    Ok(all)
}

fn nobody_reaches(host: &str) -> Result<(String, Property), Failure> {
    let target = host.parse().map_err(|why: String| Failure::new(why))?;
    Ok((
        format!("nobody-reaches {host}"),
        Property::NobodyReaches(target),
    ))
}

fn in_words(name: &str, verdict: &Verdict, asked_by: Option<&[String]>, usual: &Case) -> String {
    match verdict {
        Verdict::Proven => format!("proven   {name}\n"),
        Verdict::Unknown(why) => format!("unknown  {name}\n         {why}\n"),
        Verdict::Refuted(refuted) => {
            let lines = refutation(refuted, asked_by, usual);
            let lines = lines.iter().map(|line| format!("         {line}\n"));
            format!("refuted  {name}\n{}", lines.collect::<String>())
        }
    }
}

pub(super) fn refutation(
    refuted: &Refuted,
    asked_by: Option<&[String]>,
    usual: &Case,
) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(refuted.case.as_ref().map(|case| described(case, usual)));
    lines.extend(refuted.told.lines().map(str::to_owned));
    if let (Some(case), Some(files)) = (&refuted.case, asked_by) {
        lines.push(command(case, files, usual));
    }
    lines
}

/// Describes a request.
fn described(case: &Case, usual: &Case) -> String {
    let mut text = match (&case.method, &case.path) {
        (Some(method), Some(path)) => {
            let scheme = case.scheme.as_deref().unwrap_or("https");
            let port = case.port.map(|port| format!(":{port}")).unwrap_or_default();
            let host = match case.resource.contains(':') {
                true => format!("[{}]", case.resource),
                false => case.resource.clone(),
            };
            format!("{} {method} {scheme}://{host}{port}{path}", case.action)
        }
        (_, _) => {
            let port = case
                .port
                .map(|port| format!(", port {port}"))
                .unwrap_or_default();
            format!("{} {}{port}", case.action, case.resource)
        }
    };
    for (name, value) in said(case, usual) {
        text.push_str(&format!(", {name} {value}"));
    }
    text
}

/// Returns the members of a case that have no option of their own and differ from the usual.
fn said(case: &Case, usual: &Case) -> Map<String, Value> {
    let mut all = whole(case);
    for own in [
        "action", "resource", "port", "scheme", "method", "path", "control",
    ] {
        all.remove(own);
    }
    let usual = whole(usual);
    all.retain(|name, value| usual.get(name) != Some(value));
    all
}

/// Returns a case's members that are set.
fn whole(case: &Case) -> Map<String, Value> {
    let Ok(Value::Object(mut all)) = serde_json::to_value(case) else {
        return Map::new();
    };
    all.retain(|_, value| !matches!(value, Value::Null | Value::Bool(false)) && *value != "");
    all
}

/// Returns the command that shows it.
fn command(case: &Case, files: &[String], usual: &Case) -> String {
    let mut words = vec![case.action.clone(), case.resource.clone()];
    let port = case.port.map(|port| port.to_string());
    for (option, value) in [
        ("--port", &port),
        ("--scheme", &case.scheme),
        ("--method", &case.method),
        ("--path", &case.path),
    ] {
        words.extend(
            value
                .iter()
                .flat_map(|value| [option.to_owned(), value.clone()]),
        );
    }
    if case.control {
        words.push("--control".to_owned());
    }
    for (name, value) in said(case, usual) {
        words.extend(["--with".to_owned(), format!("{name} = {value}")]);
    }
    words.extend(files.iter().cloned());
    let words: Vec<String> = words.iter().map(|word| typed(word)).collect();
    format!("atoll policy ask {}", words.join(" "))
}

/// Quotes a word for a shell.
fn typed(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=@,".contains(&byte);
    match !word.is_empty() && word.bytes().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

fn in_json(name: &str, verdict: &Verdict) -> Value {
    match verdict {
        Verdict::Proven => json!({"property": name, "verdict": "proven"}),
        Verdict::Unknown(why) => json!({"property": name, "verdict": "unknown", "why": why}),
        Verdict::Refuted(refuted) => {
            let case = refuted.case.as_ref().map(whole);
            json!({"property": name, "verdict": "refuted", "why": refuted.told, "case": case})
        }
    }
}

fn tell(text: &str, output: &Output) {
    let lines = text.lines().map(|line| printable(line.as_bytes()) + "\n");
    output.result(&lines.collect::<String>());
}

/// Prints the changes of another version.
pub(super) fn diff(arguments: &DiffPolicyArguments, output: &Output) -> Result<u8, Failure> {
    let file = |path: &Path| read(path).map(|file| [(Layer::User, vec![file])]);
    let (old, new) = (file(&arguments.old)?, file(&arguments.new)?);
    let changes = changes(&compiled(&old)?, &compiled(&new)?);
    let (old, new) = (subject(&old)?, subject(&new)?);
    let files = |path: &Path| ["--file".to_owned(), path.display().to_string()];
    let (of_new, of_old) = (files(&arguments.new), files(&arguments.old));
    let usual = usual();
    let programs = Programs::find();
    let prove = |one: &Subject, other: &Subject| {
        let mut answer = Verdict::Unknown("nothing was answered".to_owned());
        let properties = vec![Property::OnlyTightens(other.clone())];
        proven(
            &programs,
            (one, properties),
            (arguments.seconds, &usual),
            &mut |verdict| answer = verdict,
        );
        answer
    };
    let (wider, narrower) = (prove(&new, &old), prove(&old, &new));
    let status = match (&wider, &narrower) {
        (Verdict::Proven, Verdict::Proven) => 0,
        (Verdict::Refuted(_), _) | (_, Verdict::Refuted(_)) => STATUS_REFUTED,
        (_, _) => STATUS_UNKNOWN,
    };
    if arguments.json {
        let changes: Vec<Value> = changes
            .iter()
            .map(|(what, id)| json!({"policy": id, "change": what}))
            .collect();
        output.json(&json!({
            "policies": changes,
            "more-is-allowed": changed(&wider),
            "less-is-allowed": changed(&narrower),
        }));
        return Ok(ended(&programs, status, output));
    }
    let mut text: String = changes
        .iter()
        .map(|(what, id)| format!("{what:<7}  policy {id}\n"))
        .collect();
    let [wider, narrower] = [wider, narrower].map(|verdict| shortly(&programs, verdict));
    for (title, verdict, files) in [("more", &wider, &of_new), ("less", &narrower, &of_old)] {
        text.push_str(&match verdict {
            Verdict::Proven => format!("nothing {title} is allowed\n"),
            Verdict::Unknown(why) => format!("whether {title} is allowed cannot be said: {why}\n"),
            Verdict::Refuted(refuted) => {
                let lines = refutation(refuted, Some(files), &usual);
                let lines = lines.iter().map(|line| format!("         {line}\n"));
                format!("{title} is allowed:\n{}", lines.collect::<String>())
            }
        });
    }
    tell(&text, output);
    Ok(ended(&programs, status, output))
}

fn changed(verdict: &Verdict) -> Value {
    match verdict {
        Verdict::Proven => json!({"verdict": "no"}),
        Verdict::Unknown(why) => json!({"verdict": "unknown", "why": why}),
        Verdict::Refuted(refuted) => {
            let case = refuted.case.as_ref().map(whole);
            json!({"verdict": "yes", "why": refuted.told, "case": case})
        }
    }
}
