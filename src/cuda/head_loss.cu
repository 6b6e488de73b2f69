/* Losses of a head's logits, slab by slab, and their gradients. */
#include "cuda/head_loss.h"
#include "cuda/kernel.cuh"

static __device__ __forceinline__ float ht_capped(const ht_cuda_loss_arguments &a, float logit) {
    const float x = logit * a.scale;
    return a.softcap > 0 ? a.softcap * ht_tanh_f32(x * (1 / a.softcap)) : x;
}

static __device__ __forceinline__ int64_t ht_target_of(const ht_cuda_loss_arguments &a, int64_t i) {
    return a.targets[i * a.target_stride];
}

HT_CUDA_KERNEL(ht_cuda_loss_begin, ht_cuda_loss_arguments) {
    for (int64_t i = ht_first(); i < a.t; i += ht_step()) {
        const ht_cuda_loss_state s = {0, -INFINITY, 0};
        if (a.state) a.state[i] = s;
        if (ht_target_of(a, i) >= a.vocab) ht_report_index(a.report, i, ht_target_of(a, i), 0, a.vocab, 0);
    }
}

/* A block of 256 threads per row: the slab's largest logit and the sum of its powers join the row's state. */
HT_CUDA_KERNEL(ht_cuda_loss_sums, ht_cuda_loss_arguments) {
    __shared__ float of_thread[256];
    const int64_t i = blockIdx.x, target = ht_target_of(a, i) - a.row;
    if (ht_target_of(a, i) < 0) return;
    float *logits = a.logits + i * a.slab;
    float most = -INFINITY, sum = 0;
    for (int64_t c = threadIdx.x; c < a.n; c += 256) {
        const float x = ht_capped(a, logits[c]);
        logits[c] = x;
        if (c == target) a.state[i].picked = x;
        if (x > most || isnan(x)) most = x;
    }
    of_thread[threadIdx.x] = most;
    __syncthreads();
    for (int by = 128; by; by /= 2) {
        const float other = threadIdx.x < by ? of_thread[threadIdx.x + by] : 0.0f;
        if (threadIdx.x < by && (other > of_thread[threadIdx.x] || isnan(other))) of_thread[threadIdx.x] = other;
        __syncthreads();
    }
    const float before = a.state[i].max, of_slab = of_thread[0], max = before > of_slab ? before : of_slab;
    __syncthreads();
    for (int64_t c = threadIdx.x; c < a.n; c += 256) sum += ht_exp_f32(logits[c] - max);
    of_thread[threadIdx.x] = sum;
    __syncthreads();
    for (int by = 128; by; by /= 2) {
        if (threadIdx.x < by) of_thread[threadIdx.x] += of_thread[threadIdx.x + by];
        __syncthreads();
    }
    if (threadIdx.x) return;
    a.state[i].sum = a.state[i].sum * exp((double)before - (double)max) + (double)of_thread[0];
    a.state[i].max = max;
}

HT_CUDA_KERNEL(ht_cuda_loss_end, ht_cuda_loss_arguments) {
    for (int64_t i = ht_first(); i < a.t; i += ht_step()) {
        const bool asked = ht_target_of(a, i) >= 0;
        const double lse = (double)a.state[i].max + log(a.state[i].sum);
        a.out[i] = asked ? (float)(lse - (double)a.state[i].picked) : 0.0f;
        a.out[a.t + i] = asked ? (float)lse : 0.0f;
    }
}

/* Logits of the slab become gradients of the products; 0 in rows without a target. */
HT_CUDA_KERNEL(ht_cuda_loss_gradients, ht_cuda_loss_arguments) {
    const int64_t i = blockIdx.x, target = ht_target_of(a, i);
    float *logits = a.logits + i * a.slab;
    const float lse = a.lse[i * a.lse_stride], factor = a.factor[i * a.factor_stride] * a.scale;
    for (int64_t c = threadIdx.x; c < a.n; c += blockDim.x) {
        const float x = ht_capped(a, logits[c]);
        float p = ht_exp_f32(x - lse);
        if (c == target - a.row) p -= 1.0f;
        float g = p * factor;
        if (a.softcap > 0) {
            const float y = x * (1 / a.softcap);
            g *= fmaf(-y, y, 1.0f);
        }
        logits[c] = target < 0 ? 0.0f : g;
    }
}
