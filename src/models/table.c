#include "models/table.h"

#include "base/checked.h"
#include "base/error.h"

#include <stdlib.h>

enum { PIECE_BYTES = 8192 }; /* of a row, read at a time: most rows are shorter */

typedef struct table {
    ht_matrix base;
    ht_file *file;
    size_t offset, row_bytes;
} table;

static size_t no_bytes(ht_weight_type type, int64_t n_rows, int64_t k) {
    (void)type, (void)n_rows, (void)k;
    return 0;
}

static ht_status read_row(const ht_matrix *m, int64_t row, float *out, ht_error *err) {
    const table *t = (const table *)m;
    const ht_weight_type_info *info = ht_weight_type_info_of(m->type);
    ht_status status = ht_file_unchanged(t->file, err);
    unsigned char stored[PIECE_BYTES];
    int64_t piece = (int64_t)(PIECE_BYTES / info->block_bytes) * info->block;
    size_t at = t->offset + (size_t)row * t->row_bytes;
    for (int64_t column = 0; !status && column < m->k; column += piece) {
        int64_t n = ht_min_i64(piece, m->k - column);
        size_t bytes = (size_t)(n / info->block) * info->block_bytes;
        status = ht_file_read_at(t->file, at, stored, bytes, err);
        if (!status) ht_dequantize(m->type, stored, n, out + column);
        at += bytes;
    }
    return status;
}

static const ht_matrix_ops ops = {.name = "rows in the file", .packed_bytes = no_bytes, .row = read_row};

ht_status ht_table_new(const ht_stored *stored, ht_matrix **out, ht_error *err) {
    *out = NULL;
    table *t = calloc(1, sizeof *t);
    if (!t) return ht_fail_memory(err, sizeof *t, "a table");
    t->base =
        (ht_matrix){.ops = &ops, .type = (ht_weight_type)stored->type, .n_rows = stored->dims[0], .k = stored->dims[1]};
    t->offset = stored->offset;
    t->row_bytes = stored->n_bytes / (size_t)stored->dims[0];
    ht_status status = ht_file_share(stored->file, &t->file, err);
    if (status)
        free(t);
    else
        *out = &t->base;
    return status;
}

void ht_table_free(ht_matrix *m) {
    if (!m) return;
    ht_file_close(((table *)m)->file);
    free(m);
}
