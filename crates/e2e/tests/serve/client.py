"""Drives an unmodified E2B SDK (PyPI `e2b`) against a running server.

Reads E2B_API_URL, E2B_SANDBOX_URL and E2B_API_KEY. Arguments name checks; none runs all,
in order. Prints `ok NAME` or `failed NAME: why` for each, and exits 1 if one failed."""
import contextlib, hashlib, io, os, re, sys, threading, time, traceback, uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone

import httpx
from e2b import (
    AuthenticationException, CommandExitException, CommandResult, FileNotFoundException,
    FileType, InvalidArgumentException, NotFoundException, PtySize, Sandbox, SandboxException,
    SandboxNotFoundException, SandboxNotRunningException, SandboxQuery, SandboxState,
    TimeoutException,
)

HOME = "/home/user"
NO_PID = 4_000_000
WRONG_KEY = "e2b_" + "0" * 40
HTTP = httpx.Client(trust_env=False, timeout=30)

@contextlib.contextmanager
def sandbox(timeout=120, **options):
    """Makes a sandbox for the block, and kills it after."""
    box = Sandbox.create(timeout=timeout, **options)
    try:
        yield box
    except BaseException:
        with contextlib.suppress(Exception):
            box.kill()
        raise
    box.kill()

def equal(got, want, what):
    assert got == want, f"{what} is {shortened(got)}, not {shortened(want)}"

def shortened(value):
    text = repr(value)
    return text if len(text) < 200 else f"{text[:200]}… ({len(text)} characters)"

def raises(kind, call, what):
    """Runs `call`, which must raise `kind`; returns the exception."""
    try:
        got = call()
    except kind as error:
        return error
    raise AssertionError(f"{what} gives {shortened(got)}, not {kind.__name__}")

def poll(condition, what, seconds=15):
    """Waits until `condition` holds; returns what it gave."""
    end = time.monotonic() + seconds
    while not (got := condition()):
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(0.1)
    return got

def read_until(outputs, wanted):
    """Reads a handle's outputs until `wanted` is among them."""
    seen = b""
    for stdout, stderr, pty in outputs:
        seen += pty or (stdout or stderr or "").encode()
        if wanted in seen:
            return
    raise AssertionError(f"output ends without {wanted!r}: {shortened(seen)}")

def gone(box, pid, what):
    """Waits until no process in the sandbox has this id."""
    command = f"if kill -0 {pid} 2>/dev/null; then echo there; else echo gone; fi"
    poll(lambda: box.commands.run(command).stdout == "gone\n", what)

def sha256(data):
    return hashlib.sha256(data).hexdigest()

def create_run():
    with sandbox() as box:
        assert re.fullmatch("i[0-9a-z]{20}", box.sandbox_id), f"odd id {box.sandbox_id!r}"
        got = box.commands.run("echo hello")
        equal(got, CommandResult("", "hello\n", 0, None), "result of echo")
        failing = "echo out; echo err >&2; exit 3"
        error = raises(CommandExitException, lambda: box.commands.run(failing), "exit 3")
        got = (error.stdout, error.stderr, error.exit_code, error.error)
        equal(got, ("out\n", "err\n", 3, "exit status 3"), "result of exit 3")

def environment():
    odd = "a b=c\"d'$e\n"
    with sandbox(envs={"GREETING": "hello", "ODD": odd}) as box:
        run = lambda command, **options: box.commands.run(command, **options).stdout
        equal(run('printf %s "$GREETING"'), "hello", "variable of the sandbox")
        equal(run('printf %s "$ODD"'), odd, "variable with odd characters")
        own = {"GREETING": "other", "MORE": "1"}
        equal(run('printf %s "$GREETING$MORE"', envs=own), "other1", "variables of the command")
        equal(run('printf %s "$GREETING$MORE"'), "hello", "variables of the next command")
        equal(run('echo "$HOME $E2B_SANDBOX $E2B_SANDBOX_ID"'),
              f"{HOME} true {box.sandbox_id}\n", "own variables")
        equal(run("whoami"), "user\n", "user")
        equal(run("pwd"), f"{HOME}\n", "default directory")
        equal(run("pwd", cwd="/tmp"), "/tmp\n", "directory of the command")
        for what, kind, options in [
            ("/no/such", InvalidArgumentException, {"cwd": "/no/such"}),
            ("ghost", AuthenticationException, {"user": "ghost"}),
        ]:
            error = raises(kind, lambda: run("true", **options), f"run with {what}")
            assert what in str(error), f"error does not name {what}: {error}"

