/* The gradient of scans of states (cuda/state.h), one launch for each segment of rows, the last one first. A block
 * computes the states of a segment again, from the one kept before it: first those before each tile of rows, then, tile
 * by tile from the last one, those before each row. ht_cuda_state_gradient_sums adds the sums over the columns of
 * blocks, and of the heads that share a key head, in order. */
#include "cuda/state.cuh"

/* Where the sums of a row are (ht_cuda_state_sum_floats). */
template <int QUADS> struct sum_layout {
    enum { KEYS = 32 * QUADS, Q = 0, K = KEYS, DECAY = 2 * KEYS, RATE, DECAYS = DECAY + 4 };
};

/* Sums over the four lanes of a key: of dimension `of_lane` of the four. */
static __device__ __forceinline__ int dimension_of_lane(int lane) { return lane % 2 * 2 + lane / 2 % 2; }
static __device__ __forceinline__ float sum_of_columns(int lane, const float *x) {
    float two[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float given = lane % 2 ? x[i] : x[2 + i];
        two[i] = (lane % 2 ? x[2 + i] : x[i]) + __shfl_xor_sync(0xffffffffu, given, 1);
    }
    const bool odd = lane / 2 % 2;
    return (odd ? two[1] : two[0]) + __shfl_xor_sync(0xffffffffu, odd ? two[0] : two[1], 2);
}

template <int QUADS, bool OF_KEYS, bool RATED>
static __device__ __forceinline__ void advance(const columns &c, const float *row, state_part<QUADS> &state) {
    row_part<QUADS, OF_KEYS, RATED> part;
    float d[2];
    part.load(row, c);
    state.difference(part, d);
    state.add_product(part.k, d);
}

/* Gradients of a row, from the state before it; `later`, the gradient of the state after it, becomes that of the state
 * before it. The warp's sums over columns go to `sums`. */
template <int QUADS, bool OF_KEYS, bool RATED>
static __device__ __forceinline__ void go_back(const ht_cuda_state_scan_arguments &a, const columns &c, int t,
                                               const float *row, const state_part<QUADS> &before,
                                               state_part<QUADS> &later, float *sums) {
    typedef row_layout<QUADS, OF_KEYS> at;
    typedef sum_layout<QUADS> to;
    enum { N = 4 * QUADS };
    const float rate = RATED ? row[at::RATE] : 1.0f, scalar = OF_KEYS ? 0.0f : row[at::DECAY];
    float v[2], grad[2], seen[2] = {}, of_d[2] = {}, u[2], d[2], of_seen[2];
    load_columns(v, row + at::V, c);
    load_columns(grad, row + at::GRAD, c);
#pragma unroll
    for (int j = 0; j < QUADS; j++) {
        const floats4 k = *(const floats4 *)(row + at::K + 32 * j + c.key);
        const floats4 q = *(const floats4 *)(row + at::Q + 32 * j + c.key);
        floats4 g = {{scalar, scalar, scalar, scalar}};
        if (OF_KEYS) g = *(const floats4 *)(row + at::DECAYS + 32 * j + c.key);
#pragma unroll
        for (int e = 0; e < 4; e++)
#pragma unroll
            for (int of = 0; of < 2; of++) {
                float &l = later.x[4 * j + e][of];
                l = fmaf(q.f[e], grad[of], l);
                of_d[of] = fmaf(l, k.f[e], of_d[of]);
                if (RATED) seen[of] = fmaf(before.x[4 * j + e][of] * g.f[e], k.f[e], seen[of]);
            }
    }
    float of_rate = 0.0f, of_scalar = 0.0f;
#pragma unroll
    for (int of = 0; of < 2; of++) {
        of_d[of] = sum_of_keys(of_d[of]);
        u[of] = RATED ? v[of] - sum_of_keys(seen[of]) : v[of];
        d[of] = rate * u[of];
        of_seen[of] = RATED ? -(rate * of_d[of]) : 0.0f;
        of_rate = fmaf(u[of], of_d[of], of_rate);
        if (c.lane < 4 && c.column + of < c.n)
            a.out_v[((int64_t)t * a.heads + c.head) * a.value_dim + c.first + c.column + of] = rate * of_d[of];
    }
#pragma unroll
    for (int j = 0; j < QUADS; j++) {
        const floats4 k = *(const floats4 *)(row + at::K + 32 * j + c.key);
        floats4 g = {{scalar, scalar, scalar, scalar}};
        if (OF_KEYS) g = *(const floats4 *)(row + at::DECAYS + 32 * j + c.key);
        float of_q[4] = {}, of_k[4] = {}, of_decay[4] = {};
#pragma unroll
        for (int e = 0; e < 4; e++)
#pragma unroll
            for (int of = 0; of < 2; of++) {
                const float s = before.x[4 * j + e][of], decayed = s * g.f[e];
                float &l = later.x[4 * j + e][of];
                of_q[e] = fmaf(fmaf(k.f[e], d[of], decayed), grad[of], of_q[e]);
                of_k[e] = fmaf(l, d[of], fmaf(decayed, of_seen[of], of_k[e]));
                const float of_decayed = fmaf(k.f[e], of_seen[of], l);
                of_decay[e] = fmaf(of_decayed, s, of_decay[e]);
                l = of_decayed * g.f[e];
            }
        __syncwarp(); /* or the compiler would compute all dimensions at once, which takes too many registers */
        const int key = 32 * j + c.key + dimension_of_lane(c.lane);
        sums[to::Q + key] = sum_of_columns(c.lane, of_q);
        sums[to::K + key] = sum_of_columns(c.lane, of_k);
        if (OF_KEYS)
            sums[to::DECAYS + key] = sum_of_columns(c.lane, of_decay);
        else
#pragma unroll
            for (int e = 0; e < 4; e++) of_scalar += of_decay[e];
    }
#pragma unroll
    for (int mask = 1; mask <= 2; mask *= 2) {
        of_rate += __shfl_xor_sync(0xffffffffu, of_rate, mask);
        of_scalar += __shfl_xor_sync(0xffffffffu, of_scalar, mask);
    }
    of_scalar = sum_of_keys(of_scalar);
    if (c.lane == 0) {
        sums[to::DECAY] = of_scalar;
        sums[to::RATE] = of_rate;
    }
}

