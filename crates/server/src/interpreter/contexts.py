"""Contexts of Atoll's code interpreter: their queues, and the execution of cells."""
import codecs
import collections
import os
import select
import signal
import socket
import threading
import time

from kernels import Kernel, pending_bytes, read_pipe

MAX_PART = 32 << 20
INTERRUPT_SECONDS = 30
PREPARE_SECONDS = 30
REQUIRED = {"r": "Rscript", "javascript": "node", "typescript": "node", "java": "java", "bash": "bash"}
FIELDS = {
    "text/plain": "text", "text/html": "html", "text/markdown": "markdown", "text/latex": "latex",
    "image/svg+xml": "svg", "image/png": "png", "image/jpeg": "jpeg", "application/pdf": "pdf",
    "application/json": "json", "application/javascript": "javascript",
    "e2b/data": "data", "e2b/chart": "chart",
}


class RequestError(Exception):
    """A request that is answered with an HTTP error status."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class FairLock:
    """A lock that is granted in order of arrival, and whose waiters can give up."""

    def __init__(self):
        self.mutex = threading.Lock()
        self.held = False
        self.waiting = collections.deque()

    def try_acquire(self):
        """Takes the lock if nobody holds it."""
        with self.mutex:
            if self.held:
                return False
            self.held = True
            return True

    def acquire(self, still_wanted):
        """Waits for the lock; gives up and returns false once `still_wanted` returns false."""
        with self.mutex:
            if not self.held:
                self.held = True
                return True
            granted = threading.Event()
            self.waiting.append(granted)
        while not granted.wait(0.25):
            if not still_wanted():
                self._give_up(granted)
                return False
        return True

    def _give_up(self, granted):
        with self.mutex:
            if granted in self.waiting:
                self.waiting.remove(granted)
                return
        self.release()

    def release(self):
        """Hands the lock to the first waiter, or frees it."""
        with self.mutex:
            if self.waiting:
                self.waiting.popleft().set()
            else:
                self.held = False


class Context:
    """A kernel that may not have been started yet, and its queue of executions."""

    def __init__(self, language, cwd):
        self.id = os.urandom(16).hex()
        self.language, self.cwd = language, cwd
        self.turn = FairLock()
        self.kernel = None
        self.notice = None
        self.removed = False

    def describe(self):
        """Returns the context as E2B's SDK expects it."""
        return {"id": self.id, "language": self.language, "cwd": self.cwd}

    def ensure_kernel(self):
        """Returns a live kernel, and starts one if needed. The caller holds the turn."""
        if self.kernel and (self.kernel.end_reason or not self.kernel.alive()):
            if not self.kernel.end_reason:
                self.notice = self.notice or self.kernel.end_message()
            self.drop_kernel()
        if not self.kernel:
            language = "javascript" if self.language == "typescript" else self.language
            cwd = self.cwd if os.path.isdir(self.cwd) else default_cwd()
            self.kernel = Kernel(language, cwd)
        return self.kernel

    def drop_kernel(self):
        """Ends the kernel, if there is one. The caller holds the turn."""
        if self.kernel:
            IDLE.remove(self)
            self.kernel.dispose()
            self.kernel = None

    def start_idle(self):
        """Starts a kernel ahead of the next execution, unless one is running."""
        if not self.turn.try_acquire():
            return
        try:
            self.ensure_kernel()
            IDLE.add(self)
        except OSError:
            pass
        finally:
            self.turn.release()

    def restart(self, reason):
        """Kills the kernel and starts a new one; a running execution ends with an error."""
        kernel = self.kernel
        if kernel:
            kernel.kill(reason)
        self.start_idle()

    def interrupt(self):
        """Interrupts the cell that is executed, if there is one."""
        if self.turn.try_acquire():
            self.turn.release()
        elif self.kernel:
            self.kernel.signal(signal.SIGINT)


class IdleOutput:
    """Discards what kernels write between executions, so that background jobs do not block."""

    def __init__(self):
        self.epoll = None
        self.owners = {}

    def start(self):
        """Starts the thread."""
        self.epoll = select.epoll()
        threading.Thread(target=self._run, daemon=True).start()

    def add(self, context):
        """Begins to discard a context's output. The caller holds the turn."""
        for fd in context.kernel.descriptors():
            self.owners[fd] = context
            try:
                self.epoll.register(fd, select.EPOLLIN)
            except OSError:
                pass

    def remove(self, context):
        """Stops discarding a context's output. The caller holds the turn."""
        for fd in context.kernel.descriptors():
            self._forget(fd)

    def _forget(self, fd):
        if self.owners.pop(fd, None):
            try:
                self.epoll.unregister(fd)
            except OSError:
                pass

    def _run(self):
        while True:
            for fd, _ in self.epoll.poll():
                context = self.owners.get(fd)
                if context and context.turn.try_acquire():
                    try:
                        if self.owners.get(fd) is context:
                            self._discard(fd, context.kernel)
                    finally:
                        context.turn.release()

    def _discard(self, fd, kernel):
        if fd == kernel.control.fileno():
            ended = kernel.receive() is None
        else:
            ended = read_pipe(fd) == b""
        if ended:
            self._forget(fd)


