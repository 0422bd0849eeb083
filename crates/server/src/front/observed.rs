//! Measurements of sandboxes, in the form of E2B's control API, and of the server.

use super::dialect::*;

/// The most sandboxes that are measured by one request, as E2B has it.
const MEASURED_MAX: usize = 100;

/// Measures a sandbox now; what it used before is not kept.
pub(crate) async fn metrics(sandbox: &Sandbox, query: &Query) -> Answered {
    let measures = sandbox.call(Measure {}).await?;
    let (start, end) = (query.number("start"), query.number("end"));
    let is_before = start.is_some_and(|start: u64| measures.at_s < start);
    let is_after = end.is_some_and(|end: u64| measures.at_s > end);
    ok(&match is_before || is_after {
        true => vec![],
        false => vec![measured(&measures)],
    })
}

fn measured(measures: &Measures) -> Value {
    json!({
        "timestamp": time_of(measures.at_s * 1000),
        "timestampUnix": measures.at_s,
        "cpuCount": measures.cpus,
        "cpuUsedPct": measures.cpu_percent,
        "memUsed": measures.memory_bytes,
        "memTotal": measures.memory_bytes_max,
        "memCache": 0,
        "diskUsed": measures.disk_bytes,
        "diskTotal": measures.disk_bytes_max,
    })
}

/// Measures the sandboxes that `sandbox_ids` names; those that are not there are left out.
pub(crate) async fn metrics_of_many(caller: &Caller, query: &Query) -> Answered {
    let ids = query.all("sandbox_ids");
    let ids: Vec<&str> = ids.flat_map(|value| value.split(',')).collect();
    if ids.len() > MEASURED_MAX {
        let count = ids.len();
        let what = format!("sandbox_ids names {count} sandboxes, and {MEASURED_MAX} is the most");
        return Err(Refusal::invalid(what));
    }
    let mut all = Map::new();
    for id in ids {
        let sandbox = caller.sandbox(&plain_id(id));
        match sandbox.call(Measure {}).await {
            Ok(measures) => drop(all.insert(sandbox.id, measured(&measures))),
            Err(refusal) if refusal.kind == Kind::NoSandbox => {}
            Err(refusal) => return Err(refusal),
        }
    }
    ok(&json!({ "sandboxes": all }))
}

/// Says whether the worker makes sandboxes.
pub(crate) async fn ready(caller: &Caller) -> Answered {
    let counts = caller.call(Count {}).await?;
    let status = match counts.makes && !counts.draining {
        true => StatusCode::NO_CONTENT,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    Ok(empty(status))
}

/// Writes the worker's numbers in Prometheus' text format.
pub(crate) async fn prometheus(caller: &Caller) -> Answered {
    let counts = caller.call(Count {}).await?;
    let mut all = String::new();
    let mut write = |name: &str, kind: &str, help: &str, number: u64| {
        let name = format!("atoll_{name}");
        all += &format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {number}\n");
    };
    let (gauge, counter) = ("gauge", "counter");
    write(
        "sandboxes",
        gauge,
        "Sandboxes that are alive.",
        counts.sandboxes as u64,
    );
    write(
        "programs",
        gauge,
        "Programs that run in them.",
        counts.programs as u64,
    );
    let help = "Sandboxes made ahead, that wait for whoever asks for one.";
    write("sandboxes_warm", gauge, help, counts.warm as u64);
    let help = "Sandboxes made ahead that have become a caller's.";
    write("sandboxes_assigned_total", counter, help, counts.assigned);
    write(
        "sandboxes_created_total",
        counter,
        "Sandboxes made.",
        counts.created,
    );
    write(
        "sandboxes_ended_total",
        counter,
        "Sandboxes ended.",
        counts.ended,
    );
    write(
        "requests_total",
        counter,
        "Requests to the worker.",
        counts.requests,
    );
    let name = "atoll_webhook_deliveries_total";
    all += &format!("# HELP {name} Deliveries to webhooks.\n# TYPE {name} counter\n");
    for (outcome, number) in [
        ("delivered", counts.webhooks_delivered),
        ("given_up", counts.webhooks_given_up),
        ("dropped", counts.webhooks_dropped),
    ] {
        all += &format!("{name}{{outcome=\"{outcome}\"}} {number}\n");
    }
    Ok(text("text/plain; version=0.0.4", all))
}
