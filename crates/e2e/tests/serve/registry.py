"""Registries of images on a small internet: one of Debian's package, with images that umoci and
skopeo have made, and one that lies. Arguments: the internet's directory, then the command to run
while they are up.
"""

import gzip
import hashlib
import http.server
import io
import json
import os
import ssl
import subprocess
import sys
import tarfile
import threading
import time

PLACE = sys.argv[1]
GOOD, EVIL = "git.example", "unknown.example"
GOOD_AT, EVIL_AT = "93.184.216.36", "93.184.216.38"


def run(*words, **more):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, **more)


def image():
    """Makes an image of two layers, the second of which removes and replaces files of the first."""
    at = os.path.join(PLACE, "image")
    bundle = os.path.join(PLACE, "bundle.d")
    run("umoci", "init", "--layout", at)
    run("umoci", "new", "--image", f"{at}:box")
    run("umoci", "unpack", "--image", f"{at}:box", bundle)
    root = os.path.join(bundle, "rootfs")
    for name in ["bin", "etc", "home/user", "opt/gone", "root", "srv", "tmp", "usr/bin", "var"]:
        os.makedirs(os.path.join(root, name))
    busybox = "/bin/busybox"
    run("cp", busybox, os.path.join(root, "bin/busybox"))
    names = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True)
    for name in names.stdout.split():
        if name != "busybox":
            os.symlink("busybox", os.path.join(root, "bin", name))
    files = {
        "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nowner:x:1234:1234::/srv:/bin/sh\n",
        "etc/group": "root:x:0:\nowner:x:1234:\n", "etc/removed": "1\n", "etc/replaced": "1\n",
        "opt/gone/file": "1\n", "home/user/own": "of the image\n", "srv/owned": "1\n",
    }
    for name, text in files.items():
        with open(os.path.join(root, name), "w") as file:
            file.write(text)
    with open(os.path.join(root, "bin/bash"), "w") as file:
        file.write('#!/bin/sh\nexec /bin/sh "$@"\n')
    os.chmod(os.path.join(root, "bin/bash"), 0o755)
    os.chown(os.path.join(root, "srv/owned"), 1234, 1234)
    os.chmod(os.path.join(root, "bin/busybox"), 0o4755)
    run("umoci", "repack", "--image", f"{at}:box", bundle)
    run("umoci", "config", "--image", f"{at}:box", "--config.env", "OF_IMAGE=yes")
    run("rm", "-rf", bundle)
    run("umoci", "unpack", "--image", f"{at}:box", bundle)
    os.remove(os.path.join(root, "etc/removed"))
    run("rm", "-rf", os.path.join(root, "opt/gone"))
    with open(os.path.join(root, "etc/replaced"), "w") as file:
        file.write("2\n")
    run("umoci", "repack", "--image", f"{at}:box", bundle)
    run("skopeo", "--insecure-policy", "copy", f"oci:{at}:box", f"docker://{GOOD}/box:1")


def registry():
    """Starts the registry of Debian's package."""
    settings = os.path.join(PLACE, "registry.yml")
    with open(settings, "w") as file:
        file.write(f"""version: 0.1
storage: {{filesystem: {{rootdirectory: {PLACE}/store}}}}
http:
  addr: {GOOD_AT}:443
  tls: {{certificate: {PLACE}/{GOOD}.pem, key: {PLACE}/{GOOD}.key}}
""")
    log = open(os.path.join(PLACE, "registry.log"), "w")
    process = subprocess.Popen(["docker-registry", "serve", settings], stdout=log, stderr=log)
    for _ in range(100):
        if subprocess.run(["curl", "-sf", f"https://{GOOD}/v2/"], capture_output=True).returncode == 0:
            return process
        time.sleep(0.1)
    raise SystemExit("the registry does not begin")


