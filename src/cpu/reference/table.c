/* Plain kernel table: reference and fallback of the vector kernels. */
#include "cpu/device.h"
#include "cpu/linear.h"
#include "cpu/reference/reference.h"

void ht_reference_kernels(ht_kernel kernels[HT_OP_COUNT]) {
#define X(id, name) kernels[HT_OP_##id].run = ht_plain_##name;
    HT_OP_KERNELS(X)
#undef X
    kernels[HT_OP_ATTEND].scratch = ht_plain_attend_scratch;
    kernels[HT_OP_LORA].scratch = ht_plain_lora_scratch;
    kernels[HT_OP_SORT].scratch = ht_plain_sort_scratch;
    kernels[HT_OP_PARTITION].scratch = ht_plain_sort_scratch;
    kernels[HT_OP_ARGSORT].scratch = ht_plain_argsort_scratch;
    kernels[HT_OP_ARGPARTITION].scratch = ht_plain_argsort_scratch;
    kernels[HT_OP_TAKE].scratch = ht_plain_take_scratch;
    kernels[HT_OP_GATHER].scratch = ht_plain_take_scratch;
    kernels[HT_OP_SCATTER].scratch = ht_plain_take_scratch;
    kernels[HT_OP_SDPA].scratch = ht_plain_sdpa_scratch;
    kernels[HT_OP_RMS_NORM_GRAD].scratch = ht_plain_norm_grad_scratch;
    kernels[HT_OP_LAYER_NORM_GRAD].scratch = ht_plain_norm_grad_scratch;
    kernels[HT_OP_SDPA_GRAD].scratch = ht_plain_sdpa_grad_scratch;
    kernels[HT_OP_ATTEND_ROWS].scratch = ht_plain_attend_rows_scratch;
    kernels[HT_OP_ATTEND_ROWS_GRAD].scratch = ht_plain_attend_rows_scratch;
    kernels[HT_OP_STATE_SCAN_ROWS].scratch = ht_plain_state_scan_rows_scratch;
    kernels[HT_OP_STATE_SCAN_ROWS_GRAD].scratch = ht_plain_state_scan_rows_gradient_scratch;
    ht_cpu_linear_kernels(kernels);
}
