#include "serve/models.h"

#include "base/clock.h"
#include "base/error.h"

#include <hearth/memory.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef enum state { ABSENT, QUEUED, LOADING, READY, FAILED, GOING } state;

typedef struct serve_loaded_model {
    const char *name, *path;
    state state;
    ht_model *model;
    ht_engine *engine;
    serve_grammars *grammars;
    size_t bytes;
    int64_t leases;
    double last_used;
    bool unwanted; /* unload when the last lease ends */
    serve_work *waiting;
    ht_status status;
    ht_error err; /* set in FAILED */
    serve_details details;
    int64_t details_changed; /* modification time of the file that the details describe; 0: not read */
} serve_loaded_model;

struct serve_models {
    serve_workers *workers;
    serve_models_options o;
    serve_loaded_model *model; /* [o.n_models] */
    ht_adapter **adapter;      /* [o.n_adapters], while the first model is READY */
    size_t budget;

    pthread_mutex_t lock; /* protects states and leases */
    pthread_cond_t work;  /* wakes the loading thread: a model is queued, or a lease ended */
    pthread_t thread;
    bool has_thread, ending;
};

/* ---- loading, on a separate thread ---- */

/* Frees a READY or partly loaded model; without the lock. */
static void unload(serve_models *m, serve_loaded_model *e) {
    ht_engine_close(e->engine);
    serve_grammars_free(e->grammars);
    if (e == m->model)
        for (size_t i = 0; i < m->o.n_adapters; i++) {
            ht_adapter_free(m->adapter[i]);
            m->adapter[i] = NULL;
        }
    ht_model_free(e->model);
    e->engine = NULL;
    e->grammars = NULL;
    e->model = NULL;
}

/* With the lock, which is released during the unload. */
static void evict(serve_models *m, serve_loaded_model *e) {
    e->state = GOING;
    e->unwanted = false;
    pthread_mutex_unlock(&m->lock);
    unload(m, e);
    pthread_mutex_lock(&m->lock);
    e->bytes = 0;
    e->state = e->waiting ? QUEUED : ABSENT;
}

static size_t bytes_loaded(const serve_models *m) {
    size_t bytes = 0;
    for (size_t i = 0; i < m->o.n_models; i++) bytes += m->model[i].bytes;
    return bytes;
}

static serve_loaded_model *least_recent(serve_models *m, bool *busy) {
    serve_loaded_model *found = NULL;
    *busy = false;
    for (size_t i = 0; i < m->o.n_models; i++) {
        serve_loaded_model *e = &m->model[i];
        if (e->state != READY) continue;
        if (e->leases)
            *busy = true;
        else if (!found || e->last_used < found->last_used)
            found = e;
    }
    return found;
}

/* Whether `bytes` more fit the budget. */
static bool fits(const serve_models *m, size_t bytes) {
    return bytes <= m->budget && bytes_loaded(m) <= m->budget - bytes;
}

/* Evicts models until `bytes` fit, waiting for those in use; with the lock. */
static void make_room(serve_models *m, size_t bytes) {
    while (!m->ending && !fits(m, bytes)) {
        bool busy;
        serve_loaded_model *e = least_recent(m, &busy);
        if (e)
            evict(m, e);
        else if (busy)
            pthread_cond_wait(&m->work, &m->lock);
        else
            return; /* the load reports what does not fit */
    }
}

static ht_status open_adapters(serve_models *m, serve_loaded_model *e, ht_error *err) {
    ht_status status = HT_OK;
    for (size_t i = 0; i < m->o.n_adapters && e == m->model && !status; i++)
        status = ht_adapter_load(m->o.adapter[i].path, e->model, NULL, &m->adapter[i], err);
    return status;
}

/* Without the lock. */
static ht_status open_model(serve_models *m, serve_loaded_model *e, ht_error *err) {
    ht_status status = m->o.load(e->path, m->o.user, &e->model, err);
    if (!status) status = open_adapters(m, e, err);
    if (!status) status = serve_grammars_new(e->model, &e->grammars, err);
    if (!status) status = ht_engine_open(e->model, &m->o.engine, &e->engine, err);
    if (status) unload(m, e);
    return status;
}

static size_t weights_of(const char *path) {
    ht_model_info *info;
    if (ht_model_info_read(path, &info, NULL)) return 0;
    const size_t bytes = (size_t)info->memory_bytes;
    ht_model_info_free(info);
    return bytes;
}

