/* Matrix products of arrays, dense and quantised. A block computes a tile of a result from tiles of both operands in
 * shared memory, in the type of the sums: f32, f64 or 64-bit integers. A sum is a sum of chunks along k, each summed in
 * order by one thread (product.h). All kernels do this, so results do not depend on the choice of kernel. */
#include "cuda/groups.cuh"
#include "cuda/product.h"
#include "cuda/rows.cuh"
#include "cuda/tensor.cuh"

enum { DEPTH = 16 }; /* of a tile, along k; chunks are of whole tiles */
static_assert(HT_CUDA_CHUNK % DEPTH == 0, "a tile is of one chunk");

/* ---- elements: as they are fetched from memory, and as numbers ---- */

template <typename T> static __device__ T fetched(const void *p, ht_dtype, int64_t i) { return ((const T *)p)[i]; }
/* Integers of any dtype. */
template <> __device__ uint64_t fetched<uint64_t>(const void *p, ht_dtype dtype, int64_t i) {
    return (uint64_t)ht_get_int(dtype, p, i);
}

static __device__ float number(float x) { return x; }
static __device__ float number(ht_half x) { return ht_half_value(x.bits); }
static __device__ float number(ht_bfloat x) { return ht_bf16_to_f32(x.bits); }
static __device__ double number(double x) { return x; }
static __device__ uint64_t number(uint64_t x) { return x; }

static __device__ float add_product(float a, float b, float sum) { return fmaf(a, b, sum); }
static __device__ double add_product(double a, double b, double sum) { return fma(a, b, sum); }
static __device__ uint64_t add_product(uint64_t a, uint64_t b, uint64_t sum) { return a * b + sum; }

static __device__ void store(ht_dtype t, void *p, int64_t i, float x) { ht_set_f32(t, p, i, x); }
static __device__ void store(ht_dtype t, void *p, int64_t i, double x) { ht_set_f64(t, p, i, x); }
static __device__ void store(ht_dtype t, void *p, int64_t i, uint64_t x) { ht_set_int(t, p, i, (int64_t)x); }

/* ---- tiles in shared memory: [DEPTH, PITCH] ---- */

/* Rows are padded so that vectors stay aligned, and stores along k reach several banks. */
template <typename SUM> static constexpr __host__ __device__ int pitch_of(int width) {
    return width == 1 ? 1 : width + 16 / (int)sizeof(SUM);
}

/* Part of a dense operand of any strides, fetched into registers while the previous tile is in use. A thread has every
 * STEP-th index of one axis and one index of the other, so that a warp's reads are adjacent. */
template <typename SUM, typename T, int WIDTH, int THREADS> struct dense_part {
    enum { ALL = WIDTH * DEPTH, EACH = (ALL + THREADS - 1) / THREADS, PITCH = pitch_of<SUM>(WIDTH) };
    enum { ROWS_STEP = THREADS / WIDTH, ALONG_STEP = THREADS / DEPTH };
    static_assert(THREADS % WIDTH == 0 && THREADS % DEPTH == 0, "a thread stays at a place of one axis");
    const void *data;
    ht_dtype dtype;
    bool rows_follow;   /* adjacent elements in memory differ in the other axis, not in k */
    int l, w;           /* first index of the thread, along k and across */
    int64_t at;         /* place of that in memory */
    int64_t along;      /* stride of k */
    int64_t step;       /* from one of the thread's elements to the next, in memory */
    int64_t width_left; /* of the operand from w on */
    T held[EACH];

    __device__ void begin(const ht_cuda_view &v, int64_t offset, int64_t across, int64_t k_stride, int64_t width) {
        data = v.data;
        dtype = v.dtype;
        along = k_stride;
        rows_follow = k_stride != 1 && across != 0;
        l = (int)threadIdx.x / (rows_follow ? WIDTH : 1) % DEPTH;
        w = (int)threadIdx.x / (rows_follow ? 1 : DEPTH) % WIDTH;
        step = rows_follow ? ROWS_STEP * along : ALONG_STEP * across;
        at = offset + w * across + l * along;
        width_left = width - w;
        if ((int)threadIdx.x >= ALL) width_left = 0;
    }
    __device__ void fetch(int64_t k, int64_t left) {
        const bool some = l < left && width_left > 0;
        const int each = rows_follow ? ROWS_STEP : ALONG_STEP;
        const int64_t places = rows_follow ? left - l : width_left;
        const int end = !some ? 0 : places < ALL ? (int)places : ALL;
        const int64_t from = at + k * along;
#pragma unroll
        for (int i = 0; i < EACH; i++) held[i] = i * each < end ? fetched<T>(data, dtype, from + i * step) : T{};
    }
    __device__ void store_to(SUM *tile) const {
        const int each = rows_follow ? ROWS_STEP * PITCH : ALONG_STEP;
        SUM *to = tile + l * PITCH + w;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            if (EACH * THREADS == ALL || (int)threadIdx.x < ALL) to[i * each] = number(held[i]);
    }
};

