/* Function tables: the name, parameters and body of each library function that Python calls.
 *
 * A family (make.c, shape.c, ...) is a list of the library's functions that it calls, and a table with a row for each function
 * of Python: name, parameters, text, and a body, which calls the library on the values that the parameters were given. */
#ifndef HT_PYTHON_FUNCTION_H
#define HT_PYTHON_FUNCTION_H

#include "core.h"

/* What a parameter takes, and where its value is found. */
typedef enum core_kind {
    CORE_OBJECT, /* anything: `given` */
    CORE_ARRAY,  /* an array or what makes one: `array` */
    CORE_INDEX,  /* the same; numbers become int32 */
    CORE_ARRAYS, /* a sequence of them: `arrays`, `n` */
    CORE_SIZES,  /* a whole number, which `single` tells, or a sequence: `sizes`, `n` */
    CORE_AXES,   /* the same: `axes`, `n` */
    CORE_WHOLE,  /* `whole` */
    CORE_AXIS,   /* `axis` */
    CORE_NUMBER, /* `number` */
    CORE_TRUTH,  /* `truth` */
    CORE_DTYPE   /* `dtype` */
} core_kind;

typedef enum core_way { CORE_ANY_WAY, CORE_BY_PLACE, CORE_BY_NAME, CORE_REST } core_way;

typedef struct core_parameter {
    core_kind kind;
    const char *name;
    const char *value; /* the default, as Python writes it; NULL: there is none */
    core_way way;
    int beside;     /* 1 + the place of the array whose dtype a bare number takes, where that can hold it */
    bool or_absent; /* None is possible, as it is wherever it is the default */
} core_parameter;

/* Reading an argument may run Python, which may make the objects of other arguments stand for other arrays, and other threads may
 * do so whenever the GIL is let go of. So arrays are taken from their objects once all arguments are read, and held while the call
 * lasts: a function sees them as they are then. */
typedef struct core_value {
    PyObject *given; /* lent; of arrays, the object or the tuple of them */
    union {
        ht_array *array; /* HT_NONE for None */
        ht_array **arrays;
        const int64_t *sizes;
        const int *axes;
        int64_t whole;
        double number;
        int axis;
        bool truth;
        ht_dtype dtype;
    };
    int n;
    bool absent; /* None; `axes`, `sizes` are NULL and `n` is 0 then */
    bool single;
} core_value;

/* What a call gives; NULL after an exception, or a failure in the scope. It ends the scope, by core_finish or the like. */
typedef PyObject *core_body(ht_scope *s, const core_value *v);

enum { CORE_PARAMETERS = 12 };
typedef struct core_spec {
    const char *name;
    const char *text; /* NULL: none */
    core_body *body;
    core_parameter parameters[CORE_PARAMETERS]; /* up to one without a name; `stream` follows them */
    core_way stream;                            /* how that is given; CORE_REST: there is none */
} core_spec;

/* A function of the library, and where its address is to be put. */
typedef struct core_symbol {
    const char *name;
    void *place;
} core_symbol;

typedef struct core_family {
    const char *module;         /* where its functions are found */
    const char *owner;          /* the class whose methods they are, or NULL */
    const core_symbol *symbols; /* up to one without a name */
    const core_spec *specs;     /* likewise */
} core_family;

/* `ht`, the functions of the library that LIST(X) names by X(ht_...), and `symbols`, which finds them. */
#define CORE_SYMBOLS(LIST)                                                                                             \
    static struct { LIST(CORE_FIELD) } ht;                                                                             \
    static const core_symbol symbols[] = {LIST(CORE_SYMBOL){NULL, NULL}};
#define CORE_SYMBOL(name) {#name, &ht.name},

