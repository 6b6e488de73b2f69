"""Networks in Hearth, MLX and torch: values, gradients, and second derivatives along a direction. A network of two layers, and
a block of a transformer with every fused operation and quantised weights. torch computes in float64 from plain operations, and
is used where it is installed. Run with PYTHONPATH=python and HEARTH_LIBRARY naming the library."""

import unittest

import mlx.core as mx
import numpy as np

import hearth as hx

try:
    import torch
except ImportError:
    torch = None

BATCH, ROWS, WIDTH, HEADS, KV_HEADS, INNER = 2, 7, 64, 4, 2, 96
HEAD = WIDTH // HEADS
PROJECTIONS = {"q": WIDTH, "k": KV_HEADS * HEAD, "v": KV_HEADS * HEAD, "o": WIDTH}
rng = np.random.default_rng(11)


def drawn(*shape, by=1.0):
    return (by * rng.standard_normal(shape)).astype(np.float32)


# ---- a network of two layers ----

MLP = {"w1": drawn(5, 16, by=0.5), "b1": drawn(16), "w2": drawn(16, 3, by=0.3), "b2": drawn(3), "x": drawn(9, 5)}
LABELS = rng.integers(0, 3, 9)


def mlp(m, p):
    hidden = m.tanh(m.addmm(p["b1"], p["x"], p["w1"]))
    logits = hidden @ p["w2"] + p["b2"]
    chosen = m.take_along_axis(logits, m.array(LABELS.reshape(-1, 1)), axis=1).squeeze(1)
    return m.mean(m.logsumexp(logits, axis=1) - chosen)


def torch_mlp(p):
    logits = torch.tanh(p["x"] @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]
    return torch.nn.functional.cross_entropy(logits, torch.tensor(LABELS))


# ---- a block of a transformer ----

BLOCK = {
    "x": drawn(BATCH, ROWS, WIDTH), "norm1": 1 + drawn(WIDTH, by=0.1), "norm2": 1 + drawn(WIDTH, by=0.1),
    "bias2": drawn(WIDTH, by=0.1), "up": drawn(WIDTH, INNER, by=0.1), "gate": drawn(WIDTH, INNER, by=0.1),
    "sinks": drawn(HEADS),
}  # fmt: skip
DENSE = {name: drawn(n, WIDTH, by=0.15) for name, n in PROJECTIONS.items()} | {"down": drawn(WIDTH, INNER, by=0.1)}
QUANTISED = {name: [np.array(part) for part in mx.quantize(mx.array(w), group_size=32, bits=4)] for name, w in DENSE.items()}


def block(m, p):
    def project(x, name):
        parts = [m.array(part) for part in QUANTISED[name]]
        return m.quantized_matmul(x, *parts, transpose=True, group_size=32, bits=4)

    def heads(x, name):
        return project(x, name).reshape(BATCH, ROWS, -1, HEAD).transpose(0, 2, 1, 3)

    def turned(x):
        return m.fast.rope(x, HEAD, traditional=False, base=100.0, scale=0.5, offset=3)

    h = m.fast.rms_norm(p["x"], p["norm1"], 1e-5)
    y = m.fast.scaled_dot_product_attention(
        turned(heads(h, "q")), turned(heads(h, "k")), heads(h, "v"), scale=HEAD**-0.5, mask="causal", **with_sinks(p)
    )
    x = p["x"] + project(y.transpose(0, 2, 1, 3).reshape(BATCH, ROWS, WIDTH), "o")
    h = m.fast.layer_norm(x, p["norm2"], p["bias2"], 1e-5)
    gate = h @ p["gate"]
    x = x + project(gate * m.sigmoid(gate) * (h @ p["up"]), "down")
    return m.mean(m.square(x)) + m.mean(m.sin(x))


def with_sinks(p):
    return {"sinks": p["sinks"]} if "sinks" in p else {}


