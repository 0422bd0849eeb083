"""Interpreters that go on from a file with their libraries loaded, by E2B's own SDK (PyPI
`e2b-code-interpreter`): that they do, that nothing but what was loaded is shared, and when they
begin by themselves.

Starts servers itself, see served.py.
"""

import os
import time

from e2b_code_interpreter import Sandbox

from served import Server, check, key, out, run_all

HOW = "open('/proc/self/cmdline').read().split(chr(0))[0].endswith('/thaw')"
FILE = "/run/atoll/frozen"
# No sandbox is made ahead: each begins when its first cell comes.
COLD = "[warm]\nsandboxes = 0\n"


def until_frozen(**options):
    """Makes sandboxes until an interpreter goes on from the file; returns the sandbox."""
    until = time.monotonic() + 90
    while True:
        box = Sandbox.create(**options)
        if box.run_code(HOW).text == "True":
            return box
        box.kill()
        assert time.monotonic() < until, "no interpreter goes on from a file"
        time.sleep(1)


def answer(box, code):
    """Runs a cell; returns the value of its last expression."""
    execution = box.run_code(code)
    assert execution.error is None, execution.error
    return eval(execution.text)


@check
def nothing_drawn_is_drawn_twice():
    with Server(toml=COLD):
        first = until_frozen()
        boxes = [first, *(Sandbox.create() for _ in range(2))]
        code = ("import os, random, secrets, ssl, tempfile, uuid\n"
                "drawn = [random.random(), secrets.token_hex(), ssl.RAND_bytes(16), os.urandom(16), str(uuid.uuid4()), tempfile.mkdtemp()]\n"
                "try:\n    import numpy\n    drawn += [float(numpy.random.rand()), float(numpy.random.default_rng().random())]\n"
                "except ImportError:\n    pass\n"
                "drawn")
        told = [answer(box, code) for box in boxes]
        assert all(answer(box, HOW) for box in boxes)
        for values in zip(*told):
            assert len(set(values)) == len(boxes), values
        # What is shared is stated: the hashes of strings are.
        hashes = {answer(box, "hash('text')") for box in boxes}
        assert len(hashes) == 1, hashes


@check
def what_one_changes_no_other_sees():
    with Server(toml=COLD):
        one = until_frozen()
        change = ("import ctypes, json, sys\n"
                  "json.changed = True\nsys.flags_of_one = 1\n"
                  "text = 'a constant of the file'\n"
                  "len(json.dumps([text]))")
        assert answer(one, change) == 26
        assert answer(one, "(json.changed, sys.flags_of_one)") == (True, 1)
        # The memory of the file is written too, and stays this process's.
        scrawl = ("import ctypes, json\n"
                  "name = json.encoder.INFINITY.__class__.__name__\n"
                  "ctypes.memset(id(json.decoder.NaN) + 16, 0, 8)\n"
                  "json.decoder.NaN == 0.0")
        assert answer(one, scrawl) is True
        other = Sandbox.create()
        assert answer(other, HOW)
        seen = "import json, sys\n(hasattr(json, 'changed'), hasattr(sys, 'flags_of_one'), json.decoder.NaN == 0.0)"
        assert answer(other, seen) == (False, False, False)
        for mode in ("r+b", "ab", "wb"):
            told = one.run_code(f"open({FILE!r}, {mode!r})").error
            assert told and told.name in ("OSError", "PermissionError"), told
        told = one.run_code(f"import os; os.unlink({FILE!r})").error
        assert told and told.name in ("OSError", "PermissionError"), told


@check
def the_rest_of_a_process_is_its_own():
    with Server(toml=COLD):
        one = until_frozen()
        code = ("import os, signal, sys, threading\n"
                "names = lambda: sorted(os.readlink(f'/proc/self/fd/{n}').split(':')[0] for n in os.listdir('/proc/self/fd') if os.path.lexists(f'/proc/self/fd/{n}'))\n"
                "(os.environ['E2B_SANDBOX_ID'], os.getpid() == int(os.readlink('/proc/self')), threading.main_thread().native_id == os.getpid(),\n"
                " signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN, [name for name in ('api', 'server', 'contexts', 'frozen', 'kernel') if name in sys.modules],\n"
                " any('frozen' in name for name in names()), os.getcwd(), __name__)")
        assert answer(one, code) == (one.sandbox_id, True, True, True, [], False, "/home/user", "__main__")
        thread = "import threading\ntold = []\nt = threading.Thread(target=told.append, args=(1,)); t.start(); t.join()\nimport subprocess\n(told, subprocess.run(['echo', 'here'], capture_output=True, text=True).stdout)"
        assert answer(one, thread) == ([1], "here\n")
        # With its certificates: the server, which shares the file, loads none.
        assert answer(one, "import http.client, ssl\nssl.create_default_context() is not None and hasattr(http.client, 'HTTPSConnection')")
        # A cell that ends what runs the kernels costs the variables, not the sandbox.
        one.run_code("kept = 1")
        try:
            one.run_code("import os; os.kill(os.getppid(), 9)")
        except Exception as error:
            assert "unexpected EOF" in str(error) or "closed" in str(error), error
        try:
            one.run_code("1 + 1")
        except Exception:
            # It came to the port of the server that was ending.
            time.sleep(1)
        assert one.run_code("1 + 1").text == "2"


@check
def what_is_new_is_found():
    with Server(toml=COLD):
        one = until_frozen()
        assert answer(one, HOW)
        site = one.run_code("import site; site.getusersitepackages()").text
        out(one, f"mkdir -p {site} && echo 'value = 7' > {site}/added.py")
        # One that runs finds it too; one that begins now begins by itself.
        assert one.run_code("import added; added.value").text == "7"
        context = one.create_code_context()
        assert one.run_code(HOW, context=context).text == "False"
        assert one.run_code("import added; added.value", context=context).text == "7"
        # Nor is one used that has begun with other variables.
        other = Sandbox.create(envs={"PYTHONHASHSEED": "1", "COLOUR": "blue"})
        assert answer(other, f"import os\n({HOW}, os.environ['COLOUR'], os.environ['PYTHONHASHSEED'])") == (False, "blue", "1")


@check
def tenants_have_files_of_their_own():
    other = key("other", "other")
    with Server(toml=COLD):
        place = f"import os; facts = os.stat({FILE!r}); (facts.st_dev, facts.st_ino, facts.st_mode & 0o7777)"
        mine, theirs = until_frozen(), until_frozen(api_key=other)
        again = Sandbox.create()
        one, two, three = (answer(box, place) for box in (mine, theirs, again))
        assert one == three and one != two and one[2] == 0o444, (one, two, three)
        # Where one is made nothing is reached, and no file of it stays.
        kept = os.path.join(os.environ["STATE"], "atoll/served/frozen")
        assert len(os.listdir(kept)) == 2, os.listdir(kept)


run_all()
