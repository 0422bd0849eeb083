"""Pauses, snapshots and forks: what is kept, for whom, and what a server that ends does with it.

Starts servers itself: reads ATOLL, CONFIG and the environment that they begin with. Prints `ok NAME`
or `failed NAME: why` for each check, and exits 1 if one failed.
"""

import base64
import hashlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
from urllib.parse import urlsplit

CONFIG = os.path.join(os.environ["CONFIG"], "atoll", "serve.toml")


class Server:
    """A server, with the key that it makes, or the one of the server before."""

    def __init__(self, toml="", key=None):
        os.makedirs(os.path.dirname(CONFIG), exist_ok=True)
        with open(CONFIG, "w") as file:
            # It builds nothing by itself then.
            file.write('network = "closed"\n' + toml)
        self.process = subprocess.Popen(
            [os.environ["ATOLL"], "serve", "--listen", "127.0.0.1:0"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        told = ""
        while "Ctrl-C" not in told:
            line = self.process.stdout.readline()
            assert line, told
            told += line
        self.at = urlsplit(re.search(r"E2B_API_URL=(\S+)", told)[1])
        self.key = key or re.search(r"E2B_API_KEY=(\S+)", told)[1]

    def ask(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection(self.at.hostname, self.at.port, timeout=60)
        sent = {"X-API-Key": self.key} | {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {name: value for name, value in sent.items() if value is not None}
        connection.request(method, path, json.dumps(body) if body is not None else None, sent)
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, answer.headers, json.loads(text) if text[:1] in (b"{", b"[") else text

    def made(self, **body):
        status, _, told = self.ask("POST", "/v1/sandboxes", body)
        assert status == 201, told
        return told["sandbox"]["id"], told["token"]

    def run(self, id, script, **more):
        body = {"command": ["sh", "-c", script], **more}
        status, _, told = self.ask("POST", f"/v1/sandboxes/{id}/run", body)
        assert status == 200, told
        return told["stdout"]

    def end(self, how=signal.SIGINT):
        self.process.send_signal(how)
        self.process.wait(60)


def until(seen, seconds=30):
    end = time.monotonic() + seconds
    while not (found := seen()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.1)
    return found


def a_pause_keeps_files_and_goes_on(server):
    id, token = server.made(metadata={"a": "b"}, environment={"NAME": "value"}, memory_mib=200)
    server.run(id, "mkdir -p d; echo kept > d/file; ln d/file d/other; chmod 600 d/file; sleep 100 &")
    before = server.ask("GET", f"/v1/sandboxes/{id}")[2]
    status, headers, told = server.ask("POST", f"/sandboxes/{id}/pause", {"memory": False})
    assert (status, headers["atoll-kept"]) == (204, "files"), (status, told)
    assert server.ask("POST", f"/sandboxes/{id}/pause", {"memory": False})[0] == 409
    facts = server.ask("GET", f"/v1/sandboxes/{id}")[2]
    assert facts["state"] == "paused" and facts["metadata"] == {"a": "b"}, facts
    listed = lambda path: [one["sandboxID"] for one in server.ask("GET", path)[2]]
    assert id in listed("/v2/sandboxes") and id in listed("/v2/sandboxes?state=paused")
    assert id not in listed("/v2/sandboxes?state=running") and id not in listed("/sandboxes")
    status, _, told = server.ask("POST", f"/v1/sandboxes/{id}/run", {"command": ["true"]})
    assert status == 404 and "paused" in told["detail"] and "connect" in told["advice"], told
    # Nobody wakes it who may not.
    for path, headers in [
        ("/health", {}), ("/files?path=d/file", {}), ("/files?path=d/file", {"X_Access_Token": "wrong"}),
        ("/", {"E2b_Sandbox_Port": "8000"}),
    ]:
        status, _, told = server.ask("GET", path, E2b_Sandbox_Id=id, X_API_Key=None, **headers)
        assert status in (401, 502), (path, status, told)
    assert server.ask("GET", f"/v1/sandboxes/{id}")[2]["state"] == "paused"
    status, _, told = server.ask("POST", f"/sandboxes/{id}/connect", {"timeout": 100})
    assert (status, told["sandboxID"], told["envdAccessToken"]) == (201, id, token), told
    assert server.ask("POST", f"/sandboxes/{id}/connect", {"timeout": 100})[0] == 200
    seen = server.run(id, "cat d/other; stat -c '%a %h %U' d/file; echo $NAME; pgrep sleep | wc -l; id -u")
    assert seen == "kept\n600 2 user\nvalue\n0\n1000\n", seen
    after = server.ask("GET", f"/v1/sandboxes/{id}")[2]
    same = ["id", "template", "metadata", "cpus", "memory_mib", "network"]
    assert [before[name] for name in same] == [after[name] for name in same], after
    assert before["run"] != after["run"]
    kinds = [one["kind"] for one in server.ask("GET", f"/v1/events?sandbox={id}")[2]]
    assert [kind for kind in kinds if kind != "updated"] == ["resumed", "paused", "created"], kinds
    # A second time, and to its end while it is paused.
    server.run(id, "echo more >> d/file")
    assert server.ask("POST", f"/v1/sandboxes/{id}/pause", {"memory": False})[0] == 200
    assert server.ask("DELETE", f"/sandboxes/{id}")[0] == 204
    assert server.ask("DELETE", f"/sandboxes/{id}")[0] == 404
    assert server.ask("POST", f"/sandboxes/{id}/connect", {})[0] == 404


def a_pause_at_its_time_loses_nothing(server):
    made = [server.made(timeout_s=3, auto_pause=True, auto_pause_memory=at % 2 == 0)[0] for at in range(10)]
    script = "i=0; while :; do i=$((i+1)); echo $i > next; mv next $i; echo $i; done"
    seen = {}

    def follow(id):
        pid = server.ask("POST", f"/v1/sandboxes/{id}/processes", {"command": ["sh", "-c", script]})[2]["pid"]
        text = server.ask("GET", f"/v1/sandboxes/{id}/processes/{pid}/output")[2].decode()
        parts = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
        out = b"".join(base64.b64decode(part["base64"]) for part in parts if "base64" in part)
        seen[id] = int(out.split(b"\n")[-2])

    threads = [threading.Thread(target=follow, args=[id]) for id in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(seen) == len(made) and min(seen.values()) > 5, seen
    for id in made:
        until(lambda: server.ask("GET", f"/v1/sandboxes/{id}")[2].get("state") == "paused")
        assert server.ask("POST", f"/v1/sandboxes/{id}/connect", {"timeout_s": 60})[0] == 201
        # What was said to be there is there.
        assert server.run(id, f"cat {seen[id]}") == f"{seen[id]}\n", (id, seen[id])
        assert server.ask("DELETE", f"/v1/sandboxes/{id}")[0] == 200


def a_pause_waits_for_what_is_being_written(server):
    made = [server.made(timeout_s=3, auto_pause=True, auto_pause_memory=at % 2 == 0)[0] for at in range(6)]
    length, last = 1 << 20, {}

    def overwrite(id):
        number = 0
        while True:
            number += 1
            connection = http.client.HTTPConnection(server.at.hostname, server.at.port, timeout=60)
            try:
                connection.request("PUT", f"/v1/sandboxes/{id}/files/content?path=file",
                                   bytes([97 + number % 26]) * length, {"X-API-Key": server.key})
                status = connection.getresponse().status
            except OSError:
                status = 0
            if status not in (200, 201):
                break
            last[id] = number

    threads = [threading.Thread(target=overwrite, args=[id]) for id in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(last) == len(made), last
    for id in made:
        until(lambda: server.ask("GET", f"/v1/sandboxes/{id}")[2].get("state") == "paused")
        assert server.ask("POST", f"/v1/sandboxes/{id}/connect", {"timeout_s": 60})[0] == 201
        text = server.ask("GET", f"/v1/sandboxes/{id}/files/content?path=file")[2]
        # Whole: what was acknowledged last, or what followed it.
        possible = [bytes([97 + number % 26]) * length for number in (last[id], last[id] + 1)]
        assert text in possible, (id, last[id], len(text), set(text))
        assert server.ask("DELETE", f"/v1/sandboxes/{id}")[0] == 200


def a_request_with_its_token_wakes_one_that_says_so(server):
    for auto_resume in (True, False):
        id, token = server.made(auto_pause=True, auto_resume=auto_resume)
        server.run(id, "echo there > file")
        assert server.ask("POST", f"/v1/sandboxes/{id}/pause", {"memory": False})[0] == 200
        read = lambda token: server.ask("GET", "/files?path=file", E2b_Sandbox_Id=id, X_API_Key=None, X_Access_Token=token)
        assert read("wrong")[0] in (401, 502) and read(None)[0] in (401, 502)
        status, _, text = read(token)
        expected = (200, b"there\n") if auto_resume else (502, text)
        assert (status, text) == expected, (auto_resume, status, text)
        assert server.ask("DELETE", f"/v1/sandboxes/{id}")[0] == 200


def a_snapshot_is_a_template_of_its_tenant(server):
    id, _ = server.made()
    server.run(id, "echo first > file; mkdir -p deep; (cd deep; for i in $(seq 300); do mkdir d; cd d; done); ln -s /etc/shadow link; mkfifo pipe")
    status, _, told = server.ask("POST", f"/sandboxes/{id}/snapshots", {"name": "mine:v1"})
    assert status == 201 and told["names"] == ["mine:v1"], told
    server.run(id, "echo second > file")
    by_id, by_name = server.made(template=told["snapshotID"])[0], server.made(template="mine:v1")[0]
    for one in (by_id, by_name):
        assert server.run(one, "cat file; readlink link; stat -c %U file; echo own > own") == "first\n/etc/shadow\nuser\n"
    assert server.run(id, "cat file; ls own 2>&1 | wc -l") == "second\n1\n"
    assert server.run(by_id, "hostname; cat /proc/sys/kernel/random/uuid") != server.run(by_name, "hostname; cat /proc/sys/kernel/random/uuid")
    listed = server.ask("GET", f"/snapshots?sandboxID={id}")[2]
    assert [one["snapshotID"] for one in listed] == [told["snapshotID"]], listed
    other = server.ask("POST", "/v1/keys", {"name": "x"})[2]["key"]
    assert server.ask("GET", "/snapshots", X_API_Key=other)[2], "one of the same tenant sees it"
    made = subprocess.run([os.environ["ATOLL"], "serve", "keys", "create", "--name", "y", "--tenant", "other", "--json"],
                          capture_output=True, text=True)
    stranger = json.loads(made.stdout)["key"]
    assert server.ask("GET", "/snapshots", X_API_Key=stranger)[2] == []
    assert server.ask("POST", "/v1/sandboxes", {"template": told["snapshotID"]}, X_API_Key=stranger)[0] == 404
    assert server.ask("DELETE", f"/templates/{told['snapshotID']}", X_API_Key=stranger)[0] == 404
    for name in ("../x", "", "x" * 129, "a/b"):
        assert server.ask("POST", f"/sandboxes/{id}/snapshots", {"name": name})[0] == 400, name
    assert server.ask("POST", "/v1/sandboxes", {"template": "../homes"})[0] == 404
    assert server.ask("DELETE", f"/templates/{told['snapshotID']}")[0] == 204
    assert server.ask("DELETE", f"/templates/{told['snapshotID']}")[0] == 404
    assert server.ask("POST", "/v1/sandboxes", {"template": "mine:v1"})[0] == 404
    assert server.run(by_id, "cat file") == "first\n"
    for one in (id, by_id, by_name):
        server.ask("DELETE", f"/v1/sandboxes/{one}")


def forks_share_what_was_and_nothing_else(server):
    id, token = server.made(environment={"NAME": "value"})
    server.run(id, "echo there > file")
    process = server.ask("POST", f"/v1/sandboxes/{id}/processes", {"command": ["sleep", "100"]})[2]["pid"]
    status, _, told = server.ask("POST", f"/sandboxes/{id}/fork", {"count": 3})
    assert status == 201 and len(told) == 3, told
    forks = [one["sandbox"] for one in told]
    assert len({one["sandboxID"] for one in forks} | {id}) == 4
    assert len({one["envdAccessToken"] for one in forks} | {token}) == 4
    for one in forks:
        seen = server.run(one["sandboxID"], "cat file; echo $NAME; pgrep -c sleep; echo mine > file")
        assert seen == "there\nvalue\n0\n", seen
    assert server.run(id, "cat file") == "there\n"
    assert [one["pid"] for one in server.ask("GET", f"/v1/sandboxes/{id}/processes")[2]] == [process]
    for wrong in (0, 101):
        assert server.ask("POST", f"/sandboxes/{id}/fork", {"count": wrong})[0] == 400
    for one in [id] + [one["sandboxID"] for one in forks]:
        server.ask("DELETE", f"/v1/sandboxes/{one}")


def layers():
    there = os.path.join(state(), "layers")
    return sorted(os.listdir(there)) if os.path.isdir(there) else []


def content(path):
    """Returns all that a layer holds, with its owners and modes."""
    found = []
    for top, directories, names in os.walk(path):
        for name in sorted(directories + names):
            at = os.path.join(top, name)
            facts = os.lstat(at)
            text = open(at, "rb").read() if os.path.isfile(at) and not os.path.islink(at) else b""
            found.append((at, facts.st_mode, facts.st_uid, facts.st_size, facts.st_mtime_ns, text))
    return found


def forks_of_a_paused_one_share_its_files(server):
    id, _ = server.made()
    server.run(id, "mkdir -p d/e; echo there > d/file; ln d/file d/name; echo gone > d/e/gone; chmod 700 d")
    assert server.ask("POST", f"/v1/sandboxes/{id}/pause", {"memory": False})[0] == 200
    status, headers, told = server.ask("POST", f"/sandboxes/{id}/fork", {"count": 3})
    is_root = os.geteuid() == 0
    assert (status, headers["atoll-files"]) == (201, "shared" if is_root else "copied"), (status, told)
    forks = [one["sandbox"]["sandboxID"] for one in told]
    before = {one: content(os.path.join(state(), "layers", one)) for one in layers()}
    assert not is_root or len(before) == 1 and any(one[5] == b"there\n" for one in sum(before.values(), [])), before
    script = "cat d/name; stat -c %a d; echo mine > d/file; cat d/file; mv d/e d/moved; rm d/moved/gone; ls d d/moved"
    for one in forks:
        assert server.run(one, script) == "there\n700\nmine\nd:\nfile\nmoved\nname\n\nd/moved:\n", one
    # No sandbox changes what lies beneath it: not of the others, and not of the first.
    assert {one: content(os.path.join(state(), "layers", one)) for one in layers()} == before
    status, headers, told = server.ask("POST", f"/sandboxes/{id}/snapshots", {"name": "of-paused"})
    assert (status, headers["atoll-files"]) == (201, "shared" if is_root else "copied"), told
    assert server.ask("POST", f"/v1/sandboxes/{id}/connect")[0] == 201
    assert server.run(id, "cat d/name d/e/gone; echo own > d/file") == "there\ngone\n"
    copy, _ = server.made(template="of-paused")
    assert server.run(copy, "cat d/file; ls d") == "there\ne\nfile\nname\n"
    # A fork of a fork that runs: what it changed is copied, over what it began with.
    status, headers, told = server.ask("POST", f"/sandboxes/{forks[0]}/fork", {})
    assert (status, headers["atoll-files"]) == (201, "copied"), told
    again = told[0]["sandbox"]["sandboxID"]
    assert server.run(again, "cat d/file; ls d d/moved") == "mine\nd:\nfile\nmoved\nname\n\nd/moved:\n"
    # A second pause and another fork of the first: over what it has written since.
    assert server.ask("POST", f"/v1/sandboxes/{id}/pause", {"memory": False})[0] == 200
    second = server.ask("POST", f"/sandboxes/{id}/fork", {})[2][0]["sandbox"]["sandboxID"]
    # Names of one file that lie beneath are two files once one is written to.
    other = "there" if is_root else "own"
    assert server.run(second, "cat d/file d/name d/e/gone") == f"own\n{other}\ngone\n"
    for one in forks + [id, copy, again, second]:
        assert server.ask("DELETE", f"/v1/sandboxes/{one}")[0] == 200, one
    assert server.ask("DELETE", f"/v1/snapshots/{server.ask('GET', '/v1/snapshots')[2][0]['id']}")[0] == 200
    until(lambda: layers() == [])


def too_many_layers_are_made_one(server):
    if os.geteuid() != 0:
        return
    id, _ = server.made()
    seen = []
    for at in range(12):
        server.run(id, f"echo {at} > file{at}; rm -f file{at - 2}; mkdir -p d{at}; mv d{at} moved{at}; echo {at} > moved{at}/x")
        assert server.ask("POST", f"/v1/sandboxes/{id}/pause", {"memory": False})[0] == 200
        status, headers, told = server.ask("POST", f"/sandboxes/{id}/fork", {})
        assert status == 201, told
        seen.append(headers["atoll-files"])
        server.ask("DELETE", f"/v1/sandboxes/{id}")
        id = told[0]["sandbox"]["sandboxID"]
        expected = "".join(f"{one}\n" for one in range(max(0, at - 1), at + 1)) + "".join(f"{one}\n" for one in sorted(range(at + 1), key=str))
        assert server.run(id, "cat file* moved*/x | sort -n") == "".join(sorted(expected.splitlines(True), key=int)), at
    assert seen.count("flattened") == 1 and set(seen) == {"flattened", "shared"}, seen
    server.ask("DELETE", f"/v1/sandboxes/{id}")
    until(lambda: layers() == [])


def what_programs_leave_in_a_layer_means_nothing(server):
    """Set-id bits, whiteouts, and attributes of overlays: the program's own files are changed by them at
    most, and what it may not set it cannot."""
    id, _ = server.made()
    script = """
import os
for name in ("a/b/c", "target"):
    os.makedirs(name)
open("a/b/c/file", "w").write("there\\n")
open("secret", "w").write("own\\n")
def attempt(what, *arguments):
    try:
        what(*arguments)
        print("could", arguments[1:2])
    except OSError as error:
        pass
for name in ("opaque", "redirect", "metacopy", "origin", "whiteout"):
    value = b"/../../../../etc" if name == "redirect" else b"y"
    attempt(os.setxattr, "target", f"trusted.overlay.{name}", value)
    try:
        os.setxattr("target", f"user.overlay.{name}", value)
    except OSError:
        pass
try:
    os.mknod("a/white", 0o600 | 0o020000, 0)
except OSError:
    pass
os.symlink("/etc/shadow", "target/link")
os.system("cp /usr/bin/id set-id; chmod 6755 set-id")
print("done")
"""
    assert server.run(id, f"python3 -c '{script}'") == "done\n"
    assert server.ask("POST", f"/v1/sandboxes/{id}/pause", {"memory": False})[0] == 200
    fork = server.ask("POST", f"/sandboxes/{id}/fork", {})[2][0]["sandbox"]["sandboxID"]
    # The positive control: what is usual is there.
    assert server.run(fork, "cat a/b/c/file secret; stat -c %a set-id; ./set-id -u; ls target") == "there\nown\n6755\n1000\nlink\n"
    assert server.run(fork, "cat target/link 2>&1; ls target/shadow target/passwd 2>&1").count("No such") >= 2
    # All of it can be changed, and removed.
    assert server.run(fork, "echo x > target/new; mv a/b a/moved && cat a/moved/c/file; rm -rf a target; ls") == "there\nsecret\nset-id\n"
    for one in (fork, id):
        assert server.ask("DELETE", f"/v1/sandboxes/{one}")[0] == 200


def layers_are_their_tenants(server):
    made = subprocess.run([os.environ["ATOLL"], "serve", "keys", "create", "--name", "z", "--tenant", "strange", "--json"],
                          capture_output=True, text=True)
    stranger = json.loads(made.stdout)["key"]
    id, token = server.made()
    server.run(id, "echo own > file")
    assert server.ask("POST", f"/v1/sandboxes/{id}/pause", {"memory": False})[0] == 200
    for what in ("fork", "snapshots"):
        for headers in ({"X_API_Key": stranger}, {"X_API_Key": None, "X_Access_Token": token}, {"X_API_Key": None}):
            status, _, told = server.ask("POST", f"/v1/sandboxes/{id}/{what}", {}, **headers)
            assert status in (401, 403, 404), (what, headers, status, told)
    # By its owner it can be.
    fork = server.ask("POST", f"/v1/sandboxes/{id}/fork", {})[2][0]["created"]["sandbox"]["id"]
    for named in layers() + ["../layers/" + one for one in layers()]:
        for key in (server.key, stranger):
            assert server.ask("POST", "/v1/sandboxes", {"template": named}, X_API_Key=key)[0] in (400, 404), named
    for one in (fork, id):
        assert server.ask("DELETE", f"/v1/sandboxes/{one}")[0] == 200


def homes_of_all_kinds_are_kept(server):
    for mode in ("555", "000", "1777"):
        id, _ = server.made()
        server.run(id, f"echo there > file; chmod {mode} .")
        status, _, told = server.ask("POST", f"/v1/sandboxes/{id}/pause", {"memory": False})
        assert status == 200, (mode, told)
        assert server.ask("POST", f"/v1/sandboxes/{id}/connect")[0] == 201, mode
        seen = server.run(id, "cd /; stat -c %a home/user; chmod 755 home/user; cat home/user/file", directory="/")
        assert seen == f"{int(mode)}\nthere\n", (mode, seen)
        server.ask("DELETE", f"/v1/sandboxes/{id}")
    # One that is deeper than any path is long.
    id, _ = server.made()
    deep = "import os\nfor n in range(5000):\n    os.mkdir('d' * 200); os.chdir('d' * 200)"
    server.run(id, f'exec python3 -c "{deep}"')
    status, _, told = server.ask("POST", f"/v1/sandboxes/{id}/snapshots", {})
    assert status == 201 or "cannot be copied" in told["detail"], (status, told)
    assert server.ask("POST", f"/v1/sandboxes/{id}/pause", {"memory": False})[0] == 200
    assert server.ask("DELETE", f"/v1/sandboxes/{id}")[0] == 200
    for one in server.ask("GET", "/v1/snapshots")[2]:
        assert server.ask("DELETE", f"/v1/snapshots/{one['id']}")[0] == 200


def limits_hold_after_a_pause(server):
    id, _ = server.made(disk_mib=30)
    server.run(id, "head -c 20000000 /dev/zero > kept")
    snapshot = server.ask("POST", f"/v1/sandboxes/{id}/snapshots", {})[2]["id"]
    status, _, told = server.ask("POST", "/v1/sandboxes", {"template": snapshot, "disk_mib": 5})
    assert status == 400 and "disk_mib" in told["detail"], told
    assert server.ask("POST", f"/v1/sandboxes/{id}/pause", {"memory": False})[0] == 200
    assert server.ask("POST", f"/v1/sandboxes/{id}/connect")[0] == 201
    server.ask("POST", f"/v1/sandboxes/{id}/processes", {"command": ["dd", "if=/dev/zero", "of=big", "bs=1M", "count=300"]})
    told = until(lambda: (got := server.ask("GET", f"/v1/sandboxes/{id}"))[0] == 404 and got[2])
    assert "disk" in told["detail"], told
    assert server.ask("DELETE", f"/v1/snapshots/{snapshot}")[0] == 200


def answers_are_for_whoever_could_have_them(server):
    server.ask("POST", "/v1/sandboxes", {}, Idempotency_Key="build")
    auditor = server.ask("POST", "/v1/keys", {"name": "a", "role": "auditor"})[2]["key"]
    status, _, told = server.ask("POST", "/v1/sandboxes", {}, Idempotency_Key="build", X_API_Key=auditor)
    assert status == 403, told
    reader = server.ask("POST", "/v1/keys", {"name": "r", "scopes": ["read"]})[2]["key"]
    id, _ = server.made(auto_pause=True, auto_resume=True)
    assert server.ask("POST", f"/v1/sandboxes/{id}/pause", {"memory": False})[0] == 200
    assert server.ask("GET", f"/v1/sandboxes/{id}/metrics", X_API_Key=reader)[0] == 404
    assert server.ask("GET", f"/v1/sandboxes/{id}", X_API_Key=reader)[2]["state"] == "paused"
    assert server.ask("GET", f"/v1/sandboxes/{id}/metrics")[0] == 200
    server.ask("DELETE", f"/v1/sandboxes/{id}")


def home_of(id):
    """Returns the directory of a sandbox's home, whose name tells nobody the id."""
    return os.path.join(state(), "homes", hashlib.sha256(f"home\0{id}".encode()).hexdigest()[:32])


def state():
    return os.path.join(os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state"), "atoll", "served")


def servers_come_and_go(key):
    server = Server("[quota]\npaused = 3\nsnapshots = 1\n", key)
    paused, _ = server.made()
    server.run(paused, "echo one > file")
    assert server.ask("POST", f"/v1/sandboxes/{paused}/pause", {"memory": False})[0] == 200
    ends, _ = server.made(auto_pause=True)
    server.run(ends, "echo two > file")
    dies, _ = server.made()
    snapshot = server.ask("POST", f"/v1/sandboxes/{dies}/snapshots", {})[2]["id"]
    status, _, told = server.ask("POST", f"/v1/sandboxes/{dies}/snapshots", {})
    assert status == 429 and "quota.snapshots" in told["advice"], told
    server.end()
    # What was to be kept at its time is kept; what a killed server had is gone, and that is told.
    server = Server("[quota]\npaused = 3\n", server.key)
    for id, expected in ((paused, "one\n"), (ends, "two\n")):
        assert server.ask("GET", f"/v1/sandboxes/{id}")[2]["state"] == "paused", id
        assert server.ask("POST", f"/v1/sandboxes/{id}/connect", {})[0] == 201
        assert server.run(id, "cat file") == expected
    assert server.ask("GET", f"/v1/sandboxes/{dies}")[0] == 404
    assert server.ask("POST", f"/v1/sandboxes/{paused}/pause", {"memory": False})[0] == 200
    server.end(signal.SIGKILL)
    server = Server("", server.key)
    assert server.ask("GET", f"/v1/sandboxes/{paused}")[2]["state"] == "paused"
    assert server.ask("GET", f"/v1/sandboxes/{ends}")[0] == 404
    kinds = [one["kind"] for one in server.ask("GET", f"/v1/events?sandbox={ends}")[2]]
    assert kinds[0] == "killed", kinds
    copy, _ = server.made(template=snapshot)
    assert server.ask("DELETE", f"/v1/sandboxes/{copy}")[0] == 200
    assert server.ask("DELETE", f"/v1/sandboxes/{paused}")[0] == 200
    until(lambda: os.listdir(os.path.join(state(), "homes")) == [])
    server.end()


def names_of_requests_outlast_a_server(key):
    """What was carried out under an Idempotency-Key is not again, whichever way the server ended."""
    for how in (signal.SIGINT, signal.SIGKILL):
        server = Server("", key)
        _, _, told = server.ask("POST", "/v1/sandboxes", {}, Idempotency_Key="box")
        id = told["sandbox"]["id"]
        count = {"command": ["sh", "-c", "echo x >> count; wc -l < count"]}
        named = lambda name: server.ask("POST", f"/v1/sandboxes/{id}/run", count, Idempotency_Key=name)
        assert named("one")[2]["stdout"] == "1\n"
        server.ask("POST", "/v1/sandboxes", {}, Idempotency_Key="gone")
        assert server.ask("POST", f"/v1/sandboxes/{id}/pause", {"memory": False})[0] == 200
        server.end(how)
        server = Server("", key)
        status, _, told = server.ask("POST", "/v1/sandboxes", {}, Idempotency_Key="box")
        assert status == 409 and id in told["detail"] and "connect" in told["advice"], told
        status, _, told = server.ask("POST", "/v1/sandboxes", {"timeout_s": 60}, Idempotency_Key="box")
        assert status == 409 and "another request" in told["detail"], told
        # That sandbox is no longer there: another one does no harm.
        status, _, told = server.ask("POST", "/v1/sandboxes", {}, Idempotency_Key="gone")
        assert status == 201, told
        assert server.ask("DELETE", f"/v1/sandboxes/{told['sandbox']['id']}")[0] == 200
        assert server.ask("POST", f"/v1/sandboxes/{id}/connect", {})[0] == 201
        status, _, told = named("one")
        assert status == 409 and "has ended" in told["detail"], told
        assert named("two")[2]["stdout"] == "2\n"
        assert server.ask("DELETE", f"/v1/sandboxes/{id}")[0] == 200
        server.end()


def a_server_that_ends_in_a_fork_loses_nothing(key):
    """The server is killed after each step of a fork of a paused sandbox."""
    if os.geteuid() != 0:
        return
    for is_moved in (True, False):
        server = Server("", key)
        for one in server.ask("GET", "/v1/snapshots")[2]:
            server.ask("DELETE", f"/v1/snapshots/{one['id']}")
        until(lambda: layers() == [])
        id, _ = server.made()
        server.run(id, "echo kept > file")
        assert server.ask("POST", f"/v1/sandboxes/{id}/pause", {"memory": False})[0] == 200
        fork = server.ask("POST", f"/v1/sandboxes/{id}/fork", {})[2][0]["created"]["sandbox"]["id"]
        server.end(signal.SIGKILL)
        [layer] = layers()
        if not is_moved:
            # As it is where the layer is written down, and not moved to its place yet.
            os.rename(os.path.join(state(), "layers", layer), home_of(id))
        # What nobody has is removed.
        os.makedirs(os.path.join(state(), "layers", "layerleft", "x"))
        server = Server("", key)
        assert server.ask("GET", f"/v1/sandboxes/{fork}")[0] == 404
        assert layers() == [layer], layers()
        assert server.ask("POST", f"/v1/sandboxes/{id}/connect", {})[0] == 201
        assert server.run(id, "cat file; echo more >> file") == "kept\n"
        # A roll back that the server does not survive leaves the snapshot as it was.
        assert server.ask("POST", f"/v1/sandboxes/{id}/snapshots", {"name": "last"})[0] == 201
        threading.Thread(target=lambda: quietly(server, id), daemon=True).start()
        time.sleep(0.02 if is_moved else 0.005)
        server.end(signal.SIGKILL)
        server = Server("", key)
        copy, _ = server.made(template="last")
        assert server.run(copy, "cat file") == "kept\nmore\n"
        assert server.ask("DELETE", f"/v1/sandboxes/{copy}")[0] == 200
        for one in server.ask("GET", "/v1/snapshots")[2]:
            assert server.ask("DELETE", f"/v1/snapshots/{one['id']}")[0] == 200
        until(lambda: layers() == [] and os.listdir(os.path.join(state(), "homes")) == [])
        server.end()


def quietly(server, id):
    try:
        server.ask("POST", f"/v1/sandboxes/{id}/rollback", {"snapshot": "last"})
    except (OSError, http.client.HTTPException):
        pass


def a_sandbox_goes_back_to_a_snapshot(server):
    id, token = server.made(environment={"NAME": "value"})
    server.run(id, "echo before > file; sleep 100 &")
    status, _, snapshot = server.ask("POST", f"/v1/sandboxes/{id}/snapshots", {"name": "before"})
    assert status == 201, snapshot
    for back in (snapshot["id"], "before"):
        server.run(id, "echo after > file; touch later; sleep 100 &")
        status, _, told = server.ask("POST", f"/v1/sandboxes/{id}/rollback", {"snapshot": back})
        assert status == 200 and (told["sandbox"]["id"], told["token"]) == (id, token), told
        assert server.run(id, "cat file; ls; echo $NAME; pgrep sleep | wc -l") == "before\nfile\nvalue\n0\n"
    assert server.ask("POST", f"/v1/sandboxes/{id}/rollback", {"snapshot": "none"})[0] == 404
    # Of another kind: it would have another system beneath it.
    other, _ = server.made(template="code-interpreter-v1")
    assert server.ask("POST", f"/v1/sandboxes/{other}/rollback", {"snapshot": "before"})[0] == 400
    # Nobody goes back by the sandbox's own token, and nothing was lost by any of this.
    status, _, _ = server.ask(
        "POST", f"/v1/sandboxes/{id}/rollback", {"snapshot": "before"}, X_API_Key=None, X_Access_Token=token)
    assert status == 401, status
    assert server.run(id, "cat file") == "before\n"
    for one in (id, other):
        server.ask("DELETE", f"/v1/sandboxes/{one}")
    assert server.ask("DELETE", f"/v1/snapshots/{snapshot['id']}")[0] == 200


CHECKS = [
    a_pause_keeps_files_and_goes_on, a_pause_at_its_time_loses_nothing,
    a_pause_waits_for_what_is_being_written,
    a_request_with_its_token_wakes_one_that_says_so, a_snapshot_is_a_template_of_its_tenant,
    forks_share_what_was_and_nothing_else, forks_of_a_paused_one_share_its_files,
    too_many_layers_are_made_one, what_programs_leave_in_a_layer_means_nothing, layers_are_their_tenants,
    homes_of_all_kinds_are_kept, limits_hold_after_a_pause,
    answers_are_for_whoever_could_have_them, a_sandbox_goes_back_to_a_snapshot,
]


def main():
    failed = False

    def one(check, *arguments):
        nonlocal failed
        try:
            check(*arguments)
            print(f"ok {check.__name__}", flush=True)
        except Exception as error:
            failed = True
            traceback.print_exc()
            print(f"failed {check.__name__}: {error!r}"[:600], flush=True)

    server = Server()
    for check in CHECKS:
        one(check, server)
    server.end()
    left = os.listdir(os.path.join(state(), "homes"))
    one(servers_come_and_go, server.key)
    one(names_of_requests_outlast_a_server, server.key)
    one(a_server_that_ends_in_a_fork_loses_nothing, server.key)
    print(f"ok nothing_is_left" if not left else f"failed nothing_is_left: {left}")
    sys.exit(failed or bool(left))


if __name__ == "__main__":
    main()
