"""Makes tests/golden/train/families: what torch and PEFT make of adapters of the tiny checkpoints of tests/golden/families.

    python tests/golden/make_train_families.py [NAME...]    # needs torch, transformers, peft, safetensors

NAME.json answers for the directory and for the GGUF file. It has the batch, the settings, and two runs of AdamW: of every
projection but the routers, with the gradients by A and B before the first step, and of the projections that are trained
by default. A run has the loss before each step and after the last.

A and B begin with values that both sides compute (`values`), so that no adapter is stored. A gradient is stored as its
norm and its product with such values. The sequences pass through the model one by one: padding would count in the
length by which longrope chooses.

Text encoders, and a decoder, are trained as embedders: `sequences` then have `match`, the index of an anchor's positive or
-1, and the loss is that of the anchors (EMBEDDERS).

PEFT gives the gate and up of an expert one A, Hearth gives each its own. As in make_train.py, PEFT's has the ranks of
both. Of Llama 4's experts, which are stored transposed, PEFT takes the inputs for the outputs: there its A is Hearth's B.
"""

import json
import pathlib
import re
import sys
import tempfile
import unittest.mock
import zlib

import numpy as np
import peft
import torch
import transformers
from peft.tuners.lora.layer import LoraLayer, ParamWrapper
from peft.utils import transformers_weight_conversion
from transformers.pytorch_utils import Conv1D

import make_encoders
import make_families
import reference
from make_train import batch_of

OUT = pathlib.Path(__file__).parent / "train" / "families"
SETTINGS = {"steps": 10, "learning_rate": 1e-3, "weight_decay": 0.01, "clip": 1.0}
RANK, ALPHA = 4, 8
LENGTHS = 24, 37  # longer than the windows; the second one than the original length of longrope
ROUTERS = re.compile(r"((mlp|feed_forward)\.gate|(?<!modality_)router|router\.gate|gate\.wg|router\.layer)$")
DEFAULT = {"phi3": ["qkv_proj"], "gpt2": ["c_attn"], "bert": ["query", "value"], "xlm-roberta": ["query", "value"],
           "modernbert": ["Wqkv"]}
# Checkpoint, pooling and temperature. Anchors, each before its positive and hard negatives, by their lengths; the first anchor comes
# twice, with another positive, and the last positive is equal to another one. Of longrope, some texts are long ones.
EMBEDDERS = {"bert": ("bert", "mean", 0.05), "xlm_roberta": ("xlm_roberta", "cls", 0.05),
             "modernbert": ("modernbert", "mean", 0.05), "phi3-longrope-embed": ("phi3-longrope", "last", 0.5)}
TEXTS = (5, 24), (9, 7, 37), (5, 12), (3, 1, 20, 4), (30, 7)
LATENT = ["q_proj", "v_proj", "q_b_proj", "kv_b_proj"]
PROVENANCE = (f"tests/golden/make_train_families.py with peft {peft.__version__}, transformers {transformers.__version__}, "
              f"torch {torch.__version__}, float32")


make_families.choose_by_length()


def values(name, n):
    """n values in [-1, 1) that depend on a name and their index."""
    seed = 2166136261  # FNV-1a
    for byte in name.encode():
        seed = (seed ^ byte) * 16777619 % 2**32
    x = (np.uint32(seed) + np.arange(n, dtype=np.uint32)) * np.uint32(2654435761)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(2246822519)
    x ^= x >> np.uint32(13)
    return (x >> np.uint32(8)).astype(np.float64) / 2**23 - 1


# ---- models ----


