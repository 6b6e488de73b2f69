/* Argument conversion: Python objects to the values that the library takes. */
#include "function.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

ht_array *core_none;

/* ---- operands ---- */

/* Bare numbers as arrays, which most programs use few of: by their bits, their kind and the dtype that they take. */
enum { SCALARS = 256, ALONE = HT_DTYPE_COUNT };
typedef struct scalar {
    uint64_t bits;
    int kind, beside;
    PyObject *array; /* NULL: free */
} scalar;
static scalar scalars[SCALARS];

/* The place of a number that has one; NULL for other values. */
static scalar *place_of(PyObject *value, int beside, scalar *key) {
    PyTypeObject *type = Py_TYPE(value);
    key->beside = beside;
    if (type == &PyFloat_Type) {
        double number = PyFloat_AsDouble(value);
        memcpy(&key->bits, &number, sizeof number);
        key->kind = 0;
    } else if (type == &PyLong_Type || type == &PyBool_Type) {
        int overflow;
        key->bits = (uint64_t)PyLong_AsLongLongAndOverflow(value, &overflow);
        key->kind = type == &PyLong_Type ? 1 : 2;
        if (overflow) return NULL;
    } else
        return NULL;
    uint64_t mixed = (key->bits ^ key->bits >> 32 ^ (uint64_t)(key->beside * 4 + key->kind)) * 0x9E3779B97F4A7C15u;
    return &scalars[mixed >> 56];
}

/* The dtype that a bare number takes beside another, where that can hold it. */
static ht_dtype dtype_beside(PyObject *number, int beside, bool *weak) {
    const bool floating = PyFloat_Check(number), truth = PyBool_Check(number);
    *weak = beside == ALONE;
    if (truth || beside >= HT_F16 || (!floating && beside != HT_BOOL)) return (ht_dtype)beside;
    return floating ? HT_F32 : HT_I32;
}

static PyObject *from_number(PyObject *number, int beside, bool *other) {
    bool own;
    const ht_dtype dtype = dtype_beside(number, beside, &own);
    ht_scope *s = core_scope_take();
    if (!s) return NULL;
    ht_array *made = core_from_numbers(s, number, own ? NULL : &dtype, other);
    if (!*other) return core_finish(s, made);
    core_ht.ht_scope_finish(s, NULL);
    core_scope_give(s);
    return NULL;
}

static PyObject *made(PyObject *value, int dtype, PyObject *hook, PyObject *beside) {
    scalar key = {0}, *place = place_of(value, dtype, &key);
    if (place && place->array && place->bits == key.bits && place->kind == key.kind && place->beside == key.beside)
        return Py_NewRef(place->array);
    bool other = !place;
    PyObject *array = place ? from_number(value, dtype, &other) : NULL;
    if (other) array = PyObject_CallFunctionObjArgs(hook, value, beside, NULL);
    if (!array || !place || ((core_array *)array)->queue) return array;
    PyObject *before = place->array;
    *place = key;
    place->array = Py_NewRef(array);
    Py_XDECREF(before);
    return array;
}

static PyObject *same(PyObject *value) {
    if (((core_array *)value)->a) return Py_NewRef(value);
    return PyErr_Format(PyExc_ValueError, "an array that was never made");
}

PyObject *core_operand(PyObject *value, PyObject *beside) {
    if (core_is_array(value)) return same(value);
    int dtype = beside ? (int)core_ht.ht_array_dtype(((core_array *)beside)->a) : ALONE;
    return made(value, dtype, core_hook.operand, beside ? beside : Py_None);
}

PyObject *core_index(PyObject *value) {
    return core_is_array(value) ? same(value) : made(value, HT_I32, core_hook.index, NULL);
}

/* ---- room ---- */

static void *room_for(core_room *room, Py_ssize_t n, size_t bytes) {
    size_t size = ((size_t)n * bytes + 7) & ~(size_t)7;
    if (size <= sizeof room->first - room->used) {
        room->used += size;
        return room->first + room->used - size;
    }
    void *more = n <= INT_MAX ? malloc(size) : NULL;
    if (!more) PyErr_NoMemory();
    return more ? room->more[room->n_more++] = more : NULL;
}

void core_room_free(core_room *room) {
    while (room->n_more) free(room->more[--room->n_more]);
    while (room->n_made) Py_DECREF(room->made[--room->n_made]);
}

/* ---- numbers ---- */

static bool whole_of(PyObject *o, int64_t *out) {
    PyObject *number = PyLong_Check(o) ? Py_NewRef(o) : PyNumber_Index(o);
    if (!number) return false;
    *out = PyLong_AsLongLong(number);
    Py_DECREF(number);
    return *out != -1 || !PyErr_Occurred();
}

bool core_int(PyObject *o, int *out) {
    int64_t whole;
    if (!whole_of(o, &whole)) return false;
    if (whole < INT_MIN || whole > INT_MAX)
        PyErr_Format(PyExc_ValueError, "%lld is beyond the 32 bits of an axis, a width or a count of places",
                     (long long)whole);
    *out = (int)whole;
    return whole >= INT_MIN && whole <= INT_MAX;
}

static bool truth_of(PyObject *o, bool *out) {
    int truth = o == Py_True ? 1 : o == Py_False ? 0 : PyObject_IsTrue(o);
    *out = truth > 0;
    return truth >= 0;
}

