//! `atoll policy`: policies in Cedar shown, checked, asked and tested. Nothing here decides on a
//! run.

pub(crate) mod explain;
mod learn;
mod organisation;
mod proof;
mod purposes;
mod reload;
mod replay;
mod widening;

use atoll_engine::explain::facts::METHODS;
use atoll_engine::shell::word;
pub(crate) use reload::rereading;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use atoll_cedar::{
    Action, Case, Decision, Effect, Known, Layer, Layers, Policies, PolicyFile, SCHEMA, Standing,
    cases, closing, forbids_alone, purpose_of, remarks,
};
use atoll_policy::{Requested, Rules, SourceFile};

use crate::arguments::{
    AskPolicyArguments, CheckPolicyArguments, PolicyAction, PolicyArguments, ProvePolicyArguments,
    SchemaPolicyArguments, ShowPolicyArguments, TestPolicyArguments,
};
use crate::output::Output;
use crate::render;
use crate::requested::requested_profile;
use crate::status::STATUS_DENIED;
use atoll_engine::configuration::{self, Places, PolicyFiles};
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::printable::printable;

/// Shows, checks, asks or tests policies.
///
/// # Errors
/// When files cannot be read or have mistakes.
pub fn policy(arguments: PolicyArguments, output: &Output) -> Result<u8, Failure> {
    match arguments.action {
        PolicyAction::Show(arguments) => show(&arguments, output),
        PolicyAction::Check(arguments) => check(&arguments, output),
        PolicyAction::Ask(arguments) => ask(&arguments, output),
        PolicyAction::Explain(arguments) => explain::explain(&arguments, output),
        PolicyAction::Learn(arguments) => learn::learn(&arguments, output),
        PolicyAction::Replay(arguments) => replay::replay(&arguments, output),
        PolicyAction::Test(arguments) => test(&arguments, output),
        PolicyAction::Prove(arguments) => proof::prove(&arguments, output),
        PolicyAction::Diff(arguments) => proof::diff(&arguments, output),
        PolicyAction::Organisation(arguments) => {
            organisation::organisation(arguments.action, output)
        }
        PolicyAction::Reload(arguments) => reload::reload(&arguments, output),
        PolicyAction::Purposes(arguments) => purposes::list(&arguments, output),
        PolicyAction::Schema(SchemaPolicyArguments {}) => {
            output.result(SCHEMA);
            Ok(0)
        }
    }
}

/// Compiles the rules of a profile in the current directory, with all policies that count there.
fn rules_here(requested: Requested) -> Result<Rules, Failure> {
    let places = Places::read()?;
    let files = files_here(&places)?;
    let host = configuration::host_facts(&places)?;
    files
        .compile(&requested, "".as_ref(), &host)
        .map_err(|error| {
            Failure::new("the rules are invalid")
                .because(&error)
                .advise(error)
        })
}

fn files_here(places: &Places) -> Result<PolicyFiles, Failure> {
    let here = std::env::current_dir().doing("the current directory cannot be used")?;
    PolicyFiles::read(places, Some(&here))
}

fn show(arguments: &ShowPolicyArguments, output: &Output) -> Result<u8, Failure> {
    let name = arguments.profile.as_ref().unwrap_or(&arguments.name);
    let rules = rules_here(Requested {
        profile: Some(requested_profile(name)?),
        presets: arguments.preset.clone(),
        trust: arguments.trust.clone(),
        mode: arguments.mode.clone(),
        purpose: arguments.purpose.clone(),
        ..Requested::default()
    })?;
    if arguments.cedar {
        let here = std::env::current_dir().doing("the current directory cannot be used")?;
        let text = rules.show_cedar(Some(&here));
        let lines = text.lines().map(|line| printable(line.as_bytes()) + "\n");
        output.result(&lines.collect::<String>());
        return Ok(0);
    }
    let each = rules
        .policies()
        .into_iter()
        .flat_map(|layers| layers.each());
    if let Some(signed) = rules.signed() {
        let line = format!("organisation  signed by {signed}");
        output.result(&format!("{}\n", printable(line.as_bytes())));
    }
    let mut count = 0;
    for (layer, policies) in each {
        for (told, says) in policies.list() {
            count += 1;
            let line = format!(
                "{layer:<12}  {says:<6}  {}  {}:{}",
                told.id, told.file, told.line
            );
            output.result(&format!("{}\n", printable(line.as_bytes())));
        }
    }
    if let Some(text) = rules.level_cedar() {
        output.result(&format!("\n{text}"));
    }
    if arguments.purpose.is_some() {
        purposes::show(&rules, output);
    }
    for notice in rules.notices() {
        output.warn(&notice.to_string());
    }
    if count == 0 {
        output
            .say("No policies count here: profiles alone decide. --cedar shows one as policies.\n");
    }
    let version = render::short_version(rules.digest());
    output.say(&format!("{version} of profile {}\n", rules.profile()));
    Ok(0)
}

