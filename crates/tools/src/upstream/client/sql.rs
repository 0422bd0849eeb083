//! Statements on a database: judged here, and sent as the tree that was judged, into a transaction
//! that may do no more.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use atoll_sql::{Class, Judged};
use futures_util::TryStreamExt;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::{Mutex, Notify};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use super::dial::Dialer;
use super::http::explained;
use super::{Called, Orders, Pipes, follow};
use crate::block::Block;
use crate::database::{Database, Place};
use crate::upstream::frames::{Given, News};

/// Carries out statements until nobody gives orders any more.
pub(super) async fn speak(
    database: Box<Database>,
    dialer: Dialer,
    pipes: Pipes,
    orders: Orders,
    news: &Sender<News>,
) -> io::Result<()> {
    let server = match &database.place {
        Place::Sqlite { .. } => {
            let lines = BufReader::new(pipe::Receiver::from_owned_fd_unchecked(pipes.from)?);
            let to = pipe::Sender::from_owned_fd_unchecked(pipes.to)?;
            let mut lines = Lines {
                lines,
                to,
                left: Vec::new(),
                last: 0,
            };
            // It says that it has the file.
            let begun = lines.answer().await.ok_or_else(ended);
            begun.map(|_| Server::Sqlite(Mutex::new(lines)))
        }
        Place::Postgres { .. } => Postgres::begin(&database, dialer)
            .await
            .map(Server::Postgres),
    };
    let server = match server {
        Ok(server) => Arc::new(server),
        Err(why) => {
            let _ = news.send(News::Failed { why });
            return Ok(());
        }
    };
    let database = Arc::<Database>::from(database);
    let _ = news.send(News::Offered(Vec::new()));
    let gone = Arc::new(Notify::new());
    let call = |called: Called| {
        let (database, server) = (Arc::clone(&database), Arc::clone(&server));
        let gone = Arc::clone(&gone);
        async move {
            let answered = server.carry_out(&database, &called.arguments).await;
            if answered.is_none() {
                gone.notify_one();
            }
            answered
        }
    };
    tokio::select! {
        () = follow(orders, news, call) => {}
        () = gone.notified() => drop(news.send(News::Failed { why: ended() })),
    }
    if let Server::Postgres(server) = &*server {
        server.end().await;
    }
    Ok(())
}

fn ended() -> String {
    "the program with the database has ended".to_owned()
}

/// The database as it is reached.
enum Server {
    Postgres(Postgres),
    Sqlite(Mutex<Lines>),
}

impl Server {
    /// Judges a statement and carries it out; `None` if the program with the database has ended.
    async fn carry_out(
        &self,
        database: &Database,
        arguments: &Map<String, Value>,
    ) -> Option<Result<Given, String>> {
        let statement = arguments.get("statement").and_then(Value::as_str);
        let judged = match database.rules.judge(statement.unwrap_or_default()) {
            Ok(judged) => judged,
            Err(why) => return Some(Err(format!("The statement is refused: {why}"))),
        };
        let result = match self {
            Self::Postgres(server) => server.carry_out(database, &judged).await,
            Self::Sqlite(program) => program.lock().await.carry_out(&judged.text).await?,
        };
        Some(result.map(|result| Given {
            blocks: vec![Block::text(result.to_string())],
            structured: Some(result),
            is_error: false,
            sent: Some(judged.text),
            status: None,
            asks: None,
        }))
    }
}

/// The program with a SQLite database.
struct Lines {
    lines: BufReader<pipe::Receiver>,
    to: pipe::Sender,
    /// The beginning of a line.
    left: Vec<u8>,
    /// The number of the last statement.
    last: u64,
}

impl Lines {
    async fn carry_out(&mut self, statement: &str) -> Option<Result<Value, String>> {
        self.last += 1;
        let line = json!({ "id": self.last, "statement": statement });
        self.to
            .write_all(format!("{line}\n").as_bytes())
            .await
            .ok()?;
        self.answer().await
    }

    /// Reads the answer to the last statement; `None` where nobody writes it any more.
    async fn answer(&mut self) -> Option<Result<Value, String>> {
        loop {
            // Whoever asked before may have left: its answer comes first.
            let read = self.lines.read_until(b'\n', &mut self.left).await;
            if read.is_err() || !self.left.ends_with(b"\n") {
                return None;
            }
            let line = std::mem::take(&mut self.left);
            let mut answer: Map<String, Value> = serde_json::from_slice(&line).ok()?;
            if answer.remove("id") == Some(json!(self.last)) {
                return Some(match answer.get("error").and_then(Value::as_str) {
                    Some(why) => Err(why.to_owned()),
                    None => Ok(Value::Object(answer)),
                });
            }
        }
    }
}

/// A PostgreSQL server, with a role of the session's own.
struct Postgres {
    dialer: Dialer,
    place: Place,
    /// The role, if its user may make one.
    role: Option<String>,
    /// The connection, if none of its statements was given up.
    kept: Mutex<Option<Client>>,
}

