/* hearth serve: an HTTP server for models, with the OpenAI, Anthropic and Ollama APIs. */
#include "base/grow.h"
#include "command.h"
#include "engine.h"
#include "fail.h"
#include "model_path.h"
#include "options.h"
#include "serve/models.h"
#include "serve/server.h"
#include "terminal.h"

#include <hearth/discover.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- names of served models and adapters ---- */

typedef struct serve_names {
    serve_model_source *model; /* [n_models] */
    serve_adapter_source *adapter;
    serve_alias *alias;
    serve_broken *broken; /* unusable checkpoints of the directory */
    size_t n_models, n_adapters, n_aliases, n_broken;
    char **text; /* [n_texts] owned strings */
    size_t n_texts;
} serve_names;

/* Takes ownership of a malloc'ed string and returns it; NULL when memory ran out, also for a NULL string. */
static char *keep(serve_names *n, char *text) {
    if (!text || !HT_GROW_ONE(n->text, n->n_texts)) {
        free(text);
        return NULL;
    }
    return n->text[n->n_texts++] = text;
}

static void serve_names_free(serve_names *n) {
    for (size_t i = 0; i < n->n_texts; i++) free(n->text[i]);
    free(n->text);
    free(n->model);
    free(n->adapter);
    free(n->alias);
    free(n->broken);
    *n = (serve_names){0};
}

static bool is_model(const serve_names *n, const char *name) {
    for (size_t i = 0; i < n->n_models; i++)
        if (strcmp(n->model[i].name, name) == 0) return true;
    return false;
}

static ht_status add_model(serve_names *n, const char *name, size_t length, const char *path, unsigned tasks,
                           ht_error *err) {
    char *copy = keep(n, strndup(name, length));
    if (copy && is_model(n, copy)) return HT_OK;
    char *place = copy ? keep(n, strdup(path)) : NULL;
    if (!place || !HT_GROW_ONE(n->model, n->n_models)) return fail_memory(err, "the names of models");
    n->model[n->n_models++] = (serve_model_source){copy, place, tasks};
    return HT_OK;
}

static ht_status add_alias(serve_names *n, const char *name, const char *of, ht_error *err) {
    if (!HT_GROW_ONE(n->alias, n->n_aliases)) return fail_memory(err, "the names of models");
    n->alias[n->n_aliases++] = (serve_alias){name, of};
    return HT_OK;
}

/* Tasks of MODEL. If it cannot be read, its load reports why. */
static unsigned tasks_of(const char *path) {
    ht_model_info *info;
    if (ht_model_info_read(path, &info, NULL)) return SERVE_GENERATES;
    const unsigned tasks = serve_tasks_of(info);
    ht_model_info_free(info);
    return tasks;
}

/* Names a cached model as `hearth list` does, and any other by its file or directory. The typed word also becomes a
 * name unless it is a path. */
static ht_status add_typed(serve_names *n, const char *typed, ht_error *err) {
    char *path = NULL, *models = NULL;
    const char *name;
    ht_status st = model_path(typed, &path, err);
    if (st) return st;
    (void)cache_path("models", &models, NULL);
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') path[--end] = '\0';
    size_t length = model_name(models ? models : "/", path, &name);
    if (name == path || (models && strncmp(path, models, strlen(models)) != 0)) {
        const char *slash = strrchr(path, '/');
        if (slash) {
            length -= (size_t)(slash + 1 - name);
            name = slash + 1;
        }
    }
    st = add_model(n, name, length, path, tasks_of(path), err);
    if (!st && !strchr(typed, '/') && strcmp(n->model[0].name, typed) != 0 && strcmp(path, typed) != 0)
        st = add_alias(n, typed, n->model[0].name, err);
    free(path);
    free(models);
    return st;
}

typedef struct search {
    serve_names *names;
    const char *directory;
    bool quiet;
    ht_status status;
    ht_error *err;
} search;

