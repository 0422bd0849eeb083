"""Keeps an interpreter with its libraries loaded in a file, from which others go on (thaw.rs).

Run as a program, `frozen.py FILE MODULES PREFIXES`, in a sandbox of its own: it loads the kernel, the
modules and the server, writes its memory to FILE, and ends. A process that goes on from FILE
is the server or a kernel, by its arguments. It is as if forked: the hash seed of strings and the
places of everything in memory are those of the file; random numbers, variables, descriptors,
and all that the kernel of the system keeps of a process are its own.
"""
import ctypes
import gc
import mmap
import os
import signal
import struct
import subprocess
import sys

from thawed import HEAD, THAW

MAGIC, PAGE = 0x31776168746C7461, 4096
OF_IMAGE, OF_FILE, EMPTY, SHARED, MOVED, WIPED = range(6)
STACK = 8 << 20
RANGES = 16384
ARCH_GET_FS, PR_GET_TID_ADDRESS = 0x1003, 40
ARCH_PRCTL, PRCTL, GET_ROBUST_LIST = 158, 157, 274
SET_THREADS = ("scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads", "openblas_set_num_threads64_", "openblas_set_num_threads")
# A cell does not find these.
OWN_MODULES = ("api", "contexts", "kernel", "kernels", "server", "thawed")
EMPTY_BYTES = sys.getsizeof(b"")
ABSENT = (1 << 64) - 1


class Refused(Exception):
    """The process cannot be kept."""


class Mapping:
    """One line of proc_pid_maps(5)."""

    def __init__(self, line):
        fields = line.split(None, 5)
        self.start, self.end = (int(part, 16) for part in fields[0].split(b"-"))
        self.protection = sum(bit for bit, letter in ((1, b"r"), (2, b"w"), (4, b"x")) if letter in fields[1][:3])
        self.is_shared = fields[1].endswith(b"s")
        self.offset = int(fields[2], 16)
        self.name = fields[5] if len(fields) > 5 else b""
        self.is_file = self.name.startswith(b"/") and not self.name.endswith(b"(deleted)")


def read_mappings(file="maps"):
    """Returns the text of the mappings, at one moment."""
    parts = []
    fd = os.open(f"/proc/self/{file}", os.O_RDONLY | os.O_CLOEXEC)
    while part := os.read(fd, 1 << 16):
        parts.append(part)
    os.close(fd)
    return b"".join(parts)


def read_wiped():
    """Returns the starts of the mappings that a fork would wipe, or the kernel may drop (proc_pid_smaps(5)).

    The C library keeps its random numbers there: they are never another process's.
    """
    wiped, start = set(), None
    for line in read_mappings("smaps").splitlines():
        words = line.split()
        if words[0] == b"VmFlags:":
            if b"wf" in words or b"dp" in words:
                wiped.add(start)
        elif not words[0].endswith(b":"):
            start = int(words[0].split(b"-")[0], 16)
    return wiped


class Plan:
    """The mappings of the process, and which of them are written to the file."""

    def __init__(self):
        self.same = {}

    def make(self, text):
        """Decides on each mapping."""
        self.entries, self.ranges, self.size = [], [], HEAD
        self.wiped = read_wiped()
        for line in text.splitlines():
            mapping = Mapping(line)
            if mapping.name != b"[vsyscall]":
                self._add(mapping)

    def _add(self, one):
        if one.name == b"[vdso]" or one.name.startswith(b"[vvar"):
            self._entry(one, 0, MOVED, one.name)
        elif one.start in self.wiped:
            self._entry(one, 0, WIPED)
        elif one.is_shared:
            if one.protection != 1 or not one.is_file:
                raise Refused(f"it shares memory: {one.name!r}")
            self._entry(one, one.offset, SHARED, one.name)
        elif one.protection == 0:
            self._entry(one, 0, EMPTY)
        elif one.is_file and not one.protection & 2 and self._is_as_in_file(one):
            self._entry(one, one.offset, OF_FILE, one.name)
        else:
            if one.name == b"[stack]":
                self.entries.append((one.end - STACK, one.start, 0, EMPTY, 3, b""))
            self._entry(one, self.size, OF_IMAGE)
            self.ranges += [one.start, one.end, self.size]
            self.size += one.end - one.start

    def _entry(self, one, offset, kind, name=b""):
        self.entries.append((one.start, one.end, offset, kind, one.protection, name))

    def _is_as_in_file(self, one):
        key = one.start, one.end, one.name
        if key not in self.same:
            with open("/proc/self/mem", "rb", 0) as memory, open(one.name, "rb", 0) as file:
                length = one.end - one.start
                there = os.pread(file.fileno(), length, one.offset)
                self.same[key] = os.pread(memory.fileno(), length, one.start) == there + bytes(length - len(there))
        return self.same[key]


