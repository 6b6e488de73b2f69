"""The compiled functions of the binding as objects of Python: arguments, exceptions, names, numbers both ways. NumPy is needed.
Run with PYTHONPATH=python and HEARTH_LIBRARY naming the library."""

import copy
import inspect
import math
import pickle
import unittest
import weakref

import numpy as np

import hearth as hx


class Calls(unittest.TestCase):
    """What is compiled behaves as functions of Python do."""

    def setUp(self):
        self.a = hx.array([[1.0, 2.0], [3.0, 4.0]])

    def test_arguments_by_place_and_by_name(self):
        a = self.a
        for same in (hx.sum(a, 1, True), hx.sum(a=a, keepdims=True, axis=[1]), a.sum(axis=1, keepdims=True), hx.sum(a, (-1,), 1)):
            self.assertEqual(same.tolist(), [[3], [7]])
        self.assertEqual(a.reshape(4).tolist(), a.reshape([4]).tolist())
        self.assertEqual(a.transpose(1, 0).tolist(), a.transpose().tolist())
        self.assertEqual(hx.sum.__call__(a, **{"axis": 0}).tolist(), [4, 6])
        self.assertEqual(hx.add(a, 1, hx.cpu).tolist(), hx.add(a, 1, stream=hx.cpu).tolist())
        self.assertEqual(hx.einsum("ij->j", a).tolist(), [4, 6])
        self.assertEqual(list(map(hx.square, [1.0, 2.0]))[1].item(), 4)

    def test_wrong_arguments_are_told(self):
        a = self.a
        for message, call in {
            "sum.. missing required argument: 'a'": lambda: hx.sum(),
            "sum.. got an unexpected keyword argument 'rows'": lambda: hx.sum(a, rows=1),
            "sum.. got multiple values for argument 'a'": lambda: hx.sum(a, a=a),
            "sum.. takes at most 3 positional arguments .4 given": lambda: hx.sum(a, 0, True, None),
            "exp.. got an unexpected keyword argument 'a'": lambda: hx.exp(a=a),
            "interpreted as an integer": lambda: hx.sum(a, 1.5),
            "is no dtype": lambda: hx.zeros(3, "float32"),
            "real number": lambda: hx.fast.rms_norm(a, None, "small"),
            "is no stream": lambda: hx.exp(a, stream="x"),
            "cannot be made of": lambda: hx.exp(None),
        }.items():
            self.assertRaisesRegex(TypeError, message, call)
        for message, call in {
            "broadcast": lambda: hx.add(a, hx.ones(3)),
            "there is no mode 'round'": lambda: hx.pad(a, 1, "round"),
            "there are no 0 equal parts": lambda: hx.split(a, 0),
            "none of affine": lambda: hx.quantize(a, mode="q4"),
        }.items():
            self.assertRaisesRegex(ValueError, message, call)

        self.assertRaisesRegex(IndexError, "no axis 5", hx.flip, a, 5)

    def test_integers_that_do_not_fit_are_refused(self):
        a, key = self.a, hx.random.key(2**64 - 1)
        for huge in (2**64 + 1, 2**63, -(2**63) - 1, 10**30):  # 1 if cut to 64 bits
            for call in (hx.zeros, lambda n: hx.zeros((2, n)), lambda n: hx.eye(3, k=n), lambda n: hx.tri(3, n), lambda n: hx.tril(a, n),
                         lambda n: hx.linspace(0, 1, n), lambda n: hx.repeat(a, n), lambda n: hx.tile(a, n), lambda n: hx.roll(a, n),
                         lambda n: hx.pad(a, n), lambda n: hx.reshape(a, n), lambda n: hx.as_strided(a, (2,), (n,)), lambda n: a[n],
                         lambda n: hx.take(a, n), lambda n: hx.partition(a, n), lambda n: hx.topk(a, n), lambda n: a + hx.array(n, hx.int64),
                         lambda n: hx.split(a, n), lambda n: hx.random.split(key, n), lambda n: hx.slice(a, [n], [0], (1, 1)),
                         lambda n: hx.random.categorical(a, num_samples=n), lambda n: hx.broadcast_to(a, (n, 2, 2)),
                         lambda n: hx.full((2,), n), lambda n: hx.arange(n, n + 1)):  # fmt: skip
                self.assertRaises((OverflowError, ValueError, IndexError), call, huge)
        for huge in (2**32 + 1, 2**31, -(2**32) + 1, 2**64 + 1):  # 1 if cut to 32 bits
            for call in (lambda n: hx.sum(a, n), lambda n: hx.expand_dims(a, n), lambda n: hx.round(a, n), lambda n: hx.var(a, ddof=n),
                         lambda n: hx.flip(a, [n]), lambda n: hx.random.bits((2,), n), lambda n: hx.quantize(a, n), lambda n: hx.take(a, n),
                         lambda n: hx.quantize(a, 32, n), lambda n: hx.fast.rope(a, n, traditional=False, base=1.0, scale=1.0, offset=0),
                         lambda n: hx.take(a, hx.array([n], hx.int64 if n < 2**63 else hx.uint64)).tolist()):  # fmt: skip
                self.assertRaises((OverflowError, ValueError, IndexError), call, huge)
        for wrong in (-1, 2**64, 2**64 + 5, -(2**64) + 5):
            self.assertRaisesRegex(ValueError, "64 bits without sign", hx.random.key, wrong)
            self.assertRaisesRegex(ValueError, "64 bits without sign", hx.random.seed, wrong)

    def test_functions_are_objects(self):
        for f in (hx.sum, hx.exp, hx.random.normal, hx.fast.rope, hx.linalg.norm, hx.array.reshape):
            self.assertIs(pickle.loads(pickle.dumps(f)), f)
            self.assertIs(copy.deepcopy(f), f)
            self.assertIs(weakref.ref(f)(), f)
        self.assertEqual((hx.sum.__name__, hx.sum.__module__, hx.array.item.__qualname__), ("sum", "hearth", "array.item"))
        self.assertEqual(str(inspect.signature(hx.take)), "(a, indices, axis=None, *, stream=None)")
        self.assertEqual(str(inspect.signature(self.a.sum)), "(axis=None, keepdims=False, *, stream=None)")
        bound = self.a.sum
        self.assertEqual(bound(axis=0).tolist(), [4, 6])
        self.assertIn("not 0", hx.where.__doc__)

    def test_numbers_become_arrays_and_come_back(self):
        for name in "bool_ uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 float64".split():
            dtype = getattr(hx, name)
            values = [[0, 1, 1], [1, 0, 1]]
            made = hx.array(values, dtype)
            self.assertEqual((made.dtype, made.shape, made.tolist()), (dtype, (2, 3), values))
            self.assertEqual([type(v) for v in made[0].tolist()], 3 * [bool if name == "bool_" else float if dtype.is_float else int])
            self.assertEqual((made.T.tolist(), made[1, 2].item(), made[:0].tolist()), ([[0, 1], [1, 0], [1, 1]], 1, []))
        for value, dtype in ((True, hx.bool_), (3, hx.int32), (1 << 40, hx.int64), (2.5, hx.float32), ([], hx.float32), ([1, True], hx.int32)):
            self.assertIs(hx.array(value).dtype, dtype)
        limits = [0, 2**64 - 1, 2**63, -(2**63), 2**63 - 1, -128, 255]
        self.assertEqual(hx.array(limits[:3], hx.uint64).tolist(), limits[:3])
        self.assertEqual(hx.array(limits[3:5], hx.int64).tolist(), limits[3:5])
        for value, dtype in ((256, hx.uint8), (-1, hx.uint32), (2**31, hx.int32), (2**64, hx.uint64), ([[1, 128]], hx.int8)):
            self.assertRaises(ValueError, hx.array, value, dtype)
        self.assertEqual(hx.array([1.9, -1.9], hx.int32).tolist(), [1, -1])
        self.assertEqual(hx.array([1e300, -1e39]).tolist(), [math.inf, -math.inf])
        halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
        back = np.array(hx.array(halves).tolist(), np.float16)
        self.assertTrue(np.array_equal(back, halves, equal_nan=True))
        there = ~np.isnan(halves)
        self.assertTrue(np.array_equal(np.signbit(back)[there], np.signbit(halves)[there]))

    def test_numbers_are_taken_whole(self):
        """Those that fit 64 bits but not what they are put into, and sums of them."""
        a, most = self.a, 2**63 - 1
        for call in (
            lambda: hx.tensordot(a, a, [[2**32], [0]]),
            lambda: hx.tensordot(a, a, [[0], [2**32 + 1]]),
            lambda: hx.slice(a, [most, 0], [0, 1], [1, 1]),
            lambda: hx.slice(a, [1, 0], [0, 1], [most, 1]),
            lambda: hx.slice(a, [-(2**63), 0], [0, 1], [1, 1]),
            lambda: hx.slice_update(a, a, [most, 0], [0, 1]),
            lambda: hx.slice_update(a, a, [-(2**63), 0], [0, 1]),
            lambda: hx.roll(a, [most, most]),
            lambda: hx.as_strided(a, [1, 2**62, 2**62]),
            lambda: hx.softmax(a, [2**32]),
            lambda: hx.split(a, 2**32),
            lambda: hx.linspace(0, 1, most, endpoint=False),
        ):
            self.assertRaises(ValueError, call)
        self.assertEqual(hx.roll(a, most).tolist(), np.roll(np.array(a), most).tolist())
        self.assertEqual(hx.roll(a, -(2**63), 0).tolist(), a.tolist())
        self.assertEqual(a[::most].tolist(), [[1, 2]])
        for shift, axis in (((), 0), ((), ()), ((), None), (1, ()), ((1,), ()), ((1, 1), 0), (1, (0, 1))):
            self.assertEqual(hx.roll(a, shift, axis).tolist(), np.roll(np.array(a), shift, axis).tolist(), (shift, axis))

    def test_spreads_over_no_axis_of_as_many_as_there_can_be(self):
        a = np.arange(256, dtype=np.float32).reshape((2,) * 8)
        a.flat[3] = np.inf
        for ddof in (0, 1):
            with np.errstate(all="ignore"):
                expected = np.var(a, axis=(), ddof=ddof, keepdims=True)
            for found in (hx.var(hx.array(a), (), ddof=ddof), hx.std(hx.array(a.T).T, (), True, ddof=ddof)):
                self.assertTrue(np.array_equal(np.array(found), expected, equal_nan=True))

    def test_trees_are_evaluated(self):
        a, b, s = self.a + 1, self.a * 2, hx.new_stream()
        c = hx.exp(self.a, stream=s)
        hx.eval({"x": [a, (b, None)], "y": 3}, c)
        hx.async_eval([a] * 100)
        self.assertEqual((a[0, 0].item(), b[0, 0].item()), (2, 2))

    def test_trees_that_contain_themselves_are_an_error(self):
        a_list, a_dict, inside = [self.a], {"a": self.a}, []
        a_list.append(a_list)
        a_dict["self"] = a_dict
        a_tuple = (self.a, inside)
        inside.append(a_tuple)
        f = lambda x: hx.array(1.0)  # noqa: E731
        for tree in (a_list, a_dict, a_tuple):
            for call in (hx.eval, hx.async_eval, hx.grad(f), hx.compile(f), hx.checkpoint(f), hx.array, self.a.__add__, hx.sum, hx.concatenate):
                self.assertRaises((RecursionError, ValueError, TypeError), call, tree)
            hx.custom_function(f)(tree)  # which is not looked at
            for transform in (hx.compile, hx.checkpoint):
                self.assertRaises(RecursionError, transform(lambda x, tree=tree: tree), self.a)
            self.assertRaises(RecursionError, hx.value_and_grad(lambda x, tree=tree: (x.sum(), tree)), self.a)
            for kind in (hx.vjp, hx.jvp):
                self.assertRaises((RecursionError, ValueError), kind, lambda x, tree=tree: tree, [self.a], [self.a])


