"""Trains a transformer of one layer to repeat what it read: rotary positions, grouped heads, norms, a gated network."""

import mlx.core as mx

VOCABULARY, HIDDEN, HEADS, LENGTH = 12, 32, 4, 10


def attend(p, x):
    n, length, _ = x.shape

    def split(y):
        return y.reshape(n, length, -1, HIDDEN // HEADS).transpose(0, 2, 1, 3)

    q, k, v = split(x @ p["q"]), split(x @ p["k"]), split(x @ p["v"])
    q = mx.fast.rope(q, HIDDEN // HEADS, traditional=False, base=10000.0, scale=1.0, offset=0)
    k = mx.fast.rope(k, HIDDEN // HEADS, traditional=False, base=10000.0, scale=1.0, offset=0)
    y = mx.fast.scaled_dot_product_attention(q, k, v, scale=(HIDDEN // HEADS) ** -0.5, mask="causal")
    return y.transpose(0, 2, 1, 3).reshape(n, length, HIDDEN) @ p["o"]


def forward(p, tokens):
    x = p["embedding"][tokens]
    x = x + attend(p, mx.fast.rms_norm(x, p["norm1"], 1e-5))
    y = mx.fast.rms_norm(x, p["norm2"], 1e-5)
    gate = y @ p["gate"]
    x = x + ((gate * mx.sigmoid(gate)) * (y @ p["up"])) @ p["down"]
    return mx.fast.rms_norm(x, p["norm3"], 1e-5) @ p["embedding"].T


def loss(p, tokens):
    logits, targets = forward(p, tokens[:, :-1]), tokens[:, 1:]
    chosen = mx.take_along_axis(logits, mx.expand_dims(targets, -1), axis=-1).squeeze(-1)
    return mx.mean(mx.logsumexp(logits, axis=-1) - chosen)


def parameters(key):
    shapes = {
        "embedding": (VOCABULARY, HIDDEN), "q": (HIDDEN, HIDDEN), "k": (HIDDEN, HIDDEN // 2), "v": (HIDDEN, HIDDEN // 2),
        "o": (HIDDEN, HIDDEN), "gate": (HIDDEN, 64), "up": (HIDDEN, 64), "down": (64, HIDDEN),
    }  # fmt: skip
    keys = mx.random.split(key, len(shapes))
    p = {name: mx.random.normal(shape, key=k) * 0.1 for k, (name, shape) in zip(keys, shapes.items())}
    return {**p, "norm1": mx.ones((HIDDEN,)), "norm2": mx.ones((HIDDEN,)), "norm3": mx.ones((HIDDEN,))}


def main():
    k1, k2 = mx.random.split(mx.random.key(11))
    p, values = parameters(k1), []
    half = mx.random.randint(0, VOCABULARY, (32, LENGTH // 2), key=k2)
    tokens = mx.concatenate([half, half], axis=1)
    step = mx.value_and_grad(loss)
    for _ in range(20):
        value, gradients = step(p, tokens)
        p = {name: p[name] - 0.5 * g for name, g in gradients.items()}
        mx.eval(p)
        values.append(value.item())
    return {"data": [tokens], "values": [mx.array(values), forward(p, tokens[:1])]}


if __name__ == "__main__":
    print(main())
