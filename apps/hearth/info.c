/* hearth info: a checkpoint's metadata and memory requirements. */
#include "command.h"
#include "engine.h"
#include "fail.h"
#include "json.h"
#include "model_path.h"
#include "terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_SHOWN_SAMPLING = 4 /* temperature, top_k, top_p, min_p */ };

typedef struct needs {
    int64_t context; /* positions of kv_bytes and total_bytes */
    int64_t kv_bytes_per_position, kv_bytes, total_bytes;
} needs;

static ht_status compute_needs(const options *o, const ht_model_info *info, needs *n, ht_error *err) {
    if (o->context > info->context && info->has_weights)
        return ht_fail(err, HT_ERR_ARGUMENT, "--context %lld is more than the %lld position%s of %s",
                       (long long)o->context, (long long)info->context, plural(info->context), o->model);
    n->context = o->context ? o->context : info->context;
    n->kv_bytes_per_position = ht_model_info_kv_bytes_per_position(info, options_kv_dtype(o));
    n->kv_bytes = ht_model_info_kv_bytes(info, options_kv_dtype(o), n->context);
    n->total_bytes = n->kv_bytes + info->memory_bytes;
    return HT_OK;
}

/* How a layer relates positions to each other. */
static const char *type_of(const ht_layer_info *l) {
    if (l->state) return l->n_kv_heads ? "full and recurrent" : "recurrent";
    if (!l->n_kv_heads) return "feed-forward";
    return l->is_chunked ? "chunked" : l->slides ? "sliding" : "full";
}

/* One object per layer. */
static ht_json *json_layers(const ht_model_info *i) {
    ht_json *list = ht_json_new_array();
    for (int64_t n = 0; i->layers && n < i->n_layers; n++) {
        const ht_layer_info *l = &i->layers[n];
        ht_json_array_append_new(
            list, ht_json_pack("{ss sI sI sI sI sI sb}", "type", type_of(l), "kv_heads", (int64_t)l->n_kv_heads,
                               "head_dim", (int64_t)l->head_dim, "feed_forward", (int64_t)l->feed_forward, "kv_layer",
                               (int64_t)l->kv_layer, "state", (int64_t)l->state, "experts", (int)l->has_experts));
    }
    return list;
}

/* One object per sampling value. */
static ht_json *json_sampling(const ht_model_info *i) {
    ht_json *object = ht_json_new_object();
    for (int32_t n = 0; n < i->n_sampling; n++) {
        const ht_sampling_value *v = &i->sampling[n];
        ht_json_object_set_new(object, v->name, ht_json_pack("{sf ss}", "value", v->value, "source", v->source));
    }
    return object;
}

