//! Calls of a run that only an escape needs, and those that ordinary tools try.

use atoll_model::{ViolationKind, is_probe};
use serde_json::Value;

use super::{Story, text};
use crate::render::{self, Report, Style};

impl Story<'_> {
    /// Returns the violations it attempted. While it runs, and if its end was not seen, only the
    /// first attempt of each kind is known.
    pub(super) fn attempts(&self) -> Vec<&Value> {
        let closed = self.said("run.closed", "/attempts");
        match closed.and_then(Value::as_array) {
            Some(walls) => walls.iter().collect(),
            None => {
                let seen = self.events.iter().filter(|one| one.kind == "attempt.seen");
                seen.map(|one| &one.body).collect()
            }
        }
    }

    pub(super) fn tell_attempts(&self, report: &mut Report) {
        let mut has_attempts = false;
        for attempt in self.attempts() {
            let said = |member: &str| text(attempt.get(member)).unwrap_or_default();
            let counted = |(call, count): (&String, &Value)| match count.as_u64() {
                Some(2..) => format!(
                    "{call} {} times",
                    render::grouped(count.as_u64().unwrap_or(0))
                ),
                Some(_) | None => call.clone(),
            };
            let calls = attempt.get("calls").and_then(Value::as_object);
            let named: Vec<String> = match calls {
                Some(calls) => calls.keys().cloned().collect(),
                None => vec![said("call")],
            };
            let calls = match calls {
                Some(calls) => calls.iter().map(counted).collect::<Vec<_>>().join(", "),
                None => said("call"),
            };
            let line = format!(
                "against {}: {calls} (MITRE ATLAS {})",
                render::guard(&said("wall")),
                said("atlas")
            );
            let is_tried = named.iter().all(|call| is_probe(call));
            has_attempts |= !is_tried;
            match is_tried {
                true => report.line("denied", &format!("{line}; ordinary tools try it")),
                false => report.styled("attempt", &line, Some(Style::Bad)),
            }
            if is_tried && said("wall") == ViolationKind::Namespaces.name() {
                report.line(
                    "to do",
                    "nothing if all works; --nesting lets it make sandboxes of its own",
                );
            }
        }
        if has_attempts {
            report.line(
                "to do",
                "every one was refused; if you do not know why this program did, apply nothing of \
                 it: look at its output and its changes first",
            );
        }
    }
}
