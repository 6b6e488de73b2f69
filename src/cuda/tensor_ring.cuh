/* Spans of packed weights on their way to a warp's ring in shared memory (cuda/tensor_product.h). */
#ifndef HT_CUDA_TENSOR_RING_CUH
#define HT_CUDA_TENSOR_RING_CUH

#include "cuda/matrix_pairs.cuh"
#include "cuda/tensor_product.h"

/* Spans that are loaded whole; what is left is columns by eight. */
template <class F> static __device__ __forceinline__ int64_t ht_spans_of(const ht_cuda_weights &m) {
    return F::LOADS_ANY ? (m.k + HT_CUDA_K_TILE - 1) / HT_CUDA_K_TILE : m.whole / (F::CYCLES * HT_CUDA_K_TILE);
}

static __device__ __forceinline__ const ht_cuda_tensor_matrix &ht_matrix_of(const ht_cuda_tensor_arguments &a,
                                                                            int64_t panel) {
    int which = 0;
    while (which + 1 < a.n_matrices && panel >= a.matrix[which + 1].first_panel) which++;
    return a.matrix[which];
}

/* The panels after `panel` of the same matrix that have all their rows: behind these, everything is found again. */
static __device__ __forceinline__ int64_t ht_end_of_whole(const ht_cuda_tensor_matrix &of, int panels) {
    return of.first_panel + of.w.n_rows / HT_CUDA_PANEL - (panels - 1);
}

/* The rows that a lane has of the panels. */
template <int PANELS> struct ht_lane_rows {
    const ht_cuda_weights *w;
    const uint8_t *row[PANELS][2];
    int32_t index[PANELS][2];
    int64_t panel, whole, step; /* from the warp's panels to its next */

    /* What all rows share, where `alike`: from the arguments, which are close at hand. */
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

    /* Of the next panels, if there are any. */
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

/* What all lanes have of them. */
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

/* A warp's ring, and what comes to it next. */
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

#endif
