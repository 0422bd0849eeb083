"""Checks a signed layer, by docs/organisation.md alone and without Atoll.

verify.py DIRECTORY KEY [DAY]
"""

import base64, hashlib, pathlib, re, sys

# Ed25519 (RFC 8032), as slow as it is short.
P = 2**255 - 19
Q = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P


def recover_x(y, sign):
    assert y < P
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    assert (x * x - square) % P == 0, "no point of the curve"
    return x if x & 1 == sign else P - x


def point(data):
    y = int.from_bytes(data, "little")
    sign, y = y >> 255, y & (1 << 255) - 1
    x = recover_x(y, sign)
    return (x, y, 1, x * y % P)


def add(p, q):
    a = (p[1] - p[0]) * (q[1] - q[0]) % P
    b = (p[1] + p[0]) * (q[1] + q[0]) % P
    c, d = 2 * p[3] * q[3] * D % P, 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return (e * f % P, g * h % P, f * g % P, e * h % P)


def times(number, p):
    q = (0, 1, 1, 0)
    while number:
        if number & 1:
            q = add(q, p)
        p, number = add(p, p), number >> 1
    return q


def holds(public, text, signature):
    scalar = int.from_bytes(signature[32:], "little")
    assert len(signature) == 64 and scalar < Q
    base = point((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))
    digest = int.from_bytes(hashlib.sha512(signature[:32] + public + text).digest(), "little")
    left, right = times(scalar, base), add(point(signature[:32]), times(digest % Q, point(public)))
    return all((left[at] * right[2] - right[at] * left[2]) % P == 0 for at in (0, 1))


def check(directory, key, day=None):
    directory = pathlib.Path(directory)
    name, id, public = key.split("+", 2)
    public = base64.b64decode(public, validate=True)
    assert public[0] == 1 and len(public) == 33, "not a key of Ed25519"
    assert hashlib.sha256(name.encode() + b"\n" + public).hexdigest()[:8] == id, "not its id"
    text, signatures = (directory / "organisation.sig").read_text().rsplit("\n\n", 1)
    assert signatures.endswith("\n"), "cut off"
    is_signed = False
    for line in signatures[:-1].split("\n"):
        dash, signer, signature = line.split(" ")
        signature = base64.b64decode(signature, validate=True)
        assert dash == "\u2014"
        if signer == name and signature[:4].hex() == id:
            whole = (text + "\n").encode()
            assert holds(public[1:], whole, signature[4:]), "the signature does not hold"
            is_signed = True
    assert is_signed, "another key signed"
    form, of, serial, *lines = text.split("\n")
    assert form == "atoll organisation v1" and of == name, "of something else"
    assert re.fullmatch("serial [1-9][0-9]*", serial)
    if lines[0].startswith("until "):
        until = lines.pop(0)[6:]
        assert day is None or day <= until, f"over since {until}"
    signed = dict(reversed(line.split("  ", 1)) for line in lines)
    assert list(signed) == sorted(signed, key=str.encode) and len(signed) == len(lines)
    counts = lambda one: one.name == "organisation.toml" or one.suffix == ".cedar"
    there = {one.name: one for one in directory.iterdir() if counts(one)}
    assert there.keys() == signed.keys(), "other files are there than were signed"
    for file, digest in signed.items():
        assert hashlib.sha256(there[file].read_bytes()).hexdigest() == digest, f"{file} is another"
    print(name, serial, len(signed), "files")


check(*sys.argv[1:])
