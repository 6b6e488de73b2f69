/* The form of KV pages on a GPU, for C and for CUDA C.
 *
 * A chunk is 16 bytes of a vector (8 in 8-bit pages), and one load of a thread; the last one is filled up with zeros.
 *   K [n_kv_heads][chunks][256 keys][chunk]   a thread takes a key, and the threads of a warp load adjacent chunks
 *   V [n_kv_heads][256 keys][chunks][chunk]   a thread takes a chunk, of all keys or of some
 *
 * 8-bit pages also hold the bf16 scales of all blocks of 32 dimensions:
 *   K [n_kv_heads][blocks][256 keys]
 *   V [n_kv_heads][256 keys][blocks]
 *
 * Pages of keys alone hold K; V is the same memory with K's strides. */
#ifndef HT_CUDA_PAGE_H
#define HT_CUDA_PAGE_H

#include "cuda/fault.h"

enum { HT_CUDA_KEYS = 256 /* of a page */, HT_CUDA_QUANTISED = 32 /* dimensions that share a scale */ };

typedef struct ht_cuda_page_form {
    ht_dtype dtype;
    int32_t n_kv_heads, head_dim;
    int32_t chunk, chunk_bytes;  /* dimensions and bytes of a chunk */
    int32_t chunks, blocks;      /* of a vector */
    int64_t head_bytes;          /* of the keys of a head, and of its values */
    int64_t v, k_scale, v_scale; /* bytes from the beginning of a page */
    /* Strides of V: bytes between keys and between chunks, scales between keys and between blocks. */
    int32_t v_key, v_chunk, v_scale_key, v_scale_block;
    bool keys_only;
} ht_cuda_page_form;

/* Bytes from the beginning of a page to chunk c of a key and of a value. */
HT_CUDA_BOTH int64_t ht_cuda_k_chunk(const ht_cuda_page_form *f, int64_t head, int64_t key, int64_t c) {
    return head * f->head_bytes + (c * HT_CUDA_KEYS + key) * f->chunk_bytes;
}
HT_CUDA_BOTH int64_t ht_cuda_v_chunk(const ht_cuda_page_form *f, int64_t head, int64_t key, int64_t c) {
    return f->v + head * f->head_bytes + key * f->v_key + c * f->v_chunk;
}
/* And to the scale of block b. */
HT_CUDA_BOTH int64_t ht_cuda_k_scale(const ht_cuda_page_form *f, int64_t head, int64_t key, int64_t b) {
    return f->k_scale + 2 * ((head * f->blocks + b) * HT_CUDA_KEYS + key);
}
HT_CUDA_BOTH int64_t ht_cuda_v_scale(const ht_cuda_page_form *f, int64_t head, int64_t key, int64_t b) {
    return f->v_scale + 2 * (head * HT_CUDA_KEYS * f->blocks + key * f->v_scale_key + b * f->v_scale_block);
}

#endif