fn check(arguments: &CheckPolicyArguments, output: &Output) -> Result<u8, Failure> {
    let mut bad = false;
    if arguments.files.is_empty() {
        let files = files_here(&Places::read()?)?;
        if let Some(signed) = files.signed() {
            output.say(&format!("The organisation's are signed by {signed}.\n"));
        }
        let all: Vec<PolicyFile> = files.policies().map(policy_file).collect();
        if all.is_empty() {
            output.say(match arguments.prove {
                true => "There are no policies here: there is nothing to prove.\n",
                false => "There are no policies here.\n",
            });
            return Ok(0);
        }
        for file in all {
            bad |= check_one(file, output);
        }
    }
    for path in &arguments.files {
        if is_toml(path) {
            let advice = format!("atoll profile check {}", word(path));
            let what = format!("{} is TOML, and no file of policies", path.display());
            return Err(Failure::new(what).advise(advice));
        }
        bad |= check_one(read(path)?, output);
    }
    if !arguments.prove || bad {
        return Ok(u8::from(bad));
    }
    if arguments.files.is_empty() && !counts_any()? {
        output.say("None of them counts here: there is nothing to prove.\n");
        return Ok(0);
    }
    proof::prove(&ProvePolicyArguments::of(&arguments.files), output)
}

/// Returns whether user-written policies take part in decisions here.
fn counts_any() -> Result<bool, Failure> {
    let rules = rules_here(Requested::default())?;
    let mut files = rules.policy_files().iter();
    Ok(files.any(|(_, files)| !files.is_empty()))
}

/// Tells of one file. Whether it has mistakes.
fn check_one(file: PolicyFile, output: &Output) -> bool {
    let (name, content) = (file.name.clone(), file.content.clone());
    let tell = |text: String| output.result(&format!("{}\n", printable(text.as_bytes())));
    let mut wrong = match purpose_of(&file.name) {
        Some(_) => forbids_alone(&file),
        None => Vec::new(),
    };
    let compiled = Policies::compile(&[file], Known::default()).map_err(|faults| {
        wrong.extend(faults);
    });
    let policies = match compiled {
        Ok(policies) if wrong.is_empty() => policies,
        Ok(_) | Err(()) => {
            for fault in wrong {
                fault.to_string().lines().map(str::to_owned).for_each(tell);
                output.result(&render::excerpt(&content, fault.line, fault.column));
            }
            return true;
        }
    };
    let mut bad = false;
    let mut idle = BTreeSet::new();
    for remark in remarks(&policies).into_iter().chain(closing(&policies)) {
        match remark.standing {
            Standing::Note => {}
            Standing::Idle => {
                idle.insert(remark.line);
            }
            Standing::Refused => bad = true,
        }
        tell(format!(
            "{}:{}:1: {}",
            remark.file, remark.line, remark.what
        ));
    }
    if !bad {
        let count = render::counted(policies.len() as u64, "policy", "policies");
        let found = match idle.len() {
            0 => "no problems".to_owned(),
            idle => format!("{idle} that can never decide"),
        };
        output.say(&format!(
            "{}: {count}, {found}\n",
            printable(name.as_bytes())
        ));
    }
    bad
}

/// The note that an answer of policies alone is not the whole decision.
const POLICIES_ALONE: &str = "  by policies alone: a profile's rules decide besides; with the same \
                              words `atoll policy explain` asks both\n";

/// Returns the request for the run that is asked about, from options or from `--with`.
pub(crate) fn stated(arguments: &AskPolicyArguments, case: &Case) -> Result<Requested, Failure> {
    let profile = case.profile.as_deref().map(AsRef::as_ref);
    Ok(Requested {
        profile: profile.map(requested_profile).transpose()?,
        presets: arguments.preset.clone(),
        trust: case.trust.clone(),
        mode: arguments.mode.clone(),
        task: case.task.clone(),
        purpose: case.purpose.clone(),
        ..Requested::default()
    })
}

/// Refuses a question that states facts which do not count here, as more trust than an organisation
/// allows: its answer would be to another question.
pub(crate) fn refuse_uncounted(case: &Case, rules: &Rules) -> Result<(), Failure> {
    let mut counting = case.clone();
    rules.state(&mut counting);
    match uncounted(case, &counting) {
        None => Ok(()),
        Some(why) => Err(Failure::new("this cannot be asked").because(why)),
    }
}

