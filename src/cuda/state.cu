/* Short convolutions and scans of states (cuda/state.h). A scan processes one row after another, whatever the rows of
 * the step, so that its bits do not depend on them; 32 columns of the state of a head are a block's. */
#include "cuda/state.cuh"

/* ---- short convolutions ---- */

static __device__ const ht_cuda_state_sequence *sequences_at(const ht_cuda_state_sequences &s) {
    return (const ht_cuda_state_sequence *)(s.table ? s.table : s.own);
}

/* Input of a channel at row t of a sequence: rows before the first one are in the state. */
static __device__ __forceinline__ float input(const ht_cuda_short_conv_arguments &a, const ht_cuda_state_sequence &s,
                                              int64_t taps, int64_t t, int64_t channel) {
    return t < 0 ? s.before[(taps - 1 + t) * a.channels + a.first + channel]
                 : ((const float *)a.x.data)[(s.row + t) * a.x.stride[0] + channel * a.x.stride[1]];
}

/* Rows [begin, end) of a sequence, with a known number of taps if TAPS > 0. */
template <int TAPS>
static __device__ __forceinline__ void convolve(const ht_cuda_short_conv_arguments &a, const ht_cuda_state_sequence &s,
                                                int64_t channel, int64_t begin, int64_t end) {
    enum { HELD = TAPS ? TAPS : 1 };
    const float *w = (const float *)a.w.data + channel * a.w.stride[0];
    const float bias = a.bias.n_dims < 0 ? 0.0f : ((const float *)a.bias.data)[channel * a.bias.stride[0]];
    const int64_t taps = a.w.shape[1], n = a.x.shape[1];
    float *out = a.out + (s.row + begin) * n + channel, held[HELD], x[HELD];
#pragma unroll
    for (int j = 0; j < TAPS; j++) {
        held[j] = w[j * a.w.stride[1]];
        if (j > 0) x[j] = input(a, s, TAPS, begin - TAPS + j, channel);
    }
    for (int64_t t = begin; t < end; t++, out += n) {
        float y = bias;
        if (TAPS) {
#pragma unroll
            for (int j = 1; j < TAPS; j++) x[j - 1] = x[j];
            x[HELD - 1] = input(a, s, TAPS, t, channel);
#pragma unroll
            for (int j = 0; j < TAPS; j++) y = fmaf(held[j], x[j], y);
        } else {
            for (int64_t j = 0; j < taps; j++)
                y = fmaf(w[j * a.w.stride[1]], input(a, s, taps, t - taps + 1 + j, channel), y);
        }
        *out = y;
    }
}

HT_CUDA_KERNEL_OF(HT_CUDA_CONV_THREADS, ht_cuda_short_conv, ht_cuda_short_conv_arguments) {
    const ht_cuda_state_sequence *all = sequences_at(a.sequences);
    const int64_t taps = a.w.shape[1], channel = ht_first();
    int low = 0, high = a.n_seq - 1; /* the last sequence that begins at this run or before */
    while (low < high) {
        const int middle = low + (high - low + 1) / 2;
        if (all[middle].run <= (int)blockIdx.y)
            low = middle;
        else
            high = middle - 1;
    }
    const ht_cuda_state_sequence s = all[low];
    if (channel >= a.x.shape[1]) return;
    const int64_t begin = (int64_t)((int)blockIdx.y - s.run) * HT_CUDA_CONV_ROWS;
    const int64_t end = begin + HT_CUDA_CONV_ROWS < s.n ? begin + HT_CUDA_CONV_ROWS : s.n;
    if (taps == 4)
        convolve<4>(a, s, channel, begin, end);
    else if (taps == 3)
        convolve<3>(a, s, channel, begin, end);
    else
        convolve<0>(a, s, channel, begin, end);
    if (end < s.n) return;
    for (int64_t j = 0; j < taps - 1; j++)
        s.after[j * a.channels + a.first + channel] = input(a, s, taps, s.n - taps + 1 + j, channel);
}

/* ---- scans ---- */

/* Rows of a block. */
struct row_range {
    int64_t begin, end;
};

