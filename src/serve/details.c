#include "serve/details.h"

#include "serve/call.h"

#include <stdlib.h>
#include <string.h>

/* The server keeps those of all paths that it serves, which are fixed from its start, until a file has changed. */
struct serve_kept_details {
    struct serve_kept_details *next;
    char *path;
    int64_t changed;
    serve_details details;
};

void serve_details_free(struct serve_kept_details *kept) {
    while (kept) {
        struct serve_kept_details *next = kept->next;
        free(kept->path);
        free(kept);
        kept = next;
    }
}

static bool find(serve_server *s, const serve_model_name *name, serve_details *out) {
    bool found = false;
    pthread_mutex_lock(&s->lock);
    for (const struct serve_kept_details *k = s->details; k && !found; k = k->next) {
        found = k->changed == name->created && strcmp(k->path, name->path) == 0;
        if (found) *out = k->details;
    }
    pthread_mutex_unlock(&s->lock);
    return found;
}

static void keep(serve_server *s, const serve_model_name *name, const serve_details *details) {
    struct serve_kept_details *k = NULL;
    pthread_mutex_lock(&s->lock);
    for (k = s->details; k && strcmp(k->path, name->path) != 0;) k = k->next;
    if (!k && (k = calloc(1, sizeof *k))) {
        k->path = strdup(name->path);
        if (k->path) {
            k->next = s->details;
            s->details = k;
        } else {
            free(k);
            k = NULL;
        }
    }
    if (k) {
        k->changed = name->created;
        k->details = *details;
    }
    pthread_mutex_unlock(&s->lock);
}

static serve_details read_details(const char *path) {
    serve_details out = {0};
    ht_model_info *info;
    if (ht_model_info_read(path, &info, NULL)) return out;
    snprintf(out.architecture, sizeof out.architecture, "%s", info->architecture);
    snprintf(out.format, sizeof out.format, "%s", info->format);
    snprintf(out.quantization, sizeof out.quantization, "%s", *info->file_type ? info->file_type : info->quantization);
    out.n_parameters = info->n_parameters;
    out.file_bytes = info->file_bytes;
    out.context = info->context;
    ht_model_info_free(info);
    return out;
}

serve_details serve_details_of(serve_server *s, const serve_model_name *name) {
    serve_details out;
    serve_model_name model = *name;
    if (name->model && !serve_models_find(s->models, name->model, &model)) model = *name;
    if (find(s, &model, &out)) return out;
    out = read_details(model.path);
    keep(s, &model, &out);
    return out;
}
