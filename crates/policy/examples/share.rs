//! Measures the share of a decision in a run: reading the files of all layers, compiling the rules,
//! and deciding the call; with and without Cedar policies. Prints a line of JSON for each.
//!
//! `cargo xtask bench ledger` calls it: `share DIRECTORY COUNT`.

#![allow(
    clippy::unwrap_used,
    reason = "a measurement ends where something is wrong"
)]

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use atoll_model::{Action, Call, CallId, Mode, Principal, Program, RunId, Verdict};
use atoll_policy::{
    Facts, HostFacts, PolicySources, ProfileSource, Requested, SourceFile, Sources, TrustList,
    compile, decide,
};
use serde_json::json;

/// The number of rounds that are not counted.
const WARM_UP: u64 = 20;
/// The number of the person's policies in the second figure.
const POLICIES: usize = 100;

/// A source without profiles.
struct NoProfiles;

impl ProfileSource for NoProfiles {
    fn names(&self) -> Result<Vec<String>, String> {
        Ok(Vec::new())
    }

    fn lookup(&self, _: &str) -> Result<Option<SourceFile<'_>>, String> {
        Ok(None)
    }
}

/// The place and the caller.
struct Place {
    configuration: PathBuf,
    workspace: PathBuf,
    host: HostFacts,
    environment: Vec<(OsString, OsString)>,
}

impl Place {
    fn new(directory: &Path) -> Self {
        let place = Self {
            configuration: directory.join("config"),
            workspace: directory.join("workspace"),
            host: HostFacts {
                memory_bytes: 16 << 30,
                uid: 1000,
                gid: 1000,
                home: directory.join("home"),
                state_dir: directory.join("state"),
                config_dir: directory.join("config"),
            },
            environment: std::env::vars_os().collect(),
        };
        std::fs::create_dir_all(&place.configuration).unwrap();
        std::fs::create_dir_all(&place.workspace).unwrap();
        place
    }

    fn call(&self, number: u64) -> Call {
        Call {
            id: CallId::of_run(RunId::new(1_795_253_412 + number, 1)),
            session: None,
            parent: None,
            principal: Principal {
                uid: 1000,
                gid: 1000,
                name: "person".to_owned(),
            },
            place: atoll_model::Place::Directory {
                workspace: self.workspace.clone(),
                directory: self.workspace.clone(),
            },
            action: Action::Run(Program {
                command: vec!["true".into()],
                options: vec!["--discard".into()],
                terminal: false,
            }),
        }
    }

    /// Decides once, starting with the files.
    fn decide(&self, call: &Call) {
        let organisation = read(&self.configuration.join("organisation.toml"));
        let user_config = read(&self.configuration.join("config.toml"));
        let project = read(&self.workspace.join("atoll.toml"));
        let of_project = read(&self.workspace.join("atoll.cedar"));
        let of_project: Vec<_> = of_project.into_iter().collect();
        let user = read(&self.configuration.join("own.cedar"));
        let user: Vec<_> = user.into_iter().collect();
        let sources = Sources {
            organisation: organisation.as_ref(),
            user_config: user_config.as_ref(),
            user_profiles: &NoProfiles,
            project: project.as_ref(),
            trust: &TrustList::default(),
            policies: PolicySources {
                organisation: &[],
                user: &user,
                project: &of_project,
                directory: Some(&self.workspace),
            },
        };
        let program = OsStr::new("true");
        let rules = compile(&sources, &Requested::default(), program, &self.host).unwrap();
        let facts = Facts {
            host: &self.host,
            mode: Mode::Full,
            environment: &self.environment,
            now: SystemTime::now(),
            placeholders: &[],
            labels: None,
            living: None,
            changes: None,
        };
        let verdict = decide(&rules, call, &facts);
        assert!(matches!(verdict, Verdict::Allow(_)), "it was not allowed");
    }

    fn share(&self, name: &str, count: u64) {
        let mut all = Vec::new();
        for number in 0..WARM_UP + count {
            let call = self.call(number);
            let begin = Instant::now();
            self.decide(&call);
            if number >= WARM_UP {
                all.push(begin.elapsed().as_secs_f64() * 1e3);
            }
        }
        println!("{}", json!({ "name": name, "unit": "ms", "values": all }));
    }
}

fn read(path: &Path) -> Option<SourceFile<'static>> {
    let content = std::fs::read(path).ok()?;
    Some(SourceFile::new(path.display().to_string(), content))
}

fn main() {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [directory, count] = arguments.try_into().unwrap();
    let place = Place::new(Path::new(&directory));
    let count = count.to_str().unwrap().parse().unwrap();
    place.share("the decision's share of a run", count);
    let one = |number| {
        format!(
            "forbid (principal, action == Action::\"connect\", resource == \
             Host::\"h{number}.example\");\n"
        )
    };
    let policies: String = (0..POLICIES).map(one).collect();
    std::fs::write(place.configuration.join("own.cedar"), policies).unwrap();
    place.share("the same with 100 policies of the person's", count);
}
