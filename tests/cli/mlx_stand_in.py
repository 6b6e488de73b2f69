"""A stand-in for mlx and mlx-lm, as much as the library's bridge uses of them, and a checkpoint for it.

The answer to any prompt are the bytes of the environment's ANSWER and the token that ends it; "fail" fails, and without ANSWER
it never ends."""

import json

import tiny_model

FILES = {
    "mlx/__init__.py": "",
    "mlx/core.py": """
class DeviceType:
    gpu = "gpu"
class default_device:
    type = "gpu"
array = list
int32 = None
get_active_memory = get_peak_memory = lambda: 5000000
""",
    "mlx_lm/__init__.py": "",
    "mlx_lm/models/__init__.py": "",
    "mlx_lm/models/cache.py": """
def make_prompt_cache(model):
    return []
""",
    "mlx_lm/utils.py": """
import json, sys
class ModelArgs:
    def __init__(self, model_type, hidden_size, n_layers):
        pass
def load_model(path):
    print("loading", path)  # which is no message to Hearth
    config = json.loads((path / "config.json").read_text())
    ModelArgs(config["model_type"], **{name: config[name] for name in ("hidden_size", "n_layers") if name in config})
    if config["model_type"] == "odd":
        raise KeyError("model_type")  # of another table
    return None, config
""",
    "mlx_lm/generate.py": """
import contextlib, os, time
@contextlib.contextmanager
def wired_limit(model):
    yield
def generate_step(prompt, model, *, max_tokens, sampler, logits_processors, prompt_cache, prompt_progress_callback):
    prompt_progress_callback(0, len(prompt))
    answer = os.environ.get("ANSWER")
    if answer == "fail":
        raise ValueError("the stand-in fails\\nin two lines")
    while not answer:
        time.sleep(0.001)
        yield IDS["x"], None
    for c in answer.encode():
        yield IDS[c], None
    yield 2, None
IDS = """,
    "mlx_lm-9.8.dist-info/METADATA": "Metadata-Version: 2.1\nName: mlx-lm\nVersion: 9.8\n",
    "mlx-7.6.dist-info/METADATA": "Metadata-Version: 2.1\nName: mlx\nVersion: 7.6\n",
}


def write(folder):
    """The modules, for PYTHONPATH."""
    ids = {b: tiny_model.vocabulary().index(c) for b, c in enumerate(tiny_model.byte_alphabet())}
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text + (repr({**ids, "x": ids[ord("x")]}) if text.endswith("IDS = ") else ""))


def write_tokenizer(folder):
    """That of tiny_model.py as tokenizer.json, with its chat template."""
    special = [{"id": i, "content": token, "special": True} for i, token in enumerate(tiny_model.SPECIAL)]
    tokenizer = {
        "added_tokens": special,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": {t: i for i, t in enumerate(tiny_model.vocabulary())}, "merges": tiny_model.MERGES},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": tiny_model.TEMPLATE, "eos_token": "<|im_end|>"}))


def write_checkpoint(folder, **fields):
    """A checkpoint without weights; None leaves a field of config.json out."""
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder)
    config = {"model_type": "llama", "eos_token_id": 2, "hidden_size": 64, "n_layers": 2, "max_position_embeddings": 512,
              "vocab_size": len(tiny_model.vocabulary()), **fields}  # fmt: skip
    (folder / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
