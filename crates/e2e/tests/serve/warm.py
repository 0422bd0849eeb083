"""Sandboxes made ahead, by E2B's own SDKs (PyPI `e2b-code-interpreter`): who gets one and who does
not, that nothing of one caller's is another's, and what the ledger says of them.

Starts servers itself, see served.py.
"""

import json
import os
import shutil
import subprocess
import time

from e2b import SandboxException
from e2b_code_interpreter import Sandbox as Interpreter
from e2b import Sandbox

from served import CONFIG, Server, check, key, out, run_all

TEMPLATES = os.path.join(os.environ["STATE"], "atoll/served/templates/code-interpreter-v1")


@check
def a_create_takes_one_that_was_made_ahead():
    with Server() as server:
        is_ahead, first = server.made_ahead(Sandbox.create)
        assert not is_ahead
        server.until_warm(2)
        # They are nobody's yet.
        assert [one["sandboxID"] for one in server.ask("GET", "/v2/sandboxes")[1]] == [first.sandbox_id]
        make = lambda: Sandbox.create(metadata={"team": "ml"}, envs={"COLOUR": "blue"})
        is_ahead, box = server.made_ahead(make)
        assert is_ahead
        info = box.get_info()
        assert info.metadata == {"team": "ml"} and box.sandbox_id != first.sandbox_id, info
        assert out(box, "ls -A ~") == "", out(box, "ls -A ~")
        assert out(box, "echo $E2B_SANDBOX_ID $COLOUR") == f"{box.sandbox_id} blue\n"
        box.files.write("kept", "here")
        assert out(box, "cat kept") == "here"
        # The record says whose it became, before anything was executed in it.
        opened, assigned = server.events(box.sandbox_id, "run.opened"), server.events(box.sandbox_id, "sandbox.assigned")
        assert opened[0]["served"]["caller"] is None and len(assigned) == 1, (opened, assigned)
        served = assigned[0]["served"]
        assert served["caller"] == "maker" and served["metadata"] == [["team", "ml"]], served
        assert served["sandbox"] == box.sandbox_id == opened[0]["served"]["sandbox"], served
        execs = server.events(box.sandbox_id, "exec.opened")
        assert execs and all(one["served"]["caller"] in ("maker", None) for one in execs), execs
        _, told = server.ask("GET", "/v1/ledger/events?type=sandbox.assigned")
        assert len(told["events"]) == 1, told
        _, lives = server.ask("GET", f"/events/sandboxes/{box.sandbox_id}")
        assert [one["type"] for one in lives] == ["sandbox.lifecycle.created"], lives
        # The ones that follow are others.
        server.until_warm(2)
        is_ahead, other = server.made_ahead(Sandbox.create)
        ids = {one.sandbox_id for one in (first, box, other)}
        tokens = {one._envd_access_token for one in (first, box, other)}
        assert is_ahead and len(ids) == len(tokens) == 3, (ids, tokens)
        assert out(other, "ls -A ~; echo $COLOUR") == "\n"
        # One that is over is not another's.
        box.kill()
        server.until_warm(2)
        after = [server.made_ahead(Sandbox.create) for _ in range(2)]
        assert all(is_ahead for is_ahead, _ in after)
        assert not {one.sandbox_id for _, one in after} & ids


