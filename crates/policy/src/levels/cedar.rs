//! The policies of a level of trust, beside those that people have written.

use std::fmt::Write;

use atoll_cedar::Action;

use crate::levels::{Level, TrustMode, TrustRules};

/// The effect of a level on requests and connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    /// As in the profile.
    Open,
    /// Allowed once a person approves.
    Asked,
    Denied,
}

fn sending(level: Level, mode: TrustMode) -> Sending {
    match (level, mode) {
        (Level::None | Level::Low, _) | (Level::Medium, TrustMode::Strict) => Sending::Denied,
        (Level::Medium, TrustMode::Layered) => Sending::Asked,
        (Level::Medium, TrustMode::Permissive) | (Level::High | Level::Full, _) => Sending::Open,
    }
}

impl TrustRules {
    /// Returns the policies of the level with the name of their file; `None` if it leaves
    /// everything to the profile.
    pub(crate) fn cedar(&self) -> Option<(String, String)> {
        let (level, mode) = (self.level(), self.mode());
        let text = self.written(sending(level, mode))?;
        Some((format!("level/{level}-{mode}.cedar"), text))
    }

    /// Returns the forbids of the level alone, which can stand in one file with a profile's
    /// permits.
    pub(crate) fn forbids(&self) -> Option<String> {
        let sending = match sending(self.level(), self.mode()) {
            Sending::Asked => Sending::Open,
            one @ (Sending::Open | Sending::Denied) => one,
        };
        self.written(sending)
    }

    /// Returns the conditions under which the level asks a person about what is allowed.
    pub(crate) fn asks(&self) -> Vec<(Action, String)> {
        match sending(self.level(), self.mode()) {
            Sending::Open | Sending::Denied => Vec::new(),
            Sending::Asked => vec![
                (Action::Request, self.elsewhere()),
                (Action::Connect, "context.look == \"past\"".to_owned()),
            ],
        }
    }

    /// Returns the condition of a request that sends something to other hosts than the models'.
    fn elsewhere(&self) -> String {
        let mut hosts = String::new();
        for (at, one) in self.endpoints.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            let _ = write!(hosts, "{comma}Host::\"{}\"", one.value);
        }
        match self.endpoints.is_empty() {
            true => "context.sends".to_owned(),
            false => format!("context.sends && !(resource in [{hosts}])"),
        }
    }

    fn written(&self, sending: Sending) -> Option<String> {
        let (level, mode) = (self.level(), self.mode());
        let mut text = format!("// Trust level {level}, mode {mode}: atoll help levels.\n");
        let before = text.len();
        match level {
            Level::None => text.push_str(&nothing()),
            Level::Low => text.push_str(&boundary(level)),
            Level::Medium | Level::High | Level::Full => {}
        }
        if level != Level::None {
            text.push_str(&self.leaving(level, sending));
        }
        (text.len() > before).then_some(text)
    }

    /// Returns policies on outgoing data: requests that send something, and tunnels.
    fn leaving(&self, level: Level, sending: Sending) -> String {
        let elsewhere = self.elsewhere();
        match sending {
            Sending::Open => String::new(),
            Sending::Denied => format!(
                "@id(\"level-{level}-sends\") @reason(\"nothing is sent at trust level {level}\")\n\
                 forbid(principal, action == Action::\"request\", resource) when {{ {elsewhere} }};\n\
                 @id(\"level-{level}-unseen\") @reason(\"bytes that nobody looks into are not carried at trust level {level}; those of a rule for requests are looked into, as --allow 'GET https://HOST:PORT/**'\")\n\
                 forbid(principal, action == Action::\"connect\", resource) when {{ context.look == \"past\" }};\n"
            ),
            Sending::Asked => format!(
                "@id(\"level-{level}-sends\") @approve(\"person\") @reason(\"what is sent is asked about at trust level {level}\")\n\
                 permit(principal, action == Action::\"request\", resource) when {{ {elsewhere} }};\n\
                 @id(\"level-{level}-reads\")\n\
                 permit(principal, action == Action::\"request\", resource) unless {{ {elsewhere} }};\n\
                 @id(\"level-{level}-unseen\") @approve(\"person\") @reason(\"what nobody looks into is asked about at trust level {level}\")\n\
                 permit(principal, action == Action::\"connect\", resource) when {{ context.look == \"past\" }};\n\
                 @id(\"level-{level}-seen\")\n\
                 permit(principal, action == Action::\"connect\", resource) unless {{ context.look == \"past\" }};\n"
            ),
        }
    }
}

/// Returns policies of level none: no connection, no credential, no published port.
fn nothing() -> String {
    let actions = ["resolve", "connect", "request", "use_credential", "publish"];
    let actions = actions.map(|one| format!("Action::\"{one}\"")).join(", ");
    format!(
        "@id(\"level-none-outside\") @reason(\"nothing outside is used at trust level none\")\n\
         forbid(principal, action in [{actions}], resource);\n{}",
        boundary(Level::None)
    )
}

/// Returns policies by which changes wait in a layer and no further kernel interface is opened.
fn boundary(level: Level) -> String {
    format!(
        "@id(\"level-{level}-live\") @reason(\"changes wait for a person at trust level {level}\")\n\
         forbid(principal, action == Action::\"run\", resource) when {{ context.workspace == \"live\" }};\n\
         @id(\"level-{level}-wider\") @reason(\"neither root nor nesting at trust level {level}\")\n\
         forbid(principal, action == Action::\"run\", resource) when {{ context.root || context.nesting }};\n"
    )
}