static void print_json(const options *o, const ht_model_info *i, const needs *n) {
    ht_json *types = ht_json_new_array();
    for (int32_t t = 0; t < i->n_tensor_types; t++) {
        const ht_tensor_type *type = &i->tensor_types[t];
        ht_json_array_append_new(types, ht_json_pack("{ss sI sI sI}", "type", type->name, "tensors",
                                                     (int64_t)type->n_tensors, "parameters",
                                                     (int64_t)type->n_parameters, "bytes", (int64_t)type->bytes));
    }
    ht_json *value = ht_json_pack(
        "{so ss ss ss ss sb sb sI sI sI sb sb sI ss ss ss ss}", "model", ht_json_string(o->model), "architecture",
        i->architecture, "name", i->name, "format", i->format, "quantization", i->quantization, "has_weights",
        (int)i->has_weights, "runs", (int)i->runs, "parameters", (int64_t)i->n_parameters, "context",
        (int64_t)i->context, "sliding_window", (int64_t)i->sliding_window, "tied_head", (int)i->tied_head, "encoder",
        (int)i->is_encoder, "labels", (int64_t)i->n_labels, "tokenizer", i->tokenizer_kind, "chat_format",
        i->chat_format, "file_type", i->file_type, "pooling", i->pooling);
    ht_json *more = ht_json_pack("{so sf si si so so sI sI sI si si si}", "sampling", json_sampling(i),
                                 "bits_per_weight", i->bits_per_weight, "quantization_bits", (int)i->quantization_bits,
                                 "quantization_group", (int)i->quantization_group, "tensor_types", types, "layer_types",
                                 json_layers(i), "sliding_layers", (int64_t)i->n_sliding_layers, "experts",
                                 (int64_t)i->n_experts, "experts_used", (int64_t)i->n_experts_used, "bos",
                                 (int)i->bos_id, "eos", (int)i->eos_id, "special_tokens", (int)i->n_special_tokens);
    ht_json *sizes = ht_json_pack(
        "{sI sI sI sI sI sI sI sI sI sI sI sI sI sI}", "layers", (int64_t)i->n_layers, "prediction_layers",
        (int64_t)i->n_prediction_layers, "hidden", (int64_t)i->hidden, "heads", (int64_t)i->n_heads, "kv_heads",
        (int64_t)i->n_kv_heads, "head_dim", (int64_t)i->head_dim, "feed_forward", (int64_t)i->feed_forward, "vocab",
        (int64_t)i->vocab, "weight_bytes", (int64_t)i->weight_bytes, "memory_bytes", (int64_t)i->memory_bytes,
        "kv_bytes_per_position", (int64_t)n->kv_bytes_per_position, "kv_positions", (int64_t)n->context, "kv_bytes",
        (int64_t)n->kv_bytes, "total_bytes", (int64_t)n->total_bytes);
    json_output(json_merge(json_merge(value, more), sizes));
}

static void print_special(const ht_model_info *i) {
    char bos[96] = "no BOS", eos[96] = "no EOS";
    if (i->bos_id >= 0) snprintf(bos, sizeof bos, "BOS %d %s", (int)i->bos_id, i->bos);
    if (i->eos_id >= 0) snprintf(eos, sizeof eos, "EOS %d %s", (int)i->eos_id, i->eos);
    output_field("special tokens", "%d, %s, %s", (int)i->n_special_tokens, bos, eos);
}

static void print_types(const ht_model_info *i) {
    char list[1024] = "";
    size_t n = 0;
    for (int32_t t = 0; t < i->n_tensor_types && n < sizeof list; t++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%lld in %s (%.1f MB)", t ? ", " : "",
                              (long long)i->tensor_types[t].n_tensors, i->tensor_types[t].name,
                              (double)i->tensor_types[t].bytes / 1e6);
    output_field("tensors", "%s", list);
    output_field("bits per weight", "%.2f", i->bits_per_weight);
}

typedef struct run {  /* of identical layers */
    const char *type; /* a constant of type_of */
    bool with_experts;
    int64_t n;
} run;

static size_t put_run(const run *r, char *out, size_t size, size_t n) {
    if (n >= size) return n;
    return n + (size_t)snprintf(out + n, size - n, "%lld %s%s", (long long)r->n, r->type,
                                r->with_experts ? " with experts" : "");
}

static bool same_run(const run *a, const run *b) {
    return a->type == b->type && a->with_experts == b->with_experts && a->n == b->n;
}

