//! Reads the changes of a layer. The walk keeps a list of directories still to visit and opens each
//! from the root's descriptor, so that depth costs neither stack nor descriptors.

mod entries;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, SystemTime};

use rustix::io::Errno;

pub(crate) use self::entries::{list_with_kinds, xattrs_at};
use crate::change::Source;
use crate::classify::Classifier;
use crate::error::TreeError;
use crate::facts::{Facts, Kind, Xattrs, xattrs};
use crate::index::Index;
use crate::layer::XattrFlavour;
use crate::manifest::{self, Places, Whose};
use crate::modes::Noted;
use crate::put_back::PutBack;
use crate::tree::{Tree, is_absence, names_in};
use crate::unreadable::open_up;
use crate::{
    AfterTree, Bounds, ChangeKind, ChangeSet, IdShift, LayerPaths, ReadError, RelativePath,
};

/// The longest tick of the kernel. It stamps inodes with the time of its last tick, which lags
/// behind the clock that programs read. Only a time from a checkpoint's own record is exact.
const TICK_MAX: Duration = Duration::from_millis(20);

pub(crate) const UNCOPIED: &str =
    "it was there before the run and could not be copied then, so it stays as it is";

/// Reads everything that differs between the two trees, except for the permissions
/// of the roots themselves where the tree after is a layer or a copy.
///
/// # Errors
/// When a tree cannot be opened or holds more than the bounds allow. A single
/// entry that cannot be read or must not be applied is a [`Refusal`] instead.
pub fn changes(paths: &LayerPaths, bounds: &Bounds) -> Result<ChangeSet, ReadError> {
    let mut reader = Reader::open(paths, bounds)?;
    reader.compare_top()?;
    reader.walk(Visit::top(&reader.shape))?;
    let Reader {
        mut set,
        before,
        after,
        moved,
        control_within,
        ..
    } = reader;
    // What moved away is not also removed.
    set.changes
        .retain(|change| change.kind != ChangeKind::Removed || !moved.contains(&change.path));
    let mut classifier = Classifier::new(&before, &after, &set.changes, bounds);
    for change in &mut set.changes {
        let within = control_within.get(&change.path).copied();
        classifier.classify(change, within);
    }
    set.unread = classifier.unread(&set.refused, &set.unread);
    set.faults = [before.faults(), after.faults()]
        .into_iter()
        .flatten()
        .collect();
    set.changes
        .sort_by(|left, right| left.path.cmp(&right.path));
    for list in [&mut set.refused, &mut set.withheld, &mut set.notes] {
        list.sort_by(|left, right| left.path.cmp(&right.path));
    }
    Ok(set)
}

/// As [`changes`], for a layer in which nothing works and on which nothing is mounted: entries that
/// the program made unreadable for their owner are opened up first. The modes that it set remain
/// those that are shown and applied; before a program goes on in the layer,
/// [`crate::restore_modes`] puts them back.
///
/// # Errors
/// As [`changes`].
pub fn changes_at_rest(paths: &LayerPaths, bounds: &Bounds) -> Result<ChangeSet, ReadError> {
    let mut noted = noted_beside(paths)?;
    let mut may_open = true;
    loop {
        let read = changes(paths, bounds);
        let is_locked = match &read {
            Ok(set) => set.is_locked,
            Err(ReadError::Tree(error)) => is_permission(&error.source),
            Err(_) => false,
        };
        // Where it cannot be opened up, the refusal of what was not read stands.
        let opened = is_locked && may_open && open_up(paths, bounds).unwrap_or(false);
        may_open &= !is_locked;
        let now = noted_beside(paths)?;
        if !opened && now == noted {
            return read;
        }
        // It was opened up here or by somebody else: what was read may be half of it.
        noted = now;
    }
}

fn noted_beside(paths: &LayerPaths) -> Result<Noted, TreeError> {
    match &paths.after {
        AfterTree::Overlay { upper, .. } => Noted::read(upper),
        AfterTree::Copy { path, .. } => Noted::read(path),
        AfterTree::Live { .. } => Ok(Noted::default()),
    }
}

