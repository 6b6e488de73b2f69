/* Damage in the weights that are written: values that are no finite numbers, in rows that are rounded and in tensors that are
 * copied. */
#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"
#include "checkpoint/rewrite.h"
#include "formats/finite.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum { CHUNK = 1 << 16 }; /* elements that a thread looks at, whole blocks of every type */

/* Bounds of activations, single numbers in towers of multimodal checkpoints, are infinite where there is none. */
static bool is_bound(const char *name) { return ht_ends_with(name, "_min") || ht_ends_with(name, "_max"); }

/* The first of n elements that is damaged, and its value; -1: none. */
static int64_t first_damaged(ht_weight_type type, const void *blocks, int64_t n, bool bound, float *value) {
    if (ht_is_finite(type, blocks, n)) return -1;
    const int64_t i = ht_first_not_finite(type, blocks, n, value);
    return i >= 0 && bound && isinf(*value) ? -1 : i;
}

static ht_status not_finite(const char *file, const char *name, size_t name_len, float value, int64_t row,
                            int64_t column, ht_error *err) {
    return ht_fail(err, HT_ERR_FORMAT, "%s: tensor `%.*s` holds %g in row %lld, column %lld: the file may be damaged",
                   file, (int)name_len, name, (double)value, (long long)row, (long long)column);
}

/* ---- rounded rows ---- */

ht_status ht_rewrite_check_rows(const ht_rewrite_plan *plan, const ht_weight_rows *rows, int64_t first, int64_t n,
                                const float *x, ht_error *err) {
    const ht_rewrite_tensor *t = rows->of;
    float value;
    if (ht_weight_is_float((int)t->type) && !plan->checks_values) return HT_OK;
    const int64_t i = first_damaged(HT_W_F32, x, n * rows->k, is_bound(t->name), &value);
    if (i < 0) return HT_OK;
    int64_t row;
    const ht_stored_tensor *stored = ht_weight_rows_origin(rows, first + i / rows->k, &row);
    return not_finite(stored->file_name, stored->name, stored->name_len, value, row, i % rows->k, err);
}

/* ---- copied tensors ---- */

/* A tensor as it lies in the file. */
typedef struct copied {
    const unsigned char *bytes;
    int type;        /* ht_weight_type; E8M0: exponents, one a byte */
    int64_t n;       /* elements */
    int64_t columns; /* of a row */
    bool is_bound;
    _Atomic int64_t first_bad; /* chunk; INT64_MAX: none */
} copied;

enum { NOT_CHECKED = -1, E8M0 = HT_W_COUNT };

/* Numbers and packed elements of weights are never damaged in this sense. */
static int type_named(const ht_rewrite_plan *plan, const ht_rewrite_tensor *t, const char *dtype) {
    static const ht_weight_type floats[] = {HT_W_F32, HT_W_F16, HT_W_BF16, HT_W_F8_E4M3, HT_W_F8_E5M2};
    const int owner = plan->tensor[t->owner].from.type;
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        if (!strcmp(dtype, ht_weight_type_info_of(floats[i])->name)) return (int)floats[i];
    const bool is_scale = t != &plan->tensor[t->owner];
    const bool has_exponents = owner == HT_W_MXFP4 || (owner >= 0 && ht_weight_is_f8((ht_weight_type)owner));
    return !strcmp(dtype, "F8_E8M0") || (is_scale && has_exponents && !strcmp(dtype, "U8")) ? E8M0 : NOT_CHECKED;
}

static copied describe(const ht_rewrite_plan *plan, size_t number, const void *bytes) {
    const ht_rewrite_tensor *t = &plan->tensor[number];
    copied out = {.bytes = bytes, .n = 1, .is_bound = is_bound(t->name), .first_bad = INT64_MAX};
    out.type = plan->c->gguf ? t->from.type : type_named(plan, t, t->to.dtype);
    for (int d = 0; d < t->to.rank; d++) out.n *= t->to.shape[d];
    out.columns = t->to.rank ? t->to.shape[t->to.rank - 1] : 1;
    return out;
}

/* The first element of a chunk that is not finite; -1: none. */
static int64_t find(const copied *t, int64_t chunk, float *value) {
    const int64_t first = chunk * CHUNK, n = ht_min_i64(CHUNK, t->n - first);
    if (t->type == E8M0) { /* 2^(e - 127), but for 255 */
        const unsigned char *bad = memchr(t->bytes + first, 255, (size_t)n);
        *value = NAN;
        return bad ? bad - t->bytes : -1;
    }
    const ht_weight_type type = (ht_weight_type)t->type;
    const ht_weight_type_info *info = ht_weight_type_info_of(type);
    const unsigned char *blocks = t->bytes + (size_t)(first / info->block) * info->block_bytes;
    const int64_t i = first_damaged(type, blocks, n, t->is_bound, value);
    return i < 0 ? -1 : first + i;
}

static void check_chunks(void *arg, int64_t begin, int64_t end, int number) {
    copied *t = arg;
    (void)number;
    for (int64_t i = begin; i < end; i++) {
        float value;
        if (find(t, i, &value) < 0) continue;
        int64_t first = atomic_load(&t->first_bad);
        while (i < first && !atomic_compare_exchange_weak(&t->first_bad, &first, i)) {}
    }
}

ht_status ht_rewrite_check_copied(const ht_rewrite_plan *plan, ht_device *host, size_t number, const void *bytes,
                                  ht_error *err) {
    copied t = describe(plan, number, bytes);
    if (t.type == NOT_CHECKED || !t.n) return HT_OK;
    host->run_on_host(host, (t.n + CHUNK - 1) / CHUNK, 1, check_chunks, &t);
    const int64_t chunk = atomic_load(&t.first_bad);
    if (chunk == INT64_MAX) return HT_OK;
    float value;
    const int64_t i = find(&t, chunk, &value);
    const ht_rewrite_tensor *of = &plan->tensor[number];
    return not_finite(of->from.file_name, of->name, strlen(of->name), value, i / t.columns, i % t.columns, err);
}
