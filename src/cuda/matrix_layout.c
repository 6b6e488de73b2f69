#include "cuda/matrix_layout.h"

#include "cuda/matrix_run.h"
#include "formats/affine.h"

enum { ALIGN = 16, MOST_PERCENT = 103 /* of the file's bytes */ };

static ht_cuda_form wanted_form(ht_weight_type type) {
    const ht_affine affine = ht_affine_of(type);
    if (affine.bits && affine.scale_bytes == 2)
        return affine.bits == 4 ? HT_CUDA_MLX4 : affine.bits == 8 ? HT_CUDA_MLX8 : HT_CUDA_STORED;
    switch (type) {
    case HT_W_F32: return HT_CUDA_F32;
    case HT_W_F16: return HT_CUDA_F16;
    case HT_W_BF16: return HT_CUDA_BF16;
    case HT_W_F8_E4M3:
    case HT_W_F8_E5M2: return HT_CUDA_F8;
    case HT_W_Q4_0: return HT_CUDA_Q4_0;
    case HT_W_Q8_0: return HT_CUDA_Q8_0;
    case HT_W_Q4_K: return HT_CUDA_Q4_K;
    case HT_W_Q6_K: return HT_CUDA_Q6_K;
    default: return HT_CUDA_STORED;
    }
}

int ht_cuda_cycles_of(ht_cuda_form form) {
    switch (form) {
    case HT_CUDA_Q4_0:
    case HT_CUDA_Q4_K:
    case HT_CUDA_Q6_K:
    case HT_CUDA_MLX4: return 4;
    case HT_CUDA_Q8_0:
    case HT_CUDA_MLX8: return 2;
    default: return 1;
    }
}

ht_cuda_layout ht_cuda_layout_of(ht_weight_type type, int64_t k) {
    const ht_weight_type_info *info = ht_weight_type_info_of(type);
    const int64_t stored = k / info->block * (int64_t)info->block_bytes, padded = (stored + ALIGN - 1) / ALIGN * ALIGN;
    ht_cuda_layout l = {.form = wanted_form(type), .row_bytes = stored, .stored_bytes = stored};
    const int64_t span = ht_cuda_cycles_of(l.form) * HT_CUDA_CYCLE;
    if (l.form == HT_CUDA_STORED) return l;
    if (l.form <= HT_CUDA_F8) { /* whose rows may begin anywhere */
        if (padded == stored) l.whole = k / span * span;
        return l;
    }
    if (padded * 100 > stored * MOST_PERCENT) {
        l.form = HT_CUDA_STORED;
        return l;
    }
    l.row_bytes = padded;
    l.whole = k / span * span;
    return l;
}

static ht_cuda_row row_of(ht_weight_type type, const ht_cuda_layout *l, int64_t k, void *stored, void *packed) {
    const ht_affine a = ht_affine_of(type);
    return (ht_cuda_row){.stored = stored,
                         .packed = packed,
                         .k = k,
                         .whole = l->whole,
                         .form = (int32_t)l->form,
                         .cycles = ht_cuda_cycles_of(l->form),
                         .bits = a.bits,
                         .group = a.group};
}

void ht_cuda_restore_row(ht_weight_type type, const ht_cuda_layout *l, int64_t k, const void *packed, void *stored) {
    const ht_cuda_row r = row_of(type, l, k, stored, (void *)(uintptr_t)packed); /* which is only read */
    memset(stored, 0, (size_t)l->stored_bytes);
    for (int64_t block = 0; block < k / ht_cuda_block_of(&r); block++) ht_cuda_move_block(&r, block);
}

ht_status ht_cuda_lay_out(ht_cuda_device *d, ht_weight_type type, const ht_cuda_layout *l, int64_t k, int64_t n,
                          void *stored, void *packed, ht_error *err) {
    ht_cuda_lay_out_arguments a = {.first = row_of(type, l, k, stored, packed),
                                   .n = n,
                                   .stored_bytes = l->stored_bytes,
                                   .row_bytes = l->row_bytes};
    a.first.packs = true;
    const int64_t blocks = n * (k / ht_cuda_block_of(&a.first));
    ht_status status = d->memory.ops->fill(d, packed, 0, (size_t)(n * l->row_bytes), err);
    return status ? status : ht_cuda_launch_threads(d, HT_CUDA_ID_ht_cuda_lay_out, blocks, &a, err);
}
