"""Structs and constants of the C headers. Made by tools/python_structs.py; do not edit."""

from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_bool,
    c_char,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint,
    c_uint64,
    c_void_p,
)

HT_ABI_VERSION = 1

HT_OK = 0
HT_ERR_ARGUMENT = 1
HT_ERR_MEMORY = 2
HT_ERR_IO = 3
HT_ERR_FORMAT = 4
HT_ERR_UNSUPPORTED = 5
HT_ERR_LIMIT = 6
HT_ERR_CANCELLED = 7
HT_ERR_INTERNAL = 8
HT_ERR_INDEX = 9
HT_ERR_BUSY = 10

HT_DTYPE_NONE = 0
HT_BOOL = 1
HT_U8 = 2
HT_U16 = 3
HT_U32 = 4
HT_U64 = 5
HT_I8 = 6
HT_I16 = 7
HT_I32 = 8
HT_I64 = 9
HT_F16 = 10
HT_BF16 = 11
HT_F32 = 12
HT_F64 = 13
HT_DTYPE_COUNT = 14

HT_PRECISION_HIGH = 0
HT_PRECISION_FAST = 1
HT_PRECISION_REFERENCE = 2

HT_FINISH_STOP = 1
HT_FINISH_LENGTH = 2
HT_FINISH_CALLBACK = 3

HT_ANSWER_TEXT = 1
HT_ANSWER_THINKING = 2
HT_ANSWER_CALL = 3
HT_ANSWER_CALL_BEGIN = 4
HT_ANSWER_CALL_ARGUMENTS = 5
HT_ANSWER_CALL_END = 6

HT_REUSE_ALL = 0
HT_REUSE_NEW = 1
HT_REUSE_DIFFERS = 2
HT_REUSE_ENDS = 3
HT_REUSE_EVICTED = 4
HT_REUSE_ADAPTER = 5
HT_REUSE_SHORT = 6
HT_REUSE_WINDOW = 7
HT_REUSE_OFF = 8
HT_REUSE_STATE = 9

HT_OPTIMIZER_ADAMW = 0
HT_OPTIMIZER_SGD = 1

HT_SCHEDULE_CONSTANT = 0
HT_SCHEDULE_LINEAR = 1
HT_SCHEDULE_COSINE = 2

HT_ADAPTER_PEFT = 0
HT_ADAPTER_MLX = 1
HT_ADAPTER_GGUF = 2

HT_MASK_ANSWERS = 0
HT_MASK_LAST = 1
HT_MASK_NONE = 2

HT_METHOD_SFT = 0
HT_METHOD_EMBED = 1

HT_LONG_DROP = 0
HT_LONG_TRUNCATE = 1
HT_LONG_REFUSE = 2

HT_CHECKPOINTING_AUTO = 0
HT_CHECKPOINTING_ON = 1
HT_CHECKPOINTING_OFF = 2

HT_SAMPLE_MESSAGES = 0
HT_SAMPLE_COMPLETION = 1
HT_SAMPLE_TEXT = 2
HT_SAMPLE_IDS = 3
HT_SAMPLE_PAIR = 4
HT_SAMPLE_FORMS = 5

HT_POOLING_LAST = 0
HT_POOLING_MEAN = 1
HT_POOLING_CLS = 2
HT_POOLING_MODEL = 3
HT_POOLING_NONE = 4
HT_POOLING_MAX = 5
HT_POOLING_MEAN_SQRT_LEN = 6
HT_POOLING_WEIGHTEDMEAN = 7

HT_PROBE_TOKEN = 1
HT_PROBE_TOP = 2
HT_PROBE_ENTROPY = 4
HT_PROBE_CACHE = 8
HT_PROBE_MEMORY = 16
HT_PROBE_ROUTER = 32
HT_PROBE_RESIDUAL = 64
HT_PROBE_LOGPROB = 128
HT_PROBE_ALL = 255

HT_SCHEMA_SPACE_LINES = 0
HT_SCHEMA_SPACE_NONE = 1
HT_SCHEMA_SPACE_ANY = 2

HT_ENDING_NOT = 0
HT_ENDING_MAY = 1
HT_ENDING_MUST = 2


