"""An issuer of tokens and an API that demands one of them, and a browser that goes wherever the
command prints that somebody is to log in. Arguments: the directory, then the command. The
access and the refresh token are in the files `real` and `renewal` beside the directory, what
else an answer has in `canary`. The second token of a login is the first with another word in it."""
import base64, gzip, http.server, json, os, pty, re, ssl, subprocess, sys, threading, time, urllib.error, urllib.parse, urllib.request

PLACE = sys.argv[1]
TOP = os.path.dirname(PLACE)
REAL, RENEWAL, CANARY = (open(os.path.join(TOP, name)).read().strip() for name in ("real", "renewal", "canary"))
NAMES = os.environ["ISSUERS"].split()
NEXT = REAL.replace("r3al", "n3xt")
GOOGLE = "https://www.googleapis.com/auth/"
lock = threading.Lock()
polls = {}


def part(text):
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def web_token():
    """Who logged in, as Codex reads it."""
    auth = {"chatgpt_account_id": "account-1", "chatgpt_plan_type": "plus", "chatgpt_user_id": "user-1", "hidden": CANARY}
    claims = {"email": "ann@example.com", "exp": 4102444800, "secret": CANARY, "https://api.openai.com/auth": auth}
    return f'{part(json.dumps({"alg": "RS256", "typ": "JWT"}))}.{part(json.dumps(claims))}.{part(CANARY)}'


def tokens():
    return {
        "account": {"access_token": CANARY}, "session": CANARY, "access_token": REAL, "refresh_token": RENEWAL, "id_token": web_token(), "token_type": "Bearer",
        "expires_in": 3600, "scope": "openid profile", "pin": 987654,
    }


