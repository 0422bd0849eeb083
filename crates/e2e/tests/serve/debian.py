"""A template of Debian's packages: signed, set up, and added to. E2B's own SDK builds it, on a small
internet with a mirror.

Starts servers itself: reads ATOLL, CONFIG, MIRROR and the environment that they begin with. Prints
`ok NAME` or `failed NAME: why` for each check, and exits 1 if one failed.
"""

import os
import re
import subprocess
import sys
import traceback

from e2b import Sandbox, Template
from e2b.exceptions import BuildException

CONFIG = os.path.join(os.environ["CONFIG"], "atoll", "serve.toml")
KEY = [None]


class Server:
    """A server with a configuration, and the key that the first one makes."""

    def __init__(self, toml):
        os.makedirs(os.path.dirname(CONFIG), exist_ok=True)
        with open(CONFIG, "w") as file:
            file.write(toml)
        self.process = subprocess.Popen(
            [os.environ["ATOLL"], "serve", "--listen", "127.0.0.1:0"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        told = ""
        while "Ctrl-C" not in told:
            line = self.process.stdout.readline()
            assert line, told
            told += line
        at = re.search(r"E2B_API_URL=(\S+)", told)[1]
        KEY[0] = KEY[0] or re.search(r"E2B_API_KEY=(\S+)", told)[1]
        self.options = {"api_url": at, "sandbox_url": at, "api_key": KEY[0]}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(60)

    def build(self, template, name):
        lines = []
        Template.build(
            template, name=name, on_build_logs=lambda line: lines.append(line.message), **self.options)
        return lines

    def fails(self, template):
        try:
            self.build(template, "failed")
        except BuildException as error:
            return str(error)
        raise AssertionError("it was built")


def debian():
    return Template().from_image("atoll/debian")


def one_that_names_no_source_has_none():
    for toml in ("network = 'closed'", "images = []", "images = ['git.example']"):
        with Server(toml) as server:
            told = server.fails(debian())
            assert "images" in told, told


def packages_that_were_changed_are_refused():
    mirror = os.environ["MIRROR"]
    release = os.path.join(mirror, "debian/dists/bookworm/InRelease")
    text = open(release, "rb").read()
    found = None
    for top, _, names in os.walk(os.path.join(mirror, "debian/pool")):
        found = next((os.path.join(top, one) for one in names if one.startswith("base-files_")), found)
    package = open(found, "rb").read()
    with Server("network = 'registries'") as server:
        for path, content, changed, why in (
            (release, text, text.replace(b"Codename: bookworm", b"Codename: bookwarm"),
             "not signed by Debian's keys"),
            (found, package, package[:-1] + bytes([package[-1] ^ 1]), "not what its index says"),
        ):
            try:
                write(path, changed)
                told = server.fails(debian())
            finally:
                write(path, content)
            assert why in told, told


def write(path, content):
    # It is a link to a file of the cache, which other tests have too.
    os.unlink(path)
    with open(path, "wb") as file:
        file.write(content)


def a_debian_system_is_made_and_added_to():
    with Server("network = 'registries'") as server:
        install = "apt-get -q update && apt-get -q install -y --no-install-recommends hello"
        lines = server.build(debian().run_cmd(install, user="root"), "hello")
        assert any("setting up" in line for line in lines), lines
        with Sandbox.create("hello", **server.options) as sandbox:
            run = lambda command, **more: sandbox.commands.run(command, **more).stdout
            assert run("hello; id -un; pwd; echo mine > own; cat own") == "Hello, world!\nuser\n/home/user\nmine\n"
            assert run("cut -d. -f1 /etc/debian_version; dpkg --audit; dpkg -l | grep -c '^ii'").startswith("12\n")
            # Nothing of the host's system is there.
            assert run("ls /usr/bin/python3 /usr/bin/git 2>&1 || true").count("No such") == 2
            assert run("grep -c localhost /etc/hosts; grep -c ^user: /etc/passwd") == "2\n1\n"
            told = run("apt-get -q update && apt-get -q install -y tree && tree --version; id -u _apt", user="root")
            assert "tree v2" in told and told.endswith("42\n"), told
            assert run("su _apt -s /bin/sh -c 'id -un'", user="root") == "_apt\n"
        # The same packages are not fetched again; the template is the tenant's own, and named so.
        lines = server.build(Template().from_dockerfile("FROM atoll/debian\nRUN true\n"), "again")
        assert any("CACHED" in line for line in lines), lines
        assert not any("setting up" in line for line in lines), lines
        with Sandbox.create("atoll/debian", **server.options) as sandbox:
            assert sandbox.commands.run("cat /etc/debian_version").stdout.startswith("12")
        try:
            server.build(Template().from_base_image(), "atoll/mine")
        except BuildException as error:
            assert "does not begin with atoll/" in str(error), error
        else:
            raise AssertionError("it has a name of Atoll's own")


CHECKS = [one_that_names_no_source_has_none, packages_that_were_changed_are_refused,
          a_debian_system_is_made_and_added_to]
failed = False
for check in CHECKS:
    if sys.argv[1:] and check.__name__ not in sys.argv[1:]:
        continue
    try:
        check()
        print("ok", check.__name__)
    except BaseException as error:
        failed = True
        print(f"failed {check.__name__}: {error}")
        traceback.print_exc()
sys.exit(failed)
