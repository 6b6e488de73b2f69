"""llama.cpp with several requests under way, through llama-cpp-python; bench/engine.py runs it in a process of its own.

    python bench/peers/llama_engine.py MODEL.gguf THREADS UNDER_WAY REQUESTS PROMPT GENERATED

Continuous batching as its server does it: each step has a token of every running sequence and, up to 512 rows, the prompts of
those that join. The likeliest token is taken; text and HTTP are left out, in its favour.
"""

import json
import sys
import time

import llama_cpp
import numpy as np

CHUNK = 512


class Sequence:
    def __init__(self, slot, ids, submitted):
        self.slot, self.ids, self.at, self.generated, self.submitted = slot, ids, 0, 0, submitted


def main():
    path, (threads, under_way, requests, n_prompt, n_generated) = sys.argv[1], map(int, sys.argv[2:])
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
    how = llama_cpp.llama_context_default_params()
    how.n_ctx, how.n_batch, how.n_ubatch = under_way * (n_prompt + n_generated + 8), CHUNK, CHUNK
    how.n_seq_max, how.n_threads, how.n_threads_batch = under_way, threads, threads
    how.kv_unified = True
    context = llama_cpp.llama_init_from_model(model, how)
    vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    memory = llama_cpp.llama_get_memory(context)
    batch = llama_cpp.llama_batch_init(CHUNK, 0, 1)

    def prompt(number):
        return [300 + (i * 7919 + number * 104729 + 13) % (vocab - 400) for i in range(n_prompt)]

    def add(token, position, slot, wanted):
        i = batch.n_tokens
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, 1, wanted
        batch.seq_id[i][0] = slot
        batch.n_tokens = i + 1
        return i

    def run(requests):
        free, running, first, number, generated = list(range(under_way)), [], [], 0, 0
        begin = time.perf_counter()
        while running or number < requests:
            while free and number < requests:
                running.append(Sequence(free.pop(), prompt(number), time.perf_counter()))
                number += 1
            batch.n_tokens, rows = 0, []
            for s in sorted(running, key=lambda s: s.at < n_prompt):
                end = len(s.ids)
                room = CHUNK - batch.n_tokens
                for position in range(s.at, min(end, s.at + room)):
                    i = add(s.ids[position], position, s.slot, position == end - 1)
                    if position == end - 1:
                        rows.append((s, i))
                s.at = min(end, s.at + room)
            if llama_cpp.llama_decode(context, batch):
                sys.exit("llama_decode failed")
            for s, i in rows:
                logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, i), shape=(vocab,))
                s.ids.append(int(logits.argmax()))
                s.generated += 1
                generated += 1
                if s.generated == 1:
                    first.append(time.perf_counter() - s.submitted)
                if s.generated == n_generated:
                    running.remove(s)
                    free.append(s.slot)
                    llama_cpp.llama_memory_seq_rm(memory, s.slot, -1, -1)
        return time.perf_counter() - begin, generated, sorted(first)

    run(under_way)
    seconds, generated, first = run(requests)
    print(json.dumps({
        "seconds": seconds, "generated_tokens_per_second": generated / seconds,
        "tokens_per_second": (generated + requests * n_prompt) / seconds,
        "first_token_p50_ms": first[len(first) // 2] * 1e3, "first_token_p99_ms": first[-(len(first) // 100 + 1)] * 1e3,
    }))


if __name__ == "__main__":
    main()