class Integers(unittest.TestCase):
    """Arrays that are made of integers hold those, or there are none."""

    BOUNDS = {hx.uint8: (0, 2**8), hx.uint16: (0, 2**16), hx.uint32: (0, 2**32), hx.uint64: (0, 2**64),
              hx.int8: (-(2**7), 2**7), hx.int16: (-(2**15), 2**15), hx.int32: (-(2**31), 2**31), hx.int64: (-(2**63), 2**63)}  # fmt: skip

    def same(self, a, values, dtype):
        self.assertEqual((a.tolist(), a.dtype), (values, dtype))

    def test_one_integer_everywhere(self):
        for value in (0, -1, 2**31 - 1, -(2**31), 2**31, -(2**31) - 1, 2**40, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)):
            self.same(hx.full((2, 1), value), [[value], [value]], hx.int32 if -(2**31) <= value < 2**31 else hx.int64)
            self.same(hx.full((0,), value, hx.int64), [], hx.int64)
        self.same(hx.full((2,), np.int64(2**40)), [2**40] * 2, hx.int64)
        self.same(hx.full((1,), np.int64(3), hx.int8), [3], hx.int8)
        self.same(hx.full((2,), True), [True, True], hx.bool_)
        self.same(hx.full((1,), 2**40, hx.float32), [2.0**40], hx.float32)
        self.same(hx.full((1,), 300, hx.bool_), [True], hx.bool_)
        for wrong in (2**63, -(2**63) - 1, 10**30):
            self.assertRaisesRegex(ValueError, f"{wrong} is no element of hearth.int64", hx.full, (1,), wrong)

    def test_one_integer_of_a_dtype(self):
        for dtype, (low, end) in self.BOUNDS.items():
            like = hx.zeros((2,), dtype)
            for value in (low, end - 1, end // 2 + 1):
                self.same(hx.full((2,), value, dtype), [value] * 2, dtype)
                self.same(hx.full_like(like, value), [value] * 2, dtype)
                self.same(hx.full_like(hx.zeros((2,)), value, dtype), [value] * 2, dtype)
                self.same(hx.compile(hx.full_like, shapeless=True)(like, value), [value] * 2, dtype)
            self.same(hx.full((2, 2), [low, end - 1], dtype), [[low, end - 1]] * 2, dtype)
            self.same(hx.full_like(like, (low, end - 1)), [low, end - 1], dtype)
            for wrong in (low - 1, end, 10**30):
                self.assertRaisesRegex(ValueError, "does not fit", hx.full, (2,), [0, wrong], dtype)
                self.assertRaisesRegex(ValueError, "does not fit", hx.full_like, like, [0, wrong])
                numbers = [wrong, np.int64(wrong)] if -(2**63) <= wrong < 2**63 else [wrong]
                for number in numbers:
                    for call in (lambda n: hx.full((2,), n, dtype), lambda n: hx.full_like(like, n), lambda n: hx.full_like(0.5, n, dtype)):
                        self.assertRaisesRegex(ValueError, f"{wrong} is no element of {dtype!r}", call, number)

    def test_sequences(self):
        for bounds in ((5,), (2**40, 2**40 + 3), (2**53 + 1, 2**53 + 4), (2**31 - 2, 2**31 + 1), (-(2**31) - 1, -(2**31) + 1), (3, 1), (0, 9, 4),
                       (2**62 + 1, -(2**63), -(2**61) + 1), (-(2**63), 2**63 - 1, 2**61 + 3), (2**63 - 3, 2**63 - 1), (0, 5, 2**40),
                       (2**60 + 9, 2**60, -3), (-(2**55) - 1, -(2**55) + 2), (0, 2**63, 2**62 + 1), (2**63 - 1, 2**63)):  # fmt: skip
            small = all(-(2**31) <= b < 2**31 for b in bounds)
            self.same(hx.arange(*bounds), list(range(*bounds)), hx.int32 if small else hx.int64)
            self.same(hx.arange(*bounds, dtype=hx.int64), list(range(*bounds)), hx.int64)
        self.same(hx.arange(np.int64(3)), [0, 1, 2], hx.int32)
        self.same(hx.arange(hx.array(2), np.uint8(4)), [2, 3], hx.int32)
        self.same(hx.arange(2**64 - 2, 2**64, dtype=hx.uint64), [2**64 - 2, 2**64 - 1], hx.uint64)
        self.same(hx.arange(0, 3, dtype=hx.float32), [0.0, 1.0, 2.0], hx.float32)
        for dtype, (low, end) in self.BOUNDS.items():
            self.same(hx.arange(end - 2, end, dtype=dtype), [end - 2, end - 1], dtype)
            self.same(hx.arange(low + 2, low - 1, -1, dtype=dtype), [low + 2, low + 1, low], dtype)
            self.same(hx.arange(end - 1, end + 2**40, 2**41, dtype=dtype), [end - 1], dtype)
            for wrong in ((end - 2, end + 1), (low - 1, low + 1), (low + 1, low - 2, -1)):
                self.assertRaisesRegex(ValueError, "is no element of", lambda b=wrong: hx.arange(*b, dtype=dtype))


    def test_random_integers_are_all_drawn_evenly(self):
        n, key = 1 << 18, hx.random.key(7)

        def drawn(low, high, dtype=hx.int64):
            by_numbers = hx.random.randint(low, high, (n,), dtype, key)
            low, high = (hx.array(b, hx.uint64 if b >= 2**63 else hx.int64) for b in (low, high))
            by_arrays = hx.random.randint(low + 0, hx.broadcast_to(high, (n,)), (n,), dtype, key)
            self.assertTrue(hx.array_equal(by_numbers, by_arrays).item())
            return np.array(by_numbers)

        def even(counts):  # chi-square, five times its deviation above its mean
            degrees, expected = counts.size - 1, n / counts.size
            self.assertLessEqual(((counts - expected) ** 2 / expected).sum(), degrees + 5 * (2 * degrees) ** 0.5)

        for low in (0, -2, 1000, 10**5, 2**30, 2**40, -(2**40) - 3, 2**62, -(2**63), 2**63 - 8):
            for size in (1, 2, 3, 7, 1000):
                if low + size > 2**63:
                    continue
                values = drawn(low, low + size) - low
                self.assertTrue(0 <= values.min() and values.max() < size)
                even(np.bincount(values, minlength=size))
        for low, size in ((0, 2**24 + 1), (-5, 2**25), (2**40, 2**40), (0, 3 * 2**60), (-(2**62), 3 * 2**61), (-(2**63), 2**64 - 1)):
            values = drawn(low, low + size)
            self.assertTrue(low <= values.min() and int(values.max()) < low + size)
            for parts in (2, 3, 5):
                even(np.bincount(values % parts, minlength=parts))
            even(np.histogram(values.astype(np.float64), 64, (low, low + size))[0])
            self.assertGreater(len(set(values.tolist())), min(size, n) * 0.9)
        for low, high, dtype in ((2**64 - 5, 2**64 - 1, hx.uint64), (2**31, 2**32, hx.uint32), (-128, 128, hx.int8), (0, 2, hx.bool_)):
            values = drawn(low, high, dtype).astype(object)
            self.assertTrue(low <= min(values) and max(values) < high and len(set(values)) == min(high - low, len(set(values))))
        self.assertEqual(set(drawn(2**64 - 5, 2**64 - 1, hx.uint64).tolist()), set(range(2**64 - 5, 2**64 - 1)))
        self.assertEqual(set(hx.random.randint(-1.5, 2.5, (1000,)).tolist()), {-1, 0, 1, 2})
        self.assertEqual(set(hx.random.randint([0, 2**40], [[1], [2**40 + 1]], (2, 2), hx.int64)[:, 1].tolist()[1:]), {2**40})

    def test_random_integers_of_a_dtype(self):
        for dtype, (low, end) in self.BOUNDS.items():
            for bounds in ((low - 1, low + 2), (end - 2, end + 1), (low - 5, low - 1), (np.int64(low - 1) if low > -(2**63) else low - 1, 0)):
                if bounds[0] < bounds[1]:
                    self.assertRaisesRegex(ValueError, "is no element of", hx.random.randint, *bounds, (2,), dtype)
        self.assertEqual(hx.random.randint(127, 128, (2,), hx.int8).tolist(), [127, 127])
        self.assertEqual(hx.random.randint(2**63 - 1, 2**63, (2,), hx.int64).tolist(), [2**63 - 1] * 2)
        self.assertRaises(ValueError, hx.random.randint, 0, 2**64, (2,), hx.uint64)


class Changing:
    """A number that changes an array when it is read."""

    def __init__(self, array, value):
        self.array, self.value = array, value

    def change(self):
        self.array += 1
        return self.value

    __index__ = __float__ = change


class Changes(unittest.TestCase):
    """Arguments that change other arguments: a function sees arrays as they are once all its arguments are read, an index sees its
    array as it was. (junk.py calls everything so.)"""

    def setUp(self):
        self.x = hx.array([1.0, 2.0, 3.0])
        hx.eval(self.x)

    def test_functions_see_what_arrays_are_when_all_is_read(self):
        x = self.x
        self.assertEqual(hx.concatenate([x, x], Changing(x, 0)).tolist(), [2, 3, 4] * 2)
        self.assertEqual(hx.roll(x, [Changing(x, 1)]).tolist(), [5, 3, 4])
        self.assertEqual(hx.tensordot(x, x, [[Changing(x, 0)], [0]]).item(), 9 + 16 + 25)  # read after the arrays
        self.assertEqual(x.tolist(), [4, 5, 6])

    def test_an_index_sees_what_its_array_was(self):
        x = self.x
        self.assertEqual(x[Changing(x, 0) :][:1].tolist(), [1])
        self.assertEqual(x[:1].tolist(), [2])
        x[Changing(x, 1) :] = 7
        self.assertEqual(x.tolist(), [2, 7, 7])

    def test_functions_that_change_what_they_are_called_with(self):
        x = self.x

        def loss(y):
            nonlocal x
            x += 1
            return (x * y).sum()

        self.assertEqual(hx.grad(loss)(x).tolist(), [2, 3, 4])
        self.assertEqual(hx.compile(lambda y: [loss(y), x][0])(x).item(), 3 * 2 + 4 * 3 + 5 * 4)

    def test_sequences_of_two_lengths_are_refused(self):
        class Shrinks(list):
            def __iter__(self):
                return iter([self.pop()])

        self.assertRaisesRegex(ValueError, "bytes are no array", hx.array, Shrinks([1.0] * 1000))
        make, (data, code, shape) = self.x.__reduce__()
        self.assertRaisesRegex(ValueError, "bytes are no array", make, data[:-1], code, shape)


if __name__ == "__main__":
    unittest.main()