def load(name, directory=None):
    """The model of a checkpoint, or of one that was made of it."""
    if name in make_encoders.ENCODERS:
        return load_encoder(name)
    row, directory = make_families.FAMILIES[name], directory or make_families.HERE / name
    config = json.loads((directory / "config.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / name
        path.mkdir()
        if row["renamed"]:
            config["model_type"] = row["model_type"]
        (path / "config.json").write_text(json.dumps(config))
        (path / "model.safetensors").symlink_to(directory / "model.safetensors")
        return make_families.load(path, transformers.AutoConfig.from_pretrained(path))


def load_encoder(name):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        row = make_encoders.ENCODERS[name]
        (path / "config.json").write_text((make_encoders.HERE / name / "config.json").read_text())
        (path / "model.safetensors").symlink_to(make_encoders.HERE / name / "model.safetensors")
        config = transformers.AutoConfig.from_pretrained(path)
        return make_encoders.model_class(row).from_pretrained(path, config=config, dtype=torch.float32,
                                                              attn_implementation="eager").eval()


def in_layer(path):
    """Layer and name in it of a module of the language model, or None."""
    found = re.search(r"(?:^|\.)(?:layers?|h)\.(\d+)\.(.+)$", path)
    return found and not re.search("vis", path) and (int(found[1]), found[2])


def targets_of(model, names):
    """Full names of the matrices and of the experts' parameters to train: all, or those with these last names."""
    modules, parameters = [], []
    for path, module in model.named_modules():
        if not in_layer(path) or ROUTERS.search(path):
            continue
        if isinstance(module, (torch.nn.Linear, Conv1D)) and (not names or path.rsplit(".", 1)[1] in names):
            modules.append(path)
        if path.endswith(".experts") and not names:
            parameters += [f"{path}.{name}" for name in ("gate_up_proj", "up_proj", "down_proj") if hasattr(module, name)]
    return modules, parameters


# ---- adapters ----


def expert_halves(layer, a, b):
    """The A [experts, rank, inputs] and B [experts, outputs, rank] of each projection in PEFT's tensors, by its name."""
    n, rank = layer.num_experts, layer.r["default"]
    a, b = a.view(n, rank, -1), b.view(b.shape[0], rank, n).permute(2, 0, 1)
    experts = layer.get_base_layer()
    if type(experts).__name__ == "Llama4TextExperts":
        a, b = b.transpose(1, 2), a.transpose(1, 2)
    if layer.parameter_name in ("up_proj", "down_proj"):
        return {layer.parameter_name: (a, b)}
    half, of_gate = rank // 2, b.shape[1] // 2
    if getattr(experts, "is_concatenated", True):
        gate, up = b[:, :of_gate], b[:, of_gate:]
    else:
        gate, up = b[:, 0::2], b[:, 1::2]
    return {"gate_proj": (a[:, :half], gate[..., :half]), "up_proj": (a[:, half:], up[..., half:])}


def halves(model, gradients=False):
    """Views of all A and B, or of their gradients, by Hearth's slots."""
    out = {}
    for path, layer in model.named_modules():
        if not isinstance(layer, LoraLayer):
            continue
        index, rest = in_layer(path.replace(".base_layer", ""))
        a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
        a, b = (a.grad, b.grad) if gradients else (a.data, b.data)
        if isinstance(layer, ParamWrapper):
            for name, pair in expert_halves(layer, a, b).items():
                out[f"model.layers.{index}.experts.{name}"] = pair
        else:
            out[f"model.layers.{index}.{rest}"] = a, b
    return dict(sorted(out.items()))


def attach(model, names=None):
    modules, parameters = targets_of(model, names)
    both = {"gate_up_proj": 2 * RANK} if any(p.endswith("gate_up_proj") for p in parameters) else {}
    config = peft.LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=modules, target_parameters=parameters or None,
                             rank_pattern=both, alpha_pattern={k: 2 * ALPHA for k in both})
    # The conversion would lose shared experts. PEFT refuses projections from Mamba-2, which only its CUDA kernels bypass.
    with (unittest.mock.patch.object(transformers_weight_conversion, "convert_peft_config_for_transformers"),
          unittest.mock.patch("peft.tuners.tuners_utils._check_lora_target_modules_mamba")):
        model = peft.get_peft_model(model, config).eval()
    for layer in model.modules():
        if isinstance(layer, LoraLayer):
            for weight in layer.lora_A["default"].weight, layer.lora_B["default"].weight:
                weight.data.zero_()
    for slot, (a, b) in halves(model).items():
        a.copy_(torch.from_numpy((values(slot + ".lora_A", a.numel()) / a.shape[-1] ** 0.5).reshape(a.shape)))
        b.copy_(torch.from_numpy((values(slot + ".lora_B", b.numel()) * 0.2).reshape(b.shape)))
    for layer in model.modules():
        if isinstance(layer, ParamWrapper) and layer.parameter_name == "gate_up_proj":
            for weight in layer.lora_A["default"].weight, layer.lora_B["default"].weight:
                weight.register_hook(lambda gradient, block=(weight.data != 0).float(): gradient * block)
    return model


# ---- training ----


def texts_of(seed, vocab):
    """The texts of TEXTS as sequences."""
    rng, out = np.random.default_rng(seed), []
    for lengths in TEXTS:
        for i, n in enumerate(lengths):
            out.append({"ids": [int(x) for x in rng.integers(3, vocab, n)], "match": -1 if i else len(out) + 1})
    anchors = [s for s in out if s["match"] >= 0]
    anchors[2]["ids"] = anchors[0]["ids"]
    out[anchors[4]["match"]]["ids"] = out[anchors[1]["match"]]["ids"]
    return out


def vector_of(model, ids, pooling):
    """Of length 1; the last hidden states are those after the final norm."""
    out = getattr(model.get_base_model(), "model", model)(input_ids=torch.tensor([ids]))
    states = out.last_hidden_state[0]
    pooled = {"mean": lambda: states.mean(0), "cls": lambda: states[0], "last": lambda: states[-1]}[pooling]()
    return torch.nn.functional.normalize(pooled, dim=0)


def contrastive_loss(model, sequences, pooling, temperature):
    vectors = torch.stack([vector_of(model, s["ids"], pooling) for s in sequences])
    anchors = [i for i, s in enumerate(sequences) if s["match"] >= 0]
    candidates = [i for i, s in enumerate(sequences) if s["match"] < 0]
    own = torch.tensor([candidates.index(sequences[i]["match"]) for i in anchors])
    scores = (vectors[anchors] @ vectors[candidates].T).double() / temperature
    for row, i in enumerate(anchors):
        right = [sequences[sequences[k]["match"]]["ids"] for k in anchors if sequences[k]["ids"] == sequences[i]["ids"]]
        for column, j in enumerate(candidates):
            if column != own[row] and sequences[j]["ids"] in right:
                scores[row, column] = -torch.inf
    return torch.nn.functional.cross_entropy(scores, own)


def loss_of(model, sequences, how):
    if how:
        return contrastive_loss(model, sequences, *how)
    total, learned = 0, 0
    for s in sequences:
        logits = model(input_ids=torch.tensor([s["ids"]]), use_cache=False).logits[0]
        labels = torch.tensor(s["labels"])[1:]
        total += torch.nn.functional.cross_entropy(logits[:-1].double(), labels, reduction="sum")
        learned += int((labels >= 0).sum())
    return total / learned


def train(model, sequences, how, on_gradients=lambda: None):
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=SETTINGS["learning_rate"], weight_decay=SETTINGS["weight_decay"])
    losses = []
    for step in range(SETTINGS["steps"] + 1):
        optimizer.zero_grad()
        loss = loss_of(model, sequences, how)
        loss.backward()
        if step == 0:
            on_gradients()
        losses.append(loss.item())
        torch.nn.utils.clip_grad_norm_(parameters, SETTINGS["clip"])
        if step < SETTINGS["steps"]:
            optimizer.step()
    return losses


