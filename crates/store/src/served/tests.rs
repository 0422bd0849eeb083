#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::path::PathBuf;

use super::*;

struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn open(&self) -> ServedStore {
        ServedStore::open(&self.path("serve.sqlite")).unwrap()
    }

    /// Makes a file as the first form had it, with a key, and a sandbox that lives.
    fn first_form(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        let connection = Connection::open(&path).unwrap();
        connection.execute_batch(SCHEMA).unwrap();
        connection
            .execute_batch(
                "INSERT INTO tenants VALUES ('default', 1);
                 INSERT INTO keys VALUES ('k', x'00', 'default', 'first', 'user', 1, NULL, NULL);
                 INSERT INTO lifecycle_events VALUES
                     (1, 'e', 'default', 'i1', 'created', 5, '{\"why\": \"w\"}');
                 PRAGMA user_version = 1;",
            )
            .unwrap();
        path
    }
}

fn event(sandbox: &str, kind: &str, at_ms: u64) -> LifecycleEvent {
    LifecycleEvent {
        id: format!("{sandbox}-{kind}"),
        sandbox: sandbox.to_owned(),
        kind: kind.to_owned(),
        at_ms,
        facts: format!("{{\"of\":\"{kind}\"}}"),
        first_facts: None,
    }
}

fn webhook(store: &ServedStore, tenant: &str, kinds: &[&str]) -> Webhook {
    let kinds: Vec<String> = kinds.iter().map(|kind| (*kind).to_owned()).collect();
    let wanted = NewWebhook {
        tenant,
        name: "name",
        url: "https://example.com/",
        enabled: true,
        kinds: &kinds,
        secret: "secret",
        at_ms: 7,
    };
    store.make_webhook(&wanted, 2).unwrap()
}

const ALL: Page = Page {
    offset: 0,
    limit: 100,
    oldest_first: true,
};

#[test]
fn event_is_queued_for_webhooks_that_want_it() {
    let place = Place::new();
    let store = place.open();
    let made = webhook(&store, "default", &["created", "killed"]);
    webhook(&store, "default", &["updated"]);
    let queued = store.note("default", &event("i1", "created", 10)).unwrap();
    assert_eq!((queued.waiting, queued.dropped), (1, 0));
    assert_eq!(
        store.note("other", &event("i2", "created", 10)).unwrap(),
        Queued::default()
    );
    store.note("default", &event("i1", "killed", 11)).unwrap();
    // One of each webhook at a time, and the same one after a restart.
    drop(store);
    let store = place.open();
    let next = store.next_deliveries().unwrap();
    assert_eq!(next.len(), 1);
    let first = &next[0];
    assert_eq!((&first.webhook, first.attempts), (&made.id, 0));
    assert_eq!(
        (&*first.tenant, &*first.url, &*first.secret),
        ("default", "https://example.com/", "secret")
    );
    assert_eq!(first.event.kind, "created");
    store.retry_delivery(first.number, 100).unwrap();
    let second = store.next_deliveries().unwrap().remove(0);
    assert_eq!((&*second.event.kind, second.attempts), ("killed", 0));
    assert_eq!(
        second.event.first_facts.as_deref(),
        Some("{\"of\":\"created\"}")
    );
    store.end_delivery(second.number).unwrap();
    let again = store.next_deliveries().unwrap().remove(0);
    assert_eq!((&again.id, again.attempts), (&first.id, 1));
    assert_eq!(again.next_ms, 100);
    store.end_delivery(again.number).unwrap();
    assert!(store.next_deliveries().unwrap().is_empty());
}

#[test]
fn webhook_is_changed_by_its_tenant_alone() {
    let place = Place::new();
    let store = place.open();
    let made = webhook(&store, "default", &["created"]);
    assert_eq!(store.webhook("default", &made.id).unwrap(), made);
    let change = WebhookChange {
        name: Some("other"),
        ..WebhookChange::default()
    };
    assert!(matches!(
        store.change_webhook("team", &made.id, &change),
        Err(ServedError::NoWebhook(_))
    ));
    assert!(store.webhook("team", &made.id).is_err());
    assert!(store.remove_webhook("team", &made.id).is_err());
    assert!(store.webhooks("team").unwrap().is_empty());
    let changed = store.change_webhook("default", &made.id, &change).unwrap();
    assert_eq!((&*changed.name, &changed.url), ("other", &made.url));
    store.note("default", &event("i1", "created", 1)).unwrap();
    let off = WebhookChange {
        enabled: Some(false),
        ..WebhookChange::default()
    };
    assert!(
        !store
            .change_webhook("default", &made.id, &off)
            .unwrap()
            .enabled
    );
    store.note("default", &event("i2", "created", 1)).unwrap();
    assert!(store.next_deliveries().unwrap().is_empty());
    webhook(&store, "default", &["created"]);
    let kinds = ["created".to_owned()];
    let third = NewWebhook {
        tenant: "default",
        name: "n",
        url: "u",
        enabled: true,
        kinds: &kinds,
        secret: "s",
        at_ms: 1,
    };
    assert!(matches!(
        store.make_webhook(&third, 2),
        Err(ServedError::ManyWebhooks(2))
    ));
    store.note("default", &event("i3", "created", 1)).unwrap();
    for one in store.webhooks("default").unwrap() {
        store.remove_webhook("default", &one.id).unwrap();
    }
    assert!(store.next_deliveries().unwrap().is_empty());
    let left: i64 = store
        .connection()
        .query_row("SELECT count(*) FROM deliveries", [], |row| row.get(0))
        .unwrap();
    assert_eq!(left, 0);
}

