"""Beginnings of TLS in which a second name is hidden."""
import os, socket, struct

HOST = "example.com"


def hello(name, ech=True):
    """The beginning of TLS for a name, with one that is hidden in it (RFC 9849)."""
    def extension(kind, data):
        return struct.pack(">HH", kind, len(data)) + data

    host = name.encode()
    names = struct.pack(">HBH", len(host) + 3, 0, len(host)) + host
    shares = struct.pack(">HHH", 36, 29, 32) + os.urandom(32)
    # An outer hello: with which key, for whom, and what is hidden.
    hidden = b"\0" + struct.pack(">HHB", 1, 1, 7) + struct.pack(">H", 32) + os.urandom(32) + struct.pack(">H", 200) + os.urandom(200)
    extensions = extension(0, names) + extension(10, b"\0\2\0\x1d") + extension(13, b"\0\4\4\3\x08\4") + extension(43, b"\2\3\4")
    extensions += extension(51, shares) + (extension(0xFE0D, hidden) if ech else b"")
    body = b"\3\3" + os.urandom(32) + b"\x20" + os.urandom(32) + b"\0\2\x13\1" + b"\1\0" + struct.pack(">H", len(extensions)) + extensions
    message = b"\1" + struct.pack(">I", len(body))[1:] + body
    return b"\x16\3\1" + struct.pack(">H", len(message)) + message


def hidden_names():
    """What comes of hellos with a hidden name: kind of the first record."""
    for port in (443, 8443):
        for name in (HOST, "other.example"):
            with socket.create_connection((HOST, port), 5) as one:
                one.settimeout(3)
                one.sendall(hello(name))
                try:
                    got = one.recv(4096)
                    kind = {22: "a hello", 21: "an alert"}.get(got[0], "else") if got else "the end"
                except OSError as error:
                    kind = "nothing" if isinstance(error, TimeoutError) else "the end"
            print(port, name, kind)


hidden_names()