@check
def the_interpreter_runs_before_its_first_cell():
    with Server() as server:
        Interpreter.create().run_code("1")
        server.until_warm(2)
        boxes = []
        for _ in range(2):
            is_ahead, box = server.made_ahead(Interpreter.create)
            assert is_ahead
            boxes.append(box)
        code = ("import os, random, uuid\n"
                "try:\n    import numpy\n    drawn = float(numpy.random.rand())\nexcept ImportError:\n    drawn = os.urandom(8)\n"
                "(os.environ['E2B_SANDBOX_ID'], os.listdir('/home/user'), random.random(), drawn, str(uuid.uuid4()))")
        told = []
        for box in boxes:
            execution = box.run_code(code)
            assert execution.error is None and execution.execution_count == 1, execution
            told.append(eval(execution.text))
            assert told[-1][0] == box.sandbox_id and told[-1][1] == [], told
        assert all(one != other for one, other in zip(told[0][2:], told[1][2:])), told
        box = boxes[0]
        assert box.run_code("kept = 1; kept + 1").text == "2" and box.run_code("kept").text == "1"
        assert box.run_code("import os; os.environ['A']", envs={"A": "b"}).text == "b"
        if os.environ.get("HAS_PACKAGES"):
            execution = box.run_code("import sys; [one in sys.modules for one in ('pandas', 'matplotlib.pyplot')]")
            assert execution.text == "[True, True]", execution
            execution = boxes[1].run_code("import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()")
            assert execution.error is None and execution.results[0].png, execution
            assert out(boxes[1], "ls -A ~") in ("", ".cache\n", ".config\n")
        # Variables of a create are those of its first cell too.
        server.until_warm(2)
        for variables, wanted in (({"COLOUR": "blue"}, True), ({"COLOUR": "blue", "PYTHONHASHSEED": "1"}, False)):
            is_ahead, box = server.made_ahead(lambda: Interpreter.create(envs=variables))
            assert is_ahead == wanted, variables
            code = "import os; [os.environ[name] for name in %r]" % list(variables)
            assert eval(box.run_code(code).text) == list(variables.values())
            context = box.create_code_context()
            assert eval(box.run_code(code, context=context).text) == list(variables.values())
            assert out(box, "echo $COLOUR") == "blue\n"
            other = {"COLOUR": "red"}
            assert box.run_code("os.environ['COLOUR']", envs=other).text == "red"
            assert box.run_code("os.environ['COLOUR']").text == "blue"


POLICIES = """
@id("ml-makes-none") forbid(principal, action == Action::"run", resource)
when { context has served && context.served.metadata.contains("team=ml") };
@id("web-asks-not-who") forbid(principal, action == Action::"exec", resource in Program::"id")
when { context has served && context.served.metadata.contains("team=web") };
@id("no-python") forbid(principal, action == Action::"exec", resource in Program::"python3")
when { context has served && context.served.metadata.contains("python=no") };
permit(principal, action == Action::"run", resource);
@id("brief") @timeout("1h") permit(principal, action == Action::"run", resource)
when { context has served && context.served.metadata.contains("life=brief") };
permit(principal, action == Action::"exec", resource);
"""


def is_denied(work, policy):
    try:
        work()
    except SandboxException as error:
        assert policy in str(error), error
        return
    raise AssertionError(f"{policy} has not denied it")


@check
def policies_decide_again_for_the_caller():
    with Server(POLICIES) as server:
        Sandbox.create()
        server.until_warm(2)
        # Denied as without one: recorded with the caller's facts.
        is_ahead, _ = server.made_ahead(
            lambda: is_denied(lambda: Sandbox.create(metadata={"team": "ml"}), "ml-makes-none"))
        assert (is_ahead, server.number("warm")) == (False, 2), (is_ahead, server.number("warm"))
        # Another boundary is made, not taken.
        is_ahead, brief = server.made_ahead(lambda: Sandbox.create(metadata={"life": "brief"}))
        assert (is_ahead, server.number("warm")) == (False, 2), (is_ahead, server.number("warm"))
        assert out(brief, "echo here") == "here\n"
        # What is executed in one is decided by the notes of whoever has it.
        is_ahead, web = server.made_ahead(lambda: Sandbox.create(metadata={"team": "web"}))
        assert is_ahead
        status, told = server.ask("POST", f"/v1/sandboxes/{web.sandbox_id}/run", {"command": ["id"]})
        assert status == 403 and "web-asks-not-who" in json.dumps(told), told
        assert out(web, "echo here") == "here\n"
        server.until_warm(2)
        is_ahead, plain = server.made_ahead(Sandbox.create)
        status, told = server.ask("POST", f"/v1/sandboxes/{plain.sandbox_id}/run", {"command": ["id"]})
        assert is_ahead and status == 200 and "user" in told["stdout"], told
        # The interpreter is a program too, which runs before there is a caller.
        Interpreter.create()
        server.until_warm(4)
        is_ahead, box = server.made_ahead(lambda: Interpreter.create(metadata={"python": "no"}))
        assert not is_ahead
        status, told = server.ask("POST", f"/v1/sandboxes/{box.sandbox_id}/run", {"command": ["python3", "-V"]})
        assert status == 403 and "no-python" in json.dumps(told), told
        is_ahead, box = server.made_ahead(Interpreter.create)
        assert is_ahead and box.run_code("1 + 1").text == "2"


