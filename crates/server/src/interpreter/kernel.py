"""Python kernel of Atoll's code interpreter: runs cells in one process, see server.py.

The control socket has a number above 100, is closed on exec, and every message carries the
token that the server sent first. Code in a cell runs in this process: it can find the socket
and the token, and so forge its own results, and nothing else.
"""
import builtins

# The kernel's own functions keep the builtins that a cell may delete or replace.
BUILTINS = vars(builtins)
__builtins__ = SAVED_BUILTINS = dict(BUILTINS)

import ast
import io
import json
import linecache
import os
import queue
import re
import select
import signal
import sys
import threading
import traceback
import types

HERE = os.path.dirname(os.path.abspath(__file__))
FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
CO_COROUTINE = 0x80
MAX_PART = 32 << 20
MAX_RESULT = 64 << 20
MAGIC = re.compile(r"^(\s*)(?:([\w., ]+?)\s*=\s*)?([!%])(\s*\S.*)$")
# The modules of the packages that the shipped template is built with, and the command that does.
USUAL_MODULES = {"IPython", "PIL", "bs4", "lxml", "matplotlib", "numpy", "openpyxl", "pandas", "requests", "scipy", "seaborn", "sklearn", "sympy"}
BUILD_COMMAND = "atoll template build code-interpreter-v1"
IGNORED_MAGICS = {"matplotlib", "load_ext", "autoreload", "config", "precision", "reload_ext"}
FRAME_LINE = re.compile(r'File "(Cell In\[\d+\])", line')
encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Interrupts:
    """Turns SIGINT into KeyboardInterrupt, only inside a cell and never inside a message."""

    def __init__(self):
        self.inside = self.sending = self.pending = False

    def install(self):
        """Sets the handler; a cell may have replaced it."""
        signal.signal(signal.SIGINT, self._handle)

    def _handle(self, *_):
        if self.sending:
            self.pending = True
        elif self.inside:
            raise KeyboardInterrupt

    def after_send(self):
        """Raises an interrupt that came inside a message."""
        self.sending = False
        if self.pending:
            self.pending = False
            if self.inside:
                raise KeyboardInterrupt


INTERRUPTS = Interrupts()


class Link:
    """The control socket, as seen by the kernel."""

    def __init__(self, fd):
        self.fd = fd
        os.set_inheritable(fd, False)
        self.identity = self._stat()
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.buffer = b""
        self.token = b""
        self.busy = False

    def _stat(self):
        status = os.fstat(self.fd)
        return status.st_dev, status.st_ino

    def read(self):
        """Returns the next request, or None when the server has gone."""
        while b"\n" not in self.buffer:
            try:
                data = os.read(self.fd, 1 << 16)
            except OSError:
                return None
            if not data:
                return None
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        return json.loads(line)

    def send(self, message):
        """Sends one message; ends the process if the socket has been closed."""
        if os.getpid() != self.pid:
            return
        data = memoryview(b"\n%s %s\n" % (self.token, encode(message).encode("utf-8", "backslashreplace")))
        main = threading.current_thread() is threading.main_thread()
        with self.lock:
            INTERRUPTS.sending = INTERRUPTS.sending or main
            try:
                if self._stat() != self.identity:
                    os._exit(70)
                while data:
                    data = data[os.write(self.fd, data):]
            except OSError:
                os._exit(70)
            finally:
                if main:
                    INTERRUPTS.after_send()

    def error(self, name, value, trace=""):
        """Sends an error."""
        self.send({"type": "error", "name": name, "value": value, "traceback": trace or f"{name}: {value}"})

    def result(self, mime, main=False):
        """Sends a MIME bundle; parts that are too large become errors."""
        total, kept, dropped = 0, {}, []
        for kind, value in mime.items():
            size = len(value) if isinstance(value, str) else len(encode(value))
            if size > MAX_PART or total + size > MAX_RESULT:
                dropped.append((kind, size))
            else:
                total, kept[kind] = total + size, value
        if kept:
            self.send({"type": "result", "mime": kept, "main": main})
        for kind, size in dropped:
            self.error("OutputTooLarge", f"the result's {kind} part has {size} bytes; the limit is {MAX_PART}")


