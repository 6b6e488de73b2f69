#include "generate/state_file.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"
#include "device/device.h"

#include <hearth/adapter.h>

#include <stdlib.h>
#include <string.h>

enum { MAGIC = 8, TABLE_AT = 32, ENTRY = 48, ALIGN = 64, ORIGIN_LIMIT = 16 << 20 };

static const char magic[MAGIC + 1] = "HEARTHST";

void ht_state_put_number(unsigned char *at, uint64_t x, int bytes) {
    for (int i = 0; i < bytes; i++) at[i] = (unsigned char)(x >> 8 * i);
}

uint64_t ht_state_get_number(const unsigned char *at, int bytes) {
    uint64_t x = 0;
    for (int i = 0; i < bytes; i++) x |= (uint64_t)at[i] << 8 * i;
    return x;
}

ht_state_sum ht_state_sum_begin(uint64_t kind, uint64_t index) {
    ht_state_sum sum = {.digest = {0x452821e638d01377u, 0xbe5466cf34e90c6cu}};
    ht_digest_word(&sum.digest, kind);
    ht_digest_word(&sum.digest, index);
    return sum;
}

static void state_sum_add(ht_state_sum *sum, const void *bytes, size_t n) {
    const unsigned char *at = bytes;
    ht_digest d = sum->digest; /* in registers */
    for (; n && sum->n % 8; n--) {
        sum->rest[sum->n++ % 8] = *at++;
        if (sum->n % 8 == 0) ht_digest_word(&d, ht_state_get_number(sum->rest, 8));
    }
    for (; n >= 8; n -= 8, at += 8, sum->n += 8) ht_digest_word(&d, ht_state_get_number(at, 8));
    for (; n; n--) sum->rest[sum->n++ % 8] = *at++;
    sum->digest = d;
}

/* Adds the incomplete word, then the number of bytes. */
static ht_digest state_sum_end(const ht_state_sum *sum) {
    ht_digest d = sum->digest;
    uint64_t last = 0;
    for (uint64_t i = 0; i < sum->n % 8; i++) last |= (uint64_t)sum->rest[i] << 8 * i;
    ht_digest_word(&d, last);
    ht_digest_word(&d, sum->n);
    return d;
}

/* Checksum of version, section count and table. */
static ht_digest table_sum(const unsigned char *head, const unsigned char *table, uint32_t n) {
    ht_state_sum sum = ht_state_sum_begin(0, 0);
    state_sum_add(&sum, head + MAGIC, 8);
    state_sum_add(&sum, table, (size_t)n * ENTRY);
    return state_sum_end(&sum);
}

/* ---- writing ---- */

struct ht_state_writer {
    ht_writer *to;
    uint32_t n, most;
    uint64_t at; /* bytes written */
    ht_state_section *section;
    ht_state_sum sum; /* of the section being written */
};

static void end_section(ht_state_writer *w) {
    if (w->n) w->section[w->n - 1].sum = state_sum_end(&w->sum);
}

static ht_status put_zeros(ht_state_writer *w, size_t n, ht_error *err) {
    static const char zeros[ALIGN];
    ht_status status = HT_OK;
    for (size_t some; n && !status; n -= some, w->at += some) {
        some = ht_min_size(n, sizeof zeros);
        status = ht_writer_put(w->to, zeros, some, err);
    }
    return status;
}

ht_status ht_state_writer_open(const char *path, uint32_t n, ht_state_writer **out, ht_error *err) {
    *out = NULL;
    ht_state_writer *w = calloc(1, sizeof *w);
    if (w) w->section = calloc((size_t)n + 1, sizeof *w->section);
    if (!w || !w->section) {
        free(w);
        return ht_fail_memory(err, (size_t)n * sizeof *w->section, "a state file");
    }
    w->most = n;
    ht_status status = ht_writer_open_private(path, &w->to, err);
    if (!status) status = put_zeros(w, TABLE_AT + (size_t)n * ENTRY, err);
    if (status)
        ht_state_writer_discard(w);
    else
        *out = w;
    return status;
}

