"""A witness of ledgers, by C2SP's tlog-witness, tlog-cosignature, tlog-checkpoint and
signed-note alone, over HTTPS.

witness.py VERIFIER CERTIFICATE KEY STATE LOG-KEY...

VERIFIER is a verifier of ledgers with the arithmetic of Ed25519 and of Merkle trees. What it
has signed is in STATE. It prints its port and its key. Three more paths, for tests, are those
of witnesses that are not to be believed: /liar signs something else, /stranger signs with
another key, /rude never answers in the words of the protocol.
"""

import base64, hashlib, http.server, importlib.util, json, pathlib, ssl, struct, sys, threading
import time

verifier, certificate, tls_key, state, *log_keys = sys.argv[1:]
spec = importlib.util.spec_from_file_location("verifier", verifier)
v = importlib.util.module_from_spec(spec)
spec.loader.exec_module(v)

NAME = "witness.example/w1"
STATE = pathlib.Path(state)
LOGS = {key.split("+", 1)[0]: key for key in log_keys}
LOCK = threading.Lock()


def encoded(p):
    inverse = pow(p[2], v.P - 2, v.P)
    x, y = p[0] * inverse % v.P, p[1] * inverse % v.P
    return (y | (x & 1) << 255).to_bytes(32, "little")


class Signer:
    """RFC 8032, 5.1.5 and 5.1.6."""

    def __init__(self, seed):
        digest = hashlib.sha512(seed).digest()
        scalar = int.from_bytes(digest[:32], "little")
        self.scalar = scalar & (1 << 254) - 8 | 1 << 254
        self.prefix = digest[32:]
        self.public = encoded(v.times(self.scalar, v.BASE))
        self.id = hashlib.sha256(NAME.encode() + b"\n\4" + self.public).digest()[:4]

    def key(self):
        return f"{NAME}+{self.id.hex()}+{base64.b64encode(bytes([4]) + self.public).decode()}"

    def sign(self, text):
        number = int.from_bytes(hashlib.sha512(self.prefix + text).digest(), "little") % v.Q
        begin = encoded(v.times(number, v.BASE))
        digest = hashlib.sha512(begin + self.public + text).digest()
        rest = (number + int.from_bytes(digest, "little") * self.scalar) % v.Q
        return begin + rest.to_bytes(32, "little")

    def cosign(self, body):
        now = int(time.time())
        signature = self.sign(f"cosignature/v1\ntime {now}\n{body}".encode())
        line = base64.b64encode(self.id + struct.pack(">Q", now) + signature).decode()
        return f"\u2014 {NAME} {line}\n"


OWN, OTHER = Signer(bytes(32)), Signer(bytes([1]) * 32)


def add_checkpoint(text):
    """Status and body of an answer."""
    try:
        head, note = text.split("\n\n", 1)
        first, *proof = head.split("\n")
        assert first.startswith("old ")
        old = int(first[4:])
        assert str(old) == first[4:] and len(proof) <= 63
        path = [v.decode(one) for one in proof]
        body = note.rsplit("\n\n", 1)[0] + "\n"
        origin, size = body.split("\n")[0], int(body.split("\n")[1])
    except (AssertionError, ValueError, IndexError):
        return 400, "not a request\n"
    if origin not in LOGS:
        return 404, "unknown\n"
    try:
        size, hash = v.opened(note, LOGS[origin])
    except AssertionError:
        return 403, "not signed\n"
    if old > size:
        return 400, "old is more than new\n"
    with LOCK:
        known = json.loads(STATE.read_text()) if STATE.exists() else {}
        last, last_hash = known.get(origin, (0, ""))
        if old != last:
            return 409, f"{last}\n"
        if old == size and last_hash != hash.hex():
            return 409, f"{last}\n"
        try:
            if old == 0:
                assert not path
            else:
                before = bytes.fromhex(last_hash)
                assert v.by_consistency(old, size, path, before) == (before, hash)
        except (AssertionError, IndexError):
            return 422, "not its beginning\n"
        known[origin] = (size, hash.hex())
        new = STATE.with_suffix(".new")
        new.write_text(json.dumps(known))
        new.replace(STATE)
    # What others have signed as well is passed over.
    return 200, OTHER.cosign(body).replace(NAME, "witness.example/w2") + OWN.cosign(body)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        body = text.split("\n\n", 1)[1].rsplit("\n\n", 1)[0] + "\n"
        status, said = {
            "/good/add-checkpoint": lambda: add_checkpoint(text),
            "/liar/add-checkpoint": lambda: (200, OWN.cosign("another\n1\nAAAA\n")),
            "/stranger/add-checkpoint": lambda: (200, OTHER.cosign(body)),
            "/rude/add-checkpoint": lambda: (409, "\x1b[31mno\n"),
        }.get(self.path, lambda: (404, "nothing here\n"))()
        self.send_response(status)
        kind = "text/x.tlog.size" if status == 409 else "text/plain"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(said.encode())))
        self.end_headers()
        self.wfile.write(said.encode())

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, tls_key)
server.socket = context.wrap_socket(server.socket, server_side=True)
print("port", server.server_port, "key", OWN.key(), flush=True)
server.serve_forever()
