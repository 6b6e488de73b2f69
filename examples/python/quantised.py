"""A quantised layer with a low-rank adapter that is trained on top of it."""

import mlx.core as mx


def main():
    keys = mx.random.split(mx.random.key(5), 4)
    weight = mx.random.normal((64, 128), key=keys[0])
    x = mx.random.normal((16, 128), key=keys[1])
    numbers, scales, biases = mx.quantize(weight, group_size=64, bits=4)
    p = {"a": mx.random.normal((128, 4), key=keys[2]) * 0.1, "b": mx.zeros((4, 64))}
    target = x @ weight.T

    def forward(p):
        y = mx.quantized_matmul(x, numbers, scales, biases, transpose=True, group_size=64, bits=4)
        return y + (x @ p["a"]) @ p["b"]

    def loss(p):
        return mx.mean(mx.square(forward(p) - target))

    step, values = mx.value_and_grad(loss), []
    for _ in range(30):
        value, gradients = step(p)
        p = {name: p[name] - 0.05 * gradients[name] for name in p}
        mx.eval(p)
        values.append(value.item())
    back = mx.dequantize(numbers, scales, biases, group_size=64, bits=4)
    return {"data": [numbers, x], "values": [mx.array(values[::5]), forward(p), back]}


if __name__ == "__main__":
    print(main())