class Registry:
    """All contexts, and the default one of each language."""

    def __init__(self):
        self.lock = threading.Lock()
        self.contexts = {}
        self.defaults = {}

    def default(self, language):
        """Returns the default context of a language; TypeScript shares JavaScript's."""
        language = "javascript" if language == "typescript" else language
        with self.lock:
            if language not in self.defaults:
                self.defaults[language] = self._add(language, default_cwd())
            return self.defaults[language]

    def create(self, language, cwd):
        """Adds a context and starts its kernel."""
        if cwd is not None and not os.path.isdir(cwd):
            raise RequestError(400, f"cannot create a context in {cwd}: no such directory")
        with self.lock:
            context = self._add(language, cwd or default_cwd())
        context.start_idle()
        return context

    def _add(self, language, cwd):
        context = Context(language, cwd)
        self.contexts[context.id] = context
        return context

    def find(self, context_id):
        """Returns the context, or raises a 404."""
        context = self.contexts.get(context_id)
        if not context:
            raise RequestError(404, f"Context {context_id} not found")
        return context

    def remove(self, context_id):
        """Forgets a context and ends its kernel."""
        with self.lock:
            context = self.find(context_id)
            del self.contexts[context_id]
            if self.defaults.get(context.language) is context:
                del self.defaults[context.language]
        context.removed = True
        if context.kernel:
            context.kernel.kill("the context was removed")
        if context.turn.try_acquire():
            context.drop_kernel()
            context.turn.release()


IDLE = IdleOutput()
REGISTRY = Registry()


def default_cwd():
    """Returns /home/user, else the home directory."""
    for path in ("/home/user", os.environ.get("HOME") or "/"):
        if os.path.isdir(path):
            return path
    return "/"


def strip_quotes(text):
    """Removes one pair of outer quotes, as E2B does for a string's text."""
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text


def result_events(message, keeps_quotes=False):
    """Makes a result event from a MIME bundle, and an error event for each part that is too large."""
    result, extra, events = {"type": "result"}, {}, []
    mime = message.get("mime")
    for kind, value in (mime.items() if isinstance(mime, dict) else ()):
        size = len(value) if isinstance(value, str) else 0
        if size > MAX_PART:
            events.append(error_event("OutputTooLarge", f"the result's {kind} part has {size} bytes; the limit is {MAX_PART}"))
        elif kind in FIELDS:
            result[FIELDS[kind]] = value
        else:
            extra[kind] = value
    if isinstance(result.get("text"), str) and not keeps_quotes:
        result["text"] = strip_quotes(result["text"])
    if extra:
        result["extra"] = extra
    result["is_main_result"] = message.get("main") is True
    return [result, *events] if len(result) > 2 else events


def error_event(name, value, traceback=""):
    """Makes an error event."""
    return {"type": "error", "name": str(name), "value": str(value), "traceback": str(traceback or f"{name}: {value}")}


class Execution:
    """One cell: forwards a kernel's output to the client until the kernel reports the end."""

    def __init__(self, kernel, stream):
        self.kernel, self.stream = kernel, stream
        self.decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in kernel.pipes}
        self.names = {fd: name for name, fd in kernel.pipes.items()}
        self.poll = select.poll()
        self.gave_up_at = None
        self.next_interrupt = 0
        self.ended = False

    def run(self, code, env, typescript):
        """Runs the cell; returns whether the kernel is still usable."""
        kernel = self.kernel
        kernel.count += 1
        for fd in kernel.pipes.values():
            while read_pipe(fd):
                pass
        for fd in (*kernel.descriptors(), self.stream.sock.fileno()):
            self.poll.register(fd, select.POLLIN)
        kernel.send({"id": kernel.count, "code": code, "env": env, "typescript": typescript})
        while not self.ended:
            self._step()
        for name, decoder in self.decoders.items():
            self._send_text(name, decoder.decode(b"", True))
        return self.ended == "done"

    def _step(self):
        for fd, _ in self.poll.poll(500):
            if fd == self.kernel.control.fileno():
                self._read_control()
            elif fd in self.names:
                self._read_output(fd, 65536)
            elif not self.stream.client_gone():
                self.poll.unregister(fd)
        self.stream.keepalive()
        if self.stream.closed and not self.ended:
            self._interrupt()
        if not self.ended and not self.kernel.alive():
            self._read_control()
            self._end_dead()

    def _interrupt(self):
        """Interrupts a cell whose client has gone: each second, and by force in the end."""
        now = time.monotonic()
        if self.gave_up_at is None:
            self.gave_up_at = now + INTERRUPT_SECONDS
            try:
                self.poll.unregister(self.stream.sock.fileno())
            except (KeyError, ValueError):
                pass
        if now >= self.gave_up_at:
            self.kernel.kill(f"the kernel ignored interrupts for {INTERRUPT_SECONDS} s and was killed; its variables are lost")
        elif now >= self.next_interrupt:
            self.next_interrupt = now + 1
            self.kernel.signal(signal.SIGINT)

    def _read_output(self, fd, size):
        data = read_pipe(fd, size)
        if data:
            self._send_text(self.names[fd], self.decoders[self.names[fd]].decode(data))
        elif data == b"":
            self.poll.unregister(fd)
            self.names.pop(fd)
        return len(data or b"")

    def _send_text(self, name, text):
        if text:
            self.stream.send({"type": name, "text": text, "timestamp": time.time_ns()})

    def _read_control(self):
        messages = self.kernel.receive()
        for message in messages or ():
            self._drain()
            self._handle(message)
        if messages is None and not self.ended:
            self._end_dead()

    def _drain(self):
        """Forwards what the kernel had written before its message: all that the pipes hold now."""
        for fd in list(self.names):
            left = pending_bytes(fd)
            while left > 0:
                count = self._read_output(fd, min(left, 65536))
                left = left - count if count else 0

    def _handle(self, message):
        kind = message.get("type")
        if kind == "result":
            for event in result_events(message, self.stream.keeps_quotes):
                self.stream.send(event)
        elif kind == "error":
            self.stream.send(error_event(message.get("name"), message.get("value"), message.get("traceback")))
        elif kind == "done" and message.get("id") == self.kernel.count:
            self.ended = "done"

    def _end_dead(self):
        self._drain()
        if not self.ended:
            self.stream.send(error_event("KernelDied", self.kernel.end_message()))
            self.ended = "died"


