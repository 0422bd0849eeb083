#!/usr/bin/env python3
"""Code interpreter of an Atoll sandbox: runs cells of code for E2B's code interpreter SDKs.

An HTTP server on port 49999. Each context is one kernel process (kernel.py, kernel.js,
scripts.py, Kernel.java) in its own session, see kernels.py. The server talks to a kernel over a
socketpair, and reads the kernel's stdout and stderr from two pipes.

A message of a kernel is one line: the kernel's random token, a space, JSON. Other lines are
dropped, so that bytes which a cell writes to the descriptor by accident do no harm. A cell runs
in the kernel's process: it can forge its own results, and nothing else.
"""
import argparse
import os
import signal
import socket
import sys
import time


def serve(listener, supervisor):
    """Runs the server until its supervisor ends. The kernel starts first, while the rest is loaded."""
    import threading

    from contexts import IDLE, REGISTRY

    def end_with_supervisor():
        os.read(supervisor, 1)
        for context in list(REGISTRY.contexts.values()):
            if context.kernel:
                context.kernel.kill()
        os._exit(0)

    signal.signal(signal.SIGINT, lambda *_: None)
    IDLE.start()
    threading.Thread(target=end_with_supervisor, daemon=True).start()
    REGISTRY.default("python").start_idle()
    from api import Server
    Server(listener).serve_forever(poll_interval=3600)


def supervise(listener):
    """Keeps a server process running: a cell that kills its parent costs the contexts, not the port."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while True:
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(write_end)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            try:
                serve(listener, read_end)
            finally:
                os._exit(1)
        os.close(read_end)
        started = time.monotonic()
        os.waitpid(pid, 0)
        os.close(write_end)
        if time.monotonic() - started < 0.5:
            time.sleep(0.5)


def keep_from_kernels(fd):
    """Marks an inherited descriptor close-on-exec."""
    try:
        os.set_inheritable(fd, False)
    except OSError:
        pass


def main():
    """Parses the arguments and serves."""
    parser = argparse.ArgumentParser(description="Runs cells of code for E2B's code interpreter SDKs.")
    parser.add_argument("--port", type=int, default=49999, help="listen on this port (default 49999)")
    parser.add_argument("--host", default="0.0.0.0", help="listen on this address (default 0.0.0.0)")
    options = parser.parse_args()
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > 2:
            keep_from_kernels(fd)
    listener = socket.create_server((options.host, options.port), backlog=128)
    try:
        supervise(listener)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
