#include "generate/state_parts.h"

#include "base/checked.h"
#include "base/error.h"
#include "device/device.h"

#include <hearth/adapter.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ORIGIN_LIMIT = 16 << 20 };

/* ---- where a state comes from ---- */

static uint64_t tokenizer_digest(const ht_tokenizer *t) {
    ht_digest d = {11, 12};
    for (int32_t id = 0, n = t ? ht_tokenizer_vocab_size(t) : 0; id < n; id++) {
        const char *piece = ht_tokenizer_piece(t, id);
        ht_digest_text(&d, piece ? piece : "");
    }
    return d.a ^ d.b;
}

ht_status ht_state_origin(const ht_model *m, ht_adapter *const *adapters, const float *scales, int n, char **out,
                          ht_error *err) {
    char fingerprint[HT_FINGERPRINT_SIZE];
    char *text = NULL;
    size_t size = 0;
    ht_status status = ht_model_fingerprint(m, fingerprint, err);
    *out = NULL;
    if (status) return status;
    FILE *f = open_memstream(&text, &size);
    if (!f) return ht_fail_memory(err, 1, "a state file");
    fprintf(f, "model %s %s\ntokenizer %016llx\nprecision %s\nkeys and values %s\n", m->architecture, fingerprint,
            (unsigned long long)tokenizer_digest(m->tokenizer), ht_precision_name(m->precision),
            ht_dtype_name(m->kv_dtype));
    for (int32_t i = 0; i < m->n_kv_layers; i++)
        fprintf(f, "layer %d of %d heads of %d, window %lld\n", (int)i, (int)m->kv[i].shape.n_kv_heads,
                (int)m->kv[i].shape.head_dim, (long long)m->kv[i].window);
    for (int i = 0; i < n; i++) {
        const ht_digest d = ht_adapter_digest(adapters[i]);
        fprintf(f, "adapter %016llx times %.9g\n", (unsigned long long)(d.a ^ d.b), (double)scales[i]);
    }
    const bool failed = ferror(f) != 0;
    if (fclose(f) != 0 || failed || !text) {
        free(text);
        return ht_fail_memory(err, size, "a state file");
    }
    *out = text;
    return HT_OK;
}

/* Shows the first line in which the two differ. */
static ht_status compare_origins(const char *path, const char *file, const char *ours, const char *who, ht_error *err) {
    while (*file && *ours) {
        const size_t n = strcspn(file, "\n"), m = strcspn(ours, "\n");
        if (n != m || memcmp(file, ours, n) != 0)
            return ht_fail(err, HT_ERR_ARGUMENT, "%s was saved with \"%.*s\", and this %s has \"%.*s\"", path,
                           (int)ht_min_size(n, 200), file, who, (int)ht_min_size(m, 200), ours);
        file += n + (file[n] == '\n');
        ours += m + (ours[m] == '\n');
    }
    if (!*file && !*ours) return HT_OK;
    const char *rest = *file ? file : ours;
    return ht_fail(err, HT_ERR_ARGUMENT, "%s was saved with%s \"%.*s\", and this %s is with%s", path,
                   *file ? "" : "out", (int)ht_min_size(strcspn(rest, "\n"), 200), rest, who, *file ? "out" : " it");
}

ht_status ht_state_put_origin(ht_state_writer *w, const char *origin, ht_error *err) {
    ht_status status = ht_state_writer_begin(w, HT_STATE_ORIGIN, 0, err);
    return status ? status : ht_state_writer_put(w, origin, strlen(origin), err);
}

ht_status ht_state_check_origin(const ht_state_file *f, const char *origin, const char *who, ht_error *err) {
    const ht_state_section *section = ht_state_file_find(f, HT_STATE_ORIGIN, 0);
    char *theirs;
    if (!section) return ht_state_damaged(f, "it does not say what it was computed with", err);
    ht_status status = ht_state_file_read_all(f, section, ORIGIN_LIMIT, &theirs, err);
    if (status) return status;
    status = compare_origins(f->file->path, theirs, origin, who, err);
    free(theirs);
    return status;
}

/* ---- positions ---- */

size_t ht_state_page_room(const ht_layer_kv *kv, int32_t n_layers) {
    size_t most = 1;
    for (int32_t i = 0; i < n_layers; i++) most = ht_max_size(most, HT_KV_PAGE * ht_kv_saved_bytes(&kv[i].shape));
    return most;
}

ht_status ht_state_put_positions(ht_state_writer *w, ht_device *d, const ht_kv_shape *shape, const ht_kv_page *page,
                                 int64_t first, int64_t n, void *room, ht_error *err) {
    ht_status status = d->kv->read(d, shape, page, first, n, room, err);
    return status ? status : ht_state_writer_put(w, room, (size_t)n * ht_kv_saved_bytes(shape), err);
}

ht_status ht_state_get_positions(const ht_state_file *f, const ht_state_section *s, uint64_t at, ht_state_sum *sum,
                                 ht_device *d, const ht_kv_shape *shape, ht_kv_page *page, int64_t first, int64_t n,
                                 void *room, ht_error *err) {
    ht_status status = ht_state_file_read(f, s, at, room, (size_t)n * ht_kv_saved_bytes(shape), sum, err);
    return status || !page ? status : d->kv->write(d, shape, page, first, n, room, err);
}
