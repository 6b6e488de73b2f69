/* Spans of packed weights: loaded to a warp's ring in shared memory, multiplied by rows of x, and stored as swizzled
 * rows (cuda/tensor_product.h). */
#ifndef HT_CUDA_TENSOR_SPAN_CUH
#define HT_CUDA_TENSOR_SPAN_CUH

#include "cuda/matrix_pairs.cuh"
#include "cuda/tensor_rows.cuh"

/* Spans that are loaded whole; columns after them are read eight at a time. */
template <class F> static __device__ __forceinline__ int64_t ht_spans_of(const ht_cuda_weights &m) {
    return F::LOADS_ANY ? (m.k + HT_CUDA_K_TILE - 1) / HT_CUDA_K_TILE : m.whole / (F::CYCLES * HT_CUDA_K_TILE);
}

static __device__ __forceinline__ const ht_cuda_tensor_matrix &ht_matrix_of(const ht_cuda_tensor_arguments &a,
                                                                            int64_t panel) {
    int which = 0;
    while (which + 1 < a.n_matrices && panel >= a.matrix[which + 1].first_panel) which++;
    return a.matrix[which];
}

/* Start of the panels that `go_on` cannot reach by strides: they are incomplete, or of the next matrix. */
static __device__ __forceinline__ int64_t ht_end_of_whole(const ht_cuda_tensor_matrix &of, int panels) {
    return of.first_panel + of.w.n_rows / HT_CUDA_PANEL - (panels - 1);
}

/* A lane's rows of the panels. */
template <int PANELS> struct ht_lane_rows {
    const ht_cuda_weights *w;
    const uint8_t *row[PANELS][2];
    int32_t index[PANELS][2];
    int64_t panel, whole, step; /* from the warp's panels to its next */

    /* The fields that all rows share; if `alike`, from the kernel arguments, which are faster to read. */
    __device__ __forceinline__ const ht_cuda_weights &weights(const ht_cuda_tensor_arguments &a, bool alike) const {
        return alike ? a.matrix[0].w : *w;
    }

    __device__ __forceinline__ void find(const ht_cuda_tensor_arguments &a, int64_t at, int lane) {
        const ht_cuda_tensor_matrix &of = ht_matrix_of(a, at);
        w = &of.w;
        panel = at;
        whole = ht_end_of_whole(of, PANELS);
#pragma unroll
        for (int p = 0; p < PANELS; p++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int64_t i = (panel - of.first_panel + p) * HT_CUDA_PANEL + half * 8 + lane / 4,
                              last = of.w.n_rows - 1, of_it = i < last ? i : last;
                index[p][half] = (int32_t)of_it;
                row[p][half] = of.w.packed + of_it * of.w.row_bytes;
            }
    }

    /* Advances to the next panels; false: none left. */
    __device__ __forceinline__ bool go_on(const ht_cuda_tensor_arguments &a, int lane) {
        if (panel + step < whole) {
            panel += step;
#pragma unroll
            for (int p = 0; p < PANELS; p++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    index[p][half] += (int32_t)step * HT_CUDA_PANEL;
                    row[p][half] += step * HT_CUDA_PANEL * w->row_bytes;
                }
            return true;
        }
        if (panel + step >= a.panels) return false;
        find(a, panel + step, lane);
        return true;
    }
};

/* Data of the panels that all lanes share. */
template <int PANELS> struct ht_panels {
    const ht_cuda_tensor_matrix *of;
    int32_t first;        /* row of the first */
    float factor[PANELS]; /* a panel's rows have one */
};

template <int PANELS>
static __device__ __forceinline__ ht_panels<PANELS> ht_panels_at(const ht_cuda_tensor_arguments &a, int64_t panel) {
    const ht_cuda_tensor_matrix &of = ht_matrix_of(a, panel);
    ht_panels<PANELS> r;
    r.of = &of;
    r.first = (int32_t)((panel - of.first_panel) * HT_CUDA_PANEL);
#pragma unroll
    for (int p = 0; p < PANELS; p++) {
        const int64_t begin = r.first + p * HT_CUDA_PANEL;
        r.factor[p] = __ldg(of.factors + (begin < of.w.n_rows ? begin : of.w.n_rows - 1) / HT_CUDA_FACTOR_ROWS);
    }
    return r;
}