static ht_status add_broken(serve_names *n, const char *name, size_t length, const char *why, ht_error *err) {
    char *copy = keep(n, strndup(name, length)), *reason = copy ? keep(n, strdup(why)) : NULL;
    if (!reason || !HT_GROW_ONE(n->broken, n->n_broken)) return fail_memory(err, "the names of models");
    n->broken[n->n_broken++] = (serve_broken){copy, reason};
    return HT_OK;
}

/* Why a found checkpoint is unusable (the text may be in `out`); NULL: it is usable. */
static const char *problem_of(const ht_find *f, char *out, size_t room) {
    if (!f->info) return f->problem->message;
    if (!f->info->has_weights) return "it is a vocabulary without weights";
    if (f->info->runs) return NULL;
    snprintf(out, room, "this build cannot run the architecture \"%.64s\"", f->info->architecture);
    return out;
}

static bool on_find(const ht_find *f, void *user) {
    search *s = user;
    const char *name;
    char text[160];
    const char *why = problem_of(f, text, sizeof text);
    const size_t length = model_name(s->directory, f->path, &name);
    /* Vocabulary files among models are intended: no warning. */
    if (why && !s->quiet && !(f->info && !f->info->has_weights)) warn("%s: %s", f->path, why);
    if (why)
        s->status = add_broken(s->names, name, length, why, s->err);
    else
        s->status = add_model(s->names, name, length, f->path, serve_tasks_of(f->info), s->err);
    return !s->status;
}

static ht_status add_directory(serve_names *n, const char *directory, bool quiet, ht_error *err) {
    char *path = keep(n, strdup(directory));
    if (!path) return fail_memory(err, "the names of models");
    for (size_t end = strlen(path); end > 1 && path[end - 1] == '/';) path[--end] = '\0';
    search s = {.names = n, .directory = path, .quiet = quiet, .err = err};
    const ht_status st = ht_discover(path, on_find, &s, err);
    return s.status ? s.status : st;
}

/* Adds the models that `hearth list` shows. */
static ht_status add_cache(serve_names *n, bool quiet, ht_error *err) {
    char *models;
    ht_status st = cache_path("models", &models, err);
    if (st) return st;
    if (access(models, F_OK) == 0) st = add_directory(n, models, quiet, err);
    if (!st && !n->n_models)
        st =
            ht_fail(err, HT_ERR_ARGUMENT,
                    "there is nothing to serve: %s has no model that this build runs; give a MODEL or --models DIR, or "
                    "fetch a model with hearth pull ORG/REPO",
                    models);
    free(models);
    return st;
}

static ht_status add_adapters(const options *o, serve_names *n, ht_error *err) {
    n->adapter = calloc((size_t)o->adapters.n + 1, sizeof *n->adapter);
    if (!n->adapter) return fail_memory(err, "the names of adapters");
    for (int i = 0; i < o->adapters.n; i++) {
        const char *word = o->adapters.items[i], *equals = strchr(word, '=');
        serve_adapter_source *a = &n->adapter[n->n_adapters++];
        a->path = keep(n, adapter_path(word, &a->scale));
        if (!a->path) return fail_memory(err, "the names of adapters");
        const char *slash = strrchr(a->path, '/');
        a->name = equals ? keep(n, strndup(word, (size_t)(equals - word))) : slash ? slash + 1 : a->path;
        if (!a->name) return fail_memory(err, "the names of adapters");
    }
    return HT_OK;
}

static ht_status add_aliases(const options *o, serve_names *n, ht_error *err) {
    ht_status st = HT_OK;
    for (int i = 0; i < o->aliases.n && !st; i++) {
        const char *word = o->aliases.items[i], *equals = strchr(word, '=');
        const char *name = equals ? keep(n, strndup(word, (size_t)(equals - word))) : word;
        if (!name) return fail_memory(err, "the names of models");
        st = add_alias(n, name, equals ? equals + 1 : n->model[0].name, err);
    }
    return st;
}

/* Collects MODEL, then --models, or the cache if neither is given; the first of equal names wins. Adds --adapter and
 * --alias. Unless --quiet, warns about unusable checkpoints. The caller frees *out, also after a failure. */
