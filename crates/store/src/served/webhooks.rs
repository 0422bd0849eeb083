//! Webhooks, and the queue of their deliveries: written in the same step as the event, so that a
//! server that is killed in between loses none.

use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};

use super::{LifecycleEvent, ServedError, ServedStore, event_at, random_hex, settle, signed};

/// The deliveries that may wait for one webhook; further ones are dropped.
const WAITING_MAX: i64 = 10_000;
/// The random bytes of a webhook's id.
const ID_BYTES: usize = 12;

pub(super) const TABLES: &str = "
    CREATE TABLE webhooks (
        id TEXT PRIMARY KEY,
        tenant TEXT NOT NULL REFERENCES tenants (id),
        name TEXT NOT NULL,
        url TEXT NOT NULL,
        enabled INTEGER NOT NULL,
        kinds TEXT NOT NULL,
        secret TEXT NOT NULL,
        created_ms INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX webhooks_of_tenant ON webhooks (tenant);
    CREATE TABLE deliveries (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL,
        webhook TEXT NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
        event INTEGER NOT NULL REFERENCES lifecycle_events (number) ON DELETE CASCADE,
        attempts INTEGER NOT NULL,
        next_ms INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX deliveries_of_webhook ON deliveries (webhook, next_ms, number);
    CREATE INDEX deliveries_of_event ON deliveries (event);
";

/// The columns of a webhook, without its secret.
const COLUMNS: &str = "id, tenant, name, url, enabled, kinds, created_ms";

/// A webhook, without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// Its id.
    pub id: String,
    /// The tenant.
    pub tenant: String,
    /// Its name.
    pub name: String,
    /// The address that events are sent to.
    pub url: String,
    /// False if none are sent.
    pub enabled: bool,
    /// The kinds of events that are sent.
    pub kinds: Vec<String>,
    /// The time at which it was made, milliseconds since 1970.
    pub created_ms: u64,
}

/// A webhook to make.
#[derive(Clone, Copy)]
pub struct NewWebhook<'a> {
    /// The tenant.
    pub tenant: &'a str,
    /// Its name.
    pub name: &'a str,
    /// The address that events are sent to.
    pub url: &'a str,
    /// False if none are sent yet.
    pub enabled: bool,
    /// The kinds of events that are sent.
    pub kinds: &'a [String],
    /// The secret that deliveries are signed with.
    pub secret: &'a str,
    /// The time, milliseconds since 1970.
    pub at_ms: u64,
}

/// A change of a webhook: of each field that is there.
#[derive(Clone, Copy, Default)]
#[allow(missing_docs)]
pub struct WebhookChange<'a> {
    pub name: Option<&'a str>,
    pub url: Option<&'a str>,
    /// False drops the deliveries that wait.
    pub enabled: Option<bool>,
    pub kinds: Option<&'a [String]>,
    pub secret: Option<&'a str>,
}

/// A delivery that waits: the next one of its webhook.
#[derive(Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Its number in the queue.
    pub number: i64,
    /// Its id, the same at each attempt.
    pub id: String,
    /// The attempts that were made.
    pub attempts: u32,
    /// The time of the next attempt, milliseconds since 1970.
    pub next_ms: u64,
    /// The webhook.
    pub webhook: String,
    /// The tenant.
    pub tenant: String,
    /// The address.
    pub url: String,
    /// The secret to sign it with.
    pub secret: String,
    /// The event.
    pub event: LifecycleEvent,
}

/// The deliveries that an event has led to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queued {
    /// Those that wait from now on.
    pub waiting: u64,
    /// Those that were dropped: too many wait for the webhook already.
    pub dropped: u64,
}

