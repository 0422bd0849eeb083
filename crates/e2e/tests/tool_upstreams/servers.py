"""A service over HTTPS at example.com, which demands a key, and PostgreSQL at db.example. Arguments:
the directory, then the command to run while they are there. The key, and the password, is in the
file `real` beside that directory."""
import glob, http.server, json, os, shutil, socket, ssl, subprocess, sys, threading, time

PLACE = sys.argv[1]
REAL = open(os.path.join(PLACE, "..", "real")).read().strip()
HOME = os.path.join(PLACE, "server")
ID = "61235"
IS_ROOT = open("/proc/self/uid_map").read().split()[:2] == ["0", "0"]
AS_SERVER = (
    ["setpriv", "--reuid", ID, "--regid", ID, "--clear-groups"]
    if IS_ROOT
    else ["unshare", "--user", f"--map-user={ID}", f"--map-group={ID}", "--"]
)
pets = {"1": {"id": "1", "name": "Rex"}}


class Service(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        with open(os.path.join(PLACE, "requests"), "a") as to:
            line = {"at": f"{self.command} {self.path}", "body": body, "connection": id(self.connection)}
            to.write(json.dumps(line) + "\n")
        status, kind, more = 200, "application/json", {}
        path, _, _ = self.path.partition("?")
        if self.headers.get("Authorization") != "Bearer " + REAL:
            status, said = 401, {"error": "who are you?"}
        elif path == "/v1/pets" and self.command == "POST":
            pet = json.loads(body)
            pets[pet["id"]] = pet
            status, said = 201, pet
        elif path == "/v1/pets":
            said = {"pets": list(pets.values()), "asked": self.path, "shop": self.headers.get_all("X-Shop")}
        elif path == "/v1/text":
            kind, said = "text/plain", "\x1b[31mred\x1b[0m ghp_0123456789abcdefghijABCDEFGHIJ012345"
        elif path == "/v1/moved":
            status, said, more = 302, {}, {"Location": "https://other.example/v1/pets"}
        elif path == "/v1/twice":
            said = '{"role": "user", "role": "admin"}'
        elif path == "/v1/large":
            said = {"text": "x" * 3_000_000}
        elif path == "/v1/slow":
            time.sleep(30)
            said = {}
        else:
            pet = pets.get(path.rpartition("/")[2])
            status, said = (200, pet) if pet else (404, {"error": "no such pet"})
        text = (said if isinstance(said, str) else json.dumps(said)).encode()
        self.send_response(status)
        for name, value in {**more, "Content-Type": kind, "Content-Length": str(len(text))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_DELETE = answer


def own(path, mode):
    if IS_ROOT:
        shutil.chown(path, int(ID), int(ID))
    os.chmod(path, mode)


def account():
    os.mkdir(HOME)
    own(HOME, 0o755)
    path = os.path.join(PLACE, "passwd")
    with open(path, "w") as to:
        to.write(open("/etc/passwd").read() + f"server:x:{ID}:{ID}::{HOME}:/bin/sh\n")
    subprocess.run(["mount", "--bind", path, "/etc/passwd"], check=True)


WORDS = f"""create role maker login createrole password '{REAL}'
create role plain login password '{REAL}'
create database shop owner maker
"""
SHOP = """create table orders (id int primary key, tenant text, total numeric, secret text)
insert into orders values (1, 'a', 10.5, 's1'), (2, 'b', 20, 's2'), (3, 'a', 7, 's3')
create table notes (id int primary key, text text)
create table hidden (id int)
insert into hidden values (42)
alter table orders owner to maker
alter table notes owner to maker
alter table hidden owner to maker
grant select on orders to plain
"""


def postgres():
    account()
    programs = glob.glob("/usr/lib/postgresql/*/bin")[0]
    data = os.path.join(HOME, "data")
    quiet = {"stdout": subprocess.DEVNULL, "cwd": HOME, "check": True}
    subprocess.run([*AS_SERVER, f"{programs}/initdb", "-N", "-A", "trust", "-U", "owner", "-D", data], **quiet)
    for database, words in (("postgres", WORDS), ("shop", SHOP)):
        single = [*AS_SERVER, f"{programs}/postgres", "--single", "-D", data, database]
        subprocess.run(single, input=words.encode(), stderr=open(f"{PLACE}/single.log", "w"), **quiet)
    rules = "local all all trust\nhostssl all all 0.0.0.0/0 scram-sha-256\n"
    subprocess.run([*AS_SERVER, "sh", "-c", 'printf %s "$1" > "$0/pg_hba.conf"', data, rules], **quiet)
    for name in ("key", "pem"):
        shutil.copy(f"{PLACE}/db.example.{name}", f"{HOME}/db.{name}")
        own(f"{HOME}/db.{name}", 0o600)
    settings = {
        "listen_addresses": "93.184.216.35", "unix_socket_directories": HOME, "ssl": "on", "fsync": "off",
        "ssl_cert_file": f"{HOME}/db.pem", "ssl_key_file": f"{HOME}/db.key", "log_statement": "all",
    }
    words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    log = open(f"{PLACE}/db.log", "w")
    running = subprocess.Popen([*AS_SERVER, f"{programs}/postgres", "-D", data, *words], stdout=log, stderr=log, cwd=HOME)
    for _ in range(600):
        try:
            socket.create_connection(("93.184.216.35", 5432), 1).close()
            return running
        except OSError:
            time.sleep(0.1)
    sys.exit(open(f"{PLACE}/db.log").read())


running = postgres() if "db" in os.environ["SERVERS"] else None
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(f"{PLACE}/example.com.pem", f"{PLACE}/example.com.key")
server = http.server.ThreadingHTTPServer(("93.184.216.34", 443), Service)
server.socket = context.wrap_socket(server.socket, server_side=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
status = subprocess.run(sys.argv[2:], env={**os.environ, "DB": HOME}).returncode
if running:
    running.terminate()
    running.wait()
sys.exit(status)
