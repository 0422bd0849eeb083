"""PostgreSQL on the small internet: the real one at db.example, and at late.example one that
does whatever the name of the database says (at 5432), or what its port says before TLS. What
reaches that one is written down. Arguments: the directory, then the command to run while they
are there. The password is in the file `real` beside that directory, that of one user
in `fetched`."""
import base64, glob, hashlib, hmac, os, shutil, socket, ssl, struct, subprocess, sys, threading, time

PLACE = sys.argv[1]
with open(os.path.join(os.path.dirname(PLACE), "real")) as real:
    PASSWORD = real.read().strip()
with open(os.path.join(os.path.dirname(PLACE), "fetched")) as fetched:
    FETCHED = fetched.read().strip()
ID = "61235"
with open("/proc/self/uid_map") as map_:
    IS_ROOT = map_.read().split()[:2] == ["0", "0"]
if IS_ROOT:
    AS_SERVER = ["setpriv", "--reuid", ID, "--regid", ID, "--clear-groups"]
else:
    AS_SERVER = ["unshare", "--user", f"--map-user={ID}", f"--map-group={ID}", "--"]
HOME = os.path.join(PLACE, "server")
lock = threading.Lock()


def note(text):
    with lock, open(os.path.join(PLACE, "fake"), "a") as to:
        to.write(text + "\n")


def own(path, mode):
    if IS_ROOT:
        shutil.chown(path, int(ID), int(ID))
    os.chmod(path, mode)


def account():
    os.mkdir(HOME)
    own(HOME, 0o755)
    text = open("/etc/passwd").read() + f"server:x:{ID}:{ID}::{HOME}:/bin/sh\n"
    asks = os.environ["CLIENT_ID"]
    if f":x:{asks}:" not in text:
        text += f"client:x:{asks}:{asks}::{os.environ['HOME']}:/bin/sh\n"
    path = os.path.join(PLACE, "passwd")
    with open(path, "w") as to:
        to.write(text)
    subprocess.run(["mount", "--bind", path, "/etc/passwd"], check=True)


def real_one():
    programs = glob.glob("/usr/lib/postgresql/*/bin")[0]
    data = os.path.join(HOME, "data")
    quiet = {"stdout": subprocess.DEVNULL, "cwd": HOME, "check": True}
    subprocess.run([*AS_SERVER, f"{programs}/initdb", "-N", "-A", "trust", "-U", "owner", "-D", data], **quiet)
    words = f"""create role app login password '{PASSWORD}'
create role another login password '{PASSWORD}'
create role fetched login password '{FETCHED}'
create role open login
set password_encryption = 'md5'
create role old login password '{PASSWORD}'
create database shop owner app
create database second owner app
create database legacy owner old
"""
    single = [*AS_SERVER, f"{programs}/postgres", "--single", "-D", data, "postgres"]
    subprocess.run(single, input=words.encode(), stderr=open(f"{PLACE}/single.log", "w"), **quiet)
    # Without TLS from a private network alone.
    rules = "hostnossl second fetched 0.0.0.0/0 password\nhostnossl legacy old 0.0.0.0/0 md5\nhostnossl all all 0.0.0.0/0 scram-sha-256\nhostssl all open 0.0.0.0/0 trust\nhostssl all old 0.0.0.0/0 md5\nhostssl all all 0.0.0.0/0 scram-sha-256\n"
    subprocess.run([*AS_SERVER, "sh", "-c", 'printf %s "$1" > "$0/pg_hba.conf"', data, rules], **quiet)
    for name in ("key", "pem"):
        shutil.copy(f"{PLACE}/db.example.{name}", f"{HOME}/db.{name}")
        own(f"{HOME}/db.{name}", 0o600)
    settings = {
        "listen_addresses": "93.184.216.35,10.1.2.3", "unix_socket_directories": "", "ssl": "on", "fsync": "off",
        "ssl_cert_file": f"{HOME}/db.pem", "ssl_key_file": f"{HOME}/db.key",
    }
    words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    running = subprocess.Popen([*AS_SERVER, f"{programs}/postgres", "-D", data, *words], stdout=subprocess.DEVNULL, stderr=open(f"{PLACE}/db.log", "w"), cwd=HOME)
    for _ in range(600):
        try:
            socket.create_connection(("93.184.216.35", 5432), 1).close()
            return running
        except OSError:
            time.sleep(0.1)
    sys.exit(open(f"{PLACE}/db.log").read())


def message(kind, body):
    return kind + struct.pack(">I", len(body) + 4) + body


def authentication(code, rest=b""):
    return message(b"R", struct.pack(">I", code) + rest)


class Ended(Exception):
    pass


def exactly(stream, count):
    got = b""
    while len(got) < count:
        block = stream.recv(count - len(got))
        if not block:
            raise Ended
        got += block
    return got


def packet(stream):
    length = struct.unpack(">I", exactly(stream, 4))[0]
    return exactly(stream, length - 4)


def said(stream):
    kind = exactly(stream, 1)
    body = packet(stream)
    if PASSWORD.encode() in body:
        note("the password in the clear")
    return kind, body


def mac(key, text):
    return hmac.new(key, text, hashlib.sha256).digest()


