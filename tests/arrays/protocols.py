"""What arrays share with other libraries: memory both ways, text, copies, streams, limits. NumPy and MLX are needed, torch is
used where it is installed. Run with PYTHONPATH=python and HEARTH_LIBRARY naming the library."""

import copy
import ctypes
import gc
import inspect
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import unittest
import weakref

import mlx.core as mx
import numpy as np

import hearth as hx

try:
    import torch
except ImportError:
    torch = None


def address(a):
    return np.asarray(a).__array_interface__["data"][0]


class Sharing(unittest.TestCase):
    def setUp(self):
        self.a = hx.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        self.values = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]

    def test_numpy_looks_at_the_memory_of_an_array(self):
        n = np.asarray(self.a)
        self.assertEqual(address(self.a), n.__array_interface__["data"][0])
        self.assertFalse(n.flags.writeable)
        self.assertEqual(np.asarray(self.a.T).strides, (4, 12))
        self.assertEqual(np.asarray(self.a[:, ::-1]).tolist(), [[3, 2, 1], [6, 5, 4]])
        self.assertTrue(np.array(self.a).flags.writeable)

    def test_arrays_index_arrays_of_numpy_and_the_other_way_round(self):
        cases = {
            "a[i([1, 2])]": 0, "a[i([1])]": 0, "a[i([[1]])]": 0, "a[i(1)]": 0, "a[i(1), i(2)]": 0, "a[i([0, 1]), i([1, 2])]": 0,
            "a[i([0]), i([1])]": 0, "a[1, i([1, 2])]": 0, "a[:, i([1])]": 0, "a[None, i([0, 2])]": 0, "a[i(1) : i(3)]": 0,
            "a[..., i([[0, 1], [2, 3]])]": 0, "a[i([])]": 0,
        }  # fmt: skip
        n = np.arange(12).reshape(3, 4)
        for dtype in ("int8", "uint8", "int32", "uint32", "int64"):
            def numpys(values):
                return np.array(values, dtype)

            for case in cases:
                expected = eval(case, {"a": n, "i": numpys})
                for a, i in ((n, lambda v: hx.array(numpys(v))), (hx.array(n), numpys)):
                    found = np.array(eval(case, {"a": a, "i": i}))
                    self.assertEqual((case, dtype, found.tolist()), (case, dtype, expected.tolist()))
                    if "i(1) " in case:
                        continue
                    put, like = a + 0, n + 0
                    exec(case + " = 7", {"a": put, "i": i})
                    exec(case + " = 7", {"a": like, "i": numpys})
                    self.assertEqual((case, np.array(put).tolist()), (case, like.tolist()))
        self.assertEqual(n[hx.array([True, False, True])].tolist(), n[[0, 2]].tolist())
        self.assertEqual([3, 4, 5][hx.array(1)], 4)
        for wrong in (hx.array([1]), hx.array(1.0), hx.array(True)):
            self.assertRaisesRegex(TypeError, "one integer without axes", lambda w=wrong: [3, 4][w])

    def test_arrays_of_the_other_byte_order(self):
        for dtype in ("i2", "u4", "f4", "f2", "i8"):
            values = np.arange(-6 if dtype[0] != "u" else 0, 6).astype(dtype)
            for other in (values.astype(">" + dtype), values.reshape(2, -1).astype(">" + dtype).T, values.astype(">" + dtype)[::2]):
                made = hx.array(other)
                self.assertEqual((made.dtype.size, np.array(made).tolist()), (other.itemsize, other.tolist()))

    def test_lent_memory_outlives_the_array(self):
        n, v = np.asarray(self.a + 1), np.from_dlpack(self.a[1])
        self.a = None
        gc.collect()
        hx.eval([hx.full((2, 3), i) for i in range(9)])
        self.assertEqual((n.tolist(), v.tolist()), ([[2, 3, 4], [5, 6, 7]], [4, 5, 6]))

    def test_dlpack_shares_memory(self):
        n = np.from_dlpack(self.a)
        self.assertEqual(n.__array_interface__["data"][0], address(self.a))
        self.assertFalse(n.flags.writeable)
        self.assertEqual(np.from_dlpack(self.a.T).tolist(), [list(c) for c in zip(*self.values)])
        self.assertEqual(mx.from_dlpack(self.a).tolist(), self.values)
        x = np.arange(6.0).reshape(2, 3)
        h = hx.from_dlpack(x[:, ::2])
        self.assertEqual(address(h), x.__array_interface__["data"][0])
        x[0, 0] = 9
        del x
        gc.collect()
        self.assertEqual((h.tolist(), h.dtype), ([[9, 2], [3, 5]], hx.float64))

    def test_bfloat16_goes_through_dlpack(self):
        b = mx.from_dlpack(hx.array([1.5, 2.5], hx.bfloat16))
        self.assertEqual((b.tolist(), b.dtype), ([1.5, 2.5], mx.bfloat16))
        b = hx.from_dlpack(mx.array([[1, 2], [3, 4]], mx.bfloat16))
        self.assertEqual(((b + 1).tolist(), b.dtype), ([[2, 3], [4, 5]], hx.bfloat16))
        self.assertEqual(hx.array(mx.array([0.5], mx.bfloat16)).dtype, hx.bfloat16)
        self.assertEqual(np.array(b).dtype, np.float32)

    @unittest.skipUnless(torch, "torch is not installed")
    def test_torch(self):
        t = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.bfloat16)
        h = hx.from_dlpack(t.T)
        self.assertEqual(hx._library.lend(h), t.data_ptr())
        self.assertEqual(torch.from_dlpack(h).tolist(), [[1, 3], [2, 4]])
        self.assertEqual(torch.from_dlpack(self.a[:, ::-1]).tolist(), [[3, 2, 1], [6, 5, 4]])

    def test_capsules_that_nobody_uses_leave_nothing(self):
        before = hx.get_active_memory()
        for _ in range(10):
            (self.a + 1).__dlpack__(), (self.a + 1).__dlpack__(max_version=(1, 0))
        gc.collect()
        self.assertEqual(len(hx._dlpack._lent), 0)
        self.assertLessEqual(hx.get_active_memory(), before)

    def test_a_capsule_of_too_many_axes_is_let_go_of_once(self):
        own, number, gone = hx._dlpack, ctypes.c_float(1), []
        deleter, shape = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(gone.append), (ctypes.c_int64 * 9)(*[1] * 9)
        managed = own._Managed(own._Tensor(ctypes.addressof(number), 1, 0, 9, 2, 32, 1, shape, None, 0), None, ctypes.cast(deleter, ctypes.c_void_p))
        capsule = own._capsule_new(ctypes.addressof(managed), b"dltensor", None)

        class Nine:
            def __dlpack_device__(self):
                return own.CPU

            def __dlpack__(self):
                return capsule

        self.assertRaisesRegex(ValueError, "9 dimensions", hx.from_dlpack, Nine())
        gc.collect()
        self.assertTrue(own._capsule_is(capsule, b"used_dltensor"))  # else whoever made it calls the deleter again
        self.assertEqual(gone, [ctypes.addressof(managed)])

    def test_what_cannot_be_shared_says_so(self):
        for wrong in (np.arange(3)[::-1], np.zeros(3, complex)):
            self.assertRaises(BufferError, hx.from_dlpack, wrong)
        self.assertRaises(ValueError, hx.array, np.array(["a"]))
        self.assertRaises(BufferError, self.a.__dlpack__, dl_device=(2, 0))
        self.assertRaises(BufferError, self.a[:, ::-1].__dlpack__, copy=False)
        self.assertRaises(TypeError, hx.array, None)
        for wrong in ("a", {1: 2}, [1, "a"], [[1], [2, 3]]):
            self.assertRaises(ValueError, hx.array, wrong)

    def test_the_buffer_of_an_array(self):
        view = memoryview(self.a.T)
        self.assertEqual((view.tolist(), view.readonly), ([list(c) for c in zip(*self.values)], True))
        self.assertEqual((view.strides, view.format, view.nbytes), ((4, 12), "f", 24))
        self.assertEqual(bytes(self.a.T), np.asarray(self.a).T.tobytes())
        self.assertEqual(memoryview(hx.zeros((0, 3))).nbytes, 0)
        self.assertEqual(memoryview(hx.array(7)).tolist(), 7)
        self.assertRaises(BufferError, memoryview, hx.array([1], hx.bfloat16))
        for name in "bool_ uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64".split():
            a = hx.array([0, 1, 1], getattr(hx, name))
            self.assertEqual((np.frombuffer(a, np.asarray(a).dtype).tolist(), memoryview(a).itemsize), (a.tolist(), a.itemsize))

    def test_a_buffer_outlives_what_its_array_stands_for(self):
        a = hx.array([1, 2, 3])
        view = memoryview(a)
        a[0] = 9
        hx.eval(a)
        a = None
        gc.collect()
        self.assertEqual(view.tolist(), [1, 2, 3])


