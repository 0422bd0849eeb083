//! Sandboxes: sessions and the native backend.
