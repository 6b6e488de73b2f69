#include "cpu/pack.h"

#include "base/checked.h"
#include "cpu/pack_types.h"
#include "formats/blocks.h"

#include <string.h>

static size_t round_up_64(size_t n) { return (n + 63) & ~(size_t)63; }

static int64_t dense_columns(ht_weight_type type, int64_t k) { return type == HT_W_BF16 ? (k + 1) / 2 * 2 : k; }

static size_t panel_scales_at(ht_weight_type type, int64_t k) {
    return (size_t)(k / HT_QBLOCK) * 64 * (size_t)ht_panel_layout_of(type)->bits;
}

size_t ht_panel_bytes(ht_weight_type type, int64_t k) {
    const ht_panel_layout *l = ht_panel_layout_of(type);
    const ht_weight_type_info *info = ht_weight_type_info_of(type);
    if (l->unpacked) return (size_t)(k / info->block) * info->block_bytes * HT_PANEL;
    if (!l->bits) return round_up_64((size_t)dense_columns(type, k) * HT_PANEL * info->block_bytes);
    size_t groups = (size_t)(k / HT_QBLOCK / l->group);
    return round_up_64(panel_scales_at(type, k) + groups * (size_t)l->scale_bytes);
}

size_t ht_panels_bytes(ht_weight_type type, int64_t n_rows, int64_t k) {
    return (size_t)ht_panel_count(n_rows) * ht_panel_bytes(type, k);
}

/* ---- quantised panels ---- */

uint8_t ht_panel_weight(int bits, const uint8_t *unit, int j, int i) {
    if (bits == 8) return unit[64 * j + i];
    int q = 0, from = 0;
    if (bits >= 4) {
        q = unit[64 * (j & 3) + i] >> (j < 4 ? 0 : 4) & 15;
        unit += 256;
        from = 4;
    }
    if (bits - from >= 2) {
        q |= (unit[64 * (j / 4) + i] >> 2 * (j & 3) & 3) << from;
        unit += 128;
        from += 2;
    }
    if (bits > from) q |= (unit[i] >> j & 1) << from;
    return (uint8_t)q;
}

static void pack_quantised(ht_weight_type type, int64_t k, int n, const uint8_t *stored, size_t row_bytes,
                           uint8_t *panel) {
    static const uint8_t missing[sizeof(ht_block_q6_k)]; /* the longest */
    const ht_panel_layout *l = ht_panel_layout_of(type);
    const ht_weight_type_info *info = ht_weight_type_info_of(type);
    ht_pack_block_fn *pack_block = ht_pack_block_of(type);
    const ht_affine affine = ht_affine_of(type);
    uint8_t *scales = panel + panel_scales_at(type, k), *end = panel + ht_panel_bytes(type, k);
    const uint8_t *row[HT_PANEL];
    for (int r = 0; r < HT_PANEL; r++) row[r] = r < n ? stored + (size_t)r * row_bytes : missing;
    for (int64_t g = 0; g < k / info->block; g++, scales += l->scale_bytes) {
        if (affine.bits)
            ht_pack_affine(&affine, row, panel, scales);
        else
            pack_block(row, panel, scales);
        panel += 64 * l->bits * l->group;
        for (int r = 0; r < n; r++) row[r] += info->block_bytes;
    }
    memset(scales, 0, (size_t)(end - scales));
}

/* Stored block g of row r of a panel. */
static void unpack_block(ht_weight_type type, const uint8_t *panel, int64_t k, int r, int64_t g, void *block) {
    const ht_panel_layout *l = ht_panel_layout_of(type);
    const uint8_t *quants = panel + (size_t)(g * l->group) * 64 * (size_t)l->bits;
    const uint8_t *scales = panel + panel_scales_at(type, k) + (size_t)g * (size_t)l->scale_bytes;
    uint8_t q[HT_BLOCK_K];
    for (int b = 0; b < l->group; b++, quants += 64 * l->bits)
        for (int i = 0; i < HT_QBLOCK; i++)
            q[HT_QBLOCK * b + i] = ht_panel_weight(l->bits, quants, i / 4, 4 * r + i % 4);
    if (l->affine) {
        const ht_affine affine = ht_affine_of(type);
        ht_join_affine(&affine, q, block);
        ht_get_affine(&affine, scales, r, block);
    } else {
        ht_block_codec_of(type)->join(q, block);
        ht_block_codec_of(type)->get(scales, r, block);
    }
}

/* ---- panels of stored blocks ---- */

