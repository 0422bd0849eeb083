"""Servers of the small internet that nginx is none of: an echo, bytes without end, and
takers of bytes. Argument: the directory with the certificate."""
import os, socket, ssl, sys, threading

PLACE = sys.argv[1]
BLOCK = 1 << 20
ZEROES = bytes(BLOCK)


def echo(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while block := connection.recv(64):
        connection.sendall(block)


def source(connection):
    while True:
        connection.sendall(ZEROES)


def sink(connection):
    room, got = bytearray(BLOCK), 0
    while more := connection.recv_into(room):
        got += more
    connection.sendall(b"%d" % got)


def take(connection):
    """Requests whose bodies are thrown away, by HTTPS."""
    room, connection = bytearray(BLOCK), CONTEXT.wrap_socket(connection, server_side=True)
    while True:
        got = b""
        while b"\r\n\r\n" not in got:
            more = connection.recv(BLOCK)
            if not more:
                return
            got += more
        text, body = got.split(b"\r\n\r\n", 1)
        lengths = [line for line in text.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        left = (int(lengths[0].split(b":")[1]) if lengths else 0) - len(body)
        while left > 0:
            more = connection.recv_into(room, min(left, BLOCK))
            if not more:
                return
            left -= more
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nsunk")


def serve(work, connection):
    with connection:
        try:
            work(connection)
        except OSError:
            pass


def listen(address, port, work):
    listener = socket.create_server((address, port), backlog=1024)

    def accept():
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=serve, args=(work, connection), daemon=True).start()

    return threading.Thread(target=accept)


CONTEXT = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
CONTEXT.load_cert_chain(os.path.join(PLACE, "server.pem"), os.path.join(PLACE, "server.key"))
threads = [
    listen(sys.argv[2], 7, echo),
    listen(sys.argv[2], 19, source),
    listen(sys.argv[2], 9, sink),
    listen(sys.argv[3], 443, take),
]
for thread in threads:
    thread.start()
open(os.path.join(PLACE, "listening"), "w").close()
