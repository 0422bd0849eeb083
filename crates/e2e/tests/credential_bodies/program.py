"""What a program inside sends by connections of its own. Arguments: `socket`, `slow`,
`events`, `framed` or `outlive`, a path, and what to send."""
import os, socket, ssl, struct, sys, time

PATIENCE = 60


def connected():
    one = socket.create_connection(("example.com", 443), PATIENCE)
    return ssl.create_default_context().wrap_socket(one, server_hostname="example.com")


def until(one, end, got=b""):
    while end not in got:
        part = one.recv(4096)
        if not part:
            break
        got += part
    return got


def frame(first, payload):
    key = os.urandom(4)
    length = bytes([0x80 | len(payload)]) if len(payload) < 126 else b"\xfe" + struct.pack(">H", len(payload))
    return bytes([first]) + length + key + bytes(byte ^ key[n % 4] for n, byte in enumerate(payload))


def upgraded(path):
    one = connected()
    one.sendall((f"GET {path} HTTP/1.1\r\nHost: example.com\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                 "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                 "Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n").encode())
    got = until(one, b"\r\n\r\n")
    print(got.split(b"\r\n")[0].decode())
    return one, got.split(b"\r\n\r\n", 1)[1]


def web_socket(path, value):
    one, rest = upgraded(path)
    # Four frames, of which the lengths are known.
    length = len(value)
    wanted = 2 + 6 + 9 + 2 + length + 2 + length - 9 + 1 + 2 + length
    while len(rest) < wanted:
        part = one.recv(4096)
        if not part:
            break
        rest += part
    print("came", rest)
    one.sendall(frame(1, b"before ") + frame(0x80, b"it"))
    print("answer", until(one, b"got it"))
    one.sendall(frame(1, b"now " + value[:11].encode()) + frame(0x80, value[11:].encode()))
    one.sendall(frame(0x88, b"\x03\xe8"))
    try:
        print("ended", until(one, b"never at all") == b"")
    except OSError:
        print("ended")


def slow(path, _):
    """Prints what messages say, up to the frame that ends them or to the end."""
    one, rest = upgraded(path)
    said = b""
    while True:
        while len(rest) < 2 or len(rest) < 2 + rest[1]:
            part = one.recv(4096)
            if not part:
                return print(said.decode(errors="replace") + rest.decode(errors="replace") + "[broke off]")
            rest += part
        first, payload, rest = rest[0], rest[2 : 2 + rest[1]], rest[2 + rest[1] :]
        if first == 0x88:
            return print(said.decode(errors="replace") + "[ended]")
        said += payload


def outlive(path, key):
    """Asks by one connection and ticks by a WebSocket for as long as it is there."""
    one, (other, _) = connected(), upgraded(path.replace("record", "socket"))
    number = 0
    while True:
        one.sendall(f"GET {path} HTTP/1.1\r\nHost: example.com\r\nAuthorization: Bearer {key}\r\n\r\n".encode())
        until(one, b"recorded\n")
        other.sendall(frame(0x81, b"tick"))
        number += 1
        if number == 10:
            open("ticked", "w").close()
        time.sleep(0.05)


def framed(path, _):
    one = connected()
    one.sendall(f"GET {path} HTTP/1.1\r\nHost: example.com\r\n\r\n".encode())
    got = until(one, b"first")
    other = connected()
    other.sendall(b"GET /v1/go HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n")
    until(other, b"gone")
    print(until(one, b"second", got).decode(errors="replace"))


def events(path, _):
    one = connected()
    one.sendall(f"GET {path} HTTP/1.1\r\nHost: example.com\r\nAccept: text/event-stream\r\n\r\n".encode())
    got = until(one, b"\n\n", until(one, b"data: "))
    other = connected()
    other.sendall(b"GET /v1/go HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n")
    until(other, b"gone")
    print(until(one, b"second", got).decode(errors="replace"))


{"socket": web_socket, "slow": slow, "events": events, "framed": framed, "outlive": outlive}[sys.argv[1]](sys.argv[2], sys.argv[3])
