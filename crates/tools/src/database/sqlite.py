import base64
import json
import sqlite3
import sys
import time

settings = json.loads(sys.argv[1])
classes, tables = settings["classes"], settings["tables"]
tables = {name.lower(): columns for name, columns in tables.items()}
mode = "ro" if classes == ["select"] else "rw"
path = settings["path"].replace("%", "%25").replace("?", "%3f").replace("#", "%23")
try:
    db = sqlite3.connect(f"file:{path}?mode={mode}", uri=True, isolation_level=None)
    db.execute("SELECT count(*) FROM sqlite_schema").fetchall()
except sqlite3.Error as error:
    sys.exit(f"{settings['path']}: {error}")
db.text_factory = lambda text: text.decode("utf-8", "replace")

# What reaches SQLite was judged before. This is the wall behind that one.
CHANGES = {
    sqlite3.SQLITE_INSERT: "insert",
    sqlite3.SQLITE_UPDATE: "update",
    sqlite3.SQLITE_DELETE: "delete",
}


def allows(action, one, two, database, inner):
    if database not in (None, "main"):
        return sqlite3.SQLITE_DENY
    table = (one or "").lower()
    if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_TRANSACTION):
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_FUNCTION:
        denied = two.lower() in ("load_extension", "readfile", "writefile", "edit", "fts3_tokenizer")
        return sqlite3.SQLITE_DENY if denied else sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_READ and table in tables:
        columns = tables[table]
        is_shown = columns is None or not two or two.lower() in [one.lower() for one in columns]
        return sqlite3.SQLITE_OK if is_shown else sqlite3.SQLITE_DENY
    if CHANGES.get(action) in classes and table in tables:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def plain(value):
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def answer(text):
    until = time.monotonic() + settings["seconds"]
    db.set_progress_handler(lambda: time.monotonic() > until, 10_000)
    before = db.total_changes
    found = db.execute(text)
    names = [column[0] for column in found.description or []]
    if len(set(names)) < len(names):
        raise ValueError("two columns of the result have one name: give one of them another")
    rows, size, more = [], 0, False
    for row in found:
        row = dict(zip(names, map(plain, row)))
        size += len(json.dumps(row))
        if len(rows) == settings["rows"] or size > settings["bytes"]:
            more = True
            break
        rows.append(row)
    # It counts as it ends.
    writes, _ = found.rowcount >= 0, found.close()
    count = db.total_changes - before
    changed = {"changed": count} if writes or count else {}
    return {"rows": rows, "more": more, **changed}


db.set_authorizer(allows)
print(json.dumps({"id": 0}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    try:
        db.execute("BEGIN")
        result = answer(asked["statement"])
        # Rows that were cut were read, and changes are whole.
        db.execute("COMMIT")
    except Exception as error:
        if db.in_transaction:
            db.execute("ROLLBACK")
        result = {"error": f"{error}"}
    print(json.dumps({"id": asked["id"], **result}), flush=True)
