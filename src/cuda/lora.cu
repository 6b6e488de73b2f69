/* Adapters of a step: y + scale * B (A x). The order of a sum depends on the shape of its matrix alone. */
#include "cuda/kernel.cuh"
#include "cuda/lora.h"

enum { THREADS = HT_CUDA_LORA_THREADS, TILE = HT_CUDA_LORA_TILE, SLAB = HT_CUDA_LORA_SLAB };

/* ---- tables ---- */

static __device__ const ht_cuda_lora_run *runs_of(const ht_cuda_lora_arguments &a) {
    return (const ht_cuda_lora_run *)(a.table ? a.table : (const void *)a.own);
}
static __device__ const ht_cuda_lora_use *uses_of(const ht_cuda_lora_arguments &a) {
    return (const ht_cuda_lora_use *)(runs_of(a) + a.n_runs);
}

/* Items of a block. */
struct tile {
    ht_cuda_lora_run run;
    int64_t item; /* the first */
    int n;
};

static __device__ tile tile_at(const ht_cuda_lora_arguments &a, int64_t at) {
    const ht_cuda_lora_run *runs = runs_of(a);
    int low = 0, high = a.n_runs - 1; /* the last run that begins at `at` or before */
    while (low < high) {
        const int middle = low + (high - low + 1) / 2;
        if (runs[middle].tile <= at)
            low = middle;
        else
            high = middle - 1;
    }
    tile t;
    t.run = runs[low];
    t.item = t.run.item + (at - t.run.tile) * a.tile;
    const int64_t left = t.run.item + t.run.n - t.item;
    t.n = (int)(left < a.tile ? left : a.tile);
    return t;
}

static __device__ float *low_of(const ht_cuda_lora_arguments &a, const tile &t, int i) {
    return a.low + t.run.low + (t.item + i - t.run.item) * t.run.ranks;
}

/* The expert of the tile's only item; 0 for dense matrices, -1 if out of range. */
static __device__ int64_t expert_of(const ht_cuda_lora_arguments &a, const tile &t) {
    if (a.n_experts == 0) return 0;
    const int64_t row = t.item / a.per_row, i = t.item % a.per_row;
    const int64_t e = ((const int32_t *)a.ids.data)[row * a.ids.stride[0] + i * a.ids.stride[1]];
    return e >= 0 && e < a.n_experts ? e : -1;
}

/* ---- A x ---- */

static __device__ const float *x_of(const ht_cuda_lora_arguments &a, int64_t item) {
    const int64_t row = item / a.per_row, i = a.x.n_dims == 3 ? item % a.per_row : 0;
    return (const float *)a.x.data + row * a.x.stride[0] + i * a.x.stride[1];
}

/* Ranks of a block: `n` of use `use` from `rank` on. */
struct ranks {
    int use, rank, n;
};

static __device__ ranks ranks_at(const ht_cuda_lora_arguments &a, const tile &t, int at) {
    const ht_cuda_lora_use *uses = uses_of(a) + t.run.use;
    for (int i = 0; i < t.run.n_uses; i++) {
        const int blocks = (uses[i].rank + HT_CUDA_LORA_RANKS - 1) / HT_CUDA_LORA_RANKS;
        if (at < blocks) {
            const int left = uses[i].rank - at * HT_CUDA_LORA_RANKS;
            return {i, at * HT_CUDA_LORA_RANKS, left < HT_CUDA_LORA_RANKS ? left : HT_CUDA_LORA_RANKS};
        }
        at -= blocks;
    }
    return {0, 0, 0};
}

/* One block per tile (x) and group of ranks of one adapter (y): `width` threads for adjacent ranks, times slices that
 * each take every n-th column of x. */
