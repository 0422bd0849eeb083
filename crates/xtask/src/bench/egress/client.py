"""What measures, inside a sandbox and outside of it alike. Each of the functions below
is a word of the command line, with its arguments; numbers are printed one a line."""
import functools, os, resource, socket, ssl, sys, time

BLOCK = 1 << 20
# New connections, a second: a sandbox may not make more than 400 for long.
PACE = 250
# A key that is sent along, where there is one.
KEY = os.environb.get(b"BENCH_KEY")
GET = b"GET /%s HTTP/1.1\r\nHost: %s\r\n" + (b"Authorization: Bearer " + KEY + b"\r\n" if KEY else b"") + b"\r\n"


@functools.cache
def trust():
    """Read once: it is long inside."""
    return ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])


def speak(host):
    connection = socket.create_connection((host, 443))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return trust().wrap_socket(connection, server_hostname=host)


def head(connection):
    """The length of an answer's body, and what came of it already."""
    got = b""
    while b"\r\n\r\n" not in got:
        more = connection.recv(BLOCK)
        if not more:
            raise EOFError("no answer")
        got += more
    text, body = got.split(b"\r\n\r\n", 1)
    lines = text.lower().split(b"\r\n")
    if b" 200" not in lines[0]:
        raise ValueError(text.decode())
    lengths = [line.split(b":")[1] for line in lines if line.startswith(b"content-length:")]
    return int(lengths[0]), len(body)


def get(connection, host, path):
    connection.sendall(GET % (path, host.encode()))
    length, got = head(connection)
    room = bytearray(BLOCK)
    while got < length:
        more = connection.recv_into(room)
        if not more:
            raise EOFError(f"{got} bytes of {length}")
        got += more
    return length


def connections(host, port, count):
    """New connections: the name, the connection, a byte there and back. Nanoseconds."""
    for _ in range(int(count)):
        started = time.perf_counter_ns()
        family, kind, _, _, address = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as one:
            one.connect(address)
            one.sendall(b"x")
            if one.recv(1) != b"x":
                raise EOFError("no answer")
            ended = time.perf_counter_ns()
        print(ended - started)
        time.sleep(1 / PACE)


def requests(host, count):
    """Requests one after another on one connection. Nanoseconds."""
    with speak(host) as connection:
        for _ in range(20):
            get(connection, host, b"small")
        for _ in range(int(count)):
            started = time.perf_counter_ns()
            get(connection, host, b"small")
            print(time.perf_counter_ns() - started)


def pull(host, port, count):
    """Bytes of a plain connection. Seconds."""
    room, got = bytearray(BLOCK), 0
    with socket.create_connection((host, int(port))) as one:
        started = time.perf_counter()
        while got < int(count):
            more = one.recv_into(room)
            if not more:
                raise EOFError(f"{got} bytes")
            got += more
        print(time.perf_counter() - started)


def push(host, port, count):
    """Bytes to a plain connection, until the other side has them all. Seconds."""
    block, count = bytes(BLOCK), int(count)
    with socket.create_connection((host, int(port))) as one:
        started = time.perf_counter()
        for _ in range(count // BLOCK):
            one.sendall(block)
        one.shutdown(socket.SHUT_WR)
        if int(one.recv(64)) != count:
            raise EOFError("not all arrived")
        print(time.perf_counter() - started)


def download(host, path):
    """A large file by HTTPS. Bytes, seconds."""
    with speak(host) as connection:
        started = time.perf_counter()
        print(get(connection, host, path.encode()), time.perf_counter() - started)


def upload(host, count):
    """The same the other way. Bytes, seconds."""
    block, count = bytes(BLOCK), int(count)
    with speak(host) as connection:
        started = time.perf_counter()
        connection.sendall(b"PUT /sink HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n" % (host.encode(), count))
        for _ in range(count // BLOCK):
            connection.sendall(block)
        head(connection)
        print(count, time.perf_counter() - started)


def hold(host, count, seconds):
    """Connections that have had one answer each, and then do nothing."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    held = []
    for _ in range(int(count)):
        connection = speak(host)
        get(connection, host, b"small")
        held.append(connection)
        time.sleep(1 / PACE)
    print("held", len(held), flush=True)
    time.sleep(float(seconds))


def slowest(log):
    """What half, and 99 in 100, of the times in a log of h2load do not exceed. Microseconds."""
    times, failed = [], 0
    for line in open(log):
        _, status, spent = line.split("\t")
        failed += status != "200"
        times.append(int(spent))
    times.sort()
    at = lambda share: times[max(0, -(-len(times) * share // 100) - 1)]
    print(len(times), failed, at(50), at(99))


globals()[sys.argv[1]](*sys.argv[2:])
