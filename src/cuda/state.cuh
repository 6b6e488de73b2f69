/* A block's columns of a head's state, and the rows that it takes: for scans and for their gradient. */
#ifndef HT_CUDA_STATE_CUH
#define HT_CUDA_STATE_CUH

#include "cuda/state.h"
#include "cuda/tensor.cuh"

struct alignas(16) floats4 {
    float f[4];
};
struct alignas(8) floats2 {
    float f[2];
};

enum { TILE = HT_CUDA_STATE_TILE, COLUMNS = HT_CUDA_STATE_COLUMNS, WARPS = HT_CUDA_STATE_THREADS / 32 };

/* Where a row has its operands in shared memory (ht_cuda_state_row_floats). */
template <int QUADS, bool OF_KEYS> struct row_layout {
    enum {
        KEYS = 32 * QUADS,
        Q = 0,
        K = KEYS,
        V = 2 * KEYS,
        DECAY = V + COLUMNS,
        RATE,
        FIRST_ROW, /* an integer */
        DECAYS = DECAY + 4,
        GRAD = DECAYS + (OF_KEYS ? KEYS : 0)
    };
};

/* ---- threads ---- */

/* A lane has two adjacent columns, and of each 32 dimensions of a key the four that begin at `key`. Four adjacent lanes
 * have the same dimensions, and adjacent columns: they read 32 bytes of a state's row. */
struct columns {
    int head, key_head;
    int block;     /* of the head's columns */
    int first, n;  /* columns of the block */
    int lane, key; /* of the thread */
    int column;    /* of the block, the thread's first */
};

static __device__ columns columns_of(const ht_cuda_state_scan_arguments &a) {
    columns c;
    c.head = (int)blockIdx.x / a.column_blocks;
    c.key_head = c.head / (a.heads / a.key_heads);
    c.block = (int)blockIdx.x % a.column_blocks;
    c.first = c.block * COLUMNS;
    c.n = a.value_dim - c.first < COLUMNS ? a.value_dim - c.first : COLUMNS;
    c.lane = (int)threadIdx.x % 32;
    c.key = c.lane / 4 * 4;
    c.column = ((int)threadIdx.x / 32 * 4 + c.lane % 4) * 2;
    return c;
}

/* Sum over the lanes that share columns, in all of them. */
static __device__ __forceinline__ float sum_of_keys(float x) {
#pragma unroll
    for (int mask = 16; mask >= 4; mask /= 2) x += __shfl_xor_sync(0xffffffffu, x, mask);
    return x;
}

/* The same of both columns with fewer shuffles: of the first in lanes below 16, of the second in others. */
static __device__ __forceinline__ float split_sum_of_keys(int lane, const float *sums) {
    const bool upper = lane >= 16;
    float x = upper ? sums[1] : sums[0];
    x += __shfl_xor_sync(0xffffffffu, upper ? sums[0] : sums[1], 16);
    x += __shfl_xor_sync(0xffffffffu, x, 8);
    return x + __shfl_xor_sync(0xffffffffu, x, 4);
}

/* ---- rows ---- */

/* Copies rows [row, row + n) of a tile, each by 16 threads. All threads do it while the rows wait, hence the copies of
 * 16 bytes without a loop. */
