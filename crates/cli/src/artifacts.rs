//! `atoll artifacts`.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use atoll_data::{Scanned, Verdict, attend, evidence, missing, scan, seen};
use atoll_engine::artifacts::{self, Deciding, as_json};
use atoll_engine::configuration::Places;
use atoll_engine::events::open_ledger;
use atoll_engine::failure::{Doing, Failure, Kind};
use atoll_engine::printable::{printable, quoted};
use atoll_engine::sandboxes::Engine;
use atoll_ledger::{Ledger, StateDir};
use atoll_model::{OutputsRule, Reason, RunId};
use atoll_scan::Rules;
use atoll_store::{Artifact, ArtifactFilter, ArtifactState, Artifacts};
use atoll_tools::{Pii, clean_answer};
use serde_json::{Value, json};

use crate::arguments::{
    ArtifactsAction, ArtifactsArguments, GetArtifactArguments, ListArtifactsArguments,
    PromoteArtifactsArguments, RejectArtifactArguments, ScanArtifactsArguments,
    ShowArtifactArguments,
};
use crate::consent::consent;
use crate::output::Output;
use crate::render::{counted, grouped};

/// The bytes and lines of a text that are shown of what waits.
const PREVIEW_BYTES: usize = 4 << 10;
const PREVIEW_LINES: usize = 20;
/// The most artifacts in a question: whoever is shown more reads none.
const ASKED_MAX: usize = 40;

/// Carries out `atoll artifacts`.
///
/// # Errors
/// When the artifacts cannot be read, or a decision about them not be made.
pub fn artifacts(arguments: &ArtifactsArguments, output: &Output) -> Result<u8, Failure> {
    let state = Places::read()?.open_state()?;
    let ledger = open_ledger(&state)?;
    let command = Command {
        store: artifacts::open(&state, &ledger, output)?,
        tenant: arguments.tenant.as_deref(),
        state: &state,
        ledger: &ledger,
        output,
    };
    match &arguments.action {
        ArtifactsAction::Scan(arguments) => return command.scan(arguments),
        ArtifactsAction::List(arguments) => command.list(arguments)?,
        ArtifactsAction::Show(arguments) => command.show(arguments)?,
        ArtifactsAction::Get(arguments) => command.get(arguments)?,
        ArtifactsAction::Promote(arguments) => command.promote(arguments)?,
        ArtifactsAction::Reject(arguments) => command.reject(arguments)?,
    }
    Ok(0)
}

/// Has a run's outputs meet the rule of its profile, and returns the lines about them; none where there
/// are none.
pub fn put_away(run: &RunId, count: u64, rule: OutputsRule, output: &Output) -> String {
    match (count, rule) {
        (0, _) => String::new(),
        (_, OutputsRule::Scan | OutputsRule::Promote) => match attended(run) {
            // Another process attends to them: a server does.
            Ok(told) if told.is_empty() => waiting(run, count),
            Ok(told) => told,
            Err(failure) => {
                output.warn(&format!("outputs wait unscanned: {}", failure.what));
                waiting(run, count)
            }
        },
        (_, OutputsRule::Hold) => waiting(run, count),
    }
}

fn waiting(run: &RunId, count: u64) -> String {
    let outputs = counted(
        count,
        "output waits as an artifact",
        "outputs wait as artifacts",
    );
    format!("{outputs}: atoll artifacts list --run {run}\n")
}

/// Attends to the outputs of a run, and tells what became of them.
fn attended(run: &RunId) -> Result<String, Failure> {
    let engine = Engine::open(atoll_launcher::LAUNCHER)?;
    let program = std::env::current_exe().doing("this program cannot be found")?;
    let mut told = String::new();
    for one in attend(&engine, &program, Some(run))? {
        let name = quoted(&one.artifact.name);
        let id = &one.artifact.id;
        let line = match (&one.waits, one.artifact.origin.run == *run) {
            (_, false) => continue,
            (None, true) => format!("output {name} is promoted: atoll artifacts get {id}\n"),
            (Some(why), true) => {
                let why = printable(why.as_bytes());
                format!("output {name} waits ({why}): atoll artifacts promote {id}\n")
            }
        };
        told.push_str(&line);
    }
    Ok(told)
}

