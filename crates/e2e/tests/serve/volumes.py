"""Volumes: who reaches them, what programs leave in them, their quotas, and what a server that is killed
keeps.

Starts servers itself: reads ATOLL, CONFIG and the environment that they begin with. Prints `ok NAME`
or `failed NAME: why` for each check, and exits 1 if one failed.
"""

import http.client
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
import traceback
from urllib.parse import quote

sys.dont_write_bytecode = True
from kept import Server, until


def state():
    top = os.environ.get("XDG_STATE_HOME") or os.path.join(os.environ["HOME"], ".local/state")
    return os.path.join(top, "atoll", "served", "volumes")


def made(server, name, **more):
    status, _, told = server.ask("POST", "/v1/volumes", {"name": name, **more})
    assert status == 201, told
    return told["volume"]["id"], told["token"]


def mounted(server, *mounts, **more):
    volumes = [{"name": name, "path": path, "read_only": bool(rest)} for name, path, *rest in mounts]
    return server.made(volumes=volumes, **more)[0]


def content(server, token, method, volume, what, path, body=None, **query):
    """Makes a request about a file of a volume; returns the status, and what is told."""
    connection = http.client.HTTPConnection(server.at.hostname, server.at.port, timeout=60)
    more = "".join(f"&{name}={quote(str(value))}" for name, value in query.items())
    connection.request(
        method, f"/volumecontent/{volume}/{what}?path={quote(path, safe='')}{more}", body,
        {"Authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    text = answer.read()
    is_json = answer.headers.get_content_type() == "application/json"
    return answer.status, json.loads(text) if is_json and text else text


def ended(server, id):
    assert server.ask("DELETE", f"/v1/sandboxes/{id}")[0] == 200


def key(*options):
    create = [os.environ["ATOLL"], "serve", "keys", "create", "--name", "k", *options]
    return subprocess.run(create, capture_output=True, text=True, check=True).stdout.strip()


def what_is_read_only_stays(server):
    id, token = made(server, "ro")
    assert content(server, token, "PUT", id, "file", "/file", b"whole")[0] == 201
    reader = mounted(server, ("ro", "/mnt/x", True))
    script = """cd /mnt/x; cat file; for try in 'echo x > new' 'echo x >> file' 'rm file' 'mv file other' \
        'mkdir d' 'ln -s a b' 'chmod 777 file' 'touch file' 'ln file link' 'truncate -s 0 file'; do
        sh -c "$try" 2> /dev/null && echo "done: $try"; done; ls"""
    assert server.run(reader, script) == "wholefile\n", server.run(reader, script)
    # A change of somebody else's is seen at once.
    writer = mounted(server, ("ro", "/mnt/x"))
    server.run(reader, "cat /mnt/x/new; test -e /mnt/x/new")
    server.run(writer, "cd /mnt/x; echo next > next; mv next file; echo new > new")
    assert server.run(reader, "cat /mnt/x/file /mnt/x/new") == "next\nnew\n"
    facts = server.ask("GET", f"/v1/sandboxes/{reader}")[2]
    assert facts["volumes"] == [{"name": "ro", "path": "/mnt/x", "read_only": True}], facts
    assert sorted(server.ask("GET", "/v1/volumes/ro")[2]["volume"]["sandboxes"]) == sorted([reader, writer])
    status, _, told = server.ask("DELETE", "/v1/volumes/ro")
    assert status == 409 and "in use" in told["detail"], told
    ended(server, writer)
    assert server.ask("DELETE", "/v1/volumes/ro")[0] == 409
    ended(server, reader)
    assert os.path.isdir(os.path.join(state(), id))
    assert server.ask("DELETE", "/v1/volumes/ro")[0] == 200
    assert not os.path.exists(os.path.join(state(), id))
    assert content(server, token, "GET", id, "file", "/file")[0] in (401, 404)


def tenants_see_nothing_of_each_other(server):
    id, token = made(server, "mine")
    assert content(server, token, "PUT", id, "file", "/file", b"secret")[0] == 201
    other = key("--tenant", "other")
    ask = lambda method, path, body=None: server.ask(method, path, body, X_API_Key=other)
    assert ask("GET", "/v1/volumes")[2] == [] and ask("GET", "/volumes")[2] == []
    for name in (id, "mine"):
        for method, path in [("GET", ""), ("DELETE", ""), ("POST", "/snapshots")]:
            status, _, told = ask(method, f"/v1/volumes/{name}{path}", {} if method == "POST" else None)
            assert status == 404 and "no volume" in told["detail"], told
        assert ask("GET", f"/volumes/{name}")[0] == 404 and ask("DELETE", f"/volumes/{name}")[0] == 404
        status, _, told = ask("POST", "/v1/sandboxes", {"volumes": [{"name": name, "path": "/mnt/x"}]})
        assert status == 404 and "no volume" in told["detail"], told
        status, _, told = ask("POST", "/v1/volumes", {"name": "copy", "from": name})
        assert status == 404, told
        for what in ("path", "dir", "file"):
            assert content(server, other, "GET", name, what, "/file")[0] == 404, (name, what)
        assert content(server, other, "PUT", name, "file", "/file", b"x")[0] == 404
    # A name is the tenant's own; so is a volume of the same name.
    assert ask("POST", "/v1/volumes", {"name": "mine"})[0] == 201
    assert content(server, other, "GET", "mine", "dir", "/") == (200, [])
    for wrong in ("", "wrong", token[:-1]):
        assert content(server, wrong, "GET", id, "file", "/file")[0] == 401, wrong
        assert content(server, wrong, "GET", "volnone", "file", "/file")[0] == 401, wrong
    # A key reaches files where its scope does, and has the token only then.
    scoped = key("--scope", "create")
    told = server.ask("GET", f"/v1/volumes/{id}", None, X_API_Key=scoped)[2]
    assert told["volume"]["id"] == id and told["token"] is None, told
    assert content(server, scoped, "GET", id, "file", "/file")[0] == 403
    assert content(server, key("--scope", "files"), "GET", id, "file", "/file") == (200, b"secret")
    assert content(server, token, "GET", id, "file", "/file") == (200, b"secret")


PLANTED = r"""cd /mnt/x; ln -s /etc/passwd absolute; ln -s ../../../../../../etc/passwd relative; ln -s .. up
ln -s / root; ln -s /proc/self/fd fds; mkdir d; ln -s ../d loop; ln -s .. d/up; echo inside > d/file; ln -s d within
mkfifo fifo 2> /dev/null; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")' 2> /dev/null
mknod zero c 1 5 2> /dev/null; cp /bin/sh sh; chmod 755 sh; chmod 4755 sh 2> /dev/null; chmod 2755 sh 2> /dev/null
python3 -c 'import os; os.open("set-id", os.O_CREAT | os.O_WRONLY, 0o6755)' 2> /dev/null
ln -s /nowhere new; touch hard; ln hard hard2; ls; stat -c %a sh
"""


def what_programs_plant_means_nothing(server):
    id, token = made(server, "planted")
    box = mounted(server, ("planted", "/mnt/x"))
    seen = server.run(box, PLANTED).split()
    for name in ("fifo", "socket", "zero"):
        assert name not in seen, seen
    assert seen[-1] == "755", seen
    # The same is done elsewhere: in a home, and without a volume.
    control = server.run(box, """cd; mkfifo fifo; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'; ls""")
    assert control == "fifo\nsocket\n", control
    without = mounted(server)
    assert server.run(without, "cp /bin/sh sh; chmod 4755 sh; stat -c %a sh") == "4755\n"
    ended(server, without)
    files = os.path.join(state(), id, "files")
    # From outside: no bit that gives rights, no device, nothing that leads to a process.
    for top, _, names in os.walk(files):
        for name in names:
            facts = os.lstat(os.path.join(top, name))
            assert not facts.st_mode & 0o6000, (name, oct(facts.st_mode))
            assert stat.S_ISREG(facts.st_mode) or stat.S_ISLNK(facts.st_mode), (name, oct(facts.st_mode))
    ask = lambda method, what, path, body=None, **query: content(server, token, method, id, what, path, body, **query)
    for path in ("absolute", "relative", "up/volumes", "root/etc/passwd", "fds/0", "loop/../file", "d/up/file", "within/file", "new"):
        for method, what in [("GET", "file"), ("GET", "dir"), ("PATCH", "path"), ("POST", "dir")]:
            status, told = ask(method, what, path, b'{"mode":511}' if method == "PATCH" else None)
            assert status in (400, 404, 409), (method, what, path, status, told)
    for path in ("up/x", "root/tmp/x", "d/up/x", "within/x", "../x", "/../x"):
        status, told = ask("PUT", "file", path, b"x")
        assert status in (400, 404), (path, status, told)
        status, told = ask("DELETE", "path", path)
        assert status in (400, 404), (path, status, told)
    before = os.stat("/etc/passwd")
    for name in ("absolute", "relative"):
        status, told = ask("GET", "path", name)
        assert status == 200 and told["type"] == "symlink", told
        assert ask("PUT", "file", name, b"mine")[0] == 201
        assert ask("GET", "file", name) == (200, b"mine")
    assert os.stat("/etc/passwd") == before
    assert ask("DELETE", "path", "root")[0] == 204 and ask("DELETE", "path", "up")[0] == 204
    listed = {one["path"] for one in ask("GET", "dir", "/", depth=50)[1]}
    assert {"/d/up", "/within", "/fds"} <= listed and not any(path.startswith("/within/") for path in listed), listed
    # What is set by the API has no such bit either.
    assert ask("PUT", "file", "tool", b"#!/bin/sh\n", mode=0o6755)[1]["mode"] == 0o755
    assert ask("PATCH", "path", "tool", b'{"mode":3565}')[1]["mode"] == 0o755
    # Another sandbox sees them as what they are in it.
    other = mounted(server, ("planted", "/mnt/y"))
    assert server.run(other, "cat /mnt/y/absolute; cd /mnt/y; cat within/file; readlink fds") == "mineinside\n/proc/self/fd\n"
    assert server.run(other, "/mnt/y/sh -c 'id -u; id -ru'") == "1000\n1000\n"
    # Programs that change it all the while lead nowhere.
    server.ask("POST", f"/v1/sandboxes/{box}/processes", {"command": ["sh", "-c", """
        cd /mnt/x; mkdir -p real; echo own > real/passwd
        while :; do ln -sfn /etc race; rm race; mv real race; mv race real; done"""]})
    end = time.monotonic() + 5
    kinds = set()
    while time.monotonic() < end:
        status, told = ask("GET", "file", "race/passwd")
        kinds.add(status)
        assert status in (400, 404) or told == b"own\n", told
        assert ask("PUT", "file", "race/written", b"x")[0] in (201, 400, 404)
    assert not os.path.exists("/etc/written")
    assert {200, 404} <= kinds or {200, 400} <= kinds, kinds
    ended(server, box)
    ended(server, other)
    assert server.ask("DELETE", f"/v1/volumes/{id}")[0] == 200


def quotas_hold(server):
    id, token = made(server, "small", size_mib=2)
    ask = lambda method, what, path, body=None: content(server, token, method, id, what, path, body)
    assert ask("PUT", "file", "one", os.urandom(1 << 20))[0] == 201
    status, told = ask("PUT", "file", "two", os.urandom(3 << 20))
    assert status == 507 and "2 MiB" in told["message"], (status, told)
    assert [one["path"] for one in ask("GET", "dir", "/")[1]] == ["/one"]
    assert os.listdir(os.path.join(state(), id, "staging")) == []
    box = mounted(server, ("small", "/mnt/x"))
    server.ask("POST", f"/v1/sandboxes/{box}/processes", {"command": ["sh", "-c", "while :; do head -c 100000 /dev/urandom >> /mnt/x/grows; sleep 0.05; done"]})
    until(lambda: server.ask("GET", f"/v1/sandboxes/{box}")[0] == 404)
    told = server.ask("GET", f"/v1/sandboxes/{box}")[2]
    assert "volume" in told["detail"], told
    over = sum(one["size"] for one in ask("GET", "dir", "/")[1])
    assert 2 << 20 < over < 64 << 20, over
    status, _, told = server.ask("POST", "/v1/sandboxes", {"volumes": [{"name": "small", "path": "/mnt/x"}]})
    assert status == 507 and "read-only" in told["advice"], told
    assert ask("PUT", "file", "three", b"x")[0] == 507
    reader = mounted(server, ("small", "/mnt/x", True))
    assert server.run(reader, "ls /mnt/x") == "grows\none\n"
    ended(server, reader)
    assert ask("DELETE", "path", "grows")[0] == 204
    ended(server, mounted(server, ("small", "/mnt/x")))
    for wrong in (0, 1 << 40):
        assert server.ask("POST", "/v1/volumes", {"name": "wrong", "size_mib": wrong})[0] == 400
    assert server.ask("DELETE", f"/v1/volumes/{id}")[0] == 200


def snapshots_begin_others(server):
    id, token = made(server, "base")
    box = mounted(server, ("base", "/mnt/x"))
    server.run(box, "mkdir -p /mnt/x/d; echo one > /mnt/x/d/file; chmod 700 /mnt/x/d; ln -s d/file /mnt/x/link")
    status, _, told = server.ask("POST", "/v1/volumes/base/snapshots", {"name": "base-1"})
    assert status == 409 and "changed" in told["detail"], told
    ended(server, box)
    status, _, told = server.ask("POST", "/v1/volumes/base/snapshots", {"name": "base-1"})
    assert status == 201 and told["volume"]["read_only"] and told["volume"]["from"] == id, told
    snapshot, own = told["volume"]["id"], told["token"]
    assert own != token
    status, told = content(server, own, "PUT", snapshot, "file", "/x", b"x")
    assert status == 403 and "snapshot" in told["message"], told
    # Also where it is not asked for, as E2B's SDKs cannot.
    box = mounted(server, ("base-1", "/mnt/x"))
    assert server.run(box, "cat /mnt/x/link; echo x > /mnt/x/new; ls /mnt/x") == "one\nd\nlink\n"
    status, _, told = server.ask("POST", "/v1/volumes", {"name": "next", "from": "base-1"})
    assert status == 201 and not told["volume"]["read_only"], told
    both = mounted(server, ("next", "/mnt/a"), ("base", "/mnt/b"))
    server.run(both, "echo two > /mnt/a/d/file")
    assert server.run(both, "cat /mnt/a/link /mnt/b/link; stat -c '%a %U' /mnt/a/d") == "two\none\n700 user\n"
    assert server.run(box, "cat /mnt/x/link") == "one\n"
    for one in (box, both):
        ended(server, one)
    for name in ("base", "next", "base-1"):
        assert server.ask("DELETE", f"/v1/volumes/{name}")[0] == 200


def files_of_all_owners_are_the_users_own(server):
    """A sandbox that begins with the files of another, or goes on, has the volume as any other."""
    id, _ = made(server, "shared")
    first = mounted(server, ("shared", "/mnt/x"))
    server.run(first, "echo 1 > /mnt/x/1; echo h > home")
    snapshot = server.ask("POST", f"/v1/sandboxes/{first}/snapshots", {})[2]["id"]
    copy = mounted(server, ("shared", "/mnt/x"), template=snapshot)
    assert server.run(copy, "cat home /mnt/x/1; echo 2 > /mnt/x/2; stat -c %U /mnt/x/1 /mnt/x/2 home") == "h\n1\nuser\nuser\nuser\n"
    status, _, forks = server.ask("POST", f"/v1/sandboxes/{copy}/fork", {"count": 2})
    assert status == 201, forks
    forks = [fork["created"]["sandbox"] for fork in forks]
    assert [fork["volumes"] for fork in forks] == 2 * [[{"name": "shared", "path": "/mnt/x", "read_only": False}]], forks
    for fork in forks:
        assert server.run(fork["id"], "echo f >> /mnt/x/2; cat home") == "h\n"
    assert server.run(first, "cat /mnt/x/2") == "2\nf\nf\n"
    assert server.ask("POST", f"/v1/sandboxes/{copy}/pause")[0] == 200
    assert server.ask("POST", f"/v1/sandboxes/{copy}/connect", {})[0] == 201
    assert server.run(copy, "rm /mnt/x/1; ls /mnt/x") == "2\n"
    for one in (first, copy, *[fork["id"] for fork in forks]):
        ended(server, one)
    assert server.ask("DELETE", "/v1/volumes/shared")[0] == 200


def policies_and_the_ledger_name_them(server):
    policies = os.path.join(os.environ["CONFIG"], "atoll", "volumes.cedar")
    with open(policies, "w") as file:
        file.write("""permit (principal, action, resource);
            @id("no-writing") forbid (principal, action == Action::"run", resource)
            when { context has served && context.served.volumes.contains("models=write") };""")
    try:
        made(server, "models")
        status, _, told = server.ask("POST", "/v1/sandboxes", {"volumes": [{"name": "models", "path": "/mnt/m"}]})
        assert status == 403 and "volumes.cedar" in told["detail"], told
        box = mounted(server, ("models", "/mnt/m", True))
    finally:
        os.remove(policies)
    run = server.ask("GET", f"/v1/sandboxes/{box}")[2]["run"]
    events = server.ask("GET", f"/v1/runs/{run}/events")[2]["events"]
    volumes = next(one["body"]["served"]["volumes"] for one in events if "served" in one["body"])
    assert [(one["name"], one["path"], one["access"]) for one in volumes] == [("models", "/mnt/m", "read")], events
    ended(server, box)
    kinds = [one["type"] for one in server.ask("GET", "/v1/ledger/events?type=volume&limit=1000")[2]["events"]]
    assert {"volume.created", "volume.removed", "volume.file-written"} <= set(kinds), kinds


def a_killed_server_loses_nothing(key):
    server = Server("[quota]\nvolumes = 2\n", key)
    for one in server.ask("GET", "/v1/volumes")[2]:
        assert server.ask("DELETE", f"/v1/volumes/{one['id']}")[0] == 200
    id, token = made(server, "durable")
    box = mounted(server, ("durable", "/mnt/x"))
    server.run(box, "echo program > /mnt/x/program; sync")
    told = []

    def write():
        number = 0
        while True:
            try:
                if content(server, token, "PUT", id, "file", f"/{number}", str(number).encode() * 1000)[0] != 201:
                    return
            except OSError:
                return
            except http.client.HTTPException:
                return
            told.append(number)
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    until(lambda: len(told) > 20)
    server.end(signal.SIGKILL)
    writer.join()
    server = Server("[quota]\nvolumes = 2\n", server.key)
    assert [one["name"] for one in server.ask("GET", "/v1/volumes")[2]] == ["durable"]
    assert server.ask("GET", "/v1/volumes/durable")[2]["token"] == token
    for number in told:
        assert content(server, token, "GET", id, "file", f"/{number}") == (200, str(number).encode() * 1000), number
    names = [one["name"] for one in content(server, token, "GET", id, "dir", "/")[1]]
    assert set(names) - {str(number) for number in told} <= {"program", str(len(told))}, names
    assert content(server, token, "GET", id, "file", "/program") == (200, b"program\n")
    assert os.listdir(os.path.join(state(), id, "staging")) == []
    made(server, "second")
    status, _, refused = server.ask("POST", "/v1/volumes", {"name": "third"})
    assert status == 429 and "quota.volumes" in refused["advice"], refused
    for name in ("durable", "second"):
        assert server.ask("DELETE", f"/v1/volumes/{name}")[0] == 200
    assert not os.path.exists(os.path.join(state(), id))
    server.end()


def nesting_has_no_volumes(key):
    server = Server("nesting = true\n", key)
    made(server, "nested")
    status, _, told = server.ask("POST", "/v1/sandboxes", {"volumes": [{"name": "nested", "path": "/mnt/x"}]})
    assert status == 403 and "nesting" in told["detail"], told
    assert server.ask("DELETE", "/v1/volumes/nested")[0] == 200
    server.end()


CHECKS = [
    what_is_read_only_stays, tenants_see_nothing_of_each_other, what_programs_plant_means_nothing, quotas_hold,
    snapshots_begin_others, files_of_all_owners_are_the_users_own, policies_and_the_ledger_name_them,
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
    one(a_killed_server_loses_nothing, server.key)
    one(nesting_has_no_volumes, server.key)
    sys.exit(failed)


main()