/* Part of a quantised operand: a thread dequantises units of a row. */
template <typename SUM, int WIDTH, int THREADS> struct quantized_part {
    enum { UNITS = WIDTH * DEPTH / HT_CUDA_UNIT, EACH = (UNITS + THREADS - 1) / THREADS, PITCH = pitch_of<SUM>(WIDTH) };
    const uint8_t *numbers; /* of the first row */
    const void *scales, *biases;
    int64_t scales_at, biases_at; /* of the first row */
    ht_dtype scale_dtype;
    int64_t row_bytes, groups; /* of a row */
    int64_t first, width;      /* column of the result, and columns from there on */
    ht_cuda_quantization how;
    bool transpose;
    uint64_t q[EACH];
    uint32_t scale[EACH], bias[EACH]; /* as in memory; with q, all 0 where there is no unit */

    __device__ bool has(int i) const { return EACH * THREADS == UNITS || i * THREADS + (int)threadIdx.x < UNITS; }
    __device__ void place(int unit, int *k, int *w) const {
        enum { ALONG = DEPTH / HT_CUDA_UNIT, ACROSS = WIDTH / HT_CUDA_UNIT };
        *k = transpose ? unit % ALONG * HT_CUDA_UNIT : unit / ACROSS;
        *w = transpose ? unit / ALONG : unit % ACROSS * HT_CUDA_UNIT;
    }
    __device__ void fetch(int64_t k, int64_t left) {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            int l, w;
            place(i * THREADS + (int)threadIdx.x, &l, &w);
            q[i] = scale[i] = bias[i] = 0;
            if (l >= left || w >= width || !has(i)) continue; /* groups are whole, so no unit is partial */
            const int64_t row = transpose ? first + w : k + l, column = transpose ? k + l : first + w;
            const int64_t group = row * groups + (int64_t)((uint64_t)column / (unsigned)how.group);
            q[i] = ht_group_unit(how.bits, numbers + row * row_bytes + column / HT_CUDA_UNIT * how.bits);
            scale[i] = ht_group_scale_bits(how.mode, scale_dtype, scales, scales_at + group);
            if (biases) bias[i] = ht_group_scale_bits(how.mode, scale_dtype, biases, biases_at + group);
        }
    }
    __device__ void store_to(SUM *tile) const {
        const unsigned mask = (1u << how.bits) - 1;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            int l, w;
            place(i * THREADS + (int)threadIdx.x, &l, &w);
            if (!has(i)) continue;
            const float s = ht_group_scale_of(how.mode, scale_dtype, scale[i]);
            const float b = biases ? ht_group_scale_of(how.mode, scale_dtype, bias[i]) : 0.0f;
#pragma unroll
            for (int c = 0; c < HT_CUDA_UNIT; c++)
                tile[transpose ? (l + c) * PITCH + w : l * PITCH + w + c] =
                    (SUM)ht_group_element(how.mode, (unsigned)(q[i] >> c * how.bits) & mask, s, b);
        }
    }
};

