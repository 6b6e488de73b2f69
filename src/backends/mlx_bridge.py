"""The bridge between Hearth and mlx-lm: reads requests and writes events, one JSON object a line (mlx_message.h).

Hearth starts it as a child process, with requests on standard input and events on standard output. A thread reads the
requests, so that one of them can cancel another that runs; all computing is done by the main thread, one request after
the other. When standard input ends, so does the process.
"""

import base64
import json
import math
import os
import queue
import re
import sys
import threading
import traceback

sys.path[:] = [folder for folder in sys.path if not folder.startswith("/dev/fd")]  # that of this script holds no modules

# What libraries print is no event: it goes to standard error.
EVENTS = os.dup(1)
os.dup2(2, 1)


class Refused(Exception):
    """A request that cannot be done, by the name that Hearth has for such a status."""

    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


class Cancelled(Exception):
    pass


# ---- requests and events ----

requests = queue.Queue()
cancelled = set()  # ids


def read_requests():
    for line in sys.stdin.buffer:
        request = json.loads(line)
        if request["command"] == "cancel":
            cancelled.add(request["target"])
        elif request["command"] == "quit":
            break
        else:
            requests.put(request)
    os._exit(0)  # in the middle of whatever is computed


def send(request, event, **members):
    line = json.dumps({"id": request["id"], "event": event, **members}, separators=(",", ":")).encode() + b"\n"
    while line:
        line = line[os.write(EVENTS, line) :]


def printable(text):
    return "".join(c if c.isprintable() else " " for c in str(text))[:400] or "no reason given"


def missing_fields(error, path):
    """Fields which mlx-lm has looked for in the config.json of that folder, and which are not in it."""
    names = []
    if isinstance(error, KeyError):
        names = [name for name in error.args if isinstance(name, str)]
    elif isinstance(error, TypeError) and (found := re.search(r"missing \d+ required .*arguments?: (.*)", str(error))):
        names = re.findall(r"'(\w+)'", found[1])
    try:
        with open(os.path.join(path, "config.json")) as file:
            config = json.load(file)
        known = {*config, *(config.get("text_config") or {})}
    except (OSError, ValueError, TypeError, AttributeError):
        return []
    return [name for name in names if name not in known]


def message_of(error, kind, command):
    """What went wrong within mlx-lm, and what to do."""
    fields = missing_fields(error, model_path) if command == "load" else []
    if fields:
        names = ", ".join(f'"{name}"' for name in fields)
        missing = f"field {names} is missing" if len(fields) == 1 else f"fields {names} are missing"
        return f"{model_path}/config.json: {missing}, which mlx-lm needs: download the model's config.json again"
    said = printable(error)[:200].rstrip(" .")
    if kind == "memory":
        return f"{type(error).__name__}: {said}; use a smaller model or a shorter prompt"
    return (
        f"{type(error).__name__}: {said}; if `{sys.executable} -m mlx_lm generate --model {model_path}` fails, too, "
        "upgrade mlx-lm or download the model again"
    )


def check_cancelled(request):
    if request["id"] in cancelled:
        raise Cancelled


# ---- the model ----


