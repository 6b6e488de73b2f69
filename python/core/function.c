/* Function objects of Python for the rows of a table: called, bound as methods, inspected and pickled. */
#include "function.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>

typedef PyObject *vector_call(PyObject *self, PyObject *const *args, size_t n, PyObject *names);

/* The protocol that passes arguments as they lie on the stack. Every CPython from 3.8 on knows the flag, and from 3.9 on the
 * member `__vectorcalloffset__`; their names are in the headers of the stable ABI from 3.12 on. */
enum { HAS_VECTOR_CALL = 1 << 11 };
static size_t count_of(size_t n) { return n & ~((size_t)1 << (8 * sizeof n - 1)); }

typedef struct core_function_object {
    PyObject_HEAD vector_call *call;
    const core_spec *spec;
    const core_family *family;
    int n, n_by_place;  /* parameters without `stream` and `*rest`; those that may be given by place, with `stream` */
    int rest;           /* the place of the parameter that takes what is left by place; -1: there is none */
    PyObject *names;    /* a tuple, `stream` last */
    PyObject *defaults; /* a tuple; NULL's stand-in, Ellipsis, where there is none */
    core_value ready[CORE_PARAMETERS];
    PyObject *signature; /* once somebody asked for it */
    PyObject *weak;
} function;

static PyTypeObject *function_type;
static PyObject *method_type; /* types.MethodType */

/* ---- calls ---- */

static int place_of_name(const function *f, PyObject *name) {
    for (int k = 0; k <= f->n; k++)
        if (PyTuple_GetItem(f->names, k) == name) return k;
    for (int k = 0; k <= f->n; k++)
        if (PyUnicode_Compare(PyTuple_GetItem(f->names, k), name) == 0) return k;
    return -1;
}

static bool place_named(const function *f, PyObject *const *args, PyObject *names, PyObject **given) {
    Py_ssize_t n = PyTuple_Size(names);
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        int k = place_of_name(f, name);
        core_way way = k >= 0 && k < f->n ? f->spec->parameters[k].way : f->spec->stream;
        if (k < 0 || way == CORE_BY_PLACE || way == CORE_REST) {
            PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", f->spec->name, name);
            return false;
        }
        if (given[k]) {
            PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%U'", f->spec->name, name);
            return false;
        }
        given[k] = args[i];
    }
    return true;
}

static bool is_sizes(const core_parameter *p) { return p->kind == CORE_SIZES || p->kind == CORE_AXES; }

/* What is left of the arguments by place, for `*rest`: one list or tuple of sizes stands for its items. */
static PyObject *rest_of(const function *f, PyObject *const *args, Py_ssize_t n) {
    if (n > 0 && is_sizes(&f->spec->parameters[f->rest]) && (PyTuple_Check(args[0]) || PyList_Check(args[0])))
        return Py_NewRef(args[0]);
    PyObject *rest = PyTuple_New(n);
    for (Py_ssize_t i = 0; rest && i < n; i++)
        if (PyTuple_SetItem(rest, i, Py_NewRef(args[i]))) Py_CLEAR(rest);
    return rest;
}

static bool place(const function *f, PyObject *const *args, Py_ssize_t n, PyObject *names, PyObject **given,
                  core_room *room) {
    Py_ssize_t n_placed = n < f->n_by_place ? n : f->n_by_place;
    for (Py_ssize_t i = 0; i < n_placed; i++) given[i] = args[i];
    if (f->rest >= 0) {
        given[f->rest] = rest_of(f, args + n_placed, n - n_placed);
        if (!given[f->rest]) return false;
        room->made[room->n_made++] = given[f->rest];
    } else if (n > n_placed) {
        PyErr_Format(PyExc_TypeError, "%s() takes at most %d positional argument%s (%zd given)", f->spec->name,
                     f->n_by_place, f->n_by_place == 1 ? "" : "s", n);
        return false;
    }
    return !names || place_named(f, args + n, names, given);
}