/* Rows of a table. A parameter is ARRAY("name", .value = "default", ...). */
#define BODY(name) static PyObject *of_##name(ht_scope *s, const core_value *v)
#define FUNCTION(name, text, ...)                                                                                      \
    { #name, text, of_##name, {__VA_ARGS__ }, CORE_BY_NAME }
#define AS(alias, name, text, ...)                                                                                     \
    { alias, text, of_##name, {__VA_ARGS__}, CORE_BY_NAME }
#define OF_KIND(which, ...)                                                                                            \
    { .kind = which, .name = __VA_ARGS__ }
#define OBJECT(...) OF_KIND(CORE_OBJECT, __VA_ARGS__)
#define ARRAY(...)  OF_KIND(CORE_ARRAY, __VA_ARGS__)
#define INDEX(...)  OF_KIND(CORE_INDEX, __VA_ARGS__)
#define ARRAYS(...) OF_KIND(CORE_ARRAYS, __VA_ARGS__)
#define SIZES(...)  OF_KIND(CORE_SIZES, __VA_ARGS__)
#define AXES(...)   OF_KIND(CORE_AXES, __VA_ARGS__)
#define WHOLE(...)  OF_KIND(CORE_WHOLE, __VA_ARGS__)
#define AXIS(...)   OF_KIND(CORE_AXIS, __VA_ARGS__)
#define NUMBER(...) OF_KIND(CORE_NUMBER, __VA_ARGS__)
#define TRUTH(...)  OF_KIND(CORE_TRUTH, __VA_ARGS__)
#define DTYPE(...)  OF_KIND(CORE_DTYPE, __VA_ARGS__)
#define END_OF_TABLE                                                                                                   \
    { NULL, NULL, NULL, {{0}}, CORE_BY_NAME }

/* ---- values.c ---- */

/* Room for what a call's values point at. */
typedef struct core_room {
    _Alignas(8) char first[256];
    size_t used;
    void *more[CORE_PARAMETERS];
    int n_more;
    PyObject *made[CORE_PARAMETERS]; /* held while the call lasts */
    int n_made;
} core_room;

/* Reads v[i].given for all n parameters, of which those that are NULL are ready, and holds their arrays, until core_let_go. False
 * after an exception, with nothing to let go of. */
bool core_read(const core_parameter *p, int n, PyObject *const *given, core_value *v, core_room *room);
void core_let_go(const core_parameter *p, int n, const core_value *v);
/* Reads one that is no array: for defaults, which need no room. */
bool core_read_plain(const core_parameter *p, PyObject *given, core_value *v, core_room *room);
void core_room_free(core_room *room);

/* A new reference to the array that stands for a value beside an array (NULL: alone); NULL after an exception. */
PyObject *core_operand(PyObject *value, PyObject *beside);
/* The same of a value that is an index. */
PyObject *core_index(PyObject *value);
extern ht_array *core_none; /* HT_NONE */
/* numbers.c: of a number, or nested lists of them, in the dtype that is wanted (NULL: their own). NULL with *other where
 * they are something else, or do not fit. */
ht_array *core_from_numbers(ht_scope *s, PyObject *o, const ht_dtype *wanted, bool *other);
static inline bool core_is_of_integers(ht_dtype dtype) { return dtype != HT_BOOL && dtype < HT_F16; }
/* Whether an integer is an element of a dtype of integers. */
bool core_holds(ht_dtype dtype, PyObject *integer);
/* False after an exception: an integer that the dtype, if it is one of integers, does not have. */
bool core_check_holds(ht_dtype dtype, PyObject *number);
/* A new reference to an integer. NULL, mostly without an exception: it is none. */
PyObject *core_integer(PyObject *value);
/* The elements, which are computed for that, as nested lists. */
PyObject *core_list(ht_array *a);

/* ---- for bodies ---- */

/* PyFloat_AsDouble, of whole numbers without an object on the way. */
static inline double core_double(PyObject *o) {
    return PyLong_CheckExact(o) ? PyLong_AsDouble(o) : PyFloat_AsDouble(o);
}

/* Ends a scope: n arrays as a list, or as a tuple. `results` are HT_NONE or of the scope. */
PyObject *core_finish_several(ht_scope *s, ht_array *const *results, int n, bool as_tuple);
/* Ends a scope with an exception that is set. */
PyObject *core_give_up(ht_scope *s);
/* Refuses what would write the sizes of its operands into a trace for other ones; false after the exception. */
bool core_sizes_may_be_read(const char *who);
PyObject *core_fixed_sizes(PyObject *module, PyObject *who); /* the same for Python */
/* A whole number that is an int, as axes are; false after an exception. */
bool core_int(PyObject *o, int *out);
/* An axis from 0 on; false after an exception. */
bool core_axis(const char *who, int axis, int n_axes, int *from_0);
/* Whether an object is this text. */
bool core_is_text(PyObject *o, const char *text);

static inline void core_shape(const ht_array *a, int64_t shape[8]) {
    for (int i = 0; i < core_ht.ht_array_n_dims(a); i++) shape[i] = core_ht.ht_array_dim(a, i);
}

/* functions(): a dict by "module" or "module.class" of dicts of functions by name. */
PyObject *core_functions(PyObject *module, PyObject *unused);
bool core_find_functions(void);

extern const core_family core_elementwise_family, core_make_family, core_shape_family, core_method_family,
    core_join_family, core_reduce_family, core_places_family, core_hidden_family, core_index_family, core_eval_family,
    core_number_family, core_linalg_family, core_norm_family, core_fast_family, core_losses_family, core_random_family;

#endif
