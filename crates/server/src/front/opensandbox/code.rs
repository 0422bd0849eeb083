//! Cells of code in a sandbox, as execd runs them: contexts, and events while a cell is executed.

use super::commands::Events;
use crate::front::dialect::*;
use crate::front::interpreter::{self, Context};

/// The beginning of the id of an execution in the default context of a language.
const DEFAULT: &str = "default-";

/// Answers a request about code.
pub(super) async fn answer(sandbox: &Sandbox, path: &[&str], request: Request<Body>) -> Answered {
    let query = Query::of(request.uri());
    let language = query.one("language");
    let is_asked = |one: &&Context| language.as_ref().is_none_or(|name| one.language == *name);
    match (request.method().as_str(), path) {
        ("POST", [_]) => return run(sandbox, body(request).await?).await,
        ("DELETE", [_]) => {
            let id = query.one("id").unwrap_or_default();
            match id.strip_prefix(DEFAULT) {
                Some(language) => sandbox.steer(language, "interrupt").await?,
                None => sandbox.steer_by_id(&id, "interrupt").await?,
            }
        }
        ("POST", [_, "context"]) => {
            let asked: Asked = body(request).await?;
            return ok(&facts(&sandbox.make_context(&asked.language).await?));
        }
        ("GET", [_, "contexts"]) => {
            let all = sandbox.contexts().await?;
            return each(all.iter().filter(is_asked), facts);
        }
        ("GET", [_, "contexts", id]) => {
            let all = sandbox.contexts().await?;
            let found = all.iter().find(|one| one.id == *id);
            let none = || Refusal::new(Kind::NotFound, format!("there is no context {id:?}"));
            return ok(&facts(found.ok_or_else(none)?));
        }
        ("DELETE", [_, "contexts", id]) => sandbox.remove_context(id).await?,
        ("DELETE", [_, "contexts"]) => {
            for one in sandbox.contexts().await?.iter().filter(is_asked) {
                sandbox.remove_context(&one.id).await?;
            }
        }
        _ => return Err(not_offered(&request)),
    }
    Ok(empty(StatusCode::OK))
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

#[derive(Default, Deserialize)]
struct InContext {
    id: Option<String>,
    language: Option<String>,
}

fn facts(context: &Context) -> Value {
    json!({ "id": context.id, "language": context.language })
}

/// Executes a cell and streams what happens. The id of the execution is its context's: that executes
/// one after the other.
async fn run(sandbox: &Sandbox, cell: Cell) -> Answered {
    let context = cell.context.unwrap_or_default();
    let language = context.language.unwrap_or_else(|| "python".to_owned());
    let (id, cells) = match context.id {
        Some(id) => {
            let cells = sandbox.execute_by_id(&id, &cell.code).await?;
            (id, cells)
        }
        None => {
            let cells = sandbox.execute(&language, &cell.code).await?;
            (format!("{DEFAULT}{language}"), cells)
        }
    };
    let (events, response) = Events::stream();
    tokio::spawn(async move {
        if events.send("init", json!({ "text": id })).await {
            // To drop them, where the other side is gone, interrupts the cell.
            tokio::select! {
                followed = follow(cells, &events) => if let Err(refusal) = followed {
                    events.failed("Interrupted", &refusal.told(), "").await;
                },
                () = events.out.closed() => (),
            }
        }
    });
    Ok(response)
}

async fn follow(mut cells: interpreter::Events, events: &Events) -> Result<(), Refusal> {
    let mut has_failed = false;
    while let Some(line) = cells.next().await? {
        let event = line.event()?;
        let (kind, fields) = match &*event.kind {
            "number_of_executions" => {
                let count = json!({ "execution_count": event.execution_count });
                ("execution_count", count)
            }
            kind @ ("stdout" | "stderr") => (kind, json!({ "text": event.text })),
            "result" => {
                let parts = event.parts("text").into_iter();
                let there = parts.filter_map(|(name, part)| Some((name.to_owned(), json!(part?))));
                ("result", json!({ "results": there.collect::<Value>() }))
            }
            "error" => {
                has_failed = true;
                let error = json!({
                    "ename": event.name,
                    "evalue": event.value,
                    "traceback": [event.traceback],
                });
                ("error", json!({ "error": error }))
            }
            _ => continue,
        };
        if !events.send(kind, fields).await {
            return Ok(());
        }
    }
    if !has_failed {
        events.complete().await;
    }
    Ok(())
}
