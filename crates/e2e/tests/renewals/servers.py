"""An issuer (another.example) that renews a login in the way that the path of the request
names, each refresh token once, and an origin (example.com, other.example) that demands a
token which was handed out. Both write down what they are asked.
Arguments: the directory, then the command to run while they are there. Beside that directory
are the first refresh token, in `refresh`, what the login file is, in `login`, and another
one's secret, in `given`."""
import http.server, json, os, secrets, ssl, subprocess, sys, threading, time, urllib.parse

PLACE = sys.argv[1]
TOP = os.path.dirname(PLACE)
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
lock = threading.Lock()
issued = set()


def text(name):
    with open(os.path.join(TOP, name)) as file:
        return file.read().strip()


LOGIN = text("login")


def drawn(kind):
    return kind + "".join(secrets.choice(ALPHABET) for _ in range(40))


def note(file, line):
    with lock, open(os.path.join(PLACE, file), "a") as to:
        to.write(line + "\n")


class State:
    refresh = text("refresh")


def replaced(file, words):
    """As an agent outside writes its login."""
    with open(file + ".theirs", "w") as to:
        to.write(words)
    os.chmod(file + ".theirs", 0o600)
    os.rename(file + ".theirs", file)


class Server(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def say(self, status, words, kind="application/json", further=()):
        body = words.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in further:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        if self.headers["Host"].startswith("another.example"):
            return self.renew(body)
        if self.path == "/asked":
            is_asked = os.path.exists(os.path.join(PLACE, "asked-for"))
            return self.say(200, "asked\n" if is_asked else "not yet\n", "text/plain")
        said = self.headers.get("Authorization", "")
        note("requests", f"{self.command} {self.headers['Host']} {self.path} {said} {body!r}")
        if self.path == "/v1/restored":
            os.unlink(LOGIN)
            os.rename(LOGIN + ".away", LOGIN)
            return self.say(200, "restored\n", "text/plain")
        with lock:
            is_in = said.removeprefix("Bearer ") in issued
        further = [("X-Echo", said), ("X-Refresh", "it is " + State.refresh)]
        self.say(200 if is_in else 401, "welcome\n" if is_in else "who are you?\n", "text/plain", further)

    def renew(self, body):
        how = self.path.removeprefix("/token/")
        kind = self.headers["Content-Type"]
        form = json.loads(body) if kind == "application/json" else dict(urllib.parse.parse_qsl(body))
        note("asked-for", json.dumps({"path": self.path, "kind": kind, "form": form}))
        with lock:
            if form.get("grant_type") != "refresh_token" or form.get("refresh_token") != State.refresh:
                return self.say(400, '{"error":"invalid_grant"}')
            if how == "published" and form.get("client_secret") != "publ1shed-By_its.makers":
                return self.say(401, '{"error":"invalid_client"}')
            if how == "refused":
                return self.say(400, json.dumps({"error": "invalid_grant", "error_description": State.refresh}))
            if how != "kept":
                State.refresh = drawn("ref-")
            token = drawn("tok-")
            issued.add(token)
        note("issued", token)
        note("refreshed", State.refresh)
        good = {"access_token": token, "refresh_token": State.refresh, "expires_in": 3600, "id_token": drawn("idt-")}
        match how:
            case "slow":
                time.sleep(2)
            case "slower":
                time.sleep(15)
            case "kept":
                del good["refresh_token"], good["id_token"]
                good["token_type"] = "bearer"
            case "other":
                good["access_token"] = text("given")
            case "other-refresh":
                good["refresh_token"] = text("given")
            case "mac":
                good["token_type"] = "mac"
            case "page":
                return self.say(200, json.dumps(good), "text/html")
            case "redirect":
                return self.say(307, "", further=[("Location", "https://other.example/token/good")])
            case "theirs":
                # Somebody logs in anew while it is asked.
                theirs = {"tokens": {"access": drawn("tok-"), "refresh": drawn("ref-")}, "theirs": True}
                with lock:
                    issued.add(theirs["tokens"]["access"])
                note("issued", theirs["tokens"]["access"])
                replaced(LOGIN, json.dumps(theirs))
            case "link":
                os.rename(LOGIN, LOGIN + ".away")
                os.symlink(LOGIN + ".away", LOGIN)
        self.say(200, json.dumps(good))

    do_GET = do_HEAD = do_POST = answer


class Many(http.server.ThreadingHTTPServer):
    request_queue_size = 512
    daemon_threads = True

    def handle_error(self, *_):
        pass


NAMES = ["example.com", "other.example", "another.example"]
contexts = {}
for name in NAMES:
    contexts[name] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    contexts[name].load_cert_chain(f"{PLACE}/{name}.pem", f"{PLACE}/{name}.key")


def chosen(stream, name, _):
    stream.context = contexts.get(name, contexts[NAMES[0]])


contexts[NAMES[0]].sni_callback = chosen
server = Many(("", 443), Server)
server.socket = contexts[NAMES[0]].wrap_socket(server.socket, server_side=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.exit(subprocess.run(sys.argv[2:]).returncode)
