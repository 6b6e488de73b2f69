#include "serve/embeddings.h"

#include "base/base64.h"
#include "formats/json.h"
#include "serve/prompts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- vectors as JSON ---- */

static ht_json *vector_json(const float *values, int64_t n, bool as_base64) {
    if (as_base64) { /* little-endian floats */
        ht_text text = {0};
        for (int64_t i = 0; i < n; i += 3072) {
            unsigned char bytes[3072 * 4];
            const int64_t some = n - i < 3072 ? n - i : 3072;
            for (int64_t j = 0; j < some; j++) {
                uint32_t bits;
                memcpy(&bits, &values[i + j], sizeof bits);
                for (int k = 0; k < 4; k++) bytes[4 * j + k] = (unsigned char)(bits >> 8 * k);
            }
            ht_base64_encode(bytes, (size_t)some * 4, &text);
        }
        ht_json *out = text.failed ? NULL : serve_text_json(&text);
        ht_text_discard(&text);
        return out;
    }
    ht_json *list = ht_json_new_array();
    for (int64_t i = 0; i < n; i++) ht_json_array_append_new(list, ht_json_real((double)values[i]));
    return list;
}

/* ---- inputs ---- */

const char *const serve_poolings[] = {"none", "last",          "mean",         "cls", "model",
                                      "max",  "mean_sqrt_len", "weightedmean", NULL};
ht_pooling serve_read_pooling(const serve_call *c) {
    const char *name = serve_text(c->body, "pooling");
    int i = 0;
    while (name && ht_pooling_name((ht_pooling)i) && strcmp(ht_pooling_name((ht_pooling)i), name) != 0) i++;
    return name ? (ht_pooling)i : HT_POOLING_MODEL;
}

static const serve_shape id = SERVE_IS_INTEGER(0, INT32_MAX);
const serve_shape serve_input_shape = {.types = SERVE_JSON_TEXT | SERVE_JSON_INTEGER | SERVE_JSON_LIST,
                                       .low = 0,
                                       .high = INT32_MAX,
                                       .filled = true,
                                       .fewest = 1,
                                       .item = &id};

/* Texts, or lists of token ids. */
typedef struct inputs {
    size_t n;
    const char **text;
    int32_t **ids; /* NULL: the inputs are texts */
    size_t *n_ids;
} inputs;

static void free_inputs(inputs *in) {
    for (size_t i = 0; in->ids && i < in->n; i++) free(in->ids[i]);
    free(in->text);
    free(in->ids);
    free(in->n_ids);
}

static bool read_one(serve_call *c, const ht_json *item, inputs *in, size_t i) {
    const size_t n = ht_json_array_size(item);
    if (ht_json_is_string(item) && !in->ids) {
        in->text[i] = ht_json_string_value(item);
        return true;
    }
    if (!n || !in->ids)
        return serve_fail(&c->failure, 400, "input",
                          "\"input\" must be a string, a list of strings, token ids or a list of lists of token ids");
    in->ids[i] = calloc(n, sizeof **in->ids);
    in->n_ids[i] = n;
    if (!in->ids[i]) return serve_fail_memory(&c->failure);
    for (size_t j = 0; j < n; j++) {
        int64_t value;
        if (!ht_json_whole(ht_json_array_get(item, j), &value))
            return serve_fail(&c->failure, 400, "input", "\"input\": list %zu has more than token ids", i);
        if (value < 0 || value >= ht_model_vocab_size(c->lease.model))
            return serve_fail(&c->failure, 400, "input",
                              "\"input\": list %zu has the token id %lld, expected 0 to %d; send texts instead of ids "
                              "of another tokenizer",
                              i, (long long)value, (int)ht_model_vocab_size(c->lease.model) - 1);
        in->ids[i][j] = (int32_t)value;
    }
    return true;
}

static bool read_inputs(serve_call *c, const ht_json *input, inputs *in) {
    const ht_json *first = ht_json_array_get(input, 0);
    const bool one = ht_json_is_string(input) || ht_json_is_number(first);
    const bool ids = ht_json_is_number(first) || ht_json_is_array(first);
    in->n = one ? 1 : ht_json_array_size(input);
    in->text = calloc(in->n, sizeof *in->text);
    if (ids) in->ids = calloc(in->n, sizeof *in->ids);
    in->n_ids = calloc(in->n, sizeof *in->n_ids);
    if (!in->text || !in->n_ids || (ids && !in->ids)) return serve_fail_memory(&c->failure);
    for (size_t i = 0; i < in->n; i++)
        if (!read_one(c, one ? input : ht_json_array_get(input, i), in, i)) return false;
    return true;
}

