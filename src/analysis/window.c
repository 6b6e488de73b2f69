#include "analysis/window.h"

#include "array/array.h"
#include "array/user_function.h"
#include "base/checked.h"
#include "base/error.h"
#include "checkpoint/config.h"
#include "models/weights.h"

#include <hearth/tokenizer.h>

/* BOS if the checkpoint prepends it to a text, else -1. */
static ht_status bos_of(const ht_tokenizer *t, int32_t *bos, ht_error *err) {
    int32_t *ids;
    size_t n;
    *bos = -1;
    ht_status status = ht_tokenizer_encode(t, "", 0, HT_ENCODE_ADD_SPECIAL, &ids, &n, err);
    if (status) return status;
    if (n && ids[0] == ht_tokenizer_bos(t)) *bos = ids[0];
    ht_ids_free(ids);
    return HT_OK;
}

ht_status ht_window_text_encode(const ht_model *m, const char *text, size_t n, ht_window_text *out, ht_error *err) {
    *out = (ht_window_text){.bos = -1};
    ht_status status = ht_model_need_tokenizer(m, err);
    if (!status) status = bos_of(m->tokenizer, &out->bos, err);
    if (!status)
        status = ht_tokenizer_encode(m->tokenizer, text, n, HT_ENCODE_PARSE_SPECIAL, &out->encoded, &out->n, err);
    if (status) return status;
    const bool written = out->n && out->bos >= 0 && out->encoded[0] == out->bos; /* does not double a BOS in the text */
    out->ids = out->n ? out->encoded + written : out->encoded;
    out->n -= written;
    return HT_OK;
}

void ht_window_text_free(ht_window_text *t) {
    ht_ids_free(t->encoded);
    *t = (ht_window_text){.bos = -1};
}

/* ---- passes ---- */

static ht_status run_step(ht_window_pass *p, const int32_t *ids, ht_error *err) {
    int32_t pos[HT_WINDOW_ROWS_MAX], out_row[HT_WINDOW_ROWS_MAX];
    for (int32_t i = 0; i < p->rows; i++) {
        pos[i] = (int32_t)p->begin + i;
        out_row[i] = i;
    }
    const ht_batch batch = {.n_tok = p->rows,
                            .n_seq = 1,
                            .n_out = p->rows,
                            .id = ids + p->begin,
                            .pos = pos,
                            .seq_start = (int32_t[]){0, p->rows},
                            .kv_len = (int32_t[]){(int32_t)p->begin + p->rows},
                            .out_row = out_row};
    const ht_step step = {.batch = &batch, .kv = &p->cache, .lora = p->lora ? &p->lora : NULL};
    ht_status status = ht_cache_reserve(p->cache, p->begin + p->rows, err);
    if (status) return status;
    ht_scope *s = ht_scope_new(p->model->stream);
    if (!s) return ht_fail_memory(err, sizeof(void *), "a scope");
    ht_ctx c = {.s = s,
                .step = &step,
                .lora = p->lora ? p->model->weights : NULL,
                .is_long = p->cache->is_long,
                .observer = &p->observer};
    const ht_array *logits = p->model->config->family->forward(&c, ht_weights_decoder(p->model->weights));
    if (!logits || ht_scope_error(s))
        status = ht_scope_status(s, err);
    else if (p->flush)
        status = p->flush(p, s, NULL, err);
    ht_scope_free(s);
    if (!status) ht_cache_advance(p->cache, p->rows);
    return status;
}

ht_status ht_window_pass_run(ht_window_pass *p, const int32_t *ids, int64_t n, int32_t rows, ht_error *err) {
    ht_status status = HT_OK;
    ht_cache_truncate(p->cache, 0);
    ht_cache_begin(p->cache, n);
    for (p->begin = 0; !status && p->begin < n; p->begin += p->rows) {
        p->rows = (int32_t)ht_min_i64(rows, n - p->begin);
        status = run_step(p, ids, err);
    }
    return status;
}

ht_array *ht_window_pass_layer(ht_window_pass *p, ht_ctx *c, ht_layer_fn *layer, const void *model, int index,
                               ht_array *const *in) {
    ht_error err = {0};
    ht_ctx inner = *c;
    inner.s = ht_scope_child(c->s);
    if (!inner.s) return NULL;
    ht_array *h = layer(&inner, model, index, in);
    if (h && ((p->flush && p->flush(p, inner.s, h, &err)) || ht_array_detach(inner.s, h, &err)))
        h = ht_scope_fail_with(inner.s, &err);
    return ht_scope_give(c->s, inner.s, h != NULL, &h, 1) ? h : NULL;
}