ht_status ht_state_writer_begin(ht_state_writer *w, uint64_t kind, uint64_t index, ht_error *err) {
    if (w->n == w->most) return ht_fail(err, HT_ERR_INTERNAL, "a state file of more than %u sections", w->most);
    ht_status status = put_zeros(w, (size_t)((ALIGN - w->at % ALIGN) % ALIGN), err);
    if (status) return status;
    end_section(w);
    w->section[w->n++] = (ht_state_section){.kind = kind, .index = index, .offset = w->at};
    w->sum = ht_state_sum_begin(kind, index);
    return HT_OK;
}

ht_status ht_state_writer_put(ht_state_writer *w, const void *bytes, size_t n, ht_error *err) {
    ht_state_section *s = &w->section[w->n - 1];
    state_sum_add(&w->sum, bytes, n);
    s->bytes += n;
    w->at += n;
    return ht_writer_put(w->to, bytes, n, err);
}

ht_status ht_state_writer_commit(ht_state_writer *w, ht_error *err) {
    const size_t table_bytes = (size_t)w->n * ENTRY;
    end_section(w);
    unsigned char head[TABLE_AT], *table = malloc(table_bytes + 1);
    ht_status status = table ? HT_OK : ht_fail_memory(err, table_bytes, "a state file");
    if (!status && w->n != w->most)
        status = ht_fail(err, HT_ERR_INTERNAL, "a state file of %u sections where %u were begun", w->most, w->n);
    for (uint32_t i = 0; !status && i < w->n; i++) {
        const ht_state_section *s = &w->section[i];
        const uint64_t words[] = {s->kind, s->index, s->offset, s->bytes, s->sum.a, s->sum.b};
        for (int k = 0; k < 6; k++) ht_state_put_number(table + i * ENTRY + 8 * k, words[k], 8);
    }
    if (!status) {
        memcpy(head, magic, MAGIC);
        ht_state_put_number(head + MAGIC, HT_STATE_VERSION | (uint64_t)w->n << 32, 8);
        const ht_digest sum = table_sum(head, table, w->n);
        ht_state_put_number(head + 16, sum.a, 8);
        ht_state_put_number(head + 24, sum.b, 8);
        status = ht_writer_put_at(w->to, 0, head, sizeof head, err);
    }
    if (!status) status = ht_writer_put_at(w->to, TABLE_AT, table, table_bytes, err);
    free(table);
    if (status) {
        ht_state_writer_discard(w);
        return status;
    }
    status = ht_writer_commit(w->to, err);
    free(w->section);
    free(w);
    return status;
}

void ht_state_writer_discard(ht_state_writer *w) {
    if (!w) return;
    if (w->to) ht_writer_discard(w->to);
    free(w->section);
    free(w);
}

/* ---- reading ---- */

ht_status ht_state_damaged(const ht_state_file *f, const char *what, ht_error *err) {
    return ht_fail(err, HT_ERR_FORMAT, "%s: the state file is damaged: %s", f->file->path, what);
}

/* Sections must be in order, inside the file, with less than ALIGN zeros between them and none at the end. */
static ht_status check_places(const ht_state_file *f, ht_error *err) {
    uint64_t end = TABLE_AT + (uint64_t)f->n * ENTRY;
    for (uint32_t i = 0; i < f->n; i++) {
        const ht_state_section *s = &f->section[i];
        char between[ALIGN];
        if (s->offset != (end + ALIGN - 1) / ALIGN * ALIGN || s->offset > f->file->size ||
            s->bytes > f->file->size - s->offset)
            return ht_state_damaged(f, "a section is not where the table has it", err);
        ht_status status = ht_file_read_at(f->file, (size_t)end, between, (size_t)(s->offset - end), err);
        if (status) return status;
        for (uint64_t k = 0; k < s->offset - end; k++)
            if (between[k]) return ht_state_damaged(f, "there is something between its sections", err);
        end = s->offset + s->bytes;
    }
    return end == f->file->size ? HT_OK : ht_state_damaged(f, "its end is not where the table has it", err);
}

