"""Fetches the packages of a minimal Debian system and unpacks them to ./rootfs.

It runs in a sandbox, as root there. What it takes is signed by Debian's keys of this machine.
Argument: `find` or `fetch`. The answer is one object of JSON; progress goes to the standard error.
The packages are set up by the other program, in a sandbox of what is unpacked here.
"""

import hashlib
import io
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile
import urllib.request

MIRROR = "http://deb.debian.org"
SUITE = "bookworm"
SOURCES = (
    ("debian", SUITE), ("debian", f"{SUITE}-updates"), ("debian-security", f"{SUITE}-security"))
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
ROOT = "rootfs"
ARCHIVES = f"{ROOT}/var/cache/apt/archives"
# Beside those that Debian requires.
WANTED = ("apt", "ca-certificates", "usr-is-merged")
# In place of it there is usr-is-merged.
UNWANTED = "usrmerge"
MERGED = ("bin", "lib", "lib64", "sbin")
# Nothing can be made at the root of a sandbox, so what a package's program makes there is.
PLACES = ("media", "mnt", "opt", "srv")
INDEX_BYTES_MAX = 256 << 20
PACKAGE_BYTES_MAX = 256 << 20


# What is read of an index.
FIELDS = ("Package", "Version", "Priority", "Provides", "Pre-Depends", "Depends", "Filename", "SHA256")


class Refused(Exception):
    """The reason why there is no system."""


def got(path, most):
    """Returns the content at a path of the mirror."""
    try:
        with urllib.request.urlopen(f"{MIRROR}/{path}", timeout=60) as answer:
            content = answer.read(most + 1)
    except OSError as error:
        raise Refused(f"{MIRROR}/{path}: {getattr(error, 'reason', error)}") from None
    if len(content) > most:
        raise Refused(f"{MIRROR}/{path} is longer than {most} bytes")
    return content


def checked(path, digest, most):
    """Returns the content at a path, if its digest is as it was told."""
    content = got(path, most)
    if hashlib.sha256(content).hexdigest() != digest:
        raise Refused(f"{MIRROR}/{path} is not what its index says")
    return content


def signed():
    """Returns the text of the release, as it was signed."""
    if not shutil.which("gpgv") or not os.path.exists(KEYS):
        raise Refused(
            "Debian's keys and gpgv are needed on the server's machine: "
            "apt-get install debian-archive-keyring gpgv")
    with open("InRelease", "wb") as file:
        file.write(got(f"debian/dists/{SUITE}/InRelease", 4 << 20))
    checks = subprocess.run(
        ["gpgv", "--quiet", "--keyring", KEYS, "--output", "-", "InRelease"], capture_output=True)
    if checks.returncode != 0:
        raise Refused(f"the release of {MIRROR} is not signed by Debian's keys")
    text = checks.stdout.decode()
    if not re.search(rf"^Codename: {SUITE}$", text, re.M):
        raise Refused(f"the release of {MIRROR} is not {SUITE}")
    return text


def fields(stanza):
    """Returns the fields of a package in an index."""
    return dict(re.findall(rf"^({'|'.join(FIELDS)}): (.*)$", stanza, re.M))


