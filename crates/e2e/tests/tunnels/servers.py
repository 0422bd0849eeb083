"""Servers that speak no HTTP: they write down all that reaches them, and say it again.
Arguments: the directory, then the command to run while they are there. The key is in the file
`real` beside that directory."""
import base64, os, socket, subprocess, sys, threading, time

PLACE = sys.argv[1]
REAL = open(os.path.join(PLACE, "..", "real")).read().strip().encode()
lock, serving = threading.Lock(), []


def told():
    """What is told of the key, in pieces."""
    yield [b"+key " + REAL + b"\r\n"]
    yield [b"+hex " + REAL.hex().encode() + b"\r\n"]
    yield [b"+base64 " + base64.b64encode(b"a" + REAL) + b"\r\n"]
    yield [b"+split " + REAL[:20], REAL[20:] + b"\r\n"]


def serve(connection, greets):
    with connection:
        came = b""
        try:
            if greets:
                connection.sendall(b"220 ready\r\n")
            while block := connection.recv(1 << 16):
                came += block
                if came.startswith(b"TELL"):
                    for pieces in told():
                        for piece in pieces:
                            connection.sendall(piece)
                            time.sleep(0.02)
                    break
                connection.sendall(block)
        except OSError:
            pass
        with lock, open(os.path.join(PLACE, "recorded"), "a") as to:
            to.write(came.hex() + "\n")


def listen(port, greets):
    listener = socket.create_server(("", port), backlog=128)

    def accept():
        while True:
            connection, _ = listener.accept()
            one = threading.Thread(target=serve, args=(connection, greets), daemon=True)
            one.start()
            serving.append(one)

    threading.Thread(target=accept, daemon=True).start()


for port in (7000, 7001):
    listen(port, False)
listen(7002, True)
status = subprocess.run(sys.argv[2:]).returncode
# What ends last is written down too.
for one in serving:
    one.join(30)
sys.exit(status)
