"""Registries of packages on the small internet: npm, PyPI and crates.io, each by its own
names. `aged` has a release of years ago (1.0.0) and one of yesterday (1.1.0); of `lies-…`
the registry says something else. Arguments: the directory, then the command to run while
they are there."""
import base64, datetime, gzip, hashlib, http.server, io, json, os, ssl, subprocess, sys, tarfile, threading, time, zipfile

PLACE = sys.argv[1]
OLD = "2020-01-02T03:04:05.678Z"
now = datetime.datetime.now(datetime.timezone.utc)
YOUNG = (now - datetime.timedelta(hours=24, minutes=30)).strftime("%Y-%m-%dT%H:%M:%SZ")
FUTURE = (now + datetime.timedelta(days=400)).strftime("%Y-%m-%dT%H:%M:%SZ")
DATES = {"1.0.0": OLD, "1.1.0": YOUNG}
lock = threading.Lock()


def tar(files):
    to = io.BytesIO()
    # The same bytes each time: what is told of them is compared.
    with gzip.GzipFile(fileobj=to, mode="wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(text), 0o644
            archive.addfile(info, io.BytesIO(text.encode()))
    return to.getvalue()


def wheel(name, version):
    to = io.BytesIO()
    described = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"version = '{version}'\n",
        f"{described}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{described}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{one},,\n" for one in files) + f"{described}/RECORD,,\n"
    with zipfile.ZipFile(to, "w") as archive:
        for one, text in {**files, f"{described}/RECORD": record}.items():
            archive.writestr(zipfile.ZipInfo(one), text)
    return to.getvalue()


def crate(name, version):
    manifest = f'[package]\nname = "{name}"\nversion = "{version}"\nedition = "2021"\n'
    top = f"{name}-{version}"
    return tar({f"{top}/Cargo.toml": manifest, f"{top}/src/lib.rs": ""})


def package(name, version):
    return tar({"package/package.json": json.dumps({"name": name, "version": version, "main": "a.js"}), "package/a.js": ""})


def npm(path):
    name, _, file = path.lstrip("/").replace("%2F", "/").replace("%2f", "/").partition("/-/")
    if file:
        version = file.removesuffix(".tgz").removeprefix(name.split("/")[-1] + "-")
        return package(name, version)
    if name == "lies-gone":
        return None
    versions = {}
    for version in DATES:
        content = package(name, version)
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()
        tarball = f"https://registry.npmjs.org/{name}/-/{name.split('/')[-1]}-{version}.tgz"
        versions[version] = {"name": name, "version": version, "dist": {"tarball": tarball, "integrity": integrity}}
    told = {"name": name, "dist-tags": {"latest": "1.1.0"}, "versions": versions, "time": {"created": OLD, "modified": YOUNG, **DATES}}
    lies(name, told, "time")
    return json.dumps(told).encode()


def lies(name, told, key):
    """What a registry says of a package in the place of the truth."""
    dates = {"lies-future": FUTURE, "lies-word": "long ago", "lies-number": 7}
    if name in dates:
        told[key] = {version: dates[name] for version in DATES}
    if name == "lies-none":
        del told[key]
    if name == "lies-name":
        told["name"] = "aged"


def hashed(file):
    digest = hashlib.blake2b(file.encode(), digest_size=32).hexdigest()
    return f"/packages/{digest[:2]}/{digest[2:4]}/{digest[4:]}/{file}"


def pypi(path, kinds):
    parts = path.strip("/").split("/")
    if parts[0] != "simple" or len(parts) != 2 or parts[1] != "aged":
        return None
    files = []
    for version, date in DATES.items():
        file = f"aged-{version}-py3-none-any.whl"
        digest = hashlib.sha256(wheel("aged", version)).hexdigest()
        url = "https://files.pythonhosted.org" + hashed(file)
        files.append({"filename": file, "url": url, "hashes": {"sha256": digest}, "upload-time": date, "size": 1})
    if "simple.v1+json" not in kinds:
        links = [f'<a href="{one["url"]}#sha256={one["hashes"]["sha256"]}">{one["filename"]}</a>' for one in files]
        return ("text/html", "<!DOCTYPE html><html><body>" + "\n".join(links) + "</body></html>")
    told = {"meta": {"api-version": "1.1"}, "name": "Aged", "files": files, "versions": list(DATES)}
    return ("application/vnd.pypi.simple.v1+json", json.dumps(told))


