"""An issuer of tokens (another.example, private.example, and git.example in the ways of
GitHub and of Kubernetes) that hands them out in the way
that the path of the request names, and an origin (example.com, other.example) that demands
one which was handed out and not taken back. Both write down what they are asked.
Arguments: the directory, then the command to run while they are there. The secrets are in
the files `client`, `refresh` and `subject` beside that directory, and what the app's key is
known by in `app.pub`."""
import base64, http.server, json, os, secrets, socket, ssl, subprocess, sys, threading, time, urllib.parse

PLACE = sys.argv[1]
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
lock = threading.Lock()
issued, revoked = set(), set()


def secret(name):
    with open(os.path.join(PLACE, "..", name)) as file:
        return file.read().strip()


def drawn(kind):
    return kind + "".join(secrets.choice(ALPHABET) for _ in range(36))


def note(file, text):
    with lock, open(os.path.join(PLACE, file), "a") as to:
        to.write(text + "\n")


class State:
    refresh = secret("refresh")


def is_of_app(statement):
    """Whether the app's key has signed it, for now."""
    signed, _, signature = statement.rpartition(".")
    parts = [base64.urlsafe_b64decode(one + "=" * (-len(one) % 4)) for one in (*signed.split("."), signature)]
    at = os.path.join(PLACE, "signature-" + secrets.token_hex(8))
    with open(at, "wb") as to:
        to.write(parts[2])
    verify = ["openssl", "dgst", "-sha256", "-verify", os.path.join(PLACE, "..", "app.pub"), "-signature", at]
    is_signed = subprocess.run(verify, input=signed.encode(), capture_output=True).returncode == 0
    header, claims = json.loads(parts[0]), json.loads(parts[1])
    now = time.time()
    is_now = claims["iat"] <= now < claims["exp"] <= now + 600
    return is_signed and header == {"alg": "RS256", "typ": "JWT"} and claims["iss"] == 4711 and is_now


def token(kind="tok_"):
    value = drawn(kind)
    with lock:
        issued.add(value)
    note("issued", value)
    return value


