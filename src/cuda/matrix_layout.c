#include "cuda/matrix_layout.h"

#include "formats/affine.h"
#include "formats/blocks.h"

#include <string.h>

enum { ALIGN = 16, MOST_PERCENT = 103 /* of the file's bytes */ };

static ht_cuda_form wanted_form(ht_weight_type type) {
    const ht_affine affine = ht_affine_of(type);
    if (affine.bits && affine.scale_bytes == 2)
        return affine.bits == 4 ? HT_CUDA_MLX4 : affine.bits == 8 ? HT_CUDA_MLX8 : HT_CUDA_STORED;
    switch (type) {
    case HT_W_F32: return HT_CUDA_F32;
    case HT_W_F16: return HT_CUDA_F16;
    case HT_W_BF16: return HT_CUDA_BF16;
    case HT_W_F8_E4M3:
    case HT_W_F8_E5M2: return HT_CUDA_F8;
    case HT_W_Q4_0: return HT_CUDA_Q4_0;
    case HT_W_Q8_0: return HT_CUDA_Q8_0;
    case HT_W_Q4_K: return HT_CUDA_Q4_K;
    case HT_W_Q6_K: return HT_CUDA_Q6_K;
    default: return HT_CUDA_STORED;
    }
}

int ht_cuda_cycles_of(ht_cuda_form form) {
    switch (form) {
    case HT_CUDA_Q4_0:
    case HT_CUDA_Q4_K:
    case HT_CUDA_Q6_K:
    case HT_CUDA_MLX4: return 4;
    case HT_CUDA_Q8_0:
    case HT_CUDA_MLX8: return 2;
    default: return 1;
    }
}

ht_cuda_layout ht_cuda_layout_of(ht_weight_type type, int64_t k) {
    const ht_weight_type_info *info = ht_weight_type_info_of(type);
    const int64_t stored = k / info->block * (int64_t)info->block_bytes, padded = (stored + ALIGN - 1) / ALIGN * ALIGN;
    ht_cuda_layout l = {.form = wanted_form(type), .row_bytes = stored, .stored_bytes = stored};
    const int64_t span = ht_cuda_cycles_of(l.form) * HT_CUDA_CYCLE;
    if (l.form == HT_CUDA_STORED) return l;
    if (l.form <= HT_CUDA_F8) { /* whose rows may begin anywhere */
        if (padded == stored) l.whole = k / span * span;
        return l;
    }
    if (padded * 100 > stored * MOST_PERCENT) {
        l.form = HT_CUDA_STORED;
        return l;
    }
    l.row_bytes = padded;
    l.whole = k / span * span;
    return l;
}

/* ---- the way between the two ---- */

typedef struct row {
    uint8_t *stored, *packed;
    int64_t k, whole;
    int cycles;
    bool packs; /* from stored to packed */
} row;

static void move(const row *r, void *stored, void *packed, size_t bytes) {
    if (r->packs)
        memcpy(packed, stored, bytes);
    else
        memcpy(stored, packed, bytes);
}

/* As ht_place_of and ht_scale_place_of of cuda/matrix_values.cuh. */
static int64_t place_of(const row *r, int64_t g) {
    const int64_t span = 8 * r->cycles;
    return g >= r->whole / 8 ? g : g / span * span + g % 8 * r->cycles + g / 8 % r->cycles;
}
static int64_t scale_place_of(const row *r, int64_t s) {
    const int64_t span = 2 * r->cycles;
    return s >= r->whole / 32 ? s : s / span * span + s % 2 * r->cycles + s / 2 % r->cycles;
}

/* Bits [shift, shift + bits) of a stored byte, and bits [at, at + bits) of the packed ones; the bits of the target are 0. */
static void move_bits(const row *r, uint8_t *stored, int shift, uint8_t *packed, int at, int bits) {
    const int mask = (1 << bits) - 1;
    if (r->packs)
        packed[at / 8] |= (uint8_t)((*stored >> shift & mask) << at % 8);
    else
        *stored |= (uint8_t)((packed[at / 8] >> at % 8 & mask) << shift);
}

/* Part g, whose numbers are nibbles of eight bytes from `stored` on. */
static void move_nibbles(const row *r, uint8_t *stored, int shift, int64_t g) {
    uint8_t *at = r->packed + 4 * place_of(r, g);
    uint32_t word = 0;
    if (!r->packs) memcpy(&word, at, sizeof word);
    for (int i = 0; i < 8; i++)
        if (r->packs)
            word |= (uint32_t)(stored[i] >> shift & 15) << 4 * i;
        else
            stored[i] |= (uint8_t)((word >> 4 * i & 15) << shift);
    if (r->packs) memcpy(at, &word, sizeof word);
}

