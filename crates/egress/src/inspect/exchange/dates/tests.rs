//! What registries tell.
