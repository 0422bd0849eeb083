mod level;
mod login;

use std::ffi::OsStr;
use std::mem;

use crate::Notice;
use crate::bounds::{
    bound_by_organisation, bound_trust, deny_places, deny_variables, settle_workspace,
};
use crate::digest::PolicyDigest;
use crate::error::ProfileError;
use crate::file::SourceFile;
use crate::labels::LabelRules;
use crate::layers::{Organisation, UserConfig};
use crate::levels::{TrustRules, TrustSettings};
use crate::load::{choose, load};
use crate::merge::{Draft, merge_profile, merge_project, settle_places};
use crate::origin::Sourced;
use crate::persons::Widened;
use crate::policies;
use crate::project::{Project, untrusted};
use crate::request;
use crate::rules::Rules;
use crate::shipped::Shipped;
use crate::source::{HostFacts, ProfileSource, Requested, RequestedProfile, Sources};

/// The author named in notices about the bound on a profile that a project has chosen.
const WITHOUT_PROJECT: &str = "the profile that counts without the project";

/// Merges all layers into the rules that decide: the chosen profile with those that it extends, the
/// project's file if it is trusted, the command line, and the organisation's denials above them
/// all.
///
/// `program` is the program to be run; its base name chooses a profile if nothing else does.
///
/// # Errors
/// [`ProfileError`] when a file in use has problems, a profile is unknown or an option has an
/// unusable value. Anything well-formed but not allowed is no error: [`decide`](crate::decide)
/// denies it with reasons.
pub fn compile(
    sources: &Sources<'_>,
    requested: &Requested,
    program: &OsStr,
    host: &HostFacts,
) -> Result<Rules, ProfileError> {
    let mut version = PolicyDigest::new();
    let (mut organisation, config) = read_around(sources, &mut version)?;
    let widened = Widened::of(mem::take(&mut organisation.persons), config.persons);
    let project = read_project(sources, &mut version)?;
    let policies = policies::read(sources)?;
    let by_project = project.file.as_ref().and_then(|file| file.profile.clone());
    let users = sources.user_profiles;
    let by_user = config.default_profile;
    let choice = choose(requested, by_project, program, users, by_user.clone())?;
    let mut chain = load(&choice, users, &mut version)?;
    let is_of_project = requested.profile.is_none() && project.names_profile();
    let most = match is_of_project {
        true => Some(without_project(
            requested,
            program,
            users,
            by_user,
            &mut version,
        )?),
        false => None,
    };
    request::record(requested, &mut version);

    let mut rules = Rules::built_in(host, choice.name.clone());
    rules.widened = widened;
    chain.names.pop();
    rules.extended = chain.names;
    rules.notices.extend(choice.notices);
    rules.notices.extend(project.notice);
    if let Some(chosen) = chain.profiles.last() {
        rules.description.clone_from(&chosen.description);
        rules.commands.clone_from(&chosen.commands);
    }
    let mut draft = Draft::default();
    for profile in chain.profiles {
        merge_profile(&mut rules, &mut draft, profile.settings)?;
    }
    if let Some((mut trust, labels)) = most {
        rules.trust.only_narrow(trust.purpose.take());
        bound_trust(&mut rules, trust, WITHOUT_PROJECT);
        rules.labels.bound(labels);
    }
    imply_registry(&mut rules, requested, users)?;
    let mut denials = organisation.denials.clone();
    if let Some(project) = project.file {
        merge_project(&mut rules, &mut draft, project.settings)?;
        denials.extend(project.denials);
    }
    settle_workspace(&mut rules);
    settle_places(&mut rules, draft, requested)?;
    deny_variables(&mut rules, &mut denials);
    request::apply(&mut rules, requested)?;
    bound_by_organisation(&mut rules, organisation, requested)?;
    level::settle(&mut rules)?;
    if rules.syscalls.deny_sockets.value {
        rules.network.forget_implied();
    }
    request::become_root(&mut rules);
    request::tell_nesting(&mut rules);
    deny_places(&mut rules, denials);
    request::leave_to_the_system(&mut rules);
    login::narrow(&mut rules, requested.login.as_ref());
    finish(&mut rules, version, policies)?;
    Ok(rules)
}

