/* Registry of backends, and calls through their tables. */
#include "backends/backends.h"
#include "base/error.h"
#include "base/options.h"
#include "base/text.h"
#include "generate/generation.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { BACKENDS_MAX = 32 };

struct ht_backend_model {
    const ht_backend *backend;
    void *state;
};

/* ---- the list ---- */

static const ht_backend no_backend = {.size = sizeof no_backend};

void ht_backend_init(ht_backend *backend, size_t size) {
    ht_options_init(backend, size, &no_backend, sizeof no_backend);
}

/* Sorted, the default first. Entries keep their addresses; only their order changes. */
static struct {
    pthread_mutex_t lock;
    bool begun;
    int n;
    ht_backend registered[BACKENDS_MAX];
    const ht_backend *order[BACKENDS_MAX];
} list = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool goes_before(const ht_backend *a, const ht_backend *b) {
    return a->preference != b->preference ? a->preference > b->preference : strcmp(a->name, b->name) < 0;
}

static void insert(const ht_backend *b) {
    int at = list.n++;
    for (; at > 0 && goes_before(b, list.order[at - 1]); at--) list.order[at] = list.order[at - 1];
    list.order[at] = b;
}

static void lock_list(void) {
    pthread_mutex_lock(&list.lock);
    if (list.begun) return;
    list.begun = true;
    insert(&ht_native_backend);
#if HT_HAVE_MLX_LM
    insert(&ht_mlx_lm_backend);
#endif
}

static const ht_backend *find(const char *name) {
    for (int i = 0; i < list.n; i++)
        if (strcmp(list.order[i]->name, name) == 0) return list.order[i];
    return NULL;
}

const ht_backend *ht_backend_get(const char *name) {
    lock_list();
    const ht_backend *b = name ? find(name) : NULL;
    pthread_mutex_unlock(&list.lock);
    return b;
}

const ht_backend *ht_backend_at(int i) {
    lock_list();
    const ht_backend *b = i >= 0 && i < list.n ? list.order[i] : NULL;
    pthread_mutex_unlock(&list.lock);
    return b;
}

const ht_backend *ht_backend_default(void) { return ht_backend_at(0); }

static ht_status add(const ht_backend *b, ht_error *err) {
    if (find(b->name)) return ht_fail(err, HT_ERR_ARGUMENT, "a backend named \"%.64s\" is already registered", b->name);
    if (list.n == BACKENDS_MAX)
        return ht_fail(err, HT_ERR_LIMIT, "%d backends are registered; no more are allowed", BACKENDS_MAX);
    list.registered[list.n] = *b;
    insert(&list.registered[list.n]);
    return HT_OK;
}

ht_status ht_backend_register(const ht_backend *backend, ht_error *err) {
    ht_backend b;
    ht_status st = ht_options_read(&b, backend, &no_backend, sizeof no_backend, "ht_backend", err);
    if (st) return st;
    if (!b.name || !*b.name || !b.load || !b.close)
        return ht_fail(err, HT_ERR_ARGUMENT, "a backend needs a name, `load` and `close`");
    if (!b.summary) b.summary = "";
    lock_list();
    st = add(&b, err);
    pthread_mutex_unlock(&list.lock);
    return st;
}

/* ---- loading ---- */

static const ht_backend_options load_defaults = {.size = sizeof load_defaults,
                                                 .load_seconds = 600,
                                                 .first_seconds = 600,
                                                 .next_seconds = 120,
                                                 .line_bytes = (size_t)16 << 20};

void ht_backend_options_init(ht_backend_options *options, size_t size) {
    ht_options_init(options, size, &load_defaults, sizeof load_defaults);
}

static ht_status fail_unknown(const char *name, ht_error *err) {
    ht_text names = {0};
    for (int i = 0; ht_backend_at(i); i++) ht_text_printf(&names, "%s%s", i ? ", " : "", ht_backend_at(i)->name);
    ht_status st = ht_fail(err, HT_ERR_ARGUMENT, "there is no backend \"%.64s\", expected one of: %s", name,
                           names.data ? names.data : "native");
    ht_text_discard(&names);
    return st;
}