class Streams:
    """Descriptors 1 and 2 and sys.stdout and sys.stderr, put back before each cell."""

    def __init__(self):
        import fcntl
        self.saved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 100) for fd in (0, 1, 2)]
        self.files = {}
        self.restore()

    def restore(self):
        """Undoes what a cell did to the standard streams."""
        for fd, saved in enumerate(self.saved):
            os.dup2(saved, fd)
        for fd, name in ((1, "stdout"), (2, "stderr")):
            file = self.files.get(name)
            if file is None or file.closed:
                file = self.files[name] = io.open(fd, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
                file.reconfigure(line_buffering=True)
            setattr(sys, name, file)
            setattr(sys, f"__{name}__", file)

    def flush(self):
        """Writes out what Python still buffers."""
        for file in {sys.stdout, sys.stderr, *self.files.values()}:
            try:
                file.flush()
            except (AttributeError, OSError, TypeError, ValueError):
                pass


class PostImport:
    """Calls a function once a module has been imported."""

    def __init__(self, hooks):
        self.hooks = hooks

    def find_spec(self, name, path=None, target=None):
        """Finds a hooked module by the other finders and wraps its loader."""
        hook = self.hooks.get(name)
        if not hook:
            return None
        for finder in sys.meta_path:
            spec = finder is not self and finder.find_spec(name, path, target)
            if spec and hasattr(spec.loader, "exec_module"):
                self._wrap(spec.loader, hook)
                return spec
        return None

    def _wrap(self, loader, hook):
        execute = loader.exec_module

        def exec_module(module):
            execute(module)
            hook(module)
        loader.exec_module = exec_module


def representations():
    """Returns the module that formats rich results; it is loaded when first needed."""
    module = sys.modules.get("_atoll_representation")
    if not module:
        import importlib.util
        spec = importlib.util.spec_from_file_location("_atoll_representation", os.path.join(HERE, "representation.py"))
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules["_atoll_representation"] = module
    return module


def split_cell(source, name):
    """Compiles a cell to its statements and its last expression, either of which may be None."""
    tree = ast.parse(source, name)
    body, last = tree.body, None
    if body and isinstance(body[-1], ast.Expr) and not has_semicolon(source, body[-1]):
        last = ast.Expression(body.pop().value)
    statements = compile(tree, name, "exec", flags=FLAGS, dont_inherit=True) if body else None
    return statements, last and compile(last, name, "eval", flags=FLAGS, dont_inherit=True)


def has_semicolon(source, node):
    """Returns whether a semicolon follows the last expression, which hides its value."""
    line = source.split("\n")[node.end_lineno - 1].encode()
    return line[node.end_col_offset:].strip().startswith(b";")


def rewrite_magics(source):
    """Replaces magic and shell lines by calls: only lines at which Python reports a syntax error."""
    if source.lstrip().startswith("%%"):
        head, _, body = source.lstrip().partition("\n")
        return f"__atoll_magic__('%%', {head[2:]!r}, {body!r})"
    lines = source.split("\n")
    for _ in lines:
        try:
            ast.parse("\n".join(lines))
            break
        except SyntaxError as error:
            number = (error.lineno or 0) - 1
            match = 0 <= number < len(lines) and MAGIC.match(lines[number])
            if not match:
                break
            indent, target, kind, rest = match.groups()
            call = f"__atoll_magic__({kind!r}, {rest.strip()!r}, {bool(target)})"
            lines[number] = f"{indent}{target} = {call}" if target else f"{indent}{call};"
        except ValueError:
            break
    return "\n".join(lines)


class Magics:
    """The magics that agents use: shell lines, pip, cd, env, bash cells and writefile."""

    def __init__(self, namespace):
        self.namespace = namespace

    def __call__(self, kind, text, extra=None):
        """Runs one magic."""
        if kind == "!":
            return self.shell(text, extra)
        if kind == "%%":
            return self.cell(text, extra)
        name, _, rest = text.partition(" ")
        method = getattr(self, "do_" + name, None)
        if name in IGNORED_MAGICS:
            return None
        if not method:
            raise NameError(f"the magic %{name} is not supported. Use plain Python, or !command")
        return method(rest.strip())

    def shell(self, command, capture=False):
        """Runs a shell command; returns its lines if they are assigned."""
        import subprocess
        command = re.sub(r"\{(\w+)\}", lambda m: str(self.namespace.get(m[1], m[0])), command)
        sys.stdout.flush()
        done = subprocess.run(["/bin/sh", "-c", command], stdout=subprocess.PIPE if capture else None, check=False)
        self.namespace["_exit_code"] = done.returncode
        return done.stdout.decode("utf-8", "replace").splitlines() if capture else None

    def cell(self, head, body):
        """Runs a cell magic."""
        words = head.split()
        if words[:1] in (["bash"], ["sh"]):
            import subprocess
            subprocess.run([words[0], "-c", body], check=True)
        elif words[:1] == ["writefile"] and len(words) == 2:
            with open(words[1], "w", encoding="utf-8") as file:
                file.write(body)
            print(f"Writing {words[1]}")
        else:
            raise NameError(f"the magic %%{head.strip()} is not supported. Use %%bash or %%writefile FILE")

    def do_pip(self, rest):
        """Runs pip for this Python."""
        import importlib
        self.shell(f"{sys.executable} -m pip {rest}")
        importlib.invalidate_caches()

    def do_cd(self, rest):
        """Changes the working directory."""
        os.chdir(os.path.expanduser(rest.strip("'\"") or "~"))
        print(os.getcwd())

    def do_pwd(self, _rest):
        """Prints the working directory."""
        print(os.getcwd())

    def do_env(self, rest):
        """Prints or sets environment variables."""
        name, separator, value = rest.partition("=") if "=" in rest else rest.partition(" ")
        if separator:
            os.environ[name.strip()] = value.strip()
        elif name:
            print(os.environ.get(name, ""))
        else:
            print("\n".join(f"{key}={value}" for key, value in os.environ.items()))


class Python:
    """The user's namespace, and the execution of cells in it."""

    def __init__(self, link):
        self.link = link
        self.kernel_module = sys.modules["__main__"]
        self.module = types.ModuleType("__main__")
        self.module.__dict__.update(__builtins__=builtins, display=self.display)
        sys.modules["__main__"] = self.module
        self.loop = None
        BUILTINS.update(input=refuse_input, __atoll_magic__=Magics(self.module.__dict__), display=self.display)
        SAVED_BUILTINS.update(BUILTINS)
        sys.meta_path.insert(0, PostImport({
            "matplotlib.pyplot": lambda module: representations().patch_pyplot(module, link),
            "IPython.core.display_functions": self._patch_display,
            "IPython.display": self._patch_display,
        }))

    def _patch_display(self, module):
        module.display = self.display

    def display(self, *objects, **options):
        """Shows objects as results of the cell."""
        for value in objects:
            raw = options.get("raw") and isinstance(value, dict)
            self.link.result(value if raw else representations().bundle(value))

    def run(self, request):
        """Runs one cell and reports its result or its error."""
        number = request["id"]
        error = None
        try:
            try:
                INTERRUPTS.inside = True
                self._run_source(request["code"], f"Cell In[{number}]")
            finally:
                INTERRUPTS.inside = False
                BUILTINS.update({**SAVED_BUILTINS, **BUILTINS})
        except BaseException as caught:
            error = caught
        self._guard(self._finish_figures)
        if error is not None:
            self._guard(lambda: self.report(error))

    def _guard(self, step):
        """Runs a step that runs code of the cell; an interrupt or error in it is reported."""
        try:
            try:
                INTERRUPTS.inside = True
                step()
            finally:
                INTERRUPTS.inside = False
        except BaseException as error:
            self.link.error(type(error).__name__, "the error or result could not be shown")

    def _run_source(self, source, name):
        if "%" in source or "!" in source:
            source = rewrite_magics(source)
        linecache.cache[name] = (len(source), None, [line + "\n" for line in source.split("\n")], name)
        statements, last = split_cell(source, name)
        if statements:
            self._evaluate(statements)
        if last:
            value = self._evaluate(last)
            if value is not None:
                BUILTINS["_"] = value
                self.link.result(representations().bundle(value), main=True)

    def _evaluate(self, code):
        value = eval(code, self.module.__dict__)
        return self._await(value) if code.co_flags & CO_COROUTINE else value

    def _await(self, coroutine):
        import asyncio
        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        task = self.loop.create_task(coroutine)
        try:
            return self.loop.run_until_complete(task)
        except KeyboardInterrupt:
            task.cancel()
            self.loop.run_until_complete(asyncio.wait([task], timeout=2))
            raise

    def _finish_figures(self):
        if "matplotlib.pyplot" in sys.modules:
            representations().show_figures(sys.modules["matplotlib.pyplot"], self.link)

    def report(self, error):
        """Reports an exception, with the cell's lines and without the kernel's frames."""
        frames = error.__traceback__
        while frames and os.path.dirname(frames.tb_frame.f_code.co_filename) == HERE:
            frames = frames.tb_next
        if isinstance(error, SyntaxError) and str(error.filename).startswith("Cell In["):
            frames = None
        lines = traceback.TracebackException(type(error), error, frames, compact=True).format()
        trace = FRAME_LINE.sub(r"\1, line", "".join(lines)).rstrip()
        if isinstance(error, SyntaxError):
            trace = trace.replace("Traceback (most recent call last):\n", "", 1)
        try:
            value = str(error)
        except Exception:
            value = "<the error's text could not be made>"
        hint = missing_hint(error)
        if hint:
            value, trace = f"{value} ({hint})", f"{trace}\n{hint}"
        self.link.error(type(error).__name__, value, trace)


def missing_hint(error):
    """Returns what installs the module that an import has not found, or nothing."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    module = error.name.partition(".")[0]
    if module in USUAL_MODULES:
        return f"on the server's machine, {BUILD_COMMAND} installs it for new sandboxes"
    return f"pip install {module} in a cell installs it where the network is open; {BUILD_COMMAND} PACKAGE..., on the server's machine, for new sandboxes"


def prepare(names):
    """Imports modules that the first cell may want, and has them do once what is slow the first time.

    Returns the directory of their caches.
    """
    import gc
    import importlib
    import tempfile
    # What is cached at the import of matplotlib, with the fonts, is not to be in the home.
    cache = tempfile.mkdtemp(prefix="matplotlib-")
    before = set_environment({"MPLCONFIGDIR": cache, "XDG_CACHE_HOME": cache})
    for name in names:
        try:
            importlib.import_module(name)
        except BaseException:
            pass
    set_environment(before)
    try:
        sample = sys.modules["pandas"].DataFrame({"a": [1]}) if "pandas" in sys.modules else None
        representations().bundle(sample)
    except BaseException:
        pass
    linecache.clearcache()
    gc.collect()
    gc.freeze()
    return cache


def use_installed():
    """Lets what pip has installed for the user be found, before what the template has."""
    import importlib
    import site
    path = site.getusersitepackages()
    if path not in sys.path[:2] and os.path.isdir(path):
        before = [one for one in sys.path if one != path]
        sys.path[:] = before
        site.addsitedir(path)
        added = [one for one in sys.path if one not in before]
        sys.path[:] = before[:1] + added + before[1:]
        importlib.invalidate_caches()


def reseed():
    """Draws random seeds anew: what was imported ahead has begun with those of another moment."""
    for name in ("random", "numpy.random"):
        module = sys.modules.get(name)
        if module:
            module.seed()
    if sys.modules.get("ssl"):
        sys.modules["ssl"].RAND_add(os.urandom(64), 64.0)


def refuse_input(prompt=""):
    """Stands in for input(): a cell has no terminal."""
    raise RuntimeError("input() is not available: a cell has no terminal. Put the value into the code")


def set_environment(changes):
    """Sets environment variables; returns what undoes it."""
    before = {name: os.environ.get(name) for name in changes}
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    return before


def receive_requests(link, streams, requests):
    """Reads requests in a thread, flushes output of a cell that runs, ends with the server."""
    poll = select.poll()
    poll.register(link.fd, select.POLLIN)
    while True:
        if link.buffer or poll.poll(100 if link.busy else None):
            request = link.read()
            if request is None:
                os.killpg(0, signal.SIGKILL)
            link.busy = True
            requests.put(request)
        elif link.busy:
            streams.flush()


def serve(link, make_runner):
    """Runs requests until the server closes the socket."""
    hello = link.read()
    link.token = hello["token"].encode()
    os.chdir(hello["cwd"])
    streams, requests = Streams(), queue.SimpleQueue()
    INTERRUPTS.install()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    threading.Thread(target=receive_requests, args=(link, streams, requests), daemon=True).start()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    runner = make_runner(link)
    is_prepared = False
    while True:
        request = requests.get()
        if "prepare" in request:
            is_prepared = True
            prepare(request["prepare"])
            link.busy = False
            link.send({"type": "done", "id": request["id"]})
            continue
        if "variables" in request:
            os.environ.update(request["variables"])
            link.busy = False
            continue
        if is_prepared:
            is_prepared = False
            reseed()
        streams.restore()
        use_installed()
        INTERRUPTS.install()
        before = set_environment(request["env"])
        runner.run(request)
        if os.getpid() != link.pid:
            streams.flush()
            os._exit(0)
        set_environment(before)
        streams.flush()
        link.busy = False
        link.send({"type": "done", "id": request["id"]})


def main():
    """Starts the Python kernel on the descriptor that the server passed."""
    link = Link(int(sys.argv[1]))
    sys.argv = [""]
    sys.path[0] = ""
    os.environ.setdefault("MPLBACKEND", "Agg")
    serve(link, Python)


if __name__ == "__main__":
    main()
