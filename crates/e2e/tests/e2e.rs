//! The end-to-end tests: one program, a module for each subject.
//!
//! `every_file_is_a_module` fails for a file that is not named here.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod afterwards;
mod agents;
mod ages;
mod approvals;
mod artifacts;
mod as_outside;
mod attacks;
mod attempts;
mod authority;
mod bad_input;
mod boundary;
mod browser;
mod canary;
mod capability;
mod checkpoints;
mod checks;
mod cli;
mod clients;
mod covert;
mod credential_bodies;
mod credentials;
mod denials;
mod docs;
mod doctor;
mod egress;
mod ends;
mod everyday;
mod examples;
mod execs;
mod explain;
mod facts;
mod fence;
mod fence_network;
mod fetched;
mod floods;
mod git;
mod golden;
mod guest;
mod holes;
mod hooks;
mod host_services;
mod init;
mod inputs;
mod inspection;
mod io_errors;
mod kept;
mod kills;
mod ledger;
mod ledger_others;
mod levels;
mod limit_ways;
mod limits;
mod locks;
mod logins;
mod mcp_servers;
mod nesting;
mod network_attacks;
mod newcomers;
mod organisation;
mod packages;
mod persons;
mod places;
mod policies;
mod postgres;
mod printed_keys;
mod proofs;
mod proxies;
mod published;
mod purposes;
mod redaction;
mod registries;
mod reload;
mod remains;
mod renewals;
mod reputation;
mod restrict;
mod retention;
mod rootlike;
mod rule_limits;
mod rules;
mod screen;
mod sealing;
mod secrets;
mod serve;
mod sessions;
mod settings;
mod shadow;
mod signin;
mod signing;
mod spawner;
mod taken_back;
mod takeover;
mod telemetry;
mod terminal;
mod tokens;
mod tool_packs;
mod tool_scopes;
mod tool_upstreams;
mod tools;
mod tunnels;
mod undo_cut_short;
mod unmapped;
mod upstream;
mod upstreams;
mod work;
mod workspace;
mod worktrees;
mod worth;

/// Returns the subjects in this directory: `subject.rs`, or `subject/mod.rs`.
fn files() -> std::collections::BTreeSet<String> {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo or xtask sets it");
    let entries = std::fs::read_dir(std::path::Path::new(&package).join("tests")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let subjects = paths.filter(|path| {
        path.extension().is_some_and(|end| end == "rs") || path.join("mod.rs").is_file()
    });
    subjects
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .collect()
}

#[test]
fn every_file_is_a_module() {
    let lines = include_str!("e2e.rs").lines();
    let modules = lines.filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
    let named = modules.chain(["e2e"]).map(str::to_owned).collect();
    assert_eq!(files(), named);
}
