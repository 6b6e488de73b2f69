"""Writes the seeds of fuzz_http: requests of every kind, accepted and refused. Run from the repository root."""

import pathlib

OUT = pathlib.Path("tests/fuzz/corpus/fuzz_http")
HOST = b"Host: localhost:8080\r\n"
SEEDS = {
    "get": b"GET /v1/models?limit=1000&a=b%20c HTTP/1.1\r\n" + HOST + b"\r\n",
    "old": b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "absolute": b"GET http://[::1]:80/a%2Fb HTTP/1.1\r\n" + HOST + b"\r\n",
    "options": b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n",
    "length": b"POST /v1/messages HTTP/1.1\r\n" + HOST + b"Content-Length: 7\r\nExpect: 100-continue\r\n\r\n{\"a\":1}GET / HTTP/1.1\r\n",
    "chunked": b"POST /api/chat HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0A\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n",
    "both": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "folded": b"GET / HTTP/1.1\r\n" + HOST + b"A: b\r\n c\r\n\r\n",
    "bare": b"GET / HTTP/1.1\nHost: a\n\n",
    "parent": b"GET /a/%2e%2e/b HTTP/1.1\r\n" + HOST + b"\r\n",
    "large": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 5000\r\n\r\n",
    "chunk_size": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
}

OUT.mkdir(parents=True, exist_ok=True)
for number, (name, text) in enumerate(SEEDS.items()):
    (OUT / name).write_bytes(bytes([5 * number % 64]) + text)
