//! Layers that a profile's next run continues. Each is used by one run at a time, and before
//! and after it cleared of everything but history.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::SystemTime;

use atoll_layer::{RelativePath, TreeError, changed_outside, restore_modes, set_aside};
use atoll_ledger::{Durability, Ledger, StateDir};
use atoll_model::{Access, Boundary, Keep, Mode, RunId, View, ViewKind};
use atoll_sandbox::{PlacedLayer, SandboxError, identity_base, make_layer};
use atoll_store::{
    KEPT_VERSION, KeptError, KeptLayer, KeptName, KeptRecord, OverlayXattrs, SettingsRecord,
    kept_names,
};

use crate::login;
use crate::place::{Placing, stamp};
use crate::slug::slug;
use crate::supervision::has_changed;
use crate::{ChangeRetention, Request};

/// The most bytes pending review of one layer.
const ASIDE_BYTES_MAX: u64 = 1 << 30;
/// The most files and directories pending review of one layer.
const ASIDE_ENTRIES_MAX: u64 = 100_000;
/// The reason why changed settings are not written over those on the host.
pub const NOT_WRITTEN: &str =
    "it was changed inside, where its keys are not in it; change it outside";
/// The most paths that one notice names.
const NAMES_MAX: usize = 5;

/// A kept layer in use by this run.
pub(crate) struct Kept {
    layer: KeptLayer,
    record: KeptRecord,
    told: Told,
}

/// The names of a kept layer in notices.
struct Told {
    /// Its directory.
    place: String,
    /// The name that `atoll kept` takes.
    name: String,
}

impl Told {
    /// Names it by its profile, if that is a plain word.
    fn of(wanted: &Wanted<'_>, layer: &KeptName) -> Self {
        let profile = wanted.boundary.profile.as_str();
        let is_plain = KeptName::parse(profile).is_some() && !profile.starts_with('-');
        Self {
            place: in_home(wanted.view, wanted.boundary),
            name: if is_plain { profile } else { layer.as_str() }.to_owned(),
        }
    }
}

/// The reason why a run has a layer of its own in place of the kept one.
#[derive(Debug, thiserror::Error)]
enum Apart {
    /// Nothing of the run is kept; there is no notice.
    #[error("nothing of the run is kept")]
    Discarded,
    #[error("another run is using what is kept of it")]
    InUse,
    #[error("with root inside nothing of it is kept")]
    Root,
    #[error("this run goes on with one whose files belong to other ids")]
    OtherIds,
    #[error("what is kept of it belongs to another directory or profile")]
    Other,
    #[error(
        "more than 1 GiB or 100,000 files of earlier runs are set aside: look at them with atoll \
         kept diff {0}, then atoll kept discard {0}"
    )]
    Full(KeptName),
    /// Runs with labels that this one begins without have used the layer.
    #[error(
        "runs that have used what is kept of it have touched what this one begins without ({0}): \
         start it again, or begin anew with atoll kept discard {1}"
    )]
    Labelled(String, KeptName),
    #[error(
        "nobody can tell what runs that have used what is kept of it have touched: {0}; atoll kept \
         discard {1} begins anew"
    )]
    Untold(String, KeptName),
    #[error("what is kept of it cannot be used: {0}; atoll kept discard {1} begins anew")]
    Broken(String, KeptName),
}

/// The properties of the kept layer that a run needs.
struct Wanted<'a> {
    request: &'a Request<'a>,
    view: &'a View,
    /// The view's directory on the host, without symbolic links.
    host: &'a Path,
    boundary: &'a Boundary,
    base: Option<u32>,
    /// The labels that the run begins with.
    labels: &'a BTreeSet<String>,
}