static ht_status check(const ht_backend_options *o, ht_error *err) {
    const double seconds[] = {o->load_seconds, o->first_seconds, o->next_seconds};
    const char *const names[] = {"load_seconds", "first_seconds", "next_seconds"};
    for (int i = 0; i < 3; i++)
        if (!(seconds[i] > 0 && seconds[i] <= 1e9))
            return ht_fail(err, HT_ERR_ARGUMENT, "%s is %g, expected more than 0", names[i], seconds[i]);
    if (o->n_adapters < 0 || (o->n_adapters && !o->adapters))
        return ht_fail(err, HT_ERR_ARGUMENT, "%d adapters for a model, expected 0 or more and their paths",
                       o->n_adapters);
    for (int i = 0; i < o->n_adapters; i++)
        if (!o->adapters[i]) return ht_fail(err, HT_ERR_ARGUMENT, "adapter %d of %d is NULL", i, o->n_adapters);
    return HT_OK;
}

ht_status ht_backend_load(const char *name, const char *path, const ht_backend_options *options, ht_backend_model **out,
                          ht_error *err) {
    *out = NULL;
    ht_backend_options o;
    const ht_backend *b = name ? ht_backend_get(name) : ht_backend_default();
    if (!b) return fail_unknown(name, err);
    ht_status st = ht_options_read(&o, options, &load_defaults, sizeof load_defaults, "ht_backend_options", err);
    if (!st) st = check(&o, err);
    if (st) return st;
    ht_backend_model *m = calloc(1, sizeof *m);
    if (!m) return ht_fail_memory(err, sizeof *m, "a backend's model");
    m->backend = b;
    st = b->load(path, &o, &m->state, err);
    if (st) {
        free(m);
        return st;
    }
    *out = m;
    return HT_OK;
}

void ht_backend_close(ht_backend_model *m) {
    if (!m) return;
    m->backend->close(m->state);
    free(m);
}

const ht_backend *ht_backend_of(const ht_backend_model *m) { return m->backend; }

/* ---- operations ---- */

static ht_status unsupported(const ht_backend_model *m, const char *operation, ht_error *err) {
    return ht_fail(err, HT_ERR_UNSUPPORTED, "%.64s is not supported by %.64s", operation, m->backend->name);
}

ht_status ht_backend_generate(ht_backend_model *m, const ht_backend_prompt *prompt, const ht_generate_options *options,
                              ht_text_fn *fn, void *user, int32_t *ids, ht_metrics *metrics, ht_error *err) {
    ht_metrics unwanted, *to = metrics ? metrics : &unwanted;
    ht_generate_options o;
    *to = ht_metrics_none();
    if (!m->backend->generate) return unsupported(m, "generate", err);
    ht_status st = ht_generation_read_options(&o, options, err);
    return st ? st : m->backend->generate(m->state, prompt, &o, fn, user, ids, to, err);
}

ht_status ht_backend_chat(ht_backend_model *m, const ht_chat *chat, const ht_generate_options *options,
                          ht_answer_fn *fn, void *user, ht_metrics *metrics, ht_error *err) {
    ht_metrics unwanted, *to = metrics ? metrics : &unwanted;
    ht_generate_options o;
    *to = ht_metrics_none();
    if (!m->backend->chat) return unsupported(m, "chat", err);
    ht_status st = ht_generation_read_options(&o, options, err);
    return st ? st : m->backend->chat(m->state, chat, &o, fn, user, to, err);
}

ht_status ht_backend_get_info(ht_backend_model *m, ht_backend_info *out, ht_error *err) {
    *out = (ht_backend_info){.architecture = "", .engine = "", .device = "", .chat_format = ""};
    return m->backend->info ? m->backend->info(m->state, out, err) : unsupported(m, "info", err);
}

ht_status ht_backend_inspect(ht_backend_model *m, const ht_backend_prompt *prompt, const ht_cancel *cancel,
                             ht_backend_keys_fn *fn, void *user, ht_error *err) {
    if (!m->backend->inspect) return unsupported(m, "inspect", err);
    return m->backend->inspect(m->state, prompt, cancel, fn, user, err);
}

ht_status ht_backend_cancel(ht_backend_model *m, ht_error *err) {
    if (!m->backend->cancel) return unsupported(m, "cancel", err);
    m->backend->cancel(m->state);
    return HT_OK;
}

ht_status ht_backend_native_model(ht_backend_model *m, const char *operation, ht_model **out, ht_error *err) {
    *out = m->backend->native ? m->backend->native(m->state) : NULL;
    return *out ? HT_OK : unsupported(m, operation, err);
}