/// The webhooks, and what is to be delivered to them.
pub trait WebhookStore {
    /// Makes a webhook, if the tenant has fewer than `most`.
    ///
    /// # Errors
    /// [`ServedError::ManyWebhooks`].
    fn make_webhook(&self, wanted: &NewWebhook<'_>, most: u64) -> Result<Webhook, ServedError>;

    /// Returns a tenant's webhooks, the oldest first.
    ///
    /// # Errors
    /// [`ServedError`].
    fn webhooks(&self, tenant: &str) -> Result<Vec<Webhook>, ServedError>;

    /// Returns a webhook of a tenant.
    ///
    /// # Errors
    /// [`ServedError::NoWebhook`].
    fn webhook(&self, tenant: &str, id: &str) -> Result<Webhook, ServedError>;

    /// Changes a webhook of a tenant.
    ///
    /// # Errors
    /// [`ServedError::NoWebhook`].
    fn change_webhook(
        &self,
        tenant: &str,
        id: &str,
        wanted: &WebhookChange<'_>,
    ) -> Result<Webhook, ServedError>;

    /// Removes a webhook of a tenant, with the deliveries that wait.
    ///
    /// # Errors
    /// [`ServedError::NoWebhook`].
    fn remove_webhook(&self, tenant: &str, id: &str) -> Result<(), ServedError>;

    /// Returns the next delivery of each webhook that has one.
    ///
    /// # Errors
    /// [`ServedError`].
    fn next_deliveries(&self) -> Result<Vec<Delivery>, ServedError>;

    /// Takes a delivery off the queue.
    ///
    /// # Errors
    /// [`ServedError`].
    fn end_delivery(&self, number: i64) -> Result<(), ServedError>;

    /// Notes an attempt that has failed; the next one is at `next_ms`.
    ///
    /// # Errors
    /// [`ServedError`].
    fn retry_delivery(&self, number: i64, next_ms: u64) -> Result<(), ServedError>;
}

impl WebhookStore for ServedStore {
    fn make_webhook(&self, wanted: &NewWebhook<'_>, most: u64) -> Result<Webhook, ServedError> {
        let made = Webhook {
            id: random_hex(ID_BYTES)?,
            tenant: wanted.tenant.to_owned(),
            name: wanted.name.to_owned(),
            url: wanted.url.to_owned(),
            enabled: wanted.enabled,
            kinds: wanted.kinds.to_vec(),
            created_ms: wanted.at_ms,
        };
        let mut connection = self.connection();
        // What is counted stays so: others may not write in between.
        let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let all: i64 = change.query_row(
            "SELECT count(*) FROM webhooks WHERE tenant = ?1",
            params![made.tenant],
            |row| row.get(0),
        )?;
        if all >= signed(most) {
            return Err(ServedError::ManyWebhooks(most));
        }
        change.execute(
            "INSERT INTO webhooks (id, tenant, name, url, enabled, kinds, created_ms, secret)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![
                made.id,
                made.tenant,
                made.name,
                made.url,
                made.enabled,
                list(&made.kinds),
                signed(made.created_ms),
                wanted.secret,
            ],
        )?;
        change.commit()?;
        settle(&connection)?;
        Ok(made)
    }

