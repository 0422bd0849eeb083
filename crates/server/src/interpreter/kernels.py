"""Kernel processes of Atoll's code interpreter, their control sockets and output pipes."""
import fcntl
import json
import os
import signal
import socket
import struct
import sys
import termios
import threading
import time

from thawed import thawed

HERE = os.path.dirname(os.path.abspath(__file__))
MAX_MESSAGE = 96 << 20
# Python's and Java's control sockets have a high number, which a cell does not meet by accident.
# Node closes only its first 16 descriptors on exec.
CONTROL_FD = 150
NODE_CONTROL_FD = 15


def own_file(name):
    """Returns the path of a file next to this one."""
    return os.path.join(HERE, name)


def java_command(cwd):
    """Returns the command of the Java kernel, which cannot change its directory itself."""
    flags = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "--add-opens", "java.base/java.io=ALL-UNNAMED"]
    return ["/bin/sh", "-c", 'cd "$0" && exec "$@"', cwd, "java", *flags, own_file("Kernel.java")]


COMMANDS = {
    "python": lambda cwd: [sys.executable, own_file("kernel.py")],
    "javascript": lambda cwd: ["node", own_file("kernel.js")],
    "bash": lambda cwd: [sys.executable, own_file("scripts.py"), "bash"],
    "r": lambda cwd: [sys.executable, own_file("scripts.py"), "r"],
    "java": java_command,
}


class MessageReader:
    """Splits a kernel's byte stream into messages, in bounded memory."""

    def __init__(self, token):
        self.prefix = token.encode() + b" "
        self.parts, self.size = [], 0

    def feed(self, data):
        """Returns the messages that `data` completes."""
        messages = []
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._add(end)
            line = b"".join(self.parts)
            self.parts, self.size = [], 0
            if line.startswith(self.prefix):
                messages += self._parse(line)
        self._add(rest)
        return messages

    def _add(self, part):
        self.size += len(part)
        if self.size > MAX_MESSAGE:
            self.parts = []
        elif part:
            self.parts.append(part)

    def _parse(self, line):
        try:
            message = json.loads(line[len(self.prefix):].decode("utf-8", "replace"))
            return [message] if isinstance(message, dict) else []
        except (ValueError, RecursionError):
            return []


class Process:
    """A child process in its own session."""

    def __init__(self, command, control, stdout, stderr):
        number = NODE_CONTROL_FD if command[0] == "node" else CONTROL_FD
        actions = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)]
        actions += [(os.POSIX_SPAWN_DUP2, fd, to) for fd, to in ((stdout, 1), (stderr, 2), (control, number))]
        self.status = None
        self.lock = threading.Lock()
        self.pid = os.posix_spawnp(
            command[0], [*command, str(number)], os.environ, file_actions=actions, setsid=True,
            setsigdef=[signal.SIGINT, signal.SIGPIPE, signal.SIGTERM])

    def poll(self):
        """Returns the exit status (negative: a signal's number), or None while the process runs."""
        with self.lock:
            if self.status is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self.status = os.waitstatus_to_exitcode(status) if pid else None
            return self.status

    def wait(self, seconds=None):
        """Waits for the end; returns the status, or None after `seconds`."""
        limit = time.monotonic() + (60 if seconds is None else seconds)
        while self.poll() is None and time.monotonic() < limit:
            time.sleep(0.002)
        return self.status


def start(command, language, descriptors):
    """Starts a kernel: from the file with its libraries loaded where that may be executed."""
    quick = thawed(command) if language == "python" else None
    if quick:
        try:
            return Process(quick, *descriptors)
        except OSError:
            pass
    return Process(command, *descriptors)


class Kernel:
    """One kernel process, with its control socket and output pipes."""

    def __init__(self, language, cwd):
        self.count = 0
        self.end_reason = None
        token = os.urandom(16).hex()
        self.reader = MessageReader(token)
        self.control, child = socket.socketpair()
        fd = fcntl.fcntl(child, fcntl.F_DUPFD_CLOEXEC, 100)
        child.close()
        ends = {name: os.pipe() for name in ("stdout", "stderr")}
        try:
            self.process = start(COMMANDS[language](cwd), language, (fd, ends["stdout"][1], ends["stderr"][1]))
        except OSError:
            for read_end, _ in ends.values():
                os.close(read_end)
            self.control.close()
            raise
        finally:
            for number in (fd, ends["stdout"][1], ends["stderr"][1]):
                os.close(number)
        self.pipes = {name: read_end for name, (read_end, _) in ends.items()}
        for pipe in self.pipes.values():
            os.set_blocking(pipe, False)
        self.send({"token": token, "cwd": cwd})

    def descriptors(self):
        """Returns the descriptors to read from."""
        return [self.control.fileno(), *self.pipes.values()]

    def send(self, message):
        """Sends one message; a kernel that is gone is noticed by its reader."""
        try:
            self.control.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            pass

    def receive(self):
        """Returns the messages that have come, or None once the kernel has closed the socket."""
        try:
            data = self.control.recv(1 << 20, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        except OSError:
            return None
        return self.reader.feed(data) if data else None

    def alive(self):
        """Returns whether the process has not ended."""
        return self.process.poll() is None

    def signal(self, number):
        """Signals the kernel's process group."""
        if self.alive():
            try:
                os.killpg(self.process.pid, number)
            except OSError:
                pass

    def kill(self, reason=None):
        """Kills the kernel and the processes of its group."""
        self.end_reason = self.end_reason or reason
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except OSError:
            pass

    def dispose(self):
        """Kills the kernel and closes its descriptors."""
        self.kill()
        self.process.wait()
        self.control.close()
        for pipe in self.pipes.values():
            os.close(pipe)

    def end_message(self):
        """Explains why the kernel ended."""
        if self.end_reason:
            return self.end_reason
        status = self.process.wait(1)
        if status is None:
            return "the kernel closed its connection; its variables are lost, the next cell starts a new one"
        how = f"was killed by signal {-status}" if status < 0 else f"ended with exit status {status}"
        if status == -signal.SIGKILL:
            how += ", as the memory limit of the sandbox kills"
        return f"the kernel {how}; its variables are lost, the next cell starts a new one"


def read_pipe(fd, size=65536):
    """Reads what a pipe holds: None if nothing has come, empty at its end."""
    try:
        return os.read(fd, size)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def pending_bytes(fd):
    """Returns how many bytes a pipe holds now."""
    try:
        return struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0"))[0]
    except OSError:
        return 0