static uint8_t *stored_at(ht_weight_type type, uint8_t *panel, int r, int64_t g) {
    return panel + (size_t)(g * HT_PANEL + r) * ht_weight_type_info_of(type)->block_bytes;
}

static void pack_stored(ht_weight_type type, int64_t k, int n, const uint8_t *stored, size_t row_bytes,
                        uint8_t *panel) {
    const ht_weight_type_info *info = ht_weight_type_info_of(type);
    if (n < HT_PANEL) memset(panel, 0, ht_panel_bytes(type, k));
    for (int r = 0; r < n; r++)
        for (int64_t g = 0; g < k / info->block; g++)
            memcpy(stored_at(type, panel, r, g), stored + (size_t)r * row_bytes + (size_t)g * info->block_bytes,
                   info->block_bytes);
}

/* ---- dense panels ---- */

/* Place of element (r, column) in a panel, in elements. */
static size_t dense_at(ht_weight_type type, int r, int64_t column) {
    if (type == HT_W_BF16) return (size_t)(column / 2 * 2 * HT_PANEL + 2 * r + column % 2);
    return (size_t)(column * HT_PANEL + r);
}

static void pack_dense(ht_weight_type type, int64_t k, int n, const uint8_t *stored, size_t row_bytes, uint8_t *panel) {
    size_t bytes = ht_weight_type_info_of(type)->block_bytes;
    if (n < HT_PANEL || k % 4) memset(panel, 0, ht_panel_bytes(type, k));
    for (int r = 0; r < n; r++) {
        const uint8_t *from = stored + (size_t)r * row_bytes;
        if (bytes == 4)
            for (int64_t i = 0; i < k; i++) memcpy(panel + 4 * dense_at(type, r, i), from + 4 * i, 4);
        else if (bytes == 2)
            for (int64_t i = 0; i < k; i++) memcpy(panel + 2 * dense_at(type, r, i), from + 2 * i, 2);
        else
            for (int64_t i = 0; i < k; i++) panel[dense_at(type, r, i)] = from[i];
    }
}

/* ---- the table's functions ---- */

static uint8_t *panel_of(const ht_matrix *m, int64_t row) {
    return (uint8_t *)m->packed + (size_t)(row / HT_PANEL) * ht_panel_bytes(m->type, m->k);
}

ht_status ht_panels_pack(ht_matrix *m, int64_t row, int64_t n, const void *stored, ht_error *err) {
    (void)err;
    const ht_weight_type_info *info = ht_weight_type_info_of(m->type);
    size_t row_bytes = (size_t)(m->k / info->block) * info->block_bytes;
    const uint8_t *from = stored;
    for (int64_t done = 0; done < n; done += HT_PANEL, from += HT_PANEL * row_bytes) {
        int rows = (int)ht_min_i64(HT_PANEL, n - done);
        if (ht_panel_layout_of(m->type)->unpacked)
            pack_stored(m->type, m->k, rows, from, row_bytes, panel_of(m, row + done));
        else if (ht_panel_layout_of(m->type)->bits)
            pack_quantised(m->type, m->k, rows, from, row_bytes, panel_of(m, row + done));
        else
            pack_dense(m->type, m->k, rows, from, row_bytes, panel_of(m, row + done));
    }
    return HT_OK;
}

/* Stored block g of row r of a panel; of dense types, element g. */
static void get_block(ht_weight_type type, uint8_t *panel, int64_t k, int r, int64_t g, void *block) {
    const ht_panel_layout *l = ht_panel_layout_of(type);
    const ht_weight_type_info *info = ht_weight_type_info_of(type);
    if (l->unpacked)
        memcpy(block, stored_at(type, panel, r, g), info->block_bytes);
    else if (l->bits)
        unpack_block(type, panel, k, r, g, block);
    else
        memcpy(block, panel + info->block_bytes * dense_at(type, r, g), info->block_bytes);
}

ht_status ht_panels_row(const ht_matrix *m, int64_t row, float *out, ht_error *err) {
    (void)err;
    const ht_weight_type_info *info = ht_weight_type_info_of(m->type);
    for (int64_t g = 0; g < m->k / info->block; g++) {
        uint8_t block[sizeof(ht_block_q6_k)]; /* the longest */
        get_block(m->type, panel_of(m, row), m->k, (int)(row % HT_PANEL), g, block);
        ht_dequantize(m->type, block, info->block, out + g * info->block);
    }
    return HT_OK;
}