def stdin():
    with sandbox() as box:
        equal(box.commands.run("cat", timeout=20).stdout, "", "output of cat without stdin")
        cat = box.commands.run("cat", background=True, stdin=True, timeout=20)
        outputs = iter(cat)
        box.commands.send_stdin(cat.pid, "one ä\n")
        read_until(outputs, "one ä\n".encode())
        cat.send_stdin(b"two\n")
        box.commands.stream_input(cat.pid, ["three\n", b"four\n"])
        box.commands.close_stdin(cat.pid)
        equal(cat.wait().stdout, "one ä\ntwo\nthree\nfour\n", "output of cat")
        raises(NotFoundException, lambda: box.commands.send_stdin(NO_PID, "x"), "unknown pid")

def background():
    command = "read line; echo got $line; exec sleep 600"
    with sandbox() as box:
        first = box.commands.run(command, background=True, stdin=True)
        listed = [found for found in box.commands.list() if found.pid == first.pid]
        got = [(found.cmd, found.args) for found in listed]
        equal(got, [("/bin/bash", ["-l", "-c", command])], "entry of the list")
        equal(box.commands.run(f"kill -0 {first.pid}").exit_code, 0, "kill -0")
        raises(CommandExitException, lambda: box.commands.run(f"kill -0 {NO_PID}"), "kill -0")
        second = Sandbox.connect(box.sandbox_id).commands.connect(first.pid)
        equal(second.pid, first.pid, "pid of the second handle")
        outputs = iter(second)
        first.send_stdin("later\n")
        read_until(outputs, b"got later\n")
        second.disconnect()
        time.sleep(0.3)
        equal(box.commands.run(f"kill -0 {first.pid}").exit_code, 0, "kill -0 after disconnect")
        equal(first.kill(), True, "kill of a running command")
        ended = raises(CommandExitException, first.wait, "wait for a killed command")
        equal((ended.exit_code, ended.stdout), (-1, "got later\n"), "result of a killed command")
        gone(box, first.pid, "end of a killed command")
        equal(box.commands.kill(NO_PID), False, "kill of an unknown pid")
        raises(NotFoundException, lambda: box.commands.connect(NO_PID), "connect to unknown pid")

def streams():
    with sandbox() as box:
        out, err = [], []
        box.commands.run("for i in 1 2 3; do echo ö$i; echo err$i >&2; sleep 0.05; done",
                         on_stdout=out.append, on_stderr=err.append)
        equal("".join(out), "ö1\nö2\nö3\n", "stdout of the callbacks")
        equal("".join(err), "err1\nerr2\nerr3\n", "stderr of the callbacks")
        assert len(out) > 1, f"output comes all at once: {out}"
        size = 5 << 20
        result = box.commands.run(
            f"head -c {size * 3 // 4} /dev/urandom | base64 -w 0 > /tmp/large"
            " && sha256sum /tmp/large >&2 && cat /tmp/large")
        equal(len(result.stdout), size, "length of a large output")
        equal(sha256(result.stdout.encode()), result.stderr.split()[0], "digest of a large output")

def command_timeout():
    with sandbox() as box:
        start = time.monotonic()
        raises(TimeoutException, lambda: box.commands.run("sleep 30", timeout=1), "timeout")
        took = time.monotonic() - start
        assert 0.9 < took < 10, f"timeout of 1 s comes after {took:.1f} s"
        late = box.commands.run("exec sleep 600", background=True, timeout=1)
        raises(TimeoutException, late.wait, "timeout in the background")
        gone(box, late.pid, "end of a command at its timeout")
        equal(box.commands.run("sleep 1; echo on", timeout=30).stdout, "on\n", "later command")

def pty():
    with sandbox() as box:
        options = {"cwd": "/tmp", "envs": {"MARK": "here"}, "timeout": 20}
        shell = box.pty.create(PtySize(rows=24, cols=80), **options)
        outputs = iter(shell)
        send = lambda text: box.pty.send_stdin(shell.pid, text.encode())
        assert shell.pid in [found.pid for found in box.commands.list()], "not in the list"
        send("stty size\n")
        read_until(outputs, b"24 80")
        box.pty.resize(shell.pid, PtySize(rows=40, cols=100))
        send("stty size\n")
        read_until(outputs, b"40 100")
        send('echo "<$PWD $MARK $TERM>"\n')
        read_until(outputs, b"</tmp here xterm-256color>")
        send("exit 7\n")
        ended = raises(CommandExitException, shell.wait, "exit 7")
        equal(ended.exit_code, 7, "exit code of the shell")

        killed = box.pty.create(PtySize(rows=24, cols=80))
        equal(box.pty.kill(killed.pid), True, "kill of a shell")
        ended = raises(CommandExitException, killed.wait, "wait for a killed shell")
        equal(ended.exit_code, -1, "exit code of a killed shell")
        equal(box.pty.kill(NO_PID), False, "kill of an unknown pid")