template <int QUADS, bool OF_KEYS, bool GRADIENT>
static __device__ __forceinline__ void copy_tile(const ht_cuda_state_scan_arguments &a, const columns &c, float *tile,
                                                 int64_t row, int n) {
    typedef row_layout<QUADS, OF_KEYS> at;
    enum { SHARE = HT_CUDA_STATE_THREADS / TILE };
    const int in_tile = (int)threadIdx.x / SHARE, thread = (int)threadIdx.x % SHARE;
    if (in_tile < n) {
        float *to = tile + in_tile * ht_cuda_state_row_floats(at::KEYS, OF_KEYS, GRADIENT);
        row += in_tile;
        const float *k = a.k.data + row * a.k.row + c.key_head * a.k.head;
        const float *q = a.q.data + row * a.q.row + c.key_head * a.q.head;
        const float *v = a.v.data + row * a.v.row + c.head * a.v.head + c.first * a.v.step;
        const float *decay = a.decay.data + row * a.decay.row + c.head * a.decay.head;
        const float *grad =
            a.grad.data + (GRADIENT ? row * a.grad.row + c.head * a.grad.head + c.first * a.grad.step : 0);
        if (a.quads) {
            const int column = 4 * (thread % 8);
            static_assert(SHARE == 16 && COLUMNS == 32, "half of the threads have four columns each");
#pragma unroll
            for (int i = 4 * thread; i < at::KEYS; i += 4 * SHARE) {
                if (i >= a.key_dim) continue;
                ht_copy<16>(to + at::K + i, k + i);
                ht_copy<16>(to + at::Q + i, q + i);
                if (OF_KEYS) ht_copy<16>(to + at::DECAYS + i, decay + i);
            }
            if (column < c.n && thread < 8) ht_copy<16>(to + at::V + column, v + column);
            if (column < c.n && thread >= 8 && GRADIENT) ht_copy<16>(to + at::GRAD + column, grad + column);
        } else {
#pragma unroll 1
            for (int i = thread; i < a.key_dim; i += SHARE) {
                ht_copy<4>(to + at::K + i, k + i * a.k.step);
                ht_copy<4>(to + at::Q + i, q + i * a.q.step);
                if (OF_KEYS) ht_copy<4>(to + at::DECAYS + i, decay + i * a.decay.step);
            }
#pragma unroll 1
            for (int i = thread; i < c.n; i += SHARE) {
                ht_copy<4>(to + at::V + i, v + i * a.v.step);
                if (GRADIENT) ht_copy<4>(to + at::GRAD + i, grad + i * a.grad.step);
            }
        }
        if (!OF_KEYS && thread == 0) ht_copy<4>(to + at::DECAY, decay);
        if (a.rate.data && thread == 1)
            ht_copy<4>(to + at::RATE, a.rate.data + row * a.rate.row + c.head * a.rate.head);
        if (a.first_row && thread == 2) ht_copy<4>(to + at::FIRST_ROW, a.first_row + row * a.first_row_stride);
    }
    ht_copies_end();
}

/* Zeros for what no copy writes: missing dimensions and columns. */
static __device__ void clear_tiles(const ht_cuda_state_scan_arguments &a, const columns &c, float *tiles, int keys,
                                   int floats) {
    if (a.key_dim == keys && c.n == COLUMNS) return;
    for (int i = (int)threadIdx.x; i < floats; i += HT_CUDA_STATE_THREADS) tiles[i] = 0.0f;
    __syncthreads();
}

/* A thread's elements of a vector of key dimensions. */
template <int QUADS> static __device__ __forceinline__ void load_keys(float *to, const float *from, const columns &c) {
#pragma unroll
    for (int j = 0; j < QUADS; j++) {
        const floats4 x = *(const floats4 *)(from + 32 * j + c.key);
#pragma unroll
        for (int e = 0; e < 4; e++) to[4 * j + e] = x.f[e];
    }
}
/* A thread's elements of a vector of columns. */
static __device__ __forceinline__ void load_columns(float *to, const float *from, const columns &c) {
    const floats2 x = *(const floats2 *)(from + c.column);
    to[0] = x.f[0];
    to[1] = x.f[1];
}

/* A thread's elements of the operands of a row, but for q: loaded while the row before is completed. */
template <int QUADS, bool OF_KEYS, bool RATED> struct row_part {
    enum { N = 4 * QUADS };
    float k[N], decays[OF_KEYS ? N : 1], v[2], rate;

    __device__ __forceinline__ void load(const float *row, const columns &c) {
        typedef row_layout<QUADS, OF_KEYS> at;
        load_keys<QUADS>(k, row + at::K, c);
        if (OF_KEYS)
            load_keys<QUADS>(decays, row + at::DECAYS, c);
        else
            decays[0] = row[at::DECAY];
        load_columns(v, row + at::V, c);
        rate = RATED ? row[at::RATE] : 1.0f;
    }
};

/* Whether row t of flat rows is the first one of its sequence. */
template <class AT> static __device__ __forceinline__ bool begins(const float *row, int64_t t) {
    return __float_as_uint(row[AT::FIRST_ROW]) == (uint32_t)t;
}

/* ---- states ---- */

