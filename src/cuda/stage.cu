/* Row-wise calls in sequence: a team of threads takes a row through all of them, each thread the same quads. A thread
 * keeps up to QUADS quads in registers; longer rows are in shared memory between two sums. The team is a block, or with
 * few rows a cluster of blocks with a quad per thread. */
#include "cuda/cluster.cuh"
#include "cuda/elementwise.cuh"
#include "cuda/rows.cuh"
#include "cuda/stage.h"
#include "cuda/tensor_rows.cuh"

enum { OPERANDS = HT_CUDA_STAGE_OPERANDS, WARPS = HT_CUDA_STAGE_BLOCKS * HT_CUDA_STAGE_THREADS / 32 };

/* ---- teams ---- */

struct ht_team {
    int thread, threads; /* of the team; its blocks are of equal size */
    int block, blocks;
    float *shared; /* [WARPS] in each block */
};

/* Without a cluster, a team is one block. */
static __device__ __forceinline__ ht_team ht_team_of(float *shared) {
    int block = 0, blocks = 1;
#if !defined(HT_CUDA_ON_HOST) && __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(block));
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
#endif
    const int threads = (int)blockDim.x;
    return {block * threads + (int)threadIdx.x, blocks * threads, block, blocks, shared};
}

/* Barrier of the team, after which its threads see each other's earlier writes. */
static __device__ __forceinline__ void ht_team_sync(const ht_team &team) {
#if !defined(HT_CUDA_ON_HOST) && __CUDA_ARCH__ >= 900
    if (team.blocks > 1) {
        asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory");
        return;
    }
#endif
    (void)team;
    __syncthreads();
}

/* First arrive and wait of a cluster: a block's shared memory must not be written before the block has started. */
static __device__ __forceinline__ void ht_say_here(const ht_team &team) {
#if !defined(HT_CUDA_ON_HOST) && __CUDA_ARCH__ >= 900
    if (team.blocks > 1) ht_arrive_only();
#endif
    (void)team;
}
static __device__ __forceinline__ void ht_await_all(const ht_team &team) {
#if !defined(HT_CUDA_ON_HOST) && __CUDA_ARCH__ >= 900
    if (team.blocks > 1) ht_wait_only();
#endif
    (void)team;
}

/* Writes one value of a warp to its slot in all blocks: lane b writes to block b. */
static __device__ __forceinline__ void ht_tell(const ht_team &team, int place, float value) {
    const int lane = threadIdx.x & 31;
    if (lane >= team.blocks) return;
#if !defined(HT_CUDA_ON_HOST) && __CUDA_ARCH__ >= 900
    asm volatile(
        "{\n\t.reg .b32 there;\n\tmapa.shared::cluster.u32 there, %0, %1;\n\t"
        "st.shared::cluster.f32 [there], %2;\n\t}" ::"r"((uint32_t)__cvta_generic_to_shared(team.shared + place)),
        "r"(lane), "f"(value)
        : "memory");
#else
    team.shared[place] = value;
#endif
}

/* Sum over the threads of QUADS sums each; the j-th is that of thread `thread + j threads` of a full-size team. Adds
 * over 32 lanes, then in order, as cuda/norm.cu does. */
template <int QUADS> static __device__ __forceinline__ float ht_sum_of(const ht_team &team, const float *sums) {
    const int warps = team.threads / 32;
#pragma unroll
    for (int j = 0; j < QUADS; j++) {
        float sum = sums[j];
        for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
        ht_tell(team, j * warps + team.thread / 32, sum);
    }
    ht_team_sync(team);
    float sum = team.shared[0];
    for (int w = 1; w < QUADS * warps; w++) sum += team.shared[w];
    ht_team_sync(team);
    return sum;
}

static __device__ __forceinline__ float ht_most_of_all(const ht_team &team, float most) {
    for (int mask = 16; mask > 0; mask /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, most, mask);
        most = other > most ? other : most;
    }
    ht_tell(team, team.thread / 32, most);
    ht_team_sync(team);
    most = 0;
    for (int w = 0; w < team.threads / 32; w++) most = team.shared[w] > most ? team.shared[w] : most;
    return most;
}

/* ---- quads ---- */

/* Quads `at`, `at` + the threads of the team, and so on, below `quads`; the others are 0. */
template <int QUADS> struct ht_quads { float4 v[QUADS]; };

template <int QUADS>
static __device__ __forceinline__ void ht_load_some(ht_quads<QUADS> &x, const float *row, int at, int step, int quads) {
#pragma unroll
    for (int j = 0; j < QUADS; j++) {
        const int q = at + j * step;
        x.v[j] = q < quads ? ((const float4 *)row)[q] : float4{0, 0, 0, 0};
    }
}

