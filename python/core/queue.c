/* Streams as Python objects, and the current stream of a thread. */
#include "core.h"

#include <stddef.h>
#include <structmember.h>

static _Thread_local core_place here; /* holds its queue */
static core_queue *queues;

/* ---- the type ---- */

static PyObject *queue_new(PyTypeObject *type, PyObject *args, PyObject *named) {
    (void)named;
    PyObject *device = NULL;
    if (!PyArg_ParseTuple(args, "O", &device)) return NULL;
    ht_device *d = PyLong_AsVoidPtr(device);
    if (!d) return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "a queue needs a device");
    core_queue *q = (core_queue *)PyType_GenericAlloc(type, 0);
    if (!q) return NULL;
    ht_error err = {0};
    ht_status status = core_ht.ht_stream_new(d, &q->stream, &err);
    if (!status) {
        q->next = queues;
        queues = q;
        return (PyObject *)q;
    }
    Py_DECREF(q);
    return core_raise(&err);
}

static void queue_dealloc(PyObject *self) {
    core_queue *q = (core_queue *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (q->weak) PyObject_ClearWeakRefs(self);
    core_queue **at = &queues;
    while (*at && *at != q) at = &(*at)->next;
    if (*at) *at = q->next;
    Py_BEGIN_ALLOW_THREADS; /* what is computed meanwhile may end in a call of Python */
    for (int i = 0; i < q->n_scopes; i++) core_ht.ht_scope_free(q->scopes[i]);
    core_ht.ht_stream_free(q->stream);
    Py_END_ALLOW_THREADS;
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *queue_synchronize(PyObject *self, PyObject *unused) {
    (void)unused;
    ht_stream *stream = ((core_queue *)self)->stream;
    Py_BEGIN_ALLOW_THREADS;
    core_ht.ht_stream_synchronize(stream);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"_synchronize", queue_synchronize, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};
static PyMemberDef members[] = {{"__weaklistoffset__", T_PYSSIZET, offsetof(core_queue, weak), READONLY, NULL},
                                {NULL, 0, 0, 0, NULL}};
static PyType_Slot slots[] = {{Py_tp_new, (void *)queue_new},
                              {Py_tp_dealloc, (void *)queue_dealloc},
                              {Py_tp_methods, methods},
                              {Py_tp_members, members},
                              {0, NULL}};
PyType_Spec core_queue_spec = {"hearth._core.Queue", sizeof(core_queue), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                               slots};

/* ---- where a thread computes ---- */

core_place core_here(void) {
    if (here.queue) return here;
    PyObject *none = PyObject_CallNoArgs(core_hook.start);
    Py_XDECREF(none);
    if (none && !here.queue) PyErr_SetString(PyExc_RuntimeError, "this thread has no stream");
    return here;
}

static void use(core_place place) {
    core_queue *before = here.queue;
    Py_XINCREF((PyObject *)place.queue);
    here = place;
    Py_XDECREF((PyObject *)before);
}

PyObject *core_use(PyObject *module, PyObject *args) {
    (void)module;
    core_place place;
    PyObject *queue;
    if (!PyArg_ParseTuple(args, "Op", &queue, &place.named)) return NULL;
    if (queue != Py_None && !PyObject_TypeCheck(queue, core_queue_type))
        return PyErr_Format(PyExc_TypeError, "a stream was expected");
    place.queue = queue == Py_None ? NULL : (core_queue *)queue;
    use(place);
    Py_RETURN_NONE;
}

PyObject *core_current(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    core_place now = core_here();
    return now.queue ? Py_BuildValue("Oi", now.queue, now.named) : NULL;
}

int core_enter(PyObject *stream, core_place *before) {
    before->queue = NULL;
    if (!stream || stream == Py_None) return 1;
    if (!core_here().queue) return 0;
    PyObject *queue = PyObject_CallFunctionObjArgs(core_hook.queue_of, stream, NULL);
    if (!queue) return 0;
    *before = here;
    Py_INCREF((PyObject *)before->queue);
    use((core_place){(core_queue *)queue, 1});
    Py_DECREF(queue);
    return 1;
}

void core_leave(core_place before) {
    if (!before.queue) return;
    use(before);
    Py_DECREF((PyObject *)before.queue);
}

/* ---- scopes ---- */

ht_scope *core_scope_take(void) {
    core_queue *q = here.queue ? here.queue : core_here().queue;
    if (!q) return NULL;
    ht_scope *s = q->n_scopes ? q->scopes[--q->n_scopes] : core_ht.ht_scope_new(q->stream);
    if (!s) PyErr_NoMemory();
    if (s) Py_INCREF((PyObject *)q);
    return s;
}

/* Lent by the scope, which holds it. */
static core_queue *queue_of(const ht_scope *s) {
    const ht_stream *stream = core_ht.ht_scope_stream(s);
    core_queue *q = here.queue;
    if (q && q->stream == stream) return q;
    for (q = queues; q->stream != stream;) q = q->next;
    return q;
}

void core_scope_give(ht_scope *s) {
    core_queue *q = queue_of(s);
    if (q->n_scopes < CORE_SCOPES)
        q->scopes[q->n_scopes++] = s;
    else
        core_ht.ht_scope_free(s);
    Py_DECREF((PyObject *)q);
}

void core_scope_free(ht_scope *s) {
    core_queue *q = queue_of(s);
    core_ht.ht_scope_free(s);
    Py_DECREF((PyObject *)q);
}

PyObject *core_take(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    ht_scope *s = core_scope_take();
    return s ? PyLong_FromVoidPtr(s) : NULL;
}

static ht_scope *scope_of(PyObject *number) {
    ht_scope *s = PyLong_AsVoidPtr(number);
    if (!s && !PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "no scope");
    return s;
}

/* Ends what was made in a scope, and keeps the scope for another expression. */
PyObject *core_give(PyObject *module, PyObject *scope) {
    (void)module;
    ht_scope *s = scope_of(scope);
    if (!s) return NULL;
    core_ht.ht_scope_finish(s, NULL);
    core_scope_give(s);
    Py_RETURN_NONE;
}

PyObject *core_free(PyObject *module, PyObject *scope) {
    (void)module;
    ht_scope *s = scope_of(scope);
    if (!s) return NULL;
    core_scope_free(s);
    Py_RETURN_NONE;
}