/* N adjacent elements of shared memory, read in vectors of at most 16 bytes. */
template <typename SUM, int N> static __device__ void read_vector(const SUM *from, SUM *to) {
    constexpr int MOST = 16 / (int)sizeof(SUM), AT_ONCE = N < MOST ? N : MOST;
    struct alignas(sizeof(SUM) * AT_ONCE) vector {
        SUM x[AT_ONCE];
    };
#pragma unroll
    for (int i = 0; i < N; i += AT_ONCE) {
        const vector v = *(const vector *)(const void *)(from + i);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) to[i + k] = v.x[k];
    }
}

/* ---- which matrices ---- */

/* A block's tile: entry of the result, indices of its first element, and chunks. */
typedef struct tile_place {
    int64_t entry, row, column, chunk, chunks;
} tile_place;

static __device__ tile_place place_of(const ht_cuda_product_arguments &a, int rows, int columns, int64_t block) {
    const int64_t down = (a.m + rows - 1) / rows, along = (a.n + columns - 1) / columns;
    const int64_t chunks = (a.k + HT_CUDA_CHUNK - 1) / HT_CUDA_CHUNK;
    const int64_t parts = a.partial ? (chunks + a.chunks_each - 1) / a.chunks_each : 1;
    tile_place p;
    p.row = block % down * rows; /* blocks that follow each other share columns of the right operand */
    block /= down;
    p.column = block % along * columns;
    block /= along;
    p.chunk = block % parts * a.chunks_each;
    p.entry = block / parts;
    p.chunks = chunks - p.chunk < a.chunks_each ? chunks - p.chunk : a.chunks_each;
    return p;
}

static __device__ int64_t tiles_of(const ht_cuda_product_arguments &a, int rows, int columns) {
    const int64_t chunks = (a.k + HT_CUDA_CHUNK - 1) / HT_CUDA_CHUNK;
    return (a.m + rows - 1) / rows * ((a.n + columns - 1) / columns) * a.entries *
           (a.partial ? (chunks + a.chunks_each - 1) / a.chunks_each : 1);
}

static __device__ int64_t matrices_of(const ht_cuda_view &v) {
    int64_t n = 1;
    for (int d = 0; d < v.n_dims - 2; d++) n *= v.shape[d];
    return n;
}

/* Element offset of an operand's matrix for an entry. False: its index is out of range, and is reported. */
static __device__ bool find_matrix(const ht_cuda_product_arguments &a, int operand, int64_t entry, int64_t *offset) {
    const ht_cuda_view &index = a.index[operand != HT_CUDA_LEFT], &v = a.operand[operand];
    *offset = 0;
    if (index.n_dims >= 0) {
        const int64_t at = ht_get_int(index.dtype, index.data, ht_offset_of(index, index.n_dims, entry));
        if (at < 0 || at >= matrices_of(v)) return false;
        *offset = ht_offset_of(v, v.n_dims - 2, at);
        return true;
    }
    for (int d = a.n_lead - 1; d >= 0; d--) {
        *offset += entry % a.lead[d] * a.lead_stride[operand][d];
        entry /= a.lead[d];
    }
    return true;
}

template <typename SUM, typename T, int WIDTH, int THREADS>
static __device__ void begin(dense_part<SUM, T, WIDTH, THREADS> *p, const ht_cuda_product_arguments &a, int operand,
                             int64_t offset, int64_t first) {
    const bool right = operand == HT_CUDA_RIGHT;
    const int64_t across = right ? a.right_column : a.left_row;
    p->begin(a.operand[operand], offset + first * across, across, right ? a.right_k : a.left_k,
             (right ? a.n : a.m) - first);
}