struct Command<'a> {
    store: Option<Artifacts>,
    tenant: Option<&'a str>,
    state: &'a StateDir,
    ledger: &'a Ledger,
    output: &'a Output,
}

impl Command<'_> {
    fn named(&self, id: &str) -> Result<(&Artifacts, Artifact), Failure> {
        let found = artifacts::named(self.store.as_ref(), id, self.tenant)?;
        let store = self.store.as_ref();
        Ok((
            store.ok_or_else(|| Failure::new("there are no artifacts"))?,
            found,
        ))
    }

    fn list(&self, arguments: &ListArtifactsArguments) -> Result<(), Failure> {
        let filter = ArtifactFilter {
            tenant: self.tenant.map(str::to_owned),
            run: arguments.run.clone(),
            sandbox: None,
            state: arguments.state.as_deref().and_then(ArtifactState::named),
        };
        let all = artifacts::list(self.store.as_ref(), &filter)?;
        if arguments.json {
            self.output
                .json(&json!(all.iter().map(as_json).collect::<Vec<Value>>()));
            return Ok(());
        }
        if all.is_empty() {
            let is_any = arguments.run.is_none() && arguments.state.is_none();
            self.output.say(match is_any {
                true => {
                    "No artifacts yet. What a program of `atoll run --outputs` writes to /outputs \
                         becomes some.\n"
                }
                false => "No such artifacts.\n",
            });
        }
        for one in &all {
            let state = match one.destroyed {
                true => "destroyed",
                false => one.state.name(),
            };
            let line = format!(
                "{}  {state:<9}  {:>15}  {:<26}  {}  {}\n",
                one.id,
                grouped(one.bytes),
                one.media,
                one.origin.run,
                quoted(&one.name),
            );
            self.output.result(&line);
        }
        Ok(())
    }

    fn show(&self, arguments: &ShowArtifactArguments) -> Result<(), Failure> {
        let (store, one) = self.named(&arguments.id)?;
        if arguments.statement {
            let statement = store
                .statement(&one)
                .doing("the statement cannot be read")?;
            self.output.result(&format!("{statement}\n"));
            return Ok(());
        }
        if arguments.json {
            let mut told = as_json(&one);
            let scans = evidence(store, &one)?;
            if let Some(told) = told.as_object_mut() {
                told.insert("scans".to_owned(), scans_json(&scans));
            }
            self.output.json(&told);
            return Ok(());
        }
        let mut rows = vec![
            ("id", one.id.clone()),
            ("name", quoted(&one.name)),
            ("size", counted(one.bytes, "byte", "bytes")),
            ("type", one.media.clone()),
            ("sha256", one.sha256.clone()),
            ("blake3", one.blake3.clone()),
            ("state", told(&one)),
            ("run", one.origin.run.to_string()),
        ];
        let origin = &one.origin;
        let further = [("sandbox", &origin.sandbox), ("session", &origin.session)];
        let further = further.into_iter().filter_map(|(name, value)| {
            let value = value.as_ref()?;
            Some((name, printable(value.as_bytes())))
        });
        rows.extend(further);
        rows.push(("entry", format!("{} of the ledger", one.entry)));
        if origin.interrupted {
            rows.push((
                "note",
                "its run was cut off, so it may be half of a file".to_owned(),
            ));
        }
        for (name, value) in rows {
            self.output.result(&format!("{name:<8}{value}\n"));
        }
        for scanned in evidence(store, &one)? {
            scan_rows(&scanned)
                .iter()
                .for_each(|row| self.output.result(row));
        }
        if one.media.starts_with("text/") && !one.destroyed {
            self.preview(store, &one)?;
        }
        Ok(())
    }

    /// Shows the first lines of a text that a program wrote: nothing in them reaches the terminal
    /// but what is printable.
    fn preview(&self, store: &Artifacts, one: &Artifact) -> Result<(), Failure> {
        let mut head = Head(Vec::new());
        match store.read(one, &mut head) {
            // It stops itself, once it has enough.
            Err(_) if head.0.len() >= PREVIEW_BYTES => {}
            read => read.doing("its content cannot be read")?,
        }
        self.output.result("\n");
        let cleaned = clean_answer(&head.0, Pii::Mask);
        for line in cleaned.text.lines().take(PREVIEW_LINES) {
            self.output.result(&format!("| {line}\n"));
        }
        for note in cleaned.notes() {
            self.output.say(&format!("{note}\n"));
        }
        Ok(())
    }

    fn get(&self, arguments: &GetArtifactArguments) -> Result<(), Failure> {
        let (store, one) = self.named(&arguments.id)?;
        let mut out = io::stdout().lock();
        artifacts::content(store, &one, &mut out)?;
        out.flush().doing("its content cannot be written")
    }

    fn scan(&self, arguments: &ScanArtifactsArguments) -> Result<u8, Failure> {
        let rules = arguments.rules.as_ref().map(std::fs::read_to_string);
        let rules = rules.transpose().doing("the rules cannot be read")?;
        if let Some(text) = &rules {
            Rules::read(text).doing("the rules cannot be used")?;
        }
        let all = self.meant(&arguments.ids)?;
        let Some(store) = self.store.as_ref().filter(|_| !all.is_empty()) else {
            self.output.say("Nothing waits.\n");
            return Ok(0);
        };
        let engine = Engine::open(atoll_launcher::LAUNCHER)?;
        let program = std::env::current_exe().doing("this program cannot be found")?;
        let (mut told, mut is_clean) = (Vec::new(), true);
        for one in all.iter().filter(|one| !one.destroyed) {
            let scans = scan(&engine, store, one, rules.as_deref(), &program)?;
            is_clean &= scans
                .iter()
                .all(|scanned| scanned.verdict == Verdict::Clean);
            if arguments.json {
                told.push(json!({ "id": one.id, "scans": scans_json(&scans) }));
                continue;
            }
            self.output
                .result(&format!("{}  {}\n", one.id, quoted(&one.name)));
            let rows = scans.iter().flat_map(scan_rows);
            rows.for_each(|row| self.output.result(&row));
        }
        if arguments.json {
            self.output.json(&json!(told));
        }
        Ok(u8::from(!is_clean))
    }

    /// Returns the artifacts of these ids; all that wait without any.
    fn meant(&self, ids: &[String]) -> Result<Vec<Artifact>, Failure> {
        if !ids.is_empty() {
            return ids.iter().map(|id| Ok(self.named(id)?.1)).collect();
        }
        let filter = ArtifactFilter {
            tenant: self.tenant.map(str::to_owned),
            state: Some(ArtifactState::Held),
            ..ArtifactFilter::default()
        };
        artifacts::list(self.store.as_ref(), &filter)
    }

    fn promote(&self, arguments: &PromoteArtifactsArguments) -> Result<(), Failure> {
        let mut all = Vec::new();
        for id in &arguments.ids {
            let (_, one) = self.named(id)?;
            if !all.contains(&one) {
                all.push(one);
            }
        }
        all.sort_by(|one, other| one.origin.run.as_str().cmp(other.origin.run.as_str()));
        let Some(store) = &self.store else {
            return Ok(());
        };
        let to = arguments.to.as_deref();
        self.scan_missing(store, &all)?;
        let places = self.deciding(arguments.why.as_deref(), store, |deciding| {
            deciding.promote(store, &all, to)
        })?;
        let count = counted(all.len() as u64, "artifact is", "artifacts are");
        self.output.say(&format!("{count} promoted.\n"));
        for place in places {
            let place = quoted(place.as_os_str().as_bytes());
            self.output.say(&format!("  written to {place}\n"));
        }
        Ok(())
    }

    /// Has scanners look at those that they have not looked at: what is missing is no pass.
    fn scan_missing(&self, store: &Artifacts, all: &[Artifact]) -> Result<(), Failure> {
        let mut unseen = Vec::new();
        for one in all.iter().filter(|one| !one.destroyed) {
            if one.state == ArtifactState::Held && !missing(store, one)?.is_empty() {
                unseen.push(one);
            }
        }
        if unseen.is_empty() {
            return Ok(());
        }
        let engine = Engine::open(atoll_launcher::LAUNCHER)?;
        let program = std::env::current_exe().doing("this program cannot be found")?;
        for one in unseen {
            self.output
                .say(&format!("Scanning {} {}\n", one.id, quoted(&one.name)));
            scan(&engine, store, one, None, &program)?;
        }
        Ok(())
    }

    fn reject(&self, arguments: &RejectArtifactArguments) -> Result<(), Failure> {
        let (store, one) = self.named(&arguments.id)?;
        let why = arguments.why.as_deref();
        self.deciding(why, store, |deciding| deciding.reject(store, &one))?;
        self.output
            .say(&format!("Artifact {} is rejected.\n", one.id));
        Ok(())
    }

    fn deciding<T>(
        &self,
        why: Option<&str>,
        store: &Artifacts,
        decide: impl FnOnce(&Deciding<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let by = atoll_engine::configuration::principal().name;
        decide(&Deciding {
            state: self.state,
            ledger: self.ledger,
            by: &by,
            why,
            seen: &|one| seen(store, one),
            agrees: &|all, reasons| agrees(all, reasons, self.output),
        })
    }
}