def files():
    with sandbox() as box:
        for part in (files_content, files_tree, files_info, files_errors, files_large):
            part(box, box.files)

def files_content(box, files):
    written = files.write("hello.txt", "grüße\n")
    got = (written.name, written.type, written.path)
    equal(got, ("hello.txt", FileType.FILE, f"{HOME}/hello.txt"), "answer to a write")
    equal(files.read("hello.txt"), "grüße\n", "text by a relative path")
    equal(box.commands.run(f"cat {HOME}/hello.txt").stdout, "grüße\n", "text inside")
    files.write("hello.txt", "x")
    equal(files.read(f"{HOME}/hello.txt"), "x", "text after a shorter write")
    files.write("empty", "")
    equal(files.read("empty"), "", "text of an empty file")
    every = bytes(range(256)) * 3
    files.write("/tmp/bytes", every)
    equal(bytes(files.read("/tmp/bytes", format="bytes")), every, "bytes")
    odd = f"{HOME}/new/nested/a b+c&d%20é;\"'.txt"
    equal(files.write(odd, "odd").path, odd, "path with odd characters")
    equal(files.read(odd), "odd", "text by a path with odd characters")
    owner = box.commands.run("stat -c '%U %a' new new/nested").stdout
    equal(owner, "user 755\nuser 755\n", "owner and mode of new directories")
    paths = [f"{HOME}/many/one.txt", f"{HOME}/many/two/two é.txt"]
    many = files.write_files([{"path": path, "data": path} for path in paths])
    equal([entry.path for entry in many], paths, "paths of a write of many")
    equal([files.read(path) for path in paths], paths, "texts of many")

def files_tree(_, files):
    top = f"{HOME}/tree"
    equal(files.make_dir(f"{top}/a/b"), True, "make_dir")
    equal(files.make_dir(f"{top}/a/b"), False, "make_dir of what is there")
    files.write(f"{top}/a/b/deep", "")
    files.write(f"{top}/f", "12345")
    list_ = lambda **depth: [(found.path, found.type) for found in files.list(top, **depth)]
    a, b, f = (f"{top}/a", FileType.DIR), (f"{top}/a/b", FileType.DIR), (f"{top}/f", FileType.FILE)
    equal(list_(), [a, f], "list")
    equal(list_(depth=2), [a, b, f], "list of depth 2")
    moved = files.rename(f"{top}/f", f"{top}/g")
    equal((moved.name, moved.path, moved.size), ("g", f"{top}/g", 5), "answer to a rename")
    equal((files.exists(f"{top}/f"), files.exists(f"{top}/g")), (False, True), "exists")
    files.remove(f"{top}/g")
    files.remove(f"{top}/a")
    equal(list_(), [], "list after removals")
    files.remove(f"{top}/no")

def files_info(box, files):
    files.write("info.txt", "12345")
    info = files.get_info("info.txt")
    got = (info.name, info.path, info.type, info.size, info.mode, info.permissions, info.owner)
    want = ("info.txt", f"{HOME}/info.txt", FileType.FILE, 5, 0o644, "-rw-r--r--", "user")
    equal(got, want, "information on a file")
    seconds = int(box.commands.run("stat -c %Y info.txt").stdout)
    got = (int(info.modified_time.timestamp()), info.symlink_target)
    equal(got, (seconds, None), "time of the last change, target")
    files.make_dir("directory")
    info = files.get_info("directory")
    got = (info.type, info.mode, info.permissions, info.owner)
    equal(got, (FileType.DIR, 0o755, "drwxr-xr-x", "user"), "information on a directory")
    box.commands.run("chmod 750 info.txt && ln -s info.txt link")
    info = files.get_info("link")
    got = (info.name, info.path, info.type, info.mode, info.symlink_target)
    want = ("link", f"{HOME}/link", FileType.FILE, 0o750, f"{HOME}/info.txt")
    equal(got, want, "information on a symbolic link")

