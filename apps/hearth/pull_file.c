#include "base/file.h"
#include "fail.h"
#include "pull_store.h"
#include "terminal.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    WRONG_MAX = 3, /* complete transfers with a wrong hash */
    THREADS_MAX = 16
};

/* ---- hashes: SHA-256 or git blob hash ---- */

typedef struct hash {
    const hub_file *file; /* file->hash selects the algorithm */
    EVP_MD_CTX *digest;   /* NULL: not started */
} hash;

static ht_status hash_add(hash *h, const void *bytes, size_t n, ht_error *err) {
    if (EVP_DigestUpdate(h->digest, bytes, n) == 1) return HT_OK;
    return ht_fail(err, HT_ERR_INTERNAL, "%.300s: its hash cannot be computed", h->file->path);
}

/* Starts or restarts the hash. */
static ht_status hash_begin(hash *h, ht_error *err) {
    const bool blob = strncmp(h->file->hash, "git:", 4) == 0;
    const bool sha1 = blob && strlen(h->file->hash) == 4 + 40; /* else SHA-256, of a repository in git's newer format */
    char head[40];
    if (!h->digest && !(h->digest = EVP_MD_CTX_new())) return fail_memory(err, "a hash");
    if (EVP_DigestInit_ex(h->digest, sha1 ? EVP_sha1() : EVP_sha256(), NULL) != 1)
        return ht_fail(err, HT_ERR_UNSUPPORTED, "%s cannot be computed by this system's OpenSSL",
                       sha1 ? "SHA-1" : "SHA-256");
    const int n = snprintf(head, sizeof head, "blob %lld", (long long)h->file->size);
    return blob ? hash_add(h, head, (size_t)n + 1, err) : HT_OK;
}