impl Postgres {
    /// Signs in, and makes a role that may do what statements may, and no more.
    async fn begin(database: &Database, dialer: Dialer) -> Result<Self, String> {
        let place = database.place.clone();
        let client = connect(&dialer, &place).await?;
        let number = client
            .simple_query("SELECT pg_catalog.gen_random_uuid()")
            .await;
        let number = match number
            .map_err(|error| explained(&error))?
            .into_iter()
            .find_map(text)
        {
            Some(number) => number.replace('-', ""),
            None => return Err("it does not answer".to_owned()),
        };
        let role = format!("atoll_{number}");
        let mut all = vec![
            "BEGIN".to_owned(),
            format!("CREATE ROLE {role} NOLOGIN NOINHERIT"),
            format!("GRANT {role} TO CURRENT_USER"),
        ];
        all.extend(database.rules.grants(&role));
        all.push("COMMIT".to_owned());
        let made = client.batch_execute(&all.join(";\n")).await.is_ok();
        if !made {
            let ended = client.batch_execute("ROLLBACK").await;
            ended.map_err(|error| explained(&error))?;
        }
        Ok(Self {
            dialer,
            place,
            role: made.then_some(role),
            kept: Mutex::new(Some(client)),
        })
    }

    /// Drops the role.
    async fn end(&self) {
        let Some(role) = &self.role else {
            return;
        };
        let client = match self.kept.lock().await.take() {
            Some(client) => Ok(client),
            None => connect(&self.dialer, &self.place).await,
        };
        if let Ok(client) = client {
            let drop = format!("DROP OWNED BY {role}; DROP ROLE {role}");
            let _ = client.batch_execute(&drop).await;
        }
    }

    async fn carry_out(&self, database: &Database, judged: &Judged) -> Result<Value, String> {
        let mut kept = self.kept.lock().await;
        // Not there until it is known to be as before: a statement may be given up.
        let client = match kept.take().filter(|client| !client.is_closed()) {
            Some(client) => client,
            None => connect(&self.dialer, &self.place).await?,
        };
        let mode = match judged.class {
            Class::Select => "READ ONLY",
            Class::Insert | Class::Update | Class::Delete => "READ WRITE",
        };
        let role = self.role.as_deref().unwrap_or("NONE");
        let time = database.timeout.as_millis();
        let begin = format!(
            "BEGIN {mode}; SET LOCAL search_path = pg_catalog; \
             SET LOCAL statement_timeout = {time}; SET LOCAL ROLE {role}"
        );
        let begun = client.batch_execute(&begin).await;
        begun.map_err(|error| explained(&error))?;
        let result = rows(&client, database, judged).await;
        let (end, whether) = match result {
            Ok(_) => ("COMMIT", "Whether it had an effect is unknown: "),
            Err(_) => ("ROLLBACK", ""),
        };
        let ended = client.batch_execute(end).await;
        if let Err(error) = ended {
            return result.and(Err(format!("{whether}{}", explained(&error))));
        }
        *kept = Some(client);
        result
    }
}

fn text(message: SimpleQueryMessage) -> Option<String> {
    match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    }
}

async fn connect(dialer: &Dialer, place: &Place) -> Result<Client, String> {
    let Place::Postgres {
        host,
        port,
        user,
        database,
    } = place
    else {
        return Err("it is no server".to_owned());
    };
    let socket = dialer.connect(host, *port).await;
    let socket = socket.map_err(|error| error.to_string())?;
    let mut settings = tokio_postgres::Config::new();
    settings
        .user(user)
        .dbname(database)
        .application_name("atoll");
    let connected = settings.connect_raw(socket, NoTls).await;
    let (client, connection) = connected.map_err(|error| explained(&error))?;
    tokio::spawn(connection);
    Ok(client)
}

/// Sends a statement, and reads its rows as objects, so many and so long at most.
async fn rows(client: &Client, database: &Database, judged: &Judged) -> Result<Value, String> {
    let Judged {
        text: statement, ..
    } = judged;
    let most = u64::from(database.rows) + 1;
    let statement = match (judged.class, judged.returns_rows) {
        (Class::Select, _) => format!(
            "SELECT pg_catalog.to_json(q)::pg_catalog.text FROM ({statement}) AS q LIMIT {most}"
        ),
        (_, true) => {
            format!("WITH q AS ({statement}) SELECT pg_catalog.to_json(q)::pg_catalog.text FROM q")
        }
        (_, false) => statement.clone(),
    };
    let told = client.simple_query_raw(&statement).await;
    let mut told = Box::pin(told.map_err(|error| explained(&error))?);
    let (mut rows, mut bytes, mut more, mut changed) = (Vec::new(), 0, false, None);
    while let Some(message) = told.try_next().await.map_err(|error| explained(&error))? {
        match message {
            SimpleQueryMessage::Row(row) => {
                let row = row.get(0).unwrap_or_default();
                bytes += row.len();
                more |= rows.len() == database.rows as usize || bytes > database.bytes;
                if !more {
                    rows.push(crate::json::parse(row, row.len()).map_err(|error| {
                        format!("a row of the result cannot be read: {error}; give columns names of their own, and cast large numbers to text")
                    })?);
                }
            }
            SimpleQueryMessage::CommandComplete(count) => changed = Some(count),
            _ => {}
        }
    }
    let mut result = json!({ "rows": rows, "more": more });
    if let (Some(changed), false, Some(result)) = (
        changed,
        judged.class == Class::Select,
        result.as_object_mut(),
    ) {
        result.insert("changed".to_owned(), json!(changed));
    }
    Ok(result)
}