class ht_error(Structure):
    _fields_ = [
        ("status", c_int),
        ("message", c_char * 768),
    ]


class ht_cancel(Structure):
    _fields_ = [
        ("requested", c_int),
    ]


class ht_device_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("n_threads", c_int),
        ("instruction_set", c_char_p),
    ]


class ht_model_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("device", c_void_p),
        ("precision", c_int),
        ("context", c_int64),
        ("sliding", c_bool),
        ("slots", c_int32),
        ("kv_dtype", c_int),
        ("expected_positions", c_int64),
        ("skip_memory_check", c_bool),
        ("cancel", POINTER(ht_cancel)),
        ("progress", CFUNCTYPE(None, c_double, c_void_p)),
        ("user", c_void_p),
        ("packed_cache", c_char_p),
    ]


class ht_sampling_value(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("value", c_double),
        ("source", c_char_p),
    ]


class ht_forward_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("all_rows", c_bool),
        ("cancel", POINTER(ht_cancel)),
    ]


class ht_logit_bias(Structure):
    _fields_ = [
        ("id", c_int32),
        ("bias", c_float),
    ]


class ht_sampler_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("temperature", c_float),
        ("top_k", c_int32),
        ("top_p", c_float),
        ("min_p", c_float),
        ("repeat_penalty", c_float),
        ("repeat_window", c_int32),
        ("seed", c_uint64),
        ("order", c_char_p),
        ("presence_penalty", c_float),
        ("frequency_penalty", c_float),
        ("logit_bias", POINTER(ht_logit_bias)),
        ("n_logit_bias", c_int),
    ]


class ht_probe_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("kinds", c_uint),
        ("fn", c_void_p),
        ("user", c_void_p),
        ("top_logprobs", c_int32),
    ]


class ht_generate_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("max_tokens", c_int32),
        ("sampler", POINTER(ht_sampler_options)),
        ("stop", POINTER(c_char_p)),
        ("n_stop", c_int),
        ("ignore_eos", c_bool),
        ("cancel", POINTER(ht_cancel)),
        ("parse_special", c_bool),
        ("lookup", c_bool),
        ("draft", c_void_p),
        ("draft_tokens", c_int32),
        ("probes", POINTER(ht_probe_options)),
        ("grammar", c_void_p),
        ("call_pieces", c_bool),
        ("max_thinking_tokens", c_int32),
    ]


class ht_metrics(Structure):
    _fields_ = [
        ("prompt_tokens", c_int64),
        ("reused_tokens", c_int64),
        ("generated_tokens", c_int64),
        ("prefill_seconds", c_double),
        ("first_token_seconds", c_double),
        ("decode_seconds", c_double),
        ("guessed_tokens", c_int64),
        ("accepted_tokens", c_int64),
        ("peak_memory_bytes", c_size_t),
        ("finish", c_int),
        ("stop", c_int32),
        ("stop_id", c_int32),
        ("thought_ended", c_bool),
    ]


class ht_tool_call(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("arguments", c_char_p),
        ("id", c_char_p),
    ]


class ht_answer_piece(Structure):
    _fields_ = [
        ("part", c_int),
        ("text", c_void_p),
        ("n", c_size_t),
        ("call", POINTER(ht_tool_call)),
        ("cut", c_bool),
        ("tokens", c_int64),
    ]


class ht_compile_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("shapeless", c_bool),
        ("release", CFUNCTYPE(None, c_void_p)),
    ]


class ht_optimizer_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("kind", c_int),
        ("beta1", c_double),
        ("beta2", c_double),
        ("eps", c_double),
        ("momentum", c_double),
        ("weight_decay", c_double),
    ]


class ht_schedule(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("kind", c_int),
        ("learning_rate", c_double),
        ("warmup_steps", c_int64),
        ("total_steps", c_int64),
    ]


class ht_function(Structure):
    _fields_ = [
        ("call", CFUNCTYPE(c_int, c_void_p, POINTER(c_void_p), c_int, POINTER(c_void_p), c_int, c_void_p)),
        ("user", c_void_p),
    ]


