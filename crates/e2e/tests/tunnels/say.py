"""Says a text by tunnels in many ways. Arguments: the text. Prints for each row whether all of
it came back, and letters that are typed one by one."""
import base64, socket, sys, threading, time

KEY = sys.argv[1].encode()
HOST, AT = "tunnel.example", "93.184.216.38"
LONG = b"a line of no secret at all\r\n" * 12000


def direct(host=HOST, port=7000):
    return socket.create_connection((host, port), 20)


def by_connect():
    one = direct("proxy.atoll.internal", 3128)
    # What is sent at once is a part of the tunnel.
    one.sendall(f"CONNECT {HOST}:7000 HTTP/1.1\r\nHost: {HOST}:7000\r\n\r\n".encode())
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        block = one.recv(1)
        if not block:
            break
        answer += block
    return one


def by_socks():
    one = direct("proxy.atoll.internal", 1080)
    one.sendall(b"\x05\x01\x00")
    one.recv(2)
    one.sendall(b"\x05\x01\x00\x03" + bytes([len(HOST)]) + HOST.encode() + (7000).to_bytes(2, "big"))
    one.recv(64)
    return one


def greeted():
    one = direct(port=7002)
    one.recv(64)
    return one


HALF = len(KEY) // 2
ROWS = [
    ("plain", direct, [b"AUTH " + KEY + b"\r\n"]),
    ("split", direct, [b"AUTH " + KEY[:HALF], KEY[HALF:] + b"\r\n"]),
    ("letters", direct, [KEY[at : at + 1] for at in range(len(KEY))]),
    ("base64", direct, [b"AUTH " + base64.b64encode(b"user:" + KEY) + b"\r\n"]),
    ("base64-split", direct, [b"AUTH " + base64.b64encode(b"user:" + KEY)[:HALF], base64.b64encode(b"user:" + KEY)[HALF:] + b"\r\n"]),
    ("hex", direct, [b"AUTH " + KEY.hex().encode() + b"\r\n"]),
    ("wide", direct, ["AUTH ".encode("utf-16-le") + KEY.decode().encode("utf-16-le")]),
    ("late", direct, [LONG, KEY + b"\r\n"]),
    ("address", lambda: direct(AT), [b"AUTH " + KEY + b"\r\n"]),
    ("limited", lambda: direct(port=7001), [b"AUTH " + KEY[:HALF], KEY[HALF:] + b"\r\n"]),
    ("greeted", greeted, [b"AUTH " + KEY + b"\r\n"]),
    ("connect", by_connect, [b"AUTH " + KEY + b"\r\n"]),
    ("socks", by_socks, [b"AUTH " + KEY[:HALF], KEY[HALF:] + b"\r\n"]),
]


def heard(one, into):
    try:
        while block := one.recv(1 << 16):
            into.append(block)
    except OSError:
        pass


def said(begin, pieces):
    with begin() as one:
        one.settimeout(20)
        into = []
        hears = threading.Thread(target=heard, args=(one, into))
        hears.start()
        try:
            for piece in pieces:
                one.sendall(piece)
                time.sleep(0.1 if len(piece) > 1 else 0.01)
            one.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        hears.join()
        return b"".join(into) == b"".join(pieces)


for row, begin, pieces in ROWS:
    print(row, "came back" if said(begin, pieces) else "not", flush=True)

with direct() as one:
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Each before the next is typed.
    echo = b""
    for letter in b"ls -l; a longer command than that":
        one.sendall(bytes([letter]))
        echo += one.recv(1)
print("typed", echo.decode())

with direct() as one:
    one.sendall(b"TELL\r\n")
    into = []
    heard(one, into)
    print(b"".join(into).decode())
