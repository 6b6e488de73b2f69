"""Draws tokens from logits: temperature, the k most likely, the smallest set of probability p."""

import mlx.core as mx


def top_k(logits, k):
    worst = mx.sort(logits, axis=-1)[:, -k : -k + 1]
    return mx.where(logits < worst, -float("inf"), logits)


def top_p(logits, p):
    order = mx.argsort(-logits, axis=-1)
    probabilities = mx.softmax(mx.take_along_axis(logits, order, axis=-1), axis=-1)
    before = mx.cumsum(probabilities, axis=-1) - probabilities
    kept = mx.where(before < p, mx.take_along_axis(logits, order, axis=-1), -float("inf"))
    return mx.take_along_axis(kept, mx.argsort(order, axis=-1), axis=-1)


def main():
    key = mx.random.key(42)
    key, first = mx.random.split(key)
    logits = mx.random.normal((8, 100), key=first) * 3
    drawn = []
    for filtered in (logits / 0.7, top_k(logits, 10), top_p(logits, 0.9)):
        for _ in range(5):
            key, now = mx.random.split(key)
            drawn.append(mx.random.categorical(filtered, key=now))
    counts = mx.zeros((100,), mx.int32).at[mx.concatenate(drawn)].add(1)
    return {"data": [mx.stack(drawn), counts], "values": [mx.softmax(top_p(logits, 0.9), axis=-1)]}


if __name__ == "__main__":
    print(main())
