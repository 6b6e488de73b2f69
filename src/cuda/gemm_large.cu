/* Products of many rows, from two swizzled operands (cuda/tensor_product.h). */
#include "cuda/cluster.cuh"
#include "cuda/tensor_product.h"

enum { ROWS = HT_CUDA_WIDE_ROWS, TOKENS = HT_CUDA_WIDE_TOKENS, STAGES = HT_CUDA_WIDE_STAGES };

/* Position of a tile. */
typedef struct ht_wide_tile {
    int64_t of_weights, of_x; /* rows of the swizzled operands */
    int64_t row, token;       /* of the result; with experts, `token` is also a row of x */
    int64_t n;                /* tokens from there on */
} ht_wide_tile;

/* Number of tiles of `rows` rows of the matrix and `tokens` rows of x. */
template <bool EXPERTS>
static __device__ __forceinline__ int64_t ht_tiles_of(const ht_cuda_gemm_large_arguments &a, int64_t rows,
                                                      int64_t tokens) {
    if (EXPERTS) return (a.tile_begin[a.first + a.n] - a.tile_begin[a.first]) * (a.rows_each / rows);
    return a.rows_padded / rows * ((a.n + tokens - 1) / tokens);
}

/* Adjacent tiles share rows of the matrix, or pairs of an expert. */
template <bool EXPERTS>
static __device__ __forceinline__ ht_wide_tile ht_tile_at(const ht_cuda_gemm_large_arguments &a, int64_t rows,
                                                          int64_t tokens, int64_t i) {
    ht_wide_tile t;
    if (EXPERTS) {
        const int64_t each = a.rows_each / rows;
        const ht_cuda_expert_tile of = a.tiles[a.tile_begin[a.first] + i / each];
        t.row = i % each * rows;
        t.of_weights = (of.expert - a.first) * a.rows_each + t.row;
        t.of_x = t.token = of.begin;
        t.n = of.n;
        return t;
    }
    const int64_t across = (a.n + tokens - 1) / tokens;
    t.of_weights = t.row = i / across * rows;
    t.of_x = t.token = i % across * tokens;
    t.n = a.n - t.token;
    return t;
}

static __device__ __forceinline__ int64_t ht_row_of_y(const ht_cuda_gemm_large_arguments &a, bool experts,
                                                      int64_t token) {
    return experts ? a.order[token] : token;
}

/* ---- with mma, on any tensor cores: a warp computes 16 rows of the matrix times 64 of x ---- */

enum { MMA_WARPS = 4, MMA_TOKENS = 64 };

template <bool EXPERTS>
static __device__ __forceinline__ void ht_wide_mma(const ht_cuda_gemm_large_arguments &a, int64_t i) {
    enum {
        N = MMA_TOKENS / 8,
        MMA_ROWS = MMA_WARPS * HT_CUDA_PANEL,
        PARTS = TOKENS / MMA_TOKENS /* of an expert's tile */
    };
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, warp = threadIdx.x >> 5;
    ht_wide_tile at = ht_tile_at<EXPERTS>(a, MMA_ROWS, MMA_TOKENS, EXPERTS ? i / PARTS : i);
    if (EXPERTS) {
        at.of_x += i % PARTS * MMA_TOKENS, at.token += i % PARTS * MMA_TOKENS, at.n -= i % PARTS * MMA_TOKENS;
        if (at.n <= 0) return;
    }
    const int64_t row = at.of_weights + warp * HT_CUDA_PANEL;
    const int64_t w_groups = a.rows_padded / 8, x_groups = a.x.n_padded / 8;
    float total[N][4] = {};
    for (int s = 0; s < HT_CUDA_SEGMENTS; s++) {
        float sum[N][4] = {};
        for (int64_t cut = a.segment_k_tiles[s]; cut < a.segment_k_tiles[s + 1]; cut++)
#pragma unroll
            for (int step = 0; step < 4; step++) {
                const int64_t place = g * 128 + (((step * 2 + t / 2) ^ g) * 16) + (t & 1) * 8;
                const unsigned char *w = a.weights + (cut * w_groups + row / 8) * HT_CUDA_K_TILE_BYTES + place;
                const unsigned char *x = a.x.rows + (cut * x_groups + at.of_x / 8) * HT_CUDA_K_TILE_BYTES + place;
                const uint2 low = *(const uint2 *)w, high = *(const uint2 *)(w + HT_CUDA_K_TILE_BYTES);
                const uint32_t of_w[4] = {low.x, high.x, low.y, high.y};
#pragma unroll
                for (int j = 0; j < N; j++) {
                    const uint2 b = *(const uint2 *)(x + j * HT_CUDA_K_TILE_BYTES);
                    const uint32_t of_x[2] = {b.x, b.y};
                    ht_mma(sum[j], of_w, of_x);
                }
            }
#pragma unroll
        for (int j = 0; j < N; j++)
#pragma unroll
            for (int v = 0; v < 4; v++) total[j][v] += sum[j][v];
    }
    if (at.row + warp * HT_CUDA_PANEL >= a.n_rows) return;
    const float factor = a.factors[(EXPERTS ? row : a.first + row) / HT_CUDA_FACTOR_ROWS];
    if (EXPERTS && factor == 0.0f) return;
#pragma unroll
    for (int j = 0; j < N; j++)
#pragma unroll
        for (int v = 0; v < 4; v++) {
            const int64_t of_row = at.row + warp * HT_CUDA_PANEL + (v >> 1) * 8 + g, token = j * 8 + 2 * t + (v & 1);
            if (of_row >= a.n_rows || token >= at.n) continue;
            const int64_t to = EXPERTS ? of_row : a.first + of_row;
            float y = total[j][v] * a.x.inverse[at.token + token] * (1.0f / factor);
            if (!EXPERTS && a.bias) y += a.bias[to];
            a.y[ht_row_of_y(a, EXPERTS, at.token + token) * a.ldy + to] = y;
        }
}