template <int QUADS>
static __device__ __forceinline__ void ht_store_some(const ht_quads<QUADS> &x, float *row, int at, int step,
                                                     int quads) {
#pragma unroll
    for (int j = 0; j < QUADS; j++) {
        const int q = at + j * step;
        if (q < quads) ((float4 *)row)[q] = x.v[j];
    }
}

/* Applies a step to four elements. Not inlined: a block runs the code once, and fetching it dominates. */
static __device__ HT_CUDA_APART float4 ht_apply(const ht_cuda_stage_step &s, float4 x, float4 y) {
    float of[4] = {x.x, x.y, x.z, x.w};
    const float with[4] = {y.x, y.y, y.z, y.w};
    switch (s.op) {
    case HT_OP_ADD:
        for (int i = 0; i < 4; i++) of[i] += with[i];
        break;
    case HT_OP_MULTIPLY:
        for (int i = 0; i < 4; i++) of[i] *= with[i];
        break;
    case HT_OP_SILU:
        for (int i = 0; i < 4; i++) of[i] = ht_silu_f32(of[i]);
        break;
    default: {
        float4 all = {of[0], of[1], of[2], of[3]};
#pragma unroll 1
        for (int i = 0; i < 4; i++) { /* rotates the elements, so that the operation is compiled once */
            const float out = s.n_in > 1 ? ht_binary_f32(s.op, all.x, y.x) : ht_unary_f32(s.op, false, all.x);
            all = float4{all.y, all.z, all.w, out};
            y = float4{y.y, y.z, y.w, y.x};
        }
        return all;
    }
    }
    return float4{of[0], of[1], of[2], of[3]};
}

/* Applies a step to `before` or to loaded quads. The order of a norm's products is that of cuda/norm.cu. */
template <int QUADS>
static __device__ __forceinline__ void ht_run_step(const ht_cuda_stage_step &s, float scale,
                                                   const ht_quads<QUADS> *loaded, ht_quads<QUADS> &before) {
    if (s.op == HT_OP_RMS_NORM) {
#pragma unroll
        for (int j = 0; j < QUADS; j++) {
            float4 &x = before.v[j];
            const float4 y = loaded[1].v[j];
            x.x *= scale, x.y *= scale, x.z *= scale, x.w *= scale;
            if (s.n_in < 2) continue;
            x.x *= s.weight_offset + y.x;
            x.y *= s.weight_offset + y.y;
            x.z *= s.weight_offset + y.z;
            x.w *= s.weight_offset + y.w;
        }
        return;
    }
    const bool first = s.in[0] != NULL, second = s.n_in > 1 && !s.in[1];
#pragma unroll
    for (int j = 0; j < QUADS; j++)
        before.v[j] = ht_apply(s, first ? loaded[0].v[j] : before.v[j], second ? before.v[j] : loaded[1].v[j]);
}

/* Operands of a step that are in memory. */
template <int QUADS>
static __device__ __forceinline__ void ht_load_operands(const ht_cuda_stage_step &s, int64_t row, int at, int step,
                                                        int quads, ht_quads<QUADS> *loaded) {
#pragma unroll
    for (int i = 0; i < OPERANDS; i++)
        if (i < s.n_in && s.in[i]) ht_load_some(loaded[i], s.in[i] + row * s.stride[i], at, step, quads);
}

static __device__ __forceinline__ float ht_most_of(const float4 &x, float most) {
    const float of[4] = {fabsf(x.x), fabsf(x.y), fabsf(x.z), fabsf(x.w)};
#pragma unroll
    for (int i = 0; i < 4; i++) most = of[i] > most ? of[i] : most;
    return most;
}

static __device__ __forceinline__ float ht_squares_of(const float4 &x, float sum) {
    sum += x.x * x.x;
    sum += x.y * x.y;
    sum += x.z * x.z;
    sum += x.w * x.w;
    return sum;
}

/* Stores `all` quads to the swizzled operand. Adjacent threads have the two quads of eight columns and write a step
 * each. */
