#include "models/memory_check.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "base/plural.h"
#include "checkpoint/kv_size.h"
#include "device/device.h"

#include <hearth/measure.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES_MAX = 1 << 20, PATH_BYTES = 1024 };

/* Reads a /proc or cgroup file, whose size is reported as 0; false when it does not exist. */
static bool read_text(const char *root, const char *path, char *text, size_t size) {
    char full[PATH_BYTES];
    if ((size_t)snprintf(full, sizeof full, "%s%s", root, path) >= sizeof full) return false;
    FILE *f = fopen(full, "re");
    if (!f) return false;
    size_t n = fread(text, 1, size - 1, f);
    text[n] = '\0';
    fclose(f);
    return n > 0;
}

/* The number after `key` at the start of a line. */
static bool line_value(const char *text, const char *key, size_t *value) {
    size_t n = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL)
        if (!strncmp(line, key, n)) {
            char *end;
            unsigned long long v = strtoull(line + n, &end, 10);
            if (end == line + n) return false;
            *value = (size_t)v;
            return true;
        }
    return false;
}

static bool file_value(const char *root, const char *directory, const char *name, size_t *value) {
    char path[PATH_BYTES], text[64];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", directory, name) >= sizeof path) return false;
    return read_text(root, path, text, sizeof text) && line_value(text, "", value);
}

/* File names in a hierarchy of control groups. */
typedef struct hierarchy {
    const char *mount, *limit, *usage, *cache;
} hierarchy;

/* Caps *free_bytes by one control group: limit - usage, not counting inactive page cache, which is reclaimable. */
static void limit_by_group(const char *root, const hierarchy *h, const char *directory, size_t *free_bytes) {
    size_t limit, used, cache = 0;
    if (!file_value(root, directory, h->limit, &limit) || !file_value(root, directory, h->usage, &used)) return;
    char path[PATH_BYTES], text[8192];
    if ((size_t)snprintf(path, sizeof path, "%s/memory.stat", directory) < sizeof path &&
        read_text(root, path, text, sizeof text))
        line_value(text, h->cache, &cache);
    used -= ht_min_size(cache, used);
    *free_bytes = ht_min_size(*free_bytes, limit > used ? limit - used : 0);
}

/* Applies the limits of the process's control group and all its ancestors. */
static void limit_by_groups(const char *root, const hierarchy *h, const char *group, size_t *free_bytes) {
    char directory[PATH_BYTES];
    if ((size_t)snprintf(directory, sizeof directory, "%s%s", h->mount, group) >= sizeof directory) return;
    for (;;) {
        limit_by_group(root, h, directory, free_bytes);
        char *slash = strrchr(directory, '/');
        if (!slash || (size_t)(slash - directory) < strlen(h->mount)) return;
        *slash = '\0';
    }
}

static void limit_by_line(const char *root, char *line, size_t *free_bytes) {
    char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group) return;
    *group++ = '\0';
    controllers++;
    if (strstr(group, "..")) return; /* outside the visible hierarchy */
    static const hierarchy unified = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "},
                           older = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                    "total_inactive_file "};
    if (!*controllers || strstr(controllers, "memory"))
        limit_by_groups(root, *controllers ? &older : &unified, group, free_bytes);
}

bool ht_memory_check_free_under(const char *root, size_t *bytes) {
    char text[8192];
    size_t kib;
    if (!read_text(root, "/proc/meminfo", text, sizeof text) || !line_value(text, "MemAvailable:", &kib)) return false;
    if (!ht_mul_size(kib, 1024, bytes)) return false;
    if (!read_text(root, "/proc/self/cgroup", text, sizeof text)) return true;
    char *rest;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        limit_by_line(root, line, bytes);
    return true;
}

/* Bytes of this process in memory; 0 when unknown. */
static size_t memory_check_resident(void) {
    char text[8192];
    size_t kib, bytes;
    if (!read_text("", "/proc/self/status", text, sizeof text) || !line_value(text, "VmRSS:", &kib)) return 0;
    return ht_mul_size(kib, 1024, &bytes) ? bytes : 0;
}

bool ht_memory_check_free(size_t *bytes) { return ht_memory_check_free_under("", bytes); }

bool ht_memory_check_free_on(ht_device *d, size_t *bytes) {
    return ht_memory_is_host(d->memory) ? ht_memory_check_free(bytes) : ht_memory_left(d->memory, bytes);
}

size_t ht_memory_check_used_on(ht_device *d) {
    return ht_memory_is_host(d->memory) ? memory_check_resident() : ht_memory_get(d).active_bytes;
}

size_t ht_memory_check_kv_bytes(ht_device *d) {
    size_t available;
    return ht_memory_check_free_on(d, &available) ? available / 2 : (size_t)1 << 30;
}

