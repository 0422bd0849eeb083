"""A small internet on one loopback device: a name server and servers at public and
private addresses, which write down what reaches them. Arguments: a directory, then the
command to run while it is there. INTERNET_PORTS says at which ports they listen."""
import os, socket, struct, subprocess, sys, threading

PLACE = sys.argv[1]
NAMES = {
    "example.com": ["93.184.216.34"],
    "www.example.com": ["93.184.216.34"],
    "other.example": ["93.184.216.35"],
    "registry.npmjs.org": ["93.184.216.35"],
    "registry.yarnpkg.com": ["93.184.216.35"],
    "pypi.org": ["93.184.216.35"],
    "files.pythonhosted.org": ["93.184.216.35"],
    "index.crates.io": ["93.184.216.35"],
    "static.crates.io": ["93.184.216.35"],
    "six.example": ["2606:2800:220:1::1"],
    "private.example": ["10.1.2.3"],
    "loopback.example": ["127.0.0.1"],
    "metadata.example": ["169.254.169.254"],
    "mapped.example": ["::ffff:127.0.0.1"],
    "mixed.example": ["93.184.216.34", "10.1.2.3"],
    "nowhere.example": ["93.184.216.99"],
    "wrong.example": ["93.184.216.36"],
    "late.example": ["93.184.216.37"],
    "unknown.example": ["93.184.216.38"],
    "deb.debian.org": ["93.184.216.35"],
    "db.example": ["93.184.216.35"],
    "git.example": ["93.184.216.36"],
    "another.example": ["93.184.216.37"],
    "api.openai.com": ["93.184.216.37"],
    "auth.openai.com": ["93.184.216.37"],
    "api.anthropic.com": ["93.184.216.37"],
    "generativelanguage.googleapis.com": ["93.184.216.37"],
    "oauth2.googleapis.com": ["93.184.216.37"],
    "cloudcode-pa.googleapis.com": ["93.184.216.37"],
    "platform.claude.com": ["93.184.216.37"],
    "tunnel.example": ["93.184.216.38"],
    # Inside Atoll answers for it, and nobody is asked.
    "proxy.atoll.internal": ["93.184.216.38"],
    "s3.eu-west-1.amazonaws.com": ["93.184.216.36"],
    "dynamodb.eu-west-1.amazonaws.com": ["93.184.216.36"],
    "sts.us-east-1.amazonaws.com": ["93.184.216.36"],
    "sts.eu-west-1.amazonaws.com": ["93.184.216.36"],
}
# Names that lead elsewhere each time that they are asked for.
TURNS = {"turns.example": ["93.184.216.34", "10.1.2.3"]}
ADDRESSES = ["93.184.216.34", "93.184.216.35", "93.184.216.36", "93.184.216.37", "93.184.216.38", "9.9.9.9", "10.1.2.3", "169.254.169.254"]
lock = threading.Lock()


def note(file, text):
    with lock, open(os.path.join(PLACE, file), "a") as to:
        to.write(text + "\n")


def start(work, *arguments):
    threading.Thread(target=work, args=arguments, daemon=True).start()


def names(server):
    while True:
        question, asker = server.recvfrom(4096)
        try:
            answer(server, question, asker)
        except (IndexError, struct.error):
            note("datagrams", f"53 {question!r}")


def answer(server, question, asker):
    labels, at = [], 12
    while question[at]:
        labels.append(question[at + 1 : at + 1 + question[at]].decode(errors="replace"))
        at += question[at] + 1
    name, kind = ".".join(labels).lower(), struct.unpack(">H", question[at + 1 : at + 3])[0]
    note("asked", name)
    if name == "silent.example":
        return
    family = {1: socket.AF_INET, 28: socket.AF_INET6}.get(kind)
    data = []
    if name in TURNS and family == socket.AF_INET:
        TURNS[name].append(TURNS[name].pop(0))
    for address in TURNS.get(name, [])[:1] or NAMES.get(name, []):
        if family == (socket.AF_INET6 if ":" in address else socket.AF_INET):
            data.append(socket.inet_pton(family, address))
    code = 0 if name in NAMES or name in TURNS else 3
    head = question[:2] + struct.pack(">HHHHH", 0x8180 | code, 1, len(data), 0, 0)
    body = question[12 : at + 5]
    for one in data:
        body += b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 0, len(one)) + one
    server.sendto(head + body, asker)


def serve(connection, port):
    at = connection.getsockname()[0]
    note("reached", f"{at} {port}")
    with connection:
        if port == 22:
            connection.sendall(b"SSH-2.0-here\r\n")
        if port == 7:
            while block := connection.recv(65536):
                connection.sendall(block)
            return
        first = connection.recv(65536)
        note("first", repr(first[:80]))
        if port == 80:
            text = f"this is {at}\n".encode()
            connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
            # What still comes of a body would end the connection before its answer is read.
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(30)
            try:
                while connection.recv(65536):
                    pass
            except OSError:
                pass


def listen(family, port):
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    listener.bind(("", port))
    listener.listen(512)

    def accept():
        while True:
            connection, _ = listener.accept()
            start(serve, connection, port)

    start(accept)


def hear(port):
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.bind(("", port))

    def receive():
        while True:
            said, _ = receiver.recvfrom(65536)
            note("datagrams", f"{port} {said!r}")
            note("reached", f"udp {port}")

    start(receive)


subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
for address in ADDRESSES:
    subprocess.run(["ip", "address", "add", address + "/32", "dev", "lo"], check=True)
subprocess.run(["ip", "-6", "address", "add", "2606:2800:220:1::1/128", "dev", "lo", "nodad"], check=True)
with open(os.path.join(PLACE, "resolv.conf"), "w") as to:
    to.write("nameserver 9.9.9.9\n")
subprocess.run(["mount", "--bind", os.path.join(PLACE, "resolv.conf"), "/etc/resolv.conf"], check=True)
resolver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
resolver.bind(("9.9.9.9", 53))
start(names, resolver)
for port in map(int, os.environ.get("INTERNET_PORTS", "7 22 80 443 8443").split()):
    listen(socket.AF_INET, port)
    listen(socket.AF_INET6, port)
for port in (123, 443):
    hear(port)
sys.exit(subprocess.run(sys.argv[2:]).returncode)