static ht_status serve_names_collect(const options *o, serve_names *out, ht_error *err) {
    *out = (serve_names){0};
    ht_status st = HT_OK;
    if (o->arguments.n) st = add_typed(out, o->arguments.items[0], err);
    if (!o->arguments.n && !o->models) st = add_cache(out, o->quiet, err);
    if (!st && o->models) st = add_directory(out, o->models, o->quiet, err);
    if (!st && !out->n_models)
        st =
            ht_fail(err, HT_ERR_ARGUMENT, "there is nothing to serve: %s has no model that this build runs", o->models);
    if (!st) st = add_adapters(o, out, err);
    return st ? st : add_aliases(o, out, err);
}

/* ---- the server ---- */

typedef struct serving {
    const options *o;
    serve_names names;
    serve_server *server;
    engine e; /* owns the device shared by all models */
    pthread_mutex_t writing;
    FILE *log; /* of --log; NULL: none */
    sigset_t signals;
    pthread_t watcher;
    atomic_bool ending;
    bool told;       /* the address has been printed; used only by the loading thread */
    ht_status first; /* result of loading the first model */
    ht_error first_error;
} serving;

/* ---- messages ---- */

/* Writes a line to standard error or the log; the lock keeps lines of different threads apart. */
static void write_line(serving *s, FILE *to, const char *line) {
    pthread_mutex_lock(&s->writing);
    fprintf(to, "%s\n", line);
    fflush(to);
    pthread_mutex_unlock(&s->writing);
}

static void on_log(const char *line, void *user) {
    serving *s = user;
    pthread_mutex_lock(&s->writing);
    if (s->log) {
        fprintf(s->log, "%s\n", line);
        fflush(s->log);
    }
    pthread_mutex_unlock(&s->writing);
}

static void on_warning(const char *sentence, void *user) {
    serving *s = user;
    char line[800];
    snprintf(line, sizeof line, "hearth: %.768s", sentence);
    make_printable(line);
    write_line(s, stderr, line);
}

/* Notifies the service manager, if any, through NOTIFY_SOCKET (the sd_notify protocol). */
static void notify_manager(const char *state) {
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (!path || (*path != '/' && *path != '@') || strlen(path) >= sizeof to.sun_path) return;
    memcpy(to.sun_path, path, strlen(path));
    if (*path == '@') to.sun_path[0] = '\0'; /* abstract socket */
    const int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (fd < 0) return;
    (void)sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&to,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path)));
    close(fd);
}

static const char *scheme(const serving *s) { return s->o->certificate ? "https" : "http"; }

/* Lists model and adapter names, as many as fit. */
static void list_names(const serve_names *names, char *out, size_t room) {
    size_t n = 0;
    *out = '\0';
    for (size_t i = 0; i < names->n_models + names->n_adapters && n < room; i++)
        n += (size_t)snprintf(out + n, room - n, "%s%s", i ? ", " : "",
                              i < names->n_models ? names->model[i].name : names->adapter[i - names->n_models].name);
    if (n >= room) memcpy(out + room - sizeof "...", "...", sizeof "...");
}

/* A request that one of the models can answer, for a terminal. */
static const struct example {
    unsigned tasks;
    const char *path, *body;
} examples[] = {
    {SERVE_GENERATES, "chat/completions", "{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}"},
    {SERVE_EMBEDS, "embeddings", "{\"input\": [\"Hello\"]}"},
    {SERVE_RERANKS, "rerank", "{\"query\": \"Hello\", \"documents\": [\"Hello\"]}"},
};

static const struct example *example_for(const serve_names *names) {
    const struct example *e = examples;
    unsigned tasks = 0;
    for (size_t i = 0; i < names->n_models; i++) tasks |= names->model[i].tasks;
    while (e < examples + 2 && !(e->tasks & tasks)) e++;
    return e;
}

