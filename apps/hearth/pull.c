/* hearth pull: fetches a model from a hub into the cache. */
#include "base/file.h"
#include "command.h"
#include "fail.h"
#include "json.h"
#include "model_path.h"
#include "pull_store.h"
#include "terminal.h"

#include <hearth/discover.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct pull {
    const options *o;
    pull_settings settings;
    pull_name name;
    hub hub;
    hub_listing listing;
    pull_choice choice;
    pull_store store;
    pull_progress show;
    int64_t bytes, fetched; /* total of the chosen files; fetched by this call */
    bool *missing;          /* [choice.n] not installed when the call began */
    size_t n_missing;
} pull;

/* ---- settings ---- */

static const char *variable(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* For networks with a private certificate authority: the variables of curl, Python's requests and OpenSSL. */
static const char *read_certificates(void) {
    static const char *const names[] = {"CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"};
    const char *path = NULL;
    for (int i = 0; i < 3 && !path; i++) path = variable(names[i]);
    return path;
}

static ht_status read_endpoint(char **out, ht_error *err) {
    const char *given = variable("HF_ENDPOINT"), *url = given ? given : "https://huggingface.co";
    size_t n = strlen(url);
    while (n && url[n - 1] == '/') n--;
    const bool is_http = strncasecmp(url, "http://", 7) == 0, is_https = strncasecmp(url, "https://", 8) == 0;
    if (n <= (is_https ? 8 : 7) || (!is_http && !is_https) || strpbrk(url, "@?# \t\r\n\\"))
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "HF_ENDPOINT is \"%.200s\", expected the address of a hub, as https://huggingface.co", url);
    *out = strndup(url, n);
    return *out ? HT_OK : fail_memory(err, "the hub's address");
}

/* The path of the token file in fresh memory; NULL when no variable names it or memory ran out. */
static char *token_path(void) {
    const char *path = variable("HF_TOKEN_PATH"), *hf_home = variable("HF_HOME"), *cache = variable("XDG_CACHE_HOME"),
               *home = variable("HOME");
    char *out = NULL;
    int n = -1;
    if (path)
        n = asprintf(&out, "%s", path);
    else if (hf_home)
        n = asprintf(&out, "%s/token", hf_home);
    else if (cache)
        n = asprintf(&out, "%s/huggingface/token", cache);
    else if (home)
        n = asprintf(&out, "%s/.cache/huggingface/token", home);
    return n < 0 ? NULL : out;
}

enum { TOKEN_BYTES = 4096 };

