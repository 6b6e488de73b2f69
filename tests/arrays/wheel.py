"""What an installed wheel must do, with nothing else installed."""

import pathlib
import sys

import hearth as mx

assert "HEARTH_LIBRARY" not in __import__("os").environ
assert pathlib.Path(mx.__file__).is_relative_to(sys.prefix), mx.__file__
assert "numpy" not in sys.modules
x = mx.arange(6.0).reshape(2, 3)
assert (x @ x.T).tolist() == [[5, 14], [14, 50]]
value, gradient = mx.value_and_grad(lambda w: (w * w).sum())(mx.array([1.0, 2.0]))
assert (value.item(), gradient.tolist()) == (5, [2, 4])
for name in ("py.typed", "__init__.pyi", "random.pyi", "fast.pyi", "linalg.pyi", "losses.pyi", "optimizers.pyi"):
    assert pathlib.Path(mx.__file__).with_name(name).exists(), name
print("The wheel works on Python", sys.version.split()[0])
