"""Makes the tiny random rerankers under tests/golden/rerankers, text encoders with a head of one label and a tokenizer,
and what float32 `transformers` answers to pairs of texts.

    python tests/golden/make_rerankers.py --llama-cpp SOURCE [NAME...]   # all, or those named

It needs what make_encoders.py and make_tokenizer_golden.py need. NAME/ has the tokenizer's files as the releases have
them: vocab.txt (BERT), or tokenizer.json. NAME/reference.json answers for NAME/ and NAME.gguf: each case has the ids of
a pair, the longest ones cut at the second text's end (`most`), and the logit of the pair alone. BERT's GGUF file has no
reference: its converter leaves out the pooler.
"""

import argparse
import json
import pathlib
import shutil
import sys

import make_encoders
import make_families
import make_tokenizer_golden as tokenizers_of
import numpy as np
import reference
import torch
import transformers
from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).parent / "rerankers"
PROVENANCE = make_encoders.PROVENANCE.replace("make_encoders", "make_rerankers").replace("hidden states", "logits")
LIMIT = 95_000
CONTEXT = 72

QUERY = "What is the head of a text?"
DOCUMENTS = ["The first word of a text is its head.", "", "naïve café: 12 + 34 = 46", "of the head",
             "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of "
             "foolishness, it was the epoch of belief, it was the epoch of incredulity."]  # fmt: skip
DOCUMENT_TOKENS = 3


def bert_files(directory):
    # Its training depends on the order of a hash table.
    trained = json.loads((HERE.parent / "tokenizer/synthetic.json").read_text())["bases"]["words"]
    vocabulary = trained["vocab"]
    (directory / "vocab.txt").write_text("".join(f"{t}\n" for t in sorted(vocabulary, key=vocabulary.get)))
    return {"tokenizer_class": "BertTokenizer", "do_lower_case": True}


def write_tokenizer(directory, model, stages, added):
    whole = tokenizers_of.build(model, stages)
    whole["added_tokens"] = [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False,
                              "normalized": False, "special": True} for t, i in added]  # fmt: skip
    (directory / "tokenizer.json").write_text(json.dumps(whole, ensure_ascii=False, separators=(",", ":")) + "\n")
    return Tokenizer.from_file(str(directory / "tokenizer.json")).get_vocab_size()


def xlm_roberta_files(directory):
    model = tokenizers_of.train("unigram")
    model["vocab"] = [[t, 0.0] for t in ("<s>", "<pad>", "</s>", "<unk>")] + model["vocab"][3:] + [["<mask>", 0.0]]
    model["unk_id"] = 3
    ends = [("<s>", 0), ("</s>", 2)]
    stages = {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "map"},
              "pre_tokenizer": tokenizers_of.pre({"type": "WhitespaceSplit"}, tokenizers_of.metaspace("always")),
              "decoder": tokenizers_of.metaspace("always"),
              "post_processor": tokenizers_of.template(ends[:1], ends[1:], "first A last last B last")}  # fmt: skip
    write_tokenizer(directory, model, stages, [(t, i) for i, (t, _) in enumerate(model["vocab"])
                                               if t in ("<s>", "<pad>", "</s>", "<unk>", "<mask>")])  # fmt: skip
    return {"tokenizer_class": "XLMRobertaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>",
            "sep_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>"}  # fmt: skip


def modernbert_files(directory):
    model = tokenizers_of.train("bytes")
    n = len(model["vocab"])
    added = [(t, n + i) for i, t in enumerate(("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"))]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    stages = {"pre_tokenizer": level, "decoder": level,
              "post_processor": tokenizers_of.template(added[1:2], added[2:3], "first A last B:1 last:1")}  # fmt: skip
    write_tokenizer(directory, model, stages, added)
    return {"tokenizer_class": "PreTrainedTokenizerFast", "cls_token": "[CLS]", "sep_token": "[SEP]",
            "pad_token": "[PAD]", "unk_token": "[UNK]", "mask_token": "[MASK]",
            "model_input_names": ["input_ids", "attention_mask"]}  # fmt: skip


RERANKERS = {
    "bert": ("bert", dict(layer_norm_eps=1e-12), bert_files),
    "xlm_roberta": ("xlm-roberta", dict(type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2,
                                        layer_norm_eps=1e-5, id2label={0: "RELEVANCE"}, label2id={"RELEVANCE": 0},
                                        max_position_embeddings=CONTEXT + 2), xlm_roberta_files),
    "modernbert": ("modernbert", dict(make_encoders.MODERN, classifier_pooling="mean"), modernbert_files),
}  # fmt: skip