def described(name, gradient):
    gradient = gradient.double().numpy().ravel()
    return [float(np.linalg.norm(gradient)), float(gradient @ values(name + " gradient", gradient.size))]


def make(name):
    checkpoint, *how = EMBEDDERS.get(name, (name,))
    model, gradients = attach(load(checkpoint)), {}
    config = model.config.get_text_config()

    def keep_gradients():
        for slot, (a, b) in halves(model, gradients=True).items():
            numbers = described(slot + ".lora_A", a) + described(slot + ".lora_B", b)
            gradients[slot] = [float(f"{x:.7g}") for x in numbers]

    seed = zlib.crc32(name.encode())
    sequences = texts_of(seed, config.vocab_size) if how else batch_of(seed, config.vocab_size, LENGTHS)
    losses = train(model, sequences, how, keep_gradients)
    default = DEFAULT.get(config.model_type, LATENT if "kv_lora_rank" in config.to_dict() else ["q_proj", "v_proj"])
    of_default = attach(load(checkpoint), default)
    more = dict(zip(("pooling", "temperature"), how))
    answer = {"provenance": PROVENANCE, **SETTINGS, **more, "rank": RANK, "alpha": ALPHA, "sequences": sequences,
              "losses": reference.short(losses), "gradients": gradients,
              "default": list(halves(of_default)), "default_losses": reference.short(train(of_default, sequences, how))}
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / f"{name}.json").write_text(json.dumps(answer, separators=(",", ":")) + "\n")
    print(f"{name}: {len(gradients)} projections, loss {losses[0]:.4f} to {losses[-1]:.4f}, by default "
          f"{answer['default_losses'][-1]:.4f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)  # tiny matrices
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    for case in sys.argv[1:] or [*make_families.FAMILIES, *EMBEDDERS]:
        make(case)
