"""Makes tests/golden/embed.json: hidden states after the final norm of tiny checkpoints, pooled, by float32 `transformers`.

    python tests/golden/make_embed.py      # needs torch, transformers, safetensors, gguf

Each checkpoint has its last hidden state and the mean over all, not normalised. That these are what the head gets is checked:
its product with them gives the logits."""

import json

import numpy as np
import torch
import transformers

from make_inspect import CASES, HERE, ids_of, load, numbers, sha256


def hidden_of(model, ids):
    """float32 [T, hidden] after the final norm."""
    with torch.no_grad():
        out = model(torch.tensor([ids]), use_cache=False, output_hidden_states=True)
        hidden = out.hidden_states[-1]
        logits = model.get_output_embeddings()(hidden)
    cap = getattr(model.config.get_text_config(), "final_logit_softcapping", None)
    if cap:
        logits = cap * torch.tanh(logits / cap)
    assert torch.allclose(logits, out.logits, atol=1e-5), (logits - out.logits).abs().max()
    return hidden[0].numpy().astype(np.float64)


def main():
    cases = []
    for name, n in CASES:
        ids = (ids_of(name) * n)[:n]
        hidden = hidden_of(load(name), ids)
        print(name, hidden.shape)
        cases.append({"checkpoint": name, "sha256": sha256(name), "ids": ids, "last": numbers(hidden[-1]),
                      "mean": numbers(hidden.mean(0))})  # fmt: skip
    provenance = (f"tests/golden/make_embed.py with transformers {transformers.__version__}, torch {torch.__version__}: "
                  "hidden states after the final norm, of the last token and the mean of all")
    lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
    (HERE / "embed.json").write_text(f'{{"provenance":{json.dumps(provenance)},"cases":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