def tokenizer_of(directory):
    """The fast tokenizer of the files: ids do not depend on what a class of transformers makes of tokenizer.json."""
    if (directory / "tokenizer.json").exists():
        return Tokenizer.from_file(str(directory / "tokenizer.json"))
    return transformers.AutoTokenizer.from_pretrained(directory)._tokenizer


def cases_of(tokenizer):
    """(document, most, encoding)"""
    for document in DOCUMENTS:
        tokenizer.no_truncation()
        yield document, 0, tokenizer.encode(QUERY, document)
    for most in CONTEXT, len(tokenizer.encode(QUERY, "").ids) + DOCUMENT_TOKENS:
        tokenizer.enable_truncation(most, strategy="only_second")
        encoding = tokenizer.encode(QUERY, DOCUMENTS[-1])
        assert len(encoding.ids) == most, (len(encoding.ids), most)
        yield DOCUMENTS[-1], most, encoding
    tokenizer.no_truncation()


def logit_of(model, ids, types):
    return make_encoders.run(model, ids, types)[1][0]


def describe(model, doubled, name, tokenizer):
    described = []
    for document, most, encoding in cases_of(tokenizer):
        ids, types = encoding.ids, encoding.type_ids if name == "bert" else None
        case = {"document": document, "most": most, "ids": ids}
        if types:
            assert set(types) == {0, 1}
            case["types"] = types
        if len(ids) <= CONTEXT:
            logit, exact = (logit_of(m, ids, types) for m in (model, doubled))
            assert abs(logit - exact) < 2e-5, (logit, exact)
            case["logit"] = reference.short(logit)[0]
        described.append(case)
    logits = [case["logit"] for case in described if "logit" in case]
    assert len(logits) == len(described) - 1 and len(set(logits)) == len(logits) and np.std(logits) > 0.02, logits
    return described


def make(name, converter):
    model_type, args, write_files = RERANKERS[name]
    directory = HERE / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    (HERE / f"{name}.gguf").unlink(missing_ok=True)
    more = write_files(directory)
    (directory / "tokenizer_config.json").write_text(json.dumps({**more, "model_max_length": CONTEXT}, indent=1) + "\n")
    tokenizer = tokenizer_of(directory)
    vocab = tokenizer.get_vocab_size()
    torch.manual_seed(0)
    args = {**make_encoders.bert(), "max_position_embeddings": CONTEXT, **args, "vocab_size": vocab}
    if "id2label" not in args:
        args["num_labels"] = 1
    if model_type == "modernbert":
        args.update(max_position_embeddings=CONTEXT, pad_token_id=vocab - 2, cls_token_id=vocab - 4,
                    sep_token_id=vocab - 3, bos_token_id=vocab - 4, eos_token_id=vocab - 3)  # fmt: skip
    config = transformers.AutoConfig.for_model(model_type, **args)
    row = {"cls": "ModelForSequenceClassification"}
    model = make_encoders.model_class(row).from_config(config).float().eval()
    make_encoders.fill(model, f"reranker {name}")
    model.to(torch.bfloat16).save_pretrained(directory)
    (directory / "model.safetensors").chmod(0o644)
    config = transformers.AutoConfig.from_pretrained(directory)
    model, doubled = (make_encoders.open_model(row, directory, config, t) for t in (torch.float32, torch.float64))
    document = {"provenance": PROVENANCE, "query": QUERY, "context": CONTEXT, "document_tokens": DOCUMENT_TOKENS,
                "cases": describe(model, doubled, name, tokenizer)}  # fmt: skip
    (directory / "reference.json").write_text(json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n")
    make_families.LIMIT = LIMIT
    note = make_families.convert(directory, {"told": {}, "options": ()}, converter)
    size = sum(f.stat().st_size for f in directory.iterdir())
    print(f"{name}: {size} bytes, {note}", flush=True)
    assert size <= LIMIT, f"{name}: {size} bytes"


def converter_of(source):
    """convert_hf_to_gguf.py of the source. It knows pre-tokenizers by the ids of a text, but not those trained here."""
    sys.path[:0] = [str(source), str(source / "gguf-py")]
    import convert_hf_to_gguf
    from conversion.bert import BertModel, ModernBertModel

    BertModel.get_vocab_base_pre = lambda self, tokenizer: "bert-bge"
    ModernBertModel.get_vocab_base_pre = lambda self, tokenizer: "modern-bert"
    return convert_hf_to_gguf


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--llama-cpp", type=pathlib.Path, required=True, help="its source")
    parser.add_argument("names", nargs="*", choices=[[], *RERANKERS])
    args = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    converter = converter_of(args.llama_cpp)
    for name in args.names or RERANKERS:
        make(name, converter)


if __name__ == "__main__":
    main()
