#include "formats/json_value.h"

#include "base/checked.h"
#include "base/grow.h"
#include "base/hash.h"
#include "base/table.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { SMALL_OBJECT = 8 }; /* fields that are compared one by one; larger objects have an index */

typedef struct text_value {
    ht_json head;
    size_t n;
    char text[];
} text_value;

typedef struct number_value {
    ht_json head;
    union {
        int64_t integer;
        double real;
    };
    char spelling[]; /* "" where ht_json_spelling has none; absent from integers without one */
} number_value;

typedef struct array_value {
    ht_json head;
    size_t n, capacity;
    ht_json **items;
} array_value;

typedef struct object_value {
    ht_json head;
    size_t n, capacity;
    ht_json_member *members;
    ht_table index; /* of positions by name; empty in a small object */
} object_value;

/* ---- references ---- */

/* Programs share one static value each of null, true and false, which is never freed. */
enum { IMMORTAL = UINT32_MAX };
static ht_json null_value = {.type = HT_JSON_NULL, .references = IMMORTAL};
static ht_json true_value = {.type = HT_JSON_TRUE, .references = IMMORTAL};
static ht_json false_value = {.type = HT_JSON_FALSE, .references = IMMORTAL};

ht_json *ht_json_incref(const ht_json *v) {
    ht_json *value = (ht_json *)(uintptr_t)v;
    if (value && value->references != IMMORTAL) __atomic_add_fetch(&value->references, 1, __ATOMIC_RELAXED);
    return value;
}

static void clear_object(object_value *o) {
    for (size_t i = 0; i < o->n; i++) {
        free((char *)(uintptr_t)o->members[i].name);
        ht_json_decref(o->members[i].value);
    }
    free(o->members);
    ht_table_free(&o->index);
}

