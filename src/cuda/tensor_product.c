/* Products on tensor cores: few rows with packed weights, many with swizzled parts of the matrix. */
#include "cuda/matrix_run.h"

enum {
    FEW = 64,  /* rows of x; more have an image of the matrix made, and more than SOME where blocks have little */
    SOME = 16, /* shared memory */
    MUCH_SHARED = 160 << 10, /* of a block: the rings of FEW rows */
    IMAGE_BYTES = 128 << 20, /* limit of the swizzled part of the matrix */
    TENSOR_THREADS = HT_CUDA_TENSOR_WARPS * 32,
    FACTOR_THREADS = 1024,
    WGMMA_MAJOR = 9,
    WGMMA_THREADS = 384,
    MMA_ROWS = 64,
    MMA_TOKENS = 64,
    MMA_THREADS = 128
};

/* For 8, 16 and 64 rows of x, and for swizzling rows of the matrix. */
static const ht_cuda_kernel_id kernels_of[HT_CUDA_FORMS][4] = {
#define KERNELS(X, form)                                                                                               \
    [HT_CUDA_##form] = {HT_CUDA_ID_ht_cuda_tensor_##form##_8, HT_CUDA_ID_ht_cuda_tensor_##form##_16,                   \
                        HT_CUDA_ID_ht_cuda_tensor_##form##_64, HT_CUDA_ID_ht_cuda_tensor_rows_##form},
    HT_CUDA_EACH_TENSOR_FORM(KERNELS, )
#undef KERNELS
};

/* Bytes of a row's span per lane. */
static const int raw_bytes[HT_CUDA_FORMS] = {
#define RAW(X, form) [HT_CUDA_##form] = HT_CUDA_RAW_##form,
    HT_CUDA_EACH_TENSOR_FORM(RAW, )
#undef RAW
};

static int64_t padded(int64_t n, int64_t of) { return ht_ceil_div_i64(n, of) * of; }

/* ---- factors ---- */

size_t ht_cuda_factor_bytes(int64_t n_rows) {
    return (size_t)padded(ht_ceil_div_i64(n_rows, HT_CUDA_FACTOR_ROWS) * (int64_t)sizeof(float), 16);
}

/* The rows of a matrix are of whole words before them. */
static float *factors_of(const ht_matrix *m) {
    return (float *)(void *)((char *)m->packed + m->packed_bytes - ht_cuda_factor_bytes(m->n_rows));
}

ht_status ht_cuda_set_factors(ht_cuda_device *d, const ht_matrix *m, int64_t row, int64_t n, ht_error *err) {
    const ht_cuda_weights all = ht_cuda_weights_of(m);
    const ht_cuda_factors_arguments a = {.w = ht_cuda_some_rows(&all, row, n),
                                         .factors = factors_of(m) + row / HT_CUDA_FACTOR_ROWS};
    const ht_cuda_shape shape = {.grid = {(unsigned)ht_ceil_div_i64(n, HT_CUDA_FACTOR_ROWS)},
                                 .block = {FACTOR_THREADS}};
    return ht_cuda_launch(d, HT_CUDA_ID_ht_cuda_factors, &shape, &a, err);
}

/* ---- rows of x ---- */

static bool has_wgmma(const ht_cuda_device *d) { return d->major == WGMMA_MAJOR; }

static bool is_few(const ht_cuda_device *d, int64_t n) {
    return n <= (d->most_shared_of_block >= MUCH_SHARED ? FEW : SOME);
}

/* Swizzled rows for n rows of x: kernels read whole tiles. */
static int64_t rows_of_image(const ht_cuda_device *d, int64_t n) {
    if (!is_few(d, n)) return padded(n, HT_CUDA_WIDE_TOKENS);
    return n <= 8 ? 8 : n <= SOME ? SOME : FEW;
}
static int64_t cuts_of(int64_t k) { return ht_ceil_div_i64(k, HT_CUDA_K_TILE); }
static size_t rows_bytes(int64_t n, int64_t k) { return (size_t)(n / 8 * cuts_of(k)) * HT_CUDA_K_TILE_BYTES; }

size_t ht_cuda_swizzled_of_rows_bytes(int64_t rows, int64_t k) {
    return rows_bytes(rows, k) + (size_t)padded(rows * (int64_t)sizeof(float), 64);
}

ht_cuda_swizzled ht_cuda_swizzled_of_rows(void *room, int64_t rows, int64_t k) {
    float *inverse = (float *)(void *)((char *)room + rows_bytes(rows, k));
    return (ht_cuda_swizzled){.rows = room, .inverse = inverse, .n_padded = rows};
}

size_t ht_cuda_swizzled_bytes(const ht_cuda_device *d, int64_t n, int64_t k) {
    return ht_cuda_swizzled_of_rows_bytes(rows_of_image(d, n), k);
}

ht_cuda_swizzled ht_cuda_swizzled_at(const ht_cuda_device *d, void *room, int64_t n, int64_t k) {
    return ht_cuda_swizzled_of_rows(room, rows_of_image(d, n), k);
}

/* ---- few rows ---- */

/* The arguments of a launch, in which each matrix has a multiple of `at_once` panels. */
static ht_cuda_tensor_arguments arguments_of(const ht_cuda_product *products, int n_products, const ht_cuda_swizzled *x,
                                             int64_t n, int64_t at_once) {
    ht_cuda_tensor_arguments a = {.n_matrices = n_products, .x = *x, .n = n};
    for (int i = 0; i < n_products; i++) {
        const ht_matrix *m = products[i].m;
        a.matrix[i] = (ht_cuda_tensor_matrix){.w = ht_cuda_weights_of(m),
                                              .factors = factors_of(m),
                                              .bias = products[i].bias,
                                              .y = products[i].y,
                                              .ldy = m->n_rows,
                                              .first_panel = a.panels};
        a.panels += padded(ht_ceil_div_i64(m->n_rows, HT_CUDA_PANEL), at_once);
    }
    return a;
}

static const ht_cuda_kernel_id some_kernels[HT_CUDA_FORMS] = {
#define SOME_KERNEL(X, form) [HT_CUDA_##form] = HT_CUDA_ID_ht_cuda_gemm_medium_##form,
    HT_CUDA_EACH_LOADED_FORM(SOME_KERNEL, )
#undef SOME_KERNEL
};

bool ht_cuda_takes_apart(const ht_cuda_device *d, const ht_matrix *m, int64_t n) {
    const ht_cuda_weights w = ht_cuda_weights_of(m);
    return has_wgmma(d) && n > SOME && n <= HT_CUDA_SOME_TOKENS && w.form != HT_CUDA_STORED && w.whole == w.k;
}

/* For more than SOME rows, with wgmma. */
static ht_status multiply_some(ht_cuda_device *d, const ht_cuda_product *products, int n_products,
                               const ht_cuda_swizzled *x, int64_t n, ht_error *err) {
    enum {
        PANELS = HT_CUDA_SOME_ROWS / HT_CUDA_PANEL,
        BLOCKS = 2,      /* of a multiprocessor at most */
        OF_BLOCK = 1024, /* bytes of shared memory that CUDA reserves per block */
        SPARE = 16       /* 1 / SPARE of the multiprocessors fit in no cluster: their groups differ in size */
    };
    const ht_cuda_tensor_arguments a = arguments_of(products, n_products, x, n, PANELS);
    const int form = a.matrix[0].w.form;
    const int rings = TENSOR_THREADS * 2 * raw_bytes[form] * HT_CUDA_SOME_SLOTS;
    const int sums = HT_CUDA_SOME_TOKENS * HT_CUDA_SOME_STRIDE * (int)sizeof(float);
    const int shared = rings + sums + HT_CUDA_SOME_CUTS * HT_CUDA_SOME_TOKENS * 128;
    const int64_t blocks = ht_min_i64(d->most_shared / (shared + OF_BLOCK), BLOCKS);
    const int64_t most = (d->multiprocessors - d->multiprocessors / SPARE) / HT_CUDA_SEGMENTS * blocks;
    const int64_t tiles = a.panels / PANELS, rounds = ht_ceil_div_i64(tiles, ht_max_i64(most, 1));
    const ht_cuda_shape shape = {.grid = {(unsigned)(ht_ceil_div_i64(tiles, rounds) * HT_CUDA_SEGMENTS)},
                                 .block = {TENSOR_THREADS},
                                 .shared_bytes = (unsigned)shared,
                                 .cluster = HT_CUDA_SEGMENTS};
    return ht_cuda_launch(d, some_kernels[form], &shape, &a, err);
}

/* One launch for products whose matrices are of one type. */
static ht_status multiply_few(ht_cuda_device *d, const ht_cuda_product *products, int n_products,
                              const ht_cuda_swizzled *x, int64_t n, ht_error *err) {
    static const struct {
        int n, panels, blocks; /* rows of x, panels of a warp, blocks of a multiprocessor */
    } kinds[] = {{8, 1, 2}, {SOME, 1, 2}, {FEW, 2, 1}};
    const int kind = n <= 8 ? 0 : n <= SOME ? 1 : 2, at_once = kinds[kind].panels;
    const ht_cuda_tensor_arguments a = arguments_of(products, n_products, x, n, at_once);
    const int64_t sets = a.panels / at_once, most = (int64_t)d->multiprocessors * kinds[kind].blocks;
    const int sums = HT_CUDA_SEGMENTS * HT_CUDA_PANEL * kinds[kind].n * (int)sizeof(float) * (kind ? 1 : 2);
    const int form = a.matrix[0].w.form, bytes = raw_bytes[form];
    const int rings = TENSOR_THREADS * at_once * 2 * bytes * HT_CUDA_RING_SLOTS(at_once * bytes);
    const ht_cuda_shape shape = {.grid = {(unsigned)ht_min_i64(sets, most)},
                                 .block = {TENSOR_THREADS},
                                 .shared_bytes = (unsigned)(sums + rings)};
    return ht_cuda_launch(d, kernels_of[form][kind], &shape, &a, err);
}

int ht_cuda_ring_bytes(int form) { return 32 * 2 * raw_bytes[form] * HT_CUDA_RING_SLOTS(raw_bytes[form]); }

static bool go_together(const ht_matrix *a, const ht_matrix *b) { return a->type == b->type && a->k == b->k; }

static ht_status multiply_all_few(ht_cuda_device *d, const ht_cuda_product *products, int n_products,
                                  const ht_cuda_swizzled *x, int64_t n, ht_error *err) {
    ht_status status = HT_OK;
    uint64_t done = 0;
    for (int i = 0; i < n_products && !status; i++) {
        ht_cuda_product alike[HT_CUDA_TOGETHER];
        int n_alike = 0;
        for (int j = i; j < n_products && n_alike < HT_CUDA_TOGETHER; j++)
            if (!(done >> j & 1) && go_together(products[i].m, products[j].m)) {
                alike[n_alike++] = products[j];
                done |= (uint64_t)1 << j;
            }
        if (n_alike) status = (x->apart ? multiply_some : multiply_few)(d, alike, n_alike, x, n, err);
        if (!(done >> i & 1)) i--; /* more of its kind than go together */
    }
    return status;
}

/* ---- many rows ---- */

/* Rows of the matrix that are swizzled at once. */
static int64_t rows_at_once(int64_t n_rows, int64_t k) {
    const int64_t most = IMAGE_BYTES / (cuts_of(k) * HT_CUDA_K_TILE_BYTES / 8) / HT_CUDA_WIDE_ROWS * HT_CUDA_WIDE_ROWS;
    return ht_min_i64(padded(n_rows, HT_CUDA_WIDE_ROWS), most ? most : HT_CUDA_WIDE_ROWS);
}

size_t ht_cuda_tensor_room(const ht_cuda_device *d, int64_t n, int64_t n_rows, int64_t k) {
    return is_few(d, n) ? 0 : rows_bytes(rows_at_once(n_rows, k), k);
}

/* The first K-tile of the first n segments, as in the kernels for few rows; the other segments are empty. */
static void find_segments(const ht_cuda_weights *w, int n, ht_cuda_gemm_large_arguments *a) {
    const int64_t cycles = ht_cuda_cycles_of((ht_cuda_form)w->form), cuts = cuts_of(w->k);
    const int64_t spans = w->form == HT_CUDA_STORED ? cuts : w->whole / (cycles * HT_CUDA_K_TILE);
    for (int s = 0; s < n; s++) a->segment_k_tiles[s] = (int32_t)(spans * s / n * cycles);
    for (int s = n; s <= HT_CUDA_SEGMENTS; s++) a->segment_k_tiles[s] = (int32_t)cuts;
    a->cuts = (int32_t)cuts;
}

/* Launches clusters for at most `tiles` tiles. */
static ht_status multiply_by_wgmma(ht_cuda_device *d, ht_cuda_kernel_id kernel, const ht_cuda_gemm_large_arguments *a,
                                   int64_t tiles, ht_error *err) {
    enum {
        BLOCKS = HT_CUDA_WIDE_BLOCKS,
        STAGE_BYTES = (HT_CUDA_WIDE_ROWS / BLOCKS + HT_CUDA_WIDE_TOKENS) * 128,
    };
    const ht_cuda_shape shape = {.grid = {(unsigned)ht_min_i64(tiles, d->multiprocessors / BLOCKS) * BLOCKS},
                                 .block = {WGMMA_THREADS},
                                 .shared_bytes = HT_CUDA_WIDE_STAGES * STAGE_BYTES};
    return ht_cuda_launch(d, kernel, &shape, a, err);
}

static ht_status multiply_wide(ht_cuda_device *d, const ht_cuda_gemm_large_arguments *a, ht_error *err) {
    if (has_wgmma(d)) {
        const int64_t tiles = a->rows_padded / HT_CUDA_WIDE_ROWS * (a->x.n_padded / HT_CUDA_WIDE_TOKENS);
        return multiply_by_wgmma(d, HT_CUDA_ID_ht_cuda_gemm_large_wgmma, a, tiles, err);
    }
    const int64_t tiles = ht_ceil_div_i64(a->n_rows, MMA_ROWS) * ht_ceil_div_i64(a->n, MMA_TOKENS);
    const ht_cuda_shape shape = {.grid = {(unsigned)tiles}, .block = {MMA_THREADS}};
    return ht_cuda_launch(d, HT_CUDA_ID_ht_cuda_gemm_large_mma, &shape, a, err);
}

static ht_status multiply_many(ht_cuda_device *d, const ht_cuda_product *p, const ht_cuda_swizzled *x, int64_t n,
                               void *room, ht_error *err) {
    const ht_matrix *m = p->m;
    const ht_cuda_weights w = ht_cuda_weights_of(m);
    ht_cuda_gemm_large_arguments a = {
        .weights = room, .x = *x, .factors = factors_of(m), .bias = p->bias, .y = p->y, .n = n, .ldy = m->n_rows};
    find_segments(&w, HT_CUDA_SEGMENTS, &a);
    const int64_t at_once = rows_at_once(m->n_rows, m->k);
    ht_status status = HT_OK;
    for (a.first = 0; a.first < m->n_rows && !status; a.first += a.n_rows) {
        a.n_rows = ht_min_i64(at_once, m->n_rows - a.first);
        a.rows_padded = padded(a.n_rows, HT_CUDA_WIDE_ROWS);
        const ht_cuda_tensor_rows_arguments rows = {
            .w = w, .factors = a.factors, .to = room, .first = a.first, .n = a.n_rows, .n_padded = a.rows_padded};
        status = ht_cuda_launch_threads(d, kernels_of[w.form][3], a.rows_padded * cuts_of(m->k), &rows, err);
        if (!status) status = multiply_wide(d, &a, err);
    }
    return status;
}

/* ---- experts ---- */

int64_t ht_cuda_rows_of_expert(int64_t n_rows) { return padded(n_rows, HT_CUDA_WIDE_ROWS); }

int64_t ht_cuda_experts_at_once(int64_t n_rows, int64_t k, int64_t n_experts) {
    const int64_t most = IMAGE_BYTES / (int64_t)rows_bytes(ht_cuda_rows_of_expert(n_rows), k);
    return ht_min_i64(most ? most : 1, n_experts);
}

ht_status ht_cuda_multiply_swizzled_experts(ht_cuda_device *d, const ht_cuda_weights *w,
                                            ht_cuda_gemm_large_arguments *a, int64_t tiles, ht_error *err) {
    find_segments(w, HT_CUDA_EXPERT_SEGMENTS, a);
    if (has_wgmma(d))
        return multiply_by_wgmma(d, HT_CUDA_ID_ht_cuda_gemm_large_experts_wgmma, a,
                                 tiles * (a->rows_each / HT_CUDA_WIDE_ROWS), err);
    const ht_cuda_shape shape = {.grid = {ht_cuda_blocks(d, tiles * (a->rows_each / MMA_ROWS))},
                                 .block = {MMA_THREADS}};
    return ht_cuda_launch(d, HT_CUDA_ID_ht_cuda_gemm_large_experts_mma, &shape, a, err);
}

ht_status ht_cuda_multiply_swizzled(ht_cuda_device *d, const ht_cuda_product *products, int n_products,
                                    const ht_cuda_swizzled *x, int64_t n, void *room, ht_error *err) {
    if (is_few(d, n)) return multiply_all_few(d, products, n_products, x, n, err);
    ht_status status = HT_OK;
    for (int i = 0; i < n_products && !status; i++) status = multiply_many(d, &products[i], x, n, room, err);
    return status;
}
