#include "backends/mlx_message.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/plural.h"
#include "base/text.h"
#include "formats/json.h"

#include <stdlib.h>
#include <string.h>

#define SOURCE "mlx_lm's child process"

/* ---- events ---- */

/* Events and their number of fields in addition to `id` and `event`. */
static const struct {
    const char *name;
    int n_members;
} events[] = {
    [HT_MLX_INFO] = {"info", 7}, [HT_MLX_BEGIN] = {"begin", 1}, [HT_MLX_TOKENS] = {"tokens", 1},
    [HT_MLX_KEYS] = {"keys", 8}, [HT_MLX_DONE] = {"done", 3},   [HT_MLX_ERROR] = {"error", 2},
};
enum { N_EVENTS = sizeof events / sizeof *events };

const char *ht_mlx_event_name(ht_mlx_event_kind kind) { return events[kind].name; }

static const char *text_of(ht_json_reader *r, const ht_json *root, const char *key) {
    const char *text = NULL;
    if (!ht_json_str(r, root, key, &text)) ht_json_missing(r, key, "a text");
    return text;
}

static int64_t integer_of(ht_json_reader *r, const ht_json *root, const char *key, int64_t least, int64_t most) {
    int64_t n = 0;
    if (!ht_json_i64(r, root, key, &n))
        ht_json_missing(r, key, "an integer");
    else if (n < least || n > most)
        ht_json_fail(r, HT_ERR_FORMAT, "`%s` is %lld, expected %lld to %lld", key, (long long)n, (long long)least,
                     (long long)most);
    return n;
}

static int64_t count_of(ht_json_reader *r, const ht_json *root, const char *key, int64_t most) {
    return integer_of(r, root, key, 0, most);
}

static void read_info(ht_json_reader *r, ht_mlx_event *e) {
    e->info.architecture = text_of(r, e->root, "architecture");
    e->info.engine = text_of(r, e->root, "engine");
    e->info.device = text_of(r, e->root, "device");
    e->info.context = count_of(r, e->root, "context", INT32_MAX);
    e->info.vocab = count_of(r, e->root, "vocab", INT32_MAX);
    e->info.n_layers = count_of(r, e->root, "n_layers", INT32_MAX);
    e->info.memory_bytes = count_of(r, e->root, "memory_bytes", INT64_MAX);
}

static void read_tokens(ht_json_reader *r, ht_mlx_event *e) {
    const ht_json *ids = ht_json_array(r, e->root, "ids");
    const size_t n = ht_json_array_size(ids);
    if (!ids) ht_json_missing(r, "ids", "a list of token ids");
    if (r->status) return;
    if (n < 1 || n > HT_MLX_TOKENS_MAX) {
        ht_json_fail(r, HT_ERR_FORMAT, "`ids` has %zu tokens, expected 1 to %d", n, HT_MLX_TOKENS_MAX);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const ht_json *id = ht_json_array_get(ids, i);
        char shown[80];
        if (!ht_json_is_integer(id) || ht_json_integer_value(id) < 0 || ht_json_integer_value(id) > INT32_MAX) {
            ht_json_fail(r, HT_ERR_FORMAT, "`ids` holds %s, expected token ids",
                         ht_json_describe(id, shown, sizeof shown));
            return;
        }
        e->tokens[e->n_tokens++] = (int32_t)ht_json_integer_value(id);
    }
}

static void read_done(ht_json_reader *r, ht_mlx_event *e) {
    static const char *const names[] = {
        [HT_FINISH_STOP] = "stop", [HT_FINISH_LENGTH] = "length", [HT_FINISH_CALLBACK] = "cancelled"};
    const char *finish = text_of(r, e->root, "finish");
    e->stop_id = (int32_t)integer_of(r, e->root, "stop_id", -1, INT32_MAX);
    e->peak_memory_bytes = count_of(r, e->root, "peak_memory_bytes", INT64_MAX);
    if (r->status) return;
    for (int i = HT_FINISH_STOP; i <= HT_FINISH_CALLBACK; i++)
        if (strcmp(finish, names[i]) == 0) e->finish = (ht_finish)i;
    if (!e->finish) ht_json_fail(r, HT_ERR_FORMAT, "`finish` is \"%.40s\", expected stop, length or cancelled", finish);
}

static void read_error(ht_json_reader *r, ht_mlx_event *e) {
    const char *kind = text_of(r, e->root, "kind");
    e->message = text_of(r, e->root, "message");
    if (r->status) return;
    for (int i = HT_ERR_ARGUMENT; i <= HT_ERR_INTERNAL; i++)
        if (i != HT_ERR_CANCELLED && strcmp(kind, ht_status_name((ht_status)i)) == 0) e->status = (ht_status)i;
    if (!e->status) ht_json_fail(r, HT_ERR_FORMAT, "`kind` is \"%.40s\", which is no kind of error", kind);
    for (const char *c = e->message; *c && !r->status; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7F)
            ht_json_fail(r, HT_ERR_FORMAT, "`message` holds a control character");
}

/* ---- numbers in base64 ---- */