impl Wanted<'_> {
    /// Returns the profile's login files in this directory, whether they exist or not: their
    /// placeholders are not kept.
    fn logins(&self) -> Vec<OsString> {
        // What cannot be told here lets nothing start.
        let all = login::with_copies(self.request.rules).unwrap_or_default();
        let all = all.iter().filter_map(login::real);
        let its = all.filter(|(directory, _)| directory == self.host);
        its.filter_map(|(_, file)| file.file_name().map(OsString::from))
            .collect()
    }

    /// Returns the purposes that narrow this run, and those of earlier runs whose changes are
    /// still there.
    fn purposes(&self, earlier: Option<&KeptRecord>) -> Vec<String> {
        let mut all = self.request.rules.narrowed();
        all.extend(
            earlier
                .into_iter()
                .flat_map(|earlier| earlier.purposes.clone()),
        );
        all.sort();
        all.dedup();
        all
    }

    /// Refuses a layer with labels that this run does not begin with.
    fn refuse_labelled(&self, earlier: &KeptRecord, name: &KeptName) -> Result<(), Apart> {
        let labels = Ledger::kept_labels(self.request.state, &earlier.used())
            .map_err(|error| Apart::Untold(error.to_string(), name.clone()))?;
        let missing: Vec<&str> = labels.difference(self.labels).map(String::as_str).collect();
        match missing.is_empty() {
            true => Ok(()),
            false => Err(Apart::Labelled(missing.join(", "), name.clone())),
        }
    }

    /// Returns the layer's record from this run on.
    fn record(
        &self,
        since: (i64, u32),
        first: Option<RunId>,
        earlier: Option<&KeptRecord>,
    ) -> KeptRecord {
        let used_at = self.request.now().duration_since(SystemTime::UNIX_EPOCH);
        let used_at_ms = used_at.map_or(0, |time| time.as_millis());
        KeptRecord {
            v: KEPT_VERSION,
            profile: self.boundary.profile.clone(),
            host: self.host.to_path_buf(),
            inside: self.view.inside.clone(),
            xattrs: match self.base {
                Some(_) => OverlayXattrs::Trusted,
                None => OverlayXattrs::User,
            },
            base: self.base,
            since,
            logins: self.logins(),
            settings: Vec::new(),
            purposes: self.purposes(earlier),
            labels: self.labels.clone(),
            has_all_labels: !self.request.rules.notes_labels(),
            first,
            run: self.request.call.run().clone(),
            used_at_ms: u64::try_from(used_at_ms).unwrap_or(u64::MAX),
        }
    }
}

impl Kept {
    /// Takes the layer for a run. Leftovers of a run that was interrupted are set aside for
    /// review first.
    fn take(wanted: &Wanted<'_>, notices: &mut Vec<String>) -> Result<(Self, PlacedLayer), Apart> {
        let Wanted {
            request,
            boundary,
            host,
            base,
            ..
        } = *wanted;
        let profile = boundary.profile.as_str();
        match request.fate {
            ChangeRetention::Open => {}
            ChangeRetention::Discarded | ChangeRetention::Scratch => return Err(Apart::Discarded),
        }
        if boundary.root {
            return Err(Apart::Root);
        }
        if base.is_some_and(|base| base != identity_base(profile)) {
            return Err(Apart::OtherIds);
        }
        let name = KeptName::parse(&slug(&Path::new(profile).join(below_root(host))));
        let name = name.ok_or(Apart::Other)?;
        let broken = |why: String| Apart::Broken(why, name.clone());
        let layer = match KeptLayer::make(request.state, &name) {
            Err(KeptError::InUse(_)) => return Err(Apart::InUse),
            made => made.map_err(|error| broken(error.to_string()))?,
        };
        let earlier = layer.record().map_err(|error| broken(error.to_string()))?;
        if earlier.as_ref().is_some_and(|earlier| {
            (
                earlier.host.as_path(),
                earlier.profile.as_str(),
                earlier.base,
            ) != (host, profile, base)
        }) {
            return Err(Apart::Other);
        }
        let mut logins = wanted.logins();
        logins.extend(earlier.iter().flat_map(|earlier| earlier.logins.clone()));
        let settings = earlier.iter().flat_map(|earlier| &earlier.settings);
        let settings: Vec<SettingsRecord> = settings.cloned().collect();
        let told = Told::of(wanted, &name);
        let cleared = clear_before(&layer, (&logins, &settings), (&told, wanted.host), notices);
        let is_empty = cleared.map_err(&broken)?;
        let aside = layer
            .aside_usage()
            .map_err(|error| broken(error.to_string()))?;
        if aside.bytes > ASIDE_BYTES_MAX || aside.entries > ASIDE_ENTRIES_MAX {
            return Err(Apart::Full(name));
        }
        let earlier = earlier.filter(|_| !is_empty);
        if let Some(earlier) = &earlier {
            wanted.refuse_labelled(earlier, &name)?;
        }
        let made = make_layer(layer.path(), host, &wanted.view.inside, base);
        let (placed, now) = made.map_err(|error: SandboxError| broken(error.to_string()))?;
        let (since, first) = match &earlier {
            Some(earlier) => (earlier.since, earlier.first.clone()),
            None => (stamp(now), Some(request.call.run().clone())),
        };
        tell_changed(&layer, wanted.host, &told, notices);
        let record = wanted.record(since, first, earlier.as_ref());
        let kept = Self {
            layer,
            record,
            told,
        };
        Ok((kept, placed))
    }

