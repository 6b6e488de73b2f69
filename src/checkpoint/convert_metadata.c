/* GGUF metadata of a directory: what the model is, its configuration, and its tokenizer. */
#include "checkpoint/convert_metadata.h"

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/family.h"
#include "checkpoint/sampling.h"

#include <stdlib.h>
#include <string.h>

/* The model's name: the last part of the one in config.json, which may be a path, else that of the directory. The caller
 * frees it. */
static char *name_of(const ht_checkpoint_files *c, const ht_config *config) {
    const char *source = *config->name ? config->name : c->path;
    size_t n = strlen(source);
    while (n > 0 && source[n - 1] == '/') n--;
    size_t begin = n;
    while (begin > 0 && source[begin - 1] != '/') begin--;
    const bool says = begin + strspn(source + begin, "./") < n; /* not `.` or `..` */
    return says ? strndup(source + begin, n - begin) : strdup(config->family->architecture);
}

static ht_status set_general(const ht_checkpoint_files *c, const ht_config *config, ht_json *metadata, ht_error *err) {
    const ht_family *f = config->family;
    char *name = name_of(c, config);
    /* A directory's name need not be UTF-8. */
    ht_json *text = name ? ht_json_string(ht_utf8_valid(name, strlen(name)) ? name : f->architecture) : NULL;
    free(name);
    const bool good =
        text &&
        !ht_json_object_set_new(metadata, "general.architecture",
                                ht_json_string(f->gguf_architecture ? f->gguf_architecture : f->architecture)) &&
        !ht_json_object_set_new(metadata, "general.type", ht_json_string("model")) &&
        !ht_json_object_set(metadata, "general.name", text);
    ht_json_decref(text);
    return good ? HT_OK : ht_fail_memory(err, 0, "GGUF metadata");
}

static ht_status set_sampling(const ht_checkpoint_files *c, ht_json *metadata, ht_error *err) {
    ht_sampling s;
    const ht_status st = ht_sampling_read(c, &s, err);
    if (st) return st;
    return ht_sampling_to_gguf(&s, metadata) ? HT_OK : ht_fail_memory(err, 0, "GGUF metadata");
}

ht_status ht_gguf_metadata_of(const ht_checkpoint_files *c, const ht_config *config, ht_json **out, ht_error *err) {
    *out = NULL;
    if (c->gguf) return ht_fail(err, HT_ERR_ARGUMENT, "%s: is a GGUF file already", c->name);
    ht_json *metadata = ht_json_new_object();
    ht_status st = metadata ? set_general(c, config, metadata, err) : ht_fail_memory(err, 0, "GGUF metadata");
    if (!st) st = set_sampling(c, metadata, err);
    if (!st) st = ht_convert_config_to_gguf(config, metadata, err);
    if (!st) st = ht_convert_tokenizer_to_gguf(c, config, metadata, err);
    if (st)
        ht_json_decref(metadata);
    else
        *out = metadata;
    return st ? ht_fail_in(err, st, "%s", c->path) : HT_OK;
}
