/* Products of a mixture of experts on tensor cores (cuda/experts.h). Few pairs of an expert use its packed weights; for
 * many, both operands are swizzled and cuda/gemm_large.cu multiplies them. */
#include "cuda/experts.h"
#include "cuda/tensor_span.cuh"

/* ---- pairs by expert ---- */

/* Sums over the threads before this one, and over all threads. */
static __device__ __forceinline__ int ht_sum_before(int mine, int *of_warp, int *all) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (int)blockDim.x / 32;
    int sum = mine;
    for (int by = 1; by < 32; by *= 2) {
        const int other = __shfl_sync(0xffffffffu, sum, lane < by ? lane : lane - by);
        if (lane >= by) sum += other;
    }
    if (lane == 31) of_warp[warp] = sum;
    __syncthreads();
    int before = 0, total = 0;
    for (int w = 0; w < warps; w++) {
        if (w < warp) before += of_warp[w];
        total += of_warp[w];
    }
    __syncthreads();
    *all = total;
    return before + sum - mine;
}

/* One block; a thread handles one expert at a time. `next` counts each expert's pairs, then indexes its next pair. */
HT_CUDA_KERNEL(ht_cuda_sort_experts, ht_cuda_sort_experts_arguments) {
    enum { NEAR = 1024 };
    __shared__ int of_warp[32], near[NEAR];
    const int n_experts = a.ids.n_experts;
    int *next = n_experts <= NEAR ? near : a.next;
    for (int e = threadIdx.x; e < n_experts; e += blockDim.x) next[e] = 0;
    for (int64_t i = threadIdx.x; i < a.n_tiles; i += blockDim.x) a.tiles[i] = ht_cuda_expert_tile{0, 0, 0, 0};
    for (int64_t i = threadIdx.x; i < a.n_places; i += blockDim.x) a.order[i] = -1;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < a.pairs; i += blockDim.x) {
        const int64_t id = ht_id_of(a.ids, i);
        if (id < 0 || id >= n_experts)
            ht_report_index(a.report, i, id, 0, n_experts, 0);
        else
            atomicAdd(&next[id], 1);
    }
    __syncthreads();
    int place = 0, tile = 0; /* of the first of the next blockDim.x experts */
    for (int first = 0; first < n_experts; first += (int)blockDim.x) {
        const int e = first + (int)threadIdx.x, n = e < n_experts ? next[e] : 0;
        int places, tiles;
        const int begin = place + ht_sum_before((n + 7) / 8 * 8, of_warp, &places);
        int at = tile + ht_sum_before((n + a.per_tile - 1) / a.per_tile, of_warp, &tiles);
        if (e < n_experts) {
            next[e] = begin;
            a.tile_begin[e] = at;
            for (int i = 0; i < n; i += a.per_tile) {
                const ht_cuda_expert_tile t = {e, begin + i, n - i < a.per_tile ? n - i : a.per_tile, 0};
                a.tiles[at++] = t;
            }
        }
        place += places, tile += tiles;
    }
    if (threadIdx.x == 0) a.tile_begin[n_experts] = tile;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < a.pairs; i += blockDim.x) {
        const int64_t id = ht_id_of(a.ids, i);
        if (id >= 0 && id < n_experts) a.order[atomicAdd(&next[id], 1)] = (int32_t)i;
    }
}

static __device__ __forceinline__ float ht_factor_of(const ht_cuda_expert_set &of, const ht_cuda_expert &expert,
                                                     int64_t row) {
    return __ldg((const float *)(expert.packed + of.factors) + row / HT_CUDA_FACTOR_ROWS);
}

/* ---- few pairs of an expert ----
 *
 * A warp computes 16 rows of an expert's matrix times the N * 8 rows of x of a tile. It sums all columns, or if there
 * is little work, the warps of a block share the segments. */

/* A lane's rows of the matrix; a ring (cuda/tensor_span.cuh) passes over them once. */
struct ht_expert_lane {
    const ht_cuda_weights *w;
    const uint8_t *row[1][2];
    int32_t index[1][2];

    __device__ __forceinline__ const ht_cuda_weights &weights(const ht_cuda_expert_arguments &a, bool alike) const {
        return alike ? a.of.w : *w;
    }
    __device__ __forceinline__ bool go_on(const ht_cuda_expert_arguments &, int) { return false; }
};

/* A tile's expert and its rows of the operand; the packed rows are NULL if another launch computes the tile. */
typedef struct ht_expert_pairs {
    ht_cuda_expert expert;
    int64_t begin;
    int n;
} ht_expert_pairs;

static __device__ __forceinline__ ht_expert_pairs ht_pairs_of(const ht_cuda_expert_arguments &a, int64_t tile) {
    ht_expert_pairs p = {{NULL, NULL}, tile * a.x_rows, 1};
    if (!a.tiles) {
        const int64_t id = ht_id_of(a.ids, tile);
        if (id >= 0 && id < a.ids.n_experts)
            p.expert = ht_expert_of(a.of.experts, id);
        else if (blockIdx.x == 0 && threadIdx.x == 0)
            ht_report_index(a.report, tile, id, 0, a.ids.n_experts, 0);
        return p;
    }
    const ht_cuda_expert_tile t = a.tiles[tile];
    p.begin = t.begin, p.n = t.n;
    if (t.n) p.expert = ht_expert_of(a.of.experts, t.expert);
    return p;
}

