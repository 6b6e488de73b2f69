"""Whether other programs read converted configurations and tokenizers as Hearth does.

    python tests/golden/convert_metadata.py CONVERT HEARTH tokenizers|transformers|llama.cpp|configs [--texts 400] [MODEL.gguf]...

CONVERT is the test program convert_metadata. The models are all GGUF files with a vocabulary in ~/.cache/hearth/models whose
architecture Hearth has, unless some are named.

tokenizers: a tokenizer.json from GGUF metadata gives the ids of `hearth tokenize` with the file. transformers: so does the
directory in AutoTokenizer, with BOS and EOS where they belong, and its chat template the text of `hearth template`. llama.cpp:
metadata made of that directory gives the ids in llama.cpp that the first file gives there; beside them stands how many texts
get Hearth's ids, as llama.cpp does not normalise texts. It is the same metadata when transformers has saved the tokenizer. configs: AutoModelForCausalLM has as many weights as each tiny GGUF
file for the config.json made of it, and so has mlx-lm, where it knows the family.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import gguf
import numpy as np
from safetensors.numpy import save_file

from tokenizer_texts import make_texts

MODELS = pathlib.Path("~/.cache/hearth/models").expanduser()
TINY = pathlib.Path(__file__).parent / "tiny"
ARCHITECTURES = ["llama", "qwen2", "qwen3", "qwen3moe", "gemma2", "gemma3", "gemma4"]
MESSAGES = [{"role": "user", "content": "How are you?\n"}, {"role": "assistant", "content": "Fine."},
            {"role": "user", "content": "And  now? é"}]  # fmt: skip


def run(*command, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, **options)
    if done.returncode:
        raise SystemExit(f"{command[0]} {command[1]}: {done.stderr.decode()}")
    return done.stdout


def fields_of(path):
    return {key: field.contents() for key, field in gguf.GGUFReader(path).fields.items()}


def vocabularies(named):
    for path in map(pathlib.Path, named) if named else sorted([*MODELS.glob("*.gguf"), *MODELS.glob("vocab/*.gguf")]):
        fields = fields_of(path)
        if fields["general.architecture"] in ARCHITECTURES and "tokenizer.ggml.tokens" in fields:
            yield path, fields


def documents_of(convert, path, fields, folder):
    """A directory that Hearth opens: the documents, and an embedding of one column."""
    run(convert, path, folder)
    rows = json.loads((folder / "config.json").read_text())["vocab_size"]
    save_file({"model.embed_tokens.weight": np.zeros((rows, 1), np.float32)}, folder / "model.safetensors")


def texts_of(fields, n):
    names = [t for t, kind in zip(fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]) if kind in (3, 4)]
    names = [t for t in names if len(t) > 2 and not t.startswith("[PAD")]
    plain = [t for t in fields["tokenizer.ggml.tokens"][::61] if t.isascii() and t.isprintable() and not t.startswith("[PAD")]
    texts = make_texts(n, names[:40] + names[:: max(1, len(names) // 40)], plain)
    return [t for t in texts if t.decode("utf-8", "replace").encode() == t]


def hearth_ids(hearth, model, texts, *options):
    lines = run(hearth, "tokenize", model, "--null", *options, input=b"\0".join(texts) + b"\0").decode().split("\n")[:-1]
    assert len(lines) == len(texts)
    return [[int(i) for i in line.split()] for line in lines]


def differences(name, texts, expected, found):
    wrong = [i for i in range(len(texts)) if list(expected[i]) != list(found[i])]
    print(f"{name}: {len(texts)} texts, {sum(map(len, expected))} ids, {len(wrong)} differ")
    for i in wrong[:3]:
        print(f"  {texts[i][:120]!r}\n    expected {expected[i][:30]}\n    found    {list(found[i])[:30]}")
    return len(wrong)


def check_tokenizers(args, path, fields, folder):
    import tokenizers

    texts = texts_of(fields, args.texts)
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    wrong = 0
    for add in False, True:
        expected = hearth_ids(args.hearth, path, texts, *["--add-special"] * add)
        found = [e.ids for e in tokenizer.encode_batch([t.decode() for t in texts], add_special_tokens=add)]
        if add:  # Hearth does not add a BOS to a text that begins with one
            bos = fields.get("tokenizer.ggml.bos_token_id")
            found = [ids[1:] if ids[:2] == [bos, bos] else ids for ids in found]
        wrong += differences(f"{path.name} {'with specials' if add else ''}", texts, expected, found)
    return wrong


def check_transformers(args, path, fields, folder):
    import transformers

    texts = texts_of(fields, args.texts)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    wrong = 0
    for add in False, True:
        expected = hearth_ids(args.hearth, path, texts, *["--add-special"] * add)
        found = tokenizer([t.decode() for t in texts], add_special_tokens=add)["input_ids"]
        if add:
            bos = tokenizer.bos_token_id
            found = [ids[1:] if ids[:2] == [bos, bos] else ids for ids in found]
        wrong += differences(f"{path.name} {type(tokenizer).__name__}", texts, expected, found)
    for key, attribute in ("bos", "bos_token_id"), ("eos", "eos_token_id"):
        if fields.get(f"tokenizer.ggml.{key}_token_id") != getattr(tokenizer, attribute):
            print(f"  {attribute} is {getattr(tokenizer, attribute)}")
            wrong += 1
    generation = transformers.GenerationConfig.from_pretrained(folder)
    stops = generation.eos_token_id if isinstance(generation.eos_token_id, list) else [generation.eos_token_id]
    wrong += fields["tokenizer.ggml.eos_token_id"] not in stops
    if "tokenizer.chat_template" in fields:
        (folder / "messages.json").write_text(json.dumps(MESSAGES))
        for model in path, folder:
            text = run(args.hearth, "template", model, "--messages", folder / "messages.json").decode()
            same = text == tokenizer.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
            wrong += not same
            print(f"  chat template of {'the file' if model == path else 'the directory'}: {'the same' if same else 'another'} text")
    return wrong


def llama_ids(path, texts):
    import llama_cpp

    model = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    ids = [model.tokenize(t, add_bos=False, special=True) for t in texts]
    ends = [model.token_bos(), model.token_eos()]
    model.close()
    return ids, ends


def saved_by_transformers(args, folder, made):
    """How much of the metadata is another when transformers has written the tokenizer's files."""
    import transformers

    other = folder / "saved"
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(other)
    for name in "config.json", "generation_config.json", "model.safetensors":
        (other / name).write_bytes((folder / name).read_bytes())
    run(args.convert, other, folder / "saved.gguf")
    saved = fields_of(folder / "saved.gguf")
    differ = [k for k in sorted({*made, *saved}) if made.get(k) != saved.get(k) and k != "general.name"]
    print(f"  saved by transformers: {', '.join(differ) or 'nothing'} differs")
    return len(differ)


