"""Element types, by the names that they have in MLX."""


class Dtype:
    """An element type. `format` is its code in the struct module; bfloat16 has none."""

    def __init__(self, code, name, size, format, kind):
        self.code, self.name, self.size, self.format, self.kind = code, name, size, format, kind

    def __repr__(self):
        return f"hearth.{self.name.rstrip('_')}"

    def __reduce__(self):  # copies and what is unpickled are the same object, as dtypes are compared by identity
        return self.name

    @property
    def is_float(self):
        return self.kind == "f"


# In the order of ht_dtype, whose 0 is no dtype.
ALL = [
    Dtype(1, "bool_", 1, "?", "b"),
    Dtype(2, "uint8", 1, "B", "u"),
    Dtype(3, "uint16", 2, "H", "u"),
    Dtype(4, "uint32", 4, "I", "u"),
    Dtype(5, "uint64", 8, "Q", "u"),
    Dtype(6, "int8", 1, "b", "i"),
    Dtype(7, "int16", 2, "h", "i"),
    Dtype(8, "int32", 4, "i", "i"),
    Dtype(9, "int64", 8, "q", "i"),
    Dtype(10, "float16", 2, "e", "f"),
    Dtype(11, "bfloat16", 2, None, "f"),
    Dtype(12, "float32", 4, "f", "f"),
    Dtype(13, "float64", 8, "d", "f"),
]
bool_, uint8, uint16, uint32, uint64, int8, int16, int32, int64, float16, bfloat16, float32, float64 = ALL
BY_CODE = [None, *ALL]
BY_FORMAT = {d.format: d for d in ALL if d.format} | {"l": int64, "L": uint64, "c": uint8}