/* With the lock, evicts idle models if the loaded one exceeds its estimate: without kv_bytes, only its engine knows its
 * KV budget. */
static void make_room_behind(serve_models *m) {
    bool busy;
    serve_loaded_model *idle;
    while (!fits(m, 0) && (idle = least_recent(m, &busy))) evict(m, idle);
}

static void wake_waiting(serve_models *m, serve_loaded_model *e) {
    while (e->waiting) {
        serve_work *work = e->waiting;
        e->waiting = work->next;
        (void)serve_workers_put(m->workers, work, true); /* cannot fail: the work ran on a worker thread before */
    }
}

static void load(serve_models *m, serve_loaded_model *e) {
    e->state = LOADING;
    pthread_mutex_unlock(&m->lock);
    const size_t weights = weights_of(e->path);
    pthread_mutex_lock(&m->lock);
    /* Text encoders have no KV cache. */
    const size_t kv = m->o.model[e - m->model].tasks & SERVE_GENERATES ? m->o.engine.kv_bytes : 0;
    make_room(m, kv < SIZE_MAX - weights ? weights + kv : SIZE_MAX);
    const bool ending = m->ending;
    pthread_mutex_unlock(&m->lock);
    ht_error err = {0};
    ht_status status = ending ? ht_fail(&err, HT_ERR_CANCELLED, "server is shutting down") : open_model(m, e, &err);
    pthread_mutex_lock(&m->lock);
    e->status = status;
    e->err = err;
    if (!status) e->bytes = weights + ht_engine_get_statistics(e->engine).kv_budget;
    make_room_behind(m); /* a LOADING model is not idle */
    e->state = status ? FAILED : READY;
    e->last_used = ht_now_seconds();
    wake_waiting(m, e);
    if (!m->o.loaded) return;
    pthread_mutex_unlock(&m->lock);
    m->o.loaded(e->name, status, &err, m->o.user);
    pthread_mutex_lock(&m->lock);
}

static serve_loaded_model *in_state(serve_models *m, state wanted) {
    for (size_t i = 0; i < m->o.n_models; i++)
        if (m->model[i].state == wanted) return &m->model[i];
    return NULL;
}

static serve_loaded_model *unwanted(serve_models *m) {
    for (size_t i = 0; i < m->o.n_models; i++)
        if (m->model[i].unwanted && m->model[i].state == READY && !m->model[i].leases) return &m->model[i];
    return NULL;
}

