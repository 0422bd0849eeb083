"""Origins that demand a key and write down every request, under two names, at several
ports. Arguments: the directory, then the command to run while they are there. The key is
in the file `real` beside that directory."""
import base64, http.server, os, ssl, subprocess, sys, threading

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
        said = self.headers.get("Authorization", "")
        path, _, query = self.path.partition("?")
        is_in = said in GRANTED or query == "key=" + REAL
        text = b"welcome\n" if is_in else b"who are you?\n"
        self.send_response(302 if path.endswith("/redirect") else 200 if is_in else 401)
        if path.endswith("/redirect"):
            self.send_header("Location", "https://other.example/v1/redirected")
        if path.endswith("/echo"):
            self.send_header("X-Echo", said)
            self.send_header("X-Key", "it is " + REAL + ", " + REAL)
            self.send_header("X-" + REAL.replace("_", "-"), "a name")
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


for port, names in ((80, []), (443, ["example.com", "other.example"]), (8443, ["example.com", "other.example"])):
    serve(port, names)
sys.exit(subprocess.run(sys.argv[2:]).returncode)
