/* hearth bench: how fast prompts are read and text is written, over several rounds.
 *
 * Prefill and decoding are measured apart, each from an empty cache (or one filled with --depth tokens first). */
#include "command.h"
#include "engine.h"
#include "json.h"
#include "terminal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct series {
    double *values;
    int n;
} series;

typedef struct bench {
    const options *o;
    engine e;
    int32_t *ids; /* [longest of prompt and depth], any valid ones: the work does not depend on which */
    int32_t n_prompt, n_decode, depth;
    series prefill, decode, first_token_ms;
} bench;

static double mean(const series *s) {
    double sum = 0;
    for (int i = 0; i < s->n; i++) sum += s->values[i];
    return s->n ? sum / s->n : 0;
}

/* Of the sample, so with n - 1. */
static double deviation(const series *s) {
    double sum = 0, m = mean(s);
    for (int i = 0; i < s->n; i++) sum += (s->values[i] - m) * (s->values[i] - m);
    return s->n > 1 ? sqrt(sum / (s->n - 1)) : 0;
}

static bool keep_going(const char *text, size_t n, void *user) {
    (void)text, (void)n, (void)user;
    return !interrupted();
}

static bool ignore_logits(const float *logits, int64_t first, int64_t n_rows, int32_t vocab, void *user) {
    (void)logits, (void)first, (void)n_rows, (void)vocab, (void)user;
    return !interrupted();
}

static ht_status start_at_depth(bench *b, ht_error *err) {
    ht_session_reset(b->e.session);
    if (b->depth == 0) return HT_OK;
    return ht_session_forward(b->e.session, b->ids, (size_t)b->depth, false, ignore_logits, NULL, err);
}

static ht_status generate(bench *b, int32_t n_prompt, int32_t n_tokens, ht_metrics *metrics, ht_error *err) {
    ht_generate_options how = {.max_tokens = n_tokens, .sampler = options_sampler(b->o), .ignore_eos = true};
    ht_status st = start_at_depth(b, err);
    if (!st) st = ht_generate(b->e.session, b->ids, (size_t)n_prompt, &how, keep_going, NULL, metrics, err);
    if (!st && metrics->finish == HT_FINISH_CALLBACK) {
        snprintf(err->message, sizeof err->message, "interrupted: nothing was measured to the end");
        st = err->status = HT_ERR_CANCELLED;
    }
    return st;
}

static ht_status measure_round(bench *b, ht_error *err) {
    ht_metrics m;
    ht_status st = HT_OK;
    if (b->n_prompt) {
        st = generate(b, b->n_prompt, 1, &m, err);
        if (st) return st;
        b->prefill.values[b->prefill.n++] = b->n_prompt / m.prefill_seconds;
        b->first_token_ms.values[b->first_token_ms.n++] = m.first_token_seconds * 1e3;
    }
    if (b->n_decode) {
        /* The first token belongs to reading the one-token prompt; the n after it are decoding. */
        st = generate(b, 1, b->n_decode + 1, &m, err);
        if (!st) b->decode.values[b->decode.n++] = (double)(m.generated_tokens - 1) / m.decode_seconds;
    }
    return st;
}

static ht_status measure(bench *b, int rounds, ht_error *err) {
    progress show;
    progress_begin(&show, "measuring", b->o->quiet);
    ht_status st = HT_OK;
    for (int i = 0; i <= rounds && !st; i++) {
        /* Round 0 warms up: caches, page tables, clocks. */
        if (i == 1) b->prefill.n = b->decode.n = b->first_token_ms.n = 0;
        st = measure_round(b, err);
        progress_show(&show, (double)(i + 1) / (rounds + 1));
    }
    progress_end(&show);
    return st;
}

/* The positions that a round takes, with the token that generating holds back. */
static int64_t prefill_positions(const bench *b) { return b->n_prompt ? b->depth + (int64_t)b->n_prompt + 1 : 0; }
static int64_t decode_positions(const bench *b) { return b->n_decode ? b->depth + (int64_t)b->n_decode + 2 : 0; }
static int64_t round_positions(const bench *b) {
    int64_t prefill = prefill_positions(b), decode = decode_positions(b);
    return prefill > decode ? prefill : decode;
}

/* Before anything is computed: whether a whole round fits. */
static ht_status check_context(const bench *b, ht_error *err) {
    long long positions = round_positions(b), context = ht_model_context(b->e.model);
    if (positions <= context) return HT_OK;
    snprintf(err->message, sizeof err->message, "a round takes %lld positions, the context has %lld: choose less of %s",
             positions, context,
             b->depth                                     ? "--depth, -p or -n"
             : prefill_positions(b) > decode_positions(b) ? "-p"
                                                          : "-n");
    return err->status = HT_ERR_LIMIT;
}