template <class F, int PANELS> struct ht_span { typename F::raw raw[PANELS][2]; };

/* A warp's ring and its next loads. */
template <class F, int PANELS, int N_SLOTS = HT_CUDA_RING_SLOTS(PANELS * sizeof(typename F::raw)),
          class ROWS = ht_lane_rows<PANELS>>
struct ht_ring {
    enum { FIELDS = 32 * sizeof(typename F::raw), SLOT = PANELS * 2 * FIELDS, SLOTS = N_SLOTS, BYTES = SLOT * SLOTS };
    unsigned char *first, *to, *from;
    uint64_t policy;
    int lane;
    int32_t begin, end, i; /* spans of the warp's segment */
    ROWS rows;

    __device__ __forceinline__ unsigned char *after(unsigned char *slot) const {
        return slot == first + (SLOTS - 1) * SLOT ? first : slot + SLOT;
    }

    template <class A> __device__ __forceinline__ void async_copy(const A &a) {
        if (i < end) {
            const ht_cuda_weights &w = rows.weights(a, F::ALIKE);
#pragma unroll
            for (int p = 0; p < PANELS; p++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    typename F::raw raw;
                    ht_async_copy_field<typename F::raw> visitor = {&raw, to + (p * 2 + half) * FIELDS, lane, policy};
                    F::visit(visitor, raw, w, rows.row[p][half], rows.index[p][half], i, lane & 3);
                }
            if (++i == end && rows.go_on(a, lane)) i = begin;
        }
        ht_copies_end();
        to = after(to);
    }

    __device__ __forceinline__ void take(ht_span<F, PANELS> &s, const ht_cuda_weights &w, int64_t span) {
        ht_copies_wait<SLOTS - 1>();
#pragma unroll
        for (int p = 0; p < PANELS; p++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                ht_take_field<typename F::raw> visitor = {&s.raw[p][half], from + (p * 2 + half) * FIELDS, lane};
                F::visit(visitor, s.raw[p][half], w, w.packed, 0, span, lane & 3);
            }
        from = after(from);
    }
};

/* ---- columns after the last span ---- */

/* Columns 8 t to 8 t + 7 of half h of a K-tile after the last span. */
static __device__ HT_CUDA_APART uint4 ht_loose_pairs(const ht_cuda_weights &m, const uint8_t *row, int64_t index,
                                                     int64_t chunk, float factor) {
    float w[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    uint32_t out[4];
    if (chunk * 8 < m.k) ht_part_of(m, row, index, chunk, w);
    ht_pairs_of_floats(w, factor, out);
    return uint4{out[0], out[1], out[2], out[3]};
}

/* ---- times rows of x ---- */

/* Addresses of a lane's columns in the rows of x, per half of a K-tile and per step. */
typedef struct ht_lane_x {
    const unsigned char *at[2][2];
} ht_lane_x;

/* Bytes of a K-tile of N * 8 swizzled rows. */
#define HT_K_TILE_STRIDE(N) ((N)*HT_CUDA_K_TILE_BYTES)

/* Addresses in n of the eight rows from `first` on, which are in one group of eight. Lanes of missing rows read the
 * last row again, at no extra traffic. */
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

/* Adds half h of a K-tile, `offset` bytes from the first: two steps of 16 columns. */
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

/* Adds a span of PANELS panels with their factors. x is `offset` bytes from its start; a K-tile has `k_tile_bytes`. */
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

/* Adds a K-tile after the last span. */
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

/* ---- as rows of a swizzled operand ---- */

/* Spans of a row plus the K-tiles after them. */
template <class F> static __device__ __forceinline__ int64_t ht_units_of(const ht_cuda_weights &m) {
    const int64_t spans = ht_spans_of<F>(m), cuts = (m.k + HT_CUDA_K_TILE - 1) / HT_CUDA_K_TILE,
                  whole = spans * F::CYCLES;
    return spans + (cuts > whole ? cuts - whole : 0);
}

/* Stores lane t's part of unit i of row `index`, of a matrix at `packed`, as row r of a group of eight. `to` is the
 * group's first K-tile; K-tiles are `k_tile_bytes` apart. Missing rows are zeros. */
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