/* The first of the flat rows whose sequence begins at `row` or later. */
static __device__ int64_t first_row_from(const ht_cuda_state_scan_arguments &a, int64_t row) {
    int64_t low = 0, high = a.n_rows;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (a.first_row[middle * a.first_row_stride] >= row)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Flat rows of the sequences that begin in this part of all rows. */
static __device__ row_range flat_rows(const ht_cuda_state_scan_arguments &a) {
    const int64_t part = blockIdx.y, parts = a.parts;
    if (parts == 1) return {0, a.n_rows};
    return {first_row_from(a, a.n_rows * part / parts), first_row_from(a, a.n_rows * (part + 1) / parts)};
}

/* Sequences are adjacent, and begin at a row that is its own first one. */
static __device__ void check_flat_rows(const ht_cuda_state_scan_arguments &a) {
    if (blockIdx.y > 0) return;
    for (int64_t t = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; t < a.n_rows;
         t += (int64_t)gridDim.x * blockDim.x) {
        const int32_t first = a.first_row[t * a.first_row_stride];
        if (first != t && (t == 0 || first != a.first_row[(t - 1) * a.first_row_stride]))
            ht_report(a.report, HT_CUDA_SEQUENCE, t, first, 0, 0, 0);
    }
}

/* The sums of a row's result are completed in the next row, while that waits for its own sums. */
template <int QUADS, bool OF_KEYS, bool RATED>
static __device__ __forceinline__ void take_rows(const ht_cuda_state_scan_arguments &a, const columns &c,
                                                 row_range rows, float *tiles, state_part<QUADS> &state) {
    typedef row_layout<QUADS, OF_KEYS> at;
    const int floats = ht_cuda_state_row_floats(at::KEYS, OF_KEYS, false);
    const int column = c.column + c.lane / 16; /* of split_sum_of_keys */
    const int64_t step = (int64_t)a.heads * a.value_dim;
    float *out = a.out + (rows.begin - 1) * step + c.head * a.value_dim + c.first + column; /* of the row before */
    const bool writes = a.out && c.lane % 16 < 4 && column < c.n, flat = a.first_row != NULL;
    float result[2] = {}, q[4 * QUADS], d[2];
    row_part<QUADS, OF_KEYS, RATED> part;
    bool writes_last = false;
#pragma unroll 1
    for (int64_t first = rows.begin, tile = 0; first < rows.end; first += TILE, tile++) {
        const int64_t left = rows.end - first;
        const int n = left < TILE ? (int)left : TILE;
        const float *row = tiles + tile % 2 * TILE * floats;
        ht_copies_wait<0>();
        __syncthreads(); /* all threads are done with the other tile */
        if (left > TILE)
            copy_tile<QUADS, OF_KEYS, false>(a, c, tiles + (tile + 1) % 2 * TILE * floats, first + TILE,
                                             left < 2 * TILE ? (int)left - TILE : TILE);
#pragma unroll 1
        for (int r = 0; r < n;) { /* up to a row that has to be kept, or begins a sequence */
            int end = n;
            if (a.checkpoints) {
                const int segment = (int)((first + r) % HT_CUDA_STATE_SEGMENT);
                if (segment == 0) state.keep(a.checkpoints, (first + r) / HT_CUDA_STATE_SEGMENT);
                if (HT_CUDA_STATE_SEGMENT - segment < n - r) end = r + HT_CUDA_STATE_SEGMENT - segment;
            }
            if (flat && begins<at>(row, first + r)) state.clear();
            part.load(row, c);
            bool more = true;
#pragma unroll 1
            while (more) {
                more = r + 1 < end && !(flat && begins<at>(row + floats, first + r + 1));
                load_keys<QUADS>(q, row + at::Q, c);
                const float last = split_sum_of_keys(c.lane, result);
                state.difference(part, d);
                if (writes_last) *out = last;
                writes_last = writes;
                out += step;
                state.add_product(part.k, d);
                r++;
                row += floats;
                if (more) part.load(row, c);
                state.result(q, result);
            }
        }
    }
    const float last = split_sum_of_keys(c.lane, result);
    if (writes_last) *out = last;
}

template <int QUADS, bool OF_KEYS>
static __device__ __forceinline__ void scan_with(const ht_cuda_state_scan_arguments &a) {
    HT_CUDA_SHARED(float, tiles);
    const columns c = columns_of(a);
    const int floats = ht_cuda_state_row_floats(32 * QUADS, OF_KEYS, false);
    ht_cuda_state_sequence s = {};
    row_range rows;
    if (a.first_row) {
        check_flat_rows(a);
        rows = flat_rows(a);
    } else {
        s = sequences_at(a.sequences)[blockIdx.y];
        rows = {s.row, s.row + s.n};
    }
    clear_tiles(a, c, tiles, 32 * QUADS, 2 * TILE * floats);
    const int64_t n = rows.end - rows.begin;
    copy_tile<QUADS, OF_KEYS, false>(a, c, tiles, rows.begin, n < TILE ? (int)n : TILE);
    state_part<QUADS> state;
    state.clear();
    if (s.before) state.template move<false>(a, c, (float *)s.before);
    if (a.rate.data)
        take_rows<QUADS, OF_KEYS, true>(a, c, rows, tiles, state);
    else
        take_rows<QUADS, OF_KEYS, false>(a, c, rows, tiles, state);
    if (s.after) state.template move<true>(a, c, s.after);
}

template <int QUADS> static __device__ __forceinline__ void scan(const ht_cuda_state_scan_arguments &a) {
    if (a.of_keys)
        scan_with<QUADS, true>(a);
    else
        scan_with<QUADS, false>(a);
}

HT_CUDA_KERNEL_BOUND(ht_cuda_state_scan_128, ht_cuda_state_scan_arguments, HT_CUDA_STATE_THREADS, 2) { scan<4>(a); }
HT_CUDA_KERNEL_BOUND(ht_cuda_state_scan_256, ht_cuda_state_scan_arguments, HT_CUDA_STATE_THREADS, 2) { scan<8>(a); }
