"""Has ports published while `atoll run` goes on, by commands of its input. Arguments: the program inside, where the run's
JSON goes, the directory of the state."""
import atexit, json, os, socket, subprocess, sys, time, urllib.request

inside, told, state = sys.argv[1:]
atoll = os.environ["ATOLL"]
run = subprocess.Popen(
    [atoll, "run", "--keep", "--json", told, "--", "python3", inside, "600"],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
)
# Whatever fails here, its end is not waited for.
atexit.register(run.kill)
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def get(url):
    try:
        return opener.open(url, timeout=60).read().decode().strip()
    except OSError as error:
        return type(getattr(error, "reason", error)).__name__


def asked(*words):
    done = subprocess.run([atoll, *words], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def listed():
    code, out, err = asked("ports", "--json")
    assert code == 0, (code, out, err)
    return {one["port"]: one for run in json.loads(out) for one in run["listening"]}


run.stdin.write("now\n")
run.stdin.flush()
run.stdout.readline()
until = time.monotonic() + 120
while not {3000, 3001, 4000, 5000} <= set(found := listed()) and time.monotonic() < until:
    time.sleep(0.1)
print("listed", [(port, one["at"], one.get("program")) for port, one in sorted(found.items())])
print("never by itself", get("http://127.0.0.1:3000/"))
# What the page says, as it says it: 3000, and 3000 at 8080 too.
for line in sys.stdin:
    done = subprocess.run(["sh", "-c", 'atoll() { "$ATOLL" "$@"; }; ' + line], capture_output=True, text=True)
    print("page", done.returncode, done.stdout.strip().replace("\n", "|").split(" ", 1)[-1])
print(get("http://127.0.0.1:3000/"))
print(get("http://127.0.0.1:8080/"))
print(get("http://[::1]:8080/"))
print("not", get("http://127.0.0.1:4000/"))
# The second one comes to who carries already.
print("asked for", asked("publish", "last", "3001", "--json")[0])
print(get("http://127.0.0.1:3001/"))
print("many", sum(get("http://127.0.0.1:8080/").startswith("port 3000") for _ in range(60)))
code, out, err = asked("publish", "last", "4000", "--to", "8080")
print("twice", code, "leads to one inside already" in err)
taken = socket.create_server(("127.0.0.1", 9000))
code, out, err = asked("publish", "last", "4000", "--to", "9000")
print("taken", code, "listens there already" in err)
for wrong in (["0"], ["65536"], ["x"], ["80:80"]):
    print("no port", asked("publish", "last", *wrong)[0])
print("no run", asked("publish", "nobody", "3000")[0])
directory = os.path.join(state, "atoll", "control")
[name] = os.listdir(directory)
print("modes", oct(os.stat(directory).st_mode & 0o777), oct(os.stat(os.path.join(directory, name)).st_mode & 0o777))
ask = """import socket, sys
one = socket.socket(socket.AF_UNIX)
one.settimeout(60)
try:
    one.connect(sys.argv[1])
    one.sendall(b'{"v":1,"said":{"ports":{}}}\\n')
    print("answered" if len(one.recv(9999)) > 9 else "not answered")
except PermissionError:
    print("kept out")
except OSError:
    print("not answered")
"""


def speaks(*front):
    path = os.path.join(directory, name)
    done = subprocess.run([*front, sys.executable, "-c", ask, path], capture_output=True, text=True)
    return done.stdout.strip()


print("spoken to", speaks())
if os.environ.get("AS_ROOT"):
    other = ["setpriv", "--reuid", "61234", "--clear-groups"]
    print("another user", speaks(*other))
    os.chmod(os.path.dirname(directory), 0o711)
    os.chmod(directory, 0o711)
    os.chmod(os.path.join(directory, name), 0o666)
    # The kernel lets them come now, and they are not answered.
    print("another user", speaks(*other))
    os.chmod(directory, 0o700)
get("http://127.0.0.1:8080/end")
run.wait(100)
print("ended", run.returncode, get("http://127.0.0.1:8080/"), os.listdir(directory))
