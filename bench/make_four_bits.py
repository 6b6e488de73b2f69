"""Makes checkpoints in 4 bits of the weights of a GGUF file, so that their speed can be compared.

    python bench/make_four_bits.py MODEL.gguf DIRECTORY [--groups 32,64]

DIRECTORY gets q4_1.gguf, in which every matrix is Q4_1, and mlx-32 and mlx-64, quantised and written by mlx-lm with one scale
and one bias for as many weights. All of them hold the same matrices. Needs mlx-lm, torch, transformers, gguf.
"""

import argparse
import pathlib
import sys

import gguf

sys.path.append(str(pathlib.Path(__file__).parent.parent / "tests" / "golden"))
import mlx_real  # noqa: E402

Q4_1 = gguf.GGMLQuantizationType.Q4_1


def write_q4_1(path, out):
    """The file as it is, but for the matrices."""
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(out, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind, inner = field.types[0], field.types[-1]
        writer.add_key_value(field.name, field.contents(), kind, inner if kind == gguf.GGUFValueType.ARRAY else None)
    for t in reader.tensors:
        values = gguf.quants.dequantize(t.data, t.tensor_type).reshape([int(d) for d in reversed(t.shape)])
        if values.ndim == 1:
            writer.add_tensor(t.name, values.astype("<f4"))
        else:
            writer.add_tensor(t.name, gguf.quants.quantize(values.astype("<f4"), Q4_1), raw_dtype=Q4_1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make(path, directory, groups):
    directory.mkdir(parents=True, exist_ok=True)
    write_q4_1(path, directory / "q4_1.gguf")
    for group in groups:
        mlx_real.convert(path, directory / f"mlx-{group}", 4, group)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("gguf")
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--groups", default="32,64")
    arguments = parser.parse_args()
    make(arguments.gguf, arguments.directory, list(map(int, arguments.groups.split(","))))


if __name__ == "__main__":
    main()
