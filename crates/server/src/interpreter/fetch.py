"""Fetches an image of a registry, or of a layout on disk, and unpacks it to ./rootfs.

It runs in a sandbox, as root there: whatever the registry sends, it can do no more than that.
Arguments: `find` or `fetch`, the image, and the directory of its layout if it has one. Input: null, or {"user", "password"}. The answer is one
object of JSON; progress goes to the standard error.
"""

import base64
import gzip
import hashlib
import io
import json
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import urllib.error
import urllib.parse
import urllib.request

ROOT = "rootfs"
MANIFEST_BYTES_MAX = 4 << 20
ENTRIES_MAX = 1_000_000
LINKS_MAX = 40
IDS = 65536
NOBODY = 65534
LISTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class Refused(Exception):
    """The reason why there is no image."""


class Registry:
    """One repository of a registry."""

    def __init__(self, image, login):
        scheme = "https"
        if image.startswith("http://"):
            scheme, image = "http", image.removeprefix("http://")
        image = image.removeprefix("https://")
        host, _, rest = image.partition("/")
        if not rest or not ("." in host or ":" in host or host == "localhost"):
            host, rest = "registry-1.docker.io", image if "/" in image else f"library/{image}"
        elif host in ("docker.io", "index.docker.io"):
            host = "registry-1.docker.io"
            rest = rest if "/" in rest else f"library/{rest}"
        name, at, digest = rest.partition("@")
        name, _, tag = name.partition(":") if ":" in name else (name, "", "latest")
        if not re.fullmatch(r"[a-z0-9._/-]{1,255}", name):
            raise Refused(f"{name!r} is no name of an image")
        self.host, self.scheme = host, scheme
        self.base = f"{scheme}://{host}/v2/{name}"
        self.reference = digest if at else tag
        self.digest = digest if at else None
        self.login = login
        self.authorization = None
        if login:
            pair = f"{login['user']}:{login['password']}".encode()
            self.basic = "Basic " + base64.b64encode(pair).decode()
        else:
            self.basic = None

    def open(self, path, accept=None):
        """Opens what is at a path; logs in where that is asked for."""
        for again in (False, True):
            request = urllib.request.Request(f"{self.base}/{path}")
            if accept:
                request.add_header("Accept", ", ".join(accept))
            if self.authorization:
                # Not sent to where the registry redirects.
                request.add_unredirected_header("Authorization", self.authorization)
            try:
                return urllib.request.urlopen(request, timeout=60)
            except urllib.error.HTTPError as error:
                # A host that it redirects to is told no login.
                is_own = urllib.parse.urlsplit(error.url or "").netloc == self.host
                if error.code != 401 or again or not is_own:
                    raise Refused(f"{self.base}/{path}: {error.code} {error.reason}") from None
                self.authorize(error.headers.get("WWW-Authenticate", ""))
            except OSError as error:
                raise Refused(f"{self.base}: {getattr(error, 'reason', error)}") from None
        raise Refused("the registry does not answer")

    def authorize(self, challenge):
        """Gets what the registry asks for."""
        kind, _, rest = challenge.partition(" ")
        if kind.lower() == "basic" and self.basic:
            self.authorization = self.basic
            return
        fields = dict(re.findall(r'(\w+)="([^"]*)"', rest))
        realm = fields.pop("realm", "")
        if kind.lower() != "bearer" or not realm.startswith(("https://", f"{self.scheme}://")):
            raise Refused("the registry asks for a login")
        query = {name: fields[name] for name in ("service", "scope") if name in fields}
        request = urllib.request.Request(f"{realm}?{urllib.parse.urlencode(query)}")
        if self.basic:
            request.add_unredirected_header("Authorization", self.basic)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                told = json.loads(answer.read(MANIFEST_BYTES_MAX))
        except (OSError, ValueError) as error:
            raise Refused(f"the registry's login failed: {error}") from None
        self.authorization = "Bearer " + (told.get("token") or told.get("access_token") or "")

    def manifest(self):
        """Returns the manifest for this machine, and its digest."""
        return self.choose(*self.document(f"manifests/{self.reference}", self.digest))

    def choose(self, content, digest):
        """Returns the one of a list that is for this machine."""
        if content.get("mediaType") in LISTS or "manifests" in content:
            architecture = ARCHITECTURES.get(platform.machine(), platform.machine())
            for one in content.get("manifests", []):
                of = one.get("platform", {})
                if of.get("os") == "linux" and of.get("architecture") == architecture:
                    return self.document(f"manifests/{one['digest']}", one["digest"])
            raise Refused(f"it has nothing for linux/{architecture}")
        if digest is None or "layers" not in content:
            raise Refused("its manifest is of a form that is not known")
        return content, digest

    def document(self, path, expected):
        """Returns a document whose digest is as expected, and that digest."""
        with self.open(path, LISTS + MANIFESTS) as answer:
            text = answer.read(MANIFEST_BYTES_MAX + 1)
        if len(text) > MANIFEST_BYTES_MAX:
            raise Refused("its manifest is too long")
        digest = "sha256:" + hashlib.sha256(text).hexdigest()
        if expected and digest != expected:
            raise Refused(f"{path} is {digest}, and not {expected}")
        return json.loads(text), digest

    def blob(self, of, to):
        """Fetches a blob to a file, and checks it."""
        digest, size = of["digest"], int(of["size"])
        sum_of = hashlib.sha256()
        got = 0
        with self.open(f"blobs/{digest}") as answer:
            while block := answer.read(1 << 20):
                got += len(block)
                if got > size:
                    raise Refused(f"{digest} is longer than {size} bytes")
                sum_of.update(block)
                to.write(block)
        if got != size or "sha256:" + sum_of.hexdigest() != digest:
            raise Refused(f"{digest} is not what it is called")
        to.seek(0)


