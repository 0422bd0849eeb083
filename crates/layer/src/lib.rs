//! One copy-on-write layer over a host directory: read, apply, undo.
