#!/usr/bin/env python3
"""Writes python/hearth/_structs.py: the public structs and constants that the Python binding uses, from the headers, and the
version of the interface that they belong to.

    python3 tools/python_structs.py                    writes it
    python3 tools/python_structs.py --check [CC]       says whether it is what the headers say, and with a C compiler, whether
                                                       every size and offset is the compiler's; ends with 1 when not

A type of a field that is not in the table below is an error, so that a new one gets its ctypes type."""

import importlib.util
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADERS, OUTPUT = ROOT / "include/hearth", ROOT / "python/hearth/_structs.py"

STRUCTS = [
    "ht_error", "ht_cancel", "ht_device_options", "ht_model_options", "ht_sampling_value", "ht_forward_options", "ht_logit_bias", "ht_sampler_options",
    "ht_generate_options", "ht_metrics", "ht_tool_call", "ht_answer_piece", "ht_compile_options", "ht_optimizer_options", "ht_schedule", "ht_function", "ht_wrt", "ht_custom_vjp", "ht_memory_stats", "ht_machine",
    "ht_engine_options", "ht_reuse", "ht_answer_report", "ht_request", "ht_engine_statistics",
    "ht_embed_options", "ht_embedding", "ht_embeddings", "ht_rerank_options", "ht_relevance", "ht_ranking",
    "ht_prompt", "ht_continuation", "ht_classify_options", "ht_label_score", "ht_classification", "ht_score_request", "ht_score_options",
    "ht_token_probability", "ht_token_score", "ht_continuation_score", "ht_score_result",
    "ht_batch_options", "ht_batch_answer", "ht_batch_result", "ht_lora_options", "ht_train_batch", "ht_data_count", "ht_data_report", "ht_trainer_options", "ht_trainer_plan", "ht_train_step", "ht_retrieval",
    "ht_backend_options", "ht_backend_prompt", "ht_backend_info", "ht_backend_keys",
    "ht_inspect_options", "ht_inspected_layer", "ht_inspection", "ht_probe_route", "ht_probe", "ht_probe_options", "ht_schema_options",
]  # fmt: skip
ENUMS = [
    "ht_status", "ht_dtype", "ht_precision", "ht_finish", "ht_answer_part", "ht_reuse_end", "ht_optimizer_kind", "ht_schedule_kind",
    "ht_adapter_format", "ht_mask", "ht_train_method", "ht_long_samples", "ht_checkpointing", "ht_sample_form", "ht_pooling", "ht_probe_kind", "ht_schema_space", "ht_ending",
]  # fmt: skip
SCALARS = {
    "bool": "c_bool", "char": "c_char", "int": "c_int", "unsigned": "c_uint", "float": "c_float", "double": "c_double",
    "size_t": "c_size_t", "int32_t": "c_int32", "int64_t": "c_int64", "uint32_t": "c_uint32", "uint64_t": "c_uint64",
    "ht_ticket": "c_uint64",
}  # fmt: skip
# Texts of a length of their own, which may hold a NUL: addresses, as ctypes would cut a text there.
ADDRESSES = {("ht_answer_piece", "text"), ("ht_batch_answer", "text"), ("ht_batch_answer", "thinking")}
STRUCT = r"typedef struct {0} \{{(.*?)\n\}} {0};"
ENUM = r"typedef enum {0} \{{(.*?)\}} {0};"
LENGTH = r"enum \{{[^}}]*\b{0} = (\d+)"  # of an array, where it has a name of its own


def headers():
    """All headers as one text without comments."""
    text = "\n".join(path.read_text() for path in sorted(HEADERS.glob("*.h")))
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S)


def version():
    return re.search(r"#define HT_ABI_VERSION (\d+)", (HEADERS / "version.h").read_text())[1]


def body_of(pattern, name, text):
    match = re.search(pattern.format(name), text, re.S)
    if not match:
        sys.exit(f"{name} is in no header: is it named so in tools/python_structs.py?")
    return match[1]


def type_of(declared, stars, struct, text):
    """The ctypes type of a field: a pointer is an address, but for texts and structs that the binding has."""
    declared = re.sub(r"\bconst\b|\bstruct\b", "", declared).strip()
    if stars:
        if declared == "char":
            return "c_char_p" if stars == 1 else "POINTER(c_char_p)"
        return f"POINTER({declared})" if stars == 1 and declared in STRUCTS else "c_void_p"
    if declared in SCALARS:
        return SCALARS[declared]
    if declared in STRUCTS:
        return declared
    if re.search(rf"typedef enum {declared} \{{", text):
        return "c_int"
    sys.exit(f"{struct}: a field of type {declared}, which tools/python_structs.py does not know")


def argument_of(parameter, struct, text):
    """The ctypes type of a callback's parameter: a list of handles is a pointer to addresses."""
    stars, declared = parameter.count("*"), re.sub(r"\bconst\b|\*|\w+$", "", parameter).strip()
    if stars:
        return "POINTER(c_void_p)" if stars == 2 else "c_void_p"
    return type_of(declared, 0, struct, text)