class Layout(Registry):
    """Images in a directory (OCI Image Layout Specification)."""

    def __init__(self, directory, name):
        self.directory, self.name = directory, name

    def open(self, path, accept=None):
        """Opens what has a digest: no link is followed, which could lead to what the sandbox is made of."""
        kind, _, digest = path.rpartition("/")[2].partition(":")
        if not re.fullmatch(r"[a-z0-9]{1,32}", kind) or not re.fullmatch(r"[0-9a-f]{1,256}", digest):
            raise Refused(f"{path!r} names no content")
        return self.read(os.path.join("blobs", kind, digest))

    def read(self, path):
        """Opens a file of the layout."""
        try:
            return os.fdopen(os.open(os.path.join(self.directory, path), os.O_RDONLY | os.O_NOFOLLOW), "rb")
        except OSError as error:
            raise Refused(f"{path} of the layout: {error.strerror}") from None

    def manifest(self):
        """Returns the manifest for this machine, and its digest."""
        with self.read("index.json") as file:
            text = file.read(MANIFEST_BYTES_MAX + 1)
        if len(text) > MANIFEST_BYTES_MAX:
            raise Refused("its index is too long")
        images = json.loads(text)["manifests"]
        named = lambda one: (one.get("annotations") or {}).get("org.opencontainers.image.ref.name")
        found = [one for one in images if not self.name or named(one) == self.name]
        if len(found) != 1 and (self.name or any(map(named, images)) or not images):
            names = ", ".join(sorted(str(named(one)) for one in images)) or "none"
            raise Refused(f"it has {len(found)} images of that name; these names are there: {names}")
        if len(found) == 1:
            return self.choose(*self.document(f"manifests/{found[0]['digest']}", found[0]["digest"]))
        # One image, for several machines.
        return self.choose({"manifests": found}, None)