    fn webhooks(&self, tenant: &str) -> Result<Vec<Webhook>, ServedError> {
        let connection = self.connection();
        let mut find = connection.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM webhooks WHERE tenant = ?1 ORDER BY created_ms, id"
        ))?;
        let found = find.query_map(params![tenant], webhook)?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    fn webhook(&self, tenant: &str, id: &str) -> Result<Webhook, ServedError> {
        found(&self.connection(), tenant, id)
    }

    fn change_webhook(
        &self,
        tenant: &str,
        id: &str,
        wanted: &WebhookChange<'_>,
    ) -> Result<Webhook, ServedError> {
        let mut connection = self.connection();
        let change = connection.transaction()?;
        change.execute(
            "UPDATE webhooks SET name = coalesce(?3, name), url = coalesce(?4, url),
                 enabled = coalesce(?5, enabled), kinds = coalesce(?6, kinds),
                 secret = coalesce(?7, secret)
             WHERE tenant = ?1 AND id = ?2",
            params![
                tenant,
                id,
                wanted.name,
                wanted.url,
                wanted.enabled,
                wanted.kinds.map(list),
                wanted.secret,
            ],
        )?;
        let changed = found(&change, tenant, id)?;
        if !changed.enabled {
            change.execute("DELETE FROM deliveries WHERE webhook = ?1", params![id])?;
        }
        change.commit()?;
        settle(&connection)?;
        Ok(changed)
    }

    fn remove_webhook(&self, tenant: &str, id: &str) -> Result<(), ServedError> {
        let connection = self.connection();
        let removed = connection.execute(
            "DELETE FROM webhooks WHERE tenant = ?1 AND id = ?2",
            params![tenant, id],
        )?;
        match removed {
            0 => Err(ServedError::NoWebhook(id.to_owned())),
            _ => settle(&connection),
        }
    }

    fn next_deliveries(&self) -> Result<Vec<Delivery>, ServedError> {
        let connection = self.connection();
        let mut find = connection.prepare_cached(
            "SELECT one.number, one.id, one.attempts, one.next_ms, webhooks.id, webhooks.tenant,
                 webhooks.url, webhooks.secret, own.id, own.sandbox, own.kind, own.at_ms,
                 own.facts, (SELECT facts FROM lifecycle_events AS first
                     WHERE first.tenant = own.tenant AND first.sandbox = own.sandbox
                     AND first.kind = 'created' ORDER BY first.number LIMIT 1)
             FROM webhooks
             JOIN deliveries AS one ON one.number = (SELECT number FROM deliveries
                 WHERE webhook = webhooks.id ORDER BY next_ms, number LIMIT 1)
             JOIN lifecycle_events AS own ON own.number = one.event",
        )?;
        let read = |row: &Row<'_>| {
            Ok(Delivery {
                number: row.get(0)?,
                id: row.get(1)?,
                attempts: row.get(2)?,
                next_ms: row.get::<_, i64>(3)?.cast_unsigned(),
                webhook: row.get(4)?,
                tenant: row.get(5)?,
                url: row.get(6)?,
                secret: row.get(7)?,
                event: event_at(row, 8)?,
            })
        };
        let found = find.query_map([], read)?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    fn end_delivery(&self, number: i64) -> Result<(), ServedError> {
        let connection = self.connection();
        let mut remove = connection.prepare_cached("DELETE FROM deliveries WHERE number = ?1")?;
        remove.execute(params![number])?;
        Ok(())
    }

    fn retry_delivery(&self, number: i64, next_ms: u64) -> Result<(), ServedError> {
        let connection = self.connection();
        let mut change = connection.prepare_cached(
            "UPDATE deliveries SET attempts = attempts + 1, next_ms = ?2 WHERE number = ?1",
        )?;
        change.execute(params![number, signed(next_ms)])?;
        Ok(())
    }
}

/// Queues an event, which is number `event`, for each webhook that wants it.
pub(super) fn queue(
    change: &Transaction<'_>,
    tenant: &str,
    event: i64,
    of: &LifecycleEvent,
) -> Result<Queued, ServedError> {
    let mut find = change.prepare_cached(
        "SELECT id, (SELECT count(*) FROM deliveries WHERE webhook = webhooks.id) FROM webhooks
         WHERE tenant = ?1 AND enabled
         AND EXISTS (SELECT 1 FROM json_each(kinds) WHERE value = ?2)",
    )?;
    let wanting = find.query_map(params![tenant, of.kind], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?))
    })?;
    let wanting = wanting.collect::<Result<Vec<_>, _>>()?;
    let mut queued = Queued::default();
    for (webhook, waiting) in wanting {
        if waiting >= WAITING_MAX {
            queued.dropped += 1;
            continue;
        }
        let mut insert = change.prepare_cached(
            "INSERT INTO deliveries (id, webhook, event, attempts, next_ms)
             VALUES (?1, ?2, ?3, 0, ?4)",
        )?;
        let id = random_hex(ID_BYTES)?;
        insert.execute(params![id, webhook, event, signed(of.at_ms)])?;
        queued.waiting += 1;
    }
    Ok(queued)
}

fn found(connection: &Connection, tenant: &str, id: &str) -> Result<Webhook, ServedError> {
    let mut find = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM webhooks WHERE tenant = ?1 AND id = ?2"
    ))?;
    let found = find.query_row(params![tenant, id], webhook).optional()?;
    found.ok_or_else(|| ServedError::NoWebhook(id.to_owned()))
}

fn webhook(row: &Row<'_>) -> rusqlite::Result<Webhook> {
    let kinds: String = row.get(5)?;
    Ok(Webhook {
        id: row.get(0)?,
        tenant: row.get(1)?,
        name: row.get(2)?,
        url: row.get(3)?,
        enabled: row.get(4)?,
        kinds: serde_json::from_str(&kinds).unwrap_or_default(),
        created_ms: row.get::<_, i64>(6)?.cast_unsigned(),
    })
}

/// Writes kinds as a list of JSON.
fn list(kinds: impl AsRef<[String]>) -> String {
    serde_json::json!(kinds.as_ref()).to_string()
}
