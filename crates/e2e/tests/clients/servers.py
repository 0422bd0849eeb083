"""Real servers on the small internet, those that SERVERS names: web (example.com), git
(git.example, by HTTPS and SSH), db (db.example, PostgreSQL). Arguments: the directory,
then the command to run while they are there. They run as a user of their own."""
import base64, glob, http.server, os, shutil, socket, ssl, subprocess, sys, threading, time

PLACE = sys.argv[1]
WANTED = os.environ["SERVERS"].split()
ID = "61235"
with open("/proc/self/uid_map") as map_:
    IS_ROOT = map_.read().split()[:2] == ["0", "0"]
if IS_ROOT:
    AS_SERVER = ["setpriv", "--reuid", ID, "--regid", ID, "--clear-groups"]
else:
    AS_SERVER = ["unshare", "--user", f"--map-user={ID}", f"--map-group={ID}", "--"]
HOME = os.path.join(PLACE, "server")
REPOSITORY = os.path.join(HOME, "repo.git")


def server(*command, **how):
    how.setdefault("check", True)
    return subprocess.run([*AS_SERVER, *command], stdout=subprocess.DEVNULL, cwd=HOME, **how)


def own(path, mode=0o700):
    if IS_ROOT:
        shutil.chown(path, int(ID), int(ID))
    os.chmod(path, mode)


def account():
    """Accounts for who serves and who asks, which nobody else sees."""
    os.mkdir(HOME)
    own(HOME, 0o755)
    text = open("/etc/passwd").read() + f"server:x:{ID}:{ID}::{HOME}:/bin/sh\n"
    text += f"second:x:{ID}:{ID}::{HOME}:/bin/sh\n"
    asks = os.environ["CLIENT_ID"]
    if f":x:{asks}:" not in text:
        text += f"client:x:{asks}:{asks}::{os.environ['HOME']}:/bin/sh\n"
    path = os.path.join(PLACE, "passwd")
    with open(path, "w") as to:
        to.write(text)
    subprocess.run(["mount", "--bind", path, "/etc/passwd"], check=True)


