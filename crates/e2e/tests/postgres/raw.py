"""Says things to PostgreSQL that no client says, and writes a line of what came of each.
Argument: the host."""
import os, socket, ssl, struct, sys, threading, time

HOST = sys.argv[1]
lines = []
V3 = struct.pack(">I", 196608)
TLS = struct.pack(">II", 8, 80877103)
GSS = struct.pack(">II", 8, 80877104)


def framed(body):
    return struct.pack(">I", len(body) + 4) + body


def startup(*words, end=b"\0"):
    return framed(V3 + b"".join(word.encode() + b"\0" for word in words) + end)


GOOD = startup("user", "app", "database", "good")


def connect():
    one = socket.create_connection((HOST, 5432), 20)
    one.settimeout(60)
    return one


def heard(one):
    """What it answers: `in`, or the state of an error, or `ended`."""
    got = b""
    try:
        while len(got) < 5:
            block = one.recv(4096)
            if not block:
                break
            got += block
        if got[:1] == b"R":
            return "in" if got[5:9] == bytes(4) else "asked"
        if got[:1] == b"\x15":
            return "alert"
        if got[:1] == b"E":
            while block := one.recv(4096):
                got += block
            fields = dict((field[:1], field[1:]) for field in got[5:].split(b"\0") if field)
            return fields[b"C"].decode() + (" with a hint" if b"H" in fields else "")
    except OSError:
        pass
    return "ended" if not got else f"said {got[:20]!r}"


def tell(name, what):
    print(name, what, flush=True)


def send(name, *parts):
    with connect() as one:
        for part in parts:
            one.sendall(part)
        tell(name, heard(one))


def cancel(process, secret):
    with connect() as one:
        one.sendall(struct.pack(">IIII", 16, 80877102, process, secret))
        try:
            one.recv(1)
        except OSError:
            pass


def slow():
    with connect() as one:
        began = time.monotonic()
        one.sendall(GOOD[:9])
        lines.append("slow " + heard(one))
        lines.append("slow took " + ("long" if time.monotonic() - began > 20 else "no time"))


waiting = threading.Thread(target=slow)
waiting.start()
# Before anybody is signed in its key ends nothing.
cancel(4242, 777)
send("whole", GOOD)
with connect() as one:
    for at in range(len(GOOD)):
        one.sendall(GOOD[at : at + 1])
        time.sleep(0.002)
    tell("in pieces", heard(one))
send("too long", framed(V3 + b"user\0app\0database\0good\0application_name\0" + b"x" * 10000 + b"\0\0"))
send("huge", struct.pack(">I", 0x7FFFFFFF) + V3)
send("short", struct.pack(">I", 4))
send("2.0", framed(struct.pack(">I", 131072) + b"user\0app\0database\0good\0\0"))
send("no end", framed(V3 + b"user\0app\0database\0good\0"))
send("user twice", startup("user", "app", "user", "owner", "database", "good"))
send("User", startup("user", "app", "User", "owner", "database", "good"))
send("another user", startup("user", "owner", "database", "good"))
send("another database", startup("user", "app", "database", "other"))
send("no database", startup("user", "app"))
send("replication", startup("user", "app", "database", "good", "replication", "database"))
send("endpoint", startup("user", "app", "database", "good", "options", "endpoint=other"))
send("settings", startup("user", "app", "database", "good", "options", "-c statement_timeout=1000"))
send("placeholder", startup("user", "app", "database", "good", "application_name", os.environ["PGPASSWORD"]))
with connect() as one:
    one.sendall(GSS)
    answer = one.recv(1)
    one.sendall(TLS)
    answer += one.recv(1)
    tell("GSS, then TLS", answer.decode())
with connect() as one:
    one.sendall(GSS + GSS)
    answer = one.recv(1)
    tell("GSS twice", heard(one))
with connect() as one:
    # What is sent in the clear together with the question is no part of what TLS carries.
    one.sendall(TLS + GOOD)
    answer = one.recv(1)
    tell("ahead of TLS", answer.decode() + " " + heard(one).split()[0])
with connect() as one:
    context = ssl.create_default_context(cafile=os.environ["PGSSLROOTCERT"])
    context.set_alpn_protocols(["postgresql"])
    with context.wrap_socket(one, server_hostname=HOST) as stream:
        stream.sendall(GOOD)
        tell("TLS at once", heard(stream))
with connect() as one:
    one.sendall(GOOD)
    time.sleep(1)
    cancel(4242, 778)
    cancel(4243, 777)
    cancel(4242, 777)
    tell("own", "was ended")
time.sleep(1)
cancel(4242, 777)
waiting.join()
print("\n".join(lines))
