"""Tells points of two spirals apart with a small network and Adam."""

import math

import mlx.core as mx


def spirals(n, key):
    t = mx.sqrt(mx.random.uniform(shape=(n,), key=key)) * 3 * math.pi
    points = mx.stack([t * mx.cos(t), t * mx.sin(t)], axis=1) / 10
    labels = mx.arange(n) % 2
    return mx.where(labels.reshape(-1, 1) == 1, -points, points), labels


def forward(p, x):
    h = mx.tanh(mx.addmm(p["b1"], x, p["w1"]))
    h = mx.tanh(mx.addmm(p["b2"], h, p["w2"]))
    return h @ p["w3"]


def loss(p, x, labels):
    logits = forward(p, x)
    chosen = mx.take_along_axis(logits, labels.reshape(-1, 1), axis=1).squeeze(1)
    return mx.mean(mx.logsumexp(logits, axis=1) - chosen)


def main():
    keys = mx.random.split(mx.random.key(3), 4)
    x, labels = spirals(200, keys[0])
    p = {
        "w1": mx.random.normal((2, 16), key=keys[1]),
        "b1": mx.zeros((16,)),
        "w2": mx.random.normal((16, 16), key=keys[2]) * 0.25,
        "b2": mx.zeros((16,)),
        "w3": mx.random.normal((16, 2), key=keys[3]) * 0.25,
    }
    m = {name: mx.zeros_like(a) for name, a in p.items()}
    v = {name: mx.zeros_like(a) for name, a in p.items()}
    step = mx.value_and_grad(loss)
    values = []
    for i in range(1, 61):
        value, gradients = step(p, x, labels)
        for name, g in gradients.items():
            m[name] = 0.9 * m[name] + 0.1 * g
            v[name] = 0.999 * v[name] + 0.001 * mx.square(g)
            p[name] = p[name] - 0.01 * (m[name] / (1 - 0.9**i)) / (mx.sqrt(v[name] / (1 - 0.999**i)) + 1e-8)
        mx.eval(p, m, v)
        values.append(value.item())
    right = mx.mean(mx.argmax(forward(p, x), axis=1) == labels)
    return {"data": [x, labels], "values": [mx.array(values[::10]), right]}


if __name__ == "__main__":
    print(main())
