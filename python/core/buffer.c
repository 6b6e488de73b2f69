/* Buffer protocol: read-only access to the elements of an array. */
#include "core.h"

#include <stdlib.h>

/* What a lent buffer keeps: the array, whatever its object stands for meanwhile, and the numbers that a Py_buffer points at. */
typedef struct lent {
    ht_array *a;
    Py_ssize_t shape[8], strides[8];
} lent;

/* By ht_dtype, as the struct module writes them. */
static const char *const formats[HT_DTYPE_COUNT] = {
    [HT_BOOL] = "?", [HT_U8] = "B",  [HT_U16] = "H", [HT_U32] = "I", [HT_U64] = "Q", [HT_I8] = "b",
    [HT_I16] = "h",  [HT_I32] = "i", [HT_I64] = "q", [HT_F16] = "e", [HT_F32] = "f", [HT_F64] = "d",
};

const void *core_data(ht_array *a, bool strided) {
    ht_scope *s = core_scope_take();
    if (!s) return NULL;
    const void *data = NULL;
    ht_error err = {0};
    ht_status status;
    if (strided && core_ht.ht_array_is_evaluated(a)) { /* nothing to wait for */
        core_ht.ht_array_lend(s, a, &data, &err);
        core_scope_give(s);
        return data;
    }
    Py_BEGIN_ALLOW_THREADS;
    status = strided ? core_ht.ht_array_lend(s, a, &data, &err) : core_ht.ht_array_data(s, a, &data, &err);
    core_ht.ht_scope_finish(s, NULL);
    Py_END_ALLOW_THREADS;
    core_scope_give(s);
    if (status) core_raise(&err);
    return data;
}

static void measure(lent *l, Py_ssize_t bytes, int strided) {
    int n = core_ht.ht_array_n_dims(l->a);
    Py_ssize_t step = bytes;
    for (int i = n - 1; i >= 0; i--) {
        l->shape[i] = (Py_ssize_t)core_ht.ht_array_dim(l->a, i);
        l->strides[i] = strided ? (Py_ssize_t)core_ht.ht_array_stride(l->a, i) * bytes : step;
        step *= l->shape[i] > 0 ? l->shape[i] : 1;
    }
}

static void let_go(lent *l) {
    core_ht.ht_array_free(l->a);
    free(l);
}

int core_get_buffer(PyObject *self, Py_buffer *view, int flags) {
    ht_array *a = ((core_array *)self)->a;
    view->obj = NULL;
    const char *format = a ? formats[core_ht.ht_array_dtype(a)] : NULL;
    if (!format || (flags & PyBUF_WRITABLE)) {
        PyErr_SetString(PyExc_BufferError,
                        format ? "the elements of an array are not to be written to"
                               : "the buffer protocol has no format for bfloat16; convert to float32, or use DLPack");
        return -1;
    }
    int contiguous = flags & ((PyBUF_C_CONTIGUOUS | PyBUF_F_CONTIGUOUS | PyBUF_ANY_CONTIGUOUS) & ~PyBUF_STRIDES);
    int strided = (flags & PyBUF_STRIDES) == PyBUF_STRIDES && !contiguous;
    if (contiguous == (PyBUF_F_CONTIGUOUS & ~PyBUF_STRIDES) && core_ht.ht_array_n_dims(a) > 1) {
        PyErr_SetString(PyExc_BufferError, "the elements of an array lie row by row");
        return -1;
    }
    lent *l = calloc(1, sizeof *l);
    if (!l) {
        PyErr_NoMemory();
        return -1;
    }
    l->a = core_ht.ht_array_retain(a);
    const void *data = core_data(a, strided);
    if (PyErr_Occurred()) {
        let_go(l);
        return -1;
    }
    Py_ssize_t bytes = (Py_ssize_t)core_ht.ht_dtype_bytes(core_ht.ht_array_dtype(a));
    measure(l, bytes, strided);
    *view = (Py_buffer){
        .buf = (void *)(uintptr_t)data,
        .obj = self,
        .len = (Py_ssize_t)core_ht.ht_array_size(a) * bytes,
        .itemsize = bytes,
        .readonly = 1,
        .ndim = core_ht.ht_array_n_dims(a),
        .format = flags & PyBUF_FORMAT ? (char *)(uintptr_t)format : NULL,
        .shape = flags & PyBUF_ND ? l->shape : NULL,
        .strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? l->strides : NULL,
        .internal = l,
    };
    Py_INCREF(self);
    return 0;
}

void core_release_buffer(PyObject *self, Py_buffer *view) {
    (void)self;
    let_go(view->internal);
}