class Registers:
    """What the kernel of the system keeps of the thread."""

    def __init__(self):
        libc = ctypes.CDLL(None)
        values = [ctypes.c_uint64() for _ in range(4)]
        fs, tid, robust, length = values
        libc.syscall(ARCH_PRCTL, ARCH_GET_FS, ctypes.byref(fs))
        libc.syscall(PRCTL, PR_GET_TID_ADDRESS, ctypes.byref(tid), 0, 0, 0)
        libc.syscall(GET_ROBUST_LIST, 0, ctypes.byref(robust), ctypes.byref(length))
        self.values = [fs.value, tid.value, robust.value, *self._rseq(libc, fs.value)]

    @staticmethod
    def _rseq(libc, fs):
        try:
            offset = ctypes.c_int64.in_dll(libc, "__rseq_offset").value
            size = ctypes.c_uint32.in_dll(libc, "__rseq_size").value
        except ValueError:
            return 0, 0
        return (fs + offset, 32) if size else (0, 0)


def load_code():
    """Loads the function that writes the memory; returns what holds it, and the function."""
    code = subprocess.run([THAW, "-"], stdout=subprocess.PIPE, check=True).stdout
    rights = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
    page = mmap.mmap(-1, PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=rights)
    page.write(code)
    number, place = ctypes.c_ulong, ctypes.c_void_p
    function = ctypes.CFUNCTYPE(number, place, number, number, place)
    return page, function(ctypes.addressof(ctypes.c_char.from_buffer(page)))