def execute(context, request, stream):
    """Answers /execute: waits for the context's turn and runs the cell."""
    if not context.turn.acquire(stream.still_wanted):
        return
    try:
        if context.removed:
            stream.send(error_event("ContextRemoved", "the context was removed"))
        elif not stream.client_gone():
            _execute_now(context, request, stream)
    finally:
        context.turn.release()
    stream.send({"type": "end_of_execution"})
    stream.finish()


class Nobody:
    """The client of a cell that nobody has sent."""

    closed = False

    def __init__(self):
        self.sock, self.other = socket.socketpair()

    def send(self, _event):
        """Sends nothing."""

    def keepalive(self):
        """Sends nothing."""

    def client_gone(self):
        """Returns that it is still there."""
        return False


def prepare(context, modules):
    """Has a kernel that has run no cell yet import modules; returns once it has, or cannot."""
    if not context.turn.acquire(lambda: True):
        return
    try:
        kernel = start_kernel(context)
        # What is slow the first time is done by a cell of no effect.
        if kernel.count == 0 and Execution(kernel, Nobody()).run("None", {}, False):
            kernel.count = 0
            kernel.send({"id": 0, "prepare": modules})
            _await_prepared(kernel)
        IDLE.add(context)
    except OSError as error:
        raise RequestError(500, f"no kernel can be started: {error}") from None
    finally:
        context.turn.release()


def set_variables(context, variables):
    """Sets variables, for kernels that start later and for the one of this context."""
    if not context.turn.acquire(lambda: True):
        return
    try:
        os.environ.update(variables)
        if context.kernel:
            context.kernel.send({"id": 0, "variables": variables})
    finally:
        context.turn.release()


def _await_prepared(kernel):
    limit = time.monotonic() + PREPARE_SECONDS
    poll = select.poll()
    for fd in kernel.descriptors():
        poll.register(fd, select.POLLIN)
    while time.monotonic() < limit and kernel.alive():
        for fd, _ in poll.poll(500):
            if fd != kernel.control.fileno():
                if read_pipe(fd) == b"":
                    poll.unregister(fd)
                continue
            messages = kernel.receive()
            if messages is None or any(one.get("type") == "done" for one in messages):
                return


def _execute_now(context, request, stream):
    try:
        kernel = start_kernel(context)
    except OSError as error:
        program = REQUIRED.get(context.language, "python3")
        value = f"cannot run {context.language} code: {error.strerror or error}. Install {program} in the sandbox's template"
        stream.send({"type": "number_of_executions", "execution_count": 0})
        stream.send(error_event("LanguageNotAvailable", value))
        return
    stream.send({"type": "number_of_executions", "execution_count": kernel.count + 1})
    if context.notice:
        stream.send({"type": "stderr", "text": context.notice + "\n", "timestamp": time.time_ns()})
        context.notice = None
    typescript = "typescript" in (request["language"], context.language)
    usable = Execution(kernel, stream).run(request["code"], request["env"], typescript)
    if not usable:
        if stream.closed and kernel.end_reason:
            context.notice = kernel.end_reason
        context.drop_kernel()
    if not context.removed:
        context.ensure_kernel()
        IDLE.add(context)
    else:
        context.drop_kernel()


def start_kernel(context):
    """Returns the context's kernel, ready for an execution."""
    program = REQUIRED.get(context.language)
    if program and not context.kernel:
        import shutil
        if not shutil.which(program):
            raise OSError(2, f"{program} is not installed")
    kernel = context.ensure_kernel()
    IDLE.remove(context)
    return kernel
