#include "pull_hash.h"

#include "fail.h"
#include "terminal.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct pull_hash {
    EVP_MD_CTX *digest;
    const EVP_MD *kind;
    bool blob;    /* git's: a head with the size comes first */
    int64_t size; /* of the file */
};

ht_status pull_hash_new(const hub_file *f, pull_hash **out, ht_error *err) {
    const bool blob = strncmp(f->hash, "git:", 4) == 0;
    const bool sha1 = blob && strlen(f->hash) == 4 + 40; /* else of a repository in git's newer format */
    pull_hash *h = *out = malloc(sizeof *h);
    if (!h) return fail_memory(err, "a hash");
    *h = (pull_hash){
        .digest = EVP_MD_CTX_new(), .kind = sha1 ? EVP_sha1() : EVP_sha256(), .blob = blob, .size = f->size};
    if (h->digest && pull_hash_restart(h)) return HT_OK;
    pull_hash_free(h);
    *out = NULL;
    return fail_with(err, HT_ERR_UNSUPPORTED, "%s cannot be computed by this system's OpenSSL",
                     sha1 ? "SHA-1" : "SHA-256");
}

void pull_hash_free(pull_hash *h) {
    if (h) EVP_MD_CTX_free(h->digest);
    free(h);
}

bool pull_hash_restart(pull_hash *h) {
    char head[40];
    const int n = snprintf(head, sizeof head, "blob %lld", (long long)h->size);
    return EVP_DigestInit_ex(h->digest, h->kind, NULL) == 1 && (!h->blob || pull_hash_add(h, head, (size_t)n + 1));
}

bool pull_hash_add(pull_hash *h, const void *bytes, size_t n) { return EVP_DigestUpdate(h->digest, bytes, n) == 1; }

bool pull_hash_end(pull_hash *h, char out[HASH_BYTES]) {
    unsigned char value[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    if (EVP_DigestFinal_ex(h->digest, value, &n) != 1) return false;
    int used = snprintf(out, HASH_BYTES, "%s:", h->blob ? "git" : "sha256");
    for (unsigned i = 0; i < n && used + 2 < HASH_BYTES; i++)
        used += snprintf(out + used, (size_t)(HASH_BYTES - used), "%02x", value[i]);
    return true;
}

ht_status pull_hash_file(pull_hash *h, int fd, int64_t n, const char *path, ht_error *err) {
    enum { PIECE = 1 << 20 };
    unsigned char *piece = malloc(PIECE);
    ht_status st = piece ? HT_OK : fail_memory(err, "reading a file");
    for (int64_t at = 0; at < n && !st;) {
        const ssize_t got = pread(fd, piece, n - at < PIECE ? (size_t)(n - at) : PIECE, (off_t)at);
        if (got < 0 && errno == EINTR && !interrupted()) continue;
        if (interrupted())
            st = fail_with(err, HT_ERR_CANCELLED, "interrupted");
        else if (got < 0)
            st = fail_system(err, path, "read");
        else if (got == 0)
            st = fail_with(err, HT_ERR_IO, "%.300s has become shorter while it was read", path);
        else if (!pull_hash_add(h, piece, (size_t)got))
            st = fail_with(err, HT_ERR_INTERNAL, "%.300s: its hash cannot be computed", path);
        else
            at += got;
    }
    free(piece);
    return st;
}