/* Finishes the hash, in the form of hub_file.hash. */
static ht_status hash_end(hash *h, char out[HASH_BYTES], ht_error *err) {
    unsigned char value[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    if (EVP_DigestFinal_ex(h->digest, value, &n) != 1)
        return ht_fail(err, HT_ERR_INTERNAL, "%.300s: its hash cannot be computed", h->file->path);
    int used = snprintf(out, HASH_BYTES, "%.*s:", (int)strcspn(h->file->hash, ":"), h->file->hash);
    for (unsigned i = 0; i < n && used + 2 < HASH_BYTES; i++)
        used += snprintf(out + used, (size_t)(HASH_BYTES - used), "%02x", value[i]);
    return HT_OK;
}

/* Hashes the first n bytes of a file; `path` is for error messages. */
static ht_status hash_add_file(hash *h, int fd, int64_t n, const char *path, ht_error *err) {
    enum { PIECE = 1 << 20 };
    unsigned char *piece = malloc(PIECE);
    ht_status st = piece ? HT_OK : fail_memory(err, "reading a file");
    for (int64_t at = 0; at < n && !st;) {
        const ssize_t got = pread(fd, piece, n - at < PIECE ? (size_t)(n - at) : PIECE, (off_t)at);
        if (got < 0 && errno == EINTR && !interrupted()) continue;
        if (interrupted())
            st = ht_fail(err, HT_ERR_CANCELLED, "interrupted");
        else if (got < 0)
            st = fail_system(err, path, "read");
        else if (got == 0)
            st = ht_fail(err, HT_ERR_IO, "%.300s has become shorter while it was read", path);
        else
            st = hash_add(h, piece, (size_t)got, err);
        at += st ? 0 : got;
    }
    free(piece);
    return st;
}

ht_status pull_hash_check(const hub_file *f, const char *bytes, size_t n, bool *good, ht_error *err) {
    hash h = {f, NULL};
    char found[HASH_BYTES];
    ht_status st = hash_begin(&h, err);
    if (!st) st = hash_add(&h, bytes, n, err);
    if (!st) st = hash_end(&h, found, err);
    *good = !st && strcmp(found, f->hash) == 0;
    EVP_MD_CTX_free(h.digest);
    return st;
}

/* ---- a transfer ---- */

typedef struct transfer {
    const hub *hub;
    pull_store *store;
    const hub_file *file;
    char *path, *url; /* of the unfinished file; of the file on the hub */
    int fd;
    hash hash;        /* of the bytes fetched so far */
    int64_t have;     /* bytes fetched so far */
    int64_t skip;     /* leading bytes of this response to discard, because the server ignored the range */
    int64_t furthest; /* maximum of `have` since the last restart after wrong bytes */
    int64_t counted;  /* bytes already added to the progress */
    int wrong;        /* times that the bytes were wrong */
    bool wrong_bytes; /* this response has unexpected bytes */
    char etag[256];   /* of the bytes fetched so far; "": unknown */
} transfer;

/* ---- the file ---- */

static ht_status restart(transfer *t, ht_error *err) {
    t->have = t->skip = 0;
    if (ftruncate(t->fd, 0) != 0) return fail_system(err, t->path, "written");
    return hash_begin(&t->hash, err);
}

static pthread_mutex_t record = PTHREAD_MUTEX_INITIALIZER; /* guards store->staged and its file */

static ht_status keep_etag(transfer *t, const char *etag, ht_error *err) {
    snprintf(t->etag, sizeof t->etag, "%s", etag);
    pthread_mutex_lock(&record);
    ht_status st = pull_state_set_etag(t->store->staged, t->file, etag, err);
    if (!st) st = pull_state_write(t->store->stage, t->store->staged, err);
    pthread_mutex_unlock(&record);
    return st;
}

/* Opens the unfinished file and hashes its bytes, if they belong to a file with the same hash. */
static ht_status open_part(transfer *t, ht_error *err) {
    struct stat s;
    pthread_mutex_lock(&record);
    const char *etag = pull_state_etag(t->store->staged, t->file);
    const bool known = etag != NULL;
    snprintf(t->etag, sizeof t->etag, "%s", known ? etag : "");
    pthread_mutex_unlock(&record);
    if (!tree_make_parents(t->path, strlen(t->store->stage))) return fail_system(err, t->path, "made");
    t->fd = open(t->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (t->fd < 0) return fail_system(err, t->path, "written");
    if (fstat(t->fd, &s) != 0) return fail_system(err, t->path, "read");
    if (!known || s.st_size > t->file->size || s.st_size == 0) {
        const ht_status st = restart(t, err);
        return st ? st : keep_etag(t, "", err);
    }
    t->have = t->furthest = (int64_t)s.st_size;
    const ht_status st = hash_begin(&t->hash, err);
    return st ? st : hash_add_file(&t->hash, t->fd, t->have, t->path, err);
}

static bool write_all(const transfer *t, const char *bytes, size_t n) {
    int64_t at = t->have;
    while (n) {
        const ssize_t wrote = pwrite(t->fd, bytes, n, (off_t)at);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return false;
        at += wrote;
        bytes += wrote;
        n -= (size_t)wrote;
    }
    return true;
}

static void count(transfer *t) {
    pull_progress_add(t->hub->show, t->file->path, t->have - t->counted);
    t->counted = t->have;
}

/* ---- response ---- */

static http_outcome bad_range(transfer *t, const http_answer *a, ht_error *err) {
    ht_fail(err, HT_ERR_IO, "%.200s: it sends bytes from %lld of %lld, asked for those from %lld of %lld", a->host,
            (long long)a->range_begin, (long long)a->range_total, (long long)t->have, (long long)t->file->size);
    ht_error why = {0};
    if (restart(t, &why) == HT_OK) return HTTP_RETRY;
    *err = why;
    return HTTP_FAILED;
}

static http_outcome on_answer(const http_answer *a, void *user, ht_error *err) {
    transfer *t = user;
    t->skip = 0;
    if (a->status == 206 && (a->range_begin != t->have || (a->range_total >= 0 && a->range_total != t->file->size)))
        return bad_range(t, a, err);
    /* A full response: the file has changed, or the server does not support ranges. */
    if (a->status == 200 && t->have > 0) {
        if (*a->etag && strcmp(a->etag, t->etag) == 0)
            t->skip = t->have;
        else if (restart(t, err))
            return HTTP_FAILED;
    }
    if (strcmp(a->etag, t->etag) != 0 && keep_etag(t, a->etag, err)) return HTTP_FAILED;
    return HTTP_COMPLETE;
}

static http_outcome on_bytes(const char *bytes, size_t n, void *user, ht_error *err) {
    transfer *t = user;
    const size_t skipped = t->skip < (int64_t)n ? (size_t)t->skip : n;
    t->skip -= (int64_t)skipped;
    bytes += skipped;
    n -= skipped;
    if ((int64_t)n > t->file->size - t->have) {
        t->wrong_bytes = true;
        ht_fail(err, HT_ERR_IO, "it sends more than the %lld bytes that the hub lists", (long long)t->file->size);
        return HTTP_RETRY;
    }
    if (!write_all(t, bytes, n)) {
        fail_system(err, t->path, "written");
        return HTTP_FAILED;
    }
    if (hash_add(&t->hash, bytes, n, err)) return HTTP_FAILED;
    t->have += (int64_t)n;
    count(t);
    return HTTP_COMPLETE;
}

/* ---- retries ---- */

/* Discards wrong bytes. After WRONG_MAX times the server's file itself must be wrong. */
static ht_status begin_again(transfer *t, const ht_error *why, ht_error *err) {
    ht_status st = restart(t, err);
    t->furthest = 0;
    t->wrong_bytes = false;
    if (!st) st = keep_etag(t, "", err);
    if (st || ++t->wrong < WRONG_MAX) return st;
    unlink(t->path);
    pthread_mutex_lock(&record);
    pull_state_drop_part(t->store->staged, t->file->path);
    pthread_mutex_unlock(&record);
    return ht_fail(err, HT_ERR_FORMAT, "%.200s: %.400s, %d times; nothing of it was kept", t->file->path, why->message,
                   t->wrong);
}

/* Requests the remaining bytes once, and waits after a transient failure. */
static ht_status fetch_rest(transfer *t, retry *r, ht_error *err) {
    const http_request request = {t->url, t->have, t->etag, on_answer, on_bytes, t};
    http_answer answer;
    ht_error why = {0};
    http_outcome outcome = http_get(t->hub->http, &request, &answer, &why);
    if (answer.status == 416) { /* range not satisfiable: the server's file is shorter */
        outcome = HTTP_RETRY;
        const ht_status st = restart(t, err);
        if (st) return st;
    }
    if (outcome == HTTP_COMPLETE && t->have < t->file->size) {
        outcome = HTTP_RETRY;
        ht_fail(&why, HT_ERR_IO, "%.200s: the answer ended after %lld of %lld bytes", answer.host, (long long)t->have,
                (long long)t->file->size);
    }
    if (outcome == HTTP_COMPLETE) return HT_OK;
    if (outcome == HTTP_FAILED) {
        hub_explain(t->hub, t->file->path, &answer, &why);
        *err = why;
        return why.status;
    }
    if (t->have > t->furthest) {
        t->furthest = t->have;
        r->failures = 0;
    }
    if (t->wrong_bytes) {
        const ht_status st = begin_again(t, &why, err);
        if (st) return st;
    }
    return retry_wait(r, t->file->path, &answer, &why, err);
}

/* Verifies the hash of the complete file. */
static ht_status check(transfer *t, bool *good, ht_error *err) {
    char found[HASH_BYTES];
    ht_error why = {0};
    ht_status st = hash_end(&t->hash, found, err);
    *good = !st && strcmp(found, t->file->hash) == 0;
    if (st || *good) return st;
    ht_fail(&why, HT_ERR_FORMAT, "its hash is %s, the hub lists %s", found, t->file->hash);
    st = begin_again(t, &why, err);
    if (!st) pull_note(t->hub->show, "%.200s: %s; fetched again", t->file->path, why.message);
    return st;
}

/* Renames the verified file to its final name. */
static ht_status finish(transfer *t, ht_error *err) {
    char *name = ht_path_join(t->store->stage, t->file->path);
    ht_status st = HT_OK;
    if (!name)
        st = fail_memory(err, "a path");
    else if (fsync(t->fd) != 0 || rename(t->path, name) != 0)
        st = fail_system(err, name, "written");
    free(name);
    if (st) return st;
    pthread_mutex_lock(&record);
    st = pull_state_add(t->store->staged, t->store->stage, t->file, err);
    if (!st) pull_state_drop_part(t->store->staged, t->file->path);
    if (!st) st = pull_state_write(t->store->stage, t->store->staged, err);
    pthread_mutex_unlock(&record);
    return st;
}

static ht_status run(transfer *t, ht_error *err) {
    retry r = {.settings = t->hub->settings, .show = t->hub->show};
    bool good = false;
    t->path = pull_store_path(t->store->stage, t->file->path, ".part");
    t->url = hub_file_address(t->hub, t->file->path);
    ht_status st = t->path && t->url ? open_part(t, err) : fail_memory(err, "a path");
    while (!st && !good) {
        if (t->have < t->file->size)
            st = fetch_rest(t, &r, err);
        else
            st = check(t, &good, err);
    }
    return st ? st : finish(t, err);
}

static ht_status fetch_file(const hub *h, pull_store *s, const hub_file *f, ht_error *err) {
    transfer t = {.hub = h, .store = s, .file = f, .fd = -1, .hash = {f, NULL}};
    pthread_mutex_lock(&record);
    t.counted = pull_store_part_bytes(s, f);
    pthread_mutex_unlock(&record);
    const ht_status st = run(&t, err);
    if (t.fd >= 0) close(t.fd);
    EVP_MD_CTX_free(t.hash.digest);
    free(t.path);
    free(t.url);
    return st;
}

ht_status pull_file_adopt(pull_progress *show, pull_store *s, const hub_file *f, bool *good, ht_error *err) {
    char found[HASH_BYTES], *path = ht_path_join(s->target, f->path);
    struct stat st;
    hash h = {f, NULL};
    *good = false;
    if (!path) return fail_memory(err, "a path");
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    ht_status status = HT_OK;
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == f->size) {
        pull_note(show, "checking %.300s, which is present", f->path);
        status = hash_begin(&h, err);
        if (!status) status = hash_add_file(&h, fd, f->size, path, err);
        if (!status) status = hash_end(&h, found, err);
        *good = !status && strcmp(found, f->hash) == 0;
        if (*good) status = pull_state_add(s->installed, s->target, f, err);
    }
    if (fd >= 0) close(fd);
    EVP_MD_CTX_free(h.digest);
    free(path);
    return status;
}

/* ---- parallel transfers: each thread has its own connection and fetches one file after another ---- */

typedef struct job {
    const hub *hub;
    pull_settings settings; /* the hub's settings, plus `stop` */
    pull_store *store;
    const hub_file *const *files;
    size_t n;
    atomic_size_t next; /* index of the next file to fetch */
    atomic_bool stop;
    pthread_mutex_t lock; /* guards err */
    ht_error err;         /* of the first failure */
} job;

typedef struct worker {
    job *job;
    http *http;
    pthread_t thread;
    bool started;
} worker;

static void note_failure(job *j, const ht_error *err) {
    pthread_mutex_lock(&j->lock);
    if (!j->err.status) j->err = *err;
    pthread_mutex_unlock(&j->lock);
    atomic_store(&j->stop, true);
}

static void *work(void *user) {
    const worker *w = user;
    job *j = w->job;
    hub own = *j->hub;
    own.http = w->http;
    own.settings = &j->settings;
    for (size_t i; !atomic_load(&j->stop) && (i = atomic_fetch_add(&j->next, 1)) < j->n;) {
        char size[SIZE_BYTES];
        ht_error err = {0};
        if (fetch_file(&own, j->store, j->files[i], &err))
            note_failure(j, &err);
        else
            pull_note(own.show, "%.300s  %s", j->files[i]->path, size_text(j->files[i]->size, size));
    }
    return NULL;
}

/* The calling thread is the first worker, so all files are fetched even if no thread can be created. */
static void run_workers(worker *workers, size_t n) {
    for (size_t i = 1; i < n; i++)
        workers[i].started = pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0;
    work(&workers[0]);
    for (size_t i = 1; i < n; i++)
        if (workers[i].started) pthread_join(workers[i].thread, NULL);
}

ht_status pull_files(const hub *h, pull_store *s, const hub_file *const *files, size_t n, ht_error *err) {
    worker workers[THREADS_MAX] = {0};
    job j = {.hub = h, .settings = *h->settings, .store = s, .files = files, .n = n, .lock = PTHREAD_MUTEX_INITIALIZER};
    size_t n_workers = (size_t)h->settings->connections;
    ht_status st = HT_OK;
    if (n_workers > n) n_workers = n;
    if (n_workers > THREADS_MAX) n_workers = THREADS_MAX;
    j.settings.stop = &j.stop;
    for (size_t i = 0; i < n_workers && !st; i++) {
        workers[i].job = &j;
        st = http_new(&j.settings, &workers[i].http, err);
    }
    if (!st && n_workers) {
        run_workers(workers, n_workers);
        st = j.err.status;
        if (st) *err = j.err;
    }
    for (size_t i = 0; i < n_workers; i++) http_free(workers[i].http);
    pthread_mutex_destroy(&j.lock);
    return st;
}