def scram(stream, how, certificate):
    mechanisms = b"SCRAM-SHA-256\0\0" if how == "unbound" else b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0"
    stream.sendall(authentication(10, mechanisms))
    _, body = said(stream)
    mechanism, _, rest = body.partition(b"\0")
    first = rest[4:].decode()
    flag, _, bare = first.split(",", 2)
    note(f"{how} {mechanism.decode()} {flag}")
    nonce = bare.partition("r=")[2]
    if how == "nonce":
        nonce = "another"
    count = {"iterations": "4294967295", "few": "1"}.get(how, "4096")
    salt = b"0123456789abcdef"
    server_first = f"r={nonce}more,s={base64.b64encode(salt).decode()},i={count}"
    stream.sendall(authentication(11, server_first.encode()))
    if how == "early":
        stream.sendall(authentication(0))
    _, body = said(stream)
    without, _, proof = body.decode().rpartition(",p=")
    channel = base64.b64decode(without.split(",")[0][2:])
    wanted = f"{flag},,".encode() + (hashlib.sha256(certificate).digest() if flag.startswith("p=") else b"")
    whole = ",".join([bare, server_first, without]).encode()
    salted = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), salt, 4096)
    key = mac(salted, b"Client Key")
    proven = bytes(a ^ b for a, b in zip(key, mac(hashlib.sha256(key).digest(), whole)))
    right = base64.b64decode(proof) == proven and channel == wanted
    note(f"{how} {'right' if right else 'wrong'}")
    if not right:
        raise Ended
    signature = mac(mac(salted, b"Server Key"), whole)
    if how == "signature":
        signature = bytes(32)
    if how != "unproven":
        stream.sendall(authentication(12, b"v=" + base64.b64encode(signature)))
    stream.sendall(authentication(0))


CODES = {"trust": (0, b""), "cleartext": (3, b""), "md5": (5, b"salt"), "gss": (7, b"")}


def ask(stream, certificate):
    body = packet(stream)
    if body[:4] == struct.pack(">I", 80877102):
        return note(f"cancel {struct.unpack('>II', body[4:])}")
    words = body[4:].split(b"\0")
    how = words[words.index(b"database") + 1].decode()
    note(f"startup {how} {words[1].decode()}")
    if how in CODES:
        stream.sendall(authentication(CODES[how][0], CODES[how][1]))
        kind, _ = said(stream)
        return note(f"{how} answered {kind.decode()}")
    if how == "never":
        return said(stream)
    if how == "long":
        stream.sendall(b"R" + struct.pack(">I", 1 << 31) + bytes(1 << 20))
        return said(stream)
    scram(stream, how, certificate)
    stream.sendall(message(b"S", b"server_version\x0015.0\0") + message(b"K", struct.pack(">II", 4242, 777)) + message(b"Z", b"I"))
    while True:
        kind, body = said(stream)
        note(f"{how} {kind.decode()}")
        if kind == b"X":
            return
        row = message(b"T", struct.pack(">H", 1) + b"a\0" + struct.pack(">IHIhih", 0, 0, 25, -1, -1, 0))
        row += message(b"D", struct.pack(">HI", 1, 4) + b"fake") + message(b"C", b"SELECT 1\0")
        stream.sendall(row + message(b"Z", b"I"))


def serve(connection, port, name):
    try:
        with connection:
            first = packet(connection)
            note(f"came {name} {port}")
            if first != struct.pack(">I", 80877103):
                return note(f"began without TLS: {first!r}")
            if port == 6001:
                connection.sendall(b"N")
                return note(f"after N {connection.recv(4096)!r}")
            if port == 6002:
                connection.sendall(b"S" + authentication(0) + message(b"Z", b"I"))
                rest = connection.recv(4096)
                return note(f"after an injection {rest[:1]!r}")
            if port == 6003:
                connection.sendall(b"E")
                return note(f"after E {connection.recv(4096)!r}")
            if port == 6004:
                return note(f"after nothing {connection.recv(4096)!r}")
            connection.sendall(b"S")
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(f"{PLACE}/{name}.pem", f"{PLACE}/{name}.key")
            certificate = ssl.PEM_cert_to_DER_cert(open(f"{PLACE}/{name}.pem").read())
            with context.wrap_socket(connection, server_side=True) as stream:
                ask(stream, certificate)
    except (Ended, OSError, struct.error):
        pass


def fake(address, port, name):
    listener = socket.create_server((address, port))

    def accept():
        while True:
            one, _ = listener.accept()
            threading.Thread(target=serve, args=(one, port, name), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


account()
running = None
if "real" in os.environ["SERVERS"].split():
    running = real_one()
if "fake" in os.environ["SERVERS"].split():
    for port in (5432, 6001, 6002, 6003, 6004):
        fake("93.184.216.37", port, "late.example")
    # One that shows another's certificate, and one of whom nobody knows who signed it.
    fake("93.184.216.36", 5432, "late.example")
    own_ = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "9", "-subj", "/CN=unknown.example"]
    own_ += ["-addext", "subjectAltName=DNS:unknown.example", "-keyout", f"{PLACE}/unknown.example.key", "-out", f"{PLACE}/unknown.example.pem"]
    subprocess.run(own_, check=True, stderr=subprocess.DEVNULL)
    fake("93.184.216.38", 5432, "unknown.example")
status = subprocess.run(sys.argv[2:]).returncode
if running:
    running.terminate()
    running.wait()
sys.exit(status)