static void tell_ready(serving *s) {
    const char *address = serve_address(s->server, 0),
               *key = s->o->api_key_file ? " -H 'Authorization: Bearer KEY'" : "";
    if (s->o->quiet || !address) return;
    const bool is_socket = strncmp(address, "unix:", 5) == 0;
    char line[2048], names[1024], url[300], page[320] = "";
    list_names(&s->names, names, sizeof names);
    make_printable(names);
    if (is_socket)
        snprintf(url, sizeof url, "%.256s", address);
    else
        snprintf(url, sizeof url, "%s://%.256s", scheme(s), address);
    const struct example *e = example_for(&s->names);
    if (!is_socket && !s->o->no_page && e->tasks == SERVE_GENERATES) snprintf(page, sizeof page, "  Page: %s/\n", url);
    snprintf(line, sizeof line, "Serving %s at %s\n%s  curl %s%s%s%s/v1/%s%s -d '%s'", names, url, page,
             is_socket ? "--unix-socket '" : "", is_socket ? address + 5 : "", is_socket ? "' http://localhost" : "",
             is_socket ? "" : url, e->path, key, e->body);
    write_line(s, stderr, line);
}

static void on_loaded(const char *name, ht_status status, const ht_error *err, void *user) {
    serving *s = user;
    const bool first = s->o->arguments.n && strcmp(name, s->names.model[0].name) == 0;
    if (first && !s->first && !status && !s->told) {
        s->told = true;
        tell_ready(s);
        notify_manager("READY=1");
    }
    if (!status) return;
    if (first) {
        s->first = status;
        s->first_error = *err;
        serve_drain(s->server);
        return;
    }
    char sentence[1024];
    snprintf(sentence, sizeof sentence, "%.128s: %s", name, err->message);
    on_warning(sentence, s);
}

/* ---- models ---- */

/* --context, or 0 for a model whose context is smaller, as those of text encoders are, unless it is served alone. */
static int64_t context_of(const serving *s, const char *path) {
    ht_model_info *info;
    if (s->names.n_models < 2 || !s->o->context || ht_model_info_read(path, &info, NULL)) return s->o->context;
    const int64_t own = info->context;
    ht_model_info_free(info);
    return own < s->o->context ? 0 : s->o->context;
}

static ht_status on_load(const char *path, void *user, ht_model **out, ht_error *err) {
    serving *s = user;
    options o = *s->o;
    o.context = context_of(s, path);
    const engine_model which = {path, (ht_precision)o.precision, options_kv_dtype(&o), 0};
    return engine_load(&s->e, &o, &which, out, err);
}

/* ---- signals ---- */

static void open_log(serving *s) {
    FILE *log = fopen(s->o->log, "a");
    pthread_mutex_lock(&s->writing);
    if (log) {
        if (s->log) fclose(s->log);
        s->log = log;
    }
    pthread_mutex_unlock(&s->writing);
    if (!log) {
        char sentence[512];
        snprintf(sentence, sizeof sentence, "%.256s cannot be written: %s", s->o->log, strerror(errno));
        on_warning(sentence, s);
    }
}

static void reload(serving *s) {
    ht_error err = {0};
    if (s->o->log) open_log(s);
    if (serve_reload(s->server, &err)) on_warning(err.message, s);
}

/* SIGTERM and SIGINT drain requests, then exit; a second one exits at once. SIGHUP reopens logs and certificates. */
static void *watch(void *user) {
    serving *s = user;
    int number;
    while (sigwait(&s->signals, &number) == 0 && !atomic_load(&s->ending)) {
        if (number == SIGHUP) {
            reload(s);
            continue;
        }
        notify_manager("STOPPING=1");
        serve_drain(s->server);
        interrupt_request(); /* cancels loading */
    }
    return NULL;
}

/* All threads inherit the blocked mask, so that only the watcher thread receives these signals. */
static void block_signals(serving *s) {
    sigemptyset(&s->signals);
    sigaddset(&s->signals, SIGTERM);
    sigaddset(&s->signals, SIGINT);
    sigaddset(&s->signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &s->signals, NULL);
}

static void end_watching(serving *s) {
    atomic_store(&s->ending, true);
    pthread_kill(s->watcher, SIGHUP);
    pthread_join(s->watcher, NULL);
}

/* ---- options ---- */

