/* A safetensors checkpoint: config.json, a NUL, and the header of model.safetensors. What is accepted has tensors whose
 * values can be read, whole and row by row: plain ones, those that MLX's parts are joined to, 8-bit floats with scales. */
#include "checkpoint/scheme.h"
#include "files.h"
#include "models/pack.h"
#include "models/weights.h"

#include <hearth/hearth.h>

#include <stdlib.h>
#include <string.h>

/* With its scales, if they are found: then there is one for each part. Of several matrices in one tensor the last one is
 * read, and its second half. */
static void read_scaled(const ht_checkpoint_files *c, const char *name, const ht_stored_tensor *t) {
    ht_fp8_scales scales;
    ht_error err = {0};
    if (t->n_dims != 2 && t->n_dims != 3) return;
    int64_t n = t->n_dims == 3 ? t->dims[0] : 0, rows = t->dims[t->n_dims - 2], k = t->dims[t->n_dims - 1];
    ht_status status = ht_fp8_scales_find(c, name, n, rows, k, &scales, &err);
    check(!status || (err.status == status && err.message[0]));
    if (status || !scales.any) return;
    check(scales.rows >= 1 && scales.columns >= 1 && scales.n_rows == rows);
    check(scales.per_row >= (k + scales.columns - 1) / scales.columns);
    for (int half = 0; half < 2; half++) {
        int64_t row = half * (rows / 2);
        ht_block_scales m;
        status = ht_fp8_scales_read(&scales, n ? n - 1 : 0, row, rows - row, &m, &err);
        check(!status || (err.status == status && err.message[0] && !m.values));
        check(status || (m.rows >= 1 && m.columns == scales.columns && m.per_row == scales.per_row));
        check(status || m.n == (rows - row + m.rows - 1) / m.rows * m.per_row);
        float sum = 0;
        for (int64_t i = 0; i < m.n; i++) sum += m.values[i];
        check(sum == sum);
        free(m.values);
    }
}

static void read_values(const ht_checkpoint_files *c, const ht_stored_tensor *t) {
    int64_t n = 1, k = t->n_dims ? t->dims[t->n_dims - 1] : 1;
    for (int d = 0; d < t->n_dims; d++) n *= t->dims[d];
    if (t->type < 0 || n < 1) return;
    check((size_t)n <= 8 * (size_t)FILES_DATA_MAX && ht_tensor_size(t, n) == t->n_bytes && k % ht_tensor_unit(t) == 0);
    float *values = malloc(2 * (size_t)n * sizeof *values), *row = values + n;
    if (!values) return;
    ht_error err = {0};
    check(ht_tensor_read_f32(t, n, values, &err) == HT_OK);
    for (int64_t r = 0; t->n_dims >= 2 && r < n / k; r++) {
        ht_stored_tensor one = ht_tensor_rows(t, r, 1);
        check(one.n_dims == 2 && one.dims[0] == 1 && one.dims[1] == k);
        check(ht_tensor_read_f32(&one, k, row + r * k, &err) == HT_OK);
    }
    check(t->n_dims < 2 || !memcmp(values, row, (size_t)n * sizeof *values));
    free(values);
    char name[256];
    if (t->name_len >= sizeof name || !ht_weight_is_f8((ht_weight_type)t->type)) return;
    memcpy(name, t->name, t->name_len);
    name[t->name_len] = 0;
    read_scaled(c, name, t);
}

static void use(const ht_checkpoint_files *c) {
    static ht_config config;
    static ht_device *device;
    ht_error err = {0};
    size_t stored = 0, told = 0, bytes;
    for (size_t i = 0; i < ht_checkpoint_n_tensors(c); i++) {
        ht_stored_tensor t;
        ht_checkpoint_tensor_at(c, i, &t);
        check(t.number == i && t.n_dims <= HT_SAFETENSORS_RANK_MAX && t.type_name && t.type_name[0]);
        stored += ht_safetensors_at(c->tensors, i)->n_bytes;
        told += t.n_bytes;
        read_values(c, &t);
    }
    check(told <= stored); /* some parts may belong to two weights or to none */
    if (ht_checkpoint_config(c, &config, &err)) return;
    ht_device_options how;
    ht_device_options_init(&how, sizeof how);
    how.n_threads = 1;
    if (!device) check(ht_device_open("cpu", &how, &device, &err) == HT_OK);
    ht_status status = ht_weights_measure(c, &config, device, HT_PRECISION_HIGH, &bytes, &err);
    check(!status || (err.status == status && err.message[0]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *directory = files_begin();
    size_t n;
    const uint8_t *config = files_part(&data, &size, &n);
    files_write("config.json", config, n);
    files_write_safetensors("model.safetensors", data, size);
    ht_checkpoint_files *c;
    ht_error err = {0};
    ht_status status = ht_checkpoint_open(directory, &c, &err);
    if (refused(status, &err, c)) return 0;
    use(c);
    ht_checkpoint_close(c);
    return 0;
}