static ht_status read_table(ht_state_file *f, ht_error *err) {
    unsigned char head[TABLE_AT];
    if (f->file->size < TABLE_AT) return ht_state_damaged(f, "it is shorter than its head", err);
    ht_status status = ht_file_read_at(f->file, 0, head, sizeof head, err);
    if (status) return status;
    if (memcmp(head, magic, MAGIC) != 0)
        return ht_fail(err, HT_ERR_FORMAT, "%s is no state file of Hearth", f->file->path);
    const uint64_t both = ht_state_get_number(head + MAGIC, 8);
    const uint32_t version = (uint32_t)both;
    f->n = (uint32_t)(both >> 32);
    if (version != HT_STATE_VERSION)
        return ht_fail(err, HT_ERR_UNSUPPORTED, "%s: a state file of version %u; this library reads version %d",
                       f->file->path, version, HT_STATE_VERSION);
    if (f->n > HT_STATE_MOST_SECTIONS || (uint64_t)f->n * ENTRY > f->file->size - TABLE_AT)
        return ht_state_damaged(f, "its table does not fit the file", err);
    unsigned char *table = malloc((size_t)f->n * ENTRY + 1);
    f->section = calloc((size_t)f->n + 1, sizeof *f->section);
    if (!table || !f->section)
        status = ht_fail_memory(err, (size_t)f->n * ENTRY, "a state file");
    else
        status = ht_file_read_at(f->file, TABLE_AT, table, (size_t)f->n * ENTRY, err);
    for (uint32_t i = 0; !status && i < f->n; i++) {
        const unsigned char *e = table + (size_t)i * ENTRY;
        f->section[i] = (ht_state_section){ht_state_get_number(e, 8),
                                           ht_state_get_number(e + 8, 8),
                                           ht_state_get_number(e + 16, 8),
                                           ht_state_get_number(e + 24, 8),
                                           {ht_state_get_number(e + 32, 8), ht_state_get_number(e + 40, 8)}};
    }
    if (!status) {
        const ht_digest sum = table_sum(head, table, f->n);
        if (sum.a != ht_state_get_number(head + 16, 8) || sum.b != ht_state_get_number(head + 24, 8))
            status = ht_state_damaged(f, "the checksum of its table does not fit", err);
    }
    free(table);
    return status ? status : check_places(f, err);
}

ht_status ht_state_file_open(const char *path, ht_state_file *out, ht_error *err) {
    *out = (ht_state_file){0};
    ht_status status = ht_file_open(path, &out->file, err);
    if (!status) status = read_table(out, err);
    if (status) ht_state_file_close(out);
    return status;
}

void ht_state_file_close(ht_state_file *f) {
    ht_file_close(f->file);
    free(f->section);
    *f = (ht_state_file){0};
}

const ht_state_section *ht_state_file_find(const ht_state_file *f, uint64_t kind, uint64_t index) {
    const ht_state_section *found = NULL;
    for (uint32_t i = 0; i < f->n; i++) {
        if (f->section[i].kind != kind || f->section[i].index != index) continue;
        if (found) return NULL;
        found = &f->section[i];
    }
    return found;
}

ht_status ht_state_file_read(const ht_state_file *f, const ht_state_section *s, uint64_t at, void *out, size_t n,
                             ht_state_sum *sum, ht_error *err) {
    if (at > s->bytes || n > s->bytes - at)
        return ht_state_damaged(f, "a section is shorter than what it is to hold", err);
    ht_status status = ht_file_read_at(f->file, (size_t)(s->offset + at), out, n, err);
    if (!status) state_sum_add(sum, out, n);
    return status;
}

ht_status ht_state_file_check(const ht_state_file *f, const ht_state_section *s, const ht_state_sum *sum,
                              ht_error *err) {
    const ht_digest d = state_sum_end(sum);
    if (d.a == s->sum.a && d.b == s->sum.b) return HT_OK;
    return ht_state_damaged(f, "the checksum of a section does not fit", err);
}