HT_CUDA_KERNEL(ht_cuda_lora_down, ht_cuda_lora_arguments) {
    __shared__ float sums[TILE][THREADS];
    const tile t = tile_at(a, blockIdx.x);
    const ranks which = ranks_at(a, t, (int)blockIdx.y);
    const int64_t expert = expert_of(a, t);
    if (expert < 0 && blockIdx.y == 0 && threadIdx.x == 0)
        ht_report(
            a.report, HT_CUDA_EXPERT, t.item / a.per_row,
            ((const int32_t *)a.ids.data)[t.item / a.per_row * a.ids.stride[0] + t.item % a.per_row * a.ids.stride[1]],
            0, a.n_experts, 0);
    if (which.n == 0 || expert < 0) return;
    const ht_cuda_lora_use use = uses_of(a)[t.run.use + which.use];
    int width = 1;
    while (width < which.n) width *= 2;
    const int r = (int)threadIdx.x % width, slice = (int)threadIdx.x / width, n_slices = THREADS / width;
    const float *matrix = use.a + expert * use.a_step + which.rank + r;
    const int64_t step = a.x.stride[a.x.n_dims - 1];
    const float *x[TILE];
    float sum[TILE];
#pragma unroll
    for (int i = 0; i < TILE; i++) {
        x[i] = x_of(a, t.item + (i < t.n ? i : 0));
        sum[i] = 0.0f;
    }
    if (r < which.n)
        for (int64_t k = slice; k < a.n_in; k += n_slices) {
            const float m = matrix[k * use.rank];
#pragma unroll
            for (int i = 0; i < TILE; i++)
                if (i < t.n) sum[i] = fmaf(x[i][k * step], m, sum[i]);
        }
#pragma unroll
    for (int i = 0; i < TILE; i++) sums[i][threadIdx.x] = sum[i];
    __syncthreads();
    for (int at = (int)threadIdx.x; at < t.n * which.n; at += THREADS) {
        const int i = at / which.n, rank = at % which.n;
        float total = sums[i][rank];
        for (int s = 1; s < n_slices; s++) total += sums[i][s * width + rank];
        low_of(a, t, i)[use.low + which.rank + rank] = total * use.scale;
    }
}

/* ---- B ---- */

/* One block per tile (x) and as many columns of y as it has threads (y). */
HT_CUDA_KERNEL(ht_cuda_lora_up, ht_cuda_lora_arguments) {
    __shared__ float low[TILE][SLAB];
    const tile t = tile_at(a, blockIdx.x);
    const int64_t expert = expert_of(a, t);
    if (expert < 0) return;
    for (int64_t begin = (int64_t)blockIdx.y * THREADS; begin < a.n_out; begin += (int64_t)gridDim.y * THREADS) {
        const int64_t j = begin + threadIdx.x;
        float y[TILE];
#pragma unroll
        for (int i = 0; i < TILE; i++) y[i] = i < t.n && j < a.n_out ? a.y[(t.item + i) * a.n_out + j] : 0.0f;
        for (int u = 0; u < t.run.n_uses; u++) {
            const ht_cuda_lora_use use = uses_of(a)[t.run.use + u];
            for (int rank = 0; rank < use.rank; rank += SLAB) {
                const int n = use.rank - rank < SLAB ? use.rank - rank : SLAB;
                const float *b = use.b + expert * use.b_step + rank * use.b_row + j;
                __syncthreads();
                for (int at = (int)threadIdx.x; at < t.n * n; at += THREADS)
                    low[at / n][at % n] = low_of(a, t, at / n)[use.low + rank + at % n];
                __syncthreads();
                if (j >= a.n_out) continue;
                float sum[TILE] = {};
                for (int r = 0; r < n; r++) {
                    const float m = b[r * use.b_row];
#pragma unroll
                    for (int i = 0; i < TILE; i++) sum[i] = fmaf(low[i][r], m, sum[i]);
                }
#pragma unroll
                for (int i = 0; i < TILE; i++) y[i] += sum[i];
            }
        }
#pragma unroll
        for (int i = 0; i < TILE; i++)
            if (i < t.n && j < a.n_out) a.y[(t.item + i) * a.n_out + j] = y[i];
    }
}
