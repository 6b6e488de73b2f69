/* Token masks of JSON Schemas on one thread: how long until a schema is compiled, and how long each mask of a text takes.
 *
 *   bench_masks VOCABULARY              the bytes of each token, in hexadecimal digits, a line each; none for tokens without text
 *   bench_masks VOCABULARY SCHEMA TEXT_FILE... [-- SCHEMA TEXT_FILE...]...
 *
 * Prints one JSON object a line, first "vocabulary" in seconds, then for each schema "compile", and for every text, one after the other in one
 * grammar, "ids", and for each of them, and the end of the text, "mask" and "accept" in nanoseconds and "allowed", the number of tokens
 * that may come. */
#include "base/file.h"
#include "grammar/grammar.h"
#include "grammar/schema_rules.h"
#include "tokenizer/token_trie.h"

#include <hearth/tokenizer.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void print_tokens(const ht_token_trie *trie) {
    for (int32_t id = 0; id < trie->n_tokens; id++) {
        size_t n;
        const char *text = ht_token_trie_text(trie, id, &n);
        for (size_t i = 0; i < n; i++) printf("%02x", (unsigned char)text[i]);
        putchar('\n');
    }
}

typedef struct figures {
    double mask, accept;
    int allowed;
} figures;

static void print_figures(const int32_t *ids, const figures *f, size_t n_ids) {
    printf("{\"ids\": [");
    for (size_t i = 0; i < n_ids; i++) printf("%s%d", i ? ", " : "", (int)ids[i]);
    printf("], \"mask\": [");
    for (size_t i = 0; i <= n_ids; i++) printf("%s%.0f", i ? ", " : "", 1e9 * f[i].mask);
    printf("], \"accept\": [");
    for (size_t i = 0; i < n_ids; i++) printf("%s%.0f", i ? ", " : "", 1e9 * f[i].accept);
    printf("], \"allowed\": [");
    for (size_t i = 0; i <= n_ids; i++) printf("%s%d", i ? ", " : "", f[i].allowed);
    printf("]}");
}

static ht_status walk(ht_grammar *g, const ht_token_trie *trie, const int32_t *ids, size_t n_ids, figures *f,
                      ht_error *err) {
    ht_matcher *m;
    ht_status status = ht_matcher_new(g, &m, err);
    for (size_t i = 0; i <= n_ids && !status; i++) {
        const uint32_t *mask;
        bool allowed = true;
        f[i] = (figures){0};
        const double begin = now();
        status = ht_matcher_mask(m, &mask, err);
        const double made = now();
        if (!status && i < n_ids) status = ht_matcher_accept(m, ids[i], &allowed, err);
        f[i].mask = made - begin;
        f[i].accept = now() - made;
        for (size_t w = 0; w < trie->n_words && !status; w++) f[i].allowed += __builtin_popcount(mask[w]);
        if (allowed) continue;
        fprintf(stderr, "bench_masks: token %zu of the text, %d, is not allowed\n", i, (int)ids[i]);
        exit(1);
    }
    ht_matcher_free(m);
    return status;
}

static ht_status walk_file(ht_grammar *g, const ht_tokenizer *t, const ht_token_trie *trie, const char *path,
                           bool first, ht_error *err) {
    char *text;
    size_t n, n_ids;
    int32_t *ids;
    ht_status status = ht_file_read_all(path, (size_t)1 << 30, &text, &n, err);
    if (status) return status;
    status = ht_tokenizer_encode(t, text, n, 0, &ids, &n_ids, err);
    free(text);
    if (status) return status;
    figures *f = calloc(n_ids + 1, sizeof *f);
    if (f) status = walk(g, trie, ids, n_ids, f, err);
    if (f && !status) {
        if (!first) printf(", ");
        print_figures(ids, f, n_ids);
    }
    free(f);
    ht_ids_free(ids);
    return status;
}

static ht_status measure(const ht_tokenizer *t, const ht_token_trie *trie, char **paths, int n_paths, ht_error *err) {
    char *schema;
    size_t n;
    ht_rules *rules;
    ht_grammar *g = NULL;
    const int32_t eos = ht_tokenizer_eos(t);
    ht_schema_options options;
    ht_schema_options_init(&options, sizeof options);
    options.ordered = options.closed = false; /* all texts that are valid, which takes most */
    ht_status status = ht_file_read_all(paths[0], (size_t)1 << 30, &schema, &n, err);
    if (status) return status;
    const double begin = now();
    status = ht_schema_compile(schema, n, &options, &rules, err);
    if (!status) status = ht_grammar_new(rules, trie, &eos, 1, NULL, &g, err);
    if (!status) printf("{\"compile\": %.6f, \"texts\": [", now() - begin);
    for (int i = 1; i < n_paths && !status; i++) status = walk_file(g, t, trie, paths[i], i == 1, err);
    if (!status) printf("]}\n");
    ht_grammar_free(g);
    free(schema);
    return status;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: bench_masks VOCABULARY [SCHEMA TEXT_FILE... [-- SCHEMA TEXT_FILE...]...]\n");
        return 2;
    }
    ht_error err = {0};
    ht_tokenizer *t;
    ht_token_trie *trie = NULL;
    ht_status status = ht_tokenizer_load(argv[1], &t, &err);
    const double begin = now();
    if (!status) status = ht_token_trie_new(t, &trie, &err);
    if (!status && argc == 2)
        print_tokens(trie);
    else if (!status)
        printf("{\"vocabulary\": %.6f}\n", now() - begin);
    for (int i = 2, end = 2; i < argc && !status; i = ++end) {
        while (end < argc && strcmp(argv[end], "--")) end++;
        status = measure(t, trie, argv + i, end - i, &err);
    }
    ht_token_trie_free(trie);
    ht_tokenizer_free(t);
    if (status) fprintf(stderr, "bench_masks: %s\n", err.message);
    return status ? 1 : 0;
}