template <typename SUM, int WIDTH, int THREADS>
static __device__ void begin(quantized_part<SUM, WIDTH, THREADS> *p, const ht_cuda_product_arguments &a, int,
                             int64_t offset, int64_t first) {
    const ht_cuda_view &w = a.operand[HT_CUDA_RIGHT], &scales = a.operand[HT_CUDA_SCALES];
    p->numbers = (const uint8_t *)w.data + offset * 4;
    p->row_bytes = w.shape[w.n_dims - 1] * 4;
    p->groups = scales.shape[scales.n_dims - 1];
    p->scales = scales.data;
    p->scale_dtype = scales.dtype;
    p->biases = a.operand[HT_CUDA_BIASES].n_dims >= 0 ? a.operand[HT_CUDA_BIASES].data : NULL;
    p->first = first;
    p->width = a.n - first;
    p->how = a.how;
    p->transpose = a.transpose;
}

static __device__ void begin_scales(const void *, const ht_cuda_product_arguments &, int64_t) {}
template <typename SUM, int WIDTH, int THREADS>
static __device__ void begin_scales(quantized_part<SUM, WIDTH, THREADS> *p, const ht_cuda_product_arguments &a,
                                    int64_t entry) {
    find_matrix(a, HT_CUDA_SCALES, entry, &p->scales_at);
    find_matrix(a, HT_CUDA_BIASES, entry, &p->biases_at);
}

/* ---- products ---- */

/* Threads of a block, each with DOWN by ALONG results. */
template <int ROWS, int COLUMNS, int DOWN, int ALONG> struct tiling {
    enum { THREADS = ROWS / DOWN * (COLUMNS / ALONG) };
    template <typename SUM> static constexpr __host__ __device__ size_t shared_bytes() {
        return sizeof(SUM) * DEPTH * (size_t)(pitch_of<SUM>(ROWS) + pitch_of<SUM>(COLUMNS));
    }
};
typedef tiling<HT_CUDA_TILE, HT_CUDA_TILE, 8, 4> whole_tiling;
typedef tiling<HT_CUDA_PRODUCT_FEW, HT_CUDA_TILE, 8, 1> few_tiling;
typedef tiling<1, HT_CUDA_TILE, 1, 1> one_tiling;
typedef tiling<HT_CUDA_WIDE_TILE, HT_CUDA_WIDE_TILE, 4, 2> wide_tiling;
static_assert((int)whole_tiling::THREADS == HT_CUDA_TILE_THREADS && (int)wide_tiling::THREADS == HT_CUDA_TILE_THREADS &&
                  (int)few_tiling::THREADS == HT_CUDA_FEW_THREADS && (int)one_tiling::THREADS == HT_CUDA_FEW_THREADS,
              "what the host launches");

/* sum[i][j] += the products of a tile, in order. */
template <typename SUM, int ROWS, int COLUMNS, int DOWN, int ALONG>
static __device__ void add_tile(const SUM *left, const SUM *right, SUM (&sum)[DOWN][ALONG]) {
    const int column = (int)threadIdx.x % (COLUMNS / ALONG) * ALONG, row = (int)threadIdx.x / (COLUMNS / ALONG) * DOWN;
#pragma unroll 4
    for (int l = 0; l < DEPTH; l++) {
        SUM x[DOWN], y[ALONG];
        read_vector<SUM, DOWN>(left + l * pitch_of<SUM>(ROWS) + row, x);
        read_vector<SUM, ALONG>(right + l * pitch_of<SUM>(COLUMNS) + column, y);
#pragma unroll
        for (int i = 0; i < DOWN; i++)
#pragma unroll
            for (int j = 0; j < ALONG; j++) sum[i][j] = add_product(x[i], y[j], sum[i][j]);
    }
}

template <typename SUM, int COLUMNS, int DOWN, int ALONG>
static __device__ void store_tile(const ht_cuda_product_arguments &a, const tile_place &p, ht_dtype dtype, void *out,
                                  const SUM (&sum)[DOWN][ALONG]) {
    const int64_t column = p.column + (int)threadIdx.x % (COLUMNS / ALONG) * ALONG;
    const int64_t row = p.row + (int)threadIdx.x / (COLUMNS / ALONG) * DOWN;
#pragma unroll
    for (int i = 0; i < DOWN; i++)
#pragma unroll
        for (int j = 0; j < ALONG; j++)
            if (row + i < a.m && column + j < a.n)
                store(dtype, out, p.entry * a.m * a.n + (row + i) * a.out_row + (column + j) * a.out_column, sum[i][j]);
}

