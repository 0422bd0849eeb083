//! What the ledger says of a run's connections.

use atoll_model::RunId;
use atoll_model::network::Flow;
use atoll_sandbox::FlowNews;
use atoll_store::{Durability, Ledger, LedgerError};
use serde_json::{Map, Value, json};

/// Records one thing; a connection is on disk when this returns.
pub(crate) fn record(ledger: &Ledger, run: &RunId, news: &FlowNews<'_>) -> Result<(), LedgerError> {
    let (kind, body, durability) = match news {
        FlowNews::Opened { id, flow } => {
            let mut body = describe(flow);
            body.insert("flow".to_owned(), json!(id));
            ("flow.opened", body, Durability::Durable)
        }
        FlowNews::Closed { id, end } => {
            let mut body = Map::new();
            body.insert("flow".to_owned(), json!(id));
            body.insert("up_bytes".to_owned(), json!(end.up_bytes));
            body.insert("down_bytes".to_owned(), json!(end.down_bytes));
            body.insert("duration_us".to_owned(), json!(end.duration_us));
            if let Some(failure) = &end.failure {
                body.insert("failure".to_owned(), json!(failure));
            }
            ("flow.closed", body, Durability::Buffered)
        }
        FlowNews::Refused(refused) => {
            let mut body = describe(&refused.flow);
            body.insert("why".to_owned(), json!(refused.why));
            body.insert("count".to_owned(), json!(refused.count));
            ("flow.refused", body, Durability::Buffered)
        }
    };
    let recorded = ledger.record_flow(run, kind, &Value::Object(body), durability);
    recorded.map(drop)
}

fn describe(flow: &Flow) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("kind".to_owned(), json!(flow.kind));
    body.insert("host".to_owned(), json!(flow.host));
    if flow.port != 0 {
        body.insert("port".to_owned(), json!(flow.port));
    }
    if let Some(address) = flow.address {
        body.insert("address".to_owned(), json!(address));
    }
    if let Some(rule) = &flow.rule {
        body.insert("rule".to_owned(), json!(rule));
    }
    body
}
