"""The parser of requests beside h11, another strict one: no bytes that h11 refuses, or frames in another way, are accepted.

    compare_h11.py PROGRAM [CASES]      PROGRAM is http_parse of the build

Requests are put together from parts, most of them odd, and then damaged. Refusing more than h11 is fine, and counted. Known differences: an empty
line before a request is skipped, as RFC 9112 (2.2) wants it; and the parser of the server has no limit of h11's on an incomplete event."""

import random
import subprocess
import sys

import h11

LINES = [b"GET / HTTP/1.1", b"POST /a HTTP/1.1", b"POST / HTTP/1.0", b"GET  / HTTP/1.1", b"PUT /%41?b HTTP/1.1", b"GET http://a/ HTTP/1.1",
         b"OPTIONS * HTTP/1.1", b"GET / HTTP/1.1 ", b"GET /\x01 HTTP/1.1", b"DELETE /x HTTP/1.2", b"POST / HTTP/1.1"]  # fmt: skip
FIELDS = [b"Host: a", b"Host: a", b"Host: a", b"Host: b", b"Host:a:1", b"Content-Length: 5", b"Content-Length: 5", b"Content-Length: 05", b"Content-Length: 5, 5",
          b"Content-Length: +5", b"Content-Length: 5 ", b"content-length:\t3", b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked", b"transfer-encoding: CHUNKED",
          b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding : chunked", b"Transfer-Encoding: chunked\x0b", b"Transfer-Encoding:\x00chunked", b" folded: x",
          b"X: y", b"X:", b": y", b"X\xe4: y", b"X: \xe4", b"Connection: close", b"Expect: 100-continue", b"Content-Length: ", b"X: y\rZ: z", b"X: y\nContent-Length: 4"]  # fmt: skip
BODIES = [b"", b"hello", b"5\r\nhello\r\n0\r\n\r\n", b"5;x=y\r\nhello\r\n0\r\n\r\n", b"5 \r\nhello\r\n0\r\n\r\n", b"5\nhello\n0\n\n", b"0\r\n\r\n", b"0\r\nT: t\r\n\r\n",
          b"0x5\r\nhello\r\n0\r\n\r\n", b"-5\r\nhello\r\n0\r\n\r\n", b"5\r\nhello0\r\n\r\n", b"00000000000000000005\r\nhello\r\n0\r\n\r\n", b"5;\nx\r\nhello\r\n0\r\n\r\n"]  # fmt: skip


def one(draw):
    ends = [b"\r\n"] * 40 + [b"\n", b"\r", b"\r\r\n"]
    lines = [draw.choice(LINES)] + draw.choices(FIELDS, k=draw.randrange(5))
    if draw.random() < 0.8:
        lines.append(b"Host: a")
    return b"".join(line + draw.choice(ends) for line in lines) + draw.choice(ends) + draw.choice(BODIES)


def damage(bytes, draw):
    bytes = bytearray(bytes)
    for _ in range(draw.choice([0, 0, 0, 1, 2])):
        at = draw.randrange(len(bytes))
        match draw.randrange(3):
            case 0:
                bytes[at] = draw.choice(b"\r\n\0 \t:;,0a\x7f\xff")
            case 1:
                del bytes[at]
            case 2:
                bytes.insert(at, draw.choice(b"\r\n\0 \t:;,0a"))
    return bytes


def without_empty_line(bytes):
    return bytes[2:] if bytes.startswith(b"\r\n") else bytes


def by_h11(bytes):
    """As http_parse writes it."""
    connection, out, body, method = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20), "", b"", None
    try:
        connection.receive_data(bytes)
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                return out + ("more" if method or connection.trailing_data[0] else "")
            if event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
                return out + ("more" if connection.trailing_data[0] else "")
            if isinstance(event, h11.Request):
                method = event.method.decode()
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                out += f"{method} {body.hex()};"
                rest, method, body = connection.trailing_data[0], None, b""
                if not rest:
                    return out
                return out + by_h11(without_empty_line(rest))
    except h11.RemoteProtocolError:
        return out + "refused"


def main():
    program, cases = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20000
    draw = random.Random(1)
    inputs = [bytes(damage(b"".join(one(draw) for _ in range(draw.choice([1, 1, 2]))), draw)) for _ in range(cases)]
    done = subprocess.run([program], input="".join(i.hex() + "\n" for i in inputs), stdout=subprocess.PIPE, text=True, check=True)
    accepted = stricter = 0
    for sent, ours in zip(inputs, done.stdout.split("\n"), strict=False):
        theirs = by_h11(without_empty_line(sent))
        ours_whole, theirs_whole = ours.rsplit(";", 1)[0], theirs.rsplit(";", 1)[0]
        n, m = ours.count(";"), theirs.count(";")
        accepted += n
        if "refused" in ours and n <= m and (n == 0 or theirs.startswith(ours_whole)):
            stricter += "refused" not in theirs or m > n
            continue
        if ours.split(" ")[0].startswith("refused") or (n == m and (n == 0 or ours_whole == theirs_whole) and not (theirs.endswith("refused") and ours.endswith(";"))):
            continue
        sys.exit(f"{sent!r}:\n  here {ours}\n  h11  {theirs}")
    if accepted < cases // 20:
        sys.exit(f"only {accepted} requests were accepted of {cases}: this compares nothing")
    print(f"{cases} inputs, {accepted} requests accepted as h11 reads them, {stricter} refused that h11 takes")


if __name__ == "__main__":
    main()