fn is_mount(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::XDEV.raw_os_error())
}

fn is_permission(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

/// The form of the tree after, which decides how it is read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    Overlay(XattrFlavour),
    Copy(SystemTime),
    Live(SystemTime),
}

pub(crate) struct Reader {
    pub before: Tree,
    pub after: Tree,
    pub shape: Shape,
    pub bounds: Bounds,
    pub set: ChangeSet,
    pub ids: IdShift,
    pub since: SystemTime,
    /// The entries before that Atoll has put back.
    pub put_back: PutBack,
    /// The places of directories at the checkpoint.
    pub places: Places,
    /// The owner of the workspace, to whom new files may belong.
    pub owner: u32,
    /// The old paths of renamed directories.
    pub moved: BTreeSet<RelativePath>,
    /// Removed directories that hold a control file, with its reason.
    pub control_within: HashMap<RelativePath, &'static str>,
    /// Files that changed under all of their names.
    pub index: Option<Index>,
    /// The number of entries looked at.
    looked: u64,
    /// The bytes of all paths seen.
    path_bytes: u64,
}

/// One directory of the merged view, still to be compared.
#[derive(Clone, Debug)]
pub(crate) struct Visit {
    /// Its path in the merged view and in the tree after.
    pub path: RelativePath,
    /// The directory before that it is compared with.
    pub before: Option<RelativePath>,
    /// Set when the tree after has it (an upper directory need not).
    pub upper: bool,
    /// The directory before that shows through (overlay only).
    pub lower: Option<RelativePath>,
    /// In a copy or in live mode: set when it is the directory that was here at the checkpoint.
    /// Only then do old times in it mean that nothing changed.
    pub in_place: bool,
}

/// An entry of the merged view.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub facts: Facts,
    pub source: Source,
}

impl Visit {
    fn top(shape: &Shape) -> Self {
        Self {
            path: RelativePath::root(),
            before: Some(RelativePath::root()),
            upper: true,
            lower: matches!(shape, Shape::Overlay(_)).then(RelativePath::root),
            in_place: true,
        }
    }

    /// Returns whether entries that the upper directory does not name are those that were there
    /// before.
    fn aligned(&self) -> bool {
        self.lower.is_some() && self.lower == self.before
    }
}

/// The open directories of one visit.
pub(crate) struct Open {
    pub before: Option<OwnedFd>,
    pub upper: Option<OwnedFd>,
    pub lower: Option<OwnedFd>,
    pub upper_names: Vec<Vec<u8>>,
    pub xattr_whiteouts: bool,
}

impl Reader {
    pub fn open(paths: &LayerPaths, bounds: &Bounds) -> Result<Self, ReadError> {
        let (after, shape) = match &paths.after {
            AfterTree::Overlay { upper, xattrs, .. } => (upper, Shape::Overlay(*xattrs)),
            AfterTree::Copy { path, finished } => (path, Shape::Copy(*finished)),
            AfterTree::Live { path, finished } => (path, Shape::Live(*finished)),
        };
        let before = entries::open_before(paths)?;
        let root = before.facts(&RelativePath::root());
        let root =
            root.map_err(|error| before.error("cannot read", &RelativePath::root(), error))?;
        let mut reader = Self {
            after: match shape {
                Shape::Overlay(_) | Shape::Copy(_) => Tree::open_layer(after)?.remembering(),
                Shape::Live(_) => match Tree::open(after) {
                    // The program can have closed the top: the walk refuses it by name.
                    Err(error) if is_permission(&error.source) => Tree::open_for_lookups(after)?,
                    opened => opened?,
                },
            },
            before,
            shape,
            bounds: *bounds,
            set: ChangeSet::default(),
            ids: paths.ids,
            since: paths.since,
            put_back: PutBack::read(paths.put_back.as_deref()),
            places: match &paths.after {
                AfterTree::Overlay { .. } => Places::default(),
                AfterTree::Copy { path, .. } => manifest::read(path, Whose::Copy),
                AfterTree::Live { .. } => manifest::read(&paths.before, Whose::Original),
            },
            owner: root.map_or(0, |facts| facts.uid),
            moved: BTreeSet::new(),
            control_within: HashMap::new(),
            index: None,
            looked: 0,
            path_bytes: 0,
        };
        reader.read_index(&paths.after)?;
        Ok(reader)
    }

