//! Bounded messages between the host, jail and init.
