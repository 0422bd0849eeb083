"""What connections of every kind come to where rules limit them, a line for each. Arguments:
"web-sockets" or "tunnels", and for how many seconds nothing is to come of what goes on."""
import socket, ssl, struct, sys, time

PATIENCE = 100
SILENCE = float(sys.argv[2])


def plain(host, port):
    return socket.create_connection((host, port), PATIENCE)


def by_connect(host, port):
    one = plain("proxy.atoll.internal", 3128)
    one.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
    head = head_of(one)
    if b" 200 " not in head.split(b"\r\n")[0]:
        raise ConnectionRefusedError(head)
    return one


def by_socks(host, port):
    one = plain("proxy.atoll.internal", 1080)
    one.sendall(b"\5\1\0")
    assert exactly(one, 2) == b"\5\0"
    one.sendall(b"\5\1\0\3" + bytes([len(host)]) + host.encode() + struct.pack(">H", port))
    if exactly(one, 10)[1]:
        raise ConnectionRefusedError
    return one


def exactly(one, count):
    got = b""
    while len(got) < count:
        part = one.recv(count - len(got))
        if not part:
            raise ConnectionResetError
        got += part
    return got


def head_of(one):
    head = b""
    while b"\r\n\r\n" not in head:
        part = one.recv(1)
        if not part:
            raise ConnectionResetError
        head += part
    return head


def within_tls(one):
    return ssl.create_default_context().wrap_socket(one, server_hostname="example.com")


def web_socket(make, path):
    """A WebSocket, or the status that came instead."""
    one = make()
    one.settimeout(PATIENCE)
    one.sendall((f"GET {path} HTTP/1.1\r\nHost: example.com\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n").encode())
    status = int(head_of(one).split()[1])
    return one if status == 101 else status


def echoed(one, count):
    """How many of so many bytes come back, a few at a time."""
    got = 0
    try:
        while got < count:
            piece = min(10000, count - got)
            one.sendall(b"x" * piece)
            while piece:
                part = one.recv(piece)
                if not part:
                    return got
                piece -= len(part)
                got += len(part)
    except OSError:
        pass
    return got


def is_open(made):
    return isinstance(made, socket.socket)


def until(make, good):
    """Tries again while a place may not be free yet."""
    for _ in range(600):
        made = make()
        if good(made):
            return True
        time.sleep(0.05)
    return False


def web_sockets(name, make):
    ask = lambda limit: web_socket(make, f"/{name}/{limit}")
    made = [ask("requests") for _ in range(3)]
    print(name, "requests", *("open" if is_open(one) else one for one in made))
    held = ask("connections")
    print(name, "connections", is_open(held), is_open(ask("connections")))
    held.close()
    print(name, "and then", until(lambda: ask("connections"), is_open))
    for limit in ("upload", "download", "body"):
        one = ask(limit)
        first, second = echoed(one, 50000), echoed(one, 100000)
        print(name, limit, first, "all" if second == 100000 else "cut" if first + second <= 100 * 1024 else "too much")
    one = ask("duration")
    one.settimeout(SILENCE)
    try:
        print(name, "duration", "ended" if not one.recv(1) else "more")
    except TimeoutError:
        print(name, "duration", "goes on")
    except OSError:
        print(name, "duration", "ended")
    began = time.monotonic()
    print(name, "rate", echoed(ask("rate"), 50000), "slowly" if time.monotonic() - began >= 1.5 else "at once")


def tunnel(make, host):
    try:
        one = make(host, 7)
        one.settimeout(PATIENCE)
        return one if echoed(one, 1) == 1 else None
    except OSError:
        return None


def tunnels(ways):
    # All ways share what there is.
    for host, limit in (("example.com", "upload"), ("other.example", "download")):
        came = []
        for make in ways * 2:
            one = tunnel(make, host)
            came.append(echoed(one, 50000) if one else 0)
        print(limit, came[0], "all" if came == [50000] * 6 else "few" if sum(came) <= 200 * 1024 else "too many", came[-1])
    held = [tunnel(make, "git.example") for make in ways]
    print("connections", [one is not None for one in held])
    for one in held:
        if one:
            one.close()
    print("and then", [until(lambda: tunnel(make, "git.example"), bool) for make in ways])
    ended = []
    for make in ways:
        one = tunnel(make, "api.openai.com")
        one.settimeout(SILENCE)
        try:
            ended.append("ended" if not one.recv(1) else "more")
        except TimeoutError:
            ended.append("goes on")
        except OSError:
            ended.append("ended")
    print("duration", *ended)
    for make in ways:
        one = tunnel(make, "tunnel.example")
        began = time.monotonic()
        print("rate", echoed(one, 50000), "slowly" if time.monotonic() - began >= 0.7 else "at once")


def request(one):
    one.sendall(b"GET /ways HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n")
    return int(head_of(one).split()[1])


def absolute():
    one = plain("proxy.atoll.internal", 3128)
    one.sendall(b"GET http://example.com/ways HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n")
    return int(head_of(one).split()[1])


if sys.argv[1] == "web-sockets":
    web_sockets("plain", lambda: plain("example.com", 80))
    web_sockets("tls", lambda: within_tls(by_connect("example.com", 443)))
    # Whichever way a request takes, it is one of its rule's.
    made = [request(by_connect("example.com", 80)), request(within_tls(by_socks("example.com", 443))), absolute()]
    made += [request(plain("example.com", 80)), request(by_socks("example.com", 80)), absolute()]
    print("ways", *made)
else:
    tunnels([plain, by_connect, by_socks])