/* Adds `n_segments` segments from `segment` on to `total`. */
template <class F, int N>
static __device__ __forceinline__ void
ht_add_segments(const ht_cuda_expert_arguments &a, const ht_expert_pairs &p, float factor, unsigned char *slots,
                uint64_t policy, int32_t first, int segment, int n_segments, int lane, float (*total)[4]) {
    typedef ht_ring<F, 1, HT_CUDA_RING_SLOTS(sizeof(typename F::raw)), ht_expert_lane> ring_of;
    ht_cuda_weights m = a.of.w;
    m.packed = p.expert.packed, m.scales = p.expert.scales;
    ring_of ring;
    ring.rows.w = &m;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int32_t i = first + half * 8 + lane / 4, last = (int32_t)m.n_rows - 1, of_it = i < last ? i : last;
        ring.rows.index[0][half] = of_it;
        ring.rows.row[0][half] = m.packed + of_it * m.row_bytes;
    }
    const int64_t spans = ht_spans_of<F>(m);
    int32_t i = (int32_t)(spans * segment / HT_CUDA_EXPERT_SEGMENTS);
    if (!F::LOADS_ANY) {
        ring.lane = lane;
        ring.policy = policy;
        ring.first = ring.to = ring.from = slots;
        ring.begin = ring.i = i, ring.end = (int32_t)(spans * (segment + n_segments) / HT_CUDA_EXPERT_SEGMENTS);
        ht_copies_wait<0>(); /* nothing of the tile before is on its way */
#pragma unroll 1
        for (int j = 1; j < ring_of::SLOTS; j++) ring.async_copy(a);
    }
    const ht_lane_x x = ht_x_of(a.x.rows, p.begin, N == 1 ? p.n : 8, lane);
    const int64_t k_tile_bytes = a.x.n_padded / 8 * HT_CUDA_K_TILE_BYTES;
    int64_t offset = i * F::CYCLES * k_tile_bytes;
    for (int s = segment; s < segment + n_segments; s++) {
        const int32_t end = (int32_t)(spans * (s + 1) / HT_CUDA_EXPERT_SEGMENTS);
        float sum[1][N][4] = {};
        for (; i < end; i++) {
            ht_span<F, 1> span;
            if (F::LOADS_ANY) {
                ht_load_now visitor;
#pragma unroll
                for (int half = 0; half < 2; half++)
                    F::visit(visitor, span.raw[0][half], m, ring.rows.row[0][half], ring.rows.index[0][half], i,
                             lane & 3);
            } else {
                ring.async_copy(a);
                ring.take(span, ring.rows.weights(a, F::ALIKE), i);
            }
            ht_add_span<F, N, 1>(ring.rows.weights(a, F::ALIKE), &factor, span, x, offset, k_tile_bytes, sum);
            offset += F::CYCLES * k_tile_bytes;
        }
        if (s == HT_CUDA_EXPERT_SEGMENTS - 1)
            for (int64_t cut = spans * F::CYCLES; cut * HT_CUDA_K_TILE < m.k; cut++, offset += k_tile_bytes)
                ht_add_loose<N, 1>(m, &factor, ring.rows.row, ring.rows.index, x, cut, offset, lane, sum);
#pragma unroll
        for (int j = 0; j < N; j++)
#pragma unroll
            for (int v = 0; v < 4; v++) total[j][v] += sum[0][j][v];
    }
}

static __device__ __forceinline__ void ht_put_pair(const ht_cuda_expert_arguments &a, const ht_expert_pairs &p,
                                                   int64_t tile, int row, int i, float total, float factor) {
    if (row >= a.of.w.n_rows || i >= p.n) return;
    const int64_t pair = a.order ? a.order[p.begin + i] : tile;
    a.y[pair * a.ldy + row] = total * a.x.inverse[p.begin + i] * ht_inverse_of_power(factor);
}

/* Warps with all columns. */
template <class F, int N> static __device__ __forceinline__ void ht_experts(const ht_cuda_expert_arguments &a) {
    HT_CUDA_SHARED(unsigned char, shared);
    const int thread = ht_kept_thread(), warp = thread >> 5, lane = thread & 31;
    const int32_t first = ((int32_t)blockIdx.x * HT_CUDA_EXPERT_SEGMENTS + warp) * HT_CUDA_PANEL;
    unsigned char *slots =
        shared + warp * (2 * 32 * sizeof(typename F::raw) * HT_CUDA_RING_SLOTS(sizeof(typename F::raw)));
    if (first >= a.of.w.n_rows) return;
    for (int64_t tile = blockIdx.y; tile < a.n_tiles; tile += gridDim.y) {
        const ht_expert_pairs p = ht_pairs_of(a, tile);
        if (!p.expert.packed) continue;
        const float factor = ht_factor_of(a.of, p.expert, first);
        float total[N][4] = {};
        ht_add_segments<F, N>(a, p, factor, slots, ht_read_once(), first, 0, HT_CUDA_EXPERT_SEGMENTS, lane, total);
#pragma unroll
        for (int j = 0; j < N; j++)
#pragma unroll
            for (int v = 0; v < 4; v++)
                ht_put_pair(a, p, tile, first + (v >> 1) * 8 + lane / 4, j * 8 + 2 * (lane & 3) + (v & 1), total[j][v],
                            factor);
    }
}

