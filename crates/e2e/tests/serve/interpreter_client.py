"""Drives an unmodified SDK of E2B's code interpreter (PyPI `e2b-code-interpreter`) against a server.

Reads E2B_API_URL, E2B_SANDBOX_URL and E2B_API_KEY, and HAS_PACKAGES where the template was built with
pandas and matplotlib. Prints `ok NAME` or `failed NAME: why` for each check; exits 1 if one failed.
"""
import base64
import os
import sys
import threading
import time

from e2b import NotFoundException, SandboxException, TimeoutException
from e2b_code_interpreter import Sandbox

CHECKS = []


def check(function):
    """Registers a check."""
    CHECKS.append(function)
    return function


def expect(value, wanted):
    """Fails unless two values are equal."""
    if value != wanted:
        raise AssertionError(f"got {value!r}, not {wanted!r}")


def out(execution):
    """Returns a cell's stdout."""
    return "".join(execution.logs.stdout)


@check
def last_expression_is_the_main_result(box):
    execution = box.run_code("x = 20\nx + 1")
    expect(execution.text, "21")
    expect(execution.results[0].is_main_result, True)
    expect(execution.execution_count > 0, True)


@check
def variables_survive_between_cells(box):
    box.run_code("kept = 'here'")
    expect(box.run_code("kept").text, "here")


@check
def stdout_and_stderr_stream_to_callbacks(box):
    times, errors = [], []
    box.run_code(
        "import sys, time\nprint('a')\ntime.sleep(1)\nprint('b')\nprint('e', file=sys.stderr)",
        on_stdout=lambda m: times.append((m.line, time.monotonic())), on_stderr=lambda m: errors.append(m.line))
    expect([line for line, _ in times], ["a\n", "b\n"])
    expect(errors, ["e\n"])
    expect(times[1][1] - times[0][1] > 0.8, True)


@check
def subprocess_output_is_in_the_cell(box):
    expect(out(box.run_code("import os, subprocess\nsubprocess.run(['echo', 'one'])\nos.system('echo two');")), "one\ntwo\n")


@check
def error_has_name_value_and_traceback(box):
    execution = box.run_code("def f():\n    return 1 / 0\nf()")
    expect((execution.error.name, execution.error.value), ("ZeroDivisionError", "division by zero"))
    expect("line 2, in f" in execution.error.traceback and "return 1 / 0" in execution.error.traceback, True)


@check
def syntax_error_is_reported(box):
    expect(box.run_code("foo(").error.name, "SyntaxError")


@check
def top_level_await_works(box):
    expect(box.run_code("import asyncio\nawait asyncio.sleep(0.01, 'slept')").text, "slept")


@check
def display_makes_a_side_result(box):
    execution = box.run_code("class H:\n    def _repr_html_(self): return '<b>h</b>'\ndisplay(H())\n7")
    expect([(r.html, r.is_main_result) for r in execution.results], [("<b>h</b>", False), (None, True)])
    expect(execution.text, "7")


@check
def envs_are_set_and_reset(box):
    code = "import os; os.environ.get('ATOLL_CHECK')"
    expect(box.run_code(code, envs={"ATOLL_CHECK": "on"}).text, "on")
    expect(box.run_code(code).text, None)


@check
def contexts_are_separate_and_have_a_cwd(box):
    context = box.create_code_context(cwd="/tmp", language="python")
    expect((context.language, context.cwd), ("python", "/tmp"))
    expect(box.run_code("mine = 1; import os; os.getcwd()", context=context).text, "/tmp")
    expect(box.run_code("mine").error.name, "NameError")
    expect(context.id in [c.id for c in box.list_code_contexts()], True)
    box.restart_code_context(context)
    expect(box.run_code("mine", context=context).error.name, "NameError")
    box.remove_code_context(context)
    expect(context.id in [c.id for c in box.list_code_contexts()], False)
    expect_raises(NotFoundException, lambda: box.run_code("1", context=context))


def expect_raises(kind, step):
    """Fails unless a step raises an exception."""
    try:
        step()
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was not raised")


@check
def default_contexts_are_listed(box):
    languages = [c.language for c in box.list_code_contexts()]
    expect({"python", "javascript"} <= set(languages), True)


@check
def default_cwd_is_the_home(box):
    expect(box.run_code("import os; os.getcwd()").text, "/home/user")


@check
def timeout_interrupts_and_keeps_state(box):
    box.run_code("before = 42")
    expect_raises(TimeoutException, lambda: box.run_code("import time\nwhile True: time.sleep(0.1)", timeout=1))
    started = time.monotonic()
    expect(box.run_code("before", timeout=20).text, "42")
    expect(time.monotonic() - started < 5, True)


@check
def cells_of_one_context_run_in_order(box):
    box.run_code("log = []")
    threads = []
    for number in range(3):
        code = f"import time; time.sleep(0.2); log.append({number})"
        threads.append(threading.Thread(target=box.run_code, args=(code,)))
        threads[-1].start()
        time.sleep(0.1)
    for thread in threads:
        thread.join()
    expect(box.run_code("log").text, "[0, 1, 2]")


