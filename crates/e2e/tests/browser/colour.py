"""Tells the colour at the upper left of a picture (PNG, RFC 2083)."""
import os, struct, sys, zlib

if not os.path.exists(sys.argv[1]):
    sys.exit(print("colour none"))

data = open(sys.argv[1], "rb").read()
at, packed = 8, b""
while at < len(data):
    length, kind = struct.unpack(">I4s", data[at : at + 8])
    if kind == b"IDAT":
        packed += data[at + 8 : at + 8 + length]
    at += 12 + length
# Before it there is only how its row is written: the first pixel is itself in every way.
print("colour", zlib.decompress(packed)[1:4].hex())