def torch_block(p):
    weights = {
        name: torch.tensor(np.array(mx.dequantize(*map(mx.array, parts), group_size=32, bits=4))).double()
        for name, parts in QUANTISED.items()
    }

    def heads(x, name):
        return (x @ weights[name].T).reshape(BATCH, ROWS, -1, HEAD).transpose(1, 2)

    def turned(x):
        angle = 0.5 * (3 + torch.arange(ROWS).double())[:, None] * 100.0 ** (-torch.arange(HEAD // 2).double() * 2 / HEAD)
        a, b = x[..., : HEAD // 2], x[..., HEAD // 2 :]
        return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)

    h = p["x"] / torch.sqrt((p["x"] ** 2).mean(-1, keepdim=True) + 1e-5) * p["norm1"]
    q, k, v = turned(heads(h, "q")), turned(heads(h, "k")), heads(h, "v")
    k, v = (t.repeat_interleave(HEADS // KV_HEADS, 1) for t in (k, v))
    scores = (q @ k.transpose(2, 3) * HEAD**-0.5).masked_fill(~torch.ones(ROWS, ROWS).tril().bool(), -torch.inf)
    if "sinks" in p:
        scores = torch.cat([scores, p["sinks"].reshape(1, HEADS, 1, 1).expand(BATCH, HEADS, ROWS, 1)], -1)
    y = torch.softmax(scores, -1)[..., :ROWS] @ v
    x = p["x"] + y.transpose(1, 2).reshape(BATCH, ROWS, WIDTH) @ weights["o"].T
    h = torch.nn.functional.layer_norm(x, (WIDTH,), p["norm2"], p["bias2"], 1e-5)
    x = x + torch.nn.functional.silu(h @ p["gate"]) * (h @ p["up"]) @ weights["down"].T
    return (x**2).mean() + x.sin().mean()


# ---- derivatives ----


def derivatives(m, f, values, along):
    """The value, the gradients, and the gradients of sum(gradient * direction)."""
    p = {name: m.array(a) for name, a in values.items()}
    value, first = m.value_and_grad(lambda p: f(m, p))(p)

    def slope(p):
        gradients = m.grad(lambda p: f(m, p))(p)
        return sum((gradients[name] * m.array(along[name])).sum() for name in p)

    second = m.grad(slope)(p)
    return float(value), {n: np.array(a) for n, a in first.items()}, {n: np.array(a) for n, a in second.items()}


def torch_derivatives(f, values, along):
    p = {name: torch.tensor(a, dtype=torch.float64, requires_grad=True) for name, a in values.items()}
    value = f(p)
    first = torch.autograd.grad(value, list(p.values()), create_graph=True)
    slope = sum((g * torch.tensor(along[name])).sum() for name, g in zip(p, first))
    second = torch.autograd.grad(slope, list(p.values()))
    return value.item(), *({n: a.detach().numpy() for n, a in zip(p, found)} for found in (first, second))


class Compositions(unittest.TestCase):
    def compare(self, ours, theirs, tolerance):
        np.testing.assert_allclose(ours[0], theirs[0], rtol=tolerance)
        for order, a, b in zip(("first", "second"), ours[1:], theirs[1:]):
            for name in a:
                size = np.abs(b[name]).max()
                self.assertGreater(size, 0, name)
                np.testing.assert_allclose(a[name] / size, b[name] / size, rtol=0, atol=tolerance, err_msg=f"{order} order, {name}")

    def check(self, f, in_torch, values):
        along = {name: rng.standard_normal(a.shape).astype(np.float32) for name, a in values.items()}
        ours = derivatives(hx, f, values, along)
        self.compare(ours, derivatives(mx, f, values, along), 5e-5)
        if torch:
            self.compare(ours, torch_derivatives(in_torch, values, along), 5e-5)

    def test_a_network_of_two_layers(self):
        self.check(mlp, torch_mlp, MLP)

    def test_a_block_of_a_transformer(self):
        self.check(block, torch_block, {name: a for name, a in BLOCK.items() if name != "sinks"})

    def test_a_block_with_sinks(self):
        self.check(block, torch_block, BLOCK)

    @unittest.skipUnless(torch, "torch is not installed: compared with MLX alone")
    def test_torch_is_there(self):
        self.assertTrue(torch.__version__)


if __name__ == "__main__":
    mx.set_default_device(mx.cpu)
    unittest.main()
