/* Slice update: an array with one window replaced. */
#include "base/dtype.h"
#include "cpu/call.h"
#include "cpu/reference/reference.h"
#include "cpu/reference/strided_copy.h"
#include "device/params.h"

ht_status ht_plain_slice_update(const ht_call *call, ht_error *err) {
    (void)err;
    const ht_slice_params *p = call->params;
    ht_view window = call->out;
    int64_t offset = 0;
    if (call->out.data != call->in[0].data) ht_strided_copy(ht_call_pool(call), &call->out, &call->in[0]);
    for (int i = 0; i < window.n_dims; i++) {
        offset += p->start[i] * window.stride[i];
        window.stride[i] *= p->step[i];
        window.shape[i] = call->in[1].shape[i];
    }
    window.data = (char *)window.data + offset * (int64_t)ht_dtype_bytes(window.dtype);
    ht_strided_copy(ht_call_pool(call), &window, &call->in[1]);
    return HT_OK;
}