static void *run(void *user) {
    serve_models *m = user;
    serve_loaded_model *e;
    pthread_mutex_lock(&m->lock);
    while (!m->ending) {
        if ((e = unwanted(m)))
            evict(m, e);
        else if ((e = in_state(m, QUEUED)))
            load(m, e);
        else
            pthread_cond_wait(&m->work, &m->lock);
    }
    while ((e = in_state(m, QUEUED))) load(m, e); /* reports that the server is shutting down */
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

/* ---- names ---- */

/* Whether `asked` is the name; if tagged, the name with ":latest", which Ollama's clients append. */
static bool is_name(const char *name, const char *asked, bool tagged) {
    const size_t n = strlen(name);
    return strncmp(name, asked, n) == 0 && strcmp(asked + n, tagged ? ":latest" : "") == 0;
}

/* Models, adapters and aliases share one numbering. NULL: past the end. */
static const char *name_at(const serve_models *m, size_t i) {
    const serve_models_options *o = &m->o;
    if (i < o->n_models) return o->model[i].name;
    if ((i -= o->n_models) < o->n_adapters) return o->adapter[i].name;
    return (i -= o->n_adapters) < o->n_aliases ? o->alias[i].name : NULL;
}

/* The number of a name; past the end for an unknown name. */
static size_t find(const serve_models *m, const char *asked, bool tagged) {
    size_t i = 0;
    while (name_at(m, i) && !is_name(name_at(m, i), asked, tagged)) i++;
    return i;
}

static size_t find_any(const serve_models *m, const char *asked) {
    const size_t i = find(m, asked, false);
    return name_at(m, i) ? i : find(m, asked, true);
}

/* The number of a model or an adapter, with aliases resolved. */
static size_t resolve(const serve_models *m, const char *asked) {
    const size_t i = find_any(m, asked), n = m->o.n_models + m->o.n_adapters;
    return i >= n && name_at(m, i) ? find(m, m->o.alias[i - n].of, false) : i;
}

static ht_status check_names(const serve_models *m, ht_error *err) {
    const size_t n_models = m->o.n_models, n = n_models + m->o.n_adapters;
    const char *name;
    for (size_t i = 0; (name = name_at(m, i)); i++) {
        const char *of = i >= n ? m->o.alias[i - n].of : name;
        if (find(m, of, false) >= n)
            return ht_fail(err, HT_ERR_ARGUMENT, "\"%s\" is an alias of \"%s\", which is not a served model", name, of);
        if (find(m, name, false) == i) continue;
        if (i < n_models) return ht_fail(err, HT_ERR_ARGUMENT, "two models have the name \"%s\"", name);
        if (i < n)
            return ht_fail(err, HT_ERR_ARGUMENT, "the adapter \"%s\" has the name of another adapter or a model", name);
        return ht_fail(err, HT_ERR_ARGUMENT, "the name \"%s\" is already in use", name);
    }
    return HT_OK;
}

/* ---- tasks ---- */

unsigned serve_tasks_of(const ht_model_info *info) {
    const bool ranks = strcmp(info->pooling, "rank") == 0, pools = *info->pooling && strcmp(info->pooling, "none") != 0;
    if (info->is_encoder) return info->n_labels == 1 ? SERVE_RERANKS : info->n_labels ? 0 : SERVE_EMBEDS;
    return SERVE_GENERATES | (ranks ? SERVE_RERANKS : pools ? SERVE_EMBEDS : 0u);
}

ht_json *serve_tasks_json(unsigned tasks) {
    ht_json *list = ht_json_new_array();
    if (tasks & SERVE_GENERATES) ht_json_array_append_new(list, ht_json_string("completion"));
    if (tasks & (SERVE_GENERATES | SERVE_EMBEDS)) ht_json_array_append_new(list, ht_json_string("embedding"));
    if (tasks & SERVE_RERANKS) ht_json_array_append_new(list, ht_json_string("rerank"));
    return list;
}

/* The number of the model for requests that name none. */
static size_t first_for(const serve_models *m, unsigned tasks) {
    for (size_t i = 0; i < m->o.n_models; i++)
        if (m->o.model[i].tasks & tasks) return i;
    return 0;
}

/* False, with a failure, for a text encoder that is to generate. */
static bool check_task(const serve_model_source *of, unsigned tasks, serve_failure *f) {
    if (!(tasks & SERVE_GENERATES) || (of->tasks & SERVE_GENERATES)) return true;
    return serve_fail(f, 400, "model", "the model \"%.128s\" generates no text: it is a text encoder%s", of->name,
                      of->tasks & SERVE_RERANKS  ? ", for /v1/rerank"
                      : of->tasks & SERVE_EMBEDS ? ", for /v1/embeddings and /api/embed"
                                                 : " with a head that classifies");
}

/* ---- creation ---- */

ht_status serve_models_start(serve_models *m, ht_error *err) {
    if (m->o.first_at_once) m->model[0].state = QUEUED;
    if (pthread_create(&m->thread, NULL, run, m))
        return ht_fail(err, HT_ERR_MEMORY, "cannot start a thread to load models");
    m->has_thread = true;
    return HT_OK;
}

ht_status serve_models_new(const serve_models_options *options, serve_workers *workers, serve_models **out,
                           ht_error *err) {
    *out = NULL;
    serve_models *m = calloc(1, sizeof *m);
    if (!m) return ht_fail_memory(err, sizeof *m, "the models");
    m->o = *options;
    m->workers = workers;
    m->budget = options->memory_bytes;
    if (!m->budget) {
        ht_machine machine;
        ht_machine_read(&machine);
        m->budget = machine.memory_bytes ? machine.memory_bytes / 4 * 3 : SIZE_MAX;
    }
    if (options->n_models > 1 && !options->engine.kv_bytes && m->budget < SIZE_MAX)
        m->o.engine.kv_bytes = m->budget / 4;
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->work, NULL);
    m->model = calloc(options->n_models, sizeof *m->model);
    m->adapter = calloc(options->n_adapters + 1, sizeof *m->adapter);
    for (size_t i = 0; m->model && i < options->n_models; i++) {
        m->model[i].name = options->model[i].name;
        m->model[i].path = options->model[i].path;
    }
    const ht_status status = m->model && m->adapter
                                 ? check_names(m, err)
                                 : ht_fail_memory(err, options->n_models * sizeof *m->model, "the names of models");
    if (status)
        serve_models_free(m);
    else
        *out = m;
    return status;
}

