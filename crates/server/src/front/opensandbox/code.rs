//! Cells of code in a sandbox, as execd runs them: contexts, and events while a cell is executed.

use axum::body::Body;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::commands::Events;
use super::{Inside, named};
use crate::front::answers::{body, empty, json as answer_json};
use crate::front::control::not_offered;
use crate::front::interpreter::{self, Context, Event, Interpreter};
use crate::protocol::{Kind, Refusal};

/// The beginning of the id of an execution in the default context of a language.
const DEFAULT: &str = "default-";

/// Answers a request about code.
pub(super) async fn answer(
    inside: &Inside<'_>,
    parts: &Parts,
    path: &[&str],
    content: Body,
) -> Result<Response, Refusal> {
    let interpreter = Interpreter {
        front: inside.front,
        credential: &inside.credential,
        sandbox: inside.sandbox,
    };
    let language = named(parts, "language").next();
    let is_asked = |one: &&Context| language.as_ref().is_none_or(|name| one.language == *name);
    match (parts.method.as_str(), path) {
        ("POST", [_]) => run(&interpreter, body(content).await?).await,
        ("DELETE", [_]) => {
            let id = named(parts, "id").next().unwrap_or_default();
            match id.strip_prefix(DEFAULT) {
                Some(language) => interpreter.steer(language, "interrupt").await?,
                None => interpreter.steer_by_id(&id, "interrupt").await?,
            }
            Ok(empty(StatusCode::OK))
        }
        ("POST", [_, "context"]) => {
            let asked: Asked = body(content).await?;
            let made = interpreter.make_context(&asked.language).await?;
            Ok(answer_json(StatusCode::OK, &facts(&made)))
        }
        ("GET", [_, "contexts"]) => {
            let all = interpreter.contexts().await?;
            let all: Vec<Value> = all.iter().filter(is_asked).map(facts).collect();
            Ok(answer_json(StatusCode::OK, &json!(all)))
        }
        ("GET", [_, "contexts", id]) => {
            let all = interpreter.contexts().await?;
            let found = all.iter().find(|one| one.id == *id);
            let none = || Refusal::new(Kind::NotFound, format!("there is no context {id:?}"));
            Ok(answer_json(StatusCode::OK, &facts(found.ok_or_else(none)?)))
        }
        ("DELETE", [_, "contexts", id]) => {
            interpreter.remove_context(id).await?;
            Ok(empty(StatusCode::OK))
        }
        ("DELETE", [_, "contexts"]) => {
            let all = interpreter.contexts().await?;
            for one in all.iter().filter(is_asked) {
                interpreter.remove_context(&one.id).await?;
            }
            Ok(empty(StatusCode::OK))
        }
        _ => Err(not_offered(parts)),
    }
}

#[derive(Deserialize)]
struct Asked {
    language: String,
}

#[derive(Deserialize)]
struct Cell {
    code: String,
    context: Option<InContext>,
}

#[derive(Deserialize)]
struct InContext {
    id: Option<String>,
    language: Option<String>,
}

fn facts(context: &Context) -> Value {
    json!({ "id": context.id, "language": context.language })
}

/// Executes a cell and streams what happens. The id of the execution is its context's: that executes
/// one after the other.
async fn run(interpreter: &Interpreter<'_>, cell: Cell) -> Result<Response, Refusal> {
    let context = cell.context.unwrap_or(InContext {
        id: None,
        language: None,
    });
    let language = context.language.unwrap_or_else(|| "python".to_owned());
    let (id, cells) = match context.id {
        Some(id) => {
            let cells = interpreter.execute_by_id(&id, &cell.code).await?;
            (id, cells)
        }
        None => {
            let cells = interpreter.execute(&language, &cell.code).await?;
            (format!("{DEFAULT}{language}"), cells)
        }
    };
    let (events, response) = Events::stream();
    tokio::spawn(async move {
        if events.send("init", json!({ "text": id })).await {
            // To drop them, where the other side is gone, interrupts the cell.
            tokio::select! {
                () = follow(cells, &events) => (),
                () = events.closed() => (),
            }
        }
    });
    Ok(response)
}

async fn follow(mut cells: interpreter::Events, events: &Events) {
    let mut has_failed = false;
    loop {
        let line = match cells.next().await {
            Ok(Some(line)) => line,
            Ok(None) if has_failed => return,
            Ok(None) => return events.complete().await,
            Err(refusal) => return events.failed("Interrupted", &refusal.told(), "").await,
        };
        let event = match line.event() {
            Ok(event) => event,
            Err(refusal) => return events.failed("Interrupted", &refusal.told(), "").await,
        };
        let is_there = match &*event.kind {
            "number_of_executions" => {
                let count = json!({ "execution_count": event.execution_count });
                events.send("execution_count", count).await
            }
            kind @ ("stdout" | "stderr") => events.send(kind, json!({ "text": event.text })).await,
            "result" => {
                events
                    .send("result", json!({ "results": results(&event) }))
                    .await
            }
            "error" => {
                has_failed = true;
                let error = json!({
                    "ename": event.name,
                    "evalue": event.value,
                    "traceback": [event.traceback],
                });
                events.send("error", json!({ "error": error })).await
            }
            _ => true,
        };
        if !is_there {
            return;
        }
    }
}

/// Returns the parts of a result: its text, and the others by their types.
fn results(event: &Event<'_>) -> Value {
    let parts: [(&str, Option<&RawValue>); 10] = [
        ("text", event.text),
        ("text/html", event.html),
        ("text/markdown", event.markdown),
        ("text/latex", event.latex),
        ("image/svg+xml", event.svg),
        ("image/png", event.png),
        ("image/jpeg", event.jpeg),
        ("application/pdf", event.pdf),
        ("application/json", event.json),
        ("application/javascript", event.javascript),
    ];
    let there = parts
        .into_iter()
        .filter_map(|(name, part)| Some((name.to_owned(), json!(part?))));
    Value::Object(there.collect::<Map<_, _>>())
}
