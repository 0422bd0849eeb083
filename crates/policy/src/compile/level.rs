//! The parts of a profile that a level leaves out, so that a run starts without them instead of not
//! at all.

use atoll_model::{LimitKey, ViewKind};

use crate::error::ProfileError;
use crate::error::invalid;
use crate::levels::{Level, TrustMode};
use crate::network::ask::Answering;
use crate::origin::Origin;
use crate::refusal::reason;
use crate::rules::{Rules, Tightened};

/// The highest limits at level none, all of a kind that every host can enforce.
const TIGHT: [(LimitKey, &str); 9] = [
    (LimitKey::Memory, "25%"),
    (LimitKey::Processes, "256"),
    (LimitKey::OpenFiles, "1024"),
    (LimitKey::Disk, "1GiB"),
    (LimitKey::Inodes, "100000"),
    (LimitKey::Tmp, "256MiB"),
    (LimitKey::WallClock, "10m"),
    (LimitKey::Idle, "2m"),
    (LimitKey::Output, "16MiB"),
];

/// Applies level and mode, once all layers are merged.
pub(crate) fn settle(rules: &mut Rules) -> Result<(), ProfileError> {
    let (level, mode) = (rules.trust.level(), rules.trust.mode());
    let origin = rules.trust.origin();
    refuse_learning(rules, &origin);
    if level == Level::None {
        leave_out(rules, &origin);
        tighten(rules, &origin)?;
    }
    if level <= Level::Low && !rules.ssh.is_empty() {
        rules.ssh.clear();
        let text = format!("no key of SSH signs: trust level {level}");
        rules.notice(text, origin.clone());
    }
    rules.network.answering = match (level, mode) {
        (_, TrustMode::Strict) => Answering::Deny,
        (_, TrustMode::Permissive) | (Level::Full, TrustMode::Layered) => Answering::Allow,
        (Level::None | Level::Low | Level::Medium | Level::High, TrustMode::Layered) => {
            Answering::Person
        }
    };
    if level > Level::None && rules.network.answering == Answering::Allow && would_ask(rules) {
        let text = format!(
            "what the profile or --ask would ask about goes out without a question, and is \
             recorded: trust level {level}, mode {mode}; the organisation, a project and policies \
             still ask"
        );
        rules.notice(text, origin);
    }
    Ok(())
}

/// Returns whether the profile or the level would require an approval if the mode did not decide
/// instead.
fn would_ask(rules: &Rules) -> bool {
    let asks = &rules.network.ask;
    let of_own = asks.asks().len() > asks.asks_of_others().len();
    of_own || rules.trust.level() == Level::Medium && rules.reaches_outside()
}

/// Refuses `--learn` at low levels and in strict mode, since it opens the whole internet.
fn refuse_learning(rules: &mut Rules, origin: &Origin) {
    let (level, mode) = (rules.trust.level(), rules.trust.mode());
    if rules.network.learn && (level <= Level::Low || mode == TrustMode::Strict) {
        rules.refusals.push(reason(
            "learning what is reached (--learn)",
            format!("trust level {level}, mode {mode}, leaves no host open that no rule names"),
            origin,
            match level {
                Level::None | Level::Low => {
                    "leave out --learn, or trust it further: --trust medium"
                }
                Level::Medium | Level::High | Level::Full => "leave out --learn, or --mode layered",
            },
        ));
    }
}

fn leave_out(rules: &mut Rules, origin: &Origin) {
    let mut left_out = Vec::new();
    let is_published = !rules.network.publish.is_empty();
    rules.network.publish.clear();
    if rules.network.close() {
        left_out.push("the network");
    }
    if is_published {
        left_out.push("published ports");
    }
    if !rules.credentials.is_empty() {
        rules.credentials.clear();
        left_out.push("credentials");
    }
    let before = rules.views.len();
    rules.views.retain(|_, view| match view.value.kind {
        ViewKind::Home | ViewKind::Cache => false,
        ViewKind::System | ViewKind::Input | ViewKind::Repository => true,
    });
    if rules.views.len() < before {
        left_out.push("what is shown of the home directory");
    }
    if !left_out.is_empty() {
        let text = format!("trust level none leaves these out: {}", left_out.join(", "));
        rules.notice(text, origin.clone());
    }
}

fn tighten(rules: &mut Rules, origin: &Origin) -> Result<(), ProfileError> {
    let memory = rules.host.memory_bytes;
    for (key, text) in TIGHT {
        let before = rules.limits.origin(key);
        let tightened = rules.limits.tighten(key, text, origin.clone(), memory);
        match tightened.map_err(|error| invalid(origin, error.to_string()))? {
            Tightened::Counts if !before.is_shipped() => {
                let text = format!("limit {key} of {before}: trust level none holds it at {text}");
                rules.notice(text, origin.clone());
            }
            Tightened::Counts | Tightened::Same | Tightened::Looser => {}
        }
    }
    Ok(())
}
