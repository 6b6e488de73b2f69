/* Adapters of the command line, --adapter [name=]PATH[@scale]. */
#include "adapters.h"

#include "terminal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ht_status out_of_memory(ht_error *err) {
    snprintf(err->message, sizeof err->message, "out of memory for the adapters");
    return err->status = HT_ERR_MEMORY;
}

/* What stands before a `=` is the adapter's name in messages, unless there is a slash before it, which is part of a path. */
static size_t name_length(const char *word) {
    const size_t n = strcspn(word, "=/");
    return word[n] == '=' ? n : 0;
}

/* The number behind the last `@`, which is part of the path when no number follows. */
static size_t path_length(const char *path, float *scale) {
    const char *at = strrchr(path, '@');
    char *end = NULL;
    *scale = 1;
    if (!at || at == path || at[1] == '\0') return strlen(path);
    const float number = strtof(at + 1, &end);
    if (*end != '\0' || !isfinite(number)) return strlen(path);
    *scale = number;
    return (size_t)(at - path);
}

char *adapter_path(const char *word, float *scale) {
    const size_t name = name_length(word);
    const char *rest = name ? word + name + 1 : word;
    return strndup(rest, path_length(rest, scale));
}

static ht_status load_one(const options *o, const char *word, const ht_model *m, adapter_list *out, ht_error *err) {
    const size_t name = name_length(word);
    char *path = adapter_path(word, &out->scale[out->n]);
    if (!path) return out_of_memory(err);
    const ht_status st = ht_adapter_load(path, m, NULL, &out->adapter[out->n], err);
    if (st) {
        free(path);
        return st;
    }
    const char *warning = ht_adapter_warning(out->adapter[out->n]);
    if (warning && !o->quiet)
        fprintf(stderr, "hearth: %.*s: %s\n", (int)(name ? name : strlen(path)), name ? word : path, warning);
    out->name[out->n] = name ? strndup(word, name) : path;
    if (name) free(path);
    return out->name[out->n++] ? HT_OK : out_of_memory(err);
}

ht_status adapters_load(const options *o, const ht_model *m, adapter_list *out, ht_error *err) {
    *out = (adapter_list){0};
    if (!o->adapters.n) return HT_OK;
    out->adapter = calloc((size_t)o->adapters.n, sizeof(ht_adapter *));
    out->scale = calloc((size_t)o->adapters.n, sizeof *out->scale);
    out->name = calloc((size_t)o->adapters.n, sizeof *out->name);
    ht_status st = out->adapter && out->scale && out->name ? HT_OK : out_of_memory(err);
    for (int i = 0; i < o->adapters.n && !st; i++) st = load_one(o, o->adapters.items[i], m, out, err);
    return st;
}

void adapters_free(adapter_list *list) {
    for (int i = 0; i < list->n; i++) {
        ht_adapter_free(list->adapter[i]);
        free(list->name[i]);
    }
    free(list->adapter);
    free(list->name);
    free(list->scale);
    *list = (adapter_list){0};
}
