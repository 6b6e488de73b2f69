#include "http/keys.h"

#include "base/checked.h"
#include "base/grow.h"
#include "http/error.h"
#include "http/text.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES = 1 << 20 };

struct http_keys {
    size_t n;
    unsigned char (*hash)[SHA256_DIGEST_LENGTH];
};

static bool add(http_keys *keys, const char *key, size_t n) {
    if (!HT_GROW_ONE(keys->hash, keys->n)) return false;
    SHA256((const unsigned char *)key, n, keys->hash[keys->n++]);
    return true;
}

static bool is_visible(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (s[i] < 0x21 || s[i] > 0x7E) return false;
    return true;
}

static ht_status take_line(http_keys *keys, const char *name, size_t number, const char *line, size_t n,
                           ht_error *err) {
    while (n && strchr(" \t\r", *line) && *line) line++, n--;
    while (n && strchr(" \t\r", line[n - 1]) && line[n - 1]) n--;
    if (n == 0 || *line == '#') return HT_OK;
    if (!is_visible(line, n))
        return http_fail(err, HT_ERR_FORMAT, "%.500s: line %zu is no key: it has a character that is not visible ASCII",
                         name, number);
    return add(keys, line, n) ? HT_OK : http_fail_memory(err, "the list of keys");
}

ht_status http_keys_parse(const char *name, const char *bytes, size_t n, http_keys **out, ht_error *err) {
    static const char mark[] = "\xEF\xBB\xBF"; /* byte order mark */
    http_keys *keys = *out = NULL;
    if (n >= strlen(mark) && memcmp(bytes, mark, strlen(mark)) == 0) bytes += strlen(mark), n -= strlen(mark);
    if (!(keys = calloc(1, sizeof *keys))) return http_fail_memory(err, "the list of keys");
    ht_status st = HT_OK;
    size_t number = 0;
    for (const char *line = bytes, *end = bytes + n; line < end && !st;) {
        const char *newline = memchr(line, '\n', (size_t)(end - line)), *stop = newline ? newline : end;
        st = take_line(keys, name, ++number, line, (size_t)(stop - line), err);
        line = newline ? newline + 1 : end;
    }
    if (!st && keys->n == 0) st = http_fail(err, HT_ERR_FORMAT, "%.500s has no key: one a line is expected", name);
    if (st)
        http_keys_free(keys);
    else
        *out = keys;
    return st;
}

ht_status http_keys_load(const char *path, http_keys **out, ht_error *err) {
    *out = NULL;
    FILE *file = fopen(path, "rb");
    if (!file) return http_fail_system(err, errno, path, "opened");
    char *bytes = malloc(FILE_BYTES + 1);
    ht_status st = bytes ? HT_OK : http_fail_memory(err, "the file of keys");
    if (!st) {
        const size_t n = fread(bytes, 1, FILE_BYTES + 1, file);
        if (ferror(file))
            st = http_fail_system(err, errno, path, "read");
        else if (n > FILE_BYTES)
            st = http_fail(err, HT_ERR_LIMIT, "%.500s is larger than %d bytes, which is no list of keys", path,
                           FILE_BYTES);
        else
            st = http_keys_parse(path, bytes, n, out, err);
        OPENSSL_cleanse(bytes, FILE_BYTES + 1);
    }
    free(bytes);
    fclose(file);
    return st;
}

void http_keys_free(http_keys *keys) {
    if (!keys) return;
    free(keys->hash);
    free(keys);
}

static ssize_t find(const http_keys *keys, const char *key) {
    unsigned char hash[SHA256_DIGEST_LENGTH];
    ssize_t found = -1;
    SHA256((const unsigned char *)key, strlen(key), hash);
    for (size_t i = 0; i < keys->n; i++) {
        const ssize_t differs = CRYPTO_memcmp(hash, keys->hash[i], sizeof hash) != 0;
        found = differs * found + (1 - differs) * (ssize_t)i; /* without a branch */
    }
    return found;
}

ssize_t http_keys_admit(const http_keys *keys, const http_head *head) {
    const char *bearer = http_head_value(head, "authorization"), *key = http_head_value(head, "x-api-key");
    ssize_t found = -1;
    if (bearer) {
        char scheme[8] = "";
        for (size_t i = 0; i < sizeof scheme - 1 && bearer[i]; i++) scheme[i] = http_lower(bearer[i]);
        if (strcmp(scheme, "bearer ") == 0) found = find(keys, bearer + 7 + strspn(bearer + 7, " "));
    }
    return found < 0 && key ? find(keys, key) : found;
}