    /// Compares the top directory: in live mode it is the person's own, and the program could
    /// change it too.
    fn compare_top(&mut self) -> Result<(), ReadError> {
        let Shape::Live(_) = self.shape else {
            return Ok(());
        };
        let top = RelativePath::root();
        let (before, after) = (self.before.facts(&top), self.after.entry(&top, None));
        // One that cannot be read is refused by the walk.
        let (Ok(Some(before)), Ok((_, facts))) = (before, after) else {
            return Ok(());
        };
        if self.older_than_the_copy(&facts) {
            return Ok(());
        }
        let visit = Visit::top(&self.shape);
        let source = Source::After;
        let before = Some((before, top.clone()));
        self.compare(
            &visit,
            top,
            before,
            Found { facts, source },
            &mut Vec::new(),
        )
    }

    pub fn walk(&mut self, top: Visit) -> Result<(), ReadError> {
        let mut visits = vec![top];
        while let Some(visit) = visits.pop() {
            let too_long = visit.path.as_bytes().len() > self.bounds.path_bytes_max;
            if too_long || visit.path.depth() >= self.bounds.depth_max {
                self.refuse(&visit.path, "the directories are nested too deeply");
                continue;
            }
            match self.open_visit(&visit) {
                Ok((open, names)) => {
                    self.look(names.len() as u64)?;
                    for name in names {
                        self.compare_name(&visit, &open, &name, &mut visits)?;
                    }
                }
                // What is mounted on the host was not in the overlay.
                Err(error) if !visit.upper && is_mount(&error) => {}
                Err(error) => self.refuse_unreadable(&visit.path, &error),
            }
        }
        Ok(())
    }

    /// Opens the directories of a visit and lists the names to compare.
    fn open_visit(&self, visit: &Visit) -> io::Result<(Open, Vec<Vec<u8>>)> {
        let open = |tree: &Tree, path: &RelativePath| match tree.directory(path) {
            Ok(directory) => Ok(Some(directory)),
            Err(error) if is_absence(&error) => Ok(None),
            Err(error) => Err(error),
        };
        let on = |tree: &Tree, path: &Option<RelativePath>| match path {
            Some(path) => open(tree, path),
            None => Ok(None),
        };
        let upper = match visit.upper {
            true => open(&self.after, &visit.path)?,
            false => None,
        };
        let list = |directory: &Option<OwnedFd>| match directory {
            Some(directory) => names_in(directory.as_fd()),
            None => Ok(Vec::new()),
        };
        let upper_names = list(&upper)?;
        let before = on(&self.before, &visit.before)?;
        let lower = on(&self.before, &visit.lower)?;
        let mut names = upper_names.clone();
        if !visit.aligned() || self.index.is_some() {
            names.extend(list(&before)?);
            if visit.lower != visit.before {
                names.extend(list(&lower)?);
            }
            names.sort_unstable();
            names.dedup();
        }
        let xattr_whiteouts = match (&upper, self.shape) {
            (Some(upper), Shape::Overlay(flavour)) => {
                let notes = xattrs(upper, Some(flavour), self.bounds.xattr_bytes_max)?;
                notes.overlay("opaque") == Some(b"x")
            }
            _ => false,
        };
        let open = Open {
            before,
            upper,
            lower,
            upper_names,
            xattr_whiteouts,
        };
        Ok((open, names))
    }