template <int QUADS>
static __device__ __forceinline__ void ht_store_quads(const ht_cuda_swizzled &to, int64_t row, const ht_quads<QUADS> &x,
                                                      float factor, int at, int step, int all) {
    const int second = threadIdx.x & 1;
    unsigned char *group = to.rows + row / 8 * HT_CUDA_K_TILE_BYTES;
#pragma unroll
    for (int j = 0; j < QUADS; j++) {
        const int q = at + j * step;
        const float4 v = x.v[j];
        const float give[2] = {second ? v.x : v.z, second ? v.y : v.w},
                    keep[2] = {second ? v.z : v.x, second ? v.w : v.y};
        const float get[2] = {__shfl_xor_sync(0xffffffffu, give[0], 1), __shfl_xor_sync(0xffffffffu, give[1], 1)};
        uint2 pairs;
        pairs.x = ht_pair_of((second ? get[0] : keep[0]) * factor, (second ? keep[0] : get[0]) * factor);
        pairs.y = ht_pair_of((second ? get[1] : keep[1]) * factor, (second ? keep[1] : get[1]) * factor);
        if (q < all)
            ht_put_step(group + q / 16 * (to.n_padded / 8) * HT_CUDA_K_TILE_BYTES, to.apart, (int)(row % 8), q / 2 % 8,
                        second, pairs);
    }
}

/* ---- rows ---- */

template <int QUADS>
static __device__ __forceinline__ void ht_stage(const ht_cuda_stage_arguments &a, float *shared, float *between) {
    const ht_team team = ht_team_of(shared);
    const int64_t row = blockIdx.x / team.blocks;
    const int quads = (int)(a.width / 4), all = a.to.rows ? (quads + 15) / 16 * 16 : quads;
    const int step = team.threads, at_once = QUADS * step;
    const bool is_long = all > at_once;
    ht_quads<QUADS> x;
    if (row >= a.n) { /* padding row of the operand */
        ht_load_some(x, NULL, 0, 0, 0);
        for (int at = team.thread; at - team.thread < all; at += at_once)
            ht_store_quads(a.to, row, x, 1, at, step, all);
        return;
    }
    ht_say_here(team);
    float scale = 0, most = 0;
    bool is_first = true;
    for (int i = 0, end = 0; is_first || i < a.n_steps; i = end) { /* from one norm to the next */
        if (!is_first || a.n_steps == 0 || a.step[0].op != HT_OP_RMS_NORM) end++;
        while (end < a.n_steps && a.step[end].op != HT_OP_RMS_NORM) end++;
        if (end > a.n_steps) end = a.n_steps;
        float sums[QUADS];
        for (int j = 0; j < QUADS; j++) sums[j] = 0;
        most = 0;
#pragma unroll 1
        for (int at = team.thread; at - team.thread < all; at += at_once) {
            ht_quads<QUADS> loaded[OPERANDS], later[OPERANDS];
            if (is_first && end == 0)
                ht_load_some(x, a.n_steps ? a.step[0].in[0] + row * a.step[0].stride[0] : a.x + row * a.ldx, at, step,
                             quads);
            else if (is_long && !is_first)
                ht_load_some(x, between, at, step, quads);
            if (i < end) ht_load_operands(a.step[i], row, at, step, quads, loaded);
#pragma unroll 1
            for (int s = i; s < end; s++) {
                if (s + 1 < end) ht_load_operands(a.step[s + 1], row, at, step, quads, later);
                ht_run_step(a.step[s], scale, loaded, x);
                if (a.step[s].out) ht_store_some(x, a.step[s].out + row * a.width, at, step, quads);
                loaded[0] = later[0], loaded[1] = later[1];
            }
            if (is_long) ht_store_some(x, between, at, step, quads);
#pragma unroll
            for (int j = 0; j < QUADS; j++)
                if (end < a.n_steps)
                    sums[j] = ht_squares_of(x.v[j], sums[j]);
                else
                    most = ht_most_of(x.v[j], most);
        }
        if (is_first) ht_await_all(team);
        if (end < a.n_steps) scale = 1 / sqrtf(ht_sum_of<QUADS>(team, sums) / (float)a.width + a.step[end].eps);
        is_first = false;
    }
    if (!a.to.rows) return;
    const float factor = ht_power_for(ht_most_of_all(team, most), HT_TOP_OF_ROWS);
    if (team.thread == 0) a.to.inverse[row] = 1.0f / factor;
#pragma unroll 1
    for (int at = team.thread; at - team.thread < all; at += at_once) {
        if (is_long) ht_load_some(x, between, at, step, quads);
        ht_store_quads(a.to, row, x, factor, at, step, all);
    }
}

HT_CUDA_KERNEL_OF(HT_CUDA_STAGE_THREADS, ht_cuda_stage_rows, ht_cuda_stage_arguments) {
    HT_CUDA_SHARED(float, between);
    __shared__ float shared[WARPS];
    ht_stage<HT_CUDA_STAGE_QUADS>(a, shared, between);
}

/* Few rows, of no more quads than a team has threads. */
HT_CUDA_KERNEL_OF(HT_CUDA_STAGE_THREADS, ht_cuda_stage_few, ht_cuda_stage_arguments) {
    __shared__ float shared[WARPS];
    ht_stage<1>(a, shared, NULL);
}
