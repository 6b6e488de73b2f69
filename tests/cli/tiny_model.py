"""Writes a tiny llama checkpoint as a GGUF file: random weights, a byte-level tokenizer with a few merges, ChatML.

    python3 tests/cli/tiny_model.py FILE.gguf

The file is the same every time. Only the standard library is used, so that the command can be tested anywhere.
"""

import random
import struct
import sys

U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
TYPE_F32 = 0
ALIGNMENT = 32

HIDDEN, FEED_FORWARD, LAYERS, HEADS, KV_HEADS = 64, 96, 2, 4, 2
CONTEXT = 1 << 20
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "l d", "Ġwor ld", "t he", "Ġ the"]
TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def byte_alphabet():
    """The printable character that stands for each byte in a byte-level vocabulary."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = iter(range(0x100, 0x200))
    return [chr(b) if b in plain else chr(next(rest)) for b in range(256)]


def vocabulary():
    return SPECIAL + byte_alphabet() + [merge.replace(" ", "") for merge in MERGES]


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def value(kind, content):
    """A metadata value with its type before it."""
    if kind == STRING:
        return struct.pack("<I", kind) + string(content)
    if kind == ARRAY:
        element, items = content
        body = b"".join(value(element, item)[4:] for item in items)
        return struct.pack("<IIQ", kind, element, len(items)) + body
    return struct.pack("<I" + {U32: "I", I32: "i", F32: "f", BOOL: "?"}[kind], kind, content)


def metadata(architecture, context, file_type, template):
    tokens = vocabulary()
    sizes = {
        "context_length": context,
        "embedding_length": HIDDEN,
        "block_count": LAYERS,
        "feed_forward_length": FEED_FORWARD,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "rope.dimension_count": HIDDEN // HEADS,
        "vocab_size": len(tokens),
    }
    pairs = [("general.architecture", STRING, architecture), ("general.name", STRING, "tiny")]
    pairs += [("general.file_type", U32, file_type)] if file_type is not None else []
    pairs += [(f"{architecture}.{key}", U32, size) for key, size in sizes.items()]
    pairs += [
        (f"{architecture}.rope.freq_base", F32, 10000.0),
        (f"{architecture}.attention.layer_norm_rms_epsilon", F32, 1e-5),
        ("tokenizer.ggml.model", STRING, "gpt2"),
        ("tokenizer.ggml.pre", STRING, "smollm"),
        ("tokenizer.ggml.tokens", ARRAY, (STRING, tokens)),
        ("tokenizer.ggml.token_type", ARRAY, (I32, [3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)))),
        ("tokenizer.ggml.merges", ARRAY, (STRING, MERGES)),
        ("tokenizer.ggml.bos_token_id", U32, 1),
        ("tokenizer.ggml.eos_token_id", U32, 2),
        ("tokenizer.ggml.add_bos_token", BOOL, False),
    ]
    return pairs + ([("tokenizer.chat_template", STRING, template)] if template else [])


def tensors():
    """Names, dimensions (the row's length first, as GGUF has them) and values."""
    numbers = random.Random(1)
    kv = HIDDEN // HEADS * KV_HEADS
    layer = {
        "attn_norm": (HIDDEN,),
        "attn_q": (HIDDEN, HIDDEN),
        "attn_k": (HIDDEN, kv),
        "attn_v": (HIDDEN, kv),
        "attn_output": (HIDDEN, HIDDEN),
        "ffn_norm": (HIDDEN,),
        "ffn_gate": (HIDDEN, FEED_FORWARD),
        "ffn_up": (HIDDEN, FEED_FORWARD),
        "ffn_down": (FEED_FORWARD, HIDDEN),
    }
    shapes = {"token_embd.weight": (HIDDEN, len(vocabulary())), "output_norm.weight": (HIDDEN,)}
    for i in range(LAYERS):
        shapes.update({f"blk.{i}.{name}.weight": shape for name, shape in layer.items()})
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        if len(shape) == 1:
            yield name, shape, [1.0] * count
        else:
            yield name, shape, [numbers.gauss(0, shape[0] ** -0.5) for _ in range(count)]


# `general.sampling.*`: the most likely token, and only what a test sets is on.
SAMPLING = {"temp": 0.0, "top_p": 1.0, "min_p": 0.0}


def write(path, architecture="llama", context=CONTEXT, with_weights=True, file_type=None, template=TEMPLATE, sampling=None, more=()):
    """`sampling` has the values of `general.sampling.*`; None: those of SAMPLING."""
    pairs = metadata(architecture, context, file_type, template) + list(more)
    pairs += [(f"general.sampling.{key}", F32 if isinstance(value, float) else I32, value) for key, value in (SAMPLING if sampling is None else sampling).items()]
    listed = list(tensors()) if with_weights else []
    header = struct.pack("<4sIQQ", b"GGUF", 3, len(listed), len(pairs))
    header += b"".join(string(key) + value(kind, content) for key, kind, content in pairs)
    data = b""
    for name, shape, numbers in listed:
        header += string(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        header += struct.pack("<IQ", TYPE_F32, len(data))
        data += struct.pack(f"<{len(numbers)}f", *numbers)
        data += b"\0" * (-len(data) % ALIGNMENT)
    with open(path, "wb") as file:
        file.write(header + b"\0" * (-len(header) % ALIGNMENT) + data)


if __name__ == "__main__":
    write(sys.argv[1])
