"""Asks one server after the other for what it misbehaves by, and says what came: "way
path status bytes end". Between all of them a connection of its own goes on. Arguments:
the ways, then --, then the paths."""
import gzip, json, socket, ssl, sys

WAYS = {"plain": 80, "tls": 443, "tunnel": 9000}
ENOUGH = 8 << 20


def connect(way, host="example.com"):
    one = socket.create_connection((host, WAYS[way]), 60)
    if way == "tls":
        one = ssl.create_default_context().wrap_socket(one, server_hostname=host)
    one.settimeout(60)
    return one


def ask(one, way, path, host="example.com", close=True):
    port = ":9000" if way == "tunnel" else ""
    further = "Connection: close\r\n" if close else ""
    one.sendall(f"GET /{path} HTTP/1.1\r\nHost: {host}{port}\r\n{further}\r\n".encode())


def rest(one, got=b""):
    try:
        while len(got) < ENOUGH:
            part = one.recv(1 << 20)
            if not part:
                return got, "end"
            got += part
        return got, "enough"
    except TimeoutError:
        return got, "silence"
    except OSError:
        return got, "reset"


def told(way, path, got, end):
    head, _, body = got.partition(b"\r\n\r\n")
    lines = head.decode(errors="replace").lower().split("\r\n")
    status = lines[0].split()[1] if lines[0].startswith("http/1.1 ") else "none"
    length = [line.split()[1] for line in lines if line.startswith("content-length:")]
    if "transfer-encoding: chunked" in lines:
        body, whole = unchunked(body)
    else:
        whole = len(body) == int(length[0]) if length else end == "end"
    if status == "502":
        text = json.loads(body)["why"]
    elif len(body) < 40:
        text = body.decode(errors="replace")
    else:
        text = f"packed {len(gzip.decompress(body))}" if whole else "much"
    print(way, path, status, "whole" if whole and status != "none" else "cut", end, text, flush=True)


def unchunked(rest):
    body = b""
    while True:
        size, found, rest = rest.partition(b"\r\n")
        try:
            size = int(size.split(b";")[0], 16)
        except ValueError:
            return body, False
        body += rest[:size]
        if size == 0 or len(rest) < size + 2:
            return body, found != b"" and size == 0 and rest.startswith(b"\r\n")
        rest = rest[size + 2 :]


def go_on(neighbour):
    neighbour.sendall(b"still")
    assert neighbour.recv(5) == b"still"


at = sys.argv.index("--")
neighbour = socket.create_connection(("example.com", 7), 60)
neighbour.settimeout(60)
for path in sys.argv[at + 1 :]:
    for way in sys.argv[1:at]:
        one = connect(way)
        ask(one, way, path)
        got, end = rest(one)
        one.close()
        told(way, path, got, end)
        go_on(neighbour)
        # Whoever comes next gets what it has asked for.
        one = connect(way)
        ask(one, way, "ok")
        got, end = rest(one) if way != "tunnel" else (one.recv(4096), "end")
        one.close()
        if not got.endswith(b"ok"):
            print("afterwards", way, path, got[:200])
print("went on")