/* Summarises the layer types as runs: "3 x (5 sliding, 1 full), 2 sliding". */
static void layers_text(const ht_model_info *i, char *out, size_t size) {
    bool mixed = false;
    run *runs = calloc((size_t)i->n_layers + 2, sizeof *runs); /* zeroed entries terminate it */
    size_t n_runs = 0, n = 0;
    if (!runs) return;
    for (int64_t l = 1; l < i->n_layers; l++) mixed = mixed || i->layers[l].has_experts != i->layers[0].has_experts;
    for (int64_t l = 0; l < i->n_layers; l++) {
        const run one = {type_of(&i->layers[l]), mixed && i->layers[l].has_experts, n_runs ? runs[n_runs - 1].n : 0};
        if (!l || !same_run(&one, &runs[n_runs - 1])) runs[n_runs++] = (run){one.type, one.with_experts, 0};
        runs[n_runs - 1].n++;
    }
    for (size_t at = 0, times; at < n_runs && n < size; at += 2 * times) {
        const run *a = &runs[at], *b = &runs[at + 1];
        for (times = 1; at + 2 * times + 1 < n_runs && same_run(a, a + 2 * times) && same_run(b, b + 2 * times);)
            times++;
        n += (size_t)snprintf(out + n, size - n, at ? ", " : "");
        if (times > 1 && n < size) n += (size_t)snprintf(out + n, size - n, "%zu x (", times);
        n = put_run(a, out, size, n);
        if (b->n && n < size) n += (size_t)snprintf(out + n, size - n, ", ");
        if (b->n) n = put_run(b, out, size, n);
        if (times > 1 && n < size) n += (size_t)snprintf(out + n, size - n, ")");
    }
    free(runs);
}

/* Prints the KV heads of full and sliding layers when they differ, and the number of layers that share a KV cache. */
static void print_unlike_layers(const ht_model_info *i) {
    const ht_layer_info *kind[2] = {NULL, NULL}; /* the first full and the first sliding one */
    int64_t n_sharing = 0;
    for (int64_t l = 0; l < i->n_layers; l++) {
        n_sharing += i->layers[l].kv_layer != l;
        if (i->layers[l].n_kv_heads && !kind[i->layers[l].slides]) kind[i->layers[l].slides] = &i->layers[l];
    }
    if (kind[0] && kind[1] && (kind[0]->n_kv_heads != kind[1]->n_kv_heads || kind[0]->head_dim != kind[1]->head_dim))
        output_field("K/V heads", "%lld of %lld in full layers, %lld of %lld in sliding ones",
                     (long long)kind[0]->n_kv_heads, (long long)kind[0]->head_dim, (long long)kind[1]->n_kv_heads,
                     (long long)kind[1]->head_dim);
    if (n_sharing)
        output_field("shared K/V", "in the last %lld layer%s, with earlier ones", (long long)n_sharing,
                     plural(n_sharing));
}

static void print_layers(const ht_model_info *i) {
    char text[512] = "";
    if (!i->layers) {
        output_field("layers", "%lld", (long long)i->n_layers);
        return;
    }
    layers_text(i, text, sizeof text);
    output_field("layers", "%lld: %s", (long long)i->n_layers, text);
    print_unlike_layers(i);
    if (i->n_prediction_layers)
        output_field("skipped", "%lld layer%s of multi-token prediction", (long long)i->n_prediction_layers,
                     plural(i->n_prediction_layers));
}

/* Values that are off by default are shown only where the checkpoint sets them. */
static void print_sampling(const ht_model_info *i) {
    char list[512] = "";
    size_t n = 0;
    const char *source = NULL;
    for (int32_t s = 0; s < i->n_sampling && n < sizeof list; s++) {
        const ht_sampling_value *v = &i->sampling[s];
        const bool is_default = strcmp(v->source, "default") == 0;
        if (is_default && s >= N_SHOWN_SAMPLING) continue;
        if (source && strcmp(source, v->source) != 0) n += (size_t)snprintf(list + n, sizeof list - n, " (%s)", source);
        if (n < sizeof list)
            n += (size_t)snprintf(list + n, sizeof list - n, "%s%s %g", n ? ", " : "", v->name, v->value);
        source = v->source;
    }
    if (source && n < sizeof list) snprintf(list + n, sizeof list - n, " (%s)", source);
    output_field("sampling", "%s", list);
}

