/* The tokenizer on one thread: how long until a vocabulary is ready, and how long each text takes to encode.
 *
 *   bench_tokenizer MODEL TEXT_FILE...
 *
 * Prints one JSON object: "ready" in seconds, and for every text "bytes", "ids" and "seconds", of a first encoding. */
#include "base/file.h"

#include <hearth/tokenizer.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static ht_status encode_file(const ht_tokenizer *t, const char *path, bool first, ht_error *err) {
    char *text;
    size_t n, n_ids;
    int32_t *ids;
    ht_status status = ht_file_read_all(path, (size_t)1 << 30, &text, &n, err);
    if (status) return status;
    double begin = now();
    status = ht_tokenizer_encode(t, text, n, HT_ENCODE_PARSE_SPECIAL, &ids, &n_ids, err);
    double seconds = now() - begin;
    if (!status) printf("%s{\"bytes\": %zu, \"ids\": %zu, \"seconds\": %.6f}", first ? "" : ", ", n, n_ids, seconds);
    ht_ids_free(ids);
    free(text);
    return status;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: bench_tokenizer MODEL TEXT_FILE...\n");
        return 2;
    }
    ht_error err = {0};
    ht_tokenizer *t;
    double begin = now();
    ht_status status = ht_tokenizer_load(argv[1], &t, &err);
    double ready = now() - begin;
    if (!status) printf("{\"ready\": %.6f, \"texts\": [", ready);
    for (int i = 2; i < argc && !status; i++) status = encode_file(t, argv[i], i == 2, &err);
    if (!status) printf("]}\n");
    ht_tokenizer_free(t);
    if (status) fprintf(stderr, "bench_tokenizer: %s\n", err.message);
    return status ? 1 : 0;
}
