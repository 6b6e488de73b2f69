/* Indexing: gathering and scattering slices. */
#include "cuda/index.h"
#include "cuda/kernel.cuh"

#include <hearth/index.h>

/* ---- indices ---- */

/* The first bad index that a thread has found. */
struct outside {
    int64_t position, value; /* position: -1: none */
};

/* Index of a row or an item, as an offset; false when it is outside the axis. */
static __device__ bool resolve(const ht_cuda_index &x, int64_t number, int64_t *offset, int64_t *value) {
    const ht_dtype t = x.view.dtype;
    const int64_t index = *value = ht_get_int(t, x.view.data, ht_offset_of(x.view, x.view.n_dims, number));
    const int64_t at = ht_dtype_is_signed(t) && index < 0 ? index + x.size : index;
    const bool inside = at >= 0 && at < x.length;
    *offset = inside ? at * x.stride : 0;
    return inside;
}

static __device__ void note(const ht_cuda_index &x, int64_t number, int64_t value, outside *first) {
    const int64_t position = number / x.repeat % x.n;
    if (first->position >= 0 && first->position <= position) return;
    first->position = position;
    first->value = value;
}

/* Reports the lowest position of a block, so that not every thread waits for the record's lock. All threads call it. */
static __device__ void report(const ht_cuda_index &x, const outside &first) {
    __shared__ unsigned long long lowest;
    if (threadIdx.x == 0 && threadIdx.y == 0) lowest = UINT64_MAX;
    __syncthreads();
    if (first.position >= 0) atomicMin(&lowest, (unsigned long long)first.position);
    __syncthreads();
    if (first.position >= 0 && (unsigned long long)first.position == lowest)
        ht_report_index(x.reporter, first.position, first.value, x.axis, x.size, x.length);
}

HT_CUDA_KERNEL(ht_cuda_index_items, ht_cuda_items_arguments) {
    outside first = {-1, 0};
    for (int64_t i = ht_first(); i < a.n; i += ht_step()) {
        int64_t offset = 0, value;
        if (a.index.view.n_dims >= 0 && !resolve(a.index, i, &offset, &value)) note(a.index, i, value, &first);
        if (!a.items) continue;
        if (a.add)
            a.items[i] += offset << a.shift;
        else
            a.items[i] = ((a.first + ht_offset_of(a.base, a.base.n_dims, i) + offset) << a.shift) | (a.shift ? i : 0);
    }
    report(a.index, first);
}

/* ---- slices read ---- */

template <typename T> static __device__ void take(const ht_cuda_take_arguments &a) {
    outside first = {-1, 0};
    const bool flat = a.slice.n_dims <= 1;
    const int64_t step = a.slice.n_dims ? a.slice.stride[0] : 0;
    for (int64_t row = ht_first_row(); row < a.rows; row += ht_row_step()) {
        int64_t at, value;
        const bool inside = resolve(a.index, row, &at, &value);
        if (!inside) note(a.index, row, value, &first);
        if (a.offset) at += a.offset[row / a.index.repeat % a.index.n];
        const T *from = (const T *)a.base.data + ht_offset_of(a.base, a.base.n_dims, row) + at;
        T *to = (T *)a.out + row * a.size;
        for (int64_t i = ht_first_column(); i < a.size; i += ht_column_step())
            to[i] = inside ? from[flat ? i * step : ht_offset_of(a.slice, a.slice.n_dims, i)] : T();
    }
    report(a.index, first);
}

HT_CUDA_KERNEL(ht_cuda_take, ht_cuda_take_arguments) {
    switch (a.bytes) {
    case 1: take<uint8_t>(a); break;
    case 2: take<uint16_t>(a); break;
    case 4: take<uint32_t>(a); break;
    case 8: take<uint64_t>(a); break;
    default: take<ht_word16>(a);
    }
}

/* ---- slices written ---- */

static __device__ uint64_t destination(const ht_cuda_scatter_arguments &a, int64_t i) { return a.items[i] >> a.shift; }

/* Whether item k is another update of this destination. */
static __device__ bool goes_on(const ht_cuda_scatter_arguments &a, uint64_t to, int64_t k) {
    return k < a.n && destination(a, k) == to;
}

static __device__ int64_t update_offset(const ht_cuda_scatter_arguments &a, int64_t k) {
    const uint64_t number = a.items[k] & (((uint64_t)1 << a.shift) - 1);
    return ht_offset_of(a.from, a.from.n_dims, (int64_t)number);
}

static __device__ int64_t destination_offset(const ht_cuda_scatter_arguments &a, uint64_t to) {
    return ht_offset_of(a.to, a.to.n_dims, (int64_t)to);
}

/* The last update of a destination stays. */
template <typename T> static __device__ void set(const ht_cuda_scatter_arguments &a) {
    for (int64_t row = ht_first_row(); row < a.n; row += ht_row_step()) {
        const uint64_t destined = destination(a, row);
        if (goes_on(a, destined, row + 1)) continue;
        T *to = (T *)a.to.data + destination_offset(a, destined);
        const T *from = (const T *)a.from.data + update_offset(a, row);
        for (int64_t i = ht_first_column(); i < a.size; i += ht_column_step())
            to[ht_offset_of(a.to_slice, a.to_slice.n_dims, i)] =
                from[ht_offset_of(a.from_slice, a.from_slice.n_dims, i)];
    }
}

HT_CUDA_KERNEL(ht_cuda_scatter_set, ht_cuda_scatter_arguments) {
    switch (a.bytes) {
    case 1: set<uint8_t>(a); break;
    case 2: set<uint16_t>(a); break;
    case 4: set<uint32_t>(a); break;
    case 8: set<uint64_t>(a); break;
    default: set<ht_word16>(a);
    }
}