class ht_wrt(Structure):
    _fields_ = [
        ("index", c_void_p),
        ("n", c_int),
    ]


class ht_custom_vjp(Structure):
    _fields_ = [
        ("call", CFUNCTYPE(c_bool, c_void_p, POINTER(c_void_p), c_int, POINTER(c_void_p), POINTER(c_void_p), c_int, POINTER(c_void_p), c_void_p)),
        ("user", c_void_p),
        ("release", CFUNCTYPE(None, c_void_p)),
    ]


class ht_memory_stats(Structure):
    _fields_ = [
        ("active_bytes", c_size_t),
        ("peak_bytes", c_size_t),
        ("cache_bytes", c_size_t),
        ("wired_bytes", c_size_t),
    ]


class ht_machine(Structure):
    _fields_ = [
        ("processor", c_char * 128),
        ("architecture", c_char * 32),
        ("cores", c_int),
        ("online", c_int),
        ("memory_bytes", c_size_t),
        ("l1_bytes", c_size_t),
        ("l2_bytes", c_size_t),
        ("l3_bytes", c_size_t),
        ("huge_pages", c_char * 16),
    ]


class ht_engine_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("sequences", c_int32),
        ("queue", c_int32),
        ("step_tokens", c_int32),
        ("prefill_budget", c_double),
        ("kv_bytes", c_size_t),
        ("prefix_bytes", c_size_t),
    ]


class ht_reuse(Structure):
    _fields_ = [
        ("cached", c_int64),
        ("reused", c_int64),
        ("computed", c_int64),
        ("end", c_int),
        ("place", c_int64),
        ("token", c_int32),
        ("kept_token", c_int32),
    ]


class ht_answer_report(Structure):
    _fields_ = [
        ("ticket", c_uint64),
        ("answer", c_int32),
        ("status", c_int),
        ("message", c_char_p),
        ("metrics", ht_metrics),
        ("queue_seconds", c_double),
        ("preempted", c_int32),
        ("reuse", ht_reuse),
        ("token", c_void_p),
    ]


class ht_request(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("ids", c_void_p),
        ("n_ids", c_size_t),
        ("text", c_char_p),
        ("chat", c_void_p),
        ("options", POINTER(ht_generate_options)),
        ("adapters", c_void_p),
        ("adapter_scales", c_void_p),
        ("n_adapters", c_int),
        ("n", c_int32),
        ("priority", c_int32),
        ("deadline", c_double),
        ("salt", c_char_p),
        ("piece", c_void_p),
        ("end", c_void_p),
        ("user", c_void_p),
    ]


class ht_engine_statistics(Structure):
    _fields_ = [
        ("running", c_int32),
        ("waiting", c_int32),
        ("submitted", c_int64),
        ("ended", c_int64),
        ("cancelled", c_int64),
        ("failed", c_int64),
        ("refused", c_int64),
        ("preempted", c_int64),
        ("steps", c_int64),
        ("step_rows", c_int64),
        ("prompt_tokens", c_int64),
        ("reused_tokens", c_int64),
        ("generated_tokens", c_int64),
        ("kv_bytes", c_size_t),
        ("kv_budget", c_size_t),
        ("prefix_bytes", c_size_t),
        ("prefix_budget", c_size_t),
        ("prefix_tokens", c_int64),
        ("prefix_lookups", c_int64),
        ("prefix_hits", c_int64),
        ("prefix_evicted", c_int64),
    ]


class ht_embed_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("pooling", c_int),
        ("normalize", c_bool),
        ("adapters", c_void_p),
        ("adapter_scales", c_void_p),
        ("n_adapters", c_int),
        ("cancel", POINTER(ht_cancel)),
        ("progress", CFUNCTYPE(None, c_double, c_void_p)),
        ("user", c_void_p),
        ("prompt", c_char_p),
        ("dimensions", c_int64),
        ("truncate", c_bool),
    ]


class ht_embedding(Structure):
    _fields_ = [
        ("status", c_int),
        ("truncated", c_bool),
        ("message", c_char_p),
        ("n_tokens", c_int64),
        ("values", c_void_p),
    ]