/* Prints weights plus KV cache at common context lengths and at the model's own. */
static void print_memory(const options *o, const ht_model_info *i) {
    char list[512] = "";
    size_t n = 0;
    for (int64_t at = 2048; at < i->context && at <= 131072 && n < sizeof list; at *= 4)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%.1f MB at %lld", n ? ", " : "",
                              (double)(i->memory_bytes + ht_model_info_kv_bytes(i, options_kv_dtype(o), at)) / 1e6,
                              (long long)at);
    if (n) output_field("memory", "%s positions", list);
}

static bool is_chunked(const ht_model_info *i) {
    for (int64_t l = 0; i->layers && l < i->n_layers; l++)
        if (i->layers[l].is_chunked) return true;
    return false;
}

static void print_text(const options *o, const ht_model_info *i, const needs *n) {
    const double mb = 1e6;
    output_field("architecture", "%s%s", i->architecture,
                 i->runs || !i->has_weights ? "" : ", which this build cannot run");
    if (i->name[0]) output_field("name", "%s", i->name);
    if (i->file_type[0] && strcmp(i->file_type, i->quantization) != 0)
        output_field("format", "%s, %s, mostly %s", i->format, i->file_type, i->quantization);
    else
        output_field("format", "%s, %s", i->format, i->has_weights ? i->quantization : "vocabulary only");
    output_field("tokenizer", "%s, %lld token%s", i->tokenizer_kind, (long long)i->vocab, plural(i->vocab));
    print_special(i);
    if (!i->is_encoder) output_field("chat format", "%s", i->chat_format);
    if (!i->has_weights) return;
    if (!i->is_encoder) print_sampling(i);
    output_field("parameters", "%.1f million", (double)i->n_parameters / 1e6);
    print_types(i);
    print_layers(i);
    if (i->n_experts)
        output_field("experts", "%lld, %lld for a token", (long long)i->n_experts, (long long)i->n_experts_used);
    output_field("hidden", "%lld, feed-forward %lld", (long long)i->hidden, (long long)i->feed_forward);
    output_field("heads", "%lld of %lld, %lld for keys and values", (long long)i->n_heads, (long long)i->head_dim,
                 (long long)i->n_kv_heads);
    if (!i->is_encoder)
        output_field("output head", "%s", i->tied_head ? "tied to the embedding" : "of its own");
    else if (i->n_labels)
        output_field("text encoder", "attention to both sides, a classification head with %lld score%s",
                     (long long)i->n_labels, plural(i->n_labels));
    else
        output_field("text encoder", "attention to both sides");
    output_field("context", "%lld position%s", (long long)i->context, plural(i->context));
    if (*i->pooling) output_field("pooling", "%s", i->pooling);
    if (i->sliding_window)
        output_field(is_chunked(i) ? "chunks" : "sliding window", "%s%lld position%s", is_chunked(i) ? "of " : "",
                     (long long)i->sliding_window, plural(i->sliding_window));
    if (i->memory_bytes < i->weight_bytes)
        output_field("weights", "%.1f MB, %.1f MB of them in memory", (double)i->weight_bytes / mb,
                     (double)i->memory_bytes / mb);
    else
        output_field("weights", "%.1f MB", (double)i->weight_bytes / mb);
    if (i->is_encoder) return;
    output_field("KV cache", "%.1f MB at %lld position%s in %s (%.1f kB per position)", (double)n->kv_bytes / mb,
                 (long long)n->context, plural(n->context), options_kv_name(o), (double)n->kv_bytes_per_position / 1e3);
    print_memory(o, i);
    output_field("memory needed", "%.1f MB with a full cache", (double)n->total_bytes / mb);
}

int info_command(const options *o) {
    ht_error err = {0};
    ht_model_info *info = NULL;
    needs n = {0};
    char *path;
    ht_status st = model_path(o->model, &path, &err);
    if (!st) st = ht_model_info_read(path, &info, &err);
    if (!st) st = compute_needs(o, info, &n, &err);
    if (!st) (o->json ? print_json : print_text)(o, info, &n);
    ht_model_info_free(info);
    free(path);
    return output_finish(st ? report(&err) : EXIT_OK);
}
