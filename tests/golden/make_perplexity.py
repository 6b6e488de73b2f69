"""What float32 `transformers` finds of the tiny checkpoints' predictions: perplexities, and divergences between two.

    python tests/golden/make_perplexity.py      # writes perplexity.json; needs torch, transformers

Ids are cut into windows without overlap; each window is one forward pass, and every token of it but the first one counts,
which is what `hearth eval --ids` does. Divergences are sums over the vocabulary in float64.
"""

import json
import pathlib

import numpy as np
import torch
import transformers

import reference

HERE = pathlib.Path(__file__).parent
CASES = [  # checkpoint, the one it is compared with, tokens, window
    ("llama-f32", "llama-linear-bias-bf16", 300, 64),
    ("gemma3-f32", "gemma3-scaled-bf16", 300, 100),
    ("qwen2-tied-bf16", None, 97, 16),
    ("gemma4-f32", None, 65, 64),
]


def log_softmax(x):
    x = x.astype(np.float64)
    return x - reference.logsumexp(x)[:, None]


def windows(name, ids, window):
    """log p [positions, vocabulary] before every token that counts, and those tokens."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        HERE / "tiny" / name, dtype=torch.float32, attn_implementation="eager").eval()
    rows, targets = [], []
    for at in range(0, len(ids), window):
        part = ids[at:at + window]
        if len(part) > 1:
            rows.append(log_softmax(reference.logits_of(model, part))[:-1])
            targets += part[1:]
    return np.concatenate(rows), np.array(targets)


def vocabulary(name):
    config = json.loads((HERE / "tiny" / name / "config.json").read_text())
    return config.get("text_config", config)["vocab_size"]


def percentile(sorted_values, share):
    """The smallest value that is not less than this share of them all."""
    return float(sorted_values[max(1, int(np.ceil(share * len(sorted_values)))) - 1])


def case(name, other, n, window):
    ids = [int(i) for i in np.random.default_rng(7).integers(0, vocabulary(name), n)]
    q, targets = windows(name, ids, window)
    nll = -q[np.arange(len(targets)), targets]
    out = {"checkpoint": name, "window": window, "ids": ids, "scored": len(nll), "mean_nll": nll.mean(),
           "perplexity": np.exp(nll.mean()), "perplexity_error": np.exp(nll.mean()) * nll.std(ddof=1) / len(nll) ** 0.5}
    if other:
        p, _ = windows(other, ids, window)
        kl = np.sort((np.exp(p) * (p - q)).sum(-1))
        out |= {"other": other, "other_perplexity": np.exp(-p[np.arange(len(targets)), targets].mean()),
                "kl_mean": kl.mean(), "kl_error": kl.std(ddof=1) / len(kl) ** 0.5, "kl_max": kl[-1],
                "kl_percentiles": [percentile(kl, s) for s in (0.5, 0.9, 0.95, 0.99, 0.999)],
                "same_top": float((p.argmax(-1) == q.argmax(-1)).mean())}
    return out


def main():
    provenance = (f"tests/golden/make_perplexity.py with transformers {transformers.__version__}, "
                  f"torch {torch.__version__}: float32 logits of the weights as stored")
    document = {"provenance": provenance, "cases": [case(*each) for each in CASES]}
    with open(HERE / "perplexity.json", "w") as f:
        json.dump(document, f, indent=None, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    main()