template <typename SUM> static constexpr __host__ __device__ ht_dtype dtype_of(void) {
    return sizeof(SUM) == 4 ? HT_F32 : HT_F64;
}

template <typename SUM, typename LEFT, typename RIGHT, int ROWS, int COLUMNS, int DOWN, int ALONG>
static __device__ void multiply_tile(const ht_cuda_product_arguments &a, const tile_place &p, LEFT *x, RIGHT *y,
                                     SUM *shared) {
    SUM *left = shared, *right = shared + DEPTH * pitch_of<SUM>(ROWS), total[DOWN][ALONG] = {};
    int64_t at = p.chunk * HT_CUDA_CHUNK;
    if (p.chunks > 0) {
        x->fetch(at, a.k - at);
        y->fetch(at, a.k - at);
    }
    for (int64_t chunk = 0; chunk < p.chunks; chunk++) {
        SUM sum[DOWN][ALONG] = {};
        const int64_t begun = (p.chunk + chunk) * HT_CUDA_CHUNK, last = p.chunk + p.chunks;
        const int64_t end = begun + HT_CUDA_CHUNK < a.k ? begun + HT_CUDA_CHUNK : a.k;
        while (at < end) {
            __syncthreads(); /* the tiles before are done with */
            x->store_to(left);
            y->store_to(right);
            __syncthreads();
            at += DEPTH;
            if (at < a.k && at < last * HT_CUDA_CHUNK) {
                x->fetch(at, a.k - at);
                y->fetch(at, a.k - at);
            }
            add_tile<SUM, ROWS, COLUMNS, DOWN, ALONG>(left, right, sum);
        }
        if (a.partial) {
            SUM *to = (SUM *)a.partial + (p.chunk + chunk) * a.entries * a.m * a.n;
            store_tile<SUM, COLUMNS, DOWN, ALONG>(a, p, dtype_of<SUM>(), to, sum);
            continue;
        }
        for (int i = 0; i < DOWN; i++)
            for (int j = 0; j < ALONG; j++) total[i][j] += sum[i][j];
    }
    if (!a.partial) store_tile<SUM, COLUMNS, DOWN, ALONG>(a, p, a.dtype, a.out, total);
}

template <typename SUM, typename LEFT, typename RIGHT, int ROWS, int COLUMNS, int DOWN, int ALONG>
static __device__ void multiply_tiles(const ht_cuda_product_arguments &a, tiling<ROWS, COLUMNS, DOWN, ALONG>,
                                      SUM *shared) {
    const int64_t tiles = tiles_of(a, ROWS, COLUMNS);
    for (int64_t block = blockIdx.x; block < tiles; block += gridDim.x) {
        tile_place p = place_of(a, ROWS, COLUMNS, block);
        LEFT x;
        RIGHT y;
        int64_t x_at, y_at;
        const bool left = find_matrix(a, HT_CUDA_LEFT, p.entry, &x_at);
        const bool right = find_matrix(a, HT_CUDA_RIGHT, p.entry, &y_at);
        begin(&x, a, HT_CUDA_LEFT, x_at, p.row);
        begin(&y, a, HT_CUDA_RIGHT, y_at, p.column);
        begin_scales(&y, a, p.entry);
        if (!left || !right) p.chunks = 0; /* nothing is read */
        multiply_tile<SUM, LEFT, RIGHT, ROWS, COLUMNS, DOWN, ALONG>(a, p, &x, &y, shared);
    }
}

#define SHARED(type, tiling, name)                                                                                     \
    alignas(16) __shared__ unsigned char name##_bytes[tiling::shared_bytes<type>()];                                   \
    type *name = (type *)(void *)name##_bytes

