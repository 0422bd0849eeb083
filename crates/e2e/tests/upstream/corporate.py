"""What stands between a host and the internet at some places: a proxy at 127.0.0.1:3128 that wants
a password and resolves names by itself, and a server whose certificate an authority of its own
has signed. Arguments: a directory, then the command to run while they are there."""
import base64, os, socket, ssl, subprocess, sys, threading

PLACE = sys.argv[1]
NAMES = {"example.com": "93.184.216.34", "intranet.example": "10.1.2.3", "six.example": "93.184.216.35"}
WANTED = "Basic " + base64.b64encode(b"me:p@ss word").decode()


def start(work, *arguments):
    threading.Thread(target=work, args=arguments, daemon=True).start()


def carry(source, to):
    try:
        while block := source.recv(65536):
            to.sendall(block)
        to.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def recorded(target):
    """Whether the ledger tells of the name by now, where that is asked."""
    if not os.path.exists(os.path.join(PLACE, "ledger")):
        return ""
    name = target.rsplit(":", 1)[0]
    told = f'"host":"{name}","kind":"name"'.encode()
    for place, _, files in os.walk(os.readlink(os.path.join(PLACE, "ledger"))):
        for file in files:
            with open(os.path.join(place, file), "rb") as one:
                if told in one.read():
                    return " recorded"
    return " unrecorded"


def proxy(client):
    head = b""
    while b"\r\n\r\n" not in head:
        head += client.recv(1)
    lines = head.decode().split("\r\n")
    target = lines[0].split(" ")[1]
    fields = dict(line.split(": ", 1) for line in lines[1:] if line)
    with open(os.path.join(PLACE, "proxied"), "a") as to:
        to.write(lines[0] + recorded(target) + "\n")
    if fields.get("Proxy-Authorization") != WANTED:
        client.sendall(b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n")
        return client.close()
    host, port = target.rsplit(":", 1)
    try:
        server = socket.create_connection((NAMES.get(host, host), int(port)), 5)
    except OSError:
        client.sendall(b"HTTP/1.1 502 Nobody there\r\n\r\n")
        return client.close()
    # With the first bytes of the server behind the head, where it speaks first.
    first = server.recv(64) if port == "22" else b""
    client.sendall(b"HTTP/1.1 200 Connection established\r\nVia: corporate\r\n\r\n" + first)
    start(carry, server, client)
    carry(client, server)


def secure(listener, context):
    while True:
        plain, _ = listener.accept()
        try:
            with context.wrap_socket(plain, server_side=True) as one:
                one.recv(65536)
                one.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nsafe\n")
        except OSError:
            pass


def listen(work, at):
    listener = socket.create_server(at)

    def accept():
        while True:
            start(work, listener.accept()[0])

    start(accept)


listen(proxy, ("127.0.0.1", 3128))
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(os.path.join(PLACE, "leaf.pem"), os.path.join(PLACE, "leaf.key"))
start(secure, socket.create_server(("93.184.216.34", 443)), context)
sys.exit(subprocess.run(sys.argv[2:]).returncode)
