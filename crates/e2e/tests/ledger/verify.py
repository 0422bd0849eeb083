"""Checks a ledger, an export of tiles or a proof, by docs/ledger.md alone and without Atoll.

verify.py ledger DIRECTORY KEY [WITNESS]
verify.py tiles DIRECTORY KEY
verify.py proof FILE KEY [WITNESS or - [HANDOVER ...]]
verify.py sealed DIRECTORY UNSEALED

KEY is the one that signs, or one that hand-overs lead to or from. UNSEALED is an export
with what is sealed in the clear, which is checked against the digests in the ledger.
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


def read_key(key):
    name, id, public = key.split("+", 2)
    public = decode(public)
    assert public[0] == 1 and len(public) == 33, "not a key of Ed25519"
    assert hashlib.sha256(name.encode() + b"\n" + public).hexdigest()[:8] == id, "not the key's id"
    return name, id, public[1:]


def hand_over(event):
    """Number, old and new key of an event by which one key hands over to another."""
    if event["type"] != "key.rotated":
        return None
    old, new = event["body"]["old"], event["body"]["new"]
    (origin, _, by_old), (other, _, by_new) = read_key(old), read_key(new)
    text = f"atoll-ledger key 1\n{origin}\n{old}\n{new}\n".encode()
    assert origin == other and old != new, "not keys of one ledger"
    assert signed(by_old, text, decode(event["body"]["by-old"])), "not by the old key"
    assert signed(by_new, text, decode(event["body"]["by-new"])), "not by the new key"
    return event["seq"], old, new


def trusted(key, hand_overs):
    """Each key that counts, and for checkpoints of at most how many events."""
    keys, now = {}, key
    for seq, old, new in sorted(hand_overs):
        if old == now:
            keys[old], now = seq + 1, new
    keys[now] = None
    now = key
    for seq, old, new in sorted(hand_overs, reverse=True):
        if new == now:
            keys[old], now = seq + 1, old
    return keys


def checkpoint(text, keys):
    """Size and root of a checkpoint that one of these keys signed while it was the one to."""
    faults = []
    for key, most in keys.items():
        try:
            size, hash = opened(text, key)
            assert most is None or size <= most, "by a key that had handed over before"
            return size, hash
        except AssertionError as fault:
            faults.append(str(fault))
    raise AssertionError("; ".join(faults))


def opened(text, key):
    """Size and root of a checkpoint that this key signed."""
    name, id, public = read_key(key)
    body, signatures = text.rsplit("\n\n", 1)
    body += "\n"
    assert signatures.endswith("\n"), "cut off"
    found = False
    for line in signatures[:-1].split("\n"):
        dash, signer, signature = line.split(" ")
        assert dash == "\u2014"
        signature = decode(signature)
        if signer == name and signature[:4].hex() == id:
            assert signed(public, body.encode(), signature[4:]), "the signature does not hold"
            found = True
    assert found, "another key signed"
    origin, size, hash, *_ = body.split("\n")
    assert origin == name, "of another ledger"
    assert str(int(size)) == size and len(decode(hash)) == 32
    return int(size), decode(hash)


def witnessed(path, keys):
    """All checkpoints of a witness's file."""
    notes, parts = [], pathlib.Path(path).read_text().split("\n\n")
    for body, signatures in zip(parts[::2], parts[1::2]):
        notes.append(checkpoint(f"{body}\n\n{signatures}\n", keys))
    return notes


def events(ledger):
    prev, leaves, hand_overs = bytes(32), [], []
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
            hand_overs += filter(None, [hand_over(value)])
            if value["type"] == "key.lost":
                print("the key that had signed was lost before event", len(leaves))
            prev = claimed
            leaves.append(claimed)
    return leaves, hand_overs


def check_ledger(directory, key, witness=None):
    ledger = pathlib.Path(directory)
    leaves, hand_overs = events(ledger)
    keys = trusted(key, hand_overs)
    newest = (ledger / "checkpoint").read_text()
    notes = [checkpoint(newest, keys)] if newest else []
    if witness:
        notes += witnessed(witness, keys)
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
    note, leaves, hand_overs = (directory / "checkpoint").read_text(), [], []
    # What is signed tells by whom it may be; all that is held against it below.
    size = int(note.split("\n")[1])
    for number, width in enumerate(widths(size)):
        bundle, hashes = tile(directory, "entries", number, width), []
        while bundle:
            length = int.from_bytes(bundle[:2], "big")
            event, bundle = bundle[2 : 2 + length], bundle[2 + length :]
            assert json.loads(event)["seq"] == len(leaves) + len(hashes)
            hand_overs += filter(None, [hand_over(json.loads(event))])
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
    size, hash = checkpoint(note, trusted(key, hand_overs))
    assert len(leaves) == size and root(leaves) == hash, "the root is another"
    print(size, "events,", level, "levels")


def included(head, size, hash):
    """The event of a proof that it is in the ledger."""
    first, extra, index, *path = head.split("\n")
    assert first == "c2sp.org/tlog-proof@v1"
    assert extra.startswith("extra ") and index.startswith("index ")
    event, index = decode(extra[6:]), int(index[6:])
    assert index < size, "beyond the checkpoint"
    assert by_inclusion(leaf(event), index, size, [decode(one) for one in path]) == hash
    event = json.loads(event)
    assert event["seq"] == index
    return event


def proven_hand_over(file):
    """A hand-over by the proof that it is in the ledger of both keys."""
    head, note = pathlib.Path(file).read_text().split("\n\n", 1)
    found = hand_over(json.loads(decode(head.split("\n")[1][6:])))
    assert found, "not a hand-over"
    included(head, *checkpoint(note, trusted(found[1], [found])))
    return found


def check_proof(file, key, witness=None, *hand_overs):
    head, note = pathlib.Path(file).read_text().split("\n\n", 1)
    keys = trusted(key, [proven_hand_over(one) for one in hand_overs])
    size, hash = checkpoint(note, keys)
    if not head.startswith("old "):
        event = included(head, size, hash)
        print("event", event["seq"], event["type"])
        return
    first, *lines = head.split("\n")
    old, path = int(first[4:]), [decode(one) for one in lines]
    old_root = dict(witnessed(witness, keys))[old]
    assert 0 < old <= size
    assert by_consistency(old, size, path, old_root) == (old_root, hash), "not its beginning"
    print("grew from", old, "to", size)


def check_sealed(directory, unsealed):
    told = [json.loads(line) for line in pathlib.Path(unsealed).read_text().splitlines()]
    checked = unknown = 0
    for segment in sorted(pathlib.Path(directory).glob("*.seg")):
        for line in segment.read_bytes().splitlines():
            event = json.loads(line[65:])
            sealed = event["body"].get("sealed")
            if sealed is None:
                continue
            digest, other = decode(sealed)[:32], told[event["seq"]]["body"]
            proof = other["sealed"]
            if proof == sealed:
                unknown += 1
                continue
            members = {name: other[name] for name in proof["members"]}
            text = json.dumps(members, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
            made = hashlib.sha256(bytes.fromhex(proof["salt"]) + text.encode()).digest()
            assert made == digest, f"event {event['seq']}: not what was sealed"
            assert digest.hex() == proof["digest"]
            open_members = lambda body: {
                name: body[name] for name in body if name not in members and name != "sealed"
            }
            assert open_members(other) == open_members(event["body"]), "more was altered"
            checked += 1
    print(checked, "are what was sealed,", unknown, "nobody knows")


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    checks = {"ledger": check_ledger, "tiles": check_tiles}
    checks |= {"proof": check_proof, "sealed": check_sealed}
    checks[what](*rest)