/* Buffers for `rounds` rounds and the ids; false when memory ran out. */
static bool prepare(bench *b, int rounds) {
    size_t n = (size_t)(b->n_prompt > b->depth ? b->n_prompt : b->depth) + 1;
    int32_t vocab = ht_model_vocab_size(b->e.model);
    series *all[] = {&b->prefill, &b->decode, &b->first_token_ms};
    b->ids = malloc(n * sizeof *b->ids);
    bool good = b->ids != NULL;
    for (int i = 0; i < 3; i++) {
        all[i]->values = calloc((size_t)rounds + 1, sizeof(double));
        good = good && all[i]->values;
    }
    uint32_t state = 1;
    for (size_t i = 0; good && i < n; i++) {
        state = state * 1664525u + 1013904223u;
        b->ids[i] = (int32_t)((state >> 8) % (uint32_t)vocab);
    }
    return good;
}

static bool print_json(const bench *b) {
    ht_device *d = b->e.device;
    json_t *value = json_pack("{so ss si si si si si}", "model", json_path(b->o->model), "instruction_set",
                              ht_device_instruction_set(d), "threads", ht_device_threads(d), "prompt_tokens",
                              (int)b->n_prompt, "decode_tokens", (int)b->n_decode, "depth", (int)b->depth,
                              "repetitions", b->prefill.n > b->decode.n ? b->prefill.n : b->decode.n);
    struct {
        const char *name;
        double value;
    } numbers[] = {
        {"prefill_tokens_per_second", mean(&b->prefill)},
        {"prefill_deviation", deviation(&b->prefill)},
        {"decode_tokens_per_second", mean(&b->decode)},
        {"decode_deviation", deviation(&b->decode)},
        {"time_to_first_token_ms", mean(&b->first_token_ms)},
        {"time_to_first_token_deviation_ms", deviation(&b->first_token_ms)},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        json_object_set_new(value, numbers[i].name, json_real(numbers[i].value));
    json_object_set_new(value, "peak_memory_bytes", json_integer(peak_memory_bytes()));
    return json_output(value);
}

static void print_series(const char *name, int32_t n_tokens, const series *s, const char *unit) {
    char text[160];
    if (!s->n) return;
    int n = snprintf(text, sizeof text, "%-20s %6d tok  %10.2f ± %.2f %s\n", name, (int)n_tokens, mean(s), deviation(s),
                     unit);
    output_write(text, (size_t)n);
}

static void print_text(const bench *b) {
    char text[160];
    print_series("prefill", b->n_prompt, &b->prefill, "tok/s");
    print_series("decode", b->n_decode, &b->decode, "tok/s");
    print_series("time to first token", b->n_prompt, &b->first_token_ms, "ms");
    int n =
        snprintf(text, sizeof text, "%-20s %10s  %10.2f GB\n", "peak memory", "", (double)peak_memory_bytes() / 1e9);
    output_write(text, (size_t)n);
    if (b->o->quiet) return;
    fprintf(stderr, "%s, %d threads, depth %d\n", ht_device_instruction_set(b->e.device),
            ht_device_threads(b->e.device), (int)b->depth);
}

int bench_command(const options *o) {
    ht_error err = {0};
    int rounds = o->rounds > 0 ? (int)o->rounds : 5;
    bench b = {
        .o = o,
        .n_prompt = o->prompt_tokens >= 0 ? (int32_t)o->prompt_tokens : 512,
        .n_decode = o->max_tokens >= 0 ? (int32_t)o->max_tokens : 128,
        .depth = o->depth > 0 ? (int32_t)o->depth : 0,
    };
    if (!b.n_prompt && !b.n_decode) {
        fprintf(stderr, "hearth bench: with -p 0 and -n 0 there is nothing to measure (see hearth bench --help)\n");
        return EXIT_USAGE;
    }
    int status = EXIT_OK;
    ht_status st = engine_open(&b.e, o, round_positions(&b), &err);
    if (!st) st = check_context(&b, &err);
    if (!st && !prepare(&b, rounds)) {
        snprintf(err.message, sizeof err.message, "out of memory for the measurements");
        st = HT_ERR_MEMORY;
    }
    if (!st) st = measure(&b, rounds, &err);
    if (st)
        status = report(&err);
    else if (!o->json)
        print_text(&b);
    else if (!print_json(&b))
        status = EXIT_FAILED;
    engine_close(&b.e);
    free(b.ids);
    free(b.prefill.values);
    free(b.decode.values);
    free(b.first_token_ms.values);
    return output_finish(status);
}