/* Dtypes for combining updates: how an element is stored, and the value to compute with. */

struct f16_elements {
    typedef uint16_t stored;
    static __device__ float get(uint16_t x) { return ht_f16_to_f32(x); }
    static __device__ uint16_t put(float x) { return ht_f32_to_f16(x); }
};
struct bf16_elements {
    typedef uint16_t stored;
    static __device__ float get(uint16_t x) { return ht_bf16_to_f32(x); }
    static __device__ uint16_t put(float x) { return ht_f32_to_bf16(x); }
};
template <typename T, typename V> struct elements {
    typedef T stored;
    static __device__ V get(T x) { return (V)x; }
    static __device__ T put(V x) { return (T)x; }
};

static __device__ float sum(float x, float y) { return x + y; }
static __device__ double sum(double x, double y) { return x + y; }
static __device__ uint64_t sum(uint64_t x, uint64_t y) { return x + y; }
static __device__ int64_t sum(int64_t x, int64_t y) { return (int64_t)((uint64_t)x + (uint64_t)y); }

static __device__ float product(float x, float y) { return x * y; }
static __device__ double product(double x, double y) { return x * y; }
static __device__ uint64_t product(uint64_t x, uint64_t y) { return x * y; }
static __device__ int64_t product(int64_t x, int64_t y) { return (int64_t)((uint64_t)x * (uint64_t)y); }

/* An f32 extreme is flushed like any result, though comparing alone would keep a denormal. */
static __device__ float flushed(float x) { return fabsf(x) < FLT_MIN ? copysignf(0.0f, x) : x; }
template <typename V> static __device__ V flushed(V x) { return x; }

/* Equal extremes give y; a NaN always wins. */
template <typename V> static __device__ V combined(int mode, V x, V y) {
    switch (mode) {
    case HT_SCATTER_ADD: return sum(x, y);
    case HT_SCATTER_PROD: return product(x, y);
    case HT_SCATTER_MIN: return flushed(x != x || x < y ? x : y);
    default: return flushed(x != x || x > y ? x : y);
    }
}
static __device__ uint8_t combined(int mode, uint8_t x, uint8_t y) { /* bool */
    return mode == HT_SCATTER_ADD || mode == HT_SCATTER_MAX ? x | y : x & y;
}

/* End of the items of the destination whose first item is `row`, by galloping search. */
static __device__ int64_t end_of(const ht_cuda_scatter_arguments &a, uint64_t destined, int64_t row) {
    int64_t end = row + 1, step = 1;
    for (; goes_on(a, destined, end + step - 1); step *= 2) end += step;
    for (; step > 0; step /= 2)
        if (goes_on(a, destined, end + step - 1)) end += step;
    return end;
}

/* Combines the updates of items [k, end) with an element of their destination. Loads are batched, as only the results
 * depend on each other. */
template <typename E>
static __device__ void combine_element(const ht_cuda_scatter_arguments &a, int64_t k, int64_t end,
                                       typename E::stored *to, const typename E::stored *from) {
    enum { AHEAD = 16 };
    auto x = E::get(*to);
    for (; k + AHEAD <= end; k += AHEAD) {
        typename E::stored update[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) update[i] = from[update_offset(a, k + i)];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) x = E::get(E::put(combined(a.mode, x, E::get(update[i]))));
    }
    for (; k < end; k++) x = E::get(E::put(combined(a.mode, x, E::get(from[update_offset(a, k)]))));
    *to = E::put(x);
}

template <typename E> static __device__ void combine(const ht_cuda_scatter_arguments &a) {
    typedef typename E::stored stored;
    for (int64_t row = ht_first_row(); row < a.n; row += ht_row_step()) {
        const uint64_t destined = destination(a, row);
        if (row > 0 && destination(a, row - 1) == destined) continue;
        const int64_t end = end_of(a, destined, row);
        stored *to = (stored *)a.to.data + destination_offset(a, destined);
        for (int64_t i = ht_first_column(); i < a.size; i += ht_column_step())
            combine_element<E>(a, row, end, to + ht_offset_of(a.to_slice, a.to_slice.n_dims, i),
                               (const stored *)a.from.data + ht_offset_of(a.from_slice, a.from_slice.n_dims, i));
    }
}

HT_CUDA_KERNEL(ht_cuda_scatter_combine, ht_cuda_scatter_arguments) {
    switch (a.dtype) {
    case HT_BOOL: combine<elements<uint8_t, uint8_t>>(a); break;
    case HT_U8: combine<elements<uint8_t, uint64_t>>(a); break;
    case HT_U16: combine<elements<uint16_t, uint64_t>>(a); break;
    case HT_U32: combine<elements<uint32_t, uint64_t>>(a); break;
    case HT_U64: combine<elements<uint64_t, uint64_t>>(a); break;
    case HT_I8: combine<elements<int8_t, int64_t>>(a); break;
    case HT_I16: combine<elements<int16_t, int64_t>>(a); break;
    case HT_I32: combine<elements<int32_t, int64_t>>(a); break;
    case HT_I64: combine<elements<int64_t, int64_t>>(a); break;
    case HT_F16: combine<f16_elements>(a); break;
    case HT_BF16: combine<bf16_elements>(a); break;
    case HT_F32: combine<elements<float, float>>(a); break;
    case HT_F64: combine<elements<double, double>>(a); break;
    default: break;
    }
}