class Issuer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def note(self, body):
        with lock, open(os.path.join(PLACE, "requests"), "a") as to:
            to.write(f"{self.command} {self.headers['Host']} {self.path} {self.headers['Authorization']} {body!r}\n")

    def told(self, status, text, headers=()):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Set-Cookie", "session=" + CANARY)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        self.note(b"")
        is_in = self.headers["Authorization"] in ("Bearer " + REAL, "Bearer " + NEXT)
        self.told(200 if is_in else 401, b'"welcome"\n' if is_in else b'"who are you?"\n')

    def pieces(self, pieces):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Trailer", "X-Token")
        self.end_headers()
        for piece in pieces:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()
            time.sleep(0.02)
        self.wfile.write(b"0\r\nX-Token: %s\r\n\r\n" % CANARY.encode())

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.note(body)
        try:
            asked = json.loads(body)
        except ValueError:
            asked = dict(urllib.parse.parse_qsl(body.decode()))
        code, text = asked.get("code", ""), json.dumps(tokens()).encode()
        if self.headers["Host"].endswith(".googleapis.com"):
            return self.google(asked)
        if self.headers["Host"] == "platform.claude.com" and code == "good":
            return self.claude(asked)
        if code == "packed":
            self.told(200, gzip.compress(text), [("Content-Encoding", "gzip")])
        elif code == "pieces":
            self.pieces([text[i:i + 61] for i in range(0, len(text), 61)])
        elif code == "halves":
            self.pieces([text[: len(text) // 2], text[len(text) // 2:]])
        elif code == "elsewhere":
            self.told(302, text, [("Location", f"https://{NAMES[0]}/?token={REAL}")])
        elif code == "huge":
            self.told(200, json.dumps({**tokens(), "more": "x" * 100_000}).encode())
        elif code == "other":
            self.told(200, json.dumps({"accessToken": REAL, "data": {"refresh_token": RENEWAL}}).encode())
        elif code == "twice":
            self.told(200, text[:-1] + b', "access_token": "' + CANARY.encode() + b'"}')
        elif code == "scope":
            self.told(200, json.dumps({**tokens(), "scope": "openid " + REAL}).encode())
        elif code == "html":
            self.told(200, b"<script>token = '" + REAL.encode() + b"'</script>")
        elif code == "pending":
            self.told(400, json.dumps({"error": "authorization_pending", "error_description": CANARY}).encode())
        elif code == "client":
            self.told(401, json.dumps({"error": "invalid_client", "error_description": CANARY}).encode())
        elif self.path.startswith("/api/accounts/deviceauth/"):
            self.device(asked)
        elif "device_code" in asked:
            polls["device"] = polls.get("device", 0) + 1
            if polls["device"] < 3:
                word = ["authorization_pending", "slow_down"][polls["device"] - 1]
                self.told(400, json.dumps({"error": word, "interval": 7, "session": CANARY}).encode())
            else:
                self.told(200, text)
        elif code == "refused" or asked.get("grant_type") != "authorization_code":
            self.told(403, json.dumps({"error": {"code": CANARY}, "access_token": REAL}).encode())
        else:
            self.told(200, text)

    def device(self, asked):
        """The way of Codex: somebody says yes to a code between two questions."""
        if self.path.endswith("/usercode"):
            given = {"device_auth_id": "device-1", "user_code": "ABCD-1234", "interval": "1"}
            return self.told(200, json.dumps(given).encode())
        polls["codex"] = polls.get("codex", 0) + 1
        if polls["codex"] < 2:
            return self.told(403, b"{}")
        given = {"authorization_code": "good", "code_challenge": "c" * 43, "code_verifier": "v" * 43}
        self.told(200, json.dumps(given).encode())

    def google(self, asked):
        """The issuer of Gemini CLI, which knows its client by what its makers have published, and
        what it works by."""
        if self.path != "/token":
            return self.code_assist()
        given = {"token_type": "Bearer", "expires_in": 3599, "id_token": web_token()}
        given["scope"] = f"openid {GOOGLE}cloud-platform {GOOGLE}userinfo.email {GOOGLE}userinfo.profile"
        if not asked.get("client_id", "").endswith(".apps.googleusercontent.com") or "client_secret" not in asked:
            self.told(401, b'{"error": "invalid_client"}')
        elif asked.get("code") == "good":
            self.told(200, json.dumps({**given, "access_token": REAL, "refresh_token": RENEWAL}).encode())
        elif asked.get("refresh_token") == RENEWAL:
            self.told(200, json.dumps({**given, "access_token": NEXT}).encode())
        else:
            self.told(400, b'{"error": "invalid_grant"}')

    def claude(self, asked):
        """The issuer of Claude Code, which tells of whose account it is."""
        account = {"uuid": "8d5a2f3e-0000-4000-8000-0123456789ab", "email_address": "ann@example.com"}
        organization = {"uuid": "9e6b3a4f-0000-4000-8000-0123456789ab", "name": CANARY}
        given = {"token_type": "Bearer", "access_token": REAL, "refresh_token": RENEWAL, "expires_in": 28800}
        given["scope"] = "user:inference user:profile user:sessions:claude_code"
        if not asked.get("code_verifier") or not asked.get("state"):
            return self.told(400, b'{"error": "invalid_request"}')
        self.told(200, json.dumps({**given, "account": account, "organization": organization}).encode())

    def code_assist(self):
        if self.headers["Authorization"] != "Bearer " + NEXT:
            return self.told(401, b'{"error": {"code": 401, "status": "UNAUTHENTICATED"}}')
        if ":streamGenerateContent" not in self.path:
            tier = {"id": "standard-tier", "name": "Standard"}
            known = {"currentTier": tier, "cloudaicompanionProject": "project-1", "scope": "openid", "expires_in": 3599}
            return self.told(200, json.dumps(known).encode())
        part = {"content": {"role": "model", "parts": [{"text": "ALL IS DONE"}]}, "finishReason": "STOP", "index": 0}
        event = b"data: " + json.dumps({"response": {"candidates": [part]}}).encode() + b"\r\n\r\n"
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(event)))
        self.end_headers()
        self.wfile.write(event)

    do_PUT = do_POST


def certified():
    contexts = {}
    for name in NAMES:
        contexts[name] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        contexts[name].load_cert_chain(f"{PLACE}/{name}.pem", f"{PLACE}/{name}.key")

    def chosen(socket, name, _):
        socket.context = contexts.get(name, contexts[NAMES[0]])

    contexts[NAMES[0]].sni_callback = chosen
    return contexts[NAMES[0]]


def browse(address):
    """Says yes, and goes back to where the agent waits: at a port of this host."""
    query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(address).query))
    back = query["redirect_uri"].replace("localhost", "127.0.0.1")
    back += "?" + urllib.parse.urlencode({"code": "good", "state": query.get("state", "")})
    class Staying(urllib.request.HTTPRedirectHandler):
        """Goes on to the agent's own pages, and to nobody's."""
        def redirect_request(self, asked, page, code, why, headers, to):
            is_own = to.startswith(("http://127.0.0.1:", "http://localhost:"))
            to = to.replace("localhost", "127.0.0.1")
            return super().redirect_request(asked, page, code, why, headers, to) if is_own else None

    open_directly = urllib.request.build_opener(urllib.request.ProxyHandler({}), Staying).open
    for _ in range(200):
        try:
            try:
                with open_directly(back, timeout=20) as page:
                    text = page.read()
            except urllib.error.HTTPError as elsewhere:
                text = f"{elsewhere.code} {elsewhere.headers['Location']}\n".encode()
            with lock, open(os.path.join(PLACE, "browsed"), "ab") as to:
                to.write(back.encode() + b"\n" + text)
            return
        except OSError:
            time.sleep(0.1)