static bool complete(const function *f, PyObject *const *given, core_value *v) {
    for (int i = 0; i < f->n; i++) {
        if (given[i]) continue;
        if (!f->spec->parameters[i].value) {
            PyErr_Format(PyExc_TypeError, "%s() missing required argument: '%s'", f->spec->name,
                         f->spec->parameters[i].name);
            return false;
        }
        v[i] = f->ready[i];
    }
    return true;
}

static PyObject *run(const function *f, PyObject *const *given, core_value *v, core_room *room) {
    core_place before;
    if (!core_enter(given[f->n], &before)) return NULL;
    PyObject *result = NULL;
    if (core_read(f->spec->parameters, f->n, given, v, room)) {
        ht_scope *s = core_scope_take();
        if (s) result = f->spec->body(s, v);
        core_let_go(f->spec->parameters, f->n, v);
    }
    core_leave(before);
    return result;
}

static PyObject *call(PyObject *self, PyObject *const *args, size_t nargs, PyObject *names) {
    const function *f = (const function *)self;
    PyObject *given[CORE_PARAMETERS + 1] = {NULL}, *result = NULL;
    core_value v[CORE_PARAMETERS];
    core_room room;
    room.used = 0;
    room.n_more = room.n_made = 0;
    if (place(f, args, (Py_ssize_t)count_of(nargs), names, given, &room) && complete(f, given, v))
        result = run(f, given, v, &room);
    core_room_free(&room);
    return result;
}

/* The same for whoever calls by a tuple and a dict. */
static PyObject *call_packed(PyObject *self, PyObject *args, PyObject *named) {
    Py_ssize_t n = PyTuple_Size(args), n_named = named ? PyDict_Size(named) : 0, at = 0, k = 0;
    PyObject *names = n_named ? PyTuple_New(n_named) : NULL, *result = NULL, *name, *value;
    PyObject **all = malloc((size_t)(n + n_named + 1) * sizeof *all);
    if (!all || (n_named && !names)) PyErr_NoMemory();
    bool ready = !PyErr_Occurred();
    for (Py_ssize_t i = 0; ready && i < n; i++) all[i] = PyTuple_GetItem(args, i);
    while (ready && k < n_named && PyDict_Next(named, &at, &name, &value)) {
        all[n + k] = Py_NewRef(value); /* the dict may be the caller's own, which changes */
        ready = PyTuple_SetItem(names, k++, Py_NewRef(name)) == 0;
    }
    if (ready) result = call(self, all, (size_t)n, names);
    while (k > 0) Py_DECREF(all[n + --k]);
    free(all);
    Py_XDECREF(names);
    return result;
}

static PyObject *bound(PyObject *self, PyObject *object, PyObject *type) {
    (void)type;
    if (!object || object == Py_None) return Py_NewRef(self);
    return PyObject_CallFunctionObjArgs(method_type, self, object, NULL);
}

/* ---- what it is ---- */

static PyObject *get_name(PyObject *self, void *unused) {
    (void)unused;
    return PyUnicode_FromString(((function *)self)->spec->name);
}

static PyObject *get_qualified(PyObject *self, void *unused) {
    (void)unused;
    const function *f = (const function *)self;
    return f->family->owner ? PyUnicode_FromFormat("%s.%s", f->family->owner, f->spec->name) : get_name(self, NULL);
}

static PyObject *get_module(PyObject *self, void *unused) {
    (void)unused;
    return PyUnicode_FromString(((function *)self)->family->module);
}

static PyObject *get_text(PyObject *self, void *unused) {
    (void)unused;
    return Py_BuildValue("z", ((function *)self)->spec->text);
}

/* (name, way, default or ...) of each parameter, `stream` included. */
static PyObject *parameters_of(const function *f) {
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < f->n + (f->spec->stream != CORE_REST); i++) {
        const core_way way = i < f->n ? f->spec->parameters[i].way : f->spec->stream;
        PyObject *standard = i < f->n ? PyTuple_GetItem(f->defaults, i) : Py_None;
        PyObject *one = Py_BuildValue("OiO", PyTuple_GetItem(f->names, i), (int)way, standard);
        if (!one || PyList_Append(list, one)) Py_CLEAR(list);
        Py_XDECREF(one);
    }
    return list;
}