def layer(*entries):
    """Returns a layer: pairs of an entry and its content."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w", format=tarfile.PAX_FORMAT) as to:
        for entry, content in entries:
            entry.size = len(content)
            to.addfile(entry, io.BytesIO(content))
    return gzip.compress(held.getvalue())


def entry(name, kind=tarfile.REGTYPE, link="", **more):
    one = tarfile.TarInfo(name)
    one.type, one.linkname, one.mode = kind, link, 0o644
    for field, value in more.items():
        setattr(one, field, value)
    return one


def bomb():
    """Returns a layer of a few kilobytes that is a gigabyte."""
    held = io.BytesIO()
    with gzip.GzipFile(fileobj=held, mode="w") as packed:
        with tarfile.open(fileobj=packed, mode="w") as to:
            one = entry("bomb")
            one.size = 1 << 30
            to.addfile(one, open("/dev/zero", "rb"))
    return held.getvalue()


PLAIN = layer((entry("file"), b"text\n"))
DIRECTORY = tarfile.DIRTYPE
LAYERS = {
    "above": layer((entry("../../above"), b"x")),
    "through": layer((entry("opt", DIRECTORY, mode=0o755), b""),
                     (entry("opt/up", tarfile.SYMTYPE, "../../../../../../opt"), b""),
                     (entry("opt/up/planted"), b"planted\n"),
                     (entry("opt/round", tarfile.SYMTYPE, "round"), b"")),
    "round": layer((entry("round", tarfile.SYMTYPE, "/round"), b""), (entry("round/x"), b"x")),
    "hard": layer((entry("hard", tarfile.LNKTYPE, "/etc/shadow"), b"")),
    "hard-above": layer((entry("hard", tarfile.LNKTYPE, "../../../etc/shadow"), b"")),
    "special": layer((entry("opt", DIRECTORY, mode=0o755), b""),
                     (entry("opt/memory", tarfile.CHRTYPE, devmajor=1, devminor=1), b""),
                     (entry("opt/disk", tarfile.BLKTYPE, devmajor=254, devminor=0), b""),
                     (entry("opt/pipe", tarfile.FIFOTYPE), b""),
                     (entry("opt/set-id", mode=0o6755), b"#!/bin/sh\n"),
                     (entry("opt/marked", DIRECTORY, mode=0o755, pax_headers={
                         "SCHILY.xattr.trusted.overlay.redirect": "/etc",
                         "SCHILY.xattr.trusted.overlay.opaque": "y",
                         "SCHILY.xattr.security.capability": "x"}), b"")),
    "hiding-above": layer((entry(".wh..."), b"")),
    "bomb": bomb(),
    "digest": PLAIN, "longer": PLAIN, "shorter": PLAIN, "redirects": PLAIN, "turns": PLAIN,
}


def digest(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()


class Liar(http.server.BaseHTTPRequestHandler):
    """A registry whose images are attacks."""

    asked = 0

    def log_message(self, *_):
        pass

    def do_GET(self):
        parts = self.path.strip("/").split("/")
        if len(parts) != 4 or parts[1] not in LAYERS:
            return self.told(404, b"{}")
        name, kind = parts[1], parts[2]
        content = LAYERS[name]
        config = json.dumps({"config": {"Env": ["A=b"]}}).encode()
        if kind == "manifests":
            Liar.asked += 1
            note = str(Liar.asked) if name == "turns" else ""
            size = {"longer": len(content) - 1, "shorter": len(content) + 1}.get(name, len(content))
            manifest = {
                "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "annotations": {"note": note},
                "config": {"digest": digest(config), "size": len(config)},
                "layers": [{"digest": digest(content), "size": size,
                            "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip"}],
            }
            return self.told(200, json.dumps(manifest).encode())
        if parts[3] == digest(config):
            return self.told(200, config)
        if name == "redirects":
            self.send_response(307)
            self.send_header("Location", "http://169.254.169.254/latest/meta-data")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        self.told(200, PLAIN + b"x" if name == "digest" else content)

    def told(self, status, content):
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def lie():
    server = http.server.ThreadingHTTPServer((EVIL_AT, 443), Liar)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(os.path.join(PLACE, f"{EVIL}.pem"), os.path.join(PLACE, f"{EVIL}.key"))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()


process = registry()
try:
    image()
    lie()
    layout = os.path.join(PLACE, "image")
    status = subprocess.run(sys.argv[2:], env=dict(os.environ, LAYOUT=layout)).returncode
finally:
    process.terminate()
    process.wait()
sys.exit(status)