def carry(stream, to, seen):
    for line in stream:
        to.write(line)
        to.flush()
        found = re.search(rb"https://\S*/(?:oauth/authorize|o/oauth2/v2/auth)\?\S*", line)
        with lock:
            is_first = found and not seen
            seen.extend([found] if found else [])
        if is_first:
            threading.Thread(target=browse, args=(found[0].decode(),), daemon=True).start()


listener = http.server.ThreadingHTTPServer(("", 443), Issuer)
listener.socket = certified().wrap_socket(listener.socket, server_side=True)
threading.Thread(target=listener.serve_forever, daemon=True).start()


def at_a_terminal(answer):
    """Runs the command at one, where somebody answers what is asked at its end."""
    master, slave = pty.openpty()
    words = ["setsid", "--ctty", "--wait", *sys.argv[2:]]
    run = subprocess.Popen(words, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    said = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:
            part = b""
        if not part:
            return run.wait()
        before, said = said, said + part
        # What is typed back comes from another page: a code, and by what it is known again, which
        # a short address has in place of all else.
        state = re.search(rb"[?&]state=([\w-]+)", said) or re.search(rb"/oauth/authorize\?([\w-]+)", said)
        again = "good#" + state[1].decode() if state else "good"
        typed = ((b"[y/N]", answer), (b"Enter the authorization code:", "good"), (b"Paste code here", again))
        for asked, word in typed:
            if asked in said and asked not in before:
                if asked == b"[y/N]" and "LOOK" in os.environ:
                    # Before it is answered, the tokens are held by who asks.
                    subprocess.run(["sh", "-c", os.environ["LOOK"], "sh", str(run.pid)])
                os.write(master, word.encode() + b"\r")
        sys.stdout.buffer.write(part)
        sys.stdout.buffer.flush()


if "ANSWER" in os.environ:
    sys.exit(at_a_terminal(os.environ["ANSWER"]))
run = subprocess.Popen(sys.argv[2:], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
seen = []
both = [(run.stdout, sys.stdout.buffer), (run.stderr, sys.stderr.buffer)]
carried = [threading.Thread(target=carry, args=(*one, seen)) for one in both]
for one in carried:
    one.start()
for one in carried:
    one.join()
sys.exit(run.wait())
