/* Layout of the rows of packed weights, which cuda/matrix_values.cuh reads. It is the file's, or has the integers apart
 * from their scales if padding rows to 16 bytes hardly lengthens them. Rows are laid out and restored block by block;
 * blocks share no byte. For C and for CUDA C. */
#ifndef HT_CUDA_MATRIX_LAYOUT_H
#define HT_CUDA_MATRIX_LAYOUT_H

#include "cuda/matrix.h"
#include "formats/blocks.h"

#include <string.h>

/* X(module, kernel) */
#define HT_CUDA_KERNELS_OF_MATRIX_LAYOUT(X) X(matrix_layout, ht_cuda_lay_out)

typedef struct ht_cuda_row {
    uint8_t *stored, *packed;
    int64_t k, whole;
    int32_t form, cycles;
    int32_t bits, group; /* affine groups; else 0 */
    bool packs;          /* from stored to packed */
} ht_cuda_row;

/* Rows at distances of stored_bytes and row_bytes, the latter filled with zeros. */
typedef struct ht_cuda_lay_out_arguments {
    ht_cuda_row first;
    int64_t n, stored_bytes, row_bytes;
} ht_cuda_lay_out_arguments;

/* Columns of a block. */
HT_CUDA_BOTH int64_t ht_cuda_block_of(const ht_cuda_row *r) {
    switch (r->form) {
    case HT_CUDA_Q4_0:
    case HT_CUDA_Q8_0: return 32;
    case HT_CUDA_Q4_K:
    case HT_CUDA_Q6_K: return 256;
    default: return r->group;
    }
}

HT_CUDA_BOTH void ht_move_bytes(const ht_cuda_row *r, void *stored, void *packed, size_t bytes) {
    if (r->packs)
        memcpy(packed, stored, bytes);
    else
        memcpy(stored, packed, bytes);
}

HT_CUDA_BOTH int64_t ht_move_place(const ht_cuda_row *r, int64_t g) { return ht_place_of(g, r->cycles, r->whole / 8); }
HT_CUDA_BOTH int64_t ht_move_scale_place(const ht_cuda_row *r, int64_t s) {
    return ht_scale_place_of(s, r->cycles, r->whole / 32);
}

/* Bits [shift, shift + bits) of a stored byte, and bits [at, at + bits) of the packed ones; the bits of the target are 0. */
HT_CUDA_BOTH void ht_move_bits(const ht_cuda_row *r, uint8_t *stored, int shift, uint8_t *packed, int at, int bits) {
    const int mask = (1 << bits) - 1;
    if (r->packs)
        packed[at / 8] |= (uint8_t)((*stored >> shift & mask) << at % 8);
    else
        *stored |= (uint8_t)((packed[at / 8] >> at % 8 & mask) << shift);
}

/* Part g, whose numbers are nibbles of eight bytes from `stored` on. */
HT_CUDA_BOTH void ht_move_nibbles(const ht_cuda_row *r, uint8_t *stored, int shift, int64_t g) {
    uint8_t *at = r->packed + 4 * ht_move_place(r, g);
    uint32_t word = 0;
    if (!r->packs) memcpy(&word, at, sizeof word);
    for (int i = 0; i < 8; i++)
        if (r->packs)
            word |= (uint32_t)(stored[i] >> shift & 15) << 4 * i;
        else
            stored[i] |= (uint8_t)((word >> 4 * i & 15) << shift);
    if (r->packs) memcpy(at, &word, sizeof word);
}

HT_CUDA_BOTH void ht_move_q4_0(const ht_cuda_row *r, int64_t block) {
    ht_block_q4_0 *b = (ht_block_q4_0 *)(void *)r->stored + block;
    for (int i = 0; i < 4; i++) ht_move_nibbles(r, b->qs + 8 * (i & 1), i & 2 ? 4 : 0, 4 * block + i);
    ht_move_bytes(r, &b->d, r->packed + r->k / 2 + 2 * ht_move_scale_place(r, block), 2);
}

HT_CUDA_BOTH void ht_move_q8_0(const ht_cuda_row *r, int64_t block) {
    ht_block_q8_0 *b = (ht_block_q8_0 *)(void *)r->stored + block;
    for (int i = 0; i < 4; i++) ht_move_bytes(r, b->qs + 8 * i, r->packed + 8 * ht_move_place(r, 4 * block + i), 8);
    ht_move_bytes(r, &b->d, r->packed + r->k + 2 * ht_move_scale_place(r, block), 2);
}

HT_CUDA_BOTH void ht_move_q4_k(const ht_cuda_row *r, int64_t block) {
    ht_block_q4_k *b = (ht_block_q4_k *)(void *)r->stored + block;
    for (int i = 0; i < 32; i++) ht_move_nibbles(r, b->qs + 32 * (i / 8) + 8 * (i % 4), i & 4 ? 4 : 0, 32 * block + i);
    ht_move_bytes(r, b, r->packed + r->k / 2 + block * 16, 16); /* d, dmin, scales */
}

HT_CUDA_BOTH void ht_move_q6_k(const ht_cuda_row *r, int64_t block) {
    uint8_t *high = r->packed + r->k / 2, *scales = high + r->k / 4, *d = scales + r->k / 16;
    ht_block_q6_k *b = (ht_block_q6_k *)(void *)r->stored + block;
    for (int i = 0; i < 32; i++) {
        const int half = i / 16, s = i / 4 % 4, lane = i % 8, c = i / 8;
        ht_move_nibbles(r, b->ql + 64 * half + 32 * (s & 1) + 8 * (i % 4), s < 2 ? 0 : 4, 32 * block + i);
        uint8_t *word = high + (block * 16 + lane * 2 + c / 2) * 4;
        for (int j = 0; j < 8; j++)
            ht_move_bits(r, b->qh + 32 * half + 8 * (i % 4) + j, 2 * s, word, 8 * (j / 2) + 4 * (c & 1) + 2 * (j & 1),
                         2);
        if (i % 2 == 0) ht_move_bytes(r, b->scales + i / 2, scales + block * 16 + lane / 2 * 4 + c, 1);
    }
    ht_move_bytes(r, &b->d, d + 2 * block, 2);
}

/* Groups with numbers of 4 or 8 bits, and scale and bias of 2 bytes each. */
HT_CUDA_BOTH void ht_move_affine(const ht_cuda_row *r, int64_t n) {
    uint8_t *b = r->stored + n * (4 + r->group * r->bits / 8);
    for (int i = 0; i < r->group / 8; i++)
        ht_move_bytes(r, b + 4 + i * r->bits, r->packed + r->bits * ht_move_place(r, n * r->group / 8 + i),
                      (size_t)r->bits);
    ht_move_bytes(r, b, r->packed + r->k * r->bits / 8 + 4 * n, 4);
}

/* One block, whose target has been filled with zeros. */
HT_CUDA_BOTH void ht_cuda_move_block(const ht_cuda_row *r, int64_t block) {
    switch (r->form) {
    case HT_CUDA_Q4_0: ht_move_q4_0(r, block); return;
    case HT_CUDA_Q8_0: ht_move_q8_0(r, block); return;
    case HT_CUDA_Q4_K: ht_move_q4_k(r, block); return;
    case HT_CUDA_Q6_K: ht_move_q6_k(r, block); return;
    default: ht_move_affine(r, block);
    }
}

#endif