bool ht_memory_available(size_t *bytes) {
    *bytes = 0;
    return ht_memory_check_free(bytes);
}

/* KV cache bytes for `positions`, in whole pages. */
static size_t kv_bytes(const ht_memory_check_wanted *w, ht_dtype dtype, int64_t positions) {
    return ht_kv_bytes(w->kv, w->n_cache_layers, dtype, w->page_bytes, positions, w->step_rows, w->context);
}

const char *ht_memory_check_text(size_t bytes, char out[32]) {
    double v = (double)bytes;
    if (v >= 1e9)
        snprintf(out, 32, "%.2f GB", v / 1e9);
    else
        snprintf(out, 32, "%.1f MB", v / 1e6);
    return out;
}

/* Most positions, in whole pages, whose K and V fit in `bytes`. */
static int64_t positions_that_fit(const ht_memory_check_wanted *w, ht_dtype dtype, size_t bytes) {
    int64_t low = 0, high = w->positions / HT_KV_PAGE;
    while (low < high) {
        int64_t middle = (low + high + 1) / 2;
        if (kv_bytes(w, dtype, middle * HT_KV_PAGE) <= bytes)
            low = middle;
        else
            high = middle - 1;
    }
    return low * HT_KV_PAGE;
}

/* Writes a hint: which smaller setting would fit. */
static void find_remedy(const ht_memory_check_wanted *w, size_t free_bytes, char *out, size_t size) {
    const size_t taken = w->weight_bytes + w->arena_bytes, left = free_bytes > taken ? free_bytes - taken : 0;
    const int64_t fit = positions_that_fit(w, w->kv_dtype, left);
    const bool halves = w->kv_dtype == HT_F32 && kv_bytes(w, HT_F16, w->positions) <= left;
    const bool quarters = w->kv_dtype != HT_I8 && kv_bytes(w, HT_I8, w->positions) <= left;
    if (free_bytes < taken || !w->positions)
        snprintf(out, size, "a smaller or more strongly quantised model would fit");
    else if (halves)
        snprintf(out, size, "a KV cache of f16 would fit (--kv f16)");
    else if (quarters)
        snprintf(out, size, "a KV cache of 8 bits would fit (--kv q8)");
    else if (fit > 0)
        snprintf(out, size, "a context of %lld position%s would fit (--context %lld)", (long long)fit, ht_plural(fit),
                 (long long)fit);
    else
        snprintf(out, size, "a smaller or more strongly quantised model would fit");
}

ht_status ht_memory_check(const ht_memory_check_wanted *w, size_t free_bytes, ht_error *err) {
    const size_t kv = kv_bytes(w, w->kv_dtype, w->positions);
    size_t sum;
    if (ht_add_size(w->weight_bytes, kv, &sum) && ht_add_size(sum, w->arena_bytes, &sum) && sum <= free_bytes)
        return HT_OK;
    char weights_text[32], kv_text[32], arena_text[32], free_text[32], arena[64] = "", remedy[160];
    const char *on = w->where ? " on " : "", *where = w->where ? w->where : "";
    ht_memory_check_text(w->weight_bytes, weights_text);
    ht_memory_check_text(kv, kv_text);
    ht_memory_check_text(free_bytes, free_text);
    if (w->weight_bytes > free_bytes)
        return ht_fail(err, HT_ERR_LIMIT,
                       "%s needs %s for its weights, but only %s of memory are free%s%s; a smaller or more strongly "
                       "quantised model would fit",
                       w->name, weights_text, free_text, on, where);
    if (w->arena_bytes)
        snprintf(arena, sizeof arena, "%s to compute in and ", ht_memory_check_text(w->arena_bytes, arena_text));
    find_remedy(w, free_bytes, remedy, sizeof remedy);
    return ht_fail(err, HT_ERR_LIMIT,
                   "%s needs %s for its weights%s %s%s for the KV cache of %lld position%s, but only %s of memory are "
                   "free%s%s; %s",
                   w->name, weights_text, *arena ? "," : " and", arena, kv_text, (long long)w->positions,
                   ht_plural(w->positions), free_text, on, where, remedy);
}

ht_status ht_memory_check_step(const char *where, int64_t n_tokens, size_t bytes, size_t free_bytes, ht_error *err) {
    char bytes_text[32], free_text[32];
    if (bytes <= free_bytes) return HT_OK;
    return ht_fail(err, HT_ERR_MEMORY,
                   "a text of %lld tokens needs %s to compute in, but only %s of memory are free%s%s; a shorter text "
                   "would fit",
                   (long long)n_tokens, ht_memory_check_text(bytes, bytes_text),
                   ht_memory_check_text(free_bytes, free_text), where ? " on " : "", where ? where : "");
}
