/* The compiled part of the binding: array objects, the functions that make arrays, the buffer protocol. Everything else is
 * ctypes in python/hearth/, with these array objects as arguments and results.
 *
 * One module serves every Python from 3.11 on (the stable ABI). It links to no library: Python hands it the one that ctypes
 * has opened. All of it runs with the GIL held, which is let go of while the library computes or waits. */
#ifndef HT_PYTHON_CORE_H
#define HT_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <hearth/hearth.h>

#include <Python.h>

#define CORE_FUNCTIONS(X)                                                                                              \
    X(ht_array_data)                                                                                                   \
    X(ht_array_dim)                                                                                                    \
    X(ht_array_dtype)                                                                                                  \
    X(ht_array_is_evaluated)                                                                                           \
    X(ht_array_lend)                                                                                                   \
    X(ht_array_n_dims)                                                                                                 \
    X(ht_array_free)                                                                                                   \
    X(ht_array_retain)                                                                                                 \
    X(ht_array_size)                                                                                                   \
    X(ht_array_stride)                                                                                                 \
    X(ht_compiled_call)                                                                                                \
    X(ht_dtype_bytes)                                                                                                  \
    X(ht_scope_error)                                                                                                  \
    X(ht_scope_finish)                                                                                                 \
    X(ht_scope_free)                                                                                                   \
    X(ht_scope_new)                                                                                                    \
    X(ht_scope_stream)                                                                                                 \
    X(ht_stream_free)                                                                                                  \
    X(ht_stream_new)                                                                                                   \
    X(ht_stream_synchronize)

/* The library's functions. */
typedef struct core_library {
#define CORE_FIELD(name) __typeof__(name) *name;
    CORE_FUNCTIONS(CORE_FIELD)
} core_library;
extern core_library core_ht;

/* A function of the library; NULL after an exception. */
typedef void core_function(void);
core_function *core_find(const char *name);

/* What is called back, or looked at, in the Python part. */
typedef struct core_hooks {
    PyObject *array;     /* the class of arrays, which derives from core_array_type */
    PyObject *operand;   /* operand(value, array beside it or None) -> array */
    PyObject *failed;    /* failed(scope): raises what went wrong in it, and frees it */
    PyObject *raised;    /* raised(status, message): raises it */
    PyObject *start;     /* start(): gives this thread a stream, by use() */
    PyObject *queue_of;  /* queue_of(stream or device) -> queue */
    PyObject *dtypes;    /* a list, by ht_dtype; None in the place of HT_DTYPE_NONE */
    PyObject *subscript; /* subscript(array, index): of an index that index.c does not know */
    PyObject *made_of;   /* made_of(values, dtype or None) -> array */
    PyObject *evaluate;  /* evaluate(trees, wait): where arrays have streams of their own */
    PyObject *put;       /* put(array, index, values, mode): the same of core_put */
    PyObject *index;     /* index(value) -> array of int32 */
    PyObject *value_of;  /* value_of(text): the default of a parameter */
    PyObject *state;     /* a list of the key that random numbers follow from */
    PyObject *signature; /* signature(parameters) -> inspect.Signature */
} core_hooks;
extern core_hooks core_hook;

PyObject *core_raise(const ht_error *err); /* NULL */

/* ---- streams: queue.c ---- */

/* A stream of the library, and scopes for it that are free. A scope serves one expression after another; whoever needs one
 * while others are in use (a finalizer between two calls) takes or makes another. One that is in use holds its queue: a function
 * that is called back may choose another stream for the thread. */
enum { CORE_SCOPES = 16 };
typedef struct core_queue {
    PyObject_HEAD ht_stream *stream;
    ht_scope *scopes[CORE_SCOPES];
    int n_scopes;
    struct core_queue *next; /* of all there are */
    PyObject *weak;
} core_queue;
extern PyTypeObject *core_queue_type;
extern PyType_Spec core_queue_spec;

/* What a thread computes on. `named`: by the program's wish, which arrays then remember. */
typedef struct core_place {
    core_queue *queue;
    int named;
} core_place;

core_place core_here(void); /* lent; queue is NULL after an exception */
/* Goes on where `stream` says, None being here; *before is for core_leave. False after an exception. */
int core_enter(PyObject *stream, core_place *before);
void core_leave(core_place before);
ht_scope *core_scope_take(void);   /* NULL after an exception */
void core_scope_give(ht_scope *s); /* when it has been finished */
void core_scope_free(ht_scope *s);