void ht_json_decref(ht_json *v) {
    if (!v || v->references == IMMORTAL) return;
    /* The only owner needs no atomic subtraction. */
    if (__atomic_load_n(&v->references, __ATOMIC_ACQUIRE) != 1 &&
        __atomic_sub_fetch(&v->references, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    if (v->type == HT_JSON_OBJECT) clear_object((object_value *)v);
    if (v->type == HT_JSON_ARRAY) {
        (void)ht_json_array_clear(v);
        free(((array_value *)v)->items);
    }
    free(v);
}

static void *new_value(ht_json_type type, size_t bytes) {
    ht_json *v = malloc(bytes);
    if (v) *v = (ht_json){.type = type, .references = 1};
    return v;
}

/* ---- scalars ---- */

ht_json *ht_json_null(void) { return &null_value; }
ht_json *ht_json_boolean(bool value) { return value ? &true_value : &false_value; }

static number_value *new_number(ht_json_type type, const char *spelling, size_t n) {
    number_value *v = new_value(type, sizeof *v + n + 1);
    if (!v) return NULL;
    if (n) memcpy(v->spelling, spelling, n);
    v->spelling[n] = '\0';
    return v;
}

ht_json *ht_json_integer(int64_t value) {
    number_value *v = new_number(HT_JSON_INTEGER, NULL, 0);
    if (!v) return NULL;
    v->integer = value;
    return &v->head;
}

ht_json *ht_json_unsigned(uint64_t value) {
    char text[24];
    const int n = snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    return value <= INT64_MAX ? ht_json_integer((int64_t)value) : ht_json_of(text, (size_t)n);
}

ht_json *ht_json_real(double value) {
    number_value *v = isfinite(value) ? new_number(HT_JSON_REAL, NULL, 0) : NULL;
    if (!v) return NULL;
    v->real = value;
    return &v->head;
}

ht_json *ht_json_bytes(const char *text, size_t n) {
    text_value *v = new_value(HT_JSON_STRING, sizeof *v + n + 1);
    if (!v) return NULL;
    v->n = n;
    if (n) memcpy(v->text, text, n);
    v->text[n] = '\0';
    return &v->head;
}

ht_json *ht_json_stringn(const char *text, size_t n) {
    if (ht_utf8_valid(text, n)) return ht_json_bytes(text, n);
    ht_text clean = {0};
    uint32_t code;
    for (size_t at = 0; at < n;) {
        at += ht_utf8_decode(text + at, n - at, &code);
        ht_text_append_utf8(&clean, code);
    }
    ht_json *v = clean.failed ? NULL : ht_json_bytes(clean.data, clean.len);
    ht_text_discard(&clean);
    return v;
}

ht_json *ht_json_string(const char *text) { return text ? ht_json_stringn(text, strlen(text)) : NULL; }

const char *ht_json_string_value(const ht_json *v) {
    return ht_json_is_string(v) ? ((const text_value *)v)->text : NULL;
}
size_t ht_json_string_length(const ht_json *v) { return ht_json_is_string(v) ? ((const text_value *)v)->n : 0; }
int64_t ht_json_integer_value(const ht_json *v) {
    return ht_json_is_integer(v) ? ((const number_value *)v)->integer : 0;
}
double ht_json_real_value(const ht_json *v) { return ht_json_is_real(v) ? ((const number_value *)v)->real : 0; }
double ht_json_number_value(const ht_json *v) {
    return ht_json_is_integer(v) ? (double)((const number_value *)v)->integer : ht_json_real_value(v);
}

const char *ht_json_spelling(const ht_json *v) {
    if (!ht_json_is_number(v) && !(v && v->type == HT_JSON_NOT_FINITE)) return NULL;
    const char *spelling = ((const number_value *)v)->spelling;
    return *spelling ? spelling : NULL;
}

/* ---- arrays ---- */

static array_value *array_of(const ht_json *v) { return ht_json_is_array(v) ? (array_value *)(uintptr_t)v : NULL; }

ht_json *ht_json_new_array(void) {
    array_value *a = new_value(HT_JSON_ARRAY, sizeof *a);
    if (!a) return NULL;
    a->n = a->capacity = 0;
    a->items = NULL;
    return &a->head;
}

size_t ht_json_array_size(const ht_json *array) { return ht_json_is_array(array) ? array_of(array)->n : 0; }

ht_json *ht_json_array_get(const ht_json *array, size_t i) {
    return i < ht_json_array_size(array) ? array_of(array)->items[i] : NULL;
}

/* Makes capacity for an element after n; 4 at first, as most containers are small. */
static bool grow(void *elements, size_t *capacity, size_t n, size_t size) {
    const size_t larger = *capacity ? 2 * *capacity : 4;
    if (n < *capacity) return true;
    if (!ht_resize(elements, larger, size)) return false;
    *capacity = larger;
    return true;
}

int ht_json_array_insert_new(ht_json *array, size_t i, ht_json *value) {
    array_value *a = array_of(array);
    if (!a || !value || value == array || i > a->n || !grow(&a->items, &a->capacity, a->n, sizeof *a->items)) {
        ht_json_decref(value);
        return -1;
    }
    memmove(a->items + i + 1, a->items + i, (a->n - i) * sizeof *a->items);
    a->items[i] = value;
    a->n++;
    return 0;
}

int ht_json_array_append_new(ht_json *array, ht_json *value) {
    return ht_json_array_insert_new(array, ht_json_array_size(array), value);
}

int ht_json_array_append(ht_json *array, ht_json *value) {
    return ht_json_array_append_new(array, ht_json_incref(value));
}

int ht_json_array_extend(ht_json *array, const ht_json *other) {
    const size_t n = ht_json_array_size(other);
    if (!ht_json_is_array(array) || !ht_json_is_array(other)) return -1;
    for (size_t i = 0; i < n; i++)
        if (ht_json_array_append(array, ht_json_array_get(other, i))) return -1;
    return 0;
}

int ht_json_array_remove(ht_json *array, size_t i) {
    array_value *a = array_of(array);
    if (!a || i >= a->n) return -1;
    ht_json_decref(a->items[i]);
    a->n--;
    memmove(a->items + i, a->items + i + 1, (a->n - i) * sizeof *a->items);
    return 0;
}

int ht_json_array_clear(ht_json *array) {
    array_value *a = array_of(array);
    if (!a) return -1;
    for (size_t i = 0; i < a->n; i++) ht_json_decref(a->items[i]);
    a->n = 0;
    return 0;
}

/* ---- objects ---- */

static object_value *object_of(const ht_json *v) { return ht_json_is_object(v) ? (object_value *)(uintptr_t)v : NULL; }

ht_json *ht_json_new_object(void) {
    object_value *o = new_value(HT_JSON_OBJECT, sizeof *o);
    if (!o) return NULL;
    *o = (object_value){.head = o->head};
    return &o->head;
}

size_t ht_json_object_size(const ht_json *object) { return ht_json_is_object(object) ? object_of(object)->n : 0; }

const ht_json_member *ht_json_members(const ht_json *object, size_t *n) {
    *n = ht_json_object_size(object);
    return *n ? object_of(object)->members : NULL;
}

static bool is_named(const ht_json_member *m, const char *name, size_t n) {
    return m->n_name == n && memcmp(m->name, name, n) == 0;
}

/* Index of a field; o->n: not found. */
static size_t find(const object_value *o, const char *name, size_t n) {
    size_t i = 0, probe = 0;
    if (o->index.n) {
        const uint64_t hash = ht_hash_bytes(name, n);
        for (uint32_t at; (at = ht_table_next(&o->index, hash, &probe)) != HT_TABLE_END;)
            if (is_named(&o->members[at], name, n)) return at;
        return o->n;
    }
    while (i < o->n && !is_named(&o->members[i], name, n)) i++;
    return i;
}

/* Adds the missing fields to the index, unless the object is small and has no index. A failure frees the index. */
static ht_status index_members(object_value *o) {
    ht_status status = HT_OK;
    if (!o->index.n && o->n <= SMALL_OBJECT) return HT_OK;
    for (size_t i = o->index.n; !status && i < o->n; i++)
        status = ht_table_add(&o->index, ht_hash_bytes(o->members[i].name, o->members[i].n_name), (uint32_t)i);
    if (status) ht_table_free(&o->index);
    return status;
}

/* Adds a new field; takes the allocated name and the value on success. HT_ERR_FORMAT for names that were made to
 * collide. */
static ht_status add(object_value *o, const char *name, size_t n, ht_json *value) {
    if (o->n >= INT32_MAX || !grow(&o->members, &o->capacity, o->n, sizeof *o->members)) return HT_ERR_MEMORY;
    o->members[o->n++] = (ht_json_member){name, n, value};
    const ht_status status = index_members(o);
    if (status) o->n--;
    return status;
}

static char *copy_name(const char *name, size_t n) {
    char *copy = malloc(n + 1);
    if (!copy) return NULL;
    memcpy(copy, name, n);
    copy[n] = '\0';
    return copy;
}

int ht_json_object_setn_new(ht_json *object, const char *name, size_t n, ht_json *value) {
    object_value *o = object_of(object);
    if (!o || !name || !value || value == object) {
        ht_json_decref(value);
        return -1;
    }
    const size_t i = find(o, name, n);
    if (i < o->n) {
        ht_json_decref(o->members[i].value);
        o->members[i].value = value;
        return 0;
    }
    char *copy = copy_name(name, n);
    if (copy && !add(o, copy, n, value)) return 0;
    free(copy);
    ht_json_decref(value);
    return -1;
}

int ht_json_object_set_new(ht_json *object, const char *name, ht_json *value) {
    return ht_json_object_setn_new(object, name, name ? strlen(name) : 0, value);
}

int ht_json_object_set(ht_json *object, const char *name, ht_json *value) {
    return ht_json_object_set_new(object, name, ht_json_incref(value));
}

ht_json *ht_json_object_getn(const ht_json *object, const char *name, size_t n) {
    const object_value *o = object_of(object);
    if (!o || !o->n || !name) return NULL;
    const size_t i = find(o, name, n);
    return i < o->n ? o->members[i].value : NULL;
}

ht_json *ht_json_object_get(const ht_json *object, const char *name) {
    return ht_json_object_getn(object, name, name ? strlen(name) : 0);
}

int ht_json_object_del(ht_json *object, const char *name) {
    object_value *o = object_of(object);
    const size_t n = name ? strlen(name) : 0, i = o && name ? find(o, name, n) : 0;
    if (!o || !name || i == o->n) return -1;
    const ht_json_member removed = o->members[i];
    o->n--;
    memmove(o->members + i, o->members + i + 1, (o->n - i) * sizeof *o->members);
    ht_table_truncate(&o->index, (uint32_t)i);
    (void)index_members(o); /* optional: lookups work without an index */
    free((char *)(uintptr_t)removed.name);
    ht_json_decref(removed.value);
    return 0;
}

const ht_json_member *ht_json_object_at(const ht_json *object, size_t i) {
    return i < ht_json_object_size(object) ? &object_of(object)->members[i] : NULL;
}

int ht_json_object_update(ht_json *object, const ht_json *other) {
    size_t n;
    const ht_json_member *members = ht_json_members(other, &n);
    if (!ht_json_is_object(object) || !ht_json_is_object(other)) return -1;
    for (size_t i = 0; i < n; i++)
        if (ht_json_object_setn_new(object, members[i].name, members[i].n_name, ht_json_incref(members[i].value)))
            return -1;
    return 0;
}

/* ---- whole values ---- */

ht_json *ht_json_copy(const ht_json *v) {
    if (!ht_json_is_object(v) && !ht_json_is_array(v)) return ht_json_incref(v); /* scalars never change */
    ht_json *copy = ht_json_is_object(v) ? ht_json_new_object() : ht_json_new_array();
    if (!copy) return NULL;
    copy->line = v->line;
    copy->column = v->column;
    if (!(ht_json_is_object(v) ? ht_json_object_update(copy, v) : ht_json_array_extend(copy, v))) return copy;
    ht_json_decref(copy);
    return NULL;
}

bool ht_json_equal(const ht_json *a, const ht_json *b) {
    size_t n;
    if (!a || !b || a->type != b->type) return false;
    const ht_json_member *members = ht_json_members(a, &n);
    switch (a->type) {
    case HT_JSON_OBJECT:
        if (ht_json_object_size(b) != n) return false;
        for (size_t i = 0; i < n; i++)
            if (!ht_json_equal(members[i].value, ht_json_object_getn(b, members[i].name, members[i].n_name)))
                return false;
        return true;
    case HT_JSON_ARRAY:
        if (array_of(a)->n != array_of(b)->n) return false;
        for (size_t i = 0; i < array_of(a)->n; i++)
            if (!ht_json_equal(array_of(a)->items[i], array_of(b)->items[i])) return false;
        return true;
    case HT_JSON_STRING:
        return ht_json_string_length(a) == ht_json_string_length(b) &&
               memcmp(ht_json_string_value(a), ht_json_string_value(b), ht_json_string_length(a)) == 0;
    case HT_JSON_INTEGER: return ht_json_integer_value(a) == ht_json_integer_value(b);
    case HT_JSON_REAL: return ht_json_real_value(a) == ht_json_real_value(b);
    case HT_JSON_NOT_FINITE: return strcmp(ht_json_spelling(a), ht_json_spelling(b)) == 0;
    default: return true;
    }
}

/* ---- reading ---- */

typedef struct reader {
    ht_json_scanner *scan;
    ht_json *root, *open[HT_JSON_DEPTH_MAX];
    char *name; /* of the field whose value is next */
    size_t n_name;
} reader;

/* An integer that fits 64 bits as C prints it; false for any other spelling. */
static bool plain_integer(const char *digits, size_t n, int64_t *out) {
    const bool negative = digits[0] == '-';
    int64_t value = 0;
    for (size_t i = negative; i < n; i++) {
        const int digit = digits[i] - '0';
        if (digit < 0 || digit > 9 || !ht_mul_i64(value, 10, &value) ||
            !ht_add_i64(value, negative ? -digit : digit, &value))
            return false;
    }
    *out = value;
    return value || !negative;
}

static ht_json *read_number(ht_json_scanner *s) {
    int64_t integer;
    if (plain_integer(s->bytes, s->n_bytes, &integer)) return ht_json_integer(integer);
    number_value *v = new_number(HT_JSON_REAL, s->bytes, s->n_bytes);
    if (!v) return NULL;
    const char last = s->bytes[s->n_bytes - 1];
    const bool is_word = last == 'N' || last == 'y';
    if (strcmp(v->spelling, "-0") == 0) {
        v->head.type = HT_JSON_INTEGER;
        v->integer = 0;
    } else if (is_word || !isfinite(v->real = strtod(v->spelling, NULL)))
        v->head.type = HT_JSON_NOT_FINITE;
    return &v->head;
}

static ht_json *read_value(ht_json_scanner *s, ht_json_event event) {
    switch (event) {
    case HT_SCAN_OBJECT: return ht_json_new_object();
    case HT_SCAN_ARRAY: return ht_json_new_array();
    case HT_SCAN_STRING: return ht_json_bytes(s->bytes, s->n_bytes);
    case HT_SCAN_NUMBER: return read_number(s);
    case HT_SCAN_TRUE: return new_value(HT_JSON_TRUE, sizeof(ht_json));
    case HT_SCAN_FALSE: return new_value(HT_JSON_FALSE, sizeof(ht_json));
    default: return new_value(HT_JSON_NULL, sizeof(ht_json));
    }
}

static void read_name(reader *r, const ht_json *object) {
    ht_json_scanner *s = r->scan;
    const object_value *o = object_of(object);
    r->n_name = s->n_bytes;
    if (!s->options.as_python && find(o, s->bytes, s->n_bytes) < o->n)
        ht_json_scan_fail_repeated(s);
    else if (!(r->name = copy_name(s->bytes, s->n_bytes)))
        ht_json_scan_fail_memory(s);
}

/* Adds a value to the innermost of `depth` containers; takes its reference also on failure. */
static ht_status put(reader *r, int depth, ht_json *value) {
    ht_json *parent = depth ? r->open[depth - 1] : NULL;
    object_value *o = object_of(parent);
    if (depth < HT_JSON_DEPTH_MAX) r->open[depth] = value;
    if (!parent) r->root = value;
    if (!o) return !parent || ht_json_array_append_new(parent, value) == 0 ? HT_OK : HT_ERR_MEMORY;
    const size_t i = r->scan->options.as_python ? find(o, r->name, r->n_name) : o->n;
    const bool is_new = i == o->n;
    const ht_status status = is_new ? add(o, r->name, r->n_name, value) : HT_OK;
    if (!is_new) {
        ht_json_decref(o->members[i].value);
        o->members[i].value = value;
    }
    if (status) ht_json_decref(value);
    if (!is_new || status) free(r->name);
    r->name = NULL;
    return status;
}

static bool opens(ht_json_event event) { return event == HT_SCAN_OBJECT || event == HT_SCAN_ARRAY; }

ht_json *ht_json_scan_value(ht_json_scanner *s, ht_json_event event) {
    reader r = {.scan = s};
    int depth; /* open containers of the value itself */
    for (const int outside = s->depth - opens(event); event > HT_SCAN_END; event = ht_json_scan_next(s)) {
        depth = s->depth - outside;
        if (event == HT_SCAN_KEY)
            read_name(&r, r.open[depth - 1]);
        else if (event != HT_SCAN_CLOSE) {
            ht_json *value = read_value(s, event);
            if (value) {
                value->line = s->line;
                value->column = s->column;
            }
            const ht_status status = value ? put(&r, depth - opens(event), value) : HT_ERR_MEMORY;
            if (status == HT_ERR_FORMAT) ht_json_scan_fail(s, status, "the names were made to collide");
            if (status) ht_json_scan_fail_memory(s);
        }
        if (!depth) break;
    }
    free(r.name);
    if (!s->status) return r.root;
    ht_json_decref(r.root);
    return NULL;
}

ht_status ht_json_load(const char *text, size_t n, const ht_json_options *options, ht_json **out, ht_error *err) {
    ht_json_scanner s;
    ht_json_scan_begin(&s, text, n, options, err);
    ht_json *value = ht_json_scan_value(&s, ht_json_scan_next(&s));
    if (value) (void)ht_json_scan_next(&s);
    const ht_status status = ht_json_scan_end(&s);
    if (status) ht_json_decref(value);
    *out = status ? NULL : value;
    return status;
}

ht_json *ht_json_of(const char *text, size_t n) {
    ht_json *value;
    return ht_json_load(text, n, &(ht_json_options){.name = "the text", .any_value = true}, &value, NULL) ? NULL
                                                                                                          : value;
}

/* ---- pack ---- */

typedef struct packer {
    const char *at;
    va_list arguments;
    bool failed;  /* parsing continues, to take the remaining references */
    bool omitted; /* the last value is NULL, and may be */
} packer;

/* The next character that means something. */
static char next(packer *p) {
    while (*p->at == ' ' || *p->at == ',' || *p->at == ':') p->at++;
    return *p->at ? *p->at++ : '\0';
}

static bool takes(packer *p, char c) {
    if (*p->at != c) return false;
    p->at++;
    return true;
}

static const char *pack_text(packer *p, size_t *n) {
    const char *text = va_arg(p->arguments, const char *);
    *n = takes(p, '%') ? va_arg(p->arguments, size_t) : text ? strlen(text) : 0;
    return text;
}

static ht_json *pack_value(packer *p, char kind);

static ht_json *pack_container(packer *p, bool is_object) {
    ht_json *container = is_object ? ht_json_new_object() : ht_json_new_array();
    char kind;
    while ((kind = next(p)) && kind != (is_object ? '}' : ']')) {
        size_t n = 0;
        const char *name = is_object ? pack_text(p, &n) : NULL;
        p->omitted = false;
        ht_json *value = pack_value(p, is_object ? next(p) : kind);
        if (p->omitted) continue;
        if (is_object ? ht_json_object_setn_new(container, name, n, value) : ht_json_array_append_new(container, value))
            p->failed = true;
    }
    p->omitted = false;
    return container;
}

static ht_json *pack_value(packer *p, char kind) {
    ht_json *value = NULL;
    const char *text = NULL;
    size_t n;
    switch (kind) {
    case '{':
    case '[': return pack_container(p, kind == '{');
    case 'n': return ht_json_null();
    case 'b': return ht_json_boolean(va_arg(p->arguments, int));
    case 'i': return ht_json_integer(va_arg(p->arguments, int));
    case 'I': return ht_json_integer(va_arg(p->arguments, int64_t));
    case 'f': return ht_json_real(va_arg(p->arguments, double));
    case 's':
        text = pack_text(p, &n);
        if (text) value = ht_json_stringn(text, n);
        break;
    case 'o': value = va_arg(p->arguments, ht_json *); break;
    case 'O': value = ht_json_incref(va_arg(p->arguments, ht_json *)); break;
    default: p->failed = true;
    }
    if (takes(p, '?')) return value || text ? value : ht_json_null();
    p->omitted = takes(p, '*') && !value && !text;
    return value;
}

ht_json *ht_json_pack(const char *format, ...) {
    packer p = {.at = format};
    va_start(p.arguments, format);
    ht_json *value = pack_value(&p, next(&p));
    va_end(p.arguments);
    if (!p.failed) return value;
    ht_json_decref(value);
    return NULL;
}