class Values(unittest.TestCase):
    def test_dtypes_of_values_are_mlx_s(self):
        for v in (1, 1.5, True, [1, 2.5, True], [True, 1], [], 2**31, -(2**31), [2**40], np.float32(2), np.arange(3), np.ones(2)):
            ours, theirs = hx.array(v), mx.array(v)
            self.assertEqual((ours.tolist(), f"{ours.dtype}"[7:].rstrip("_")), (theirs.tolist(), f"{theirs.dtype}"[9:]))
        self.assertEqual(hx.array([hx.array([1.0, 2]), hx.array([2, 3])]).tolist(), [[1, 2], [2, 3]])
        self.assertEqual(hx.array(1e300).item(), float("inf"))
        self.assertEqual(hx.array(np.arange(4)[::-1]).tolist(), [3, 2, 1, 0])

    def test_text_is_mlx_s(self):
        for shape in [(), (1,), (6,), (7,), (2, 3), (10, 10), (2, 3, 4), (8, 8, 8), (0,), (2, 0)]:
            self.assertEqual(repr(hx.zeros(shape)), repr(mx.zeros(shape)))
        values = [1e-8, 1e10, float("nan"), float("inf"), -0.0, 0.1, 123456.789, 1234567.0, 3.14159274]
        for name in ("float32", "float16", "bfloat16"):
            self.assertEqual(repr(hx.array(values, getattr(hx, name))), repr(mx.array(values, getattr(mx, name))))
        self.assertEqual(f"{hx.array(2.5):.3f}", "2.500")

    def test_lists(self):
        for shape in [(), (3,), (2, 3, 4), (2, 0), (0, 2), (2, 0, 3)]:
            self.assertEqual(hx.ones(shape).tolist(), mx.ones(shape).tolist())

    def test_copies(self):
        a = hx.array([[1, 2], [3, 4]], hx.bfloat16)
        for other in (copy.copy(a), copy.deepcopy(a), pickle.loads(pickle.dumps(a))):
            self.assertEqual((other.tolist(), other.dtype), (a.tolist(), a.dtype))

    def test_bare_numbers(self):
        self.assertEqual(repr(-0.0 * hx.array(1.0)), "array(-0, dtype=float32)")
        self.assertEqual(repr(0.0 * hx.array(1.0)), "array(0, dtype=float32)")
        self.assertEqual(hx.exp(0).item(), 1)
        for i in range(1000):
            self.assertEqual((hx.array([1]) + i).item(), 1 + i)


