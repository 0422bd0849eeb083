"""Origins that write down what reaches them, byte by byte, and say the real key back in every
form. Arguments: the directory, then the command to run while they are there. The key is in
the file `real` beside that directory."""
import base64, gzip, hashlib, http.server, os, ssl, struct, subprocess, sys, threading, time, zlib

PLACE = sys.argv[1]
REAL = open(os.path.join(PLACE, "..", "real")).read().strip()
lock = threading.Lock()
went = threading.Event()


def stored_brotli(text):
    """RFC 7932, 9.2: blocks that are not compressed, then an empty one."""
    out = b""
    for at in range(0, len(text), 60000):
        block = text[at : at + 60000]
        # The window's bits stand before the first block alone.
        bits = [0] if at == 0 else []
        bits += [0, 0, 0] + [(len(block) - 1) >> n & 1 for n in range(16)] + [1]
        value = sum(bit << n for n, bit in enumerate(bits))
        out += value.to_bytes((len(bits) + 7) // 8, "little") + block
    return out + b"\x03"


def zstd(text):
    return subprocess.run(["zstd", "-cq"], input=text, stdout=subprocess.PIPE, check=True).stdout


CODINGS = {
    "identity": lambda text: text,
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": stored_brotli,
    "zstd": zstd,
    "odd": lambda text: text,
}


def forms():
    real = REAL.encode()
    yield real
    yield base64.b64encode(real)
    yield base64.b64encode(b"user:" + real)
    yield base64.urlsafe_b64encode(b"x" + real)
    yield real.hex().encode()
    yield real.hex().upper().encode()
    yield "".join(f"%{byte:02X}" for byte in real).encode()
    yield "".join(f"\\u{byte:04x}" for byte in real).encode()
    yield REAL.encode("utf-16-le")
    yield REAL.replace("_", "%5F").encode()


TEXT = b"first " + b"\n; ".join(forms()) + b"\n; last\n"


for number, form in enumerate(forms()):
    with open(os.path.join(PLACE, f"form-{number}"), "wb") as to:
        to.write(form)


def write_down(line):
    with lock, open(os.path.join(PLACE, "requests"), "a") as to:
        to.write(line + "\n")


class Origin(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def body(self):
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            whole = b""
            while True:
                length = int(self.rfile.readline() or b"0", 16)
                whole += self.rfile.read(length)
                self.rfile.readline()
                if not length:
                    return whole
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def answer(self):
        try:
            body = self.body()
        except (OSError, ValueError):
            body = b"(broke off)"
        write_down(f"{self.command} {self.headers['Host']} {self.path} {self.headers.items()} {body!r}")
        path, _, query = self.path.partition("?")
        kind = path.rsplit("/", 1)[-1]
        getattr(self, "on_" + kind.split("-")[0], self.on_record)(query)

    def say(self, status, text, headers=(), chunk=0):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if chunk:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command == "HEAD":
            return
        for at in range(0, len(text), chunk or len(text) or 1):
            piece = text[at : at + (chunk or len(text))]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunk else piece)
            self.wfile.flush()
        if chunk:
            self.wfile.write(b"0\r\nX-Trailer: it is " + REAL.encode() + b"\r\n\r\n")

    def on_record(self, _):
        self.say(200, b"recorded\n")

    def on_echo(self, query):
        coding, chunk = query.split(",")
        packed = CODINGS[coding](TEXT)
        headers = [("ETag", '"tag"'), ("Accept-Ranges", "bytes")]
        if coding != "identity":
            headers.append(("Content-Encoding", coding))
        self.say(200, packed, headers, int(chunk))

    def on_fail(self, _):
        self.say(500, TEXT)

    def on_ranged(self, _):
        given = self.headers.get("Range")
        text = b"x" * 10 + REAL.encode() + b"y" * 10
        if given is None:
            return self.say(200, text, [("Accept-Ranges", "bytes")])
        first, last = (int(one) for one in given.split("=")[1].split("-"))
        last = min(last, len(text) - 1)
        if first > last:
            return self.say(416, b"", [("Content-Range", f"bytes */{len(text)}")])
        part = text[first : last + 1]
        self.say(206, part, [("Content-Range", f"bytes {first}-{last}/{len(text)}")])

    def on_careless(self, query):
        """A part as if it were all, or with something before it."""
        text = b"x" * 4000 + REAL.encode() + b"y" * 4000
        if "Range" not in self.headers and query != "always":
            return self.say(200, text)
        if "Range" not in self.headers:
            return self.say(206, text[4015:], [("Content-Range", f"bytes 4015-{len(text) - 1}/{len(text)}")])
        first, last = (int(one) for one in self.headers["Range"].split("=")[1].split("-"))
        part = text[first : last + 1]
        told = [("Content-Range", f"bytes {first}-{last}/{len(text)}")]
        match query:
            case "untold":
                self.say(200, part)
            case "status" | "always":
                self.say(200, part, told)
            case "before":
                self.say(206, b"-" * 461 + part, told)
            case "untold-before":
                self.say(206, b"-" * 480 + part, told, 500)
            case "several":
                self.say(206, part, [*told, ("Content-Type", "multipart/byteranges; boundary=b")])

    def on_changed(self, _):
        """All of it where a program has a part of another one (RFC 9110, 13.1.5)."""
        text = b"x" * 4000 + REAL.encode() + b"y" * 4000
        if "Range" not in self.headers or self.headers.get("If-Range") == '"old"':
            return self.say(200, text, [("ETag", '"new"')])
        first = int(self.headers["Range"].split("=")[1].split("-")[0])
        told = [("Content-Range", f"bytes {first}-{len(text) - 1}/{len(text)}"), ("ETag", '"new"')]
        self.say(206, text[first:], told)

    def on_events(self, _):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(b"data: " + REAL.encode() + b"\n\n")
        self.wfile.flush()
        said = b"second" if went.wait(30) else b"too late"
        self.wfile.write(b"data: " + said + b"\n\n")
        self.close_connection = True

    def on_framed(self, _):
        """Messages as gRPC has them, of which the third waits for the program's answer."""
        self.send_response(200)
        self.send_header("Content-Type", "application/grpc")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        says = lambda text: b"%x\r\n\0%s%s\r\n" % (len(text) + 5, struct.pack(">I", len(text)), text)
        self.wfile.write(says(b"it is " + REAL.encode()) + says(b"first"))
        self.wfile.flush()
        self.wfile.write(says(b"second" if went.wait(20) else b"too late") + b"0\r\n\r\n")

    def on_stall(self, query):
        """The value with pauses in it: after each so many bytes, or before its last one; as gRPC
        in a message that ends there."""
        coding, kind, pause, step = query.split(",")
        text, last = b"it is " + REAL.encode() + b" end\n", 6 + len(REAL) - 1
        pieces = [text[at : at + int(step)] for at in range(0, len(text), int(step))] if int(step) else [text[:last], text[last:]]
        if kind == "application/grpc":
            pieces[0] = b"\0" + struct.pack(">I", len(pieces[0])) + pieces[0]
        packer = zlib.compressobj(wbits=31)
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        if coding == "gzip":
            self.send_header("Content-Encoding", coding)
        self.end_headers()
        for number, piece in enumerate(pieces):
            if number:
                time.sleep(float(pause))
            if coding == "gzip":
                end = zlib.Z_FINISH if number + 1 == len(pieces) else zlib.Z_SYNC_FLUSH
                piece = packer.compress(piece) + packer.flush(end)
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def on_slow(self, pause):
        """A message with a pause before its value's last byte, and one of frames of a byte."""
        self.agree()
        text, last = b"it is " + REAL.encode() + b" end\n", 6 + len(REAL) - 1
        self.wfile.write(bytes([0x81, len(text)]) + text[:last])
        self.wfile.flush()
        time.sleep(float(pause))
        self.wfile.write(text[last:])
        for number, byte in enumerate(text):
            first = (1 if number == 0 else 0) | (0x80 if number + 1 == len(text) else 0)
            self.wfile.write(bytes([first, 1, byte]))
            self.wfile.flush()
        self.wfile.write(b"\x88\0")
        self.wfile.flush()
        self.rfile.read(1)
        self.close_connection = True

    def on_go(self, _):
        went.set()
        self.say(200, b"gone\n")

    def on_redirect(self, _):
        self.say(307, b"", [("Location", "https://other.example/v1/record-redirected")])

    def on_early(self, _):
        self.say(403, b"no\n")

    def agree(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()

    def on_socket(self, _):
        self.agree()
        real = REAL.encode()
        # A message in two frames with a ping between them, then a short one.
        for first, payload in ((1, b"it is " + real[:9]), (0x89, real), (0x80, real[9:] + b"!"), (0x82, real)):
            self.wfile.write(bytes([first, len(payload)]) + payload)
        self.wfile.flush()
        while True:
            head = self.rfile.read(2)
            if len(head) < 2:
                break
            length = head[1] & 0x7F
            if length == 126:
                (length,) = struct.unpack(">H", self.rfile.read(2))
            key = self.rfile.read(4)
            payload = bytes(byte ^ key[n % 4] for n, byte in enumerate(self.rfile.read(length)))
            write_down(f"FRAME {self.path} {payload!r}")
            if head[0] == 0x80 and payload == b"it":
                self.wfile.write(b"\x82\x06got it")
                self.wfile.flush()
            if head[0] & 0xF == 8:
                break
        self.close_connection = True

    do_GET = do_HEAD = do_POST = do_PUT = answer


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass


def serve(port, names):
    server = Server(("", port), Origin)
    contexts = {}
    for name in names:
        contexts[name] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        contexts[name].load_cert_chain(f"{PLACE}/{name}.pem", f"{PLACE}/{name}.key")

    def chosen(socket, name, _):
        socket.context = contexts.get(name, contexts[names[0]])

    contexts[names[0]].sni_callback = chosen
    server.socket = contexts[names[0]].wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()


serve(443, ["example.com", "other.example"])
sys.exit(subprocess.run(sys.argv[2:]).returncode)
