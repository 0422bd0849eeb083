"""Servers of example.com that misbehave by HTTP/2, each at a port of its own. Arguments:
the directory, then the command to run while they are there."""
import socket, ssl, struct, subprocess, sys, threading

PLACE = sys.argv[1]
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, MORE = 0, 1, 3, 4, 6, 7, 9
OK, EARLY = b"\x88", b"\x48\x03103"
# A header of 261 bytes, written out (RFC 7541, 6.2.2).
HEADER = b"\x00\x01x\x7f\x86\x01" + b"x" * 261


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def endlessly(one, block):
    while True:
        one.sendall(block)


def well(one, stream):
    one.sendall(frame(HEADERS, 4, stream, OK) + frame(DATA, 1, stream, b"well"))


def headers(one, stream):
    one.sendall(frame(HEADERS, 0, stream, OK))
    endlessly(one, frame(MORE, 0, stream, HEADER) * 50)


def trailers(one, stream):
    one.sendall(frame(HEADERS, 4, stream, OK) + frame(DATA, 0, stream, b"first") + frame(HEADERS, 0, stream, HEADER))
    endlessly(one, frame(MORE, 0, stream, HEADER) * 50)


def window(one, stream):
    one.sendall(frame(HEADERS, 4, stream, OK))
    endlessly(one, frame(DATA, 0, stream, b"x" * 16384))


def empty(one, stream):
    one.sendall(frame(HEADERS, 4, stream, OK))
    endlessly(one, frame(DATA, 0, stream) * 1000)


def early(one, stream):
    endlessly(one, frame(HEADERS, 4, stream, EARLY) * 1000)


def pings(one, stream):
    endlessly(one, frame(PING, 0, 0, b"12345678") * 1000)


def settings(one, stream):
    endlessly(one, frame(SETTINGS, 0, 0, b"\0\3\0\0\0\1") * 1000)


def resets(one, stream):
    one.sendall(frame(RESET, 0, stream, struct.pack(">I", 7)))


def farewell(one, stream):
    one.sendall(frame(GOAWAY, 0, 0, struct.pack(">II", 0, 0)))


def promises(one, stream):
    endlessly(one, frame(5, 4, stream, struct.pack(">I", 2) + OK))


def nonsense(one, stream):
    one.sendall(b"\x00\x00\x04\x08\x00\x00\x00\x00\x01\x00\x00\x00\x00" + b"HTTP/1.1 200 OK\r\n\r\n" * 10)


WAYS = [well, headers, trailers, window, empty, early, pings, settings, resets, farewell, promises, nonsense]


def whole(one, held):
    """The next frame: kind, stream, and what is held after it."""
    while len(held) < 9 or len(held) < 9 + int.from_bytes(held[:3], "big"):
        part = one.recv(65536)
        if not part:
            raise OSError
        held += part
    size = 9 + int.from_bytes(held[:3], "big")
    return held[3], int.from_bytes(held[5:9], "big"), held[size:]


def serve(raw, way, context):
    try:
        with context.wrap_socket(raw, server_side=True) as one:
            one.sendall(frame(SETTINGS, 0, 0))
            held = b""
            while len(held) < 24:
                held += one.recv(65536)
            held = held[24:]
            while True:
                kind, stream, held = whole(one, held)
                if kind == HEADERS:
                    way(one, stream)
    except OSError:
        pass


context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(f"{PLACE}/example.com.pem", f"{PLACE}/example.com.key")
context.set_alpn_protocols(["h2"])
for number, way in enumerate(WAYS):
    def accept(listener, way):
        while True:
            raw, _ = listener.accept()
            threading.Thread(target=serve, args=(raw, way, context), daemon=True).start()

    listener = socket.create_server(("93.184.216.34", 9440 + number))
    threading.Thread(target=accept, args=(listener, way), daemon=True).start()
sys.exit(subprocess.run(sys.argv[2:]).returncode)