class Tree:
    """The files of an image, layer upon layer."""

    def __init__(self):
        os.mkdir(ROOT, 0o755)
        self.entries = 0

    def place(self, name, makes=True):
        """Returns where a name lies, following links as within the image."""
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if ".." in parts:
            raise Refused(f"{name!r} leads out of the image")
        if not parts:
            return ROOT
        at, rest, links = [], parts[:-1], 0
        while rest:
            part = rest.pop(0)
            if part == "..":
                del at[-1:]
                continue
            path = os.path.join(ROOT, *at, part)
            if os.path.islink(path):
                links += 1
                if links > LINKS_MAX:
                    raise Refused(f"{name!r} leads through too many links")
                to = os.readlink(path)
                if to.startswith("/"):
                    at = []
                rest = [one for one in to.split("/") if one not in ("", ".")] + rest
                continue
            if makes and not os.path.isdir(path):
                if os.path.lexists(path):
                    os.unlink(path)
                os.mkdir(path, 0o755)
            at.append(part)
        return os.path.join(ROOT, *at, parts[-1])

    def add(self, layer):
        """Unpacks a layer."""
        made, dates = set(), []
        for one in layer:
            self.entries += 1
            if self.entries > ENTRIES_MAX:
                raise Refused(f"it has more than {ENTRIES_MAX} files")
            base = os.path.basename(one.name.rstrip("/"))
            if base == ".wh..wh..opq":
                self.empty(self.place(os.path.dirname(one.name) or "."), made)
            elif base.startswith(".wh."):
                hidden = os.path.join(os.path.dirname(one.name), base.removeprefix(".wh."))
                remove(self.place(hidden))
            else:
                self.put(one, layer, made, dates)
        for path, at in reversed(dates):
            os.utime(path, (at, at))

    def empty(self, path, made):
        """Removes what lower layers have in a directory."""
        if os.path.isdir(path) and not os.path.islink(path):
            for name in os.listdir(path):
                if os.path.join(path, name) not in made:
                    remove(os.path.join(path, name))

    def put(self, one, layer, made, dates):
        """Unpacks one entry."""
        path = self.place(one.name)
        if path == ROOT:
            return
        there = os.path.lexists(path)
        is_directory = there and os.path.isdir(path) and not os.path.islink(path)
        if there and not (one.isdir() and is_directory):
            remove(path)
        if one.isdir():
            if not is_directory:
                os.mkdir(path, 0o700)
            dates.append((path, one.mtime))
        elif one.issym():
            os.symlink(one.linkname, path)
        elif one.islnk():
            target = self.place(one.linkname, makes=False)
            if os.path.islink(target) or not os.path.isfile(target):
                raise Refused(f"{one.name!r} is a link to nothing")
            os.link(target, path)
            made.add(path)
            return
        elif one.isreg():
            with open(path, "xb") as file:
                content = layer.extractfile(one)
                if content:
                    shutil.copyfileobj(content, file, 1 << 20)
            os.utime(path, (one.mtime, one.mtime))
        else:
            # Devices mean nothing in a sandbox.
            return
        made.add(path)
        uid, gid = (number if number < IDS else NOBODY for number in (one.uid, one.gid))
        os.chown(path, uid, gid, follow_symlinks=False)
        if not one.issym():
            os.chmod(path, stat.S_IMODE(one.mode))


def remove(path):
    """Removes a file, or a directory with all in it."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


class Padded:
    """A layer with zeros after its end: some tools leave the last ones out."""

    def __init__(self, file):
        self.file, self.left = file, tarfile.RECORDSIZE

    def read(self, size):
        content = self.file.read(size)
        more = min(size - len(content), self.left)
        self.left -= more
        return content + bytes(more)


def unpacked(file, kind):
    """Opens a layer."""
    head = file.read(4)
    file.seek(0)
    if head[:2] == b"\x1f\x8b":
        return tarfile.open(fileobj=Padded(gzip.GzipFile(fileobj=file)), mode="r|")
    if head == b"\x28\xb5\x2f\xfd":
        if not shutil.which("zstd"):
            raise Refused(f"{kind} needs zstd on the server's machine")
        process = subprocess.Popen(["zstd", "-dc"], stdin=file, stdout=subprocess.PIPE)
        return tarfile.open(fileobj=Padded(process.stdout), mode="r|")
    return tarfile.open(fileobj=Padded(file), mode="r|")


def fetch(registry, manifest):
    """Unpacks all layers."""
    tree = Tree()
    layers = manifest["layers"]
    for number, layer in enumerate(layers, 1):
        size = int(layer["size"])
        print(f"layer {number} of {len(layers)}: {size >> 10} KiB", file=sys.stderr, flush=True)
        with open("layer", "w+b") as file:
            registry.blob(layer, file)
            with unpacked(file, layer.get("mediaType", "")) as content:
                tree.add(content)
        os.unlink("layer")
    hosts = tree.place("etc/hosts")
    if not os.path.lexists(hosts):
        # Whatever runs images makes it.
        with open(hosts, "x") as file:
            file.write("127.0.0.1 localhost\n::1 localhost\n")


def main():
    what, image, *layout = sys.argv[1:]
    login = json.loads(sys.stdin.read() or "null")
    os.umask(0)
    registry = Layout(layout[0], image) if layout else Registry(image, login)
    manifest, digest = registry.manifest()
    told = {"digest": digest}
    if what == "fetch":
        shutil.rmtree(ROOT, ignore_errors=True)
        held = io.BytesIO()
        registry.blob(manifest["config"], held)
        of = json.loads(held.read()).get("config") or {}
        pairs = (one.partition("=") for one in of.get("Env") or [])
        told["environment"] = {name: value for name, _, value in pairs if name}
        fetch(registry, manifest)
    print(json.dumps(told))


try:
    main()
except (Refused, OSError, ValueError, KeyError, TypeError, tarfile.TarError) as error:
    print(error if isinstance(error, Refused) else f"{type(error).__name__}: {error}", file=sys.stderr)
    sys.exit(1)
