"""Makes the seed files of fuzz_modules (pip install gguf numpy): directories of sentence-transformers, and GGUF files.

    python3 tests/fuzz/make_modules_corpus.py"""
import json
import pathlib

import gguf
import numpy as np

out = pathlib.Path(__file__).parent / "corpus" / "fuzz_modules"
out.mkdir(parents=True, exist_ok=True)
HIDDEN = 4
CLASS = "sentence_transformers.models."


def header(tensors):
    entries, at = {}, 0
    for name, shape in tensors.items():
        end = at + 4 * int(np.prod(shape))
        entries[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, end]}
        at = end
    return json.dumps(entries, separators=(",", ":"))


def write(name, files, tensors=None, encoder=1):
    files = {"config.json": "{}", "model.safetensors": header({"model.embed_tokens.weight": [64, HIDDEN], **(tensors or {})}), **files}
    parts = [f"{key}\0{value if isinstance(value, str) else json.dumps(value)}" for key, value in files.items()]
    (out / name).write_bytes(bytes([encoder]) + "\0".join(parts).encode())


def modules(*names):
    return {"modules.json": [{"idx": i, "name": str(i), "path": "" if n == "Transformer" else f"{i}_{n}", "type": CLASS + n}
                             for i, n in enumerate(names)]}


def pooling(folder="1_Pooling", **modes):
    return {f"{folder}/config.json": {"word_embedding_dimension": HIDDEN, **modes}}


def dense(folder, n_in, n_out, activation, bias=True):
    tensors = {"linear.weight": [n_out, n_in], **({"linear.bias": [n_out]} if bias else {})}
    return {f"{folder}/config.json": {"in_features": n_in, "out_features": n_out, "bias": bias, "activation_function": activation},
            f"{folder}/model.safetensors": header(tensors)}


PROMPTS = {"config_sentence_transformers.json": {"prompts": {"query": "query: ", "document": ""}, "default_prompt_name": "query"}}
write("mean", modules("Transformer", "Pooling", "Normalize") | pooling(pooling_mode_mean_tokens=True, include_prompt=False)
      | PROMPTS | {"sentence_bert_config.json": {"max_seq_length": 128, "do_lower_case": False}})
write("alone", pooling(pooling_mode_cls_token=True) | {"tokenizer_config.json": {"model_max_length": 1e30}})
write("value", modules("Transformer", "Pooling") | pooling(pooling_mode=["mean", "lasttoken"]))
write("one-value", modules("Transformer", "Pooling", "Dropout") | pooling(pooling_mode="weightedmean"))
write("dense", modules("Transformer", "Pooling", "Dense", "Dense", "Normalize") | pooling(pooling_mode_max_tokens=True)
      | dense("2_Dense", HIDDEN, 6, "torch.nn.modules.activation.Tanh") | dense("3_Dense", 6, 3, "torch.nn.modules.linear.Identity", False))
write("before", modules("Transformer", "Dense", "Pooling", "LayerNorm") | dense("1_Dense", HIDDEN, 2, "torch.nn.GELU"))
write("scores", modules("Transformer", "LogitScore") | {"1_LogitScore/config.json": {"true_token_id": 9, "false_token_id": 2}}, encoder=0)
write("classifier", {}, {"score.weight": [1, HIDDEN]}, encoder=0)


def gguf_file(name, encoder, tensors=(), labels=(), template=""):
    path = out / name
    w = gguf.GGUFWriter(path, "qwen3")
    w.add_block_count(1)
    if labels:
        w.add_classifier_output_labels(labels)
    if template:
        w.add_string("tokenizer.chat_template.rerank", template)
    for key, shape in {"token_embd.weight": (64, HIDDEN), **dict(tensors)}.items():
        w.add_tensor(key, np.ones(shape, np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    path.write_bytes(bytes([2 | encoder]) + path.read_bytes())


gguf_file("gguf-dense", 1, {"dense_2.weight": (6, HIDDEN), "dense_3.weight": (HIDDEN, 6)}.items())
gguf_file("gguf-rerank", 0, {"cls.weight": (HIDDEN, HIDDEN), "cls.bias": (HIDDEN,), "cls.output.weight": (2, HIDDEN)}.items(),
          ["yes", "no"], "{query} {document}")
