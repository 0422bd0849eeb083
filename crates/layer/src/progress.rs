//! Progress reports.

/// The progress of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The current phase.
    pub phase: Phase,
    /// Entries done.
    pub done: u64,
    /// Entries in all; 0 while unknown.
    pub total: u64,
}

/// A phase of the work, for progress reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Originals are copied into the journal.
    Keeping,
    /// New content is written under temporary names.
    Preparing,
    /// Names are changed.
    Committing,
    /// The file system writes to disk.
    Syncing,
    /// A checkpoint is copied.
    Copying,
}

/// A callback for progress reports.
pub(crate) type Show<'a> = &'a mut dyn FnMut(Progress);