HT_CUDA_KERNEL_BOUND(ht_cuda_gemm_large_mma, ht_cuda_gemm_large_arguments, MMA_WARPS * 32, 2) {
    ht_wide_mma<false>(a, blockIdx.x);
}
HT_CUDA_KERNEL_BOUND(ht_cuda_gemm_large_experts_mma, ht_cuda_gemm_large_arguments, MMA_WARPS * 32, 2) {
    const int64_t tiles = ht_tiles_of<true>(a, MMA_WARPS * HT_CUDA_PANEL, TOKENS) * (TOKENS / MMA_TOKENS);
    for (int64_t i = blockIdx.x; i < tiles; i += gridDim.x) ht_wide_mma<true>(a, i);
}

/* ---- with wgmma ----
 *
 * A cluster of two blocks computes a tile: each has 128 rows of the matrix, both the same rows of x. Each block loads
 * half of x for both, because loading all of it twice would exceed the L2 bandwidth. One thread per block copies
 * K-tiles of both operands to shared memory, STAGES ahead; two groups of four warps compute 64 rows each. Clusters are
 * persistent and process tile after tile. */

#ifdef HT_HAS_WGMMA
enum {
    BLOCKS = HT_CUDA_WIDE_BLOCKS,
    BLOCK_ROWS = ROWS / BLOCKS,
    BLOCK_TOKENS = TOKENS / BLOCKS, /* rows of x that a block copies */
    A_BYTES = BLOCK_ROWS * 128,
    B_BYTES = TOKENS * 128,
    STAGE_BYTES = A_BYTES + B_BYTES,
    SUMS = TOKENS / 2,
    READERS = 8 /* warps of a block that read a stage */
};

typedef struct ht_stage_ring {
    uint64_t full[STAGES], free[STAGES];
} ht_stage_ring;

template <bool EXPERTS>
static __device__ __forceinline__ void ht_produce(const ht_cuda_gemm_large_arguments &a, int64_t tiles,
                                                  unsigned char *stages, ht_stage_ring *ring) {
    const int part = ht_block_of_cluster();
    int stage = 0, phase = 0;
    for (int64_t tile = blockIdx.x / BLOCKS; tile < tiles; tile += gridDim.x / BLOCKS) {
        const ht_wide_tile at = ht_tile_at<EXPERTS>(a, ROWS, TOKENS, tile);
        const unsigned char *w = a.weights + (at.of_weights + part * BLOCK_ROWS) / 8 * HT_CUDA_K_TILE_BYTES,
                            *x = a.x.rows + (at.of_x + part * BLOCK_TOKENS) / 8 * HT_CUDA_K_TILE_BYTES;
#pragma unroll 1
        for (int cut = 0; cut < a.cuts; cut++) {
            unsigned char *to = stages + stage * STAGE_BYTES;
            ht_barrier_wait(&ring->free[stage], phase ^ 1); /* in both blocks */
            ht_barrier_expect(&ring->full[stage], STAGE_BYTES);
            ht_async_copy(to, w, A_BYTES, &ring->full[stage]);
            ht_async_copy_to_all(to + A_BYTES + part * (B_BYTES / BLOCKS), x, B_BYTES / BLOCKS, &ring->full[stage],
                                 BLOCKS);
            w += a.rows_padded / 8 * HT_CUDA_K_TILE_BYTES;
            x += a.x.n_padded / 8 * HT_CUDA_K_TILE_BYTES;
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
    }
}

/* Stores a lane's sums of a tile: rows `row` and `row` + 8 of it, for all tokens. */
template <bool EXPERTS>
static __device__ __forceinline__ void ht_put_tile(const ht_cuda_gemm_large_arguments &a, const ht_wide_tile &tile,
                                                   int row, const float *total) {
    const int t = threadIdx.x & 3;
    const int64_t of_tile = tile.row + row, at = EXPERTS ? of_tile : a.first + of_tile;
    if (of_tile >= a.n_rows) return;
    const bool has_second = of_tile + 8 < a.n_rows;
    const float factor = __ldg(a.factors + (EXPERTS ? tile.of_weights + row : at) / HT_CUDA_FACTOR_ROWS);
    if (EXPERTS && factor == 0.0f) return;
    const float inverse = 1.0f / factor;
    const bool biased = !EXPERTS && a.bias;
    const float bias[2] = {biased ? __ldg(a.bias + at) : 0.0f, biased && has_second ? __ldg(a.bias + at + 8) : 0.0f};
    const int left = (int)tile.n - 2 * t;
    const float *of_token = a.x.inverse + tile.token + 2 * t;
    const int32_t *order = EXPERTS ? a.order + tile.token + 2 * t : NULL;
    float *y = a.y + (EXPERTS ? 0 : (tile.token + 2 * t) * a.ldy) + at;
#pragma unroll
    for (int j = 0; j < TOKENS / 8; j++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (j * 8 + i >= left) continue;
            const float x = of_token[j * 8 + i];
            float first = total[4 * j + i] * x * inverse, second = total[4 * j + 2 + i] * x * inverse;
            if (biased) first += bias[0], second += bias[1];
            float *to = y + (EXPERTS ? (int64_t)order[j * 8 + i] : i) * a.ldy;
            to[0] = first;
            if (has_second) to[8] = second;
        }
        if (!EXPERTS) y += 8 * a.ldy;
    }
}