/// Returns a line for what a scanner says, or one for each finding.
fn scan_rows(scanned: &Scanned) -> Vec<String> {
    let name = &scanned.scanner;
    match &scanned.verdict {
        Verdict::Clean => vec![format!("  {name:<15} nothing found\n")],
        Verdict::Failed(why) => {
            vec![format!(
                "  {name:<15} failed: {}\n",
                printable(why.as_bytes())
            )]
        }
        Verdict::Found(findings) => {
            let rows = findings.iter().map(|one| {
                let shown = |text: &str| printable(text.as_bytes());
                let (rule, place) = (shown(&one.rule), shown(&one.place));
                format!("  {name:<15} {rule}, {place} ({} %)\n", one.confidence)
            });
            rows.collect()
        }
    }
}

fn scans_json(all: &[Scanned]) -> Value {
    let told = all.iter().map(|one| {
        let (verdict, findings, why) = match &one.verdict {
            Verdict::Clean => ("clean", json!([]), None),
            Verdict::Found(findings) => ("found", json!(findings), None),
            Verdict::Failed(why) => ("failed", json!([]), Some(why)),
        };
        json!({
            "scanner": one.scanner,
            "version": one.version,
            "at_ms": one.at_ms,
            "verdict": verdict,
            "findings": findings,
            "why": why,
        })
    });
    told.collect()
}

