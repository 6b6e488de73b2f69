/* Products of up to 64 rows with packed weights by wgmma (cuda/tensor_product.h). A cluster of eight blocks computes
 * 128 rows of the matrix, each block one segment of the columns. A warp has 16 rows, whose weights pass through its
 * ring and are unpacked into registers; all warps share K-tiles of x. Then each block adds all blocks' sums of 16
 * rows. */
#include "cuda/cluster.cuh"
#include "cuda/tensor_span.cuh"

#ifdef HT_HAS_WGMMA
enum {
    TOKENS = HT_CUDA_SOME_TOKENS,
    ROWS = HT_CUDA_SOME_ROWS,
    CUTS = HT_CUDA_SOME_CUTS,
    K_TILE_BYTES = TOKENS * 128,
    WARPS = HT_CUDA_TENSOR_WARPS,
    SUMS = TOKENS / 2, /* of a thread */
    STRIDE = HT_CUDA_SOME_STRIDE,
    APART = WARPS * 32 / HT_CUDA_PANEL, /* tokens of a thread's sums */
    EACH = TOKENS / APART,
};

/* K-tiles of x being copied. */
struct ht_k_tiles {
    unsigned char *slots;
    uint64_t *full, *free;
    const unsigned char *x;    /* the segment's first */
    int32_t n;                 /* K-tiles of the segment */
    int64_t left;              /* not yet requested */
    int32_t next, slot, phase; /* of the next request */
};

/* Requests the next K-tile once all warps have released its slot. */
static __device__ __forceinline__ void ht_ask(ht_k_tiles &c) {
    if (c.left == 0) return;
    ht_barrier_wait(&c.free[c.slot], c.phase ^ 1);
    ht_barrier_expect(&c.full[c.slot], K_TILE_BYTES);
    ht_async_copy(c.slots + c.slot * K_TILE_BYTES, c.x + (int64_t)c.next * K_TILE_BYTES, K_TILE_BYTES, &c.full[c.slot]);
    c.left--;
    if (++c.next == c.n) c.next = 0;
    if (++c.slot == CUTS) c.slot = 0, c.phase ^= 1;
}

/* c [64, TOKENS] = a [64, 16] b [TOKENS, 16]^T, added to c if `adds`. Each warp has 16 rows of a in registers. */
static __device__ __forceinline__ void ht_wgmma(float *c, const uint32_t *a, uint64_t b, int adds) {
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %37, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31 "
                 "}, {%32, %33, %34, %35}, %36, p, 1, 1, 0;\n\t}"
                 : HT_SUMS_32(c)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds));
}

/* Compiler barrier: keeps registers that an asynchronous wgmma may still read. */
static __device__ __forceinline__ void ht_keep(const uint32_t (*a)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) asm volatile("" ::"r"(a[i][0]), "r"(a[i][1]), "r"(a[i][2]), "r"(a[i][3]) : "memory");
}

static __device__ __forceinline__ float ht_of_block(const float *p, int block) {
    float x;
    asm volatile("{\n\t.reg .b32 there;\n\tmapa.shared::cluster.u32 there, %1, %2;\n\t"
                 "ld.shared::cluster.f32 %0, [there];\n\t}"
                 : "=f"(x)
                 : "r"(ht_shared_address(p)), "r"(block)
                 : "memory");
    return x;
}

/* Adds all blocks' sums of the block's 16 rows. A thread has one row and every 16th token; its loads are all in flight
 * together. */
static __device__ __forceinline__ void ht_add_blocks(const ht_cuda_tensor_arguments &a, const ht_panels<1> &at,
                                                     int part, const float *sums, int thread, const float *inverse) {
    const ht_cuda_tensor_matrix &of = *at.of;
    const int row = thread % HT_CUDA_PANEL, first = thread / HT_CUDA_PANEL;
    float of_block[EACH][HT_CUDA_SEGMENTS];
#pragma unroll
    for (int k = 0; k < EACH; k++)
#pragma unroll
        for (int s = 0; s < HT_CUDA_SEGMENTS; s++)
            of_block[k][s] = ht_of_block(sums + (first + k * APART) * STRIDE + part * HT_CUDA_PANEL + row, s);
    if (at.first + row >= of.w.n_rows) return;
    const float power = ht_inverse_of_power(at.factor[0]), bias = of.bias ? of.bias[at.first + row] : 0.0f;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        const int x = first + k * APART;
        float total = 0;
#pragma unroll
        for (int s = 0; s < HT_CUDA_SEGMENTS; s++) total += of_block[k][s];
        total = total * inverse[k] * power;
        if (of.bias) total += bias;
        if (x < a.n) of.y[x * of.ldy + at.first + row] = total;
    }
}