def freeze(path, witnesses):
    """Writes the process to a file. Returns False then, and True in a process that goes on from it."""
    if len(os.listdir("/proc/self/task")) != 1:
        raise Refused("it has threads")
    page, write = load_code()
    registers, frame = Registers(), (ctypes.c_uint64 * 2)()
    table = (ctypes.c_uint64 * (3 * RANGES))()
    out = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    plan, text = Plan(), None
    for _ in range(10):
        # Making a plan takes memory too, which may be another mapping.
        text = read_mappings()
        plan.make(text)
        table[:len(plan.ranges)] = plan.ranges
        if read_mappings() == text:
            break
    else:
        raise Refused("its memory does not stay as it is")
    os.ftruncate(out, plan.size)
    result = write(ctypes.addressof(table), len(plan.ranges) // 3, out, ctypes.addressof(frame))
    if result == 1:
        return True
    if result != 0 or read_mappings() != text:
        raise Refused("its memory cannot be written")
    head = describe(plan.entries, witnesses, [*frame, *registers.values])
    os.pwrite(out, head, 0)
    os.close(out)
    del page
    return False


def describe(entries, witnesses, registers):
    """Returns the beginning of the file: as thaw.rs reads it."""
    paths = sorted({entry[5] for entry in entries if entry[3] in (OF_FILE, SHARED)} | set(witnesses))
    strings, places = bytearray(), {}
    begin = 9 * 8 + 8 * 2 + len(entries) * 40 + len(paths) * 32

    def place(text):
        if text not in places:
            places[text] = begin + len(strings)
            strings.extend(text + b"\0")
        return places[text]

    listed = [struct.pack("<QQQIIQ", *entry[:5], place(entry[5])) for entry in entries]
    files = [struct.pack("<QQQQ", place(path), *looks(path)) for path in paths]
    body = b"".join(listed + files) + bytes(strings)
    length = begin - len(entries) * 40 - len(paths) * 32 + len(body)
    head = struct.pack("<11Q", MAGIC, length, len(entries), len(paths), *registers)
    if length > HEAD:
        raise Refused("it has too many mappings")
    return head + body


def looks(path):
    """Returns a file's length and time, by which a change of it shows."""
    try:
        status = os.stat(path)
    except OSError:
        return ABSENT, 0, 0
    return status.st_size, status.st_mtime_ns // 10**9, status.st_mtime_ns % 10**9


def searched():
    """Returns the paths where modules and their settings are looked for: what is new there is wanted."""
    import site
    home = os.path.expanduser("~")
    paths = [*sys.path, site.getusersitepackages(), os.path.join(home, ".config", "matplotlib")]
    return [os.fsencode(path) for path in paths if path]


def early(environment, prefixes):
    """Returns the variables that are looked at before a cell can set them."""
    return {name: value for name, value in environment.items() if name.startswith(prefixes)}


def read_list(path):
    """Returns the texts of a file of /proc."""
    with open(path, "rb") as file:
        return [os.fsdecode(text) for text in file.read().split(b"\0")[:-1]]


def go_on(frozen_environment, prefixes):
    """Makes the process its own; returns its arguments. A process that should have begun with other variables begins anew."""
    environment = dict(one.split("=", 1) for one in read_list("/proc/self/environ") if "=" in one)
    arguments = read_list("/proc/self/cmdline")[2:]
    if early(environment, prefixes) != frozen_environment:
        os.execvpe(arguments[0], arguments, environment)
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    import tempfile
    import threading
    tempfile.tempdir = tempfile._name_sequence = None
    threading.main_thread()._set_native_id()
    return arguments


def start_threads():
    """Has OpenBLAS use all processors again: one thread is all that can be kept."""
    count = len(os.sched_getaffinity(0))
    for line in read_mappings().splitlines() if count > 1 else []:
        one = Mapping(line)
        if b"openblas" in os.path.basename(one.name) and one.offset == 0:
            library = ctypes.CDLL(os.fsdecode(one.name))
            for name in SET_THREADS:
                if hasattr(library, name):
                    getattr(library, name)(count)
                    break


def fill_pools():
    """Takes the free places between what is loaded: what is made later lies together, and what is loaded stays shared."""
    with open(os.memfd_create("pools"), "rb+", 0) as out:
        before = os.dup(2)
        os.dup2(out.fileno(), 2)
        sys._debugmallocstats()
        os.dup2(before, 2)
        os.close(before)
        out.seek(0)
        rows = [line.split() for line in out.read().splitlines()]
    free = {int(row[1]): int(row[4]) for row in rows if len(row) == 5 and all(part.isdigit() for part in row)}
    return [bytes(size - EMPTY_BYTES) for size, count in free.items() if size > EMPTY_BYTES for _ in range(count)]


def main():
    """Keeps this process in a file; goes on as the server or a kernel."""
    path, modules, prefixes = sys.argv[1], sys.argv[2].split(","), tuple(sys.argv[3].split(","))
    # For this process alone: addresses that are looked up later would be written later.
    os.environ.pop("LD_BIND_NOW", None)
    environment = early(os.environ, prefixes)
    os.environ.setdefault("MPLBACKEND", "Agg")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    # The server does without it; a cell may not.
    import ssl
    import api
    import kernel
    import server
    cache = kernel.prepare(modules)
    kernel.split_cell("None", "Cell In[0]")
    # Mixed with new bytes later, which takes memory the first time.
    kernel.reseed()
    gc.collect()
    gc.disable()
    kept = [ssl, api, fill_pools()]
    gc.freeze()
    if not freeze(path, searched()):
        return
    gc.enable()
    sys.argv = go_on(environment, prefixes)[1:]
    if os.path.basename(sys.argv[0]) != "kernel.py":
        return server.serve()
    kept += [sys.modules.pop(name) for name in OWN_MODULES]
    os.makedirs(cache, mode=0o700, exist_ok=True)
    kernel.reseed()
    start_threads()
    kernel.main()


if __name__ == "__main__":
    main()
