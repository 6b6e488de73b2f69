"""Fits a line in ten dimensions by gradient descent."""

import mlx.core as mx


def main():
    key = mx.random.key(0)
    k1, k2, k3 = mx.random.split(key, 3)
    truth = mx.random.normal((10,), key=k1)
    x = mx.random.normal((200, 10), key=k2)
    y = x @ truth + 0.01 * mx.random.normal((200,), key=k3)

    def loss(w):
        return mx.mean(mx.square(x @ w - y))

    step = mx.value_and_grad(loss)
    w, values = mx.zeros((10,)), []
    for _ in range(100):
        value, gradient = step(w)
        w = w - 0.1 * gradient
        mx.eval(w)
        values.append(value.item())
    return {"data": [truth, x[0]], "values": [w, mx.array(values[::20])]}


if __name__ == "__main__":
    print(main())
