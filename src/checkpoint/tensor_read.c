#include "checkpoint/tensor_read.h"

#include "base/error.h"
#include "formats/blocks.h"

#include <stdlib.h>
#include <string.h>

int64_t ht_tensor_unit(const ht_stored_tensor *t) {
    return t->n_parts ? t->unit : ht_weight_type_info_of((ht_weight_type)t->type)->block;
}

size_t ht_tensor_size(const ht_stored_tensor *t, int64_t n) {
    const ht_weight_type_info *info = ht_weight_type_info_of((ht_weight_type)t->type);
    return (size_t)(n / info->block) * info->block_bytes;
}

size_t ht_tensor_read_scratch(const ht_stored_tensor *t, int64_t n) {
    size_t bytes = 0;
    for (int i = 0; i < t->n_parts; i++) bytes += (size_t)(n / t->unit) * t->part[i].unit_bytes;
    return bytes;
}

/* ---- joining: components of one unit to blocks ---- */

/* 4-bit q of column i. */
static int code_at(const uint8_t *numbers, int i) { return numbers[i / 2] >> 4 * (i & 1) & 15; }

static void join_mxfp4(const uint8_t *numbers, const uint8_t *scale, ht_block_mxfp4 *out) {
    out->e = *scale;
    for (int i = 0; i < 16; i++) out->qs[i] = (uint8_t)(code_at(numbers, i) | code_at(numbers, i + 16) << 4);
}

/* NVFP4 blocks have unsigned scales: a negative scale flips the sign of its q. */
static void join_nvfp4(const uint8_t *numbers, const uint8_t *scales, ht_block_nvfp4 *out) {
    for (int g = 0; g < 4; g++, numbers += 8) {
        int sign = scales[g] >> 7 ? 0x88 : 0;
        out->d[g] = scales[g] & 127;
        for (int i = 0; i < 8; i++)
            out->qs[8 * g + i] = (uint8_t)((code_at(numbers, i) | code_at(numbers, i + 8) << 4) ^ sign);
    }
}

static void join_affine(const uint8_t *const part[3], const ht_stored_tensor *t, uint8_t *out) {
    size_t n = t->part[1].unit_bytes;
    memcpy(out, part[1], n);
    memcpy(out + n, part[2], n);
    memcpy(out + 2 * n, part[0], t->part[0].unit_bytes);
}

static void join(const ht_stored_tensor *t, const uint8_t *part[3], int64_t n_units, uint8_t *out) {
    size_t bytes = ht_tensor_size(t, t->unit);
    for (int64_t u = 0; u < n_units; u++, out += bytes) {
        switch (t->type) {
        case HT_W_MXFP4: join_mxfp4(part[0], part[1], (void *)out); break;
        case HT_W_NVFP4: join_nvfp4(part[0], part[1], (void *)out); break;
        default: join_affine(part, t, out); break;
        }
        for (int i = 0; i < t->n_parts; i++) part[i] += t->part[i].unit_bytes;
    }
}

ht_status ht_tensor_read(const ht_stored_tensor *t, int64_t first, int64_t n, void *out, void *scratch, ht_error *err) {
    if (!t->n_parts)
        return ht_file_read_at(t->file, t->offset + ht_tensor_size(t, first), out, ht_tensor_size(t, n), err);
    const uint8_t *part[3] = {0};
    uint8_t *at = scratch;
    ht_status status = HT_OK;
    for (int i = 0; !status && i < t->n_parts; i++) {
        const ht_tensor_part *p = &t->part[i];
        size_t bytes = (size_t)(n / t->unit) * p->unit_bytes;
        status = ht_file_read_at(p->file, p->offset + (size_t)(first / t->unit) * p->unit_bytes, at, bytes, err);
        part[i] = at;
        at += bytes;
    }
    if (!status) join(t, part, n / t->unit, out);
    return status;
}

ht_stored_tensor ht_tensor_rows(const ht_stored_tensor *t, int64_t first, int64_t n) {
    ht_stored_tensor rows = *t;
    int64_t k = t->dims[t->n_dims - 1];
    rows.n_dims = 2;
    rows.dims[0] = n;
    rows.dims[1] = k;
    rows.n_bytes = ht_tensor_size(t, n * k);
    if (!t->n_parts) rows.offset += ht_tensor_size(t, first * k);
    for (int i = 0; i < t->n_parts; i++) rows.part[i].offset += (size_t)(first * k / t->unit) * t->part[i].unit_bytes;
    return rows;
}

ht_status ht_tensor_read_f32(const ht_stored_tensor *t, int64_t n, float *out, ht_error *err) {
    size_t n_bytes = ht_tensor_size(t, n) + ht_tensor_read_scratch(t, n);
    unsigned char *bytes = malloc(n_bytes ? n_bytes : 1);
    if (!bytes) return ht_fail_memory(err, n_bytes, "reading weights");
    ht_status status = ht_tensor_read(t, 0, n, bytes, bytes + ht_tensor_size(t, n), err);
    if (!status) ht_dequantize((ht_weight_type)t->type, bytes, n, out);
    free(bytes);
    return status;
}
