"""Checks a ledger, an export of tiles or a proof, by docs/ledger.md alone and without Atoll.

verify.py ledger DIRECTORY KEY [WITNESS]
verify.py tiles DIRECTORY KEY
verify.py proof FILE KEY [WITNESS]
"""

import base64, hashlib, json, pathlib, sys

# Ed25519 (RFC 8032), as slow as it is short.
P = 2**255 - 19
Q = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
ROOT_OF_MINUS_ONE = pow(2, (P - 1) // 4, P)


def recover_x(y, sign):
    assert y < P
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * ROOT_OF_MINUS_ONE % P
    assert (x * x - square) % P == 0, "no point of the curve"
    assert x or not sign
    return x if x & 1 == sign else P - x


def point(data):
    y = int.from_bytes(data, "little")
    sign, y = y >> 255, y & (1 << 255) - 1
    x = recover_x(y, sign)
    return (x, y, 1, x * y % P)


def add(p, q):
    a = (p[1] - p[0]) * (q[1] - q[0]) % P
    b = (p[1] + p[0]) * (q[1] + q[0]) % P
    c = 2 * p[3] * q[3] * D % P
    d = 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return (e * f % P, g * h % P, f * g % P, e * h % P)


def times(number, p):
    q = (0, 1, 1, 0)
    while number:
        if number & 1:
            q = add(q, p)
        p, number = add(p, p), number >> 1
    return q


BASE_Y = 4 * pow(5, P - 2, P) % P
BASE = point(BASE_Y.to_bytes(32, "little"))


def signed(public, text, signature):
    if len(signature) != 64:
        return False
    scalar = int.from_bytes(signature[32:], "little")
    if scalar >= Q:
        return False
    digest = hashlib.sha512(signature[:32] + public + text).digest()
    left = times(scalar, BASE)
    right = add(point(signature[:32]), times(int.from_bytes(digest, "little") % Q, point(public)))
    same = lambda at: (left[at] * right[2] - right[at] * left[2]) % P == 0
    return same(0) and same(1)


# The Merkle tree of RFC 6962.
def leaf(data):
    return hashlib.sha256(b"\0" + data).digest()


def node(left, right):
    return hashlib.sha256(b"\1" + left + right).digest()


def split(count):
    half = 1
    while half * 2 < count:
        half *= 2
    return half


def root(leaves):
    if len(leaves) < 2:
        return leaves[0] if leaves else hashlib.sha256(b"").digest()
    half = split(len(leaves))
    return node(root(leaves[:half]), root(leaves[half:]))


def by_inclusion(hash, index, size, path):
    """The root that a path leads to, by the recursion of section 2.1.1."""
    if size == 1:
        assert not path, "too many hashes"
        return hash
    half = split(size)
    if index < half:
        return node(by_inclusion(hash, index, half, path[:-1]), path[-1])
    return node(path[-1], by_inclusion(hash, index - half, size - half, path[:-1]))


def by_consistency(old, size, path, old_root, whole=True):
    """Both roots that a proof leads to, by the recursion of section 2.1.2."""
    if old == size:
        if whole:
            assert not path, "too many hashes"
            return old_root, old_root
        assert len(path) == 1, "the wrong number of hashes"
        return path[0], path[0]
    half = split(size)
    if old <= half:
        before, after = by_consistency(old, half, path[:-1], old_root, whole)
        return before, node(after, path[-1])
    before, after = by_consistency(old - half, size - half, path[:-1], old_root, False)
    return node(path[-1], before), node(path[-1], after)


# Checkpoints.
def decode(text):
    return base64.b64decode(text, validate=True)


def checkpoint(text, key):
    """Size and root of a checkpoint that this key signed."""
    name, id, public = key.split("+", 2)
    public = decode(public)
    assert public[0] == 1 and len(public) == 33, "not a key of Ed25519"
    assert hashlib.sha256(name.encode() + b"\n" + public).hexdigest()[:8] == id, "not the key's id"
    body, signatures = text.rsplit("\n\n", 1)
    body += "\n"
    assert signatures.endswith("\n"), "cut off"
    found = False
    for line in signatures[:-1].split("\n"):
        dash, signer, signature = line.split(" ")
        assert dash == "\u2014"
        signature = decode(signature)
        if signer == name and signature[:4].hex() == id:
            assert signed(public[1:], body.encode(), signature[4:]), "the signature does not hold"
            found = True
    assert found, "another key signed"
    origin, size, hash, *_ = body.split("\n")
    assert origin == name, "of another ledger"
    assert str(int(size)) == size and len(decode(hash)) == 32
    return int(size), decode(hash)


def witnessed(path, key):
    """All checkpoints of a witness's file."""
    notes, parts = [], pathlib.Path(path).read_text().split("\n\n")
    for body, signatures in zip(parts[::2], parts[1::2]):
        notes.append(checkpoint(f"{body}\n\n{signatures}\n", key))
    return notes


def events(ledger):
    prev, leaves = bytes(32), []
    segments = sorted(ledger.glob("*.seg"))
    for number, segment in enumerate(segments, 1):
        assert segment.name == f"{number:06}.seg", f"a segment is missing before {segment.name}"
        for line in segment.read_bytes().splitlines(keepends=True):
            assert line.endswith(b"\n") and line[64:65] == b" ", "not a line"
            claimed, event = bytes.fromhex(line[:64].decode()), line[65:-1]
            value = json.loads(event)
            canonical = json.dumps(
                value, ensure_ascii=False, sort_keys=True, separators=(",", ":")
            )
            assert leaf(event) == claimed, f"event {len(leaves)}: altered"
            assert canonical.encode() == event, f"event {len(leaves)}: not canonical"
            assert value["v"] == 1 and value["seq"] == len(leaves), "out of order"
            assert value["prev"] == prev.hex(), "the chain is broken"
            prev = claimed
            leaves.append(claimed)
    return leaves


def check_ledger(directory, key, witness=None):
    ledger = pathlib.Path(directory)
    leaves = events(ledger)
    newest = (ledger / "checkpoint").read_text()
    notes = [checkpoint(newest, key)] if newest else []
    if witness:
        notes += witnessed(witness, key)
    for size, hash in notes:
        assert size <= len(leaves), f"{size} events were signed, {len(leaves)} are there"
        assert root(leaves[:size]) == hash, f"the first {size} events are others"
    print(len(leaves), "events,", len(notes), "checkpoints")


def tile(directory, level, number, width):
    groups = []
    while not groups or number:
        groups, number = [f"{number % 1000:03}"] + groups, number // 1000
    place = "/".join(["x" + group for group in groups[:-1]] + groups[-1:])
    suffix = "" if width == 256 else f".p/{width}"
    return (directory / "tile" / str(level) / (place + suffix)).read_bytes()


def widths(count):
    full, rest = divmod(count, 256)
    return [256] * full + [rest] * (rest > 0)


def check_tiles(directory, key):
    directory = pathlib.Path(directory)
    size, hash = checkpoint((directory / "checkpoint").read_text(), key)
    leaves = []
    for number, width in enumerate(widths(size)):
        bundle, hashes = tile(directory, "entries", number, width), []
        while bundle:
            length = int.from_bytes(bundle[:2], "big")
            event, bundle = bundle[2 : 2 + length], bundle[2 + length :]
            assert json.loads(event)["seq"] == len(leaves) + len(hashes)
            hashes.append(leaf(event))
        assert len(hashes) == width
        assert b"".join(hashes) == tile(directory, 0, number, width), "not the bundle's hashes"
        leaves += hashes
    level, row = 0, leaves
    while row:
        for number, width in enumerate(widths(len(row))):
            hashes = b"".join(row[number * 256 : number * 256 + width])
            assert tile(directory, level, number, width) == hashes, f"tile {level}/{number}"
        full = len(row) // 256
        level, row = level + 1, [root(row[at * 256 : at * 256 + 256]) for at in range(full)]
    assert root(leaves) == hash, "the root is another"
    print(size, "events,", level, "levels")


def check_proof(file, key, witness=None):
    head, note = pathlib.Path(file).read_text().split("\n\n", 1)
    size, hash = checkpoint(note, key)
    first, *lines = head.split("\n")
    if first == "c2sp.org/tlog-proof@v1":
        extra, index, *path = lines
        assert extra.startswith("extra ") and index.startswith("index ")
        event, index = decode(extra[6:]), int(index[6:])
        assert index < size, "beyond the checkpoint"
        assert by_inclusion(leaf(event), index, size, [decode(one) for one in path]) == hash
        print("event", json.loads(event)["seq"], json.loads(event)["type"])
        return
    assert first.startswith("old ")
    old, path = int(first[4:]), [decode(one) for one in lines]
    old_root = dict(witnessed(witness, key))[old]
    assert 0 < old <= size
    assert by_consistency(old, size, path, old_root) == (old_root, hash), "not its beginning"
    print("grew from", old, "to", size)


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    {"ledger": check_ledger, "tiles": check_tiles, "proof": check_proof}[what](*rest)