    /// Returns whether its path in the sandbox is this one.
    pub(crate) fn is_at(&self, inside: &Path) -> bool {
        self.record.inside == inside
    }

    /// Notes the placeholder of a settings file in it.
    pub(crate) fn stands(&mut self, settings: SettingsRecord) {
        self.record.settings.push(settings);
    }

    /// Records that this run uses it, before anything is written there. If the run can gain
    /// labels, the record goes to disk at once: the earlier one says that there are no others.
    pub(crate) fn note(&self) -> Result<(), KeptError> {
        let durability = match self.record.has_all_labels {
            true => Durability::Buffered,
            false => Durability::Durable,
        };
        self.layer.write(&self.record, durability)
    }

    /// Sets aside for review what the run has left besides history, after all its processes
    /// have ended. Records all the labels of the run, if known.
    fn settle(mut self, labels: Option<&BTreeSet<String>>, notices: &mut Vec<String>) {
        // What could not be moved now is moved before the next run, or that has another layer.
        let host = &self.record.host;
        let _ = clear(
            &self.layer,
            (&self.record.logins, &self.record.settings),
            (&self.told, host),
            notices,
        );
        if let (Some(labels), false) = (labels, self.record.has_all_labels) {
            self.record.labels.clone_from(labels);
            self.record.has_all_labels = true;
            // Where it is not written the ledger tells.
            let _ = self.layer.write(&self.record, Durability::Buffered);
        }
    }
}

/// Settles all kept layers of a run, with its labels and those of its session, which are its
/// own too.
pub(crate) fn settle(
    request: &Request<'_>,
    all: Vec<Kept>,
    mut labels: BTreeSet<String>,
    notices: &mut Vec<String>,
) {
    if all.is_empty() {
        return;
    }
    let session = request.call.session.as_ref();
    let of_session = session.map(|session| Ledger::session_labels(request.state, session));
    let is_known = of_session.as_ref().is_none_or(Result::is_ok);
    labels.extend(of_session.and_then(Result::ok).into_iter().flatten());
    for kept in all {
        kept.settle(is_known.then_some(&labels), notices);
    }
}

/// Returns the labels of the layers kept for a profile's next run. A layer whose labels are
/// unknown is shown to no run that begins without them.
#[must_use]
pub fn kept_labels(state: &StateDir, profile: &str) -> BTreeSet<String> {
    let names = kept_names(state).unwrap_or_default().into_iter();
    let shown = names.filter_map(|name| {
        // Of one in use nothing is shown to another run.
        let layer = KeptLayer::open(state, &name).ok()?;
        let is_shown = layer.is_empty().is_ok_and(|is_empty| !is_empty);
        let record = layer.record().ok()??;
        (is_shown && record.profile == profile).then_some(record)
    });
    let labels = shown.filter_map(|record| Ledger::kept_labels(state, &record.used()).ok());
    labels.flatten().collect()
}

/// Adds a notice of directories that are not kept because the person has none.
pub(crate) fn tell_absent(placing: &mut Placing<'_>, boundary: &Boundary) {
    // Elsewhere nothing is kept of those that are there, either.
    let is_kept = placing.request.fate == ChangeRetention::Open && boundary.mode == Mode::Full;
    if boundary.root || !is_kept {
        return;
    }
    let of_profile = boundary.views.iter().filter(|view| {
        let is_kept =
            matches!(view.access, Access::Layer(layering) if layering.keep == Keep::Profile);
        is_kept && view.kind == ViewKind::Home
    });
    let absent = of_profile.filter(|view| matches!(view.host.try_exists(), Ok(false)));
    let absent: Vec<String> = absent.map(|view| in_home(view, boundary)).collect();
    let subject = match absent.len() {
        0 => return,
        1 => "is not there, so nothing of it is kept",
        2.. => "are not there, so nothing of them is kept",
    };
    placing.notices.push(format!(
        "{} {subject}: mkdir -p {}",
        absent.join(", "),
        absent.join(" ")
    ));
}