class ht_embeddings(Structure):
    _fields_ = [
        ("n", c_size_t),
        ("hidden", c_int32),
        ("embeddings", POINTER(ht_embedding)),
        ("values", c_void_p),
        ("n_failed", c_size_t),
    ]


class ht_rerank_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("instruction", c_char_p),
        ("adapters", c_void_p),
        ("adapter_scales", c_void_p),
        ("n_adapters", c_int),
        ("truncate", c_bool),
        ("document_tokens", c_int64),
        ("cancel", POINTER(ht_cancel)),
        ("progress", CFUNCTYPE(None, c_double, c_void_p)),
        ("user", c_void_p),
    ]


class ht_relevance(Structure):
    _fields_ = [
        ("status", c_int),
        ("message", c_char_p),
        ("truncated", c_bool),
        ("n_tokens", c_int64),
        ("logit", c_double),
        ("score", c_double),
    ]


class ht_ranking(Structure):
    _fields_ = [
        ("n", c_size_t),
        ("documents", POINTER(ht_relevance)),
        ("order", c_void_p),
        ("n_failed", c_size_t),
    ]


class ht_prompt(Structure):
    _fields_ = [
        ("ids", c_void_p),
        ("n_ids", c_size_t),
        ("text", c_char_p),
        ("chat", c_void_p),
    ]


class ht_continuation(Structure):
    _fields_ = [
        ("text", c_char_p),
        ("ids", c_void_p),
        ("n_ids", c_size_t),
    ]


class ht_classify_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("labels", POINTER(c_char_p)),
        ("n_labels", c_int32),
        ("logits", c_bool),
        ("adapters", c_void_p),
        ("adapter_scales", c_void_p),
        ("n_adapters", c_int),
        ("kv_bytes", c_size_t),
        ("next", c_void_p),
        ("cancel", POINTER(ht_cancel)),
        ("progress", CFUNCTYPE(None, c_double, c_void_p)),
    ]


class ht_label_score(Structure):
    _fields_ = [
        ("log_probability", c_double),
        ("probability", c_double),
        ("n_tokens", c_int64),
    ]


class ht_classification(Structure):
    _fields_ = [
        ("index", c_size_t),
        ("status", c_int),
        ("message", c_char_p),
        ("prompt_tokens", c_int64),
        ("computed_tokens", c_int64),
        ("token", c_int32),
        ("text", c_char_p),
        ("log_probability", c_double),
        ("label", c_int32),
        ("labels", POINTER(ht_label_score)),
        ("logits", c_void_p),
    ]


class ht_score_request(Structure):
    _fields_ = [
        ("prompt", ht_prompt),
        ("continuations", POINTER(ht_continuation)),
        ("n_continuations", c_size_t),
    ]


class ht_score_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("top_k", c_int32),
        ("adapters", c_void_p),
        ("adapter_scales", c_void_p),
        ("n_adapters", c_int),
        ("kv_bytes", c_size_t),
        ("next", c_void_p),
        ("cancel", POINTER(ht_cancel)),
        ("progress", CFUNCTYPE(None, c_double, c_void_p)),
    ]


class ht_token_probability(Structure):
    _fields_ = [
        ("id", c_int32),
        ("log_probability", c_double),
    ]


class ht_token_score(Structure):
    _fields_ = [
        ("id", c_int32),
        ("log_probability", c_double),
        ("top", POINTER(ht_token_probability)),
        ("n_top", c_int32),
    ]


class ht_continuation_score(Structure):
    _fields_ = [
        ("log_probability", c_double),
        ("tokens", POINTER(ht_token_score)),
        ("n_tokens", c_int64),
    ]


class ht_score_result(Structure):
    _fields_ = [
        ("index", c_size_t),
        ("status", c_int),
        ("message", c_char_p),
        ("prompt_tokens", c_int64),
        ("shared_tokens", c_int64),
        ("computed_tokens", c_int64),
        ("continuations", POINTER(ht_continuation_score)),
        ("n_continuations", c_size_t),
    ]


class ht_batch_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("engine", POINTER(ht_engine_options)),
        ("window", c_int32),
        ("next", c_void_p),
        ("cancel", POINTER(ht_cancel)),
        ("cache_file", c_char_p),
    ]


