"""Templates that are built: by steps, from images of registries, for whom, and what attacks of those
images come to. E2B's own SDK builds them.

Starts servers itself: reads ATOLL, CONFIG and the environment that they begin with. Prints `ok NAME`
or `failed NAME: why` for each check, and exits 1 if one failed.
"""

import http.client
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import traceback
from urllib.parse import urlsplit

from e2b import Sandbox, Template
from e2b.exceptions import BuildException, NotFoundException, SandboxException

CONFIG = os.path.join(os.environ["CONFIG"], "atoll", "serve.toml")
TOML = """
images = ["git.example", "unknown.example"]
[defaults]
disk_mib = 300
"""


class Server:
    """A server, with the key that it makes, or the one of the server before."""

    def __init__(self, key=None):
        os.makedirs(os.path.dirname(CONFIG), exist_ok=True)
        with open(CONFIG, "w") as file:
            file.write(TOML)
        self.process = subprocess.Popen(
            [os.environ["ATOLL"], "serve", "--listen", "127.0.0.1:0"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        told = ""
        while "Ctrl-C" not in told:
            line = self.process.stdout.readline()
            assert line, told
            told += line
        self.at = re.search(r"E2B_API_URL=(\S+)", told)[1]
        self.key = key or re.search(r"E2B_API_KEY=(\S+)", told)[1]
        self.options = {"api_url": self.at, "sandbox_url": self.at, "api_key": self.key}

    def ask(self, method, path, body=None, key=None):
        at = urlsplit(self.at)
        connection = http.client.HTTPConnection(at.hostname, at.port, timeout=60)
        text = json.dumps(body) if body is not None else None
        connection.request(method, path, text, {"X-API-Key": key or self.key})
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text[:1] in (b"{", b"[") else text

    def build(self, template, name, **more):
        """Builds a template; returns its id and the lines of the log."""
        lines = []
        built = Template.build(
            template, name=name, on_build_logs=lambda line: lines.append(line.message),
            **more, **self.options)
        return built.template_id, lines

    def fails(self, template, name):
        """Builds a template that cannot be built; returns why."""
        try:
            self.build(template, name)
        except BuildException as error:
            return str(error)
        raise AssertionError("it was built")

    def made(self, template, **more):
        return Sandbox.create(template, **more, **self.options)

    def end(self, how=signal.SIGINT):
        self.process.send_signal(how)
        self.process.wait(60)

    def files(self):
        """Returns all files of layers that the server keeps on its host."""
        found = []
        for top, _, names in os.walk(layers()):
            found += [os.path.join(top, name) for name in names]
        return found


def layers():
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.environ["HOME"], ".local/state")
    return os.path.join(state, "atoll/served/layers")


def context(**files):
    """Makes a directory with these files."""
    place = tempfile.mkdtemp()
    for name, text in files.items():
        path = os.path.join(place, name.replace("__", "/"))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
    return place


def steps_make_a_template(server):
    place = context(one="1\n", many__two="2\n", many__three="3\n")
    template = (
        Template(file_context_path=place).from_base_image()
        .copy("one", "/app/").copy("many", "/app/all", mode=0o700).copy("one", "/home/user/named")
        .set_envs({"GREETING": "hello", "TOP": "/app"}).set_envs({"PATH": "$TOP/bin:${PATH}", "EMPTY": "[$NONE]"})
        .set_workdir("$TOP/work")
        .run_cmd("echo $GREETING > greeted; id -un > who")
        .run_cmd("echo root > /usr/local/made; echo x > /etc/made; mkdir /srv/made", user="root"))
    _, lines = server.build(template, "steps")
    assert "RUN echo $GREETING > greeted; id -un > who" in lines, lines
    with server.made("steps") as sandbox:
        run = lambda command, **more: sandbox.commands.run(command, **more).stdout
        assert run("id -un; pwd; echo $GREETING") == "user\n/app/work\nhello\n"
        assert run("echo $EMPTY; python3 -c 'import os; print(os.environ[\"TOP\"])'") == "[]\n/app\n"
        assert run("cat greeted who /usr/local/made /etc/made; ls -d /srv/made") == (
            "hello\nuser\nroot\nx\n/srv/made\n")
        assert run("cat /app/one /app/all/two /app/all/three ~/named; stat -c %a /app/all/two") == (
            "1\n2\n3\n1\n700\n")
        assert run("id -u; cd; pwd", user="root") == "0\n/root\n"
        assert run("touch /usr/mine && stat -c %U /usr/mine", user="root") == "root\n"
        assert run("touch /usr/not 2>&1 || true").count("denied") == 1
        assert run("cat /proc/self/status | grep CapEff", user="root").endswith("fb\n")
        assert run("id -u", user="12345") == "12345\n"
        sandbox.files.write("/opt/written", "by the file API")
        assert run("stat -c %U /opt/written; cat /opt/written") == "user\nby the file API"
        # Another one has none of that.
        with server.made("steps") as other:
            assert other.commands.run("ls /usr/mine /opt/written 2>&1 || true").stdout.count("No such") == 2


def a_failure_names_its_step(server):
    template = Template().from_base_image().run_cmd("true").run_cmd("echo why >&2; exit 7")
    status, asked = server.ask("POST", "/v3/templates", {"name": "fails"})
    assert status == 202, asked
    at = f"/v2/templates/{asked['templateID']}/builds/{asked['buildID']}"
    steps = [{"type": "RUN", "args": [one]} for one in ("true", "echo why >&2; exit 7")]
    assert server.ask("POST", at, {"steps": steps})[0] == 202
    at = at.replace("/v2", "") + "/status"
    while (told := server.ask("GET", at)[1])["status"] in ("building", "waiting"):
        time.sleep(0.1)
    assert told["status"] == "error" and told["reason"]["step"] == "2", told
    assert "exit status 7" in told["reason"]["message"] and "why" in told["logs"], told
    assert "exit status 7" in server.fails(template, "fails")
    assert server.ask("GET", "/templates/aliases/fails")[0] == 404
    started = Template().from_base_image().set_start_cmd("exit 3", "false")
    assert "the start command has failed: exit status 3 (step finalize)" in server.fails(started, "fails")
    for steps in ([{"type": "MOUNT", "args": ["x"]}], [{"type": "ENV", "args": ["x"]}], [{"type": "RUN"}]):
        status, asked = server.ask("POST", "/v3/templates", {"name": "wrong"})
        at = f"/v2/templates/{asked['templateID']}/builds/{asked['buildID']}"
        assert server.ask("POST", at, {"steps": steps})[0] == 400


def the_same_is_not_built_again(server):
    place = context(file="1\n")
    template = lambda: Template(file_context_path=place).from_base_image().copy("file", "/app/")
    server.build(template(), "same")
    _, lines = server.build(template(), "same-again")
    assert any("CACHED" in line for line in lines), lines
    assert server.made("same-again").commands.run("cat /app/file").stdout == "1\n"
    _, lines = server.build(template(), "same-again", skip_cache=True)
    assert not any("CACHED" in line for line in lines), lines
    # What a client calls its files says nothing about them: the same name with other content.
    for text in ("2\n", "3\n"):
        status, asked = server.ask("POST", "/v3/templates", {"name": "poisoned"})
        id, build = asked["templateID"], asked["buildID"]
        status, link = server.ask("GET", f"/templates/{id}/files/{'0' * 64}")
        assert (status, link["present"]) == (201, False), link
        packed = subprocess.run(
            ["tar", "-czf", "-", "-C", context(file=text), "file"], capture_output=True, check=True)
        at = urlsplit(link["url"])
        connection = http.client.HTTPConnection(at.hostname, at.port)
        connection.request("PUT", f"{at.path}?{at.query}", packed.stdout)
        assert connection.getresponse().status == 200
        wrong = http.client.HTTPConnection(at.hostname, at.port)
        wrong.request("PUT", f"{at.path}?token=wrong", packed.stdout)
        assert wrong.getresponse().status == 404
        step = {"type": "COPY", "args": ["file", "/app/", "", ""], "filesHash": "0" * 64}
        assert server.ask("POST", f"/v2/templates/{id}/builds/{build}", {"steps": [step]})[0] == 202
        while server.ask("GET", f"/templates/{id}/builds/{build}/status")[1]["status"] == "building":
            time.sleep(0.1)
        assert server.made("poisoned").commands.run("cat /app/file").stdout == text


def templates_stand_on_templates(server):
    server.build(Template().from_base_image().run_cmd("echo 1 > /opt/first; echo 1 > /opt/both", user="root"), "lower")
    upper = (Template().from_template("lower")
             .run_cmd("rm /opt/first; echo 2 > /opt/both; rm -r /var/log; mkdir /var/log; touch /var/log/own", user="root")
             .set_start_cmd("sleep 0.3; touch ~/started; sleep 1000", "test -e ~/started"))
    server.build(upper, "upper")
    with server.made("upper") as sandbox:
        told = sandbox.commands.run("ls /opt/first 2>&1; cat /opt/both; ls /var/log; ls ~/started; pgrep sleep | wc -l").stdout
        assert "No such" in told and told.endswith("2\nown\n/home/user/started\n1\n"), told


def places_at_the_root_are_those_of_its_steps(server):
    place = context(one="1\n", many__two="2\n")
    template = (
        Template(file_context_path=place).from_base_image().set_envs({"AT": "/somewhere"})
        .copy("one", "/copied/").copy("many", "/whole").set_workdir("$AT/deep").run_cmd("echo made > made"))
    server.build(template, "places")
    server.build(Template().from_template("places").set_workdir("/further").run_cmd("touch x"), "further")
    with server.made("further") as sandbox:
        run = lambda command, **more: sandbox.commands.run(command, **more).stdout
        assert run("cat /copied/one /whole/two /somewhere/deep/made; ls /further; echo own > /somewhere/deep/own") == "1\n2\nmade\nx\n"
        # What is at the root stays there, and nothing else can be made there.
        assert run("rmdir /app 2>&1; mv /data /moved 2>&1; mkdir /new 2>&1; rm -r /whole/two; rmdir /whole 2>&1 || true", user="root").count("/") >= 4
        assert run("ls -d /app /data /whole /new 2>&1 || true").count("No such") == 1
        sandbox.pause()
        sandbox = Sandbox.connect(sandbox.sandbox_id, **server.options)
        assert sandbox.commands.run("cat /somewhere/deep/own; ls /whole").stdout == "own\n"


def what_only_root_may_read_is_not_shown(server):
    """Whether it was there when the template was made, or came since."""
    if os.geteuid() != 0:
        return
    mark = f"atoll-test-{os.getpid()}"
    places = [f"/opt/{mark}", f"/usr/local/{mark}", f"/etc/{mark}", f"/var/lib/dpkg/{mark}"]
    read = "; ".join(f"cat {at}/before/* {at}/since/* 2>&1" for at in places) + "; true"

    def plant(when):
        for at in places:
            os.makedirs(f"{at}/{when}")
            for name, mode in (("open", 0o644), ("closed", 0o600)):
                with open(f"{at}/{when}/{name}", "w") as file:
                    file.write(f"{name} {when}\n")
                os.chmod(f"{at}/{when}/{name}", mode)

    try:
        plant("before")
        server.build(Template().from_base_image().run_cmd("true"), "secrets")
        for when in ("before", "since"):
            if when == "since":
                plant("since")
            with server.made("secrets") as sandbox:
                told = sandbox.commands.run(read, user="root").stdout
                assert "closed" not in told.replace("/closed", ""), told
                # The positive control: what everybody may read.
                assert told.count("open before\n") == len(places), told
                # What is a layer over the host's shows it; a copy does not.
                assert told.count("open since\n") == (2 if when == "since" else 0), told
    finally:
        for at in places:
            shutil.rmtree(at, ignore_errors=True)


def templates_of_an_earlier_form_are_no_more(server):
    server.build(Template().from_base_image().run_cmd("true"), "earlier")
    server.end()
    store = sqlite3.connect(os.path.join(os.path.dirname(layers()), "../serve.sqlite"))
    ((record,),) = store.execute("SELECT record FROM templates WHERE name = 'earlier'").fetchall()
    record = json.loads(record)
    assert record["form"] == 1, record
    record["form"] = 0
    store.execute("UPDATE templates SET record = ? WHERE name = 'earlier'", [json.dumps(record)])
    store.commit()
    store.close()
    again = Server(server.key)
    try:
        assert again.ask("GET", "/templates/earlier")[0] == 404
        again.build(Template().from_base_image().run_cmd("echo 2 > /opt/two", user="root"), "earlier")
        assert again.made("earlier").commands.run("cat /opt/two").stdout == "2\n"
    finally:
        again.end()


def pauses_snapshots_and_forks_keep_roots_changes(server):
    server.build(Template().from_base_image().run_cmd("echo 1 > /opt/one", user="root"), "rooted")
    sandbox = server.made("rooted")
    sandbox.commands.run("echo kept > /usr/local/kept; rm /opt/one; chmod 700 /srv; echo 1 > /srv/x", user="root")
    for keeps_memory in (True, False, True):
        sandbox.pause(keep_memory=keeps_memory)
        sandbox = Sandbox.connect(sandbox.sandbox_id, **server.options)
        told = sandbox.commands.run("cat /usr/local/kept /srv/x; ls /opt/one 2>&1 || true", user="root").stdout
        assert told.startswith("kept\n1\n") and "No such" in told, told
    snapshot = sandbox.create_snapshot()
    sandbox.commands.run("echo later > /usr/local/kept", user="root")
    with server.made(snapshot.snapshot_id) as other:
        assert other.commands.run("cat /usr/local/kept").stdout == "kept\n"
        assert other.commands.run("id -u; cat /srv/x", user="root").stdout == "0\n1\n"
    forks = sandbox.fork()
    assert forks[0].commands.run("cat /usr/local/kept").stdout == "later\n"
    # One that is paused shares its system and its home with its forks.
    sandbox.commands.run("echo latest > /usr/local/kept; rm -r /srv/x; mkdir /srv/x; mv /srv/x /srv/y", user="root")
    sandbox.pause(keep_memory=False)
    status, told = server.ask("POST", f"/sandboxes/{sandbox.sandbox_id}/fork", {})
    assert status == 201, told
    fork = Sandbox.connect(told[0]["sandbox"]["sandboxID"], **server.options)
    forks.append(fork)
    assert fork.commands.run("cat /usr/local/kept; ls /srv; ls -d /srv/x /opt/one 2>&1 || true", user="root").stdout.startswith("latest\ny\nls:")
    fork.commands.run("echo fork > /usr/local/kept; touch ~/fork", user="root")
    sandbox = Sandbox.connect(sandbox.sandbox_id, **server.options)
    assert sandbox.commands.run("cat /usr/local/kept; ls /home/user; ls /srv", user="root").stdout == "latest\ny\n"
    # Nothing goes away beneath a sandbox, or a snapshot.
    assert server.ask("DELETE", "/templates/rooted")[0] == 409
    for one in [sandbox, *forks]:
        one.kill()
    assert server.ask("DELETE", "/templates/rooted")[0] == 409
    Sandbox.delete_snapshot(snapshot.snapshot_id, **server.options)
    assert server.ask("DELETE", "/templates/rooted")[0] == 204
    assert server.ask("GET", "/templates/rooted")[0] == 404
    # One that is paused goes on with what its template was.
    build = lambda text: server.build(
        Template().from_base_image().run_cmd(f"echo {text} > /opt/version", user="root"), "changed")
    build("1")
    sandbox = server.made("changed")
    sandbox.pause(keep_memory=False)
    build("2")
    with server.made("changed") as other:
        assert other.commands.run("cat /opt/version").stdout == "2\n"
    sandbox = Sandbox.connect(sandbox.sandbox_id, **server.options)
    assert sandbox.commands.run("cat /opt/version").stdout == "1\n"


def an_image_is_a_template(server):
    template = (
        Template().from_image("git.example/box:1")
        .run_cmd("id -un; cat ~/own; echo $OF_IMAGE")
        .run_cmd("cat /etc/replaced; ls /etc/removed /opt/gone 2>&1; stat -c '%u %g' /srv/owned; echo new > /etc/new", user="root"))
    _, lines = server.build(template, "box")
    for expected in ("user", "of the image", "yes", "2", "1234 1234"):
        assert expected in lines, (expected, lines)
    assert sum("No such" in line for line in lines) == 2, lines
    with server.made("box") as sandbox:
        run = lambda command, **more: sandbox.commands.run(command, **more).stdout
        assert run("cat ~/own /etc/new; echo $OF_IMAGE; ls /usr; touch ~/writable") == "of the image\nnew\nyes\nbin\n"
        assert run("id -u", user="owner") == "1234\n"
        assert "localhost" in run("cat /etc/hosts")
        # Nothing of the host's system is there, and set-id bits mean nothing.
        assert run("ls /usr/bin /lib /sbin 2>&1 || true").count("No such") == 2
        assert run("busybox id -u") == "1000\n"
    # Its files are there already.
    _, lines = server.build(Template().from_image("git.example/box:1").run_cmd("true"), "box-again")
    assert any("CACHED" in line for line in lines), lines
    assert "404" in server.fails(Template().from_image("git.example/none:1"), "none")
    told = server.fails(Template().from_image("example.com/box:1"), "elsewhere")
    assert "cannot be had" in told, told


def atoll(server, *words):
    """Runs the command with the server's key; returns its status, output and errors."""
    named = dict(os.environ, ATOLL_URL=server.at, ATOLL_API_KEY=server.key)
    done = subprocess.run([os.environ["ATOLL"], *words], env=named, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def a_dockerfile_is_built_by_the_command(server):
    with tempfile.TemporaryDirectory() as place:
        files = {
            "sub/a": "a\n", "sub/left.log": "", "sub/kept.log": "", ".env": "secret",
            ".dockerignore": "# what is no part of it\n.env\n**/*.log\n!sub/kept.log\n",
            "Dockerfile": """
                ARG FROM=e2bdev/base
                FROM ${FROM}
                ENV GREETING="hello there"
                RUN mkdir -p /things && \\
                    id -un > /things/by
                WORKDIR /app
                COPY . .
                COPY --chown=user:user --chmod=600 sub/a /things/
                RUN <<EOF
                echo "$GREETING" > /things/said
                EOF
                USER user
                CMD ["run"]
            """.replace("                ", ""),
        }
        for name, text in files.items():
            os.makedirs(os.path.dirname(os.path.join(place, name)), exist_ok=True)
            with open(os.path.join(place, name), "w") as file:
                file.write(text)
        path = os.path.join(place, "Dockerfile")
        status, out, said = atoll(server, "template", "build", "filed", "--file", path)
        assert status == 0 and "RUN mkdir -p /things" in said and "left out: CMD" in said, said
        with server.made("filed") as sandbox:
            told = sandbox.commands.run("pwd; id -un; cat /things/by /things/said; stat -c '%a %U' /things/a; find . | sort").stdout
            assert told == "/app\nuser\nroot\nhello there\n600 user\n.\n./.dockerignore\n./Dockerfile\n./sub\n./sub/a\n./sub/kept.log\n", told
        assert out.strip() == server.ask("GET", "/templates/filed")[1]["templateID"]
        # A step that fails, and files that are not taken.
        for text, expected in (
            ("FROM e2bdev/base\nRUN mkdir /here", ("step 3", "mkdir -p /x")),
            ("FROM e2bdev/base\nCOPY none /x/", ("nothing is called none",)),
            ("FROM e2bdev/base\nCOPY --from=other a b", ("Dockerfile:2: COPY --from is not offered", "one stage")),
        ):
            with open(path, "w") as file:
                file.write(text)
            status, out, said = atoll(server, "template", "build", "fails", "--file", path)
            assert status == 125 and out == "" and all(part in said for part in expected), (text, said)
        assert server.ask("GET", "/templates/fails")[0] == 404


def a_layout_on_disk_is_a_template(server):
    layout = os.environ["LAYOUT"]
    status, _, said = atoll(server, "template", "build", "laid", "--from", f"oci:{layout}:box")
    assert status == 0, said
    with server.made("laid") as sandbox:
        run = lambda command, **more: sandbox.commands.run(command, **more).stdout
        assert run("cat ~/own /etc/replaced; echo $OF_IMAGE; ls /usr /etc/removed 2>&1 || true").startswith("of the image\n2\nyes\n")
        assert run("id -u", user="owner") == "1234\n"
    # One image needs no name, and its files are there already, by its digest.
    status, _, said = atoll(server, "template", "build", "laid-again", "--from", f"oci:{layout}")
    assert status == 0 and "CACHED" in said, said
    with tempfile.TemporaryDirectory() as place:
        with open(os.path.join(place, "Dockerfile"), "w") as file:
            file.write("FROM oci:lay:box\nENV PATH=/srv/bin:$PATH\n"
                       "RUN mkdir -p /srv/bin && printf '#!/bin/sh\\necho found' > /srv/bin/mine && chmod 755 /srv/bin/mine\n"
                       "RUN mine > /srv/seen; cat /etc/replaced >> /srv/seen\n")
        shutil.copytree(layout, os.path.join(place, "lay"), symlinks=True)
        status, _, said = atoll(server, "template", "build", "laid-on", "--file", os.path.join(place, "Dockerfile"))
        assert status == 0, said
        with server.made("laid-on") as sandbox:
            assert sandbox.commands.run("cat /srv/seen; mine").stdout == "found\n2\nfound\n"
        id = json.loads(atoll(server, "sandbox", "create", "--template", "laid-on", "--json")[1])["sandbox"]["id"]
        assert atoll(server, "sandbox", "exec", id, "--", "mine")[1] == "found\n"
        assert server.ask("DELETE", f"/v1/sandboxes/{id}")[0] == 200
        with open(os.path.join(place, "Dockerfile"), "w") as file:
            file.write("FROM atoll/laid-on\nRUN cat /srv/seen")
        status, _, said = atoll(server, "template", "build", "laid-on-that", "--file", os.path.join(place, "Dockerfile"))
        assert status == 0 and "found" in said, said
        with open(os.path.join(place, "Dockerfile"), "w") as file:
            file.write(f"FROM oci:{layout}:box")
        status, _, said = atoll(server, "template", "build", "none", "--file", os.path.join(place, "Dockerfile"))
        assert status == 125 and "leads out of its directory" in said, said
        status, _, said = atoll(server, "template", "build", "none", "--from", f"oci:{place}")
        assert status == 125 and "no layout of images" in said and "skopeo" in said, said
        status, _, said = atoll(server, "template", "build", "none", "--from", f"oci:{layout}:other")
        assert status == 125 and "these names are there: box" in said, said
        before = set(server.files())
        for number, spoil in enumerate(hostile(layout)):
            at = os.path.join(place, f"spoilt{number}")
            shutil.copytree(layout, at, symlinks=True)
            spoil(at)
            status, out, said = atoll(server, "template", "build", "evil", "--from", f"oci:{at}")
            assert (status, out) == (125, "") and "could not be built" in said, (number, said)
        assert set(server.files()) == before, set(server.files()) - before
    assert server.ask("GET", "/templates/evil")[0] == 404


def hostile(layout):
    """Returns what makes layouts that are refused: a content that is a link, one that is another, a digest
    that is a path, an index that is none."""
    index = json.load(open(os.path.join(layout, "index.json")))
    digest = index["manifests"][0]["digest"]
    blob = lambda at: os.path.join(at, "blobs", *digest.split(":"))

    def link(at):
        os.rename(blob(at), os.path.join(at, "real"))
        os.symlink("../../real", blob(at))

    def other(at):
        with open(blob(at), "ab") as file:
            file.write(b" ")

    def path(at):
        index["manifests"][0]["digest"] = "sha256:../../../../../../etc/passwd"
        json.dump(index, open(os.path.join(at, "index.json"), "w"))

    def none(at):
        open(os.path.join(at, "index.json"), "w").write("[]")

    return [link, other, path, none]


def hostile_images_stay_in_their_sandbox(server):
    before = set(server.files())
    refused = {
        "above": "leads out", "hard": "link to nothing", "hard-above": "leads out", "round": "too many links",
        "hiding-above": "", "digest": "", "longer": "longer than", "shorter": "not what it is called",
        "redirects": "", "turns": "another image", "bomb": "",
    }
    for name, why in refused.items():
        told = server.fails(Template().from_image(f"unknown.example/{name}:1"), "evil")
        assert why in told, (name, told)
    assert set(server.files()) == before, set(server.files()) - before
    for name in ("through", "special"):
        told = server.fails(Template().from_image(f"unknown.example/{name}:1").run_cmd("true"), "evil")
        # There is no shell in it, and what it was unpacked to is no part of a template.
        assert "there is no such program" in told, told
    for path in ("/opt/planted", "/etc/planted"):
        assert not os.path.exists(path), path
    for path in server.files():
        assert os.lstat(path).st_mode & 0o6000 == 0, path


def tenants_see_nothing_of_each_other(server):
    create = [os.environ["ATOLL"], "serve", "keys", "create", "--tenant", "other", "--name", "o"]
    key = subprocess.run(create, capture_output=True, text=True, check=True).stdout.strip()
    id, _ = server.build(Template().from_base_image().run_cmd("true"), "own")
    for named in ("own", id):
        for method, path in [("GET", f"/templates/{named}"), ("GET", f"/templates/aliases/{named}"),
                             ("DELETE", f"/templates/{named}"), ("GET", f"/templates/{named}/files/x")]:
            assert server.ask(method, path, key=key)[0] == 404, (method, path)
        status, told = server.ask("POST", "/v2/sandboxes", {"templateID": named}, key=key)
        assert status == 404, told
    assert server.ask("GET", "/templates", key=key)[1] == []
    status, asked = server.ask("POST", "/v3/templates", {"name": "own"})
    at = f"/templates/{id}/builds/{asked['buildID']}"
    assert server.ask("POST", "/v2" + at, {"steps": []}, key=key)[0] == 404
    assert server.ask("GET", at + "/status", key=key)[0] == 404
    # The same name is another template.
    status, asked = server.ask("POST", "/v3/templates", {"name": "own"}, key=key)
    assert status == 202 and asked["templateID"] != id, asked
    status, told = server.ask("POST", "/v3/templates", {"name": "base"})
    assert status == 400, told


def a_server_that_dies_in_a_build_leaves_nothing(server):
    id, _ = server.build(Template().from_base_image().run_cmd("echo 1 > /opt/one", user="root"), "lasting")
    status, asked = server.ask("POST", "/v3/templates", {"name": "cut"})
    at = f"/v2/templates/{asked['templateID']}/builds/{asked['buildID']}"
    steps = [{"type": "RUN", "args": ["echo x > /opt/x; sleep 100", "root"]}]
    assert server.ask("POST", at, {"steps": steps})[0] == 202
    before = set(os.listdir(layers()))
    time.sleep(2)
    server.end(signal.SIGKILL)
    again = Server(server.key)
    try:
        assert again.ask("GET", "/templates/cut")[0] == 404
        assert set(os.listdir(layers())) <= before
        assert again.made("lasting").commands.run("cat /opt/one").stdout == "1\n"
    finally:
        again.end()


CHECKS = [steps_make_a_template, a_failure_names_its_step, the_same_is_not_built_again,
          templates_stand_on_templates, places_at_the_root_are_those_of_its_steps,
          what_only_root_may_read_is_not_shown, templates_of_an_earlier_form_are_no_more, pauses_snapshots_and_forks_keep_roots_changes,
          an_image_is_a_template, a_dockerfile_is_built_by_the_command,
          a_layout_on_disk_is_a_template, hostile_images_stay_in_their_sandbox,
          tenants_see_nothing_of_each_other, a_server_that_dies_in_a_build_leaves_nothing]
failed = False
key = None
for check in CHECKS:
    if sys.argv[1:] and check.__name__ not in sys.argv[1:]:
        continue
    # It is shown once.
    server = Server(key)
    key = server.key
    try:
        check(server)
        print("ok", check.__name__)
    except BaseException as error:
        failed = True
        print(f"failed {check.__name__}: {error}")
        traceback.print_exc()
    finally:
        if server.process.poll() is None:
            server.end()
sys.exit(failed)