/* Warps that share the segments. */
template <class F> static __device__ __forceinline__ void ht_experts_shared(const ht_cuda_expert_arguments &a) {
    enum { ROWS = HT_CUDA_PANEL, ALL = ROWS * 8, SEGMENTS = HT_CUDA_EXPERT_SEGMENTS };
    HT_CUDA_SHARED(float, shared);
    const int thread = ht_kept_thread(), warp = thread >> 5, lane = thread & 31;
    const int32_t first = (int32_t)blockIdx.x * ROWS;
    unsigned char *slots = (unsigned char *)(shared + SEGMENTS * ALL) +
                           warp * (2 * 32 * sizeof(typename F::raw) * HT_CUDA_RING_SLOTS(sizeof(typename F::raw)));
    for (int64_t tile = blockIdx.y; tile < a.n_tiles; tile += gridDim.y) {
        const ht_expert_pairs p = ht_pairs_of(a, tile);
        if (!p.expert.packed) continue; /* of all threads */
        const float factor = ht_factor_of(a.of, p.expert, first);
        float sum[1][4] = {{0, 0, 0, 0}};
        ht_add_segments<F, 1>(a, p, factor, slots, ht_read_once(), first, warp, 1, lane, sum);
#pragma unroll
        for (int v = 0; v < 4; v++)
            shared[warp * ALL + (2 * (lane & 3) + (v & 1)) * ROWS + (v >> 1) * 8 + lane / 4] = sum[0][v];
        __syncthreads();
        float total = 0;
#pragma unroll
        for (int s = 0; s < SEGMENTS; s++) total += shared[s * ALL + thread];
        ht_put_pair(a, p, tile, first + thread % ROWS, thread / ROWS, total, factor);
        __syncthreads();
    }
}

/* ---- many pairs: swizzled rows ---- */

template <class F> static __device__ __forceinline__ void ht_expert_rows(const ht_cuda_expert_rows_arguments &a) {
    ht_cuda_weights m = a.of.w;
    const int64_t units = ht_units_of<F>(m), groups = a.n * a.rows_each / 8;
    for (int64_t at = ht_first(); at < groups * units * 32; at += ht_step()) {
        const int64_t group = at / 32 / units, e = group * 8 / a.rows_each, i = at / 32 % units;
        const int64_t index = group * 8 % a.rows_each + (at >> 2 & 7);
        if (a.tile_begin[a.first + e] == a.tile_begin[a.first + e + 1]) continue;
        const ht_cuda_expert expert = ht_expert_of(a.of.experts, a.first + e);
        const bool is_there = expert.packed && index < m.n_rows;
        const float factor = is_there ? ht_factor_of(a.of, expert, index) : 0.0f;
        if (i == 0 && at % 32 == 0 && index % HT_CUDA_FACTOR_ROWS == 0)
            a.factors[group * 8 / HT_CUDA_FACTOR_ROWS] = factor;
        m.scales = expert.scales;
        ht_store_tile_unit<F>(m, expert.packed, index, is_there, factor, i, (int)(at & 3), (int)(at >> 2 & 7),
                              a.to + group * HT_CUDA_K_TILE_BYTES, groups * HT_CUDA_K_TILE_BYTES);
    }
}

#define KERNELS(X, form)                                                                                               \
    HT_CUDA_KERNEL_BOUND(ht_cuda_experts_##form##_1, ht_cuda_expert_arguments, HT_CUDA_EXPERT_SEGMENTS * 32, 4) {      \
        ht_experts_shared<ht_pairs_##form>(a);                                                                         \
    }                                                                                                                  \
    HT_CUDA_KERNEL_BOUND(ht_cuda_experts_##form##_8, ht_cuda_expert_arguments, HT_CUDA_EXPERT_SEGMENTS * 32, 4) {      \
        ht_experts<ht_pairs_##form, 1>(a);                                                                             \
    }                                                                                                                  \
    HT_CUDA_KERNEL_BOUND(ht_cuda_experts_##form##_32, ht_cuda_expert_arguments, HT_CUDA_EXPERT_SEGMENTS * 32, 4) {     \
        ht_experts<ht_pairs_##form, 4>(a);                                                                             \
    }                                                                                                                  \
    HT_CUDA_KERNEL(ht_cuda_expert_rows_##form, ht_cuda_expert_rows_arguments) { ht_expert_rows<ht_pairs_##form>(a); }
static_assert(HT_CUDA_PANEL * 8 == HT_CUDA_EXPERT_SEGMENTS * 32, "a thread has one sum of those that share");
HT_CUDA_EACH_TENSOR_FORM(KERNELS, )