#[test]
fn first_form_is_brought_up() {
    let place = Place::new();
    place.first_form("serve.sqlite");
    let store = place.open();
    assert_eq!(store.keys().unwrap().len(), 1);
    webhook(&store, "default", &["killed"]);
    assert_eq!(
        store
            .note("default", &event("i1", "killed", 9))
            .unwrap()
            .waiting,
        1
    );
    let all = store.lifecycle_events("default", None, &ALL).unwrap();
    assert_eq!(all[1].first_facts.as_deref(), Some("{\"why\": \"w\"}"));
    // A second time nothing is left to change.
    drop(place.open());
}

#[test]
fn backup_of_the_first_form_is_restored() {
    let place = Place::new();
    let backup = place.first_form("backup.sqlite");
    let before = std::fs::read(&backup).unwrap();
    let (store, beside) = (place.open(), place.open());
    webhook(&store, "default", &["killed"]);
    store.restore(&backup).unwrap();
    assert_eq!(std::fs::read(&backup).unwrap(), before);
    for one in [&store, &beside] {
        assert_eq!(one.keys().unwrap().len(), 1);
        assert!(one.webhooks("default").unwrap().is_empty());
    }
    webhook(&beside, "default", &["killed"]);
    // One of this form too, with its webhooks.
    let whole = place.path("whole.sqlite");
    store.back_up(&whole).unwrap();
    store
        .remove_webhook("default", &store.webhooks("default").unwrap()[0].id)
        .unwrap();
    store.restore(&whole).unwrap();
    assert_eq!(beside.webhooks("default").unwrap().len(), 1);
    let newer = place.first_form("newer.sqlite");
    let connection = Connection::open(&newer).unwrap();
    connection
        .pragma_update(None, "user_version", FORM + 1)
        .unwrap();
    assert!(matches!(store.restore(&newer), Err(ServedError::Newer(_))));
}

#[test]
fn unended_sandboxes_are_told_to_one_server() {
    let place = Place::new();
    let mut store = place.open();
    for (tenant, sandbox, kind) in [
        ("default", "i1", "created"),
        ("default", "i2", "created"),
        ("team", "i3", "created"),
        ("default", "i2", "updated"),
        ("default", "i1", "killed"),
    ] {
        store.note(tenant, &event(sandbox, kind, 1)).unwrap();
    }
    assert!(store.unended().unwrap().is_empty());
    store.take().unwrap();
    let expected = [("default", "i2"), ("team", "i3")];
    let expected = expected.map(|(tenant, sandbox)| (tenant.to_owned(), sandbox.to_owned()));
    assert_eq!(store.unended().unwrap(), expected);
    let mut other = place.open();
    assert!(matches!(other.take(), Err(ServedError::Taken)));
    assert!(other.is_taken().unwrap());
    drop(store);
    assert!(!other.is_taken().unwrap());
    other.take().unwrap();
}

#[test]
fn scopes_are_kept_with_their_key() {
    let place = Place::new();
    place.first_form("serve.sqlite");
    let store = place.open();
    assert_eq!(store.keys().unwrap()[0].scopes, Scopes::All);
    for scopes in [
        Scopes::All,
        Scopes::of(["exec", "read"]),
        Scopes::of(["unknown"]),
    ] {
        let wanted = NewKey {
            tenant: "default",
            name: "one",
            role: Role::User,
            scopes: scopes.clone(),
            expires_s: None,
        };
        let (key, _) = store.make_key(&wanted).unwrap();
        let record = store.key(&key, SystemTime::now()).unwrap().unwrap();
        assert_eq!(record.scopes, scopes);
    }
    assert!(Scopes::All.has(Scope::Ports));
    assert!(!Scopes::of(["unknown"]).has(Scope::Read));
}