def index(path):
    if path == "/config.json":
        return json.dumps({"dl": "https://static.crates.io/crates", "api": "https://crates.io"}).encode()
    if path != "/ag/ed/aged":
        return None
    lines = []
    for version, date in DATES.items():
        digest = hashlib.sha256(crate("aged", version)).hexdigest()
        lines.append({"name": "aged", "vers": version, "deps": [], "cksum": digest, "features": {}, "yanked": False, "pubtime": date.split(".")[0].rstrip("Z") + "Z"})
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


class Registry(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        host, path = self.headers["Host"], self.path.partition("?")[0]
        names = " ".join(sorted(name.lower() for name in self.headers.keys()))
        with lock, open(os.path.join(PLACE, "requests"), "a") as to:
            to.write(f"{self.command} {host}{self.path} {self.headers['User-Agent']} {self.client_address[1]} {names}\n")
        kind, body = "application/octet-stream", None
        if host in ("registry.npmjs.org", "registry.yarnpkg.com"):
            if self.misbehaves(path):
                return
            kind, body = "application/json", npm(path)
        elif host == "pypi.org":
            found = pypi(path, self.headers.get("Accept", ""))
            if found:
                kind, body = found[0], found[1].encode()
        elif host == "files.pythonhosted.org":
            version = path.rsplit("/", 1)[-1].split("-")[1]
            body = wheel("aged", version)
        elif host == "index.crates.io":
            kind, body = "text/plain", index(path)
        elif host == "static.crates.io":
            name, version = path.split("/")[2:4]
            body = crate(name, version)
        self.told(404 if body is None else 200, kind, body or b"no")

    do_HEAD = do_GET

    def told(self, status, kind, body, headers=()):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def misbehaves(self, path):
        if path == "/lies-moved":
            self.told(302, "text/plain", b"", [("Location", "https://registry.npmjs.org/aged")])
        elif path == "/lies-packed":
            self.told(200, "application/json", npm("/aged"), [("Content-Encoding", "gzip")])
        elif path == "/lies-broken":
            self.told(500, "text/plain", b"no")
        elif path == "/lies-short":
            self.send_response(200)
            self.send_header("Content-Length", "1000000")
            self.end_headers()
            self.wfile.write(npm("/aged"))
            self.close_connection = True
        elif path == "/lies-huge":
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            try:
                self.wfile.write(b'{"name":"lies-huge","readme":"')
                while True:
                    self.wfile.write(b"x" * 65536)
            except OSError:
                pass
        elif path == "/lies-slow":
            self.send_response(200)
            self.end_headers()
            self.close_connection = True
            try:
                while True:
                    self.wfile.write(b" ")
                    time.sleep(0.5)
            except OSError:
                pass
        else:
            return False
        return True


def context(name):
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(os.path.join(PLACE, f"{name}.pem"), os.path.join(PLACE, f"{name}.key"))
    return made


NAMES = ["registry.npmjs.org", "registry.yarnpkg.com", "pypi.org", "files.pythonhosted.org", "index.crates.io", "static.crates.io"]
CONTEXTS = {name: context(name) for name in NAMES}
first = context(NAMES[0])


def choose(connection, name, _):
    connection.context = CONTEXTS.get(name, first)


first.sni_callback = choose


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def get_request(self):
        connection, address = self.socket.accept()
        return first.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address

    def handle_error(self, *_):
        pass


threading.Thread(target=Server(("93.184.216.35", 443), Registry).serve_forever, daemon=True).start()
for version in DATES:
    with open(os.path.join(PLACE, f"wheel-{version}"), "w") as to:
        to.write(hashed(f"aged-{version}-py3-none-any.whl"))
sys.exit(subprocess.run(sys.argv[2:]).returncode)
