"""Sends a header at the end of a body, and shows all of the answer."""
import socket

line = socket.create_connection(("example.com", 80), 10)
line.sendall(
    b"POST /chunks HTTP/1.1\r\nHost: example.com\r\nTE: trailers\r\nConnection: TE, close\r\n"
    b"Transfer-Encoding: chunked\r\nTrailer: x-internal, x-other\r\n\r\n"
    b"1\r\nx\r\n0\r\nX-Internal: SECRET-OUT\r\nX-Other: open\r\n\r\n"
)
while part := line.recv(4096):
    print(part.decode(errors="replace"), end="")