@check
def javascript_keeps_const_and_awaits(box):
    box.run_code("const a = 1", language="javascript")
    execution = box.run_code("const a = await Promise.resolve(5); console.log('log'); ({a})", language="js")
    expect((out(execution), execution.results[0].json), ("log\n", {"a": 5}))
    error = box.run_code("throw new TypeError('bad')", language="javascript").error
    expect((error.name, error.value), ("TypeError", "bad"))


@check
def typescript_runs_or_says_why_not(box):
    execution = box.run_code("const n: number = 4; n * 2", language="typescript")
    expect(execution.text == "8" or execution.error.name == "LanguageNotAvailable", True)


@check
def bash_keeps_variables_and_directory(box):
    box.run_code("v=kept; cd /tmp", language="bash")
    expect(out(box.run_code("echo $v $PWD", language="bash")), "kept /tmp\n")


@check
def missing_language_is_a_clear_error(box):
    execution = box.run_code("print(1)", language="r")
    expect(bool(execution.error and execution.error.name == "LanguageNotAvailable") or "[1] 1" in out(execution), True)
    expect_raises(SandboxException, lambda: box.run_code("1", language="cobol"))


@check
def dead_kernel_is_reported_and_replaced(box):
    expect(box.run_code("import os; os._exit(3)").error.name, "KernelDied")
    expect(box.run_code("1 + 1").text, "2")


@check
def sys_exit_keeps_the_kernel(box):
    box.run_code("alive = 1")
    expect(box.run_code("import sys; sys.exit(2)").error.name, "SystemExit")
    expect(box.run_code("alive").text, "1")


@check
def long_output_is_complete(box):
    execution = box.run_code("for i in range(200000): print(i)")
    expect(out(execution), "".join(f"{i}\n" for i in range(200000)))


@check
def child_that_keeps_stdout_does_not_block(box):
    started = time.monotonic()
    box.run_code("import subprocess; subprocess.Popen('while :; do echo noise; done & sleep 20', shell=True);")
    expect(time.monotonic() - started < 5, True)
    expect(box.run_code("'clean'").text, "clean")
    box.run_code("import os; os.system('pkill -P $PPID');")


@check
def parent_killed_by_a_cell_comes_back(box):
    try:
        box.run_code("import os; os.kill(os.getppid(), 9); os.kill(os.getpid(), 9)")
    except Exception:
        pass
    wait_until_up(box)
    expect(box.run_code("2 + 2").text, "4")


def wait_until_up(box):
    """Waits until the interpreter answers."""
    for _ in range(100):
        try:
            box.list_code_contexts()
            return
        except Exception:
            time.sleep(0.1)
    raise AssertionError("the interpreter did not answer in 10 s")


@check
def packages_of_the_template_are_there(box):
    if "HAS_PACKAGES" not in os.environ:
        return
    expect(box.commands.run("python3 -c 'import pandas, matplotlib; print(1)'").stdout, "1\n")
    execution = box.run_code("import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': ['x', 'y']})")
    result = execution.results[0]
    expect("<table" in result.html and "a" in result.text, True)
    expect(result.data, {"a": [1, 2], "b": ["x", "y"]})
    figure = box.run_code(
        "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3], [4, 5, 6], label='line')\nplt.title('of a test')\nplt.show()")
    picture = [result for result in figure.results if result.png][0]
    expect(base64.b64decode(picture.png)[:4], b"\x89PNG")
    expect((picture.chart.type.value, picture.chart.title), ("line", "of a test"))
    expect(picture.chart.elements[0].points, [(1, 4), (2, 5), (3, 6)])


@check
def a_pause_and_a_snapshot_keep_the_template(box):
    box.run_code("open('kept', 'w').write('text')")
    made = box.create_snapshot()
    other = Sandbox.create(template=made.snapshot_id, timeout=120)
    try:
        expect(other.run_code("open('kept').read()").text, "text")
        other.run_code("number = 41")
        other.pause()
        again = Sandbox.connect(other.sandbox_id)
        expect(again.run_code("open('kept').read(), number + 1").text, "('text', 42)")
        again.pause(keep_memory=False)
        again = Sandbox.connect(other.sandbox_id)
        expect(again.run_code("open('kept').read()").text, "text")
        expect(again.run_code("number").error.name, "NameError")
    finally:
        other.kill()


@check
def nobody_writes_to_the_template(box):
    told = box.run_code("open('/run/atoll/template/kernel.py', 'a')").error
    expect(told.name in ("OSError", "PermissionError"), True)
    expect(box.commands.run("ls /run/atoll/template/server.py").exit_code, 0)


def main():
    """Runs the checks; arguments name some of them by words of their names."""
    words = sys.argv[1:]
    box = Sandbox.create(timeout=600)
    failed = 0
    try:
        for function in CHECKS:
            if not words or any(word in function.__name__ for word in words):
                failed += run_check(function, box)
    finally:
        box.kill()
    sys.exit(1 if failed else 0)


def run_check(function, box):
    """Runs one check; returns 1 if it failed."""
    try:
        function(box)
        print(f"ok {function.__name__}", flush=True)
        return 0
    except Exception as error:
        print(f"failed {function.__name__}: {type(error).__name__}: {str(error)[:300]}", flush=True)
        return 1


if __name__ == "__main__":
    main()