class ht_batch_answer(Structure):
    _fields_ = [
        ("report", POINTER(ht_answer_report)),
        ("text", c_void_p),
        ("n_text", c_size_t),
        ("thinking", c_void_p),
        ("n_thinking", c_size_t),
        ("calls", POINTER(ht_tool_call)),
        ("n_calls", c_size_t),
    ]


class ht_batch_result(Structure):
    _fields_ = [
        ("index", c_size_t),
        ("status", c_int),
        ("message", c_char_p),
        ("answers", POINTER(ht_batch_answer)),
        ("n_answers", c_int32),
    ]


class ht_lora_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("rank", c_int64),
        ("alpha", c_double),
        ("scale", c_double),
        ("rslora", c_bool),
        ("dropout", c_double),
        ("targets", c_char_p),
        ("layers", c_int64),
        ("dtype", c_int),
        ("normal_init", c_bool),
        ("seed", c_uint64),
        ("base", c_char_p),
        ("init", c_void_p),
    ]


class ht_train_batch(Structure):
    _fields_ = [
        ("n_tok", c_int32),
        ("n_seq", c_int32),
        ("id", c_void_p),
        ("pos", c_void_p),
        ("seq_start", c_void_p),
        ("target", c_void_p),
        ("n_learned", c_int64),
        ("match", c_void_p),
        ("temperature", c_double),
    ]


class ht_data_count(Structure):
    _fields_ = [
        ("n", c_int64),
        ("line", c_int64 * 5),
    ]


class ht_data_report(Structure):
    _fields_ = [
        ("n_lines", c_int64),
        ("n_samples", c_int64),
        ("n_form", c_int64 * 5),
        ("n_tokens", c_int64),
        ("n_learned", c_int64),
        ("max_length", c_int64),
        ("longest", c_int32),
        ("length", c_int64 * 31),
        ("bad", ht_data_count),
        ("too_long", ht_data_count),
        ("unlearned", ht_data_count),
        ("first_bad", ht_error),
        ("truncated", ht_data_count),
        ("stopless", ht_data_count),
        ("prompt_differs", ht_data_count),
        ("history_differs", ht_data_count),
        ("answer_lost", ht_data_count),
        ("time", c_int64),
        ("fingerprint", c_uint64),
    ]


class ht_trainer_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("lora", POINTER(ht_lora_options)),
        ("optimizer", POINTER(ht_optimizer_options)),
        ("data", c_char_p),
        ("valid", c_char_p),
        ("mask", c_int),
        ("long_samples", c_int),
        ("max_length", c_int64),
        ("skip_bad", c_bool),
        ("batch", c_int32),
        ("accumulate", c_int32),
        ("pack", c_bool),
        ("in_order", c_bool),
        ("seed", c_uint64),
        ("iters", c_int64),
        ("epochs", c_double),
        ("learning_rate", c_double),
        ("schedule", c_int),
        ("warmup", c_int64),
        ("clip", c_double),
        ("checkpointing", c_int),
        ("valid_batches", c_int64),
        ("skip_memory_check", c_bool),
        ("cancel", POINTER(ht_cancel)),
        ("progress", CFUNCTYPE(None, c_double, c_void_p)),
        ("user", c_void_p),
        ("method", c_int),
        ("temperature", c_double),
    ]


class ht_trainer_plan(Structure):
    _fields_ = [
        ("iters", c_int64),
        ("iters_per_epoch", c_int64),
        ("done", c_int64),
        ("skipped", c_int64),
        ("n_parameters", c_int64),
        ("model_parameters", c_int64),
        ("n_projections", c_int),
        ("checkpointing", c_bool),
        ("peak_bytes", c_size_t),
        ("data", POINTER(ht_data_report)),
        ("valid", POINTER(ht_data_report)),
    ]


class ht_train_step(Structure):
    _fields_ = [
        ("iter", c_int64),
        ("loss", c_double),
        ("learning_rate", c_double),
        ("grad_norm", c_double),
        ("n_tok", c_int64),
        ("n_learned", c_int64),
        ("skipped", c_bool),
        ("total_skipped", c_int64),
    ]