template <class F> static __device__ __forceinline__ void ht_some(const ht_cuda_tensor_arguments &a) {
    extern __shared__ __align__(1024) unsigned char ht_some_shared[];
    __shared__ uint64_t full[CUTS], free[CUTS];
    float *sums = (float *)(ht_some_shared + CUTS * K_TILE_BYTES);
    const int thread = ht_kept_thread(), warp = thread >> 5, lane = thread & 31, part = ht_block_of_cluster();
    const int64_t spans = ht_spans_of<F>(a.matrix[0].w), tiles = a.panels / WARPS;
    const int64_t clusters = gridDim.x / HT_CUDA_SEGMENTS, first = blockIdx.x / HT_CUDA_SEGMENTS;
    const int32_t begin = (int32_t)(spans * part / HT_CUDA_SEGMENTS),
                  end = (int32_t)(spans * (part + 1) / HT_CUDA_SEGMENTS);
    ht_ring<F, 1, HT_CUDA_SOME_SLOTS> ring;
    ring.lane = lane;
    ring.policy = ht_read_once();
    ring.first = (unsigned char *)sums + TOKENS * STRIDE * 4 + warp * ring.BYTES;
    ring.to = ring.from = ring.first;
    ring.begin = ring.i = begin, ring.end = end;
    ring.rows.step = clusters * WARPS;
    ring.rows.find(a, first * WARPS + warp, lane);
#pragma unroll 1
    for (int j = 1; j < ring.SLOTS; j++) ring.async_copy(a);
    if (thread == 0) {
        for (int i = 0; i < CUTS; i++) {
            ht_barrier_init(&full[i], 1);
            ht_barrier_init(&free[i], WARPS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;\n\tfence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    ht_await_earlier();
    ht_k_tiles cuts = {ht_some_shared,
                       full,
                       free,
                       a.x.rows + (int64_t)begin * F::CYCLES * K_TILE_BYTES,
                       (end - begin) * F::CYCLES,
                       0,
                       0,
                       0,
                       0};
    cuts.left = (tiles - first + clusters - 1) / clusters * cuts.n;
    const bool asks = thread == 0;
    if (asks)
        for (int i = 0; i < CUTS - 1; i++) ht_ask(cuts);
    float inverse[EACH];
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        const int x = thread / HT_CUDA_PANEL + k * APART;
        inverse[k] = x < a.n ? a.x.inverse[x] : 0.0f;
    }
    int slot = 0, phase = 0;
    for (int64_t tile = first; tile < tiles; tile += clusters) {
        const ht_panels<1> at = ht_panels_at<1>(a, tile * WARPS + warp);
        float sum[SUMS] = {};
        uint32_t w[2][4][4];
        int before = -1;
        for (int32_t i = begin; i < end; i++) {
            ht_span<F, 1> span;
            typename F::scale scale[2];
            ring.async_copy(a);
            const ht_cuda_weights &of = F::ALIKE ? a.matrix[0].w : at.of->w;
            ring.take(span, of, i);
#pragma unroll
            for (int half = 0; half < 2; half++) scale[half] = F::open(of, span.raw[0][half], at.factor[0]);
#pragma unroll
            for (int c = 0; c < F::CYCLES; c++) {
                uint32_t(*const mine)[4] = w[c & 1];
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    uint32_t rows[2][4];
#pragma unroll
                    for (int half = 0; half < 2; half++) F::pairs(of, span.raw[0][half], scale[half], c, h, rows[half]);
#pragma unroll
                    for (int step = 0; step < 2; step++) {
                        mine[2 * h + step][0] = rows[0][2 * step], mine[2 * h + step][1] = rows[1][2 * step];
                        mine[2 * h + step][2] = rows[0][2 * step + 1], mine[2 * h + step][3] = rows[1][2 * step + 1];
                    }
                }
                ht_barrier_wait(&full[slot], phase);
                const uint64_t x = ht_operand(ht_some_shared + slot * K_TILE_BYTES);
                ht_hold<SUMS>(sum);
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                for (int step = 0; step < 4; step++) ht_wgmma(sum, mine[step], x + 2 * step, 1);
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                if (F::CYCLES == 1) { /* the next K-tile reuses these registers */
                    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
                    ht_keep(mine);
                } else {
                    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                    ht_keep(w[(c & 1) ^ 1]);
                }
                if (before >= 0 && lane == 0) ht_barrier_arrive(&free[before], part);
                before = slot;
                if (++slot == CUTS) slot = 0, phase ^= 1;
                if (asks) ht_ask(cuts); /* into the slot of the previous K-tile */
                __syncwarp();
            }
        }
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        ht_keep(w[0]), ht_keep(w[1]);
        ht_hold<SUMS>(sum);
        if (before >= 0 && lane == 0) ht_barrier_arrive(&free[before], part);
        const ht_panels<1> of_part = ht_panels_at<1>(a, tile * WARPS + part);
        const int row = warp * HT_CUDA_PANEL + (lane >> 2);
        if (tile != first) ht_wait_only(); /* until all blocks have read the previous tile's sums */
#pragma unroll
        for (int j = 0; j < TOKENS / 8; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                sums[(j * 8 + 2 * (lane & 3) + (i & 1)) * STRIDE + row + (i >> 1) * 8] = sum[4 * j + i];
        ht_cluster_sync(); /* all blocks have stored their sums */
        ht_add_blocks(a, of_part, part, sums, thread, inverse);
        ht_arrive_only();
    }
    ht_wait_only(); /* a block's shared memory must outlive the others' reads */
}
#define HT_SOME(form) ht_some<ht_pairs_##form>(a)
#else
#define HT_SOME(form) (void)a
#endif
#define KERNEL(X, form)                                                                                                \
    HT_CUDA_EAGER_KERNEL(ht_cuda_gemm_medium_##form, ht_cuda_tensor_arguments, 256, 2) { HT_SOME(form); }
HT_CUDA_EACH_LOADED_FORM(KERNEL, )