def number_of(length, text):
    """The length of an array as a number."""
    if length.isdigit():
        return length
    named = re.search(LENGTH.format(length), text)
    constants = {key: value for enum in ENUMS for key, value in constants_of(enum, text)}
    return named[1] if named else constants[length]


def fields_of(name, text):
    """(name, ctypes type) of each field, in order."""
    for declaration in body_of(STRUCT, name, text).split(";"):
        declaration = " ".join(declaration.split())
        if not declaration:
            continue
        callback = re.match(r"(\w+) \(\*(\w+)\)\((.*)\)$", declaration)
        if callback:
            result, field, parameters = callback.groups()
            kinds = ["None" if result == "void" else type_of(result, 0, name, text)]
            kinds += [argument_of(parameter.strip(), name, text) for parameter in parameters.split(",")]
            yield field, f"CFUNCTYPE({', '.join(kinds)})"
            continue
        declared, names = re.match(r"((?:const )?\w+(?: \*const(?= \*))?) (.*)", declaration).groups()
        outer = declared.count("*")
        for one in names.split(","):
            stars, field, length = re.match(r"\s*((?:\*(?:const)? ?)*)(\w+)(?:\[(\w+)\])?$", one).groups()
            kind = type_of(declared.replace("*const", ""), outer + stars.count("*"), name, text)
            yield field, "c_void_p" if (name, field) in ADDRESSES else f"{kind} * {number_of(length, text)}" if length else kind


def constants_of(name, text):
    """(name, value) of each constant of an enumeration."""
    value = -1
    for constant in body_of(ENUM, name, text).split(","):
        key, equals, number = (part.strip() for part in constant.partition("="))
        value = int(number, 0) if equals else value + 1
        yield key, value


def ordered(text):
    """The structs, each behind those that it has fields of."""
    done = []

    def put(name):
        for _, kind in fields_of(name, text):
            for other in STRUCTS:
                if other != name and re.search(rf"\b{other}\b", kind):
                    put(other)
        if name not in done:
            done.append(name)

    for name in STRUCTS:
        put(name)
    return done


def make():
    text = headers()
    out, used = [], {"Structure"}
    for name in ordered(text):
        lines = [f'        ("{field}", {kind}),' for field, kind in fields_of(name, text)]
        used |= set(re.findall(r"\b(?:c_\w+|POINTER|CFUNCTYPE)\b", "".join(lines)))
        out.append(f"class {name}(Structure):\n    _fields_ = [\n" + "\n".join(lines) + "\n    ]")
    constants = [f"HT_ABI_VERSION = {version()}"]
    constants += ["\n".join(f"{key} = {value}" for key, value in constants_of(name, text)) for name in ENUMS]
    names = sorted(used, key=lambda n: (n[0].islower(), n))
    imports = "".join(f"    {n},\n" for n in names)
    return (
        '"""Structs and constants of the C headers. Made by tools/python_structs.py; do not edit."""\n\n'
        f"from ctypes import (\n{imports})\n\n" + "\n\n".join(constants) + "\n\n\n" + "\n\n\n".join(out) + "\n"
    )


def compiled(compiler, text):
    """Sizes and offsets as a C compiler has them."""
    lines = []
    for name in STRUCTS:
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        lines += [f'printf("{name}.{f} %zu\\n", offsetof({name}, {f}));' for f, _ in fields_of(name, text)]
    program = '#include <hearth/hearth.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n' + "\n".join(lines) + "\n}\n"
    with tempfile.TemporaryDirectory() as work:
        (Path(work) / "layout.c").write_text(program)
        subprocess.run([compiler, f"-I{ROOT / 'include'}", "layout.c", "-o", "layout"], cwd=work, check=True)
        return subprocess.run([Path(work) / "layout"], check=True, capture_output=True, text=True).stdout.splitlines()


def layout_of(module, text):
    """The same as ctypes has them."""
    from ctypes import sizeof

    lines = []
    for name in STRUCTS:
        lines.append(f"{name} {sizeof(getattr(module, name))}")
        lines += [f"{name}.{f} {getattr(getattr(module, name), f).offset}" for f, _ in fields_of(name, text)]
    return lines


def main():
    arguments, text = sys.argv[1:], make()
    if "--check" not in arguments:
        OUTPUT.write_text(text)
        return
    if not OUTPUT.exists() or OUTPUT.read_text() != text:
        sys.exit("python/hearth/_structs.py is not what the headers say: run tools/python_structs.py and commit it. A struct that\n"
                 "changed elsewhere than at the end of options needs a new HT_ABI_VERSION (include/hearth/version.h).")  # fmt: skip
    compiler = [a for a in arguments if a != "--check"]
    if compiler:
        spec = importlib.util.spec_from_file_location("_structs", OUTPUT)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        wrong = set(compiled(compiler[0], headers())) ^ set(layout_of(module, headers()))
        if wrong:
            sys.exit("ctypes and the C compiler lay structs out differently: " + ", ".join(sorted(wrong)))


if __name__ == "__main__":
    main()