template <int QUADS> struct state_part {
    enum { N = 4 * QUADS };
    float x[N][2];

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < N; i++)
#pragma unroll
            for (int of = 0; of < 2; of++) x[i][of] = 0.0f;
    }

    /* From the state of a sequence, and to it. */
    template <bool STORE>
    __device__ __forceinline__ void move(const ht_cuda_state_scan_arguments &a, const columns &c, float *state) {
        float *at = state + a.first + ((int64_t)c.head * a.key_dim + c.key) * a.value_dim + c.first + c.column;
        const bool both = c.column + 1 < c.n;
        if (c.column >= c.n) return;
#pragma unroll
        for (int i = 0; i < N; i++) {
            float *p = at + (i / 4 * 32 + i % 4) * a.value_dim;
            if (i / 4 * 32 + c.key + i % 4 >= a.key_dim) continue;
            if (a.pairs) {
                move_pair<STORE>(x[i], (floats2 *)p);
            } else {
                move_one<STORE>(x[i][0], p);
                if (both) move_one<STORE>(x[i][1], p + 1);
            }
        }
    }
    template <bool STORE> static __device__ __forceinline__ void move_one(float &here, float *there) {
        if (STORE)
            *there = here;
        else
            here = *there;
    }
    template <bool STORE> static __device__ __forceinline__ void move_pair(float *here, floats2 *there) {
        floats2 both = {{here[0], here[1]}};
        if (STORE) {
            *there = both;
        } else {
            both = *there;
            here[0] = both.f[0];
            here[1] = both.f[1];
        }
    }

    /* In scratch memory, where each thread reads what it has written: number `slot` of those of all blocks. */
    static __device__ __forceinline__ floats4 *kept_at(float *kept, int64_t slot) {
        const int64_t part = slot * gridDim.x + blockIdx.x;
        return (floats4 *)(kept + part * ht_cuda_state_part_floats(32 * QUADS)) + threadIdx.x;
    }
    __device__ __forceinline__ void recall(float *kept, int64_t slot) {
        const floats4 *from = kept_at(kept, slot);
#pragma unroll
        for (int i = 0; i < N; i += 2) {
            const floats4 four = from[i / 2 * HT_CUDA_STATE_THREADS];
            x[i][0] = four.f[0];
            x[i][1] = four.f[1];
            x[i + 1][0] = four.f[2];
            x[i + 1][1] = four.f[3];
        }
    }
    __device__ __forceinline__ void keep(float *kept, int64_t slot) const {
        floats4 *to = kept_at(kept, slot);
#pragma unroll
        for (int i = 0; i < N; i += 2)
            to[i / 2 * HT_CUDA_STATE_THREADS] = floats4{{x[i][0], x[i][1], x[i + 1][0], x[i + 1][1]}};
    }

    /* Decays the state by a row; d of both columns. */
    template <bool OF_KEYS, bool RATED>
    __device__ __forceinline__ void difference(const row_part<QUADS, OF_KEYS, RATED> &row, float *d) {
        float sum[2][2] = {};
#pragma unroll
        for (int i = 0; i < N; i++)
#pragma unroll
            for (int of = 0; of < 2; of++) {
                x[i][of] *= row.decays[OF_KEYS ? i : 0];
                if (RATED) sum[i % 2][of] = fmaf(x[i][of], row.k[i], sum[i % 2][of]);
            }
#pragma unroll
        for (int of = 0; of < 2; of++)
            d[of] = RATED ? row.rate * (row.v[of] - sum_of_keys(sum[0][of] + sum[1][of])) : row.v[of];
    }

    __device__ __forceinline__ void add_product(const float *k, const float *d) {
#pragma unroll
        for (int i = 0; i < N; i++)
#pragma unroll
            for (int of = 0; of < 2; of++) x[i][of] = fmaf(k[i], d[of], x[i][of]);
    }

    /* A lane's part of the products with q. */
    __device__ __forceinline__ void result(const float *q, float *sums) const {
        float sum[2][2] = {};
#pragma unroll
        for (int i = 0; i < N; i++)
#pragma unroll
            for (int of = 0; of < 2; of++) sum[i % 2][of] = fmaf(x[i][of], q[i], sum[i % 2][of]);
#pragma unroll
        for (int of = 0; of < 2; of++) sums[of] = sum[0][of] + sum[1][of];
    }
};

#endif
