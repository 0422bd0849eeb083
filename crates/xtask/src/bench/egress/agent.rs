//! A whole agent at one piece of work: Codex, a model that answers at once, and one command. Since
//! the model takes no time, all the rest counts the most.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::figures::{ATOLL, STRAIGHT};
use super::series::Series;
use super::world::{KEY, MODEL_HOST, World};
use crate::bench::measure;
use crate::command;
use crate::suite;

/// The turns for each round of the options.
const TURNS: usize = 4;

const WHAT: &str = "agent";

/// The settings of Codex. The provider's name is not that of the one that Codex knows, which has
/// tools of its own. Analytics are off: Codex would wait for them at its end, five seconds for
/// every contender, which would hide all else.
const SETTINGS: &str = r#"model = "scripted"
model_provider = "model"
[model_providers.model]
name = "model"
base_url = "https://model.example/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
supports_websockets = false
[shell_environment_policy]
inherit = "all"
[analytics]
enabled = false
"#;

/// The profile by which the key is injected on the way to the model; inside there is a placeholder.
const PROFILE: &str = r#"extends = ["codex"]
[network]
allow = ["model.example"]
[credential.openai]
source = { environment = "OPENAI_API_KEY" }
to = "model.example"
place = { header = "authorization", form = "Bearer {}" }
"#;

/// The home of Codex inside, which stays as it is; in [`OUTSIDE`] its state is thrown away after
/// each turn.
const INSIDE: &str = "agent-inside";
const OUTSIDE: &str = "agent-outside";

pub(crate) fn agent(world: &World, rounds: usize) -> Result<Vec<Series>> {
    let Some(codex) = suite::npm_program("codex")? else {
        let why = anyhow::anyhow!(
            "Codex is not in the cache of tests; `cargo xtask test --install` puts it there"
        );
        let missing = |contender| Series::new(WHAT, contender, "ms").failed(&why);
        return Ok(vec![missing(STRAIGHT), missing(ATOLL)]);
    };
    let _model = world.model()?;
    let place = world.place();
    for name in [INSIDE, OUTSIDE] {
        fs::create_dir_all(place.join(name).join(".codex"))?;
        fs::write(place.join(name).join(".codex/config.toml"), SETTINGS)?;
    }
    let npm = codex.parent().and_then(Path::parent).and_then(Path::parent);
    let npm = npm.context("Codex lies nowhere")?;
    let profile = place.join("agent.toml");
    fs::write(&profile, format!("{PROFILE}[files]\nread = [{npm:?}]\n"))?;
    let outside = words(world, OUTSIDE, &[], &codex);
    // What the first start makes is there for both.
    first(&outside, world.workspace())?;
    let copied = |from: &str, to: &str| {
        let [from, to] = [from, to].map(|home| place.join(home).join(".codex"));
        let (from, to) = (from.display(), to.display());
        format!("rm -rf made.txt '{to}' && cp -a '{from}' '{to}'")
    };
    let mut keep = Command::new("sh");
    keep.args(["-c", &copied(OUTSIDE, INSIDE)]);
    command::output(keep.current_dir(world.workspace()))?;
    let program = world.program().to_string_lossy().into_owned();
    let profile = profile.to_string_lossy().into_owned();
    let run = [&program, "run", "--discard", "--profile", &profile, "--"];
    let contender = |name, command, afterwards| measure::Contender {
        name,
        command,
        directory: world.workspace().to_path_buf(),
        afterwards,
        times_itself: false,
    };
    let again = ["sh", "-c", &copied(INSIDE, OUTSIDE)].map(str::to_owned);
    let prepared = measure::Prepared {
        contenders: vec![
            contender(STRAIGHT, outside, Some(again.to_vec())),
            contender(ATOLL, words(world, INSIDE, &run, &codex), None),
        ],
        absent: Vec::new(),
        directory: place.to_path_buf(),
    };
    let measured = measure::take_turns(&prepared, rounds * TURNS)?;
    let turns: usize = measured.iter().map(|one| one.whole_ms.len()).sum();
    let ended = fs::read_to_string(place.join("ended")).unwrap_or_default();
    ensure!(
        ended.lines().count() > turns,
        "Codex did not come to the end of its conversation"
    );
    let series = measured.into_iter().map(|measured| Series {
        values: measured.whole_ms,
        failure: measured.failure,
        ..Series::new(WHAT, &measured.name, "ms")
    });
    Ok(series.collect())
}

/// Returns the command of Codex at its work, with the words of `front` before it.
fn words(world: &World, home: &str, front: &[&str], codex: &Path) -> Vec<String> {
    let codex = codex.to_string_lossy();
    let set = [
        format!("HOME={}", world.place().join(home).display()),
        format!("OPENAI_API_KEY={KEY}"),
    ];
    let work = [
        &codex,
        "exec",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
        "do the work",
    ];
    let front = front.iter().chain(&work).map(|word| (*word).to_owned());
    ["env".to_owned()]
        .into_iter()
        .chain(set)
        .chain(front)
        .collect()
}

/// Starts Codex for the first time, which has to come to its end with `MODEL_HOST`.
fn first(words: &[String], directory: &Path) -> Result<()> {
    let (program, arguments) = words.split_first().context("no words")?;
    let output = Command::new(program)
        .args(arguments)
        .current_dir(directory)
        .stdin(std::process::Stdio::null())
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() || !said.contains("ALL IS DONE") {
        let errors = String::from_utf8_lossy(&output.stderr);
        let last = errors.lines().last().unwrap_or_default();
        bail!(
            "Codex did nothing with {MODEL_HOST}: {}: {last}",
            output.status
        );
    }
    Ok(())
}