static void move_q4_0(const row *r) {
    for (int64_t g = 0; g < r->k / 8; g++) {
        ht_block_q4_0 *b = (ht_block_q4_0 *)(void *)r->stored + g / 4;
        move_nibbles(r, b->qs + 8 * (g & 1), g & 2 ? 4 : 0, g);
        if (g % 4 == 0) move(r, &b->d, r->packed + r->k / 2 + 2 * scale_place_of(r, g / 4), 2);
    }
}

static void move_q8_0(const row *r) {
    for (int64_t g = 0; g < r->k / 8; g++) {
        ht_block_q8_0 *b = (ht_block_q8_0 *)(void *)r->stored + g / 4;
        move(r, b->qs + 8 * (g % 4), r->packed + 8 * place_of(r, g), 8);
        if (g % 4 == 0) move(r, &b->d, r->packed + r->k + 2 * scale_place_of(r, g / 4), 2);
    }
}

static void move_q4_k(const row *r) {
    for (int64_t g = 0; g < r->k / 8; g++) {
        ht_block_q4_k *b = (ht_block_q4_k *)(void *)r->stored + g / 32;
        const int64_t in = g % 32;
        move_nibbles(r, b->qs + 32 * (in / 8) + 8 * (in % 4), in & 4 ? 4 : 0, g);
        if (in == 0) move(r, b, r->packed + r->k / 2 + g / 32 * 16, 16); /* d, dmin, scales */
    }
}

static void move_q6_k(const row *r) {
    uint8_t *high = r->packed + r->k / 2, *scales = high + r->k / 4, *d = scales + r->k / 16;
    for (int64_t g = 0; g < r->k / 8; g++) {
        const int64_t block = g / 32, in = g % 32, half = in / 16, s = in / 4 % 4, lane = in % 8, c = in / 8;
        ht_block_q6_k *b = (ht_block_q6_k *)(void *)r->stored + block;
        move_nibbles(r, b->ql + 64 * half + 32 * (s & 1) + 8 * (in % 4), s < 2 ? 0 : 4, g);
        uint8_t *word = high + (block * 16 + lane * 2 + c / 2) * 4;
        for (int i = 0; i < 8; i++)
            move_bits(r, b->qh + 32 * half + 8 * (in % 4) + i, (int)(2 * s), word,
                      8 * (i / 2) + (int)(4 * (c & 1)) + 2 * (i & 1), 2);
        if (in % 2 == 0) move(r, b->scales + in / 2, scales + block * 16 + lane / 2 * 4 + c, 1);
        if (in == 0) move(r, &b->d, d + 2 * block, 2);
    }
}

/* Groups with numbers of 4 or 8 bits, and scale and bias of 2 bytes each. */
static void move_affine(const row *r, int bits, int group) {
    const int64_t block = 4 + group * bits / 8;
    for (int64_t g = 0; g < r->k / 8; g++) {
        const int64_t n = 8 * g / group, in = 8 * g % group;
        uint8_t *b = r->stored + n * block;
        move(r, b + 4 + in * bits / 8, r->packed + bits * place_of(r, g), (size_t)bits);
        if (in == 0) move(r, b, r->packed + r->k * bits / 8 + 4 * n, 4);
    }
}

static void move_row(ht_weight_type type, const ht_cuda_layout *l, const row *r) {
    switch (l->form) {
    case HT_CUDA_Q4_0: move_q4_0(r); return;
    case HT_CUDA_Q8_0: move_q8_0(r); return;
    case HT_CUDA_Q4_K: move_q4_k(r); return;
    case HT_CUDA_Q6_K: move_q6_k(r); return;
    default: {
        const ht_affine a = ht_affine_of(type);
        move_affine(r, a.bits, a.group);
    }
    }
}

void ht_cuda_lay_out_row(ht_weight_type type, const ht_cuda_layout *l, int64_t k, const void *stored, void *packed) {
    const row r = {(uint8_t *)(uintptr_t)stored, packed, k, l->whole,
                   ht_cuda_cycles_of(l->form),   true}; /* which is only read */
    move_row(type, l, &r);
}

void ht_cuda_restore_row(ht_weight_type type, const ht_cuda_layout *l, int64_t k, const void *packed, void *stored) {
    const row r = {stored, (uint8_t *)(uintptr_t)packed, k, l->whole, ht_cuda_cycles_of(l->form), false}; /* likewise */
    memset(stored, 0, (size_t)l->stored_bytes);
    move_row(type, l, &r);
}
