"""What the golden scripts share: running a `transformers` model in float32 and writing what it answered."""

import json

import numpy as np
import torch


def logits_of(model, ids):
    """float32 [T, vocab], one pass, plain attention."""
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0].float().numpy()


def greedy(model, ids, n):
    """n ids, each the most likely after all before it (lowest id on ties)."""
    out = []
    for _ in range(n):
        row = logits_of(model, ids + out)[-1]
        out.append(int(np.flatnonzero(row == row.max())[0]))
    return out


def logsumexp(rows):
    rows = rows.astype(np.float64)
    top = rows.max(-1)
    return top + np.log(np.exp(rows - top[:, None]).sum(-1))


def short(x):
    """float32 values as the shortest decimals that read back to at least seven digits."""
    return [float(f"{v:.8g}") for v in np.asarray(x, np.float64).ravel()]


def described(ids, logits, top, rows, stride=1):
    """top: how many of the largest logits per position; rows: positions kept in full, every `stride`th column."""
    order = np.argsort(-logits, axis=1, kind="stable")[:, :top]
    return {
        "ids": list(map(int, ids)),
        "vocab": int(logits.shape[1]),
        "std": float(logits.astype(np.float64).std()),
        "logsumexp": short(logsumexp(logits)),
        "top_ids": [list(map(int, r)) for r in order],
        "top_logits": [short(logits[i, r]) for i, r in enumerate(order)],
        "stride": stride,
        "rows": {str(r): short(logits[r, ::stride]) for r in rows},
    }


def write(path, provenance, ids, logits, top, rows, stride=1, continuation=(), **more):
    """more: further fields, such as `second`, what `described` returns for another prompt."""
    document = {"provenance": provenance, **described(ids, logits, top, rows, stride), "greedy": list(continuation), **more}
    with open(path, "w") as f:
        json.dump(document, f, separators=(",", ":"))
        f.write("\n")
