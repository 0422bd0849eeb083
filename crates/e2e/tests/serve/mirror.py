"""A mirror of the part of Debian's archive that the tests need.

`fetch DIR PACKAGE...` makes it in a directory, from Debian's own: the indexes, the packages of
`atoll/debian`, and what these packages need beside them. Otherwise it serves one on a small
internet: the arguments are the internet's directory, then the command to run while it is up, and
MIRROR is the directory.
"""

import functools
import http.server
import lzma
import os
import re
import runpy
import ssl
import subprocess
import sys
import threading
import urllib.request

HOST, AT = "deb.debian.org", "93.184.216.35"
HERE = os.path.dirname(os.path.abspath(__file__))
DEBIAN = os.path.join(HERE, "../../../server/src/interpreter/debian.py")


def get(top, path):
    """Fetches a file that is not there yet."""
    to = os.path.join(top, path)
    if os.path.exists(to):
        return to
    os.makedirs(os.path.dirname(to), exist_ok=True)
    with urllib.request.urlopen(f"http://{HOST}/{path}", timeout=60) as answer:
        content = answer.read()
    with open(to + ".new", "wb") as file:
        file.write(content)
    os.rename(to + ".new", to)
    return to


def indexes(top, sources):
    """Fetches the indexes; returns the paths of the lists of packages."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    for archive, suite in sources:
        at = f"{archive}/dists/{suite}"
        release = os.path.join(top, at, "InRelease")
        if os.path.exists(release):
            os.unlink(release)
        name = f"main/binary-{machine}/Packages.xz"
        with open(get(top, f"{at}/InRelease")) as file:
            sums = file.read().partition("\nSHA256:\n")[2]
        digest = re.search(rf"^ ([0-9a-f]{{64}}) +\d+ {re.escape(name)}$", sums, re.M)[1]
        by_hash = get(top, f"{at}/{os.path.dirname(name)}/by-hash/SHA256/{digest}")
        plain = os.path.join(top, at, name)
        if os.path.lexists(plain):
            os.unlink(plain)
        os.link(by_hash, plain)
        yield plain


def fetch(top, packages):
    debian = runpy.run_path(DEBIAN, run_name="debian")
    lists = list(indexes(top, debian["SOURCES"]))
    with lzma.open(lists[0], "rt") as file:
        stanzas = file.read().split("\n\n")
    of = {one.split("\n", 1)[0].removeprefix("Package: "): one for one in stanzas}
    fields = {name: debian["fields"](one) for name, one in of.items() if name}
    base = debian["chosen"](fields)
    for name in base:
        get(top, f"debian/{fields[name]['Filename']}")
    # What apt installs in that system.
    root = os.path.join(top, "apt")
    for name in ("state/lists/partial", "cache/archives/partial", "parts"):
        os.makedirs(os.path.join(root, name), exist_ok=True)
    with open(os.path.join(root, "status"), "w") as file:
        for name in base:
            file.write(f"{of[name]}\nStatus: install ok installed\n\n")
    with open(os.path.join(root, "sources.list"), "w") as file:
        for archive, suite in debian["SOURCES"]:
            file.write(f"deb http://{HOST}/{archive} {suite} main\n")
    options = {
        "Dir::State": f"{root}/state", "Dir::State::status": f"{root}/status", "Dir::Cache": f"{root}/cache",
        "Dir::Etc::sourcelist": f"{root}/sources.list", "Dir::Etc::sourceparts": f"{root}/parts",
        "Acquire::Languages": "none", "APT::Sandbox::User": "root",
    }
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in options.items())]
    subprocess.run([*apt, "update"], check=True)
    wanted = [*apt, "install", "--yes", "--no-install-recommends", "--print-uris", *packages]
    told = subprocess.run(wanted, check=True, capture_output=True, text=True).stdout
    for url in re.findall(rf"^'http://{HOST}/([^']+)'", told, re.M):
        get(top, urllib.request.unquote(url))
    open(os.path.join(top, "whole"), "w").close()


class Quiet(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass


def serve(command):
    handler = functools.partial(Quiet, directory=os.environ["MIRROR"])
    for port in (80, 443):
        server = http.server.ThreadingHTTPServer((AT, port), handler)
        if port == 443:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            place = os.path.join(sys.argv[1], HOST)
            context.load_cert_chain(f"{place}.pem", f"{place}.key")
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    return subprocess.run(command).returncode


if sys.argv[1] == "fetch":
    fetch(sys.argv[2], sys.argv[3:])
else:
    sys.exit(serve(sys.argv[2:]))
