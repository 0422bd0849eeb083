#!/usr/bin/env python3
"""Code interpreter of an Atoll sandbox: runs cells of code for E2B's code interpreter SDKs.

An HTTP server on port 49999. Each context is one kernel process (kernel.py, kernel.js,
scripts.py, Kernel.java) in its own session, see kernels.py. The server talks to a kernel over a
socketpair, and reads the kernel's stdout and stderr from two pipes.

A message of a kernel is one line: the kernel's random token, a space, JSON. Other lines are
dropped, so that bytes which a cell writes to the descriptor by accident do no harm. A cell runs
in the kernel's process: it can forge its own results, and nothing else.
"""
import os
import sys

from thawed import thawed

AS_IT_IS = "--as-it-is"
if __name__ == "__main__" and AS_IT_IS not in sys.argv and (quick := thawed([sys.executable, *sys.argv, AS_IT_IS])):
    try:
        os.execv(quick[0], quick)
    except OSError:
        pass

import signal
import socket

PORT = 49999


def keep_from_kernels():
    """Marks inherited descriptors close-on-exec."""
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > 2:
            try:
                os.set_inheritable(fd, False)
            except OSError:
                pass


def serve():
    """Serves until it is ended. The kernel starts first, while the rest is loaded."""
    from contexts import IDLE, REGISTRY

    keep_from_kernels()
    listener = socket.create_server(("0.0.0.0", PORT), backlog=128)
    signal.signal(signal.SIGINT, lambda *_: None)
    IDLE.start()
    REGISTRY.default("python").start_idle()
    from api import Server
    Server(listener).serve_forever(poll_interval=3600)


if __name__ == "__main__":
    serve()