/// Reads the files around profiles: the organisation's and the user's.
fn read_around(
    sources: &Sources<'_>,
    version: &mut PolicyDigest,
) -> Result<(Organisation, UserConfig), ProfileError> {
    let mut read = |kind, file: &SourceFile<'_>| version.add(kind, &file.content);
    let organisation = match sources.organisation {
        Some(file) => {
            read("organisation", file);
            Organisation::parse(file).map_err(ProfileError::Invalid)?
        }
        None => Organisation::default(),
    };
    let config = match sources.user_config {
        Some(file) => {
            read("user", file);
            UserConfig::parse(file).map_err(ProfileError::Invalid)?
        }
        None => UserConfig::default(),
    };
    Ok((organisation, config))
}

/// Returns the trust and label settings that would be in force if the project named no profile: its
/// file cannot choose a profile that is trusted further.
fn without_project(
    requested: &Requested,
    program: &OsStr,
    users: &dyn ProfileSource,
    by_user: Option<Sourced<String>>,
    version: &mut PolicyDigest,
) -> Result<(TrustSettings, LabelRules), ProfileError> {
    let choice = choose(requested, None, program, users, by_user)?;
    let origin = choice.name.origin.clone();
    let chain = load(&choice, users, version)?;
    let mut trust = TrustRules::default();
    let mut labels = LabelRules::default();
    for profile in chain.profiles {
        trust.merge(profile.settings.trust);
        labels.merge(profile.settings.labels);
    }
    let labels = labels.with_models(trust.endpoints.clone());
    Ok((trust.into_most(&origin), labels))
}

/// Completes the rules once all layers are merged.
fn finish(
    rules: &mut Rules,
    mut version: PolicyDigest,
    read: policies::ReadPolicies,
) -> Result<(), ProfileError> {
    rules.checks.settle()?;
    rules.tell_unused();
    rules.network.record(&mut version);
    rules.rest = version;
    policies::take(rules, read)
}

/// Adds the preset implied by `--profile`: that of a language, if the profile is Atoll's own.
fn imply_registry(
    rules: &mut Rules,
    requested: &Requested,
    users: &dyn ProfileSource,
) -> Result<(), ProfileError> {
    let Some(RequestedProfile::Named(name)) = &requested.profile else {
        return Ok(());
    };
    let registry = Shipped::by_name(name).and_then(Shipped::registry);
    // What cannot be looked up is no profile of Atoll's for sure.
    match (registry, users.lookup(name)) {
        (Some(registry), Ok(None)) => rules.network.imply(registry),
        (Some(_), Ok(Some(_)) | Err(_)) | (None, _) => Ok(()),
    }
}

/// The project's file if it is trusted, or the notice that it is not.
#[derive(Default)]
struct ProjectLayer {
    file: Option<Project>,
    notice: Option<Notice>,
}

impl ProjectLayer {
    fn names_profile(&self) -> bool {
        let file = self.file.as_ref();
        file.is_some_and(|file| file.profile.is_some())
    }
}

/// Reads the project's file. An untrusted file is not even parsed.
fn read_project(
    sources: &Sources<'_>,
    version: &mut PolicyDigest,
) -> Result<ProjectLayer, ProfileError> {
    let Some(file) = sources.project else {
        return Ok(ProjectLayer::default());
    };
    if sources.trust.trusts(&file.name, &file.content) {
        version.add("project", &file.content);
        let project = Project::parse(file).map_err(ProfileError::Invalid)?;
        return Ok(ProjectLayer {
            file: Some(project),
            notice: None,
        });
    }
    Ok(ProjectLayer {
        file: None,
        notice: Some(untrusted(sources, file, "atoll.toml")),
    })
}