static bool dtype_of(PyObject *o, ht_dtype *out) {
    for (int i = HT_BOOL; i < HT_DTYPE_COUNT; i++)
        if (PyList_GetItem(core_hook.dtypes, i) == o) {
            *out = (ht_dtype)i;
            return true;
        }
    PyErr_Format(PyExc_TypeError, "%R is no dtype", o);
    return false;
}

static bool item_of(core_kind kind, PyObject *o, void *items, Py_ssize_t i) {
    return kind == CORE_SIZES ? whole_of(o, (int64_t *)items + i) : core_int(o, (int *)items + i);
}

/* Several whole numbers, or one. */
static bool read_numbers(core_kind kind, PyObject *o, core_value *v, core_room *room) {
    bool listed = PyTuple_Check(o) || PyList_Check(o);
    v->single = !listed && (PyLong_Check(o) || kind == CORE_AXES || (PyIndex_Check(o) && !core_is_array(o)));
    PyObject *sequence = v->single || PyTuple_Check(o) ? Py_NewRef(o) : PySequence_Tuple(o);
    if (!sequence) return false;
    Py_ssize_t n = v->single ? 1 : PyTuple_Size(sequence);
    void *items = room_for(room, n, kind == CORE_SIZES ? sizeof(int64_t) : sizeof(int));
    bool read = items;
    for (Py_ssize_t i = 0; read && i < n; i++)
        read = item_of(kind, v->single ? sequence : PyTuple_GetItem(sequence, i), items, i);
    Py_DECREF(sequence);
    v->n = (int)n;
    if (kind == CORE_SIZES)
        v->sizes = items;
    else
        v->axes = items;
    return read;
}

bool core_read_plain(const core_parameter *p, PyObject *o, core_value *v, core_room *room) {
    *v = (core_value){.given = o};
    v->absent = o == Py_None && (p->or_absent || (p->value && !strcmp(p->value, "None")));
    if (v->absent) return true;
    switch (p->kind) {
    case CORE_SIZES:
    case CORE_AXES: return read_numbers(p->kind, o, v, room);
    case CORE_WHOLE: return whole_of(o, &v->whole);
    case CORE_AXIS: return core_int(o, &v->axis);
    case CORE_NUMBER: v->number = core_double(o); return v->number != -1 || !PyErr_Occurred();
    case CORE_TRUTH: return truth_of(o, &v->truth);
    case CORE_DTYPE: return dtype_of(o, &v->dtype);
    default: return true;
    }
}

/* ---- arrays ---- */

static PyObject *hold(core_room *room, PyObject *o) {
    if (o) room->made[room->n_made++] = o;
    return o;
}

/* A sequence becomes a tuple of arrays. */
static bool read_arrays(PyObject *o, core_value *v, core_room *room) {
    PyObject *sequence = PySequence_Tuple(o);
    if (!sequence) return false;
    Py_ssize_t n = PyTuple_Size(sequence);
    PyObject *arrays = hold(room, PyTuple_New(n));
    v->arrays = arrays ? room_for(room, n, sizeof *v->arrays) : NULL;
    bool read = v->arrays;
    for (Py_ssize_t i = 0; read && i < n; i++) {
        PyObject *array = core_operand(PyTuple_GetItem(sequence, i), NULL);
        read = array && PyTuple_SetItem(arrays, i, array) == 0;
    }
    Py_DECREF(sequence);
    v->given = arrays;
    v->n = (int)n;
    return read;
}

static bool is_array(const core_parameter *p) { return p->kind == CORE_ARRAY || p->kind == CORE_INDEX; }

static bool read_array(const core_parameter *p, core_value *v, PyObject *beside, core_room *room) {
    if (v->absent) return true;
    v->given = hold(room, p->kind == CORE_INDEX ? core_index(v->given) : core_operand(v->given, beside));
    return v->given;
}

static ht_array *held(PyObject *array) { return core_ht.ht_array_retain(((core_array *)array)->a); }

static void take_handles(const core_parameter *p, core_value *v) {
    if (is_array(p)) v->array = v->absent ? core_none : held(v->given);
    for (int i = 0; p->kind == CORE_ARRAYS && i < v->n; i++) v->arrays[i] = held(PyTuple_GetItem(v->given, i));
}

void core_let_go(const core_parameter *p, int n, const core_value *v) {
    for (int i = 0; i < n; i++) {
        if (is_array(&p[i])) core_ht.ht_array_free(v[i].array);
        for (int k = 0; p[i].kind == CORE_ARRAYS && k < v[i].n; k++) core_ht.ht_array_free(v[i].arrays[k]);
    }
}

bool core_read(const core_parameter *p, int n, PyObject *const *given, core_value *v, core_room *room) {
    bool bare = false;
    for (int i = 0; i < n; i++) {
        if (given[i] && !core_read_plain(&p[i], given[i], &v[i], room)) return false;
        if (is_array(&p[i])) {
            if (p[i].beside && !v[i].absent && !core_is_array(v[i].given))
                bare = true;
            else if (!read_array(&p[i], &v[i], NULL, room))
                return false;
        } else if (p[i].kind == CORE_ARRAYS && !read_arrays(v[i].given, &v[i], room))
            return false;
    }
    /* Of two numbers that stand beside each other, the first takes the dtype of the second. */
    for (int i = n - 1; bare && i >= 0; i--) {
        if (!p[i].beside || v[i].absent || core_is_array(v[i].given)) continue;
        PyObject *beside = v[p[i].beside - 1].given;
        if (!read_array(&p[i], &v[i], core_is_array(beside) ? beside : NULL, room)) return false;
    }
    for (int i = 0; i < n; i++) take_handles(&p[i], &v[i]);
    return true;
}