def index():
    """Returns the fields of all packages, by their names."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine)
    name = f"main/binary-{machine}/Packages.xz"
    sums = signed().partition("\nSHA256:\n")[2]
    found = re.search(rf"^ ([0-9a-f]{{64}}) +\d+ {re.escape(name)}$", sums, re.M)
    if not found:
        raise Refused(f"{MIRROR} has nothing for {os.uname().machine}")
    packed = checked(f"debian/dists/{SUITE}/{name}", found[1], INDEX_BYTES_MAX)
    text = lzma.LZMADecompressor().decompress(packed, INDEX_BYTES_MAX).decode()
    packages = {}
    for stanza in re.finditer(r"(?:.+\n)+", text):
        of = fields(stanza[0])
        if "Package" in of:
            packages[of["Package"]] = of
    return packages


def names_of(relation):
    """Returns the packages that each part of a relation can be met by."""
    for part in filter(None, (part.strip() for part in relation.split(","))):
        yield [re.match(r"[a-z0-9.+-]+", one.strip())[0] for one in part.split("|")]


def chosen(packages):
    """Returns the packages of the system, by their names: those required first."""
    providers = {}
    for name, of in packages.items():
        for one in names_of(of.get("Provides", "")):
            providers.setdefault(one[0], []).append(name)
    required = [name for name, of in packages.items() if of.get("Priority") == "required"]
    waiting, taken = sorted(required) + list(WANTED), {}
    while waiting:
        name = waiting.pop(0)
        if name in taken or name == UNWANTED:
            continue
        taken[name] = packages[name]
        for field in ("Pre-Depends", "Depends"):
            for ways in names_of(packages[name].get(field, "")):
                ways += [one for way in ways for one in sorted(providers.get(way, []))]
                met = [way for way in ways if way in taken or way in waiting]
                there = [way for way in ways if way in packages and way != UNWANTED]
                if not met and not there:
                    raise Refused(f"{name} needs {ways[0]}, which there is not")
                waiting += [] if met else there[:1]
    return taken


def data(package):
    """Opens the files of a package (deb(5))."""
    at = 8
    while at + 60 <= len(package):
        name, size = package[at:at + 16].decode().strip(), int(package[at + 48:at + 58])
        content = package[at + 60:at + 60 + size]
        if name.startswith("data.tar"):
            return tarfile.open(fileobj=io.BytesIO(content), mode="r:*")
        at += 60 + size + size % 2
    raise Refused("a package has no files")


def fetch(taken):
    """Fetches and unpacks the packages."""
    shutil.rmtree(ROOT, ignore_errors=True)
    for name in MERGED:
        os.makedirs(f"{ROOT}/usr/{name}")
        os.symlink(f"usr/{name}", f"{ROOT}/{name}")
    for name in PLACES:
        os.mkdir(f"{ROOT}/{name}")
    os.makedirs(ARCHIVES)
    for number, (name, of) in enumerate(taken.items(), 1):
        if number % 10 == 1:
            print(f"package {number} of {len(taken)}", file=sys.stderr, flush=True)
        package = checked(f"debian/{of['Filename']}", of["SHA256"], PACKAGE_BYTES_MAX)
        with data(package) as files:
            # As root of the sandbox, whose files they are, with all that dpkg would make of them.
            whole = {"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}
            files.extractall(ROOT, numeric_owner=True, **whole)
        with open(f"{ARCHIVES}/{name}.deb", "wb") as file:
            file.write(package)
    for name in ("passwd", "group"):
        shutil.copy(f"{ROOT}/usr/share/base-passwd/{name}.master", f"{ROOT}/etc/{name}")
    with open(f"{ROOT}/etc/hosts", "w") as file:
        file.write("127.0.0.1 localhost\n::1 localhost\n")
    with open(f"{ROOT}/etc/apt/sources.list", "w") as file:
        for archive, suite in SOURCES:
            file.write(f"deb {MIRROR}/{archive} {suite} main\n")
    with open(f"{ROOT}/etc/apt/apt.conf.d/50languages", "w") as file:
        file.write('Acquire::Languages "none";\n')


def main():
    os.umask(0o022)
    taken = chosen(index())
    sums = "".join(f"{name} {of['SHA256']}\n" for name, of in sorted(taken.items()))
    if sys.argv[1] == "fetch":
        fetch(taken)
    print(json.dumps({"digest": "sha256:" + hashlib.sha256(sums.encode()).hexdigest()}))


if __name__ == "__main__":
    try:
        main()
    except (Refused, OSError, ValueError, KeyError, tarfile.TarError, lzma.LZMAError) as error:
        told = error if isinstance(error, Refused) else f"{type(error).__name__}: {error}"
        print(told, file=sys.stderr)
        sys.exit(1)