template <bool EXPERTS>
static __device__ __forceinline__ void ht_consume(const ht_cuda_gemm_large_arguments &a, int64_t tiles,
                                                  const unsigned char *stages, ht_stage_ring *ring, int group) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3;
    int stage = 0, phase = 0;
    for (int64_t tile = blockIdx.x / BLOCKS; tile < tiles; tile += gridDim.x / BLOCKS) {
        float total[SUMS] = {}, sum[SUMS];
        for (int s = 0; s < HT_CUDA_SEGMENTS; s++) {
            const int begin = a.segment_k_tiles[s], end = a.segment_k_tiles[s + 1];
            if (begin == end) continue; /* whose sum is 0 */
            int before = -1;
            for (int cut = begin; cut < end; cut++) {
                ht_barrier_wait(&ring->full[stage], phase);
                const unsigned char *at = stages + stage * STAGE_BYTES;
                const uint64_t of_w = ht_operand(at + group * 64 * 128), of_x = ht_operand(at + A_BYTES);
                ht_hold<SUMS>(sum);
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                for (int step = 0; step < 4; step++)
                    ht_wgmma(sum, of_w + 2 * step, of_x + 2 * step, cut > begin || step > 0);
                asm volatile("wgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 1;" ::: "memory");
                if (before >= 0 && lane < BLOCKS) ht_barrier_arrive(&ring->free[before], lane);
                before = stage;
                if (++stage == STAGES) stage = 0, phase ^= 1;
            }
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            ht_hold<SUMS>(sum);
            if (lane < BLOCKS) ht_barrier_arrive(&ring->free[before], lane); /* warps proceed independently */
#pragma unroll
            for (int i = 0; i < SUMS; i++) total[i] += sum[i];
        }
        ht_put_tile<EXPERTS>(a, ht_tile_at<EXPERTS>(a, ROWS, TOKENS, tile),
                             ht_block_of_cluster() * BLOCK_ROWS + group * 64 + warp * 16 + (lane >> 2), total);
    }
}
template <bool EXPERTS> static __device__ __forceinline__ void ht_wide(const ht_cuda_gemm_large_arguments &a) {
    extern __shared__ __align__(1024) unsigned char ht_wide_stages[];
    __shared__ ht_stage_ring ring;
    unsigned char *stages = ht_wide_stages;
    const int64_t tiles = ht_tiles_of<EXPERTS>(a, ROWS, TOKENS);
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            ht_barrier_init(&ring.full[i], 1);
            ht_barrier_init(&ring.free[i], READERS * BLOCKS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;\n\tfence.proxy.async.shared::cta;" ::: "memory");
    }
    ht_cluster_sync();
    const int group = threadIdx.x >> 7;
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == 0) ht_produce<EXPERTS>(a, tiles, stages, &ring);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        ht_consume<EXPERTS>(a, tiles, stages, &ring, group - 1);
    }
    ht_cluster_sync(); /* a block's shared memory must outlive the other's writes */
}
#define HT_WIDE(experts) ht_wide<experts>(a)
#else
#define HT_WIDE(experts) (void)a
#endif

HT_CUDA_CLUSTER_KERNEL(ht_cuda_gemm_large_wgmma, ht_cuda_gemm_large_arguments, 384, HT_CUDA_WIDE_BLOCKS) {
    HT_WIDE(false);
}
HT_CUDA_CLUSTER_KERNEL(ht_cuda_gemm_large_experts_wgmma, ht_cuda_gemm_large_arguments, 384, HT_CUDA_WIDE_BLOCKS) {
    HT_WIDE(true);
}