PyObject *core_use(PyObject *module, PyObject *args);
PyObject *core_current(PyObject *module, PyObject *unused);
PyObject *core_take(PyObject *module, PyObject *unused);
PyObject *core_give(PyObject *module, PyObject *scope);
PyObject *core_free(PyObject *module, PyObject *scope);

/* ---- arrays: array.c, buffer.c, held.c, index.c ---- */

typedef struct core_array {
    PyObject_HEAD ht_array *a; /* NULL before __init__ */
    core_queue *queue;         /* that computes it; NULL: that of whoever evaluates it */
    PyObject *shape;           /* a tuple, once somebody asked for it */
    PyObject *weak;
} core_array;
extern PyTypeObject *core_array_type;
extern PyType_Spec core_array_spec;

PyObject *core_become(PyObject *self, PyObject *other); /* stands for the same array from now on; None */
PyObject *core_array_new(ht_array *a);                  /* takes over the hold on `a` */
/* Ends an expression: its result as an object, or the exception that says what failed. */
PyObject *core_finish(ht_scope *s, ht_array *result);

static inline int core_is_array(PyObject *o) {
    return (PyObject *)Py_TYPE(o) == core_hook.array || PyObject_TypeCheck(o, core_array_type);
}

/* Where the elements are, row by row unless `strided`, once they are computed; NULL may be right, or an exception. */
const void *core_data(ht_array *a, bool strided);
/* Stands for `a` from now on, of which it takes over the hold. */
void core_array_set(core_array *self, ht_array *a);
int core_get_buffer(PyObject *self, Py_buffer *view, int flags);
void core_release_buffer(PyObject *self, Py_buffer *view);

PyObject *core_subscript(PyObject *self, PyObject *index);
int core_assign(PyObject *self, PyObject *index, PyObject *value);
/* The array with values in these places, or joined with what is there; the mode is an ht_scatter_mode. */
PyObject *core_put(PyObject *self, PyObject *index, PyObject *value, int mode);
PyObject *core_follow(PyObject *module, PyObject *on);
PyObject *core_transposed(PyObject *self, void *matrices);

/* hold(arrays): an object that holds them, and is their handles to a function of ctypes. */
PyObject *core_hold(PyObject *module, PyObject *arrays);
ht_array *const *core_held(PyObject *held, int *n); /* lent by it */
extern PyTypeObject *core_held_type;
extern PyType_Spec core_held_spec;

/* call(function, argument...): the array that a function of ctypes gives, which takes a scope first. */
PyObject *core_call(PyObject *module, PyObject *const *args, Py_ssize_t n);

/* ---- compiled functions: compiled.c ---- */

PyObject *core_trace_kind(PyObject *module, PyObject *const *args, Py_ssize_t n);
PyObject *core_replay(PyObject *module, PyObject *const *args, Py_ssize_t n);

/* ---- operators: elementwise.c ---- */

PyObject *core_negative(PyObject *a), *core_absolute(PyObject *a), *core_invert(PyObject *a);
PyObject *core_add(PyObject *a, PyObject *b), *core_subtract(PyObject *a, PyObject *b);
PyObject *core_multiply(PyObject *a, PyObject *b), *core_divide(PyObject *a, PyObject *b);
PyObject *core_floor_divide(PyObject *a, PyObject *b), *core_remainder(PyObject *a, PyObject *b);
PyObject *core_power(PyObject *a, PyObject *b, PyObject *modulus);
PyObject *core_and(PyObject *a, PyObject *b), *core_or(PyObject *a, PyObject *b), *core_xor(PyObject *a, PyObject *b);
PyObject *core_left_shift(PyObject *a, PyObject *b), *core_right_shift(PyObject *a, PyObject *b);
/* Operators whose result takes the place of their left side; that of / has to be of floating point already. */
#define CORE_IN_PLACE(X)                                                                                               \
    X(add)                                                                                                             \
    X(subtract) X(multiply) X(floor_divide) X(remainder) X(and) X(or) X(xor) X(left_shift) X(right_shift) X(matmul)
#define CORE_DECLARE_IN_PLACE(slot) PyObject *core_in_place_##slot(PyObject *a, PyObject *b);
CORE_IN_PLACE(CORE_DECLARE_IN_PLACE)
PyObject *core_in_place_divide(PyObject *a, PyObject *b);
PyObject *core_in_place_power(PyObject *a, PyObject *b, PyObject *modulus);
PyObject *core_matmul(PyObject *a, PyObject *b), *core_compare(PyObject *a, PyObject *b, int how);

#endif
