#include "models/file_rows.h"

#include "base/checked.h"
#include "base/error.h"

#include <stdlib.h>

enum { PIECE_BYTES = 8192 }; /* read at a time: most rows fit */

typedef struct file_rows {
    ht_matrix base;
    ht_stored_tensor tensor; /* its files are the handles below */
    ht_file *file[3];        /* own handles, one per component */
} file_rows;

static size_t no_bytes(ht_weight_type type, int64_t n_rows, int64_t k) {
    (void)type, (void)n_rows, (void)k;
    return 0;
}

static ht_status read_row(const ht_matrix *m, int64_t row, float *out, ht_error *err) {
    const file_rows *t = (const file_rows *)m;
    ht_status status = HT_OK;
    for (int i = 0; !status && i < 3 && t->file[i]; i++) status = ht_file_unchanged(t->file[i], err);
    unsigned char blocks[PIECE_BYTES], scratch[PIECE_BYTES];
    int64_t unit = ht_tensor_unit(&t->tensor), piece = (int64_t)(PIECE_BYTES / ht_tensor_size(&t->tensor, unit)) * unit;
    for (int64_t column = 0; !status && column < m->k; column += piece) {
        int64_t n = ht_min_i64(piece, m->k - column);
        status = ht_tensor_read(&t->tensor, row * m->k + column, n, blocks, scratch, err);
        if (!status) ht_dequantize(m->type, blocks, n, out + column);
    }
    return status;
}

static const ht_matrix_ops ops = {.name = "rows in the file", .packed_bytes = no_bytes, .row = read_row};

ht_status ht_file_rows_new(const ht_stored_tensor *source, ht_matrix **out, ht_error *err) {
    *out = NULL;
    file_rows *t = calloc(1, sizeof *t);
    if (!t) return ht_fail_memory(err, sizeof *t, "a table");
    t->base =
        (ht_matrix){.ops = &ops, .type = (ht_weight_type)source->type, .n_rows = source->dims[0], .k = source->dims[1]};
    t->tensor = *source;
    ht_status status = HT_OK;
    if (!source->n_parts) {
        status = ht_file_share(source->file, &t->file[0], err);
        t->tensor.file = t->file[0];
    }
    for (int i = 0; !status && i < source->n_parts; i++) {
        status = ht_file_share(source->part[i].file, &t->file[i], err);
        t->tensor.part[i].file = t->file[i];
    }
    if (status)
        ht_file_rows_free(&t->base);
    else
        *out = &t->base;
    return status;
}

void ht_file_rows_free(ht_matrix *m) {
    if (!m) return;
    for (int i = 0; i < 3; i++) ht_file_close(((file_rows *)m)->file[i]);
    free(m);
}
