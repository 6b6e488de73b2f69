"""Rows of the table of bench/gpu.sh, of what a command says as JSON on standard input.

    python3 bench/gpu_rows.py doctor|bench|kl|peer [NAME]
"""

import json
import sys


def rate(value):
    return "none" if not value else f"{value / 1e12:.0f} T operations/s" if value >= 1e13 else f"{value / 1e9:.0f} G operations/s"


def part(value):
    return "none" if value is None else f"{100 * value:.0f} %"


def doctor(v, _):
    gpu = v["gpus"][0]
    yield "compute capability", f"{gpu['compute_capability']}, {gpu['multiprocessors']} multiprocessors, CUDA {gpu['cuda']}"
    yield "memory", f"{gpu['memory_bytes'] / 1e9:.1f} GB"
    yield "read bandwidth", f"{gpu['read_bytes_per_second'] / 1e9:.0f} GB/s"
    yield "f16 peak", rate(gpu["f16_ops_per_second"])
    yield "f32 peak", rate(gpu["f32_ops_per_second"])


def bench(v, name):
    after = f" after {v['depth']:,}" if v["depth"] else ""
    yield (f"{name}: prefill of {v['prompt_tokens']}{after}",
           f"{v['prefill_tokens_per_second']:.0f} tokens/s, {part(v['prefill_of_peak'])} of the {v['arithmetic']} peak")  # fmt: skip
    yield (f"{name}: decode{after}",
           f"{v['decode_tokens_per_second']:.1f} tokens/s, {part(v['decode_of_read_bandwidth'])} of the read bandwidth")  # fmt: skip
    if "parallel" in v:
        yield (f"{name}: decode, {v['parallel']} together{after}",
               f"{v['parallel_tokens_per_second']:.0f} tokens/s, {part(v['parallel_of_read_bandwidth'])} of the read bandwidth, "
               f"{v['parallel_of_one']:.1f} times one")  # fmt: skip


def kl(v, name):
    yield (f"{name}: divergence from the CPU in reference precision",
           f"{v['kl_mean']:.2g} nats on average, {v['kl_max']:.2g} at most, {part(v['same_top'])} the same token")  # fmt: skip


def peer(v, _):
    yield "torch, products of a bf16 prefill of 2048", v["text"]


def main():
    kind, name = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    try:
        value = json.load(sys.stdin)
    except ValueError:
        value = None  # the command has said why
    for what, text in {"doctor": doctor, "bench": bench, "kl": kl, "peer": peer}[kind](value, name) if value else [(f"{name or kind}: failed", "")]:
        print(f"| {what} | {text} |")


if __name__ == "__main__":
    main()