fn uncounted(stated: &Case, counting: &Case) -> Option<String> {
    let all = [
        ("trust", &stated.trust, &counting.trust),
        ("task", &stated.task, &counting.task),
        ("purpose", &stated.purpose, &counting.purpose),
    ];
    all.into_iter().find_map(|(what, stated, counting)| {
        let stated = stated.as_deref().filter(|_| stated != counting)?;
        let counting = counting.as_deref().unwrap_or("not stated");
        Some(format!(
            "{what} is stated as {stated:?}, and counts as {counting:?} by the rules here"
        ))
    })
}

fn ask(arguments: &AskPolicyArguments, output: &Output) -> Result<u8, Failure> {
    let mut case = case(arguments)?;
    let mut widened = false;
    let found = if arguments.file.is_empty() {
        let rules = rules_here(stated(arguments, &case)?)?;
        refuse_uncounted(&case, &rules)?;
        widened = rules.widened().by_two.is_some();
        rules.state(&mut case);
        atoll_engine::reputation::state(&mut case, &rules);
        match rules.policies() {
            Some(layers) => case.ask(|question| layers.authorize(question)),
            None => case.ask(|question| Layers::default().authorize(question)),
        }
    } else {
        let files: Vec<PolicyFile> = arguments
            .file
            .iter()
            .map(|path| read(path))
            .collect::<Result<_, _>>()?;
        let layers = [(Layer::User, files)];
        let compiled = Layers::compile(&layers, &Known::default());
        let layers = compiled.map_err(|faults| broken(&faults, &layers))?;
        case.ask(|question| layers.authorize(question))
    };
    let found = found.map_err(|why| Failure::new("this cannot be asked").because(why))?;
    tell(&found, output);
    if found.effect == Effect::Ask {
        let by = by_whom(&found, &case.action, widened);
        output.result(&format!("  {}\n", printable(by.as_bytes())));
    }
    if found.effect != Effect::Deny {
        output.result(POLICIES_ALONE);
    }
    Ok(match found.effect {
        Effect::Allow => 0,
        Effect::Ask | Effect::Deny => STATUS_DENIED,
    })
}

/// Describes who approves it, and how many approvals it takes, if policies require any.
fn by_whom(found: &Decision, action: &str, takes_two: bool) -> String {
    if !found.asks_a_person() {
        return format!(
            "by {}: nobody but \"person\" can be asked, so that every run is denied this",
            found.agreeing().join(" and ")
        );
    }
    let where_asked = match atoll_cedar::Action::named(action) {
        Some(
            atoll_cedar::Action::Run | atoll_cedar::Action::Exec | atoll_cedar::Action::Publish,
        ) => "at the terminal of `atoll run`",
        Some(atoll_cedar::Action::Promote) => "at the terminal of `atoll apply`",
        Some(atoll_cedar::Action::Restore) => "at the terminal of `atoll undo`",
        Some(_) | None => "at the run's terminal or by `atoll approvals`",
    };
    let goes_out = !["run", "publish", "promote", "restore"].contains(&action);
    let two = match takes_two && goes_out {
        true => "; what lasts takes two (widen = 2)",
        false => "",
    };
    format!("by one person, {where_asked}{two}")
}

/// Returns the defaults of a question: the time is now, and the person is the one who asks.
fn usual() -> Case {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    Case {
        person: Some(configuration::principal().uid),
        time: now.map_or(0, |time| time.as_secs()),
        ..Case::default()
    }
}

/// Reads the question from the arguments.
pub(crate) fn case(arguments: &AskPolicyArguments) -> Result<Case, Failure> {
    let with = usual().with(&arguments.with);
    let with = with.map_err(|why| Failure::new("--with cannot be used").because(why))?;
    let with = Case {
        within: with.within.clone().or_else(|| within(arguments)),
        ..with
    };
    Ok(Case {
        action: arguments.what.clone().unwrap_or_default(),
        resource: arguments.resource.clone().unwrap_or_default(),
        port: arguments.port.or(with.port),
        look: arguments.look.clone().or(with.look),
        scheme: arguments.scheme.clone().or(with.scheme),
        method: arguments.method.as_deref().map(meant).or(with.method),
        path: arguments.path.clone().or(with.path),
        control: arguments.control || with.control,
        body: arguments.body || with.body,
        trust: arguments.trust.clone().or(with.trust),
        task: arguments.task.clone().or(with.task),
        purpose: arguments.purpose.clone().or(with.purpose),
        profile: arguments.profile.clone().or(with.profile),
        labels: match arguments.label.is_empty() {
            true => with.labels,
            false => Some(arguments.label.iter().cloned().collect()),
        },
        confidence: arguments.confidence.or(with.confidence),
        reputation: arguments.reputation.or(with.reputation),
        ..with
    })
}