void serve_models_free(serve_models *m) {
    if (!m) return;
    pthread_mutex_lock(&m->lock);
    m->ending = true;
    pthread_cond_broadcast(&m->work);
    pthread_mutex_unlock(&m->lock);
    if (m->has_thread) pthread_join(m->thread, NULL);
    for (size_t i = 0; m->model && i < m->o.n_models; i++)
        if (m->model[i].state == READY) unload(m, &m->model[i]);
    free(m->model);
    free(m->adapter);
    pthread_cond_destroy(&m->work);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

/* ---- leases ---- */

/* False, with a failure, for a checkpoint that exists but cannot be used. */
static bool check_broken(const serve_models *m, const char *name, serve_failure *f) {
    const char *why = serve_models_broken(m, name);
    f->code = "model_not_found";
    return why ? serve_fail(f, 404, "model", "the model \"%.128s\" cannot be used: %s", name, why) : true;
}

static void refuse_name(const serve_models *m, const char *name, serve_failure *f) {
    char names[512] = "";
    size_t n = 0;
    if (!check_broken(m, name, f)) return;
    const size_t all = m->o.n_models + m->o.n_adapters;
    for (size_t i = 0; i < all && n < sizeof names - 80; i++) {
        n += (size_t)snprintf(names + n, sizeof names - n, "%s\"%.64s\"", i ? ", " : "", name_at(m, i));
    }
    serve_fail(f, 404, "model", "model \"%.128s\" not found; there is %s", name, names);
}

/* With the lock. */
static serve_leasing lease(serve_models *m, serve_loaded_model *e, const serve_adapter_source *a, serve_work *work,
                           bool again, serve_lease *out) {
    if (e->state == READY) {
        e->leases++;
        *out = (serve_lease){.of = e,
                             .model = e->model,
                             .engine = e->engine,
                             .grammars = e->grammars,
                             .adapter = a ? m->adapter[a - m->o.adapter] : NULL,
                             .scale = a ? a->scale : 0,
                             .name = a ? a->name : e->name};
        return SERVE_LEASED;
    }
    if (m->ending || (e->state == FAILED && again)) return SERVE_REFUSED;
    if (e->state == ABSENT || e->state == FAILED) e->state = QUEUED;
    work->next = e->waiting;
    e->waiting = work;
    pthread_cond_signal(&m->work);
    return SERVE_LATER;
}

serve_leasing serve_models_lease(serve_models *m, const char *name, unsigned tasks, serve_work *work, bool again,
                                 serve_lease *out, serve_failure *f) {
    const size_t n_models = m->o.n_models;
    size_t i = name && *name ? resolve(m, name) : first_for(m, tasks);
    if (!name_at(m, i) && !m->o.any_name) {
        refuse_name(m, name, f);
        return SERVE_REFUSED;
    }
    if (!name_at(m, i)) i = first_for(m, tasks);
    const serve_adapter_source *a = i >= n_models ? &m->o.adapter[i - n_models] : NULL;
    const size_t which = a ? 0 : i;
    serve_loaded_model *e = &m->model[which];
    if (!check_task(&m->o.model[which], tasks, f)) return SERVE_REFUSED;
    pthread_mutex_lock(&m->lock);
    const serve_leasing how = lease(m, e, a, work, again, out);
    if (how == SERVE_REFUSED)
        serve_fail(f, m->ending ? 503 : 500, NULL, "the model \"%s\" could not be loaded: %s", e->name,
                   m->ending ? "server is shutting down" : e->err.message);
    pthread_mutex_unlock(&m->lock);
    return how;
}

void serve_lease_end(serve_models *m, serve_lease *lease) {
    if (!lease->of) return;
    pthread_mutex_lock(&m->lock);
    lease->of->leases--;
    lease->of->last_used = ht_now_seconds();
    pthread_cond_signal(&m->work);
    pthread_mutex_unlock(&m->lock);
    *lease = (serve_lease){0};
}

ht_adapter **serve_lease_adapters(const serve_models *m, const serve_lease *lease, int *n) {
    *n = lease->of == m->model ? (int)m->o.n_adapters : 0;
    ht_adapter **all = calloc((size_t)*n + 1, sizeof *all);
    for (int i = 0; all && i < *n; i++) all[i] = m->adapter[i];
    return all;
}

bool serve_models_unload(serve_models *m, const char *name) {
    const size_t i = resolve(m, name);
    if (i >= m->o.n_models) return false;
    serve_loaded_model *e = &m->model[i];
    pthread_mutex_lock(&m->lock);
    e->unwanted = e->state == READY;
    pthread_cond_signal(&m->work);
    pthread_mutex_unlock(&m->lock);
    return true;
}

/* ---- lists ---- */

static int64_t changed(const char *path) {
    struct stat s;
    return stat(path, &s) ? 0 : (int64_t)s.st_mtime;
}

bool serve_models_name(serve_models *m, size_t i, serve_model_name *out) {
    const size_t n_models = m->o.n_models, n = n_models + m->o.n_adapters;
    if (!name_at(m, i)) return false;
    if (i >= n) {
        const serve_alias *a = &m->o.alias[i - n];
        (void)serve_models_find(m, a->of, out);
        out->name = a->name;
        out->alias_of = a->of;
        return true;
    }
    const serve_adapter_source *a = i >= n_models ? &m->o.adapter[i - n_models] : NULL;
    serve_loaded_model *e = a ? m->model : &m->model[i];
    pthread_mutex_lock(&m->lock);
    const ht_engine_statistics kv = e->state == READY ? ht_engine_get_statistics(e->engine) : (ht_engine_statistics){0};
    *out = (serve_model_name){.name = a ? a->name : e->name,
                              .path = a ? a->path : e->path,
                              .model = a ? e->name : NULL,
                              .tasks = m->o.model[a ? 0 : i].tasks,
                              .loaded = e->state == READY,
                              .bytes = e->bytes - kv.kv_budget + kv.kv_bytes}; /* KV cache in use, not its budget */
    pthread_mutex_unlock(&m->lock);
    out->created = changed(out->path);
    return true;
}

bool serve_models_find(serve_models *m, const char *name, serve_model_name *out) {
    return serve_models_name(m, name ? find_any(m, name) : 0, out) || (m->o.any_name && serve_models_name(m, 0, out));
}

bool serve_models_get(serve_models *m, const char *name, serve_model_name *out, serve_failure *f) {
    if (serve_models_find(m, name, out)) return true;
    return check_broken(m, name, f) && serve_fail(f, 404, "model", "model \"%.128s\" not found", name);
}

const char *serve_models_broken(const serve_models *m, const char *name) {
    for (int tagged = 0; tagged < 2; tagged++)
        for (size_t i = 0; i < m->o.n_broken; i++)
            if (is_name(m->o.broken[i].name, name, tagged)) return m->o.broken[i].why;
    return NULL;
}

bool serve_models_ready(serve_models *m) {
    pthread_mutex_lock(&m->lock);
    const bool ready = !m->ending && (!m->o.first_at_once || m->model[0].state == READY || m->model[0].state == ABSENT);
    pthread_mutex_unlock(&m->lock);
    return ready;
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

serve_details serve_models_details(serve_models *m, const serve_model_name *name) {
    const char *of = name->model ? name->model : name->alias_of ? name->alias_of : name->name;
    serve_loaded_model *e = &m->model[find(m, of, false)];
    const int64_t now = changed(e->path);
    pthread_mutex_lock(&m->lock);
    const bool known = now && e->details_changed == now;
    serve_details out = e->details;
    pthread_mutex_unlock(&m->lock);
    if (known) return out;
    out = read_details(e->path);
    pthread_mutex_lock(&m->lock);
    e->details = out;
    e->details_changed = now;
    pthread_mutex_unlock(&m->lock);
    return out;
}

ht_engine_statistics serve_models_statistics(serve_models *m, size_t *n_loaded, size_t *bytes) {
    ht_engine_statistics all = {0};
    *n_loaded = 0;
    pthread_mutex_lock(&m->lock);
    for (size_t i = 0; i < m->o.n_models; i++) {
        if (m->model[i].state != READY) continue;
        const ht_engine_statistics s = ht_engine_get_statistics(m->model[i].engine);
        all.running += s.running;
        all.waiting += s.waiting;
        all.kv_bytes += s.kv_bytes;
        all.kv_budget += s.kv_budget;
        all.prefix_bytes += s.prefix_bytes;
        all.prefix_lookups += s.prefix_lookups;
        all.prefix_hits += s.prefix_hits;
        ++*n_loaded;
    }
    *bytes = bytes_loaded(m);
    pthread_mutex_unlock(&m->lock);
    return all;
}