/// Takes the kept layer for a directory of the home, unless this run has to do without.
pub(crate) fn place(
    placing: &mut Placing<'_>,
    view: &View,
    host: &Path,
    boundary: &Boundary,
) -> Option<PlacedLayer> {
    // A run that goes on with a layer of its own goes on with that.
    let mut own = placing.layers.iter();
    if own.any(|layer| layer.inside == view.inside) {
        return None;
    }
    let wanted = Wanted {
        request: placing.request,
        view,
        host,
        boundary,
        base: placing.base,
        labels: placing.labels,
    };
    match Kept::take(&wanted, &mut placing.notices) {
        Ok((kept, layer)) => {
            placing.kept.push(kept);
            Some(layer)
        }
        Err(Apart::Discarded) => None,
        Err(why) => {
            placing.notices.push(format!(
                "{}: {why}; here this run has a layer of its own, as part of its changes",
                view.inside.display()
            ));
            None
        }
    }
}

/// Returns a path in the home as people write it, quoted for a shell.
fn in_home(view: &View, boundary: &Boundary) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_./".contains(byte);
    match view.inside.strip_prefix(&boundary.home) {
        Ok(beneath) if beneath.as_os_str().as_bytes().iter().all(is_plain) => {
            format!("~/{}", beneath.display())
        }
        Ok(_) | Err(_) => {
            let text = view.inside.to_string_lossy();
            format!("'{}'", text.replace('\'', r"'\''"))
        }
    }
}

/// Returns a directory's path without its leading slash.
fn below_root(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

/// Prepares a layer for another run; returns whether it is empty.
fn clear_before(
    layer: &KeptLayer,
    logins: (&[OsString], &[SettingsRecord]),
    (told, host): (&Told, &Path),
    notices: &mut Vec<String>,
) -> Result<bool, String> {
    layer.furnish().map_err(|error| error.to_string())?;
    // What was opened up to be read is closed again for the program.
    restore_modes(&layer.upper()).map_err(|error| error.to_string())?;
    let cleared = clear(layer, logins, (told, host), notices);
    cleared.map_err(|error| error.to_string())?;
    let freshened = layer.freshen().and_then(|()| layer.is_empty());
    freshened.map_err(|error| error.to_string())
}

/// Sets aside for review everything but history, and adds a notice of it.
fn clear(
    layer: &KeptLayer,
    (logins, settings): (&[OsString], &[SettingsRecord]),
    (told, host): (&Told, &Path),
    notices: &mut Vec<String>,
) -> Result<(), TreeError> {
    let upper = layer.upper();
    for one in settings.iter().filter(|one| one.stood.has_secrets) {
        if has_changed(&upper, one.name.as_os_str(), &one.stood) {
            let (place, name) = (&told.place, one.name.display());
            notices.push(format!("{place}/{name} is not taken over: {NOT_WRITTEN}"));
        }
    }
    let is_own = |name: &&OsString| !login::is_taken_over(settings, &upper, name);
    let paths = logins.iter().filter(is_own);
    let paths = paths.map(|name| RelativePath::new(name.as_bytes()));
    let paths: Vec<RelativePath> = paths.filter_map(Result::ok).collect();
    let moved = set_aside(&layer.upper(), &layer.aside(), host, &paths)?;
    if !moved.is_empty() {
        let Told { place, name } = told;
        notices.push(format!(
            "Held back: {} in {place}. Review: `atoll kept diff {name}`. Accept: `atoll kept apply \
             {name} --control`.",
            listed(&moved)
        ));
    }
    Ok(())
}

/// Adds a notice of the person's files that older ones of the layer hide.
fn tell_changed(layer: &KeptLayer, host: &Path, told: &Told, notices: &mut Vec<String>) {
    let changed = changed_outside(&layer.upper(), host, NAMES_MAX + 1);
    if let Ok(changed) = changed
        && !changed.is_empty()
    {
        notices.push(format!(
            "in {} the program sees its own {}, and not what was written outside since: atoll kept \
             diff {}",
            told.place,
            listed(&changed),
            told.name
        ));
    }
}

/// Lists the first paths, and says if there are more.
fn listed(paths: &[RelativePath]) -> String {
    let first: Vec<String> = paths
        .iter()
        .take(NAMES_MAX)
        .map(ToString::to_string)
        .collect();
    match paths.len() > NAMES_MAX {
        true => format!("{} and more", first.join(", ")),
        false => first.join(", "),
    }
}