/* Adds the sums of the warps. */
static __device__ void put_sums(const ht_cuda_state_scan_arguments &a, const columns &c, int t, const float *sums,
                                int floats) {
    float *out = a.partial + (((t - a.segment) * a.heads + c.head) * a.column_blocks + c.block) * floats;
    for (int i = (int)threadIdx.x; i < floats; i += HT_CUDA_STATE_THREADS) {
        float sum = sums[i];
        for (int w = 1; w < WARPS; w++) sum += sums[w * floats + i];
        out[i] = sum;
    }
}

/* Tiles in order, all but the last one only for the states before the next one, then backwards. */
template <int QUADS, bool OF_KEYS, bool RATED>
static __device__ __forceinline__ void take_segment(const ht_cuda_state_scan_arguments &a) {
    typedef row_layout<QUADS, OF_KEYS> at;
    HT_CUDA_SHARED(float, tiles);
    const int floats = ht_cuda_state_row_floats(at::KEYS, OF_KEYS, true);
    const int sum_floats = ht_cuda_state_sum_floats(at::KEYS, OF_KEYS);
    float *sums = tiles + 2 * TILE * floats; /* [2][WARPS], of every second row */
    const columns c = columns_of(a);
    const int64_t left = a.n_rows - a.segment;
    const int n_rows = left < HT_CUDA_STATE_SEGMENT ? (int)left : HT_CUDA_STATE_SEGMENT;
    const int n_tiles = (n_rows + TILE - 1) / TILE, n_visits = 2 * n_tiles - 1;
    state_part<QUADS> state, later;
    clear_tiles(a, c, tiles, at::KEYS, 2 * TILE * floats);
    copy_tile<QUADS, OF_KEYS, true>(a, c, tiles, a.segment, n_rows < TILE ? n_rows : TILE);
    state.recall(a.checkpoints, a.segment / HT_CUDA_STATE_SEGMENT);
    if (left > HT_CUDA_STATE_SEGMENT)
        later.recall(a.later, 0);
    else
        later.clear();
#pragma unroll 1
    for (int visit = 0; visit < n_visits; visit++) {
        const int tile = visit < n_tiles ? visit : 2 * n_tiles - 2 - visit;
        const int next = visit + 1 < n_tiles ? visit + 1 : 2 * n_tiles - 3 - visit;
        const int n = n_rows - tile * TILE < TILE ? n_rows - tile * TILE : TILE;
        const float *rows = tiles + visit % 2 * TILE * floats;
        const int first = (int)a.segment + tile * TILE;
        ht_copies_wait<0>();
        __syncthreads(); /* all threads are done with the other tile */
        if (visit + 1 < n_visits)
            copy_tile<QUADS, OF_KEYS, true>(a, c, tiles + (visit + 1) % 2 * TILE * floats, a.segment + next * TILE,
                                            n_rows - next * TILE < TILE ? n_rows - next * TILE : TILE);
        const bool back = visit >= n_tiles - 1;
        if (visit >= n_tiles) {
            if (tile > 0)
                state.recall(a.states, tile);
            else
                state.recall(a.checkpoints, a.segment / HT_CUDA_STATE_SEGMENT);
        }
#pragma unroll 1
        for (int r = 0; r < n; r++) {
            const float *row = rows + r * floats;
            if (begins<at>(row, first + r)) state.clear();
            if (back) state.keep(a.rows, r);
            if (!back || r + 1 < n) advance<QUADS, OF_KEYS, RATED>(c, row, state);
        }
        if (!back) {
            state.keep(a.states, tile + 1);
            continue;
        }
#pragma unroll 1
        for (int r = n - 1; r >= 0; r--) {
            const float *row = rows + r * floats;
            float *of_row = sums + r % 2 * WARPS * sum_floats;
            state_part<QUADS> next; /* 256 dimensions leave it no registers */
            if (r > 0 && QUADS < 8) next.recall(a.rows, r - 1);
            go_back<QUADS, OF_KEYS, RATED>(a, c, first + r, row, state, later,
                                           of_row + (int)threadIdx.x / 32 * sum_floats);
            if (begins<at>(row, first + r)) later.clear();
            if (QUADS < 8)
                state = next;
            else if (r > 0)
                state.recall(a.rows, r - 1);
            __syncthreads();
            put_sums(a, c, first + r, of_row, sum_floats);
        }
    }
    later.keep(a.later, 0);
}