/// Asks the person at the terminal. Any doubt denies.
fn agrees(all: &[Artifact], reasons: &[Reason], output: &Output) -> Result<(), Failure> {
    let lines = reasons.iter().map(|one| {
        let text = format!("{}: {} ({})", one.what, one.why, one.rule);
        printable(text.as_bytes())
    });
    let lines: Vec<String> = lines.collect();
    let denied = |why: &str| {
        Failure::new("a person is asked before this is promoted; nothing was promoted")
            .because(format!("{why}\n{}", lines.join("\n")))
            .of_kind(Kind::Denied)
    };
    if !output.can_ask {
        return Err(denied("nobody can be asked here")
            .advise("promote it at a terminal, where you are asked"));
    }
    if all.len() > ASKED_MAX {
        let why = format!("nobody reads more than {ASKED_MAX} at once");
        return Err(denied(&why).advise("promote fewer at once"));
    }
    let mut rows = vec!["You are asked before this is promoted:".to_owned()];
    rows.extend(all.iter().map(|one| {
        let (name, bytes) = (quoted(&one.name), grouped(one.bytes));
        format!("  {} {name}, {bytes} bytes, sha256 {}", one.id, one.sha256)
    }));
    rows.extend(lines.iter().map(|line| format!("  {line}")));
    match consent(&rows, "promote it", output)? {
        Ok(()) => Ok(()),
        Err(why) => Err(denied(why)),
    }
}

fn told(one: &Artifact) -> String {
    let destroyed = if one.destroyed {
        ", content destroyed"
    } else {
        ""
    };
    let by = one.decision.as_ref().map(|decision| {
        let why = decision.why.as_ref();
        let why = why.map_or(String::new(), |why| {
            format!(": {}", printable(why.as_bytes()))
        });
        format!(" by {}{why}", printable(decision.by.as_bytes()))
    });
    format!("{}{}{destroyed}", one.state.name(), by.unwrap_or_default())
}

/// The first bytes of what is written; the rest is refused.
struct Head(Vec<u8>);

impl Write for Head {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = PREVIEW_BYTES.saturating_sub(self.0.len());
        let taken = bytes.get(..room).unwrap_or(bytes);
        self.0.extend_from_slice(taken);
        match taken.len() < bytes.len() {
            true => Err(io::ErrorKind::WriteZero.into()),
            false => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
