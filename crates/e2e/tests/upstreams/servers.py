"""Servers of example.com that misbehave, each as the path says: as they are at port 80
and 9000, within TLS at 443. Arguments: the directory, then the command to run while they
are there. What they see of the other side is in "noted"."""
import gzip, os, socket, ssl, struct, subprocess, sys, threading, time

PLACE = sys.argv[1]
HERE = "93.184.216.34"
# Takes no connection, and says nothing of it.
FULL = ("93.184.216.35", 80)
# Takes connections, and no request is ever looked at.
DEAF = ("93.184.216.36", (80, 443))
lock = threading.Lock()


def note(text):
    with lock, open(os.path.join(PLACE, "noted"), "a") as to:
        to.write(text + "\n")


def answer(body, length=None, further=""):
    length = len(body) if length is None else length
    return f"HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n{further}\r\n".encode() + body


def ok(one):
    one.sendall(answer(b"ok"))
    return True


def slow(one):
    for byte in answer(b"as slow as can be"):
        one.sendall(bytes([byte]))
        time.sleep(0.01)
    return True


def endless_head(one):
    one.sendall(b"HTTP/1.1 200 OK\r\n")
    more = b"X-More: " + b"x" * 1000 + b"\r\n"
    count = 0
    try:
        while True:
            one.sendall(more)
            count += len(more)
    finally:
        note(f"endless-head {count}")


def endless_line(one):
    one.sendall(b"HTTP/1.1 200 OK\r\nX-More: ")
    while True:
        one.sendall(b"x" * 4096)


def endless_chunk(one):
    one.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=")
    while True:
        one.sendall(b"x" * 4096)


def endless_trailers(one):
    one.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n0\r\n")
    while True:
        one.sendall(b"X-More: " + b"x" * 1000 + b"\r\n")


def endless_early(one):
    while True:
        one.sendall(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 100)


def endless_body(one):
    one.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    block = b"x" * 65536
    count = 0
    one.settimeout(4)
    try:
        while True:
            one.sendall(block)
            count += len(block)
    except OSError as error:
        note(f"endless-body {count} {'waits' if isinstance(error, TimeoutError) else 'ended'}")


def promises_more(one):
    one.sendall(answer(b"part", 100))


def promises_less(one):
    one.sendall(answer(b"whole and more", 5) + answer(b"another one"))
    return True


def two_lengths(one):
    one.sendall(answer(b"whole", 5, "Content-Length: 50\r\n"))


def broken_chunk(one):
    one.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwhole\r\nxyz\r\n")


def big(one):
    one.sendall(answer(bytes(1 << 20)))
    return True


def no_gzip(one):
    one.sendall(answer(b"this is not packed", None, "Content-Encoding: gzip\r\n"))
    return True


def bomb(one):
    """A thousand times as much as it seems."""
    one.sendall(answer(gzip.compress(bytes(64 << 20), mtime=0), None, "Content-Encoding: gzip\r\n"))
    return True


def no_http(one):
    one.sendall(b"\x00\xff\x00 this is no answer at all\r\n\r\n")


def half(one):
    one.sendall(b"HTTP/1.1 200 OK\r\n\r\nuntil the end")
    if isinstance(one, ssl.SSLSocket):
        one.settimeout(60)
        one.unwrap()
        return note("half heard the end")
    one.shutdown(socket.SHUT_WR)
    note("half " + ("heard the end" if one.recv(1) == b"" else "heard more"))


def reset(one):
    one.sendall(answer(b"part", 100))
    time.sleep(1)
    end_hard(one)


def reset_at_once(one):
    end_hard(one)


def end_hard(one):
    raw = socket.socket(fileno=os.dup(one.fileno()))
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if isinstance(one, ssl.SSLSocket):
        one = one.detach()
        os.close(one)
    else:
        one.close()
    raw.close()


def never(one):
    one.settimeout(100)
    note("never " + ("heard the end" if one.recv(1) == b"" else "heard more"))


WAYS = {name.replace("_", "-"): work for name, work in globals().items() if callable(work)}


def serve(one, port, context):
    try:
        if context:
            one = context.wrap_socket(one, server_side=True)
        with one:
            while True:
                head = b""
                while b"\r\n\r\n" not in head:
                    part = one.recv(4096)
                    if not part:
                        return
                    head += part
                path = head.split()[1].decode().lstrip("/")
                note(f"asked {path} {port}")
                if path not in WAYS:
                    return
                if not WAYS[path](one) or b"connection: close" in head.lower():
                    return
    except OSError:
        pass


def listen(address, port, context=None):
    listener = socket.create_server((address, port), backlog=256)

    def accept():
        while True:
            one, _ = listener.accept()
            threading.Thread(target=serve, args=(one, port, context), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(f"{PLACE}/example.com.pem", f"{PLACE}/example.com.key")
for port in (80, 9000):
    listen(HERE, port)
listen(HERE, 443, context)
deaf = [socket.create_server((DEAF[0], port)) for port in DEAF[1]]
full = socket.create_server(FULL, backlog=0)
held = []
for _ in range(3):
    one = socket.socket()
    one.setblocking(False)
    one.connect_ex(FULL)
    held.append(one)
sys.exit(subprocess.run(sys.argv[2:]).returncode)
