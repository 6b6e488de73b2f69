/* Clusters of blocks, barriers that count bytes, bulk copies and operands of wgmma, on sm_90a. */
#ifndef HT_CUDA_CLUSTER_CUH
#define HT_CUDA_CLUSTER_CUH

#include "cuda/tensor.cuh"

/* Arrive and wait of a cluster barrier without memory ordering, on sm_90 and later. */
#if !defined(HT_CUDA_ON_HOST) && __CUDA_ARCH__ >= 900
static __device__ __forceinline__ void ht_arrive_only(void) {
    __syncwarp();
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
static __device__ __forceinline__ void ht_wait_only(void) {
    __syncwarp();
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}
#endif

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HT_HAS_WGMMA 1

static __device__ __forceinline__ uint32_t ht_shared_address(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* ---- barriers that count bytes ---- */

static __device__ __forceinline__ void ht_barrier_init(uint64_t *b, int arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(ht_shared_address(b)), "r"(arrivals) : "memory");
}
/* Arrives at that barrier of a block of the cluster. Earlier reads are complete, so they need no fence; a fence for the
 * cluster costs as much as the products. */
static __device__ __forceinline__ void ht_barrier_arrive(uint64_t *b, int block) {
    asm volatile("{\n\t.reg .b32 there;\n\tmapa.shared::cluster.u32 there, %0, %1;\n\t"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n\t}" ::"r"(ht_shared_address(b)),
                 "r"(block)
                 : "memory");
}
static __device__ __forceinline__ void ht_barrier_expect(uint64_t *b, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(ht_shared_address(b)), "r"(bytes)
                 : "memory");
}
static __device__ __forceinline__ void ht_barrier_wait(uint64_t *b, int phase) {
    asm volatile("{\n\t.reg .pred done;\n"
                 "again:\n\tmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t"
                 "@!done bra again;\n\t}" ::"r"(ht_shared_address(b)),
                 "r"(phase)
                 : "memory");
}
static __device__ __forceinline__ void ht_async_copy(void *to, const void *from, int bytes, uint64_t *b) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     ht_shared_address(to)),
                 "l"(from), "r"(bytes), "r"(ht_shared_address(b))
                 : "memory");
}

/* Copies to the same address in all `blocks` of the cluster; the barrier of each counts the bytes. */
static __device__ __forceinline__ void ht_async_copy_to_all(void *to, const void *from, int bytes, uint64_t *b,
                                                            int blocks) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], "
        "%4;" ::"r"(ht_shared_address(to)),
        "l"(from), "r"(bytes), "r"(ht_shared_address(b)), "h"((uint16_t)((1 << blocks) - 1))
        : "memory");
}

static __device__ __forceinline__ int ht_block_of_cluster(void) {
    int block;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(block));
    return block;
}

/* All threads of the cluster. */
static __device__ __forceinline__ void ht_cluster_sync(void) {
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* ---- wgmma ---- */

/* Rows of 128 bytes in groups of eight that are 1024 bytes apart, swizzled (PTX ISA, matrix descriptor). */
static __device__ __forceinline__ uint64_t ht_operand(const void *p) {
    return (uint64_t)(ht_shared_address(p) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

/* Operands of asm: eight sums, 32 sums from c on. */
#define HT_SUMS_8(c)                                                                                                   \
    "+f"((c)[0]), "+f"((c)[1]), "+f"((c)[2]), "+f"((c)[3]), "+f"((c)[4]), "+f"((c)[5]), "+f"((c)[6]), "+f"((c)[7])
#define HT_SUMS_32(c) HT_SUMS_8(c), HT_SUMS_8(c + 8), HT_SUMS_8(c + 16), HT_SUMS_8(c + 24)

/* c [64, 192] = a [64, 16] b [192, 16]^T, added to c when `adds`. */
static __device__ __forceinline__ void ht_wgmma(float *c, uint64_t a, uint64_t b, int adds) {
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %98, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
                 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
                 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95 "
                 "}, %96, %97, p, 1, 1, 0, 0;\n\t}"
                 : HT_SUMS_32(c), HT_SUMS_32(c + 32), HT_SUMS_32(c + 64)
                 : "l"(a), "l"(b), "r"(adds));
}

template <int N> static __device__ __forceinline__ void ht_hold(float *c) { /* compiler barrier */
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(c[i])::"memory");
}

#endif

#endif
