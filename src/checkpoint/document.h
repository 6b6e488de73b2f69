/* JSON objects in the making, with a sticky error: configurations and metadata that are written. */
#ifndef HT_CHECKPOINT_DOCUMENT_H
#define HT_CHECKPOINT_DOCUMENT_H

#include "base/error.h"
#include "formats/json.h"

typedef struct ht_document {
    ht_json *object;
    const char *name; /* for messages */
    ht_status status;
    ht_error *err;
} ht_document;

/* Sets a field to a value, which is taken over; NULL: memory ran out. */
static inline void ht_document_set(ht_document *d, const char *key, ht_json *value) {
    if (d->status)
        ht_json_decref(value);
    else if (ht_json_object_set_new(d->object, key, value))
        d->status = ht_fail_memory(d->err, 0, d->name);
}

/* The object; NULL, and the object released, after a failure. */
static inline ht_json *ht_document_take(ht_document *d) {
    if (!d->status) return d->object;
    ht_json_decref(d->object);
    return NULL;
}

/* Appends a value, which is taken over; the list becomes NULL when memory ran out. */
static inline void ht_list_append(ht_json **list, ht_json *value) {
    if (!ht_json_array_append_new(*list, value)) return;
    ht_json_decref(*list);
    *list = NULL;
}

/* Numbers of GGUF metadata, in the form of ht_gguf_write. */
static inline ht_json *ht_gguf_u32(int64_t value) { return ht_json_pack("{s:s, s:I}", "dtype", "u32", "value", value); }
static inline ht_json *ht_gguf_f32(double value) { return ht_json_pack("{s:s, s:f}", "dtype", "f32", "value", value); }

#endif
