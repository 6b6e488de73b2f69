/* Codebook panels: stored blocks to decoded panels, for types that are unpacked (formats/codebook.h). */
#ifndef HT_CPU_CODEBOOK_PANEL_H
#define HT_CPU_CODEBOOK_PANEL_H

#include "cpu/matrix_kernels.h"

/* Blocks [block, block + n) of 32 columns of a panel; both multiples of the layout's group. */
void ht_codebook_panel(ht_weight_type type, const uint8_t *panel, int64_t k, int64_t block, int n, ht_qpanel *to);

#endif