class Server(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def say(self, status, text, kind="application/json", further=()):
        body = text if isinstance(text, bytes) else text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in further:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def answer(self):
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length).decode()
        host = self.headers["Host"]
        if host.startswith("git.example"):
            self.app(host, body)
        elif host.startswith(("another.example", "private.example")):
            self.ask(host, body)
        else:
            self.serve(host, body)

    def serve(self, host, body):
        said = self.headers.get("Authorization", "")
        note("requests", f"{self.command} {host} {self.path} {said} {body!r}")
        given = said.removeprefix("Bearer ")
        with lock:
            is_in = given in issued and given not in revoked
        further = [("X-Echo", said), ("X-Client", "it is " + secret("client"))] if self.path.endswith("/echo") else []
        if self.path == "/v1/restored":
            file = os.path.join(PLACE, "..", "refresh")
            os.replace(file + ".moved", file)
        self.say(200 if is_in else 401, "welcome\n" if is_in else "who are you?\n", "text/plain", further)

    def ask(self, host, body):
        form = urllib.parse.parse_qs(body)
        facts = {"method": self.command, "host": host, "path": self.path, "headers": {name.lower(): value for name, value in self.headers.items()}, "form": form}
        note("asked-for", json.dumps(facts))
        user, word = form.get("client_id", [""])[0], form.get("client_secret", [""])[0]
        said = self.headers.get("Authorization", "")
        if said.startswith("Basic "):
            user, word = map(urllib.parse.unquote_plus, base64.b64decode(said[6:]).decode().split(":"))
        how = self.path.removeprefix("/token/")
        if how != "public" and (user, word) != ("client one", secret("client")):
            return self.say(401, '{"error":"invalid_client"}')
        if self.path.startswith("/revoke"):
            if self.path.endswith("fails"):
                return self.say(503, "{}")
            if self.path.endswith("slow"):
                time.sleep(60)
            with lock:
                revoked.add(form["token"][0])
            note("revoked", form["token"][0])
            return self.say(200, "")
        self.grant(how, form)

    def app(self, host, body):
        said = self.headers.get("Authorization", "")
        facts = {"method": self.command, "host": host, "path": self.path, "headers": {name.lower(): value for name, value in self.headers.items()}, "body": body}
        note("asked-for", json.dumps(facts))
        given = said.removeprefix("Bearer ")
        if self.path.startswith("/api/v1/namespaces/"):
            return self.cluster(given, body)
        if (self.command, self.path) == ("DELETE", "/api/v3/installation/token"):
            with lock:
                revoked.add(given)
            note("revoked", given)
            self.send_response(204)
            return self.end_headers()
        if (self.command, self.path) != ("POST", "/api/v3/app/installations/7/access_tokens"):
            return self.say(404, "{}")
        if not is_of_app(given):
            return self.say(401, "{}")
        wanted = json.loads(body)
        ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
        good = {"token": token("ghs_"), "expires_at": ends, "permissions": {"metadata": "read"} | wanted["permissions"]}
        good |= {"repository_selection": "selected", "repositories": [{"name": one} for one in wanted["repositories"]]}
        if "greedy" in wanted["repositories"]:
            good["permissions"]["administration"] = "write"
        self.say(201, json.dumps(good), "application/json; charset=utf-8")

    def cluster(self, given, body):
        """The way in which Kubernetes gives tokens of service accounts (TokenRequest)."""
        if given != secret("subject"):
            return self.say(401, "{}")
        _, _, _, _, namespace, _, account, _ = self.path.split("/")
        if account == "nobody":
            return self.say(404, "{}")
        of = "admin" if account == "greedy" else account
        claims = json.dumps({"sub": f"system:serviceaccount:{namespace}:{of}", "jti": drawn("")})
        value = ".".join(base64.urlsafe_b64encode(one.encode()).decode().rstrip("=") for one in ('{"alg":"RS256"}', claims, drawn("")))
        with lock:
            issued.add(value)
        life = json.loads(body)["spec"]["expirationSeconds"]
        ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + life))
        self.say(201, json.dumps({"status": {"token": value, "expirationTimestamp": ends}}))

    def grant(self, how, form):
        match form["grant_type"][0]:
            case "client_credentials":
                pass
            case "refresh_token" if form["refresh_token"] == [State.refresh]:
                State.refresh = drawn("ref_")
                note("refreshed", State.refresh)
            case "urn:ietf:params:oauth:grant-type:token-exchange" if form["subject_token"] == [secret("subject")]:
                pass
            case _:
                return self.say(400, '{"error":"invalid_grant","error_description":"of those: ' + secret("client") + '"}')
        good = {"access_token": token(), "token_type": "bearer", "expires_in": 3600}
        if form["grant_type"][0] == "refresh_token":
            good["refresh_token"] = State.refresh
        match how:
            case "good" | "public":
                self.say(200, json.dumps(good), "application/json; charset=utf-8")
            case "rotates-slowly":
                time.sleep(4)
                self.say(200, json.dumps(good))
            case "link":
                # Something else lies there by the time that it answers.
                file = os.path.join(PLACE, "..", "refresh")
                os.rename(file, file + ".moved")
                os.symlink(file + ".moved", file)
                self.say(200, json.dumps(good | {"expires_in": 4}))
            case "theirs":
                with open(os.path.join(PLACE, "..", "refresh"), "w") as to:
                    to.write(drawn("ref_"))
                self.say(200, json.dumps(good))
            case "same-refresh":
                self.say(200, json.dumps(good | {"refresh_token": secret("given")}))
            case "late":
                time.sleep(1)
                self.say(200, json.dumps(good))
            case "short":
                self.say(200, json.dumps(good | {"expires_in": 4}))
            case "same":
                self.say(200, json.dumps(good | {"access_token": secret("client")}))
            case "other":
                self.say(200, json.dumps(good | {"access_token": secret("given")}))
            case "placeholder":
                self.say(200, json.dumps(good | {"access_token": secret("placeholder")}))
            case "none":
                self.say(200, json.dumps({"token_type": "bearer"}))
            case "weak":
                self.say(200, json.dumps(good | {"access_token": "password"}))
            case "lines":
                self.say(200, json.dumps(good | {"access_token": good["access_token"] + "\r\nX-Other: a"}))
            case "mac":
                self.say(200, json.dumps(good | {"token_type": "mac"}))
            case "expired":
                self.say(200, json.dumps(good | {"expires_in": 0}))
            case "page":
                self.say(200, json.dumps(good), "text/html")
            case "form":
                self.say(200, urllib.parse.urlencode(good))
            case "long":
                self.say(200, json.dumps(good | {"more": "x" * 100_000}))
            case "redirect":
                self.say(307, "", further=[("Location", "https://other.example/token/good")])
            case "refused":
                self.say(400, json.dumps({"error": "invalid_scope", "error_description": secret("client")}))
            case "unknown":
                self.say(400, json.dumps({"error": secret("client")}))
            case "broken":
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{")
                self.close_connection = True
            case "endless":
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{")
                while True:
                    self.wfile.write(b" ")
                    self.wfile.flush()
                    time.sleep(0.1)
            case "slow":
                time.sleep(600)
            case _:
                self.say(404, "{}")

    do_GET = do_HEAD = do_POST = do_DELETE = answer


class Many(http.server.ThreadingHTTPServer):
    # Many come at once.
    request_queue_size = 512
    daemon_threads = True

    def handle_error(self, *_):
        pass


def serve(port, names):
    server = Many(("", port), Server)
    contexts = {}
    for name in names:
        contexts[name] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        contexts[name].load_cert_chain(f"{PLACE}/{name}.pem", f"{PLACE}/{name}.key")

    def chosen(stream, name, _):
        stream.context = contexts.get(name, contexts[names[0]])

    contexts[names[0]].sni_callback = chosen
    server.socket = contexts[names[0]].wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def carry(one, other):
    try:
        while block := one.recv(65536):
            other.sendall(block)
        other.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def connect(stream):
    """A proxy by which connections go on (RFC 9110, 9.3.6)."""
    head = b""
    while b"\r\n\r\n" not in head:
        head += stream.recv(1)
    host, _, port = head.split()[1].decode().rpartition(":")
    note("connects", f"{host}:{port}")
    far = socket.create_connection((host, int(port)))
    stream.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    threading.Thread(target=carry, args=(far, stream), daemon=True).start()
    carry(stream, far)


def proxy():
    listener = socket.create_server(("", 3128))
    while True:
        stream, _ = listener.accept()
        threading.Thread(target=connect, args=(stream,), daemon=True).start()


threading.Thread(target=proxy, daemon=True).start()
for port in (443, 8443):
    serve(port, ["example.com", "other.example", "another.example", "private.example", "git.example"])
sys.exit(subprocess.run(sys.argv[2:]).returncode)