class Model:
    def __init__(self, request):
        try:
            global mx, mlx_lm_cache, generate_step, wired_limit
            import mlx.core as mx
            import mlx_lm.models.cache as mlx_lm_cache
            from mlx_lm.generate import generate_step, wired_limit
            from mlx_lm.utils import load_model
        except ImportError as e:
            raise Refused(
                "unsupported", f"{sys.executable} has no mlx-lm ({e}): pip install mlx-lm, or name another interpreter"
            ) from e
        import pathlib

        self.model, self.config = load_model(pathlib.Path(request["path"]))
        if request["adapter"]:
            self.add_adapter(**request["adapter"])
        self.text_config = {**self.config, **(self.config.get("text_config") or {})}
        self.cache, self.cached = None, []  # of the last conversation, and the tokens that it holds

    def add_adapter(self, path, scale):
        from mlx_lm.utils import load_adapters

        with open(os.path.join(path, "adapter_config.json")) as file:
            if "peft_type" in json.load(file):
                raise Refused(
                    "unsupported", f"{path} is an adapter of PEFT: `hearth adapter convert {path} OUT --to mlx` makes one of mlx-lm"
                )
        self.model = load_adapters(self.model, path)
        self.model.eval()
        for _, module in self.model.named_modules():
            if "lora_a" in module and hasattr(module, "scale"):
                module.scale = module.scale * scale

    def describe(self):
        from importlib.metadata import version

        def number(name):
            value = self.text_config.get(name)
            return value if isinstance(value, int) and 0 < value < 2**31 else 0

        return {
            "architecture": printable(self.config.get("model_type", "")),
            "engine": f"mlx-lm {version('mlx-lm')}, mlx {version('mlx')}",
            "device": "gpu" if mx.default_device().type == mx.DeviceType.gpu else "cpu",
            "context": number("max_position_embeddings"),
            "vocab": number("vocab_size"),
            "n_layers": number("num_hidden_layers"),
            "memory_bytes": mx.get_active_memory(),
        }

    def take_cache(self, ids):
        """A cache for a conversation, and how many of its tokens it holds; at least one is left to compute."""
        cache, held = self.cache, 0
        self.cache = None
        if cache is None:
            return mlx_lm_cache.make_prompt_cache(self.model), 0
        while held < min(len(self.cached), len(ids) - 1) and self.cached[held] == ids[held]:
            held += 1
        surplus = len(self.cached) - held
        if held and (not surplus or mlx_lm_cache.can_trim_prompt_cache(cache)):
            if not surplus or mlx_lm_cache.trim_prompt_cache(cache, surplus) == surplus:
                return cache, held
        return mlx_lm_cache.make_prompt_cache(self.model), 0

    def keep_cache(self, cache, tokens):
        """Keeps a cache whose length says that it holds a beginning of these tokens."""
        lengths = {getattr(layer, "offset", None) for layer in cache}
        length = lengths.pop() if len(lengths) == 1 else None
        if isinstance(length, int) and 0 < length <= len(tokens):
            self.cache, self.cached = cache, tokens[:length]


# ---- sampling ----


def uniform(seed, index):
    """Hearth's random number for a position: Philox4x32-10, keyed with the seed."""
    mask = 0xFFFFFFFF
    a, b, c, d = index & mask, index >> 32 & mask, 0, 0
    k0, k1 = seed & mask, seed >> 32 & mask
    for _ in range(10):
        x, y = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = y >> 32 ^ b ^ k0, y & mask, x >> 32 ^ d ^ k1, x & mask
        k0, k1 = k0 + 0x9E3779B9 & mask, k1 + 0xBB67AE85 & mask
    return ((b << 32 | a) >> 11) * 2.0**-53


