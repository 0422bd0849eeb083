"""Drives the volumes of an unmodified E2B SDK (PyPI `e2b`) against a running server.

Reads E2B_API_URL, E2B_SANDBOX_URL, E2B_VOLUME_API_URL and E2B_API_KEY. Prints `ok NAME` or
`failed NAME: why` for each check, and exits 1 if one failed."""
import contextlib
import os
import sys
import traceback
import uuid

from e2b import AuthenticationException, NotFoundException, Sandbox, Volume
from e2b.exceptions import VolumeException, VolumePathNotFoundException


def name():
    return f"v-{uuid.uuid4().hex[:12]}"


@contextlib.contextmanager
def volume():
    made = Volume.create(name())
    yield made
    assert Volume.destroy(made.volume_id) is True


@contextlib.contextmanager
def sandbox(**options):
    box = Sandbox.create(timeout=120, **options)
    try:
        yield box
    finally:
        box.kill()


def refused(kind, call, word=""):
    try:
        got = call()
    except kind as error:
        assert word in str(error), error
        return
    raise AssertionError(f"{got!r} and not {kind.__name__}")


def volumes_are_made_found_and_destroyed():
    own = name()
    made = Volume.create(own)
    assert made.name == own and made.token, made
    assert own in [one.name for one in Volume.list()]
    found = Volume.connect(made.volume_id)
    assert (found.name, found.volume_id, found.token) == (own, made.volume_id, made.token)
    assert Volume.get_info(made.volume_id).name == own
    refused(Exception, lambda: Volume.create(own), "already")
    refused(Exception, lambda: Volume.create("../x"), "name")
    assert Volume.destroy(made.volume_id) is True and Volume.destroy(made.volume_id) is False
    refused(NotFoundException, lambda: Volume.get_info(made.volume_id))


def files_are_written_read_and_listed():
    with volume() as own:
        entry = own.write_file("/hello.txt", "Hello, world!")
        assert (entry.name, entry.path, entry.size) == ("hello.txt", "/hello.txt", 13), entry
        assert str(entry.type) == "file" and (entry.uid, entry.gid, entry.mode) == (1000, 1000, 0o644), entry
        assert own.read_file("/hello.txt") == "Hello, world!"
        assert own.read_file("hello.txt", format="bytes") == b"Hello, world!"
        big = os.urandom(3 << 20)
        assert own.write_file("/big", big, mode=0o600).mode == 0o600
        assert b"".join(own.read_file("/big", format="stream")) == big
        own.write_file("/hello.txt", b"again")
        assert own.read_file("/hello.txt") == "again"
        refused(VolumeException, lambda: own.write_file("/hello.txt", "x", force=False), "there already")
        made = own.make_dir("/a/b/c", force=True)
        assert str(made.type) == "directory" and made.path == "/a/b/c", made
        refused(VolumePathNotFoundException, lambda: own.make_dir("/d/e"))
        refused(VolumePathNotFoundException, lambda: own.write_file("/d/e", "x"))
        own.write_file("/a/b/c/deep", "x")
        assert [one.path for one in own.list("/")] == ["/a", "/big", "/hello.txt"]
        assert [one.path for one in own.list("/a", depth=3)] == ["/a/b", "/a/b/c", "/a/b/c/deep"]
        assert own.exists("/a") and not own.exists("/none")
        changed = own.update_metadata("/hello.txt", uid=1000, gid=1000, mode=0o4755)
        assert changed.mode == 0o755, oct(changed.mode)
        refused(VolumeException, lambda: own.update_metadata("/hello.txt", uid=0), "belong")
        own.remove("/a")
        own.remove("/big")
        assert [one.path for one in own.list("/")] == ["/hello.txt"]
        refused(VolumePathNotFoundException, lambda: own.read_file("/a/b/c/deep"))
        refused(VolumePathNotFoundException, lambda: own.remove("/a"))
        for path in ("/../x", "/..", "/"):
            refused(VolumeException, lambda: own.read_file(path))