static int digit(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decodes exactly `bytes` bytes, which the text has with its padding, or fails. */
static bool decode_base64(const char *text, size_t n, unsigned char *out, size_t bytes) {
    if (n != (bytes + 2) / 3 * 4) return false;
    for (size_t i = 0; i < n; i += 4) {
        const size_t left = bytes - i / 4 * 3, wanted = left < 3 ? left : 3;
        uint32_t bits = 0;
        for (size_t k = 0; k < 4; k++) {
            const int d = digit(text[i + k]);
            if (k <= wanted ? d < 0 : text[i + k] != '=') return false;
            bits = bits << 6 | (uint32_t)(d < 0 ? 0 : d);
        }
        for (size_t k = 0; k < wanted; k++) out[i / 4 * 3 + k] = (unsigned char)(bits >> (16 - 8 * k));
    }
    return true;
}

/* f32, the lowest byte first. */
static void read_numbers(ht_json_reader *r, const ht_json *root, const char *key, float *out, size_t n) {
    const char *text = text_of(r, root, key);
    if (r->status) return;
    unsigned char *bytes = (unsigned char *)out;
    if (!decode_base64(text, strlen(text), bytes, n * sizeof *out)) {
        ht_json_fail(r, HT_ERR_FORMAT, "`%s` is not %zu numbers in base64", key, n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const unsigned char *b = bytes + i * sizeof *out;
        const uint32_t bits = (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
        memcpy(&out[i], &bits, sizeof bits);
    }
}

static void read_keys(ht_json_reader *r, ht_mlx_event *e) {
    ht_backend_keys *k = &e->keys;
    size_t n, bytes;
    k->layer = count_of(r, e->root, "layer", INT32_MAX);
    k->n_layers = count_of(r, e->root, "n_layers", INT32_MAX);
    k->head = count_of(r, e->root, "head", INT32_MAX);
    k->n_heads = count_of(r, e->root, "n_heads", INT32_MAX);
    k->n_tokens = count_of(r, e->root, "n_tokens", INT32_MAX);
    k->head_dim = count_of(r, e->root, "head_dim", INT32_MAX);
    const char *keys = text_of(r, e->root, "keys"), *values = text_of(r, e->root, "values");
    if (r->status) return;
    const bool fits = ht_mul_size((size_t)k->n_tokens, (size_t)k->head_dim, &n) &&
                      ht_mul_size(n, 2 * sizeof(float), &bytes) && bytes / 2 <= strlen(keys) &&
                      bytes / 2 <= strlen(values);
    if (k->layer >= k->n_layers || k->head >= k->n_heads || !n || !fits) {
        ht_json_fail(r, HT_ERR_FORMAT, "head %lld of %lld in layer %lld of %lld, %lld token%s of %lld numbers: no keys",
                     (long long)k->head, (long long)k->n_heads, (long long)k->layer, (long long)k->n_layers,
                     (long long)k->n_tokens, ht_plural(k->n_tokens), (long long)k->head_dim);
        return;
    }
    e->numbers = malloc(bytes);
    if (!e->numbers) {
        r->status = ht_fail_memory(r->err, bytes, "keys and values");
        return;
    }
    read_numbers(r, e->root, "keys", e->numbers, n);
    read_numbers(r, e->root, "values", e->numbers + n, n);
    k->keys = e->numbers;
    k->values = e->numbers + n;
}

/* ---- any event ---- */

static void read_members(ht_json_reader *r, ht_mlx_event *e) {
    switch (e->kind) {
    case HT_MLX_INFO: read_info(r, e); break;
    case HT_MLX_BEGIN: e->reused = count_of(r, e->root, "reused", INT32_MAX); break;
    case HT_MLX_TOKENS: read_tokens(r, e); break;
    case HT_MLX_KEYS: read_keys(r, e); break;
    case HT_MLX_DONE: read_done(r, e); break;
    case HT_MLX_ERROR: read_error(r, e); break;
    }
}

ht_status ht_mlx_event_read(const char *line, size_t n, ht_mlx_event *e, ht_error *err) {
    memset(e, 0, sizeof *e);
    ht_status st = ht_json_parse_strict(line, n, SOURCE, HT_JSON_VALUES_MAX, &e->root, err);
    if (st) return st;
    ht_json_reader r = {.file = SOURCE, .err = err};
    const char *name = text_of(&r, e->root, "event");
    e->id = count_of(&r, e->root, "id", INT64_MAX);
    if (r.status) return r.status;
    for (int i = 1; i < N_EVENTS; i++)
        if (strcmp(events[i].name, name) == 0) e->kind = (ht_mlx_event_kind)i;
    if (!e->kind) return ht_json_fail(&r, HT_ERR_FORMAT, "`event` is \"%.40s\", which is none", name);
    read_members(&r, e);
    if (!r.status && ht_json_object_size(e->root) != (size_t)events[e->kind].n_members + 2)
        ht_json_fail(&r, HT_ERR_FORMAT, "an event \"%s\" of %zu fields, expected %d", name,
                     ht_json_object_size(e->root), events[e->kind].n_members + 2);
    return r.status;
}

void ht_mlx_event_free(ht_mlx_event *e) {
    ht_json_decref(e->root);
    free(e->numbers);
    memset(e, 0, sizeof *e);
}

/* ---- requests ---- */

char *ht_mlx_request_write(int64_t id, const char *command, ht_json *more) {
    ht_json *whole = ht_json_pack("{sI ss}", "id", (int64_t)id, "command", command);
    ht_text line = {0};
    if (whole && more && ht_json_object_update(whole, more) == 0) {
        char *text = ht_json_dump(whole, HT_JSON_COMPACT);
        if (text) ht_text_printf(&line, "%s\n", text);
        free(text);
    }
    ht_json_decref(whole);
    ht_json_decref(more);
    return line.data ? ht_text_take(&line) : NULL;
}