class Sampler:
    """Hearth's chain of stages (generate.h), in the form in which generate_step takes it: `process` sees the logits of a
    position and the tokens before it, `pick` what that has left of them."""

    def __init__(self, options, held, n_prompt):
        self.o, self.n_prompt = options, n_prompt
        self.held = mx.array(held, dtype=mx.int32) if held else None  # tokens that generate_step does not see
        self.greedy = options["temperature"] == 0
        self.position = 0
        self.stages = [getattr(self, name) for name in options["order"] if self.is_on(name)]
        if self.greedy and self.repeat_penalty not in self.stages:
            self.stages = []  # the most likely token survives every filter
        self.biased = [mx.array(column) for column in zip(*options["logit_bias"], strict=True)]  # ids, biases

    def repeats(self):
        return self.o["repeat_penalty"] not in (0, 1) and self.o["repeat_window"] != 0

    def counts(self):
        return bool(self.o["presence_penalty"] or self.o["frequency_penalty"])

    def is_on(self, name):
        o = self.o
        return {
            "repeat_penalty": self.repeats() or self.counts(),
            "temperature": not self.greedy,
            "top_p": 0 < o["top_p"] < 1,
            "top_k": o["top_k"] > 0,
            "min_p": o["min_p"] > 0,
        }[name]

    def process(self, tokens, logits):
        tokens = tokens.astype(mx.int32)
        self.history = tokens if self.held is None else mx.concatenate([self.held, tokens])
        self.position = self.history.shape[0]
        self.x, self.scale = logits.astype(mx.float32), 1.0
        if self.biased:
            ids, biases = self.biased
            self.change(self.x.at[:, ids].add(biases.astype(mx.float32)))
        for stage in self.stages:
            stage()
        return self.scaled()

    def pick(self, x):
        best = mx.argmax(x, axis=-1).astype(mx.int32)
        if self.greedy:
            chosen = best
        else:
            before = mx.cumsum(mx.exp(x - mx.max(x, axis=-1, keepdims=True)), axis=-1)
            passed = before > uniform(int(self.o["seed"]), self.position) * before[..., -1:]
            chosen = mx.where(mx.any(passed, axis=-1), mx.argmax(passed, axis=-1).astype(mx.int32), best)
        return mx.where(mx.isnan(mx.max(x, axis=-1)), -1, chosen)

    def scaled(self):
        """Logarithms of the probabilities, but for a constant."""
        return (self.x - mx.max(self.x, axis=-1, keepdims=True)) * self.scale

    def keep(self, mask):
        self.x = mx.where(mask, self.x, -math.inf)

    def temperature(self):
        self.scale = min(1 / self.o["temperature"], 1e30)

    def change(self, x):
        """Logits stay finite where they are, and left out where they were."""
        self.x = mx.where(mx.isfinite(self.x), mx.clip(x, -1e30, 1e30), self.x)

    def repeat_penalty(self):
        if self.repeats():
            window = self.o["repeat_window"]
            recent = self.history if window < 0 else self.history[-window:]
            x, seen = mx.array(self.x), self.x[:, recent]
            x[:, recent] = mx.where(seen > 0, seen / self.o["repeat_penalty"], seen * self.o["repeat_penalty"])
            self.change(x)
        generated = self.history[self.n_prompt :]
        if self.counts() and generated.size:
            counts = mx.zeros(self.x.shape[-1:]).at[generated].add(mx.array(1.0))
            less = mx.clip(counts * self.o["frequency_penalty"], -1e30, 1e30) + mx.where(counts > 0, self.o["presence_penalty"], 0)
            self.change(self.x - less)

    def top_k(self):
        k = self.o["top_k"]
        if k < self.x.shape[-1]:
            left_out = mx.argsort(-self.x, axis=-1)[:, k:]
            self.x = mx.put_along_axis(self.x, left_out, mx.array(-math.inf, dtype=self.x.dtype), axis=-1)

    def top_p(self):
        order = mx.argsort(-self.x, axis=-1)
        weights = mx.take_along_axis(mx.exp(self.scaled()), order, axis=-1)
        sums = mx.cumsum(weights, axis=-1)
        kept = sums - weights < self.o["top_p"] * sums[:, -1:]
        self.keep(mx.put_along_axis(mx.zeros(self.x.shape, dtype=mx.bool_), order, kept, axis=-1))

    def min_p(self):
        self.keep(self.scaled() >= math.log(self.o["min_p"]))


# ---- commands ----

model, model_path = None, ""


def load(request):
    global model, model_path
    model_path = request["path"]
    model = Model(request)
    send(request, "info", **model.describe())


def info(request):
    send(request, "info", **model.describe())


