"""What the comparison must show, and rows that say whether it does."""

SMOLLM2, GEMMA3, QWEN2 = MODELS = ("smollm2-135m", "gemma3-270m", "qwen2.5-coder-0.5b")

# Hearth / llama.cpp in tokens per second by precision, with one thread and with two.
RATIO = {"high": {"prefill": {SMOLLM2: 4.5, GEMMA3: 2.4, QWEN2: 2.7}, "decode": {SMOLLM2: 1.7, GEMMA3: 1.3, QWEN2: 1.25}},
         "fast": {"prefill": {SMOLLM2: 9, GEMMA3: 4, QWEN2: 4.5}, "decode": {SMOLLM2: 1.7, GEMMA3: 1.3, QWEN2: 1.25}}}
# Of the machine, as measured beside it: prefill of the peak of int16 (high) or int8, decoding of the read bandwidth.
OF_MACHINE = {"prefill": {SMOLLM2: 0.4, GEMMA3: 0.4, QWEN2: 0.5}, "decode": {GEMMA3: 0.85, QWEN2: 0.85}}
DEPTH = {"high": {"prefill": {SMOLLM2: 1.8}, "decode": {SMOLLM2: 1.8}},
         "fast": {"prefill": {SMOLLM2: 3}, "decode": {SMOLLM2: 1.8}}}
TOGETHER = {"high": {SMOLLM2: 2.4}, "fast": {SMOLLM2: 4}}  # eight sessions / one
HIGH_OF_FAST = {"prefill": 0.55, "decode": 0.97, "parallel": {SMOLLM2: 0.6, GEMMA3: 0.7, QWEN2: 0.7}}
HIGH_OF_FAST_AVX2 = {"prefill": 0.45, "decode": 0.45, "parallel": 0.45}
OTHER_SET = 0.5  # AVX2 / the best instruction set
DENSE, DENSE_OF_MACHINE = {"prefill": 2.5, "decode": 3}, {"decode": 0.85}  # Hearth / transformers
MLX_OF_BLOCKS = 0.85  # MLX's groups / Q4_1
LARGE_OF_MACHINE = {"dense": 0.8, "experts": 0.8}  # decoding of the read bandwidth, as bench/make_gemma4.py calls them
BILLIONS = ("gemma3-1b", "gemma3-4b", "qwen3-4b", "llama3.1-8b")  # as bench/make_large.py calls them
BILLIONS_OF_MACHINE = {"high": {"prefill": 0.6, "decode": 0.9}, "fast": {"prefill": 0.55, "decode": 0.9}}
BILLIONS_MEMORY = 1.05  # peak, at most, of the file
BILLIONS_START = {"seconds": {"llama3.1-8b": 2}, "packed": {"llama3.1-8b": 0.7}}  # to the first token, at most
BILLIONS_HIGH_OF_FAST = {"llama3.1-8b": 0.5}  # prefill
PEAK_MEMORY = 1  # at most, of llama.cpp's
START = 0.5  # likewise
TOKENIZER = 4  # tokenizers' time / Hearth's
OUTSIDE_PERCENT, EAGER_US = 4, 1  # of a token outside products and attention; per operation run eagerly
SAMPLING_US = {"greedy": 40, "all": 300}  # at most, as bench_sampler calls the chains
DIVERGENCE = {"high": 2}  # in 0.00001 nats, at most; in fast precision at most llama.cpp's


def check(what, value, at_least=None, at_most=None):
    """None when nothing is asked, or when there is nothing to look at."""
    wanted = at_most if at_least is None else at_least
    if wanted is None or value is None:
        return None
    holds = value >= at_least if at_most is None else value <= at_most
    return {"what": what, "value": value, "at_least": at_least, "at_most": at_most, "holds": bool(holds)}


def row(model, what, ours, theirs, unit, *checks, of=None):
    """`of`: the text that says which part of the machine it is."""
    return {"model": model, "what": what, "hearth": ours, "peer": theirs, "unit": unit, "of_machine": of,
            "ratio": ours / theirs if theirs else None, "checks": [c for c in checks if c]}


def show(section):
    peer = section["peer"]
    print(f"\n{section['title']}")
    for r in section["rows"]:
        theirs = f"{peer} {r['peer']:8.1f}" if r["peer"] is not None else " " * (len(peer) + 9)
        ratio = f"ratio {r['ratio']:5.2f}" if r["ratio"] is not None else " " * 11
        line = f"  {r['model']:20.20} {r['what']:22} hearth {r['hearth']:8.1f}  {theirs} {r['unit']:6} {ratio}"
        if r["of_machine"]:
            line += f"  {r['of_machine']}"
        for c in r["checks"]:
            sign, wanted = (">=", c["at_least"]) if c["at_most"] is None else ("<=", c["at_most"])
            line += f"  [{c['what']} {c['value']:.2f} {sign} {wanted:g}: {'holds' if c['holds'] else 'FAILS'}]"
        print(line)