/* With the element type T of the left operand, and the right one's part of it. */
template <typename T, int ROWS, int COLUMNS, int DOWN, int ALONG>
static __device__ void multiply_dense(const ht_cuda_product_arguments &a, tiling<ROWS, COLUMNS, DOWN, ALONG> t,
                                      float *shared) {
    enum { THREADS = tiling<ROWS, COLUMNS, DOWN, ALONG>::THREADS };
    multiply_tiles<float, dense_part<float, T, ROWS, THREADS>, dense_part<float, T, COLUMNS, THREADS>>(a, t, shared);
}
template <typename T, int ROWS, int COLUMNS, int DOWN, int ALONG>
static __device__ void multiply_quantized(const ht_cuda_product_arguments &a, tiling<ROWS, COLUMNS, DOWN, ALONG> t,
                                          float *shared) {
    enum { THREADS = tiling<ROWS, COLUMNS, DOWN, ALONG>::THREADS };
    multiply_tiles<float, dense_part<float, T, ROWS, THREADS>, quantized_part<float, COLUMNS, THREADS>>(a, t, shared);
}

#define KERNELS(name, multiply, tiling, blocks)                                                                        \
    HT_CUDA_KERNEL_BOUND(name, ht_cuda_product_arguments, tiling::THREADS, blocks) {                                   \
        SHARED(float, tiling, shared);                                                                                 \
        switch (a.operand[HT_CUDA_LEFT].dtype) {                                                                       \
        case HT_F16: multiply<ht_half>(a, tiling(), shared); break;                                                    \
        case HT_BF16: multiply<ht_bfloat>(a, tiling(), shared); break;                                                 \
        default: multiply<float>(a, tiling(), shared);                                                                 \
        }                                                                                                              \
    }
KERNELS(ht_cuda_multiply_tiles, multiply_dense, whole_tiling, 3)
KERNELS(ht_cuda_multiply_few, multiply_dense, few_tiling, 7)
KERNELS(ht_cuda_multiply_one, multiply_dense, one_tiling, 8)
KERNELS(ht_cuda_multiply_quantized_tiles, multiply_quantized, whole_tiling, 3)
KERNELS(ht_cuda_multiply_quantized_few, multiply_quantized, few_tiling, 7)
KERNELS(ht_cuda_multiply_quantized_one, multiply_quantized, one_tiling, 8)

enum { WIDE = HT_CUDA_WIDE_TILE, WIDE_THREADS = HT_CUDA_TILE_THREADS };
typedef dense_part<double, double, WIDE, WIDE_THREADS> part_f64;
typedef dense_part<uint64_t, uint64_t, WIDE, WIDE_THREADS> part_int;
typedef quantized_part<double, WIDE, WIDE_THREADS> quantized_part_f64;

HT_CUDA_KERNEL_BOUND(ht_cuda_multiply_f64, ht_cuda_product_arguments, WIDE_THREADS, 4) {
    SHARED(double, wide_tiling, shared);
    multiply_tiles<double, part_f64, part_f64>(a, wide_tiling(), shared);
}
HT_CUDA_KERNEL_BOUND(ht_cuda_multiply_quantized_f64, ht_cuda_product_arguments, WIDE_THREADS, 4) {
    SHARED(double, wide_tiling, shared);
    multiply_tiles<double, part_f64, quantized_part_f64>(a, wide_tiling(), shared);
}
HT_CUDA_KERNEL_BOUND(ht_cuda_multiply_int, ht_cuda_product_arguments, WIDE_THREADS, 4) {
    SHARED(uint64_t, wide_tiling, shared);
    multiply_tiles<uint64_t, part_int, part_int>(a, wide_tiling(), shared);
}

HT_CUDA_KERNEL(ht_cuda_add_chunks, ht_cuda_add_chunks_arguments) {
    for (int64_t i = ht_first(); i < a.n; i += ht_step()) {
        float sum = 0.0f;
        for (int64_t c = 0; c < a.chunks; c++) sum += ((const float *)a.partial)[c * a.n + i];
        ht_set_f32(a.dtype, a.out, i, sum);
    }
}

/* ---- indices ---- */

