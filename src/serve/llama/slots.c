/* Slots in llama-server's form: running answers, and saving, restoring and erasing the prefix cache. */
#include "base/clock.h"
#include "serve/endpoints.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const serve_field serve_llama_slot_fields[] = {{"model", .is = SERVE_IS_TEXT}, {"filename", .is = SERVE_IS_TEXT}, {0}};

/* ---- running answers ---- */

bool serve_llama_slots(serve_call *c) {
    size_t n_loaded, bytes;
    const ht_engine_statistics s = serve_models_statistics(c->server->models, &n_loaded, &bytes);
    const int32_t n = c->server->o.models.engine.sequences;
    char wanted[16];
    const http_head *h = &http_exchange_request(c->x)->head;
    if (http_query_value(h->query, "fail_on_no_slot", wanted, sizeof wanted) && strcmp(wanted, "0") != 0 &&
        s.running >= n)
        return serve_fail(&c->failure, 503, NULL, "no slot is free: %d running, %d queued", (int)s.running,
                          (int)s.waiting);
    ht_json *list = ht_json_new_array();
    for (int32_t i = 0; i < n || i < s.running; i++)
        ht_json_array_append_new(list, ht_json_pack("{si sb sb}", "id", (int)i, "is_processing", i < s.running,
                                                    "speculative", (int)c->server->o.lookup));
    serve_reply_json(c->x, 200, list, SERVE_OPENAI);
    return true;
}

/* ---- files ---- */

/* Reads the slot number, which is only validated: all answers share one cache. */
static bool read_number(serve_call *c, int *number) {
    const int32_t n = c->server->o.models.engine.sequences;
    char *end;
    errno = 0;
    const long got = strtol(c->rest, &end, 10);
    if (*c->rest < '0' || *c->rest > '9' || *end || errno || got >= n)
        return serve_fail(&c->failure, 400, "id_slot", "slot \"%.32s\" does not exist: slots are 0 to %d", c->rest,
                          (int)n - 1);
    *number = (int)got;
    return true;
}

static bool is_file_name(const char *name) {
    const size_t n = strlen(name);
    if (!n || n > NAME_MAX || *name == '.' || strchr(name, '/')) return false;
    for (; *name; name++)
        if ((unsigned char)*name < ' ' || *name == 0x7F) return false;
    return true;
}

/* The path of the file in the body; the caller frees it. NULL: a failure. */
static char *file_path(serve_call *c) {
    const char *name = serve_text(c->body, "filename"), *directory = c->server->o.slots_directory;
    ht_text path = {0};
    if (!directory) {
        serve_fail(&c->failure, 501, NULL, "the server does not save slots: start it with --slots-directory DIR");
        return NULL;
    }
    if (!name || !is_file_name(name)) {
        serve_fail(
            &c->failure, 400, "filename",
            "\"filename\" must be the name of a file in the server's directory, without \"/\" and a leading \".\"");
        return NULL;
    }
    ht_text_printf(&path, "%s/%s", directory, name);
    char *out = ht_text_take(&path);
    if (!out) serve_fail_memory(&c->failure);
    return out;
}

/* The size of a regular file, -1 if absent. False for any other file type, which is never read or replaced. */
static bool file_bytes(serve_call *c, const char *path, int64_t *bytes) {
    struct stat s;
    *bytes = -1;
    if (lstat(path, &s)) return true;
    *bytes = (int64_t)s.st_size;
    return S_ISREG(s.st_mode)
               ? true
               : serve_fail(&c->failure, 400, "filename", "\"%.128s\" is not a regular file", strrchr(path, '/') + 1);
}

/* Names the bad file without revealing its directory. */
static bool fail_file(serve_call *c, const char *path, ht_status status, const ht_error *err) {
    const size_t directory = (size_t)(strrchr(path, '/') + 1 - path);
    ht_error shown = *err;
    if (strncmp(err->message, path, directory) == 0)
        snprintf(shown.message, sizeof shown.message, "%s", err->message + directory);
    return serve_fail_as(&c->failure, status, &shown);
}

static bool save(serve_call *c, int number, const char *path) {
    ht_error err = {0};
    int64_t bytes;
    const double begun = ht_now_seconds();
    if (!file_bytes(c, path, &bytes)) return false;
    const int64_t tokens = ht_engine_get_statistics(c->lease.engine).prefix_tokens;
    const ht_status status = ht_engine_save_cache(c->lease.engine, path, &err);
    if (status) return fail_file(c, path, status, &err);
    (void)file_bytes(c, path, &bytes);
    serve_reply_json(c->x, 200,
                     ht_json_pack("{si ss sI sI s{sf}}", "id_slot", number, "filename", strrchr(path, '/') + 1,
                                  "n_saved", (int64_t)tokens, "n_written", (int64_t)bytes, "timings", "save_ms",
                                  (ht_now_seconds() - begun) * 1e3),
                     SERVE_OPENAI);
    return true;
}

/* Loads the cache of the model and the server's adapters; *skipped counts tokens of other adapters. */
static bool load(serve_call *c, const char *path, int64_t *skipped) {
    ht_error err = {0};
    int n;
    ht_adapter **adapters = serve_lease_adapters(c->server->models, &c->lease, &n);
    if (!adapters) return serve_fail_memory(&c->failure);
    const ht_status status = ht_engine_load_cache_of(c->lease.engine, path, adapters, n, skipped, &err);
    free(adapters);
    return status ? fail_file(c, path, status, &err) : true;
}

static bool restore(serve_call *c, int number, const char *path) {
    int64_t bytes, skipped;
    const double begun = ht_now_seconds();
    if (!file_bytes(c, path, &bytes)) return false;
    if (bytes < 0)
        return serve_fail(&c->failure, 404, "filename", "\"%.128s\" does not exist: save a slot under this name first",
                          strrchr(path, '/') + 1);
    const int64_t before = ht_engine_get_statistics(c->lease.engine).prefix_tokens;
    if (!load(c, path, &skipped)) return false;
    const int64_t added = ht_engine_get_statistics(c->lease.engine).prefix_tokens - before;
    serve_reply_json(c->x, 200,
                     ht_json_pack("{si ss sI sI sI s{sf}}", "id_slot", number, "filename", strrchr(path, '/') + 1,
                                  "n_restored", (int64_t)(added > 0 ? added : 0), "n_skipped", (int64_t)skipped,
                                  "n_read", (int64_t)bytes, "timings", "restore_ms", (ht_now_seconds() - begun) * 1e3),
                     SERVE_OPENAI);
    return true;
}

/* Erases the whole cache for any slot number: all answers share it. */
static bool erase(serve_call *c, int number) {
    const int64_t n = ht_engine_clear_cache(c->lease.engine);
    serve_reply_json(c->x, 200, ht_json_pack("{si sI}", "id_slot", number, "n_erased", (int64_t)n), SERVE_OPENAI);
    return true;
}

bool serve_llama_slot_action(serve_call *c) {
    char action[16] = "";
    int number = 0;
    const http_head *h = &http_exchange_request(c->x)->head;
    if (!read_number(c, &number)) return false;
    (void)http_query_value(h->query, "action", action, sizeof action);
    const bool saves = strcmp(action, "save") == 0;
    if (strcmp(action, "erase") == 0) return erase(c, number);
    if (!saves && strcmp(action, "restore") != 0)
        return serve_fail(&c->failure, 400, "action", "\"action\" must be \"save\", \"restore\" or \"erase\"");
    char *path = file_path(c);
    const bool good = path && (saves ? save(c, number, path) : restore(c, number, path));
    free(path);
    return good;
}
