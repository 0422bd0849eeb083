"""What a program does inside whose ports are published: servers that come late, one on IPv6
alone, one of which nobody is told. Ends when it is told to, or after its argument's seconds."""
import hashlib, http.server, os, socket, sys, threading, time


class Server(socket.socket):
    pass


def start(work, *arguments):
    threading.Thread(target=work, args=arguments, daemon=True).start()


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = f"port {self.server.server_port} for {self.headers['Host']}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
        if self.path == "/end":
            os._exit(0)

    def log_message(self, *_):
        pass


class Six(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6


def page(server, address):
    start(server(address, Page).serve_forever)


def digest():
    """Takes all until the end, answers what it was, then sends as much."""
    listener = socket.create_server(("", 5000), backlog=256)
    while True:
        start(answer, listener.accept()[0])


def answer(connection):
    with connection:
        seen, length = hashlib.sha256(), 0
        # Slowly at first, so that much waits on the way when its sender has ended.
        time.sleep(0.3)
        while block := connection.recv(1 << 20):
            seen.update(block)
            length += len(block)
        connection.sendall(f"{length} {seen.hexdigest()}\n".encode())
        connection.sendall(b"x" * length)


# Somebody visits before anything listens.
sys.stdin.readline()
page(http.server.ThreadingHTTPServer, ("127.0.0.1", 3000))
page(Six, ("::1", 3001))
page(http.server.ThreadingHTTPServer, ("127.0.0.1", 4000))
start(digest)
print("serving", flush=True)
time.sleep(float(sys.argv[1]))