/* Right indices are checked after all left ones, and their positions continue those of the left. */
HT_CUDA_KERNEL(ht_cuda_check_matrices, ht_cuda_check_matrices_arguments) {
    for (int64_t i = ht_first(); i < 2 * a.n; i += ht_step()) {
        const int right = i >= a.n;
        const ht_cuda_view &index = a.index[right];
        if (index.n_dims < 0) continue;
        const int64_t at = ht_get_int(index.dtype, index.data, ht_offset_of(index, index.n_dims, right ? i - a.n : i));
        if (at < 0 || at >= a.limit[right]) ht_report_index(a.reporter, i, at, right, a.limit[right], a.n);
    }
}

/* ---- quantisation ---- */

static __device__ void store_unit(uint8_t *to, int bits, uint64_t q) {
    switch (bits) {
    case 2: *(uint16_t *)(void *)to = (uint16_t)q; break;
    case 4: *(uint32_t *)(void *)to = (uint32_t)q; break;
    default:
        for (int i = 0; i < bits; i++) to[i] = (uint8_t)(q >> 8 * i);
    }
}

/* One thread per unit; the units of a group are adjacent in a warp. */
HT_CUDA_KERNEL(ht_cuda_quantize, ht_cuda_quantize_arguments) {
    const int units = a.how.group / HT_CUDA_UNIT, last = a.w.n_dims - 1;
    const int64_t all = a.groups * units, per_row = a.w.shape[last] / a.how.group, step = a.w.stride[last];
    for (int64_t first = (int64_t)blockIdx.x * blockDim.x; first < all; first += ht_step()) {
        const int64_t unit = first + threadIdx.x;
        const bool there = unit < all;
        const int64_t group = there ? unit / units : 0;
        const int64_t place = group % per_row * a.how.group + (there ? unit % units : 0) * HT_CUDA_UNIT;
        const int64_t at = ht_offset_of(a.w, last, group / per_row) + place * step;
        float x[HT_CUDA_UNIT], low = INFINITY, high = -INFINITY;
        for (int i = 0; i < HT_CUDA_UNIT; i++) {
            x[i] = ht_get_f32(a.w.dtype, a.w.data, at + i * step);
            low = x[i] < low ? x[i] : low;
            high = x[i] > high ? x[i] : high;
        }
        for (int by = 1; by < units; by *= 2) {
            const float other_low = __shfl_xor_sync(~0u, low, by), other_high = __shfl_xor_sync(~0u, high, by);
            low = other_low < low ? other_low : low;
            high = other_high > high ? other_high : high;
        }
        if (!there) continue;
        const ht_group_fit fit = ht_fit_group(a.how, low, high);
        if (a.part == 0) {
            uint64_t q = 0;
            for (int i = 0; i < HT_CUDA_UNIT; i++) q |= (uint64_t)ht_quantized(a.how, fit, x[i]) << i * a.how.bits;
            store_unit((uint8_t *)a.out + unit * a.how.bits, a.how.bits, q);
        } else if (unit % units == 0) {
            if (a.how.mode == HT_CUDA_AFFINE)
                ht_set_f32(a.dtype, a.out, group, a.part == 1 ? fit.scale : fit.bias);
            else
                ((uint8_t *)a.out)[group] = fit.code;
        }
    }
}

HT_CUDA_KERNEL(ht_cuda_dequantize, ht_cuda_dequantize_arguments) {
    const int bits = a.how.bits, mode = a.how.mode;
    for (int64_t i = ht_first(); i < a.n; i += ht_step()) {
        const int64_t group = i / a.how.group, bit = i * bits;
        const uint8_t *p = (const uint8_t *)a.numbers + bit / 8;
        const int shift = (int)(bit % 8);
        unsigned q = p[0];
        if (shift + bits > 8) q |= (unsigned)p[1] << 8;
        const float scale = ht_group_scale(mode, a.scale_dtype, a.scales, group);
        const float bias = a.biases ? ht_group_scale(mode, a.scale_dtype, a.biases, group) : 0.0f;
        ht_set_f32(a.dtype, a.out, i, ht_group_element(mode, q >> shift & ((1u << bits) - 1), scale, bias));
    }
}