def files_errors(_, files):
    files.write("plain", "")
    for what, kind, call in [
        ("read of nothing", FileNotFoundException, lambda: files.read("missing")),
        ("read of a directory", InvalidArgumentException, lambda: files.read("/tmp")),
        ("information on nothing", FileNotFoundException, lambda: files.get_info("missing")),
        ("list of nothing", FileNotFoundException, lambda: files.list("missing")),
        ("list of a file", InvalidArgumentException, lambda: files.list("plain")),
        ("rename of nothing", FileNotFoundException, lambda: files.rename("missing", "to")),
        ("make_dir of a file", InvalidArgumentException, lambda: files.make_dir("plain")),
        ("write to a directory", InvalidArgumentException, lambda: files.write("/tmp", "x")),
    ]:
        raises(kind, call, what)

def files_large(box, files):
    data = os.urandom(20 << 20)
    for how, body, options in [
        ("compressed", data, {"gzip": True}), ("as a stream", io.BytesIO(data), {}),
        ("at once", data, {}),
    ]:
        files.write("large", "")
        files.write("large", body, **options)
        inside = box.commands.run("sha256sum large").stdout
        equal(inside.split()[0], sha256(data), f"digest inside of 20 MiB sent {how}")
    equal(sha256(files.read("large", format="bytes")), sha256(data), "digest of 20 MiB read")
    with files.read("large", format="stream") as chunks:
        equal(sha256(b"".join(chunks)), sha256(data), "digest of 20 MiB read as a stream")

def signed_urls():
    path = f"{HOME}/signed é.txt"
    status = lambda url: HTTP.get(url).status_code
    post = lambda url: HTTP.post(url, files={"file": ("any.txt", b"sent")}).status_code
    lasting, past = {"use_signature_expiration": 300}, {"use_signature_expiration": -10}
    with sandbox() as box, sandbox() as other:
        box.files.write(path, "secret")
        other.files.write(path, "of another")
        for options in ({}, {"user": "user"}, lasting):
            answer = HTTP.get(box.download_url(path, **options))
            equal((answer.status_code, answer.text), (200, "secret"), "signed download")
        equal(HTTP.get(other.download_url(path)).text, "of another", "download of another sandbox")
        equal(post(box.upload_url(f"{HOME}/up/form.txt")), 200, "upload of a form")
        equal(box.files.read("up/form.txt"), "sent", "text of an uploaded form")

        expired = HTTP.get(box.download_url(path, **past))
        equal(expired.status_code, 401, "status of an expired download")
        want = {"code": 401, "message": "signature is already expired"}
        equal(expired.json(), want, "answer to an expired download")
        good = httpx.URL(box.download_url(path, **lasting))
        for name, value in [
            ("signature", "v1_" + "A" * 43), ("path", "/etc/passwd"), ("username", "root"),
            ("signature_expiration", int(time.time()) + 9000),
        ]:
            changed = good.copy_set_param(name, value)
            equal(status(changed), 401, f"status of a download with another {name}")
        equal(status(box.upload_url(path)), 401, "download with an upload URL")
        equal(post(box.upload_url(path, **past)), 401, "expired upload")
        equal(post(good), 401, "upload with a download URL")
        equal(box.files.read(path), "secret", "text after refused uploads")

def watch():
    with sandbox() as box:
        files = box.files
        files.make_dir("top/sub")
        flat, deep = files.watch_dir("top"), files.watch_dir("top", recursive=True)
        events = lambda handle: [
            f"{event.type.value} {event.name}" for event in handle.get_new_events()]
        files.write("top/sub/inner", "1")
        want = ["create sub/inner", "chmod sub/inner", "write sub/inner"]
        equal(events(deep), want, "events of a file below")
        files.write("top/file", "1")
        got = [event for event in events(flat) if not event.endswith(" sub")]
        equal(got, ["create file", "chmod file", "write file"], "events of a file")

        def see(handle, *wanted):
            seen = []
            poll(lambda: seen.extend(events(handle)) or {*wanted} <= {*seen}, f"events {wanted}")
        box.commands.run("cd top && mv file moved && echo 2 >> moved && rm moved")
        see(flat, "rename file", "create moved", "write moved", "remove moved")
        files.make_dir("top/late")
        see(deep, "create late")
        files.write("top/late/new", "1")
        see(deep, "write late/new")
        files.remove("top/sub/inner")
        see(deep, "remove sub/inner")
        flat.stop()
        raises(SandboxException, flat.get_new_events, "events of a stopped watch")
        deep.stop()
        raises(FileNotFoundException, lambda: files.watch_dir("no"), "watch of nothing")
        files.write("file", "")
        raises(InvalidArgumentException, lambda: files.watch_dir("file"), "watch of a file")