/* Trims and checks a token that goes into a header. The error message must not reveal it. */
static ht_status take_token(const char *text, size_t n, const char *from, char **out, ht_error *err) {
    while (n && strchr(" \t\r\n", text[n - 1])) n--;
    while (n && strchr(" \t\r\n", *text)) text++, n--;
    for (size_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return ht_fail(err, HT_ERR_ARGUMENT, "the token of %.300s is no token: it has a character that none has",
                           from);
    if (n == 0) return HT_OK;
    *out = strndup(text, n);
    return *out ? HT_OK : fail_memory(err, "the hub's token");
}

static ht_status read_token(char **out, ht_error *err) {
    char text[TOKEN_BYTES];
    const char *given = variable("HF_TOKEN");
    if (given) return take_token(given, strlen(given), "HF_TOKEN", out, err);
    char *path = token_path();
    FILE *file = path ? fopen(path, "re") : NULL;
    ht_status st = HT_OK;
    if (file) {
        const size_t n = fread(text, 1, sizeof text, file);
        if (ferror(file))
            st = fail_system(err, path, "read");
        else
            st = take_token(text, n, path, out, err);
        fclose(file);
    } else if (path && errno != ENOENT && errno != ENOTDIR)
        st = fail_system(err, path, "read");
    free(path);
    return st;
}

/* The caller frees *out, also on failure. HT_ERR_ARGUMENT: the endpoint is not an http(s) URL, or a malformed token. */
static ht_status read_settings(const options *o, pull_settings *out, ht_error *err) {
    *out = (pull_settings){.certificates = read_certificates(),
                           .retries = options_given(o, "retries") ? o->retries : 5,
                           .retry_delay = options_given(o, "retry-delay") ? o->retry_delay : 1,
                           .timeout = options_given(o, "timeout") ? o->timeout : 30,
                           .connections = options_given(o, "connections") ? o->connections : 4,
                           .quiet = o->quiet};
    const ht_status st = read_endpoint(&out->endpoint, err);
    return st ? st : read_token(&out->token, err);
}

static void free_settings(pull_settings *s) {
    free(s->endpoint);
    free(s->token);
    *s = (pull_settings){0};
}

/* ---- selection ---- */

/* Fetches the shard index, which names the remaining files, from the hub. */
static ht_status read_index(pull *p, char **text, size_t *n, ht_error *err) {
    enum { TRIES = 3 };
    const hub_file *f = p->choice.index;
    for (int i = 0; i < TRIES; i++) {
        bool good = false;
        ht_status st = hub_read_file(&p->hub, f, text, n, err);
        if (!st) st = pull_hash_check(f, *text, *n, &good, err);
        if (good) return HT_OK;
        free(*text);
        *text = NULL;
        if (st) return st;
    }
    return ht_fail(err, HT_ERR_FORMAT, "%.200s: its hash differs from the hub's, %.80s", f->path, f->hash);
}

/* Reads the shard index from the model's directory. */
static ht_status read_own_index(const pull *p, char **text, size_t *n, ht_error *err) {
    char *path = ht_path_join(p->store.target, p->choice.index->path);
    const ht_status st =
        path ? ht_file_read_all(path, (size_t)p->choice.index->size, text, n, err) : fail_memory(err, "a path");
    free(path);
    return st;
}

static ht_status choose(pull *p, ht_error *err) {
    char *text = NULL;
    size_t n = 0;
    ht_status st = choose_files(&p->hub, &p->listing, &p->name, &p->choice, err);
    if (st) return st;
    if (!p->choice.index) return choose_shards(&p->hub, &p->listing, NULL, 0, &p->choice, err);
    st = pull_store_has(&p->store, p->choice.index) ? read_own_index(p, &text, &n, err) : read_index(p, &text, &n, err);
    if (!st) st = choose_shards(&p->hub, &p->listing, text ? text : "", n, &p->choice, err);
    free(text);
    return st;
}

/* Hashes existing files that have no valid record, or all of them with --verify. */
static ht_status look_into_files(pull *p, ht_error *err) {
    bool changed = false;
    ht_status st = HT_OK;
    for (size_t i = 0; i < p->choice.n && !st; i++) {
        const hub_file *f = p->choice.file[i];
        const bool had = pull_store_has(&p->store, f);
        bool good;
        if (had && !p->o->verify) continue;
        st = pull_file_adopt(&p->show, &p->store, f, &good, err);
        if (!st && had && !good) ht_json_object_del(ht_json_object_get(p->store.installed, "files"), f->path);
        changed = changed || had != good;
    }
    if (!st && changed) st = pull_state_write(p->store.target, p->store.installed, err);
    return st;
}

static ht_status count(pull *p, ht_error *err) {
    free(p->missing);
    p->missing = calloc(p->choice.n + 1, sizeof *p->missing);
    p->bytes = 0;
    p->n_missing = 0;
    if (!p->missing) return fail_memory(err, "the list of files");
    for (size_t i = 0; i < p->choice.n; i++) {
        const hub_file *f = p->choice.file[i];
        if (__builtin_add_overflow(p->bytes, f->size, &p->bytes))
            return ht_fail(err, HT_ERR_FORMAT, "%.200s: its files are larger than any disk", p->name.repo);
        p->missing[i] = !pull_store_has(&p->store, f);
        p->n_missing += p->missing[i];
    }
    return HT_OK;
}

static ht_status find_out(pull *p, ht_error *err) {
    char *models;
    ht_status st = http_new(&p->settings, &p->hub.http, err);
    if (st) return st;
    p->hub.settings = &p->settings;
    p->hub.show = &p->show;
    p->hub.repo = p->name.repo;
    st = cache_path("models", &models, err);
    if (st) return st;
    st = pull_store_open(models, p->name.repo, &p->store, err);
    free(models);
    if (!st) st = hub_find_commit(&p->hub, p->name.revision, err);
    if (!st) st = hub_list(&p->hub, &p->listing, err);
    if (!st) st = choose(p, err);
    if (!st && !p->o->dry_run) st = look_into_files(p, err);
    return st ? st : count(p, err);
}

/* ---- download ---- */

/* Bytes of a chosen file on disk, also of an unfinished one. */
static int64_t bytes_there(const pull *p, size_t i) {
    const hub_file *f = p->choice.file[i];
    return !p->missing[i] || pull_store_has_staged(&p->store, f) ? f->size : pull_store_part_bytes(&p->store, f);
}

static ht_status check_space(const pull *p, int64_t needed, ht_error *err) {
    char want[SIZE_BYTES], have[SIZE_BYTES];
    const int64_t bytes = pull_store_free_bytes(&p->store);
    if (bytes < 0 || needed <= bytes) return HT_OK;
    return ht_fail(err, HT_ERR_IO, "%.200s needs %s more, and where %.300s is there are %s free", p->name.repo,
                   size_text(needed, want), p->store.stage, size_text(bytes, have));
}

static void announce(pull *p, int64_t there) {
    char all[SIZE_BYTES], have[SIZE_BYTES], here[80] = "";
    if (there) snprintf(here, sizeof here, ", of which %s are here", size_text(there, have));
    pull_note(&p->show, "%.200s, commit %.12s: %zu file%s, %s%s", p->name.repo, p->hub.commit, p->choice.n,
              p->choice.n == 1 ? "" : "s", size_text(p->bytes, all), here);
}

/* Fetches the chosen files that are neither installed nor staged. */
static ht_status fetch_files(pull *p, ht_error *err) {
    const hub_file **files = malloc((p->choice.n + 1) * sizeof *files);
    size_t n = 0;
    if (!files) return fail_memory(err, "the list of files");
    for (size_t i = 0; i < p->choice.n; i++) {
        const hub_file *f = p->choice.file[i];
        if (!p->missing[i] || pull_store_has_staged(&p->store, f)) continue;
        p->fetched += f->size - bytes_there(p, i);
        files[n++] = f;
    }
    const ht_status st = pull_files(&p->hub, &p->store, files, n, err);
    free(files);
    return st;
}

static ht_status fetch(pull *p, ht_error *err) {
    int64_t there = 0;
    ht_status st = pull_store_lock(&p->store, err);
    if (!st) st = pull_store_drop_stale(&p->store, &p->listing, err);
    if (!st) st = count(p, err);
    if (st) return st;
    for (size_t i = 0; i < p->choice.n; i++) there += bytes_there(p, i);
    announce(p, there);
    st = check_space(p, p->bytes - there, err);
    pull_progress_begin(&p->show, p->o->quiet, p->bytes, there);
    if (!st) st = fetch_files(p, err);
    pull_progress_clear(&p->show);
    return st ? st : pull_store_install(&p->store, &p->hub, p->name.revision, &p->choice, err);
}

/* ---- the result ---- */

/* The model's name for other commands: as requested, without the revision. */
static void model_name_of(const pull *p, char *text, size_t n) {
    if (p->name.file)
        snprintf(text, n, "%s/%.*s", p->name.repo, (int)(strlen(p->name.file) - strlen(".gguf")), p->name.file);
    else
        snprintf(text, n, "%s%s%s", p->name.repo, p->name.quantization ? ":" : "",
                 p->name.quantization ? p->name.quantization : "");
}

typedef struct search {
    const char *path; /* of the model */
    pull *p;
} search;

static bool on_find(const ht_find *f, void *user) {
    const search *s = user;
    if (strcmp(f->path, s->path) != 0) return true;
    if (!f->info)
        pull_note(&s->p->show, "hearth pull: %.300s", f->problem->message);
    else if (!f->info->runs)
        pull_note(&s->p->show, "hearth pull: this build cannot run it, the architecture is %.100s (see hearth formats)",
                  f->info->architecture);
    return false;
}

/* Notes when this build cannot run the model. */
static void look_at_model(pull *p, const char *path) {
    ht_error ignored = {0};
    search s = {path, p};
    ht_discover(p->store.target, on_find, &s, &ignored);
}

static void print_json(const pull *p, const char *name, const char *path) {
    ht_json *files = ht_json_new_array();
    for (size_t i = 0; i < p->choice.n; i++) {
        const hub_file *f = p->choice.file[i];
        ht_json_array_append_new(files, ht_json_pack("{so sI ss sb}", "path", ht_json_string(f->path), "bytes",
                                                     (int64_t)f->size, "hash", f->hash, "new", (int)p->missing[i]));
    }
    json_output(ht_json_pack("{ss ss so ss ss sI sI sb so}", "model", name, "repo", p->name.repo, "path",
                             ht_json_string(path), "revision", p->name.revision ? p->name.revision : "main", "commit",
                             p->hub.commit, "bytes", (int64_t)p->bytes, "fetched_bytes", (int64_t)p->fetched,
                             "complete", (int)(!p->o->dry_run || p->n_missing == 0), "files", files));
}

static void print_text(const pull *p, const char *name, const char *path) {
    char size[SIZE_BYTES];
    output_field("model", "%s", name);
    output_field("path", "%s", path);
    output_field("commit", "%s", p->hub.commit);
    for (size_t i = 0; i < p->choice.n && p->o->dry_run; i++)
        output_field(i ? "" : "files", "%s  %s%s", p->choice.file[i]->path, size_text(p->choice.file[i]->size, size),
                     p->missing[i] ? "" : "  (present)");
    output_field("size", "%s", size_text(p->bytes, size));
    if (p->o->dry_run) return;
    if (p->n_missing)
        output_field("fetched", "%s", size_text(p->fetched, size));
    else
        output_field("fetched", "nothing; everything was present");
}

static void print_result(pull *p) {
    char name[1200];
    char *path = p->choice.gguf ? ht_path_join(p->store.target, p->choice.gguf->path) : strdup(p->store.target);
    if (!path) {
        output_lacks("out of memory for the result");
        return;
    }
    model_name_of(p, name, sizeof name);
    if (!p->o->dry_run) look_at_model(p, path);
    (p->o->json ? print_json : print_text)(p, name, path);
    free(path);
}

/* All files are already installed: removes stale staged files, as left by a killed call, and records the revision. */
static ht_status tidy(pull *p, ht_error *err) {
    const char *revision = p->name.revision ? p->name.revision : "main";
    ht_status st = HT_OK;
    if (pull_store_is_begun(&p->store)) st = pull_store_lock(&p->store, err);
    if (st == HT_ERR_BUSY) return HT_OK; /* another process is fetching other files */
    if (!st && p->store.lock >= 0) st = pull_store_drop_stale(&p->store, &p->listing, err);
    if (st || (pull_state_is_of(p->store.target, revision) && pull_state_is_of(p->store.target, p->hub.commit)))
        return st;
    st = pull_state_set_source(p->store.installed, &p->hub, revision, err);
    return st ? st : pull_state_write(p->store.target, p->store.installed, err);
}

/* After an interruption or a transfer failure, adds that the download can resume. */
static void say_what_is_kept(const pull *p, ht_error *err) {
    static const char kept[] = "what has come is kept, and the same command goes on with it";
    const size_t n = strlen(err->message);
    const ht_json *staged = p->store.staged;
    const bool something = ht_json_object_size(ht_json_object_get(staged, "files")) ||
                           ht_json_object_size(ht_json_object_get(staged, "parts"));
    if (err->status == HT_ERR_CANCELLED)
        ht_fail(err, HT_ERR_CANCELLED, "interrupted%s%s", something ? ": " : "", something ? kept : "");
    else if (err->status == HT_ERR_IO && something)
        snprintf(err->message + n, sizeof err->message - n, "; %s", kept);
}

static int run(pull *p) {
    ht_error err = {0};
    ht_status st = pull_name_parse(p->o->arguments.items[0], p->settings.endpoint, &p->name, &err);
    if (st == HT_ERR_ARGUMENT) {
        report(&err);
        return EXIT_USAGE;
    }
    if (!st) st = find_out(p, &err);
    if (!st && !p->o->dry_run) st = p->n_missing ? fetch(p, &err) : tidy(p, &err);
    if (!st) {
        print_result(p);
        return EXIT_OK;
    }
    pull_progress_clear(&p->show);
    say_what_is_kept(p, &err);
    return report(&err);
}

int pull_command(const options *o) {
    pull p = {.o = o, .store = {.lock = -1}};
    ht_error err = {0};
    if (!o->arguments.n) return usage_error(o, "the name of a model is needed: ORG/REPO, as the hub has it");
    interrupt_watch();
    pull_progress_begin(&p.show, o->quiet, 0, 0);
    const int status = read_settings(o, &p.settings, &err) ? report(&err) : run(&p);
    pull_store_close(&p.store);
    choice_free(&p.choice);
    hub_listing_free(&p.listing);
    http_free(p.hub.http);
    pull_name_free(&p.name);
    free_settings(&p.settings);
    free(p.missing);
    return output_finish(status);
}