class ht_retrieval(Structure):
    _fields_ = [
        ("n_anchors", c_int64),
        ("n_candidates", c_int64),
        ("accuracy_at_1", c_double),
        ("mrr_at_10", c_double),
        ("ndcg_at_10", c_double),
    ]


class ht_backend_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("model", POINTER(ht_model_options)),
        ("adapters", POINTER(c_char_p)),
        ("adapter_scales", c_void_p),
        ("n_adapters", c_int),
        ("python", c_char_p),
        ("load_seconds", c_double),
        ("first_seconds", c_double),
        ("next_seconds", c_double),
        ("line_bytes", c_size_t),
        ("bridge", c_char_p),
    ]


class ht_backend_prompt(Structure):
    _fields_ = [
        ("text", c_char_p),
        ("ids", c_void_p),
        ("n_ids", c_size_t),
    ]


class ht_backend_info(Structure):
    _fields_ = [
        ("architecture", c_char_p),
        ("engine", c_char_p),
        ("device", c_char_p),
        ("chat_format", c_char_p),
        ("context", c_int64),
        ("vocab", c_int64),
        ("n_layers", c_int64),
        ("memory_bytes", c_int64),
    ]


class ht_backend_keys(Structure):
    _fields_ = [
        ("layer", c_int64),
        ("n_layers", c_int64),
        ("head", c_int64),
        ("n_heads", c_int64),
        ("n_tokens", c_int64),
        ("head_dim", c_int64),
        ("keys", c_void_p),
        ("values", c_void_p),
    ]


class ht_inspect_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("keys", c_bool),
        ("values", c_bool),
        ("queries", c_bool),
        ("layers", c_void_p),
        ("n_layers", c_int),
        ("attention", c_void_p),
        ("n_attention", c_int),
        ("adapters", c_void_p),
        ("adapter_scales", c_void_p),
        ("n_adapters", c_int),
        ("most_bytes", c_size_t),
        ("cancel", POINTER(ht_cancel)),
        ("progress", CFUNCTYPE(None, c_double, c_void_p)),
        ("user", c_void_p),
    ]


class ht_inspected_layer(Structure):
    _fields_ = [
        ("kv_layer", c_int32),
        ("n_heads", c_int32),
        ("n_kv_heads", c_int32),
        ("head_dim", c_int32),
        ("window", c_int64),
        ("chunked", c_bool),
        ("k", c_void_p),
        ("v", c_void_p),
        ("q", c_void_p),
        ("attention", c_void_p),
    ]


class ht_inspection(Structure):
    _fields_ = [
        ("n_tokens", c_int64),
        ("tokens", c_void_p),
        ("n_layers", c_int32),
        ("layers", POINTER(ht_inspected_layer)),
        ("bytes", c_size_t),
    ]


class ht_probe_route(Structure):
    _fields_ = [
        ("layer", c_int32),
        ("n", c_int32),
        ("expert", c_void_p),
        ("weight", c_void_p),
    ]


class ht_probe(Structure):
    _fields_ = [
        ("kind", c_int),
        ("answer", c_int32),
        ("index", c_int64),
        ("position", c_int64),
        ("token", c_int32),
        ("n_top", c_int32),
        ("top_token", c_int32 * 8),
        ("top_logit", c_float * 8),
        ("entropy", c_double),
        ("pressure", c_double),
        ("positions", c_int64),
        ("context", c_int64),
        ("cache_bytes", c_size_t),
        ("cache_budget", c_size_t),
        ("memory_bytes", c_size_t),
        ("memory_peak", c_size_t),
        ("memory_limit", c_size_t),
        ("n_routes", c_int32),
        ("routes", POINTER(ht_probe_route)),
        ("n_layers", c_int32),
        ("norms", c_void_p),
        ("log_probability", c_double),
        ("n_likeliest", c_int32),
        ("likeliest", POINTER(ht_token_probability)),
    ]


class ht_schema_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("space", c_int),
        ("ordered", c_bool),
        ("closed", c_bool),
        ("every_spelling", c_bool),
        ("ignore_formats", c_bool),
    ]
