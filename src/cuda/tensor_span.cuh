/* Spans of packed weights times rows of x, and as rows of an image (cuda/tensor_product.h). */
#ifndef HT_CUDA_TENSOR_SPAN_CUH
#define HT_CUDA_TENSOR_SPAN_CUH

#include "cuda/tensor_ring.cuh"
#include "cuda/tensor_rows.cuh"

/* ---- what is behind the last span ---- */

/* Columns 8 t to 8 t + 7 of half h of a cut, of what is behind the last span. */
static __device__ HT_CUDA_APART uint4 ht_loose_pairs(const ht_cuda_weights &m, const uint8_t *row, int64_t index,
                                                     int64_t chunk, float factor) {
    float w[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    uint32_t out[4];
    if (chunk * 8 < m.k) ht_part_of(m, row, index, chunk, w);
    ht_pairs_of_floats(w, factor, out);
    return uint4{out[0], out[1], out[2], out[3]};
}

/* ---- times rows of x ---- */

/* Where a lane finds its columns of the rows of x: of each half of a cut, for each of its steps. */
typedef struct ht_lane_x {
    const unsigned char *at[2][2];
} ht_lane_x;

/* Bytes of a cut of an image of N * 8 rows. */
#define HT_K_TILE_STRIDE(N) ((N)*HT_CUDA_K_TILE_BYTES)

/* Of the eight rows from `first` on, which are of one group of eight, as n of them are there: the others' lanes read the last once more, from
 * where it is read already. */
static __device__ __forceinline__ ht_lane_x ht_x_of(const unsigned char *rows, int64_t first, int64_t n, int lane) {
    const int t = lane & 3, g = (int)(first & 7) + (lane >> 2 < n ? lane >> 2 : (int)n - 1);
    ht_lane_x out;
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int step = 0; step < 2; step++)
            out.at[h][step] = rows + first / 8 * HT_CUDA_K_TILE_BYTES + HT_CUDA_STEP_PLACE(g, h * 4 + t, step);
    return out;
}

/* Half h of a cut, `offset` bytes from the first: two steps of 16 columns. */
template <int N, int PANELS>
static __device__ __forceinline__ void ht_add_half(const uint32_t (*w)[2][4], const ht_lane_x &x, int64_t offset, int h,
                                                   float (*sum)[N][4]) {
    uint2 b[N][2];
#pragma unroll
    for (int j = 0; j < N; j++)
#pragma unroll
        for (int step = 0; step < 2; step++)
            b[j][step] = *(const uint2 *)(x.at[h][step] + (offset + j * HT_CUDA_K_TILE_BYTES));
#pragma unroll
    for (int p = 0; p < PANELS; p++) {
        const uint32_t first[4] = {w[p][0][0], w[p][1][0], w[p][0][1], w[p][1][1]};
        const uint32_t second[4] = {w[p][0][2], w[p][1][2], w[p][0][3], w[p][1][3]};
#pragma unroll
        for (int j = 0; j < N; j++) {
            const uint32_t of_first[2] = {b[j][0].x, b[j][0].y}, of_second[2] = {b[j][1].x, b[j][1].y};
            ht_mma(sum[p][j], first, of_first);
            ht_mma(sum[p][j], second, of_second);
        }
    }
}

/* A span of PANELS panels with their factors; its columns of x are `offset` bytes from the first, and a cut has `k_tile_bytes`. */
template <class F, int N, int PANELS>
static __device__ __forceinline__ void ht_add_span(const ht_cuda_weights &m, const float *factor,
                                                   const ht_span<F, PANELS> &s, const ht_lane_x &x, int64_t offset,
                                                   int64_t k_tile_bytes, float (*sum)[N][4]) {
    typename F::scale scale[PANELS][2];
#pragma unroll
    for (int p = 0; p < PANELS; p++)
#pragma unroll
        for (int half = 0; half < 2; half++) scale[p][half] = F::open(m, s.raw[p][half], factor[p]);
#pragma unroll
    for (int c = 0; c < F::CYCLES; c++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t w[PANELS][2][4];
#pragma unroll
            for (int p = 0; p < PANELS; p++)
#pragma unroll
                for (int half = 0; half < 2; half++) F::pairs(m, s.raw[p][half], scale[p][half], c, h, w[p][half]);
            ht_add_half<N, PANELS>(w, x, offset + c * k_tile_bytes, h, sum);
        }
}

/* A cut behind the last span. */
template <int N, int PANELS>
static __device__ __forceinline__ void
ht_add_loose(const ht_cuda_weights &m, const float *factor, const uint8_t *const (*row)[2], const int32_t (*index)[2],
             const ht_lane_x &x, int64_t cut, int64_t offset, int lane, float (*sum)[N][4]) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint32_t w[PANELS][2][4];
#pragma unroll
        for (int p = 0; p < PANELS; p++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const uint4 all =
                    ht_loose_pairs(m, row[p][half], index[p][half], cut * 8 + h * 4 + (lane & 3), factor[p]);
                w[p][half][0] = all.x, w[p][half][1] = all.y, w[p][half][2] = all.z, w[p][half][3] = all.w;
            }
        ht_add_half<N, PANELS>(w, x, offset, h, sum);
    }
}

/* ---- as rows of an image ---- */

/* Spans of a row, and the cuts behind them. */
template <class F> static __device__ __forceinline__ int64_t ht_units_of(const ht_cuda_weights &m) {
    const int64_t spans = ht_spans_of<F>(m), cuts = (m.k + HT_CUDA_K_TILE - 1) / HT_CUDA_K_TILE,
                  whole = spans * F::CYCLES;
    return spans + (cuts > whole ? cuts - whole : 0);
}

/* What lane t has of the i-th unit of row `index` of a matrix that begins at `packed`, as row r of eight of an image: `to` is where these begin in the
 * first cut, and cuts are `k_tile_bytes` apart. Zeros where the row is not there. */
template <class F>
static __device__ __forceinline__ void ht_store_tile_unit(const ht_cuda_weights &m, const unsigned char *packed,
                                                          int64_t index, bool is_there, float factor, int64_t i, int t,
                                                          int r, unsigned char *to, int64_t k_tile_bytes) {
    const int64_t spans = ht_spans_of<F>(m), cut = i < spans ? i * F::CYCLES : spans * F::CYCLES + i - spans;
    const uint8_t *from = packed + index * m.row_bytes;
    to += cut * k_tile_bytes;
    if (i >= spans) {
        for (int h = 0; h < 2; h++) {
            uint4 all = {0, 0, 0, 0};
            if (is_there) all = ht_loose_pairs(m, from, index, cut * 8 + h * 4 + t, factor);
            const uint32_t w[4] = {all.x, all.y, all.z, all.w};
            ht_store_chunk(to, false, r, h * 4 + t, w);
        }
        return;
    }
    typename F::raw raw;
    typename F::scale scale;
    if (is_there) {
        ht_load_now visitor;
        F::visit(visitor, raw, m, from, index, i, t);
        scale = F::open(m, raw, factor);
    }
#pragma unroll
    for (int c = 0; c < F::CYCLES; c++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t w[4] = {0, 0, 0, 0};
            if (is_there) F::pairs(m, raw, scale, c, h, w);
            ht_store_chunk(to + c * k_tile_bytes, false, r, h * 4 + t, w);
        }
}

#endif
