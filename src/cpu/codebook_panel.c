#include "cpu/codebook_panel.h"

#include "formats/codebook.h"

#include <string.h>

/* Four columns of a row are a word of each register of the block. */
static void put_row(const ht_codebook_group *w, int halves, int r, int block, ht_qpanel *to) {
    for (int j = 0; j < 8; j++) memcpy(to->w[block] + 64 * j + 4 * r, w->q + 4 * j, 4);
    for (int h = 0; h < halves; h++) to->scale[halves * block + h][r] = w->scale[h];
}

void ht_codebook_panel(ht_weight_type type, const uint8_t *panel, int64_t k, int64_t block, int n, ht_qpanel *to) {
    (void)k;
    const ht_weight_type_info *info = ht_weight_type_info_of(type);
    const ht_codebook_fn *u = ht_codebook_of(type);
    const int group = info->block / HT_QBLOCK;
    const uint8_t *stored = panel + (size_t)(block / group) * HT_PANEL * info->block_bytes;
    for (int b = 0; b < n; b += group)
        for (int r = 0; r < HT_PANEL; r++, stored += info->block_bytes)
            for (int g = 0; g < group; g++) {
                ht_codebook_group w;
                u->unpack(stored, g, &w);
                put_row(&w, u->halves, r, b + g, to);
            }
}