template <int QUADS> static __device__ __forceinline__ void gradient(const ht_cuda_state_scan_arguments &a) {
    if (a.rate.data)
        a.of_keys ? take_segment<QUADS, true, true>(a) : take_segment<QUADS, false, true>(a);
    else
        a.of_keys ? take_segment<QUADS, true, false>(a) : take_segment<QUADS, false, false>(a);
}

HT_CUDA_KERNEL_OF(HT_CUDA_STATE_THREADS, ht_cuda_state_gradient_128, ht_cuda_state_scan_arguments) { gradient<4>(a); }
HT_CUDA_KERNEL_OF(HT_CUDA_STATE_THREADS, ht_cuda_state_gradient_256, ht_cuda_state_scan_arguments) { gradient<8>(a); }

/* Sum over the columns of a head. */
static __device__ float sum_of_head(const ht_cuda_state_scan_arguments &a, int64_t row, int64_t head, int at,
                                    int floats) {
    const float *from = a.partial + (row * a.heads + head) * a.column_blocks * floats + at;
    float sum = from[0];
    for (int block = 1; block < a.column_blocks; block++) sum += from[block * floats];
    return sum;
}

/* Elements of a row: the gradients of q and k, each of all key heads, then those of decays and rates, of all heads. */
HT_CUDA_KERNEL(ht_cuda_state_gradient_sums, ht_cuda_state_scan_arguments) {
    const int keys = a.key_dim <= 128 ? 128 : 256, floats = ht_cuda_state_sum_floats(keys, a.of_keys);
    const int64_t n_keys = (int64_t)a.key_heads * a.key_dim, n_decays = a.of_keys ? a.key_dim : 1;
    const int64_t of_row = 2 * n_keys + a.heads * (n_decays + (a.rate.data ? 1 : 0));
    const int64_t left = a.n_rows - a.segment, n = left < HT_CUDA_STATE_SEGMENT ? left : HT_CUDA_STATE_SEGMENT;
    const int64_t group = a.heads / a.key_heads;
    for (int64_t item = ht_first(); item < n * of_row; item += ht_step()) {
        const int64_t row = item / of_row, t = a.segment + row;
        int64_t i = item % of_row;
        if (i < 2 * n_keys) {
            const bool of_q = i < n_keys;
            if (!of_q) i -= n_keys;
            const int64_t key_head = i / a.key_dim;
            const int at = (of_q ? 0 : keys) + (int)(i % a.key_dim);
            float sum = 0.0f;
            for (int64_t h = 0; h < group; h++) sum += sum_of_head(a, row, key_head * group + h, at, floats);
            (of_q ? a.out_q : a.out_k)[t * n_keys + i] = sum;
            continue;
        }
        i -= 2 * n_keys;
        if (i < a.heads * n_decays) {
            const int at = 2 * keys + (a.of_keys ? 4 + (int)(i % n_decays) : 0);
            a.out_decay[t * a.heads * n_decays + i] = sum_of_head(a, row, i / n_decays, at, floats);
        } else {
            i -= a.heads * n_decays;
            a.out_rate[t * a.heads + i] = sum_of_head(a, row, i, 2 * keys + 1, floats);
        }
    }
}
