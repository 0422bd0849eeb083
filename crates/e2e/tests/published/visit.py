"""Visits what `atoll run` publishes: its options are the arguments after the first, which is
the program inside."""
import hashlib, os, socket, subprocess, sys, threading, time, urllib.request

inside, options = sys.argv[1], sys.argv[2:]
run = subprocess.Popen(
    [os.environ["ATOLL"], "run", "--keep", *options, "--", "python3", inside, "600"],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
)
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def get(url):
    try:
        return opener.open(url, timeout=60).read().decode().strip()
    except OSError as error:
        return type(getattr(error, "reason", error)).__name__


def digest(length):
    with socket.create_connection(("127.0.0.1", 5000), 120) as one:
        body = os.urandom(1 << 20) * (length >> 20)
        one.sendall(body)
        one.shutdown(socket.SHUT_WR)
        got = b""
        while block := one.recv(1 << 20):
            got += block
    head, rest = got.split(b"\n", 1)
    expected = f"{length} {hashlib.sha256(body).hexdigest()}"
    return head.decode() == expected and len(rest) == length


# Until the port is there; inside, nothing listens before it is told to.
while (early := get("http://127.0.0.1:8080/")) == "ConnectionRefusedError" and run.poll() is None:
    time.sleep(0.05)
print("early", early in ("ConnectionResetError", "RemoteDisconnected"), flush=True)
run.stdin.write("now\n")
run.stdin.flush()
run.stdout.readline()
print(get("http://127.0.0.1:8080/"))
print(get("http://[::1]:8080/"))
print(get("http://127.0.0.1:3001/"))
for port in (3000, 4000, 15001):
    print("not", port, get(f"http://127.0.0.1:{port}/"))
print("large", digest(48 << 20))
print("many", sum(get("http://127.0.0.1:8080/").startswith("port 3000") for _ in range(150)))
good = []
threads = [threading.Thread(target=lambda: good.append(digest(1 << 20))) for _ in range(100)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("at once", sum(good))
if os.geteuid() == 0 and len(open("/proc/self/uid_map").read().split()) == 3 and open("/proc/self/uid_map").read().split()[2] == "4294967295":
    other = ["setpriv", "--reuid", "61234", "--clear-groups", "curl", "-sS", "-m", "60", "http://127.0.0.1:8080/"]
    print("another user", subprocess.run(other, capture_output=True).returncode != 0)
else:
    print("another user", True)
# One that stays open does not hold the run's end back.
held = socket.create_connection(("127.0.0.1", 8080), 60)
get("http://127.0.0.1:8080/end")
run.wait(100)
print("ended", run.returncode, get("http://127.0.0.1:8080/"))
held.settimeout(60)
try:
    print("held", held.recv(1) or "ended")
except ConnectionResetError:
    # Whichever of both sides ends first.
    print("held ended")
except OSError as error:
    print("held", type(error).__name__)
