"""The programs of examples/python, written for mlx.core, run as they are on MLX and on Hearth: drawn and whole numbers are
equal, others to rounding. Run from the repository root with PYTHONPATH=python and HEARTH_LIBRARY naming the library."""

import importlib.util
import pathlib
import sys
import types
import unittest

import mlx.core as mx
import numpy as np

import hearth as hx


def run(path, core):
    """main() of a program whose `mlx.core` is `core`."""
    package = types.ModuleType("mlx")
    package.core = core
    kept = {name: sys.modules.get(name) for name in ("mlx", "mlx.core")}
    sys.modules.update({"mlx": package, "mlx.core": core})
    try:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.main()
    finally:
        sys.modules.update(kept)


class Programs(unittest.TestCase):
    def compare(self, name):
        path = pathlib.Path("examples/python", f"{name}.py")
        ours, theirs = run(path, hx), run(path, mx)
        for kind, tolerance in (("data", 2e-6), ("values", 2e-3)):
            for i, (a, b) in enumerate(zip(ours[kind], theirs[kind], strict=True)):
                a, b = np.array(a), np.array(b)
                self.assertEqual((a.shape, a.dtype), (b.shape, b.dtype), f"{kind} {i}")
                if a.dtype.kind in "iu":
                    self.assertTrue(np.array_equal(a, b), f"{kind} {i}")
                else:
                    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=f"{kind} {i}")


def _add(name):
    setattr(Programs, f"test_{name}", lambda self: self.compare(name))


for _path in sorted(pathlib.Path("examples/python").glob("*.py")):
    _add(_path.stem)

if __name__ == "__main__":
    mx.set_default_device(mx.cpu)
    unittest.main()
