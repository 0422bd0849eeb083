"""A registry of npm that has the packages of a directory and nothing else.

registry.py DIRECTORY COMMAND ARGUMENT... runs the command beside it.
"""

import base64
import hashlib
import http.server
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import threading


def described(file, address):
    """What a registry says of a package, by the file that is published."""
    with tarfile.open(file) as package:
        version = json.load(package.extractfile("package/package.json"))
    digest = base64.b64encode(hashlib.sha512(file.read_bytes()).digest()).decode()
    version["dist"] = {"tarball": f"{address}/{file.name}", "integrity": f"sha512-{digest}"}
    latest = version["version"]
    return {
        "name": version["name"],
        "dist-tags": {"latest": latest},
        "versions": {latest: version},
    }


class Registry(http.server.BaseHTTPRequestHandler):
    answers = {}

    def do_GET(self):
        answer = self.answers.get(self.path)
        self.send_response(404 if answer is None else 200)
        self.send_header("Content-Length", str(len(answer or b"")))
        self.end_headers()
        self.wfile.write(answer or b"")

    def log_message(self, *_):
        pass


directory, *command = sys.argv[1:]
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry)
address = f"http://127.0.0.1:{server.server_port}"
for file in pathlib.Path(directory).glob("*.tgz"):
    package = described(file, address)
    Registry.answers[f"/{package['name']}"] = json.dumps(package).encode()
    Registry.answers[f"/{file.name}"] = file.read_bytes()
threading.Thread(target=server.serve_forever, daemon=True).start()
environment = dict(os.environ, npm_config_registry=address)
sys.exit(subprocess.run(command, env=environment).returncode)
