//! The main path: from a call to its outcome.