/// Returns the path of a change within the current directory, the workspace of the run that is
/// asked about.
fn within(arguments: &AskPolicyArguments) -> Option<String> {
    let path = Path::new(arguments.resource.as_deref()?);
    let here = std::env::current_dir().ok()?;
    let within = path.strip_prefix(here).ok()?.to_str()?;
    let is_change = arguments.what.as_deref() == Some(Action::Promote.name());
    (is_change && !within.is_empty()).then(|| within.to_owned())
}

/// Normalises a method: well-known ones may be typed in lower case.
fn meant(method: &str) -> String {
    let known = METHODS.iter().find(|one| one.eq_ignore_ascii_case(method));
    known.map_or_else(|| method.to_owned(), |one| (*one).to_owned())
}

fn tell(found: &Decision, output: &Output) {
    let mut text = format!("{}: {}\n", found.effect, found.why());
    for one in found.obligations.written() {
        text.push_str(&format!("  with {one}\n"));
    }
    for one in &found.reported {
        text.push_str(&format!(
            "  {one} does not count yet (@report_only), and would have {} it ({}:{})\n",
            one.effect.done(),
            one.file,
            one.line
        ));
    }
    let lines = text.lines().map(|line| printable(line.as_bytes()) + "\n");
    output.result(&lines.collect::<String>());
}

fn test(arguments: &TestPolicyArguments, output: &Output) -> Result<u8, Failure> {
    let (mut count, mut failed) = (0_u64, 0_u64);
    for path in &arguments.files {
        if is_toml(path) {
            let name = path.display().to_string();
            let policies = name.strip_suffix(".test.toml").unwrap_or("FILE");
            return Err(Failure::new(format!("{name} is no file of policies"))
                .because("give the .cedar file: its tests are read from beside it")
                .advise(format!("atoll policy test {policies}.cedar")));
        }
        let layers = [(Layer::User, vec![read(path)?])];
        let compiled = Layers::compile(&layers, &Known::default());
        let layer = compiled.map_err(|faults| broken(&faults, &layers))?;
        let beside = path.with_extension("test.toml");
        let text = read(&beside)?.content;
        let text = String::from_utf8(text).doing(&format!("{} is not UTF-8", beside.display()))?;
        let name = beside.display();
        let all = cases(&text)
            .map_err(|why| Failure::new(format!("{name} cannot be used")).because(why))?;
        for (at, case) in all.iter().enumerate() {
            count += 1;
            let found = case.ask(|question| layer.authorize(question));
            let wrong = match &found {
                Ok(found) => case.difference(found),
                Err(why) => Some(why.clone()),
            };
            if let Some(wrong) = wrong {
                failed += 1;
                let line = format!("{name}: case {} {:?}: {wrong}", at + 1, case.name);
                output.result(&format!("{}\n", printable(line.as_bytes())));
            }
        }
    }
    let cases = render::counted(count, "case", "cases");
    output.say(&match failed {
        0 => format!("{cases}, all as expected\n"),
        failed => format!("{cases}, {failed} not as expected\n"),
    });
    Ok(u8::from(failed > 0))
}

fn is_toml(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "toml")
}

fn broken(faults: &[atoll_cedar::Fault], layers: &[(Layer, Vec<PolicyFile>)]) -> Failure {
    let files = || layers.iter().flat_map(|(_, files)| files);
    let told = faults.iter().map(|fault| {
        let file = files().find(|file| file.name == fault.file);
        let content = file.map_or(&[][..], |file| &file.content);
        format!(
            "{fault}\n{}",
            render::excerpt(content, fault.line, fault.column)
        )
    });
    Failure::new("the policies have mistakes")
        .because(told.collect::<String>().trim_end())
        .advise("atoll policy check FILE tells all of them")
}

/// Reads a policy file.
pub(crate) fn read(path: &Path) -> Result<PolicyFile, Failure> {
    let absolute = std::path::absolute(path).doing("the path is not usable")?;
    let file = configuration::read_optional(&absolute)?;
    let file = file.ok_or_else(|| {
        Failure::new(format!("there is no file {}", path.display()))
            .because("policies that are asked are named as files in Cedar: own.cedar")
            .advise("atoll policy show lists those that count here, with their files")
    })?;
    Ok(policy_file(&file))
}

fn policy_file(file: &SourceFile<'_>) -> PolicyFile {
    PolicyFile {
        name: file.name.to_string(),
        content: file.content.to_vec(),
    }
}

#[cfg(test)]
mod tests;