def answer(request, cache, held):
    """Generates, and returns the tokens that the cache may hold."""
    ids, tokens, finish = request["ids"], list(request["ids"]), "length"
    sampler = Sampler(request["sampler"], ids[:held], len(ids))
    send(request, "begin", reused=held)
    stop_id = -1
    steps = generate_step(
        mx.array(ids[held:]),
        model.model,
        max_tokens=request["max_tokens"],
        sampler=sampler.pick,
        logits_processors=[sampler.process] if sampler.stages or sampler.biased else None,
        prompt_cache=cache,
        prompt_progress_callback=lambda done, total: check_cancelled(request),
    )
    try:
        with wired_limit(model.model):
            for token, _ in steps:
                check_cancelled(request)
                if token < 0:
                    raise Refused("internal", "a logit is not a number")
                tokens.append(token)
                if token in request["stop_ids"]:
                    finish, stop_id = "stop", token
                    break
                send(request, "tokens", ids=[token])
                if len(tokens) - len(ids) == request["max_tokens"]:
                    break
    except Cancelled:
        finish = "cancelled"
    steps.close()
    send(request, "done", finish=finish, stop_id=stop_id, peak_memory_bytes=mx.get_peak_memory())
    return tokens


def generate(request):
    answer(request, mlx_lm_cache.make_prompt_cache(model.model), 0)


def chat(request):
    cache, held = model.take_cache(request["ids"])
    model.keep_cache(cache, answer(request, cache, held))


def numbers(x):
    return base64.b64encode(bytes(memoryview(mx.contiguous(x.astype(mx.float32))))).decode()


def inspect(request):
    cache = mlx_lm_cache.make_prompt_cache(model.model)
    ids = request["ids"]
    for begin in range(0, len(ids), 512):
        check_cancelled(request)
        model.model(mx.array(ids[begin : begin + 512])[None], cache=cache)
        mx.eval([layer.state for layer in cache])
    for i, layer in enumerate(cache):
        keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
        if not isinstance(keys, mx.array) or getattr(layer, "offset", 0) != len(ids):
            raise Refused("unsupported", f"the cache of layer {i} is a {type(layer).__name__}, whose keys are not read")
        if len(ids) > getattr(layer, "max_size", len(ids)):
            raise Refused("limit", f"layer {i} keeps {layer.max_size} positions, and the prompt has {len(ids)}")
        keys, values = keys[0, :, : len(ids)], values[0, :, : len(ids)]
        if keys.shape != values.shape:
            raise Refused("unsupported", f"layer {i} has keys {keys.shape} and values {values.shape}")
        for head in range(keys.shape[0]):
            check_cancelled(request)
            send(
                request,
                "keys",
                layer=i,
                n_layers=len(cache),
                head=head,
                n_heads=keys.shape[0],
                n_tokens=len(ids),
                head_dim=keys.shape[2],
                keys=numbers(keys[head]),
                values=numbers(values[head]),
            )
    send(request, "done", finish="stop", stop_id=-1, peak_memory_bytes=mx.get_peak_memory())


COMMANDS = {"load": load, "generate": generate, "chat": chat, "info": info, "inspect": inspect}


def kind_of(error, command):
    if isinstance(error, Refused):
        return error.kind
    if isinstance(error, MemoryError) or "allocate" in str(error) or "out of memory" in str(error).lower():
        return "memory"
    if isinstance(error, OSError):
        return "io"
    if "not supported" in str(error):
        return "unsupported"
    return "format" if command == "load" else "internal"


def run(request):
    try:
        check_cancelled(request)
        COMMANDS[request["command"]](request)
    except Cancelled:
        send(request, "done", finish="cancelled", stop_id=-1, peak_memory_bytes=0)
    except Exception as e:
        kind, message = kind_of(e, request["command"]), str(e)
        if not isinstance(e, Refused):
            traceback.print_exc()
            message = message_of(e, kind, request["command"])
        send(request, "error", kind=kind, message=printable(message))


threading.Thread(target=read_requests, daemon=True).start()
while True:
    run(requests.get())