def check_llama(args, path, fields, folder):
    texts = texts_of(fields, args.texts)
    again = folder / "again.gguf"
    run(args.convert, folder, again)
    expected, ends = llama_ids(path, texts)
    found, ends_found = llama_ids(again, texts)
    wrong = differences(f"{path.name} in llama.cpp", texts, expected, found)
    hearth = hearth_ids(args.hearth, path, texts)
    wrong += differences(f"{path.name} in Hearth", texts, hearth, hearth_ids(args.hearth, again, texts))
    print(f"  {sum(list(a) == b for a, b in zip(found, hearth))} of {len(texts)} texts with Hearth's ids; ends {ends_found}")
    made = fields_of(again)
    wrong += saved_by_transformers(args, folder, made)
    for key in sorted(k for k in made if k.startswith(made["general.architecture"] + ".")):
        was = fields.get(key)
        if was is not None and was != made[key]:
            print(f"  {key} was {str(was)[:80]}, is {str(made[key])[:80]}")
    return wrong + (ends != ends_found)


def elements_in_file(path):
    """Elements of all weights but the divisors of RoPE, Gemma 4's scalars, which are no parameters in transformers, and the scales
    of NVFP4."""
    left_out = ["rope_freqs.weight", "layer_output_scale", *[".scale"] * ("nvfp4" in path.name)]
    return sum(int(t.n_elements) for t in gguf.GGUFReader(path).tensors if not any(name in t.name for name in left_out))


def check_configs(args):
    import mlx.utils
    import mlx_lm.utils
    import torch
    import transformers

    wrong = 0
    for path in sorted(TINY.glob("*.gguf")):
        with tempfile.TemporaryDirectory() as name:
            run(args.convert, path, name)
            config = transformers.AutoConfig.from_pretrained(name)
            with torch.device("meta"):
                model = transformers.AutoModelForCausalLM.from_config(config)
            model.tie_weights()
            found = sum(p.numel() for p in model.parameters())
            told = json.loads((pathlib.Path(name) / "config.json").read_text())
        expected = elements_in_file(path)
        try:
            classes = mlx_lm.utils._get_classes(told)
            mlx_model = classes[0](classes[1].from_dict(told))
            left_out = ["layer_scalar", *["lm_head"] * told["tie_word_embeddings"]]  # which mlx-lm drops while loading
            in_mlx = sum(v.size for k, v in mlx.utils.tree_flatten(mlx_model.parameters()) if not any(name in k for name in left_out))
        except ValueError as e:
            in_mlx = str(e)[:60]
        same = found == expected and (in_mlx == expected or isinstance(in_mlx, str))
        print(f"{path.name}: {type(model).__name__}, {expected} weights, {found} in transformers, {in_mlx} in mlx-lm")
        wrong += not same
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("convert")
    parser.add_argument("hearth")
    parser.add_argument("part", choices=["tokenizers", "transformers", "llama.cpp", "configs"])
    parser.add_argument("models", nargs="*")
    parser.add_argument("--texts", type=int, default=400)
    args = parser.parse_intermixed_args()
    if args.part == "configs":
        sys.exit(check_configs(args) > 0)
    check = {"tokenizers": check_tokenizers, "transformers": check_transformers, "llama.cpp": check_llama}[args.part]
    wrong = 0
    for path, fields in vocabularies(args.models):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            documents_of(args.convert, path, fields, folder)
            wrong += check(args, path, fields, folder)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
