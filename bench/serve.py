"""`hearth serve` beside llama.cpp's llama-server, in turns, on this machine: tokens per second and the wait for the first token with 1, 4, 8
and 16 clients at once, and with many connections that do nothing or read slowly.

    python3 bench/serve.py [--peer LLAMA_SERVER] [--clients 1,4,8,16] [--rounds 3] [--threads 2] [--idle 10000] [--slow 1000] MODEL.gguf

Every client asks one thing after the other, as a stream: another text of about --words words, and --tokens tokens of answer, the most likely ones,
whatever ends there are. Both servers run all the time, and only the one that is asked computes. A round asks each once, in
turns; the ratio is the median over the rounds. With --idle or --slow, Hearth alone is asked beside that many connections that are open,
and that read nothing of a stream; the share of its throughput without them, and /health's time, are printed. Python's standard library only.
"""

import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import random
import re
import resource
import socket
import statistics
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEARTH = os.environ.get("HEARTH", ROOT / "build/release/bin/hearth")
WORDS = "time year people way day man thing woman life child world school state family student group country problem hand part place case".split()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextlib.contextmanager
def server(words, port):
    process = subprocess.Popen(list(map(str, words)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(1200):
            if process.poll() is not None:
                raise SystemExit(f"{words[0]} has ended with {process.returncode}")
            try:
                with socket.create_connection(("127.0.0.1", port), 1) as s:
                    s.sendall(b"GET /health HTTP/1.0\r\n\r\n")
                    if b" 200 " in s.recv(64):
                        break
            except OSError:
                pass
            time.sleep(0.1)
        yield process
    finally:
        process.terminate()
        process.wait()


def hearth(a, port):
    return server([HEARTH, "serve", a.model, "--port", port, "-t", a.threads, "--parallel", 16, "-q"], port)


def peer(a, port):
    words = [a.peer, "-m", a.model, "--port", port, "-t", a.threads, "-np", 16, "-c", 16 * 2048, "--no-webui", "--log-disable"]
    return server(words, port)


def body(a, r):
    text = " ".join(r.choice(WORDS) for _ in range(a.words))
    return json.dumps({"messages": [{"role": "user", "content": text}], "stream": True, "temperature": 0, "max_tokens": a.tokens, "ignore_eos": True,
                       "stream_options": {"include_usage": True}}).encode()  # fmt: skip


def request(payload, port):
    return b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (
        port, len(payload), payload)  # fmt: skip


async def ask(a, port, r):
    """Seconds to the first piece of text, and tokens."""
    begin, first, tokens = time.perf_counter(), None, 0
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    writer.write(request(body(a, r), port))
    while line := await reader.readline():
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        if first is None and any(c["delta"].get("content") for c in event.get("choices", [])):
            first = time.perf_counter() - begin
        if event.get("usage"):
            tokens = event["usage"]["completion_tokens"]
    writer.close()
    if tokens != a.tokens or first is None:
        raise SystemExit(f"an answer of {tokens} tokens instead of {a.tokens}")
    return first


async def load(a, port, clients, seed):
    """Tokens per second of so many clients, each with a.each requests, and all first waits."""
    firsts = []

    async def client(i):
        r = random.Random(seed * 1000 + i)
        for _ in range(a.each):
            firsts.append(await ask(a, port, r))

    begin = time.perf_counter()
    await asyncio.gather(*(client(i) for i in range(clients)))
    return clients * a.each * a.tokens / (time.perf_counter() - begin), firsts


def share(values, part):
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


async def compare(a):
    mine, theirs = free_port(), free_port()
    with hearth(a, mine), peer(a, theirs):
        for clients in map(int, a.clients.split(",")):
            rates, waits = {mine: [], theirs: []}, {mine: [], theirs: []}
            for round in range(a.rounds):
                for port in (mine, theirs) if round % 2 else (theirs, mine):
                    rate, firsts = await load(a, port, clients, round * 100 + clients)
                    rates[port].append(rate)
                    waits[port] += firsts
            ratio = statistics.median(m / t for m, t in zip(rates[mine], rates[theirs]))
            cells = [f"{statistics.median(rates[p]):.0f} tok/s, first {share(waits[p], 0.5) * 1e3:.0f} / {share(waits[p], 0.99) * 1e3:.0f} ms" for p in (mine, theirs)]
            print(f"{clients:3} clients: hearth {cells[0]}; llama-server {cells[1]}; ratio {ratio:.2f}", flush=True)


async def health(port, stop, times):
    while not stop.is_set():
        begin = time.perf_counter()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        await reader.read()
        times.append(time.perf_counter() - begin)
        writer.close()
        await asyncio.sleep(0.02)


async def beside(a, open_others, name, n):
    """The throughput beside n others, and without them, in turns."""
    port = free_port()
    with hearth(a, port) as process:
        await load(a, port, 4, 0)
        shares, times, before = [], [], await memory(process.pid, port)
        for round in range(a.rounds):
            alone, _ = await load(a, port, 4, 2 * round + 1)  # each prompt is a new one
            others = await open_others(a, port, n)
            stop = asyncio.Event()
            watch = asyncio.create_task(health(port, stop, times))
            rate, _ = await load(a, port, 4, 2 * round + 2)
            stop.set()
            await watch
            used = await memory(process.pid, port) - before
            for writer in others:
                writer.transport.abort()
            shares.append(rate / alone)
            await asyncio.sleep(1)
        print(f"{n} {name}: throughput {100 * statistics.median(shares):.0f} %, /health p99 {share(times, 0.99) * 1e3:.1f} ms, memory + {used / 1e6:.0f} MB", flush=True)


async def open_idle(a, port, n):
    writers = []
    for _ in range(n):
        writers.append((await asyncio.open_connection("127.0.0.1", port))[1])
    return writers


async def metric(port, names):
    """The sum of those figures."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    return sum(int(float(n)) for n in re.findall(rf"^hearth_(?:{names}) (\S+)", text, re.M))


async def running(port):
    """Answers that are computed, or wait for it."""
    return await metric(port, "answers_running|answers_waiting")


async def memory(pid, port):
    """Bytes of the process but for keys and values, which are kept of all prompts."""
    resident = int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) * 1024
    return resident - await metric(port, "kv_bytes")


async def open_slow(a, port, n):
    """Streams of which nothing is read but what the kernel takes, which is little: about 40 KB wait for each. All of it has been generated."""
    writers = []
    payload = json.dumps({"messages": [{"role": "user", "content": "x"}], "stream": True, "max_tokens": 16, "temperature": 0, "ignore_eos": True,
                          "logprobs": True, "top_logprobs": 20}).encode()  # fmt: skip
    for i in range(n):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.setblocking(False)
        await asyncio.get_running_loop().sock_connect(s, ("127.0.0.1", port))
        _, writer = await asyncio.open_connection(sock=s, limit=1)
        writer.write(request(payload, port))
        writer.transport.pause_reading()
        writers.append(writer)
        while i % 64 == 63 and await running(port) > 32:
            await asyncio.sleep(0.1)
    while await running(port):
        await asyncio.sleep(0.1)
    return writers


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--peer")
    parser.add_argument("--clients", default="1,4,8,16")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--each", type=int, default=2)
    parser.add_argument("--words", type=int, default=150)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--idle", type=int, default=0)
    parser.add_argument("--slow", type=int, default=0)
    a = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if a.peer:
        asyncio.run(compare(a))
    if a.idle:
        asyncio.run(beside(a, open_idle, "idle connections", a.idle))
    if a.slow:
        asyncio.run(beside(a, open_slow, "slow readers", a.slow))


main()
