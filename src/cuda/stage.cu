/* Rows through several row-wise calls: a block has a row, and a thread the same quads of it in all of them. */
#include "cuda/elementwise_f32.cuh"
#include "cuda/rows.cuh"
#include "cuda/stage.h"
#include "cuda/tensor_rows.cuh"

/* Quad q of an operand. */
static __device__ __forceinline__ float4 ht_operand_quad(const ht_cuda_stage_arguments &a, const ht_cuda_stage_step &s,
                                                         int i, const float *slots, int64_t row, int64_t q) {
    const float *p = s.slot[i] >= 0 ? slots + s.slot[i] * a.width : s.in[i] + row * s.stride[i];
    return *(const float4 *)(p + 4 * q);
}

static __device__ __forceinline__ void ht_put_quad(const ht_cuda_stage_arguments &a, const ht_cuda_stage_step &s,
                                                   float *slots, int64_t row, int64_t q, const float4 &y) {
    if (s.to_slot >= 0) *(float4 *)(slots + s.to_slot * a.width + 4 * q) = y;
    if (s.out) *(float4 *)(s.out + row * a.width + 4 * q) = y;
}

/* As cuda/norm.cu has it. */
static __device__ __forceinline__ void ht_norm_step(const ht_cuda_stage_arguments &a, const ht_cuda_stage_step &s,
                                                    float *slots, int64_t row) {
    const int64_t quads = a.width / 4;
    float sum = 0;
    for (int64_t q = threadIdx.x; q < quads; q += blockDim.x) {
        const float4 v = ht_operand_quad(a, s, 0, slots, row, q);
        sum += v.x * v.x;
        sum += v.y * v.y;
        sum += v.z * v.z;
        sum += v.w * v.w;
    }
    const float scale = 1 / sqrtf(ht_team_sum(sum, (int)blockDim.x) / (float)a.width + s.eps);
    for (int64_t q = threadIdx.x; q < quads; q += blockDim.x) {
        const float4 v = ht_operand_quad(a, s, 0, slots, row, q);
        float4 y = {v.x * scale, v.y * scale, v.z * scale, v.w * scale};
        if (s.n_in > 1) {
            const float4 w = ht_operand_quad(a, s, 1, slots, row, q);
            y.x *= s.weight_offset + w.x;
            y.y *= s.weight_offset + w.y;
            y.z *= s.weight_offset + w.z;
            y.w *= s.weight_offset + w.w;
        }
        ht_put_quad(a, s, slots, row, q, y);
    }
}

static __device__ __forceinline__ float ht_apply_step(const ht_cuda_stage_step &s, float x, float y) {
    switch (s.op) { /* the usual ones need no call */
    case HT_OP_ADD: return x + y;
    case HT_OP_MULTIPLY: return x * y;
    case HT_OP_SILU: return ht_silu_f32(x);
    default: return s.n_in > 1 ? ht_binary_f32(s.op, x, y) : ht_unary_f32(s.op, false, x);
    }
}

static __device__ __forceinline__ void ht_elementwise_step(const ht_cuda_stage_arguments &a,
                                                           const ht_cuda_stage_step &s, float *slots, int64_t row) {
    for (int64_t q = threadIdx.x; q < a.width / 4; q += blockDim.x) {
        const float4 v = ht_operand_quad(a, s, 0, slots, row, q);
        float4 w = {0, 0, 0, 0};
        if (s.n_in > 1) w = ht_operand_quad(a, s, 1, slots, row, q);
        const float4 y = {ht_apply_step(s, v.x, w.x), ht_apply_step(s, v.y, w.y), ht_apply_step(s, v.z, w.z),
                          ht_apply_step(s, v.w, w.w)};
        ht_put_quad(a, s, slots, row, q, y);
    }
}

HT_CUDA_KERNEL_OF(HT_CUDA_LARGE_TEAM, ht_cuda_stage_rows, ht_cuda_stage_arguments) {
    HT_CUDA_SHARED(float, slots);
    const int64_t row = blockIdx.x;
    if (row >= a.n) { /* of the image only */
        ht_put_row(a.to, row, NULL, a.width, 1);
        return;
    }
#pragma unroll 1
    for (int i = 0; i < a.n_steps; i++) {
        const ht_cuda_stage_step &s = a.step[i];
        if (s.op == HT_OP_RMS_NORM)
            ht_norm_step(a, s, slots, row);
        else
            ht_elementwise_step(a, s, slots, row);
    }
    if (!a.to.rows) return;
    const float *last = slots + a.step[a.n_steps - 1].to_slot * a.width;
    float most = 0;
    for (int64_t q = threadIdx.x; q < a.width / 4; q += blockDim.x) {
        const float4 v = *(const float4 *)(last + 4 * q);
        const float of[4] = {fabsf(v.x), fabsf(v.y), fabsf(v.z), fabsf(v.w)};
        for (int j = 0; j < 4; j++) most = of[j] > most ? of[j] : most;
    }
    most = ht_block_most(most); /* behind which all of the row is there */
    ht_put_row(a.to, row, last, a.width, ht_power_for(most, HT_TOP_OF_ROWS));
}
