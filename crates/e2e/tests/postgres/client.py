"""A program of Python's that queries, is told to stop, and goes on."""
import threading, time

import psycopg2

connection = psycopg2.connect(sslmode="verify-full")
connection.autocommit = True
asks = connection.cursor()
for what in ("select current_user", "select current_database()", "select length(repeat('x', 1000000))"):
    asks.execute(what)
    print(asks.fetchone()[0])


def stop():
    time.sleep(2)
    connection.cancel()


threading.Thread(target=stop).start()
try:
    asks.execute("select pg_sleep(200)")
    print("slept")
except psycopg2.extensions.QueryCanceledError:
    print("canceled")
asks.execute("select 'still there'")
print(asks.fetchone()[0])
asks.execute("do $$ begin raise notice 'hello'; end $$")
print("notice" if "hello" in connection.notices[-1] else connection.notices)
