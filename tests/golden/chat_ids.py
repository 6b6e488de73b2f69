"""Makes tests/golden/chat_ids.json: ids of conversations, as transformers' apply_chat_template makes them.

    python3 tests/golden/chat_ids.py TEMPLATES MODELS LLAMA2 WRITE_CHAT

The arguments, the templates and the conversations are those of chat.py. The vocabularies are small ones with the pipelines of
the published tokenizer.json files: SentencePiece-style with [INST] as text (Llama 2, Mistral 7B v0.1 and v0.2) and as
tokens (Mistral v3 and v7), byte-level with tokens (Mistral's since Nemo). check_chat.py compares with the real vocabularies.
"""
import json
import pathlib

import jinja2
import tokenizers
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

import chat
import chat_texts

MARKS = ["[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"]
TEXT = (" ".join(m["content"] for c in chat_texts.conversations for m in c) +
        " The capital of France is Paris. You are a helpful assistant. <<SYS>> <</SYS>> [INST] [/INST] hi there, yes ") * 4
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
          r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")


def small(kind):
    with_tokens, level = kind != "pieces", kind == "bytes"
    ends = ["<unk>", "<s>", "</s>"]
    fallback = [] if level else [f"<0x{b:02X}>" for b in range(256)]
    t = Tokenizer(models.BPE(unk_token=None if level else "<unk>", byte_fallback=not level, fuse_unk=not level))
    if level:
        t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(TEKKEN), "isolated"),
                                                   pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        t.decoder = decoders.ByteLevel()
    elif with_tokens:
        t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    else:
        t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    trainer = trainers.BpeTrainer(vocab_size=640 if level else 420, special_tokens=ends + (MARKS if with_tokens else []) + fallback,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if level else [], show_progress=False)
    t.train_from_iterator(TEXT.split("\n"), trainer)
    whole = json.loads(t.to_str())  # bytes are no added tokens
    whole["added_tokens"] = [a for a in whole["added_tokens"] if not a["content"].startswith("<0x")]
    t = Tokenizer.from_str(json.dumps(whole))
    if not level:
        t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", t.token_to_id("<s>"))])
    return t


KINDS = {"Llama 2": "pieces", "Mistral 7B v0.1": "pieces", "Mistral 7B v0.2": "pieces", "Mistral 7B v0.2, v1": "pieces",
         "Mistral Large 2407, v3": "tokens", "Mistral Large 2411, v7": "tokens", "Mistral Nemo 2407": "bytes",
         "Mistral Small 3.2": "bytes", "Ministral 3": "bytes"}
vocabularies = {kind: small(kind) for kind in ("pieces", "tokens", "bytes")}
cases = []
for name, kind, bos, template in chat.CASES:
    if name not in KINDS:
        continue
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=vocabularies[KINDS[name]], bos_token=bos, eos_token=chat_texts.EOS)
    for i, messages in enumerate(chat_texts.conversations):
        try:
            ids = tokenizer.apply_chat_template(messages, chat_template=template, tokenize=True, add_generation_prompt=True,
                                                return_dict=False)
        except jinja2.exceptions.TemplateError:
            continue  # refused by the template
        if messages not in (chat_texts.THOUGHT, chat_texts.DEEP_THOUGHT):
            cases.append({"name": name, "vocabulary": KINDS[name], "chat": i, "ids": ids})
document = {"provenance": f"tests/golden/chat_ids.py with transformers {transformers.__version__}, tokenizers {tokenizers.__version__}",
            "bos": "<s>", "eos": chat_texts.EOS,
            "vocabularies": {k: json.loads(t.to_str()) for k, t in vocabularies.items()}, "cases": cases}
(pathlib.Path(__file__).parent / "chat_ids.json").write_text(json.dumps(document, separators=(",", ":")) + "\n")