    fn compare_name(
        &mut self,
        visit: &Visit,
        open: &Open,
        name: &[u8],
        visits: &mut Vec<Visit>,
    ) -> Result<(), ReadError> {
        let Ok(path) = visit.path.join(name) else {
            return Ok(());
        };
        let looked = self
            .facts_in(&open.before, name)
            .and_then(|before| Ok((before, self.merged(visit, open, name)?)));
        let (before, after) = match looked {
            Ok(found) => found,
            Err(error) => {
                self.count_path(&path)?;
                self.refuse_unreadable(&path, &error);
                return Ok(());
            }
        };
        let before_path = visit.before.as_ref().and_then(|at| at.join(name).ok());
        let before = before.zip(before_path);
        if let (Some((_, at)), Some(found)) = (&before, &after)
            && found.source == Source::Before(at.clone())
        {
            let at = Some(at.clone());
            self.descend_only(visit, path, found, at, visits);
            return Ok(());
        }
        self.count_path(&path)?;
        match (before, after) {
            (None, None) => Ok(()),
            (Some((facts, at)), None) => {
                let said = open
                    .upper_names
                    .binary_search_by(|known| known.as_slice().cmp(name));
                self.removed(path, &facts, &at, said.is_ok())
            }
            (before, Some(found)) => {
                if visit.in_place && self.older_than_the_copy(&found.facts) {
                    self.descend_only(visit, path, &found, before.map(|(_, at)| at), visits);
                    return Ok(());
                }
                let is_live = matches!(self.shape, Shape::Live(_));
                if is_live && self.places.uncopied.contains(&found.facts.inode) {
                    self.refuse(&path, UNCOPIED);
                    self.set.uncopied.insert(path);
                    return Ok(());
                }
                self.compare(visit, path, before, found, visits)
            }
        }
    }

    /// In a copy or in live mode: returns whether the program cannot have touched the entry.
    fn older_than_the_copy(&self, facts: &Facts) -> bool {
        match self.shape {
            Shape::Overlay(_) => false,
            Shape::Copy(finished) | Shape::Live(finished) => {
                let surely = match self.places.finished {
                    Some(exact) => Some(exact.min(finished)),
                    None => finished.checked_sub(TICK_MAX),
                };
                surely.is_some_and(|surely| facts.changed.system() < surely)
            }
        }
    }

    /// Returns whether a directory after is the one that was there at the checkpoint.
    pub fn is_in_place(&self, path: &RelativePath, facts: &Facts) -> bool {
        self.places.inodes.get(path) == Some(&facts.inode)
    }

    fn descend_only(
        &mut self,
        visit: &Visit,
        path: RelativePath,
        found: &Found,
        before: Option<RelativePath>,
        visits: &mut Vec<Visit>,
    ) {
        let lower = match &found.source {
            Source::Before(at) => Some(at.clone()),
            Source::After | Source::Indexed(_) => None,
        };
        if found.facts.kind == Kind::Directory {
            visits.push(Visit {
                path,
                before,
                upper: visit.upper && lower.is_none(),
                in_place: lower.is_none(),
                lower,
            });
        }
    }

    fn count_path(&mut self, path: &RelativePath) -> Result<(), ReadError> {
        self.path_bytes = self.path_bytes.saturating_add(path.as_bytes().len() as u64);
        if self.path_bytes > self.bounds.all_paths_bytes_max {
            let entries_max = self.bounds.entries_max;
            return Err(ReadError::TooManyEntries { entries_max });
        }
        Ok(())
    }

    pub fn look(&mut self, entries: u64) -> Result<(), ReadError> {
        self.looked = self.looked.saturating_add(entries);
        let entries_max = self.bounds.entries_max;
        if self.looked > entries_max {
            return Err(ReadError::TooManyEntries { entries_max });
        }
        Ok(())
    }

    /// Returns the attributes of an entry of the merged view.
    pub fn xattrs_of(&self, path: &RelativePath, found: &Found) -> io::Result<Xattrs> {
        let (tree, at) = self.place_of(path, &found.source)?;
        let flavour = match (&found.source, self.shape) {
            (Source::After | Source::Indexed(_), Shape::Overlay(flavour)) => Some(flavour),
            (_, Shape::Copy(_) | Shape::Live(_)) | (Source::Before(_), _) => None,
        };
        xattrs_at(
            tree,
            at,
            found.facts.kind,
            flavour,
            self.bounds.xattr_bytes_max,
        )
    }
}