class Running(unittest.TestCase):
    def test_streams(self):
        s = hx.new_stream(hx.cpu)
        x = hx.ones((100,))
        for _ in range(50):
            with hx.stream(s):
                x = x + 1
                hx.async_eval(x)
                self.assertEqual(hx.default_stream(hx.cpu), s)
            x = x * 1
            hx.async_eval(x)
        self.assertNotEqual(hx.default_stream(hx.cpu), s)
        self.assertEqual(x.sum().item(), 5100)
        hx.synchronize(s)
        with hx.stream(hx.cpu):
            self.assertEqual(hx.default_device(), hx.cpu)
        self.assertRaises(ValueError, hx.set_default_device, hx.gpu)

    def test_an_array_is_computed_on_the_stream_it_was_made_for(self):
        is_evaluated = hx._library.declare("ht_array_is_evaluated", ctypes.c_bool, ctypes.c_void_p)
        x, s = hx.ones((300, 300)), hx.new_stream(hx.cpu)
        made = [hx.add(x, x, stream=s), x.sum(stream=s), hx.random.normal((9,), stream=s), hx.exp(x, stream=s)]
        with hx.stream(s):
            made += [x * 3, hx.fast.rms_norm(x, None, 1e-5), hx.array([1]) + 1]
        hx.async_eval(made)
        hx.synchronize(s)
        self.assertEqual([is_evaluated(a._handle) for a in made], [True] * len(made))
        self.assertEqual((made[0][0, 0].item(), made[4][0, 0].item(), (made[4] + made[0])[1, 1].item()), (2, 3, 5))
        self.assertEqual([a._queue for a in (x, x + 1, hx.add(x, 1, stream=hx.cpu))], [None, None, hx.default_stream()])
        self.assertRaises(TypeError, hx.add, x, x, stream=3)
        self.assertRaises(ValueError, hx.exp, x, stream=hx.gpu)
        with self.assertRaises(ValueError):
            hx.matmul(x, hx.ones((2, 2)), stream=s)
        self.assertNotEqual(hx.default_stream(), s)

    def test_a_thread_s_stream_ends_with_it(self):
        seen = []
        thread = threading.Thread(target=lambda: seen.append(weakref.ref(hx.default_stream())) or hx.eval(hx.ones(3) + 1))
        thread.start()
        thread.join()
        gc.collect()
        self.assertIsNone(seen[0]())

    def test_a_stream_lives_while_a_function_is_called_on_it(self):
        x, lived, ended = hx.ones(3), [], []

        def f(a):
            of_the_call = weakref.ref(hx.default_stream())
            hx.set_default_stream(hx.new_stream())
            gc.collect()
            lived.append(of_the_call() is not None)
            ended.append(of_the_call)
            return (a * a).sum()

        def calls():
            hx.set_default_stream(hx.new_stream())  # which nothing else holds
            for call in (hx.grad(f), hx.compile(f), hx.checkpoint(f), hx.custom_function(f)):
                call(x)

        thread = threading.Thread(target=calls)
        thread.start()
        thread.join()
        gc.collect()
        self.assertEqual((lived[:3], [r() for r in ended]), ([True] * 3, [None] * 4))

    def test_a_forked_process_goes_on(self):
        x, s = hx.ones((300, 300)), hx.new_stream()
        waits = hx.matmul(x, x, stream=s)
        hx.async_eval(x + 1, waits)
        hx.synchronize(), hx.synchronize(s)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                signal.alarm(60)  # of what waits for a thread that is not there
                y = x @ x + 1
                hx.async_eval(y, hx.add(y, waits, stream=s))
                hx.synchronize(), hx.synchronize(s)
                right = (y[0, 0].item(), waits[5, 5].item()) == (301, 300)
                del s, waits
                gc.collect()
                status = 0 if right else 2
            finally:
                os._exit(status)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_programs_end(self):
        """Also with arrays that hold, or are held by, what calls back into a module that has gone by then."""
        endings = {
            "a rule in the graph of what it holds": """
                class Ring: pass
                ring, f = Ring(), hx.custom_function(lambda x: x * x)
                f.vjp(lambda primals, cotangents, outputs: ring.array)
                ring.array = f(hx.ones(3))""",
            "memory that is lent": """
                import sys
                numbers, unused = np.from_dlpack(hx.ones(9) + 1), (hx.ones(9) + 1).__dlpack__()
                sys.kept = numbers, unused, memoryview(hx.ones(5))""",
            "memory that is borrowed": "borrowed = hx.from_dlpack(np.ones(9)) + 1",
            "an evaluation": "a = hx.ones((700, 700)); hx.async_eval(a @ a @ a @ a)",
        }
        for what, text in endings.items():
            program = "import hearth as hx, numpy as np\n" + textwrap.dedent(text)
            done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""), what)

    def test_what_takes_a_stream_in_mlx_takes_one_here(self):
        for ours, theirs in ((hx, mx), (hx.random, mx.random), (hx.fast, mx.fast), (hx.linalg, mx.linalg), (hx.array, mx.array)):
            for name in set(dir(ours)) & set(dir(theirs)):
                function, signature = getattr(ours, name), (getattr(theirs, name).__doc__ or "").split("\n")[0]
                if callable(function) and "stream: " in signature and not isinstance(function, type):
                    self.assertIn("stream", inspect.signature(function).parameters, name)

    def test_threads(self):
        shared, results = hx.arange(1000.0).reshape(10, 100), []
        work = [threading.Thread(target=lambda: results.append((shared.T * 2).sum().item())) for _ in range(8)]
        [t.start() for t in work]
        [t.join() for t in work]
        self.assertEqual(results, [999000.0] * 8)

    def test_a_limit_is_an_error_that_passes(self):
        x = hx.ones((1 << 18,))
        hx.eval(x)
        self.assertEqual(hx.set_memory_limit(hx.get_active_memory() + (1 << 19)), 0)
        with self.assertRaisesRegex(MemoryError, "the memory limit is"):
            hx.eval(hx.cumsum(x) + x)
        self.assertGreater(hx.set_memory_limit(0), 0)
        self.assertEqual((hx.cumsum(x) + x)[5].item(), 7)

    def test_operations_leave_nothing(self):
        x, before = hx.zeros((4,)), None
        for i in range(20000):
            x = hx.softmax(x + 1) if i % 3 else x * 2
            if i % 100 == 0:
                hx.eval(x)
                before = before or hx.get_active_memory()
        hx.eval(x)
        self.assertLess(hx.get_active_memory() - before, 4096)

    def most_above(self, change, a):
        """How many bytes more than before are in use while `a` is changed and evaluated."""
        hx.eval(a)
        before = hx.get_active_memory()
        hx.reset_peak_memory()
        a = change(a)
        hx.eval(a)
        self.assertLessEqual(hx.get_active_memory(), before + 4096)
        return hx.get_peak_memory() - before, a

    def test_what_nobody_else_holds_is_changed_where_it_is(self):
        def put(a):
            a[3, 5] = 7
            return a

        def window(a):
            a[10:20, ::2] = 1
            return a

        def pick(a):
            a[hx.array([1, 2, 1])] = hx.array([[5.0]])
            return a

        n = 1 << 20
        def scaled(a):
            return a * 2

        def part(a):
            a[10:20] += 3
            return a

        def row(a):
            a[3] -= 1
            return a

        def by_itself(a):
            a[10:20, ::2] *= a[10:11, ::2] + 1
            return a

        def chosen(a):
            a[hx.array([1, 2])] += 5
            return a

        for change in (put, window, pick, scaled, part, row, by_itself, chosen):
            made = [hx.zeros((1024, n // 1024))]  # which is held nowhere else
            grown, result = self.most_above(change, made.pop())
            self.assertLess(grown, n, change)
            plain = np.zeros((1024, n // 1024), np.float32)
            if change in (pick, chosen):
                plain[[1, 2]] = 5
            self.assertTrue(np.array_equal(np.array(result), plain if change in (pick, chosen) else change(plain)))

    def test_what_others_hold_stays(self):
        a = hx.ones((1000,))
        hx.eval(a)
        view, same, lent, numbers = a[:10], copy.copy(a), memoryview(a), np.asarray(a)
        lazy = a * 2
        a[5] = 9
        hx.eval(a)
        self.assertEqual([x[5] for x in (lent, numbers)], [1, 1])
        self.assertEqual([x[5].item() for x in (view, same, lazy, a)], [1, 1, 2, 9])

    def test_a_failure_behind_a_change_leaves_the_change(self):
        for k in range(2):
            a, i = hx.zeros((1 << 16,)), hx.array([1 << 20])
            hx.eval(a, i)
            a[5] = 3
            b = hx.take(a + 1, i) + a[5]
            with self.assertRaises((hx.Error, ValueError, IndexError)):
                hx.eval(*((a, b) if k else (b, a)))
            self.assertEqual((a[5].item(), a.sum().item()), (3, 3))

    def test_limits_return_the_previous_one(self):
        for set_limit in (hx.set_memory_limit, hx.set_cache_limit, hx.set_wired_limit):
            old = set_limit(1 << 30)
            self.assertEqual(set_limit(old), 1 << 30)
            for wrong in (-1, 2**64, 2**65, -(2**64) + 1):
                self.assertRaises(ValueError, set_limit, wrong)
            self.assertEqual(set_limit(old), old)
        hx.reset_peak_memory()
        self.assertEqual(hx.get_peak_memory(), hx.get_active_memory())
        hx.clear_cache()
        self.assertEqual(hx.get_cache_memory(), 0)

    def test_the_device_is_described(self):
        info = hx.device_info()
        self.assertEqual(info["architecture"], mx.device_info()["architecture"])
        self.assertGreaterEqual(info["cores"], 1)


if __name__ == "__main__":
    unittest.main()