ht_status ht_state_file_read_all(const ht_state_file *f, const ht_state_section *s, size_t limit, char **out,
                                 ht_error *err) {
    *out = NULL;
    if (s->bytes > limit) return ht_state_damaged(f, "a section is larger than can be", err);
    char *bytes = malloc((size_t)s->bytes + 1);
    if (!bytes) return ht_fail_memory(err, (size_t)s->bytes, "a state file");
    ht_state_sum sum = ht_state_sum_begin(s->kind, s->index);
    ht_status status = ht_state_file_read(f, s, 0, bytes, (size_t)s->bytes, &sum, err);
    if (!status) status = ht_state_file_check(f, s, &sum, err);
    bytes[s->bytes] = '\0';
    if (status)
        free(bytes);
    else
        *out = bytes;
    return status;
}

/* ---- where a state comes from ---- */

static uint64_t tokenizer_digest(const ht_tokenizer *t) {
    ht_digest d = {11, 12};
    for (int32_t id = 0, n = t ? ht_tokenizer_vocab_size(t) : 0; id < n; id++) {
        const char *piece = ht_tokenizer_piece(t, id);
        ht_digest_text(&d, piece ? piece : "");
    }
    return d.a ^ d.b;
}

/* The caller frees *out. */
static ht_status make_origin(const ht_model *m, ht_adapter *const *adapters, const float *scales, int n, char **out,
                             ht_error *err) {
    char fingerprint[HT_FINGERPRINT_SIZE];
    ht_text text = {0};
    const ht_status status = ht_model_fingerprint(m, fingerprint, err);
    *out = NULL;
    if (status) return status;
    ht_text_printf(&text, "model %s %s\ntokenizer %016llx\nprecision %s\nkeys and values %s\n", m->architecture,
                   fingerprint, (unsigned long long)tokenizer_digest(m->tokenizer), ht_precision_name(m->precision),
                   ht_dtype_name(m->kv_dtype));
    for (int32_t i = 0; i < m->n_cache_layers; i++)
        if (m->kv[i].shape.state)
            ht_text_printf(&text, "layer %d of a state of %lld\n", (int)i, (long long)m->kv[i].shape.state);
        else
            ht_text_printf(&text, "layer %d of %d heads of %d, %s %lld\n", (int)i, (int)m->kv[i].shape.n_kv_heads,
                           (int)m->kv[i].shape.head_dim, m->kv[i].chunked ? "chunk" : "window",
                           (long long)m->kv[i].window);
    for (int i = 0; i < n; i++) {
        const ht_digest d = ht_adapter_digest(adapters[i]);
        ht_text_printf(&text, "adapter %016llx times %.9g\n", (unsigned long long)(d.a ^ d.b), (double)scales[i]);
    }
    *out = ht_text_take(&text);
    return *out ? HT_OK : ht_fail_memory(err, text.len, "a state file");
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

ht_status ht_state_put_origin(ht_state_writer *w, const ht_model *m, ht_adapter *const *adapters, const float *scales,
                              int n, ht_error *err) {
    char *origin;
    ht_status status = make_origin(m, adapters, scales, n, &origin, err);
    if (!status) status = ht_state_writer_begin(w, HT_STATE_ORIGIN, 0, err);
    if (!status) status = ht_state_writer_put(w, origin, strlen(origin), err);
    free(origin);
    return status;
}

ht_status ht_state_check_origin(const ht_state_file *f, const ht_model *m, ht_adapter *const *adapters,
                                const float *scales, int n, const char *who, ht_error *err) {
    const ht_state_section *section = ht_state_file_find(f, HT_STATE_ORIGIN, 0);
    char *ours, *theirs = NULL;
    ht_status status = make_origin(m, adapters, scales, n, &ours, err);
    if (!status && !section) status = ht_state_damaged(f, "it does not say what it was computed with", err);
    if (!status) status = ht_state_file_read_all(f, section, ORIGIN_LIMIT, &theirs, err);
    if (!status) status = compare_origins(f->file->path, theirs, ours, who, err);
    free(ours);
    free(theirs);
    return status;
}

size_t ht_state_buffer_bytes(const ht_layer_kv *kv, int32_t n_layers) {
    size_t most = 1;
    for (int32_t i = 0; i < n_layers; i++) most = ht_max_size(most, ht_kv_saved_page_bytes(&kv[i].shape));
    return most;
}