def life_cycle():
    tag = uuid.uuid4().hex
    odd = {"a b": f"c&d={tag}", "ä+%": "1/2"}
    with sandbox(metadata=odd) as box:
        life_cycle_info(box, odd)
        life_cycle_list(tag)
        equal((box.is_running(), box.kill()), (True, True), "running, killed")
        equal((box.is_running(), box.kill()), (False, False), "running, killed again")
        for what, kind, call in [
            ("get_info", SandboxNotFoundException, box.get_info),
            ("connect", SandboxNotFoundException, lambda: Sandbox.connect(box.sandbox_id)),
            ("set_timeout", SandboxNotFoundException, lambda: box.set_timeout(60)),
            ("command", SandboxNotRunningException, lambda: box.commands.run("true")),
            ("read", SandboxNotRunningException, lambda: box.files.read("x")),
        ]:
            raises(kind, call, f"{what} of a killed sandbox")
        equal(listed(SandboxQuery(metadata=odd)), [], "list after the kill")
    with sandbox(timeout=2) as brief:
        equal(brief.is_running(), True, "running at first")
        poll(lambda: not brief.is_running(), "end of a sandbox of 2 s")
        raises(SandboxNotFoundException, brief.get_info, "get_info after the timeout")

def life_cycle_info(box, metadata):
    second = Sandbox.connect(box.sandbox_id)
    second.files.write("shared", "by the second")
    equal(box.commands.run("cat shared").stdout, "by the second", "text of the second object")
    info = second.get_info()
    got = (info.sandbox_id, info.metadata, info.state, info.envd_version)
    equal(got, (box.sandbox_id, metadata, SandboxState.RUNNING, "0.6.13"), "information")
    left = lambda: (box.get_info().end_at - datetime.now(timezone.utc)).total_seconds()
    for seconds in (3000, 300):
        box.set_timeout(seconds)
        assert abs(left() - seconds) < 60, f"{left()} s left, not {seconds}"
    Sandbox.connect(box.sandbox_id, timeout=10)
    assert left() > 200, f"connect shortens the timeout to {left()} s"
    equal(listed(SandboxQuery(metadata=metadata)), [box.sandbox_id], "list by metadata")
    other = SandboxQuery(metadata=metadata | {"a b": "c"})
    equal(listed(other), [], "list by other metadata")
    paused = SandboxQuery(metadata=metadata, state=[SandboxState.PAUSED])
    equal(listed(paused), [], "list of paused sandboxes")

def life_cycle_list(tag):
    group = {"group": tag}
    with sandbox(metadata=group) as a, sandbox(metadata=group) as b, sandbox(metadata=group) as c:
        ids = [box.sandbox_id for box in (a, b, c)]
        query = SandboxQuery(metadata=group)
        equal(listed(query, limit=1), ids[::-1], "list by pages of one")
        equal(listed(query, limit=1, order="asc"), ids, "list by pages, oldest first")
        equal(listed(query, limit=2), ids[::-1], "list by pages of two")

def listed(query, limit=None, order=None):
    """Returns the ids of all pages of a list."""
    pages, ids = Sandbox.list(query=query, limit=limit, order=order), []
    while pages.has_next:
        page = pages.next_items()
        assert limit is None or len(page) <= limit, f"{len(page)} on a page of {limit}"
        ids += [found.sandbox_id for found in page]
    return ids

def pause_and_go_on():
    with sandbox(envs={"NAME": "value"}) as box:
        box.files.write("kept", "text")
        equal(box.pause(), True, "pause")
        equal(box.pause(), False, "second pause")
        equal(box.get_info().state, SandboxState.PAUSED, "state")
        equal(box.is_running(), False, "running while paused")
        again = Sandbox.connect(box.sandbox_id, timeout=60)
        equal(again.commands.run("cat kept; echo $NAME").stdout, "textvalue\n", "output after the pause")
        equal(box.commands.run("cat kept").stdout, "text", "output by the first object")
    with sandbox(timeout=2, lifecycle={"on_timeout": "pause", "auto_resume": True}) as brief:
        brief.files.write("kept", "text")
        equal(brief.get_info().state, SandboxState.RUNNING, "state at first")
        poll(lambda: brief.get_info().state == SandboxState.PAUSED, "pause at the timeout")
        equal(brief.files.read("kept"), "text", "text that wakes it")