def tokens_are_for_one_volume():
    with volume() as one, volume() as other:
        one.write_file("/x", "1")
        stranger = Volume(other.volume_id, other.name, token=one.token)
        refused(AuthenticationException, lambda: stranger.list("/"))
        stranger = Volume(other.volume_id, other.name, token="wrong")
        refused(AuthenticationException, lambda: stranger.list("/"))


def files_outlive_sandboxes():
    with volume() as own:
        own.write_file("/from-outside", "1")
        with sandbox(volume_mounts={"/mnt/data": own}) as box:
            assert box.files.read("/mnt/data/from-outside") == "1"
            box.files.write("/mnt/data/by-files", "2")
            ran = box.commands.run("cd /mnt/data; echo 3 > by-program; id -u; stat -c %U:%G . from-outside")
            assert ran.stdout == "1000\nuser:user\nuser:user\n", ran.stdout
            assert [(one["name"], one["path"]) for one in box.get_info().volume_mounts] == [(own.name, "/mnt/data")]
            refused(VolumeException, lambda: Volume.destroy(own.volume_id), "in use")
        with sandbox(volume_mounts={"/data": own.name}) as box:
            assert box.commands.run("cat /data/*").stdout == "23\n1"
        assert own.read_file("/by-program") == "3\n"


def sandboxes_share_a_volume():
    with volume() as own:
        with sandbox(volume_mounts={"/mnt/x": own}) as one, sandbox(volume_mounts={"/mnt/x": own}) as other:
            one.commands.run("echo one > /mnt/x/next; mv /mnt/x/next /mnt/x/file")
            assert other.commands.run("cat /mnt/x/file; echo two > /mnt/x/next; mv /mnt/x/next /mnt/x/file").stdout == "one\n"
            assert one.commands.run("cat /mnt/x/file").stdout == "two\n"


def mounts_survive_a_pause():
    with volume() as own:
        with sandbox(volume_mounts={"/mnt/x": own}) as box:
            box.commands.run("echo kept > /mnt/x/file; echo home > home")
            assert box.pause()
            own.write_file("/meanwhile", "m")
            box.connect()
            assert box.commands.run("cat /mnt/x/file /mnt/x/meanwhile home").stdout == "kept\nmhome\n"
            refused(VolumeException, lambda: Volume.destroy(own.volume_id), "in use")


def a_volume_that_is_gone_refuses_a_resume():
    own = Volume.create(name())
    box = Sandbox.create(timeout=120, volume_mounts={"/mnt/x": own})
    # With its memory it has the volume, and without it no more.
    assert box.pause()
    refused(VolumeException, lambda: Volume.destroy(own.volume_id), "in use")
    box.connect()
    assert box.pause(keep_memory=False)
    assert Volume.destroy(own.volume_id)
    refused(Exception, box.connect, "stays paused: there is no volume")
    assert Sandbox.kill(box.sandbox_id)


def only_places_of_their_own_are_mounted_at():
    with volume() as own:
        for path in ("/", "/usr", "/usr/x", "/etc", "/proc/x", "/run/x", "/dev/x", "/tmp/x", "/home/user/x", "/mnt/../etc", "mnt"):
            refused(Exception, lambda: Sandbox.create(volume_mounts={path: own}), "volume")
        refused(Exception, lambda: Sandbox.create(volume_mounts={"/mnt/a": own, "/mnt/a/b": own}), "another volume")
        refused(Exception, lambda: Sandbox.create(volume_mounts={"/mnt/a": "none-of-this-name"}), "no volume")


CHECKS = [
    volumes_are_made_found_and_destroyed, files_are_written_read_and_listed, tokens_are_for_one_volume,
    files_outlive_sandboxes, sandboxes_share_a_volume, mounts_survive_a_pause,
    a_volume_that_is_gone_refuses_a_resume, only_places_of_their_own_are_mounted_at,
]


def main():
    failed = False
    for check in CHECKS:
        if sys.argv[1:] and check.__name__ not in sys.argv[1:]:
            continue
        try:
            check()
            print(f"ok {check.__name__}", flush=True)
        except Exception as error:
            failed = True
            traceback.print_exc()
            print(f"failed {check.__name__}: {error!r}"[:600], flush=True)
    sys.exit(failed)


main()
