"""Element types, by the names that they have in MLX."""

from . import _structs


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
    Dtype(_structs.HT_BOOL, "bool_", 1, "?", "b"),
    Dtype(_structs.HT_U8, "uint8", 1, "B", "u"),
    Dtype(_structs.HT_U16, "uint16", 2, "H", "u"),
    Dtype(_structs.HT_U32, "uint32", 4, "I", "u"),
    Dtype(_structs.HT_U64, "uint64", 8, "Q", "u"),
    Dtype(_structs.HT_I8, "int8", 1, "b", "i"),
    Dtype(_structs.HT_I16, "int16", 2, "h", "i"),
    Dtype(_structs.HT_I32, "int32", 4, "i", "i"),
    Dtype(_structs.HT_I64, "int64", 8, "q", "i"),
    Dtype(_structs.HT_F16, "float16", 2, "e", "f"),
    Dtype(_structs.HT_BF16, "bfloat16", 2, None, "f"),
    Dtype(_structs.HT_F32, "float32", 4, "f", "f"),
    Dtype(_structs.HT_F64, "float64", 8, "d", "f"),
]
bool_, uint8, uint16, uint32, uint64, int8, int16, int32, int64, float16, bfloat16, float32, float64 = ALL
BY_CODE = [None, *ALL]
BY_FORMAT = {d.format: d for d in ALL if d.format} | {"l": int64, "L": uint64, "c": uint8}
