"""Ends those of a run's processes that hold keys ($HOLDERS) by a signal ($ENDED_BY) and looks for core
dumps. First it ends one of its own so, in the directory `dumped`: the control. Before that
it looks at how each is closed to other processes, and how its memory is held. Arguments:
the run's process, then a file with the value. Writes what it finds, a line each."""
import os, pathlib, signal, subprocess, sys, time

sys.stdout.reconfigure(line_buffering=True)

RUN, REAL = int(sys.argv[1]), pathlib.Path(sys.argv[2])
TOP = REAL.parent.parent
VALUE = REAL.read_bytes().strip()
HOLDERS = os.environ.get("HOLDERS", "atoll-signer atoll-egress").split()
SIGNAL = signal.Signals[os.environ.get("ENDED_BY", "SIGSEGV")]
# Without capabilities, so that it reads a process of the same user only where that lets
# others do so (ptrace(2)).
ORDINARY = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]


def field(pid, name):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return line.split(":", 1)[1].split()[0]
    return "none"


def descendants():
    parents = {}
    for one in filter(str.isdigit, os.listdir("/proc")):
        try:
            parents.setdefault(field(one, "PPid"), []).append(one)
        except OSError:
            pass
    rest = [str(RUN)]
    while rest:
        one = rest.pop()
        yield one
        rest.extend(parents.get(one, []))


def flags_where_it_is(pid):
    """How the kernel treats the mappings that hold the value (proc_pid_smaps(5))."""
    span, found = None, []
    with open(f"/proc/{pid}/smaps") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as mem:
        for line in maps:
            words = line.split()
            if "-" in words[0] and not words[0].endswith(":"):
                span = [int(one, 16) for one in words[0].split("-")] if words[1].startswith("rw") else None
            elif words[0] == "VmFlags:" and span and span[1] - span[0] < 1 << 28:
                try:
                    mem.seek(span[0])
                    if VALUE in mem.read(span[1] - span[0]):
                        found.append([one for one in ("lo", "dd") if one in words])
                except OSError:
                    pass
    return found


def tell_who_reads(name, pid):
    """Whether others of this user can look into its memory (PR_SET_DUMPABLE)."""
    read = subprocess.run([*ORDINARY, "cat", f"/proc/{pid}/environ"], capture_output=True)
    print(name, "closed" if read.returncode else "open")


def ended(pid):
    try:
        return field(pid, "State") in "ZX"
    except OSError:
        return True


def dumps(directory):
    """The core dumps there."""
    return [one for one in directory.iterdir() if one.name.startswith("core")]


def control():
    place = TOP / "dumped"
    program = "import sys, time; held = sys.stdin.buffer.read(); print(1, flush=True); time.sleep(600)"
    one = subprocess.Popen([*ORDINARY, sys.executable, "-c", program], cwd=place, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    one.stdin.write(VALUE)
    one.stdin.close()
    one.stdout.readline()
    tell_who_reads("control", one.pid)
    print("control locks", field(one.pid, "VmLck"))
    one.send_signal(SIGNAL)
    one.wait()
    for core in dumps(place):
        print("control dumped", "it" if VALUE in core.read_bytes() else "nothing")
        core.unlink()


def end(pid, name):
    with open(f"/proc/{pid}/limits") as limits:
        print(name, "limit", *next(one for one in limits if one.startswith("Max core")).split()[4:6])
    print(name, "locks", field(pid, "VmLck"))
    tell_who_reads(name, pid)
    beside = None
    if IS_ROOT:
        # What has just ended is about to be overwritten, where it is kept apart.
        until = time.monotonic() + 20
        while name != "atoll" and any(one != ["lo", "dd"] for one in flags_where_it_is(pid)) and time.monotonic() < until:
            time.sleep(0.2)
        for flags in flags_where_it_is(pid):
            print(name, "holds it", *flags)
        beside = os.open(f"/proc/{pid}/cwd", os.O_PATH)
        print(name, "is in", os.readlink(f"/proc/{pid}/cwd"))
    until = time.monotonic() + 40
    # The first one is taken by the handler that tells of stacks that overflow.
    while not ended(pid) and time.monotonic() < until:
        try:
            os.kill(int(pid), SIGNAL)
        except ProcessLookupError:
            pass
        time.sleep(0.1)
    print(name, "ended" if ended(pid) else "goes on")
    places = [pathlib.Path(one) for one in ("/", "/tmp", "/var/tmp", TOP, TOP / "workspace")]
    if beside is not None:
        places.append(pathlib.Path(f"/proc/self/fd/{beside}"))
    for place in places:
        for core in dumps(place):
            if core.stat().st_mtime > BEGUN:
                print(name, "dumped", place)


BEGUN = time.time() - 2
# Not of a user namespace alone: the machine's.
IS_ROOT = os.geteuid() == 0 and pathlib.Path("/proc/self/uid_map").read_text().split() == ["0", "0", "4294967295"]
control()
every = []
for one in descendants():
    try:
        every.append((field(one, "Name"), one))
    except OSError:
        pass
for wanted in HOLDERS:
    for name, pid in every:
        if name == wanted:
            end(pid, name)