def snapshots_and_forks():
    with sandbox() as box:
        box.files.write("kept", "first")
        made = box.create_snapshot()
        box.files.write("kept", "second")
        with sandbox(template=made.snapshot_id) as other:
            equal(other.files.read("kept"), "first", "text of the snapshot")
        equal([one.snapshot_id for one in box.list_snapshots().next_items()], [made.snapshot_id], "list")
        equal(Sandbox.delete_snapshot(made.snapshot_id), True, "deletion")
        equal(Sandbox.delete_snapshot(made.snapshot_id), False, "second deletion")
        for fork in box.fork(count=2):
            equal(fork.files.read("kept"), "second", "text of the fork")
            equal(fork.kill(), True, "kill of the fork")

def kill_during_command():
    ready = threading.Event()
    with sandbox() as box, ThreadPoolExecutor() as pool:
        command = pool.submit(box.commands.run, "echo ready; exec sleep 50",
                              on_stdout=lambda _: ready.set())
        assert ready.wait(30), "command does not start"
        equal(box.kill(), True, "kill")
        poll(command.done, "end of the command", 5)
        error = command.exception()
        assert isinstance(error, SandboxNotRunningException), f"command ends with {error!r}"
        equal(box.is_running(), False, "running")

def parallel():
    def one(number):
        with sandbox() as box:
            return box.commands.run(f"echo {number}").stdout, box.sandbox_id
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(one, range(8)))
    equal([output for output, _ in got], [f"{number}\n" for number in range(8)], "outputs")
    equal(len({id_ for _, id_ in got}), 8, "number of ids")

def wrong_key():
    wrong = {"api_key": WRONG_KEY}
    with sandbox() as box:
        for what, call in [
            ("create", lambda: Sandbox.create(timeout=10, **wrong)),
            ("list", lambda: Sandbox.list(**wrong).next_items()),
            ("connect", lambda: Sandbox.connect(box.sandbox_id, **wrong)),
            ("kill", lambda: Sandbox.kill(box.sandbox_id, **wrong)),
        ]:
            raises(AuthenticationException, call, f"{what} with a wrong key")
        equal(box.is_running(), True, "running after a kill with a wrong key")
        url = os.environ["E2B_SANDBOX_URL"] + "/process.Process/List"
        headers = {"E2b-Sandbox-Id": box.sandbox_id, "E2b-Sandbox-Port": "49983"}
        for token in ({}, {"X-Access-Token": "wrong"}):
            answer = HTTP.post(url, json={}, headers=headers | token)
            equal(answer.status_code, 401, "status of a call with a wrong token")

def refused_fields():
    for what, options in [
        ("mcp", {"mcp": {"time": {}}}),
        ("iam", {"iam": {"tokens": {"t": {"audience": "a", "token_type": "JWT-SVID"}}}}),
        ("volume_mounts", {"volume_mounts": {"/mnt": "no-such-volume"}}),
        ("template", {"template": "no-such-template"}),
    ]:
        def create():
            with sandbox(timeout=10, **options) as box:
                return box.sandbox_id
        error = raises(SandboxException, create, f"create with {what}")
        print(f"refused_fields: {what}: {error}", file=sys.stderr)
        status = error.status_code
        assert status is not None and 400 <= status < 500, f"{what}: status {status}: {error}"
    with sandbox() as box:
        equal(box.commands.run("echo on").stdout, "on\n", "command after refusals")

CHECKS = [
    create_run, environment, stdin, background, streams, command_timeout, pty, files,
    signed_urls, watch, life_cycle, pause_and_go_on, snapshots_and_forks, kill_during_command, parallel, wrong_key, refused_fields,
]

def main(names):
    checks = {check.__name__: check for check in CHECKS}
    if unknown := [name for name in names if name not in checks]:
        sys.exit(f"no check is called {', '.join(unknown)}; there are {', '.join(checks)}")
    failed = False
    for name in names or checks:
        try:
            checks[name]()
        except Exception as error:
            failed = True
            traceback.print_exc()
            why = " ".join(f"{type(error).__name__}: {error}".split())
            print(f"failed {name}: {why}", flush=True)
        else:
            print(f"ok {name}", flush=True)
    sys.exit(failed)

if __name__ == "__main__":
    main(sys.argv[1:])