static serve_options options_for(serving *s, const char **listen, size_t n_listen) {
    const options *o = s->o;
    serve_options out = {.listen = listen, .n_listen = n_listen, .keys_file = o->api_key_file};
    out.http.hosts.host = o->allow_hosts.items;
    out.http.hosts.n_hosts = (size_t)o->allow_hosts.n;
    out.http.hosts.origin = o->allow_origins.items;
    out.http.hosts.n_origins = (size_t)o->allow_origins.n;
    out.http.body_bytes = (size_t)o->body_size;
    out.http.certificate = o->certificate;
    out.http.certificate_key = o->certificate_key;
    out.inherited = http_inherited_sockets(getenv("LISTEN_PID"), getenv("LISTEN_FDS"));
    if (out.inherited) out.n_listen = 0;
    out.sampler = options_sampler(o);
    out.seed_given = options_given(o, "seed");
    out.system = o->system;
    out.max_tokens = o->max_tokens > 0 ? (int32_t)o->max_tokens : 0;
    out.stop = o->stop.items;
    out.n_stop = o->stop.n;
    out.strict_params = o->strict_params;
    out.lookup = o->lookup;
    out.bounds_thinking = o->thinking_budget >= 0;
    out.thinking_budget = (int32_t)o->thinking_budget;
    out.no_page = o->no_page;
    out.drain_seconds = options_given(o, "drain") ? o->drain : 30;
    out.slots_directory = o->slots_directory;
    out.log = o->log ? on_log : NULL;
    out.warn = on_warning;
    out.log_user = s;
    serve_models_options *m = &out.models;
    m->model = s->names.model;
    m->n_models = s->names.n_models;
    m->adapter = s->names.adapter;
    m->n_adapters = s->names.n_adapters;
    m->alias = s->names.alias;
    m->n_aliases = s->names.n_aliases;
    m->broken = s->names.broken;
    m->n_broken = s->names.n_broken;
    m->any_name = o->any_model;
    m->first_at_once = o->arguments.n > 0;
    m->memory_bytes = (size_t)o->memory;
    ht_engine_options_init(&m->engine, sizeof m->engine);
    if (o->parallel) m->engine.sequences = (int32_t)o->parallel;
    if (o->queue) m->engine.queue = (int32_t)o->queue;
    if (o->kv_memory) m->engine.kv_bytes = (size_t)o->kv_memory;
    m->load = on_load;
    m->loaded = on_loaded;
    m->user = s;
    return out;
}

/* The address of --host and --port. */
static void address_of(const options *o, char *out, size_t room) {
    const char *host = o->host ? o->host : "127.0.0.1";
    const int port = options_given(o, "port") ? (int)o->port : 8080;
    if (strncmp(host, "unix:", 5) == 0)
        snprintf(out, room, "%s", host);
    else
        snprintf(out, room, strchr(host, ':') && *host != '[' ? "[%s]:%d" : "%s:%d", host, port);
}

/* ---- the command ---- */

static ht_status serve(serving *s, ht_error *err) {
    char address[512];
    const char *listen[] = {address};
    address_of(s->o, address, sizeof address);
    const serve_options how = options_for(s, listen, 1);
    block_signals(s);
    ht_status st = serve_new(&how, &s->server, err);
    if (st) return st;
    if (pthread_create(&s->watcher, NULL, watch, s) != 0)
        return ht_fail(err, HT_ERR_MEMORY, "the system gives no thread that waits for signals");
    if (!s->o->arguments.n) { /* models are loaded on demand */
        tell_ready(s);
        notify_manager("READY=1");
    }
    st = serve_run(s->server, err);
    end_watching(s);
    return st;
}

int serve_command(const options *o) {
    serving s = {.o = o, .writing = PTHREAD_MUTEX_INITIALIZER};
    ht_error err = {0};
    ht_status st = serve_names_collect(o, &s.names, &err);
    if (!st && o->log) open_log(&s);
    if (!st) st = serve(&s, &err);
    serve_free(s.server);
    engine_close(&s.e);
    serve_names_free(&s.names);
    if (s.log) fclose(s.log);
    if (!st && s.first && s.first != HT_ERR_CANCELLED) {
        st = s.first;
        err = s.first_error;
    }
    return st ? report(&err) : EXIT_OK;
}
