#include "models/file_rows.h"

#include "base/checked.h"
#include "base/error.h"
#include "models/tensor_read.h"

#include <stdlib.h>

enum { PIECE_BYTES = 8192 }; /* of a row, read at a time: most rows are shorter */

typedef struct table {
    ht_matrix base;
    ht_stored_tensor stored; /* of files opened for this alone */
    ht_file *file[3];        /* its parts', or the one */
} table;

static size_t no_bytes(ht_weight_type type, int64_t n_rows, int64_t k) {
    (void)type, (void)n_rows, (void)k;
    return 0;
}

static ht_status read_row(const ht_matrix *m, int64_t row, float *out, ht_error *err) {
    const table *t = (const table *)m;
    ht_status status = HT_OK;
    for (int i = 0; !status && i < 3 && t->file[i]; i++) status = ht_file_unchanged(t->file[i], err);
    unsigned char stored[PIECE_BYTES], room[PIECE_BYTES];
    int64_t unit = ht_tensor_unit(&t->stored), piece = (int64_t)(PIECE_BYTES / ht_tensor_size(&t->stored, unit)) * unit;
    for (int64_t column = 0; !status && column < m->k; column += piece) {
        int64_t n = ht_min_i64(piece, m->k - column);
        status = ht_tensor_read(&t->stored, row * m->k + column, n, stored, room, err);
        if (!status) ht_dequantize(m->type, stored, n, out + column);
    }
    return status;
}

static const ht_matrix_ops ops = {.name = "rows in the file", .packed_bytes = no_bytes, .row = read_row};

ht_status ht_file_rows_new(const ht_stored_tensor *stored, ht_matrix **out, ht_error *err) {
    *out = NULL;
    table *t = calloc(1, sizeof *t);
    if (!t) return ht_fail_memory(err, sizeof *t, "a table");
    t->base =
        (ht_matrix){.ops = &ops, .type = (ht_weight_type)stored->type, .n_rows = stored->dims[0], .k = stored->dims[1]};
    t->stored = *stored;
    ht_status status = HT_OK;
    if (!stored->n_parts) {
        status = ht_file_share(stored->file, &t->file[0], err);
        t->stored.file = t->file[0];
    }
    for (int i = 0; !status && i < stored->n_parts; i++) {
        status = ht_file_share(stored->part[i].file, &t->file[i], err);
        t->stored.part[i].file = t->file[i];
    }
    if (status)
        ht_file_rows_free(&t->base);
    else
        *out = &t->base;
    return status;
}

void ht_file_rows_free(ht_matrix *m) {
    if (!m) return;
    for (int i = 0; i < 3; i++) ht_file_close(((table *)m)->file[i]);
    free(m);
}
