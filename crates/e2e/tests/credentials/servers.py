"""Origins that demand a key and write down every request, under two names, at several
ports. Arguments: the directory, then the command to run while they are there. The key is
in the file `real` beside that directory."""
import base64, http.server, os, socket, ssl, subprocess, sys, threading

PLACE = sys.argv[1]
REAL = open(os.path.join(PLACE, "..", "real")).read().strip()
GRANTED = {
    "Bearer " + REAL,
    "Basic " + base64.b64encode(f"git:{REAL}".encode()).decode(),
}
lock = threading.Lock()


class Origin(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self):
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        with lock, open(os.path.join(PLACE, "requests"), "a") as to:
            to.write(f"{self.command} {self.headers['Host']} {self.path} {self.headers.items()} {body!r}\n")
        path = self.path.partition("?")[0]
        if getattr(self, "is_stale", False) or path.endswith("-never"):
            # What came is known of, and nobody is told.
            self.close_connection = True
            return
        self.is_stale = path.endswith("/stale")
        said = self.headers.get("Authorization", "")
        path, _, query = self.path.partition("?")
        is_in = said in GRANTED or query == "key=" + REAL
        text = b"welcome\n" if is_in else b"who are you?\n"
        is_moved = path.endswith(("/redirect", "/moved"))
        self.send_response(302 if is_moved else 200 if is_in else 401)
        if path.endswith("/moved"):
            self.send_header("Location", "https://example.com/v1/after-moved?key=" + REAL)
        if path.endswith("/redirect"):
            self.send_header("Location", "https://other.example/v1/redirected")
        if path.endswith("/echo"):
            self.send_header("X-Echo", said)
            self.send_header("X-Key", "it is " + REAL + ", " + REAL)
            self.send_header("X-" + REAL, "in a name")
            self.send_header("X-" + REAL[::-1], "in another name")
        if path.endswith("/closed"):
            self.send_header("Connection", "close")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    do_GET = do_HEAD = do_POST = do_DELETE = do_PUT = answer


class Server(http.server.ThreadingHTTPServer):
    # Many come at once.
    request_queue_size = 512


def serve(port, names):
    server = Server(("", port), Origin)
    if names:
        contexts = {}
        for name in names:
            contexts[name] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            contexts[name].load_cert_chain(f"{PLACE}/{name}.pem", f"{PLACE}/{name}.key")

        def chosen(socket, name, _):
            socket.context = contexts.get(name, contexts[names[0]])

        contexts[names[0]].sni_callback = chosen
        server.socket = contexts[names[0]].wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def record(port):
    """Writes down the first bytes of each connection, as hexadecimal digits."""
    listener = socket.create_server(("", port))

    def accept():
        while True:
            connection, _ = listener.accept()
            try:
                first = connection.recv(16384)
                if first:
                    with lock, open(os.path.join(PLACE, "recorded"), "a") as to:
                        to.write(f"{port} {first.hex()}\n")
                    connection.sendall(b"got it")
            except OSError:
                # It was broken off before anything was sent.
                pass
            connection.close()

    threading.Thread(target=accept, daemon=True).start()


record(9443)
record(9444)
for port, names in ((80, []), (443, ["example.com", "other.example"]), (8443, ["example.com", "other.example"])):
    serve(port, names)
sys.exit(subprocess.run(sys.argv[2:]).returncode)