static PyObject *get_signature(PyObject *self, void *unused) {
    (void)unused;
    function *f = (function *)self;
    if (!f->signature) {
        PyObject *list = parameters_of(f);
        f->signature = list ? PyObject_CallFunctionObjArgs(core_hook.signature, list, NULL) : NULL;
        Py_XDECREF(list);
    }
    return Py_XNewRef(f->signature);
}

static PyObject *represent(PyObject *self) {
    PyObject *name = get_qualified(self, NULL);
    PyObject *text = name ? PyUnicode_FromFormat("<function %s.%U>", ((function *)self)->family->module, name) : NULL;
    Py_XDECREF(name);
    return text;
}

/* Pickled by its name. */
static PyObject *reduce(PyObject *self, PyObject *unused) {
    (void)unused;
    return get_qualified(self, NULL);
}

/* ---- the type ---- */

static void dealloc(PyObject *self) {
    function *f = (function *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (f->weak) PyObject_ClearWeakRefs(self);
    Py_XDECREF(f->names);
    Py_XDECREF(f->defaults);
    Py_XDECREF(f->signature);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {{"__reduce__", reduce, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};
static PyGetSetDef properties[] = {
    {"__name__", get_name, NULL, NULL, NULL},           {"__qualname__", get_qualified, NULL, NULL, NULL},
    {"__module__", get_module, NULL, NULL, NULL},       {"__doc__", get_text, NULL, NULL, NULL},
    {"__signature__", get_signature, NULL, NULL, NULL}, {NULL, NULL, NULL, NULL, NULL}};
static PyMemberDef members[] = {{"__weaklistoffset__", T_PYSSIZET, offsetof(function, weak), READONLY, NULL},
                                {"__vectorcalloffset__", T_PYSSIZET, offsetof(function, call), READONLY, NULL},
                                {NULL, 0, 0, 0, NULL}};
static PyType_Slot slots[] = {{Py_tp_dealloc, (void *)dealloc}, {Py_tp_call, (void *)call_packed},
                              {Py_tp_descr_get, (void *)bound}, {Py_tp_repr, (void *)represent},
                              {Py_tp_methods, methods},         {Py_tp_getset, properties},
                              {Py_tp_members, members},         {0, NULL}};
static PyType_Spec type_spec = {"hearth._core.Function", sizeof(function), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_METHOD_DESCRIPTOR | HAS_VECTOR_CALL, slots};

/* ---- from the tables ---- */

/* The default of a parameter, kept in `defaults` and read once. */
static bool read_default(function *f, int i) {
    static const int64_t no_sizes[1];
    const core_parameter *p = &f->spec->parameters[i];
    PyObject *value = p->value ? PyObject_CallFunction(core_hook.value_of, "s", p->value) : Py_NewRef(Py_Ellipsis);
    if (!value || PyTuple_SetItem(f->defaults, i, value)) return false;
    if (!p->value) return true;
    core_room room;
    room.used = 0;
    room.n_more = room.n_made = 0;
    bool read = core_read_plain(p, value, &f->ready[i], &room);
    if (is_sizes(p)) f->ready[i].sizes = f->ready[i].n ? NULL : no_sizes;
    if (f->ready[i].absent) f->ready[i].sizes = NULL, f->ready[i].n = 0;
    core_room_free(&room);
    return read;
}

static bool fill(function *f) {
    const core_parameter *p = f->spec->parameters;
    for (f->rest = -1; p[f->n].name; f->n++) {
        if (p[f->n].way == CORE_REST) f->rest = f->n;
        f->n_by_place += p[f->n].way == CORE_ANY_WAY || p[f->n].way == CORE_BY_PLACE;
    }
    f->n_by_place += f->spec->stream == CORE_ANY_WAY;
    f->names = PyTuple_New(f->n + 1);
    f->defaults = PyTuple_New(f->n);
    if (!f->names || !f->defaults) return false;
    for (int i = 0; i <= f->n; i++) {
        PyObject *name = PyUnicode_InternFromString(i < f->n ? p[i].name : "stream");
        if (!name || PyTuple_SetItem(f->names, i, name)) return false;
    }
    for (int i = 0; i < f->n; i++)
        if (!read_default(f, i)) return false;
    return true;
}

static PyObject *function_of(const core_family *family, const core_spec *spec) {
    function *f = (function *)PyType_GenericAlloc(function_type, 0);
    if (!f) return NULL;
    f->call = call;
    f->spec = spec;
    f->family = family;
    if (fill(f)) return (PyObject *)f;
    Py_DECREF(f);
    return NULL;
}

static const core_family *const families[] = {
    &core_elementwise_family, &core_make_family,   &core_shape_family,  &core_method_family,
    &core_join_family,        &core_reduce_family, &core_places_family, &core_hidden_family,
    &core_index_family,       &core_eval_family,   &core_number_family, &core_linalg_family,
    &core_norm_family,        &core_fast_family,   &core_losses_family, &core_random_family};

static bool add_family(PyObject *all, const core_family *family) {
    char where[64];
    PyOS_snprintf(where, sizeof where, "%s%s%s", family->module, family->owner ? "." : "",
                  family->owner ? family->owner : "");
    PyObject *there = PyDict_GetItemString(all, where);
    if (!there) {
        PyObject *fresh = PyDict_New();
        bool put = fresh && PyDict_SetItemString(all, where, fresh) == 0;
        Py_XDECREF(fresh);
        there = put ? PyDict_GetItemString(all, where) : NULL;
    }
    for (const core_spec *spec = family->specs; there && spec->name; spec++) {
        PyObject *f = function_of(family, spec);
        if (!f || PyDict_SetItemString(there, spec->name, f)) there = NULL;
        Py_XDECREF(f);
    }
    return there;
}

PyObject *core_functions(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    PyObject *all = PyDict_New();
    for (size_t i = 0; all && i < sizeof families / sizeof *families; i++)
        if (!add_family(all, families[i])) Py_CLEAR(all);
    return all;
}

bool core_find_functions(void) {
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        for (const core_symbol *symbol = families[i]->symbols; symbol->name; symbol++) {
            core_function *found = core_find(symbol->name);
            memcpy(symbol->place, &found, sizeof found);
        }
    if (!function_type) function_type = (PyTypeObject *)PyType_FromSpec(&type_spec);
    PyObject *types = PyImport_ImportModule("types");
    if (types && !method_type) method_type = PyObject_GetAttrString(types, "MethodType");
    Py_XDECREF(types);
    return function_type && method_type && !PyErr_Occurred();
}

/* ---- for bodies ---- */

PyObject *core_give_up(ht_scope *s) { return core_finish(s, NULL); }

PyObject *core_finish_several(ht_scope *s, ht_array *const *results, int n, bool as_tuple) {
    PyObject *all = as_tuple ? PyTuple_New(n) : PyList_New(n);
    for (int i = 0; all && i < n; i++) {
        PyObject *one = core_array_new(core_ht.ht_array_retain(results[i]));
        if (!one || (as_tuple ? PyTuple_SetItem(all, i, one) : PyList_SetItem(all, i, one))) Py_CLEAR(all);
    }
    core_ht.ht_scope_finish(s, NULL);
    core_scope_give(s);
    return all;
}

bool core_axis(const char *who, int axis, int n_axes, int *from_0) {
    *from_0 = axis < 0 ? axis + n_axes : axis;
    if (*from_0 >= 0 && *from_0 < n_axes) return true;
    PyErr_Format(PyExc_IndexError, "%s: there is no axis %d among %d", who, axis, n_axes);
    return false;
}

bool core_is_text(PyObject *o, const char *text) {
    return PyUnicode_Check(o) && PyUnicode_CompareWithASCIIString(o, text) == 0;
}
