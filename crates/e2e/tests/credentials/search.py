"""Looks for texts in everything that a process and its descendants hold: environment,
arguments, memory. Arguments: the process, then files with the texts, one each. Writes a
line for each that is found: the file's name, the process's, and where."""
import base64, os, sys


def descendants(pid):
    found, rest = [], [pid]
    parents = {}
    for one in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{one}/stat") as stat:
                parent = int(stat.read().rsplit(")", 1)[1].split()[1])
            parents.setdefault(parent, []).append(int(one))
        except OSError:
            pass
    while rest:
        one = rest.pop()
        found.append(one)
        rest.extend(parents.get(one, []))
    return found


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def held(pid, first, last):
    """The parts of a mapping that are in memory or swapped out: programs reserve far more
    than there is (proc_pid_pagemap(5))."""
    size, many = os.sysconf("SC_PAGE_SIZE"), 1 << 16
    with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as pages:
        begun = None
        for at in range(first, last, size * many):
            pages.seek(at // size * 8)
            count = min(many, (last - at) // size)
            entries = pages.read(count * 8)
            if len(entries) < count * 8:
                entries = b"\xff" * (count * 8)
            if not any(entries):
                if begun is not None:
                    yield begun, at
                    begun = None
                continue
            for index in range(count):
                is_there = entries[index * 8 + 7] & 0xC0
                here = at + index * size
                if is_there and begun is None:
                    begun = here
                elif not is_there and begun is not None:
                    yield begun, here
                    begun = None
        if begun is not None:
            yield begun, last


def memory(pid):
    try:
        with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as mem:
            spans = []
            for line in maps:
                span, rights = line.split()[:2]
                first, last = (int(one, 16) for one in span.split("-"))
                if "r" in rights and "[v" not in line:
                    spans.extend(held(pid, first, last) if last - first > 1 << 24 else [(first, last)])
            for first, last in spans:
                at, before = first, b""
                while at < last:
                    try:
                        mem.seek(at)
                        block = mem.read(min(last - at, 1 << 20))
                    except (OSError, ValueError, OverflowError):
                        break
                    if not block:
                        break
                    yield before + block
                    before = block[-1024:]
                    at += len(block)
    except OSError:
        print("unread", name(pid), "memory")


def name(pid):
    return read(f"/proc/{pid}/comm").decode(errors="replace").strip()


def forms(text):
    yield text
    yield text.hex().encode()
    yield text.hex().upper().encode()
    for skip in range(3):
        # What is the same wherever the text stands in what is encoded.
        yield base64.b64encode(text[skip : skip + (len(text) - skip) // 3 * 3])


texts = {os.path.basename(path): list(forms(read(path).strip())) for path in sys.argv[2:]}
for pid in descendants(int(sys.argv[1])):
    places = [("environment", [read(f"/proc/{pid}/environ")]), ("arguments", [read(f"/proc/{pid}/cmdline")]), ("memory", memory(pid))]
    print("read", name(pid))
    for place, blocks in places:
        found = set()
        for block in blocks:
            found |= {one for one, all in texts.items() if any(form in block for form in all)}
        for one in sorted(found):
            print(one, name(pid), place)