@check
def changed_policies_leave_none_of_before():
    with Server() as server:
        Sandbox.create()
        server.until_warm(2)
        with open(os.path.join(CONFIG, "own.cedar"), "w") as file:
            file.write(POLICIES)
        is_ahead, box = server.made_ahead(lambda: Sandbox.create(metadata={"team": "web"}))
        assert not is_ahead
        status, told = server.ask("POST", f"/v1/sandboxes/{box.sandbox_id}/run", {"command": ["id"]})
        assert status == 403 and "web-asks-not-who" in json.dumps(told), told
        server.until_warm(2)
        assert server.made_ahead(Sandbox.create)[0]


@check
def tenants_and_kinds_are_apart():
    other = key("other", "other")
    with Server() as server:
        Sandbox.create()
        server.until_warm(2)
        is_ahead, box = server.made_ahead(lambda: Sandbox.create(api_key=other))
        assert not is_ahead
        server.until_warm(4)
        is_ahead, mine = server.made_ahead(Sandbox.create)
        _, told = server.ask("GET", "/v1/ledger/events", key=other)
        assert is_ahead and told["events"], told
        assert mine.sandbox_id not in json.dumps(told)
        assert all(one["body"]["served"]["tenant"] == "other"
                   for one in told["events"] if one["type"] == "run.opened"), told
        # Of another size, or with a session or what was there before: made as ever.
        server.until_warm(4)
        for body in ({"memory_mib": 512}, {"session": "task"}):
            is_ahead, told = server.made_ahead(lambda: server.ask("POST", "/v1/sandboxes", body))
            assert not is_ahead and told[0] == 201, told


@check
def quotas_count_what_callers_have():
    with Server(toml="[quota]\nsandboxes = 2\n") as server:
        Sandbox.create()
        server.until_warm(2)
        assert server.made_ahead(Sandbox.create)[0]
        is_ahead, (status, told) = server.made_ahead(lambda: server.ask("POST", "/v2/sandboxes", {}))
        assert not is_ahead and status == 429 and "quota.sandboxes" in json.dumps(told), told
        assert server.number("warm") >= 1


@check
def what_ends_while_it_waits_is_given_to_nobody():
    with Server() as server:
        Sandbox.create()
        server.until_warm(2)
        events = lambda kind: server.ask("GET", f"/v1/ledger/events?type={kind}")[1]["events"]
        closed = lambda: {one["run"] for one in events("run.closed")}
        waiting = {one["run"] for one in events("run.opened") if one["body"]["served"]["caller"] is None} - closed()
        assert len(waiting) >= 2, waiting
        for run in waiting:
            subprocess.run([os.environ["ATOLL"], "stop", run], check=True, capture_output=True)
        while not waiting <= closed():
            time.sleep(0.01)
        box = Sandbox.create()
        assert server.ask("GET", f"/v1/sandboxes/{box.sandbox_id}")[1]["run"] not in waiting
        assert out(box, "echo here") == "here\n"
        server.until_warm(2)
        assert server.made_ahead(Sandbox.create)[0]


@check
def none_is_made_where_none_is_wanted():
    with Server(toml="[warm]\nsandboxes = 0\n") as server:
        Sandbox.create()
        time.sleep(4)
        assert server.number("warm") == 0
        assert not server.made_ahead(Sandbox.create)[0]


@check
def a_new_template_ends_those_of_the_one_before():
    with Server() as server:
        Interpreter.create()
        server.until_warm(2)
        built = sorted(int(one) for one in os.listdir(TEMPLATES) if one.isdigit())[-1]
        new = os.path.join(TEMPLATES, str(built + 1))
        shutil.copytree(os.path.join(TEMPLATES, str(built)), os.path.join(TEMPLATES, "new"), symlinks=True)
        with open(os.path.join(TEMPLATES, "new", "built"), "w") as file:
            file.write("later")
        os.rename(os.path.join(TEMPLATES, "new"), new)
        try:
            is_ahead, box = server.made_ahead(Interpreter.create)
            assert not is_ahead and out(box, "cat /run/atoll/template/built") == "later"
            # Those of before end, others are made.
            time.sleep(5)
            server.until_warm(2)
            is_ahead, box = server.made_ahead(Interpreter.create)
            assert is_ahead and out(box, "cat /run/atoll/template/built") == "later"
            assert box.run_code("1 + 1").text == "2"
        finally:
            shutil.rmtree(new)


run_all()