/* A vector for every token: a response that is thousands of times the request would take the memory of others. */
static bool check_tokens(serve_call *c, const inputs *in) {
    enum { MOST_VECTORS = 8192 };
    size_t n = 0;
    for (size_t i = 0; i < in->n && n <= MOST_VECTORS; i++) {
        serve_ids ids = {.n = in->ids ? in->n_ids[i] : 0};
        const bool good = in->ids || serve_ids_append_text(c, &ids, in->text[i], SERVE_BEGINS, "content");
        n += ids.n;
        free(ids.id);
        if (!good) return false;
    }
    if (n <= MOST_VECTORS) return true;
    return serve_fail(&c->failure, 400, "pooling",
                      "the texts have more than %d tokens, and each has a vector without pooling: send fewer texts",
                      MOST_VECTORS);
}

/* The vectors, or NULL with a failure. */
static ht_embeddings *embed(serve_call *c, const inputs *in, const ht_embed_options *asked) {
    ht_embeddings *e = NULL;
    ht_error err = {0};
    ht_embed_options o = *asked;
    o.cancel = serve_call_cancel(c);
    if (!o.cancel) return NULL;
    if (c->lease.adapter) {
        o.adapters = &c->lease.adapter;
        o.adapter_scales = &c->lease.scale;
        o.n_adapters = 1;
    }
    const ht_status status =
        in->ids ? ht_embed_ids(c->lease.model, (const int32_t *const *)in->ids, in->n_ids, in->n, &o, &e, &err)
                : ht_embed_text(c->lease.model, in->text, in->n, &o, &e, &err);
    if (status) serve_fail_as(&c->failure, status, &err);
    for (size_t i = 0; e && i < e->n; i++) {
        atomic_fetch_add(&c->server->metrics.prompt_tokens, e->embeddings[i].n_tokens);
        if (!e->embeddings[i].status) continue;
        snprintf(err.message, sizeof err.message, "input %zu: %.700s%s", i, e->embeddings[i].message,
                 e->embeddings[i].status == HT_ERR_LIMIT && !o.truncate ? "; \"truncate\": true drops its end" : "");
        serve_fail_as(&c->failure, e->embeddings[i].status, &err);
        ht_embeddings_free(e);
        return NULL;
    }
    return e;
}

bool serve_embed_inputs(serve_call *c, const ht_json *input, const ht_embed_options *o, ht_embeddings **out) {
    inputs in = {0};
    *out = NULL;
    if (o->pooling == HT_POOLING_MODEL && ht_model_pooling(c->lease.model) == HT_POOLING_NONE)
        return serve_fail(&c->failure, 400, "pooling",
                          "the model has no pooling: choose one, or ask /embedding for the vectors of all tokens");
    if (read_inputs(c, input, &in) && (o->pooling != HT_POOLING_NONE || check_tokens(c, &in))) *out = embed(c, &in, o);
    free_inputs(&in);
    return *out != NULL;
}

void serve_report_truncated(serve_call *c, const ht_embeddings *e) {
    bool any = false;
    for (size_t i = 0; i < e->n; i++) any |= e->embeddings[i].truncated;
    if (any) serve_call_ignore(c, "input beyond the context");
}

bool serve_read_dimensions(serve_call *c, const ht_embeddings *e, int64_t *n) {
    *n = serve_integer(c->body, "dimensions", e->hidden);
    if (*n <= e->hidden) return true;
    return serve_fail(&c->failure, 400, "dimensions", "\"dimensions\" is %lld, and vectors of the model have %lld",
                      (long long)*n, (long long)e->hidden);
}

/* The divisor that gives a vector the norm p, or for p = 0 the largest magnitude 32760. */
static double norm_of(const float *values, int64_t n, int32_t p) {
    double sum = 0, most = 0;
    if (p < 0) return 1;
    for (int64_t i = 0; i < n; i++) {
        const double size = fabs((double)values[i]);
        if (size > most) most = size;
    }
    if (!p) return most / 32760;
    for (int64_t i = 0; i < n && most > 0; i++) sum += pow(fabs((double)values[i]) / most, (double)p);
    return most * pow(sum, 1 / (double)p);
}

ht_json *serve_embedding_json(const float *given, int64_t n, int32_t p, bool as_base64) {
    if (p < 0) return vector_json(given, n, as_base64);
    float *values = malloc((size_t)n * sizeof *values);
    if (!values) return NULL;
    const double norm = norm_of(given, n, p);
    for (int64_t i = 0; i < n; i++) values[i] = norm > 0 ? (float)((double)given[i] / norm) : 0;
    ht_json *out = vector_json(values, n, as_base64);
    free(values);
    return out;
}
