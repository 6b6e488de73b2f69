"""Makes the seed files and the dictionary of fuzz_config from the tiny golden checkpoints (pip install gguf).

    python3 tests/fuzz/make_config_corpus.py"""
import json
import pathlib
import re

import gguf

here = pathlib.Path(__file__).parent
out = here / "corpus" / "fuzz_config"
out.mkdir(parents=True, exist_ok=True)
words = set()


def keys(value):
    if isinstance(value, dict):
        for k, v in value.items():
            words.add(k)
            keys(v)
    elif isinstance(value, str):
        words.add(value)


for directory in sorted((here.parent / "golden" / "tiny").iterdir()):
    if not directory.is_dir():
        continue
    config = json.loads((directory / "config.json").read_text())
    for noise in ("vision_config", "transformers_version", "_name_or_path"):
        config.pop(noise, None)
    keys(config)
    beside = directory / "generation_config.json"
    generation = beside.read_text() if beside.exists() else "{}"
    text = b"\x09" + json.dumps(config).encode() + b"\0" + json.dumps(json.loads(generation)).encode()
    (out / f"{directory.name}.json").write_bytes(text)

for arch in ("llama", "qwen2", "qwen3", "qwen3moe", "gemma2", "gemma3", "gemma4"):
    path = out / f"{arch}.gguf"
    w = gguf.GGUFWriter(path, arch)
    w.add_name("seed"), w.add_block_count(6), w.add_context_length(64), w.add_embedding_length(32)
    w.add_feed_forward_length(48), w.add_head_count(4), w.add_head_count_kv(2), w.add_layer_norm_rms_eps(1e-5)
    w.add_vocab_size(40), w.add_rope_freq_base(10000.0), w.add_eos_token_id(2), w.add_key_length(8), w.add_value_length(8)
    w.add_sliding_window(8), w.add_rope_scaling_type(gguf.RopeScalingType.YARN), w.add_rope_scaling_factor(4.0)
    w.add_rope_dimension_count(8), w.add_sliding_window_pattern([True, False] * 3)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    path.write_bytes(b"\x80" + path.read_bytes())
    words |= {f"{arch}.{k}" for k in ("rope.scale_linear", "expert_count", "rope.freq_base_swa", "attention.scale")}

sources = (here.parents[1] / "src" / "models").glob("*.c")
for source in sources:
    words |= set(re.findall(r'"([a-z][a-z0-9_.]{3,40})"', source.read_text()))
(here / "config.dict").write_text("".join(f'"{w}"\n' for w in sorted(words) if re.fullmatch(r"[\w.\-]+", w)))