class Web(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        path, _, query = self.path.partition("?")
        with open(os.path.join(PLACE, "requests"), "a") as to:
            to.write(f"{self.command} {self.path} {self.headers['User-Agent']}\n")
        if path.startswith("/repo.git/") or path.startswith("/other.git/"):
            return self.git(path, query)
        self.body()
        self.told(200, [("Content-Type", "text/plain")], f"this is {self.headers['Host']}\n".encode())

    do_POST = do_GET

    def body(self):
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        whole = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            whole += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return whole

    def told(self, status, headers, body):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def git(self, path, query):
        body = self.body()
        password = os.environ.get("GIT_PASSWORD")
        if password and self.headers.get("Authorization") != "Basic " + base64.b64encode(f"git:{password}".encode()).decode():
            return self.told(401, [("WWW-Authenticate", 'Basic realm="git"')], b"who are you?")
        environment = {
            **os.environ,
            "GIT_PROJECT_ROOT": HOME,
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "REMOTE_USER": "somebody",
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        ran = subprocess.run([*AS_SERVER, "git", "http-backend"], input=body, stdout=subprocess.PIPE, env=environment)
        head, _, answer = ran.stdout.partition(b"\r\n\r\n")
        headers = [tuple(line.split(": ", 1)) for line in head.decode().split("\r\n") if line]
        status = [value.split()[0] for name, value in headers if name == "Status"]
        self.told(int(status[0]) if status else 200, [one for one in headers if one[0] != "Status"], answer)


def web(address, name, ports=(80, 443)):
    for port in ports:
        listener = http.server.ThreadingHTTPServer((address, port), Web)
        if port == 443:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(f"{PLACE}/{name}.pem", f"{PLACE}/{name}.key")
            listener.socket = context.wrap_socket(listener.socket, server_side=True)
        threading.Thread(target=listener.serve_forever, daemon=True).start()


def git():
    for path in (REPOSITORY, os.path.join(HOME, "other.git")):
        server("git", "-c", "init.defaultBranch=main", "init", "--bare", path)
        server("git", "-C", path, "config", "http.receivepack", "true")
    work = os.path.join(HOME, "work")
    commit = "git -c init.defaultBranch=main init -q \"$0\" && cd \"$0\" && head -c 3000000 /dev/urandom > large && echo first > file && \
        git add . && git -c user.name=s -c user.email=s@example.com commit -qm first && git push -q \"$1\" main"
    server("sh", "-c", commit, work, REPOSITORY)
    web("93.184.216.36", "git.example", (443,))


def ssh():
    for name in ("host", "client"):
        key = os.path.join(PLACE, name)
        # Who reads a long file may leave parts of it in several places.
        made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "of it " * 300, "-f", key]
        subprocess.run(made, check=True)
    shutil.copy(f"{PLACE}/host", f"{HOME}/host")
    own(f"{HOME}/host", 0o600)
    shutil.copy(f"{PLACE}/client.pub", f"{HOME}/authorized")
    own(f"{HOME}/authorized", 0o644)
    words = f"HostKey {HOME}/host\nAuthorizedKeysFile {HOME}/authorized\nUsePAM no\nStrictModes no\nPasswordAuthentication no\nPidFile none\n"
    with open(f"{PLACE}/sshd.conf", "w") as to:
        to.write(words)
    with open(f"{PLACE}/host.pub") as key, open(f"{PLACE}/known", "w") as to:
        to.write("git.example " + key.read())
    sshd("93.184.216.36", "sshd.conf")
    # Another host, with a key of its own, that would take the same keys.
    key = os.path.join(PLACE, "another")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    shutil.copy(key, f"{HOME}/another")
    own(f"{HOME}/another", 0o600)
    with open(f"{PLACE}/another.conf", "w") as to:
        to.write(words.replace(f"{HOME}/host", f"{HOME}/another"))
    sshd("93.184.216.37", "another.conf")


def sshd(address, conf):
    listener = socket.create_server((address, 22))

    def accept():
        while True:
            one, _ = listener.accept()
            said = open(f"{PLACE}/sshd.log", "ab")
            subprocess.Popen([*AS_SERVER, "/usr/sbin/sshd", "-i", "-e", "-f", f"{PLACE}/{conf}"], stdin=one, stdout=one, stderr=said)
            one.close()

    threading.Thread(target=accept, daemon=True).start()


def db():
    programs = glob.glob("/usr/lib/postgresql/*/bin")[0]
    data = os.path.join(HOME, "data")
    server(f"{programs}/initdb", "-N", "-A", "trust", "-U", "tester", "-D", data)
    for name in ("key", "pem"):
        shutil.copy(f"{PLACE}/db.example.{name}", f"{HOME}/db.{name}")
        own(f"{HOME}/db.{name}", 0o600)
    server("sh", "-c", 'echo "host all all 0.0.0.0/0 trust" >> "$0/pg_hba.conf"', data)
    settings = {
        "listen_addresses": "93.184.216.35", "unix_socket_directories": "", "ssl": "on", "fsync": "off",
        "ssl_cert_file": f"{HOME}/db.pem", "ssl_key_file": f"{HOME}/db.key",
    }
    words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    running = subprocess.Popen([*AS_SERVER, f"{programs}/postgres", "-D", data, *words], stdout=subprocess.DEVNULL, stderr=open(f"{PLACE}/db.log", "w"), cwd=HOME)
    for _ in range(300):
        try:
            socket.create_connection(("93.184.216.35", 5432), 1).close()
            return running
        except OSError:
            time.sleep(0.1)
    sys.exit(open(f"{PLACE}/db.log").read())


account()
running = None
if "web" in WANTED:
    web("93.184.216.34", "example.com")
if "git" in WANTED:
    git()
    ssh()
if "db" in WANTED:
    running = db()
status = subprocess.run(sys.argv[2:]).returncode
if "git" in WANTED:
    with open(f"{PLACE}/refs", "w") as to:
        subprocess.run([*AS_SERVER, "git", "-C", REPOSITORY, "for-each-ref"], stdout=to)
if running:
    running.terminate()
    running.wait()
sys.exit(status)
