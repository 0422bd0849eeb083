//! The binary `atoll`: roles, configuration, command line.
