/* Batches beside the same work one by one, and classification beside prefill: for bench/batch.py.
 *
 * Prompts are ids without pattern, all different, so that nothing is shared. Work is done in turns within the process, after a round to warm up; each
 * round is one JSON object on standard output. */
#include "bench.h"

#include <hearth/hearth.h>

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CHUNK = 512 };

typedef struct settings {
    const char *model;
    int threads, rounds, prompts, prompt_tokens, generated, sequences;
    double pace;
} settings;

typedef struct work {
    settings s;
    ht_model *model;
    ht_session *session;
    int32_t *ids;        /* [prompts, prompt_tokens] */
    ht_prompt *prompt;   /* [prompts] */
    ht_request *request; /* [prompts] */
    const ht_request **requests;
    ht_generate_options how;
    int64_t generated;
} work;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void check(ht_status status, const ht_error *err) {
    if (!status) return;
    fprintf(stderr, "%s\n", err->message);
    exit(1);
}

/* ---- what is measured ---- */

static double one_by_one(work *w) {
    const double begin = now();
    ht_error err = {0};
    w->generated = 0;
    for (int i = 0; i < w->s.prompts; i++) {
        ht_metrics metrics;
        ht_session_reset(w->session);
        check(ht_generate(w->session, w->prompt[i].ids, w->prompt[i].n_ids, &w->how, NULL, NULL, &metrics, &err), &err);
        w->generated += metrics.generated_tokens;
    }
    return (double)w->generated / (now() - begin);
}

static bool count(const ht_batch_result *result, void *user) {
    work *w = user;
    if (result->status || result->answers[0].report->status) exit(1);
    w->generated += result->answers[0].report->metrics.generated_tokens;
    return true;
}

static double batch(work *w) {
    ht_engine_options engine;
    ht_engine_options_init(&engine, sizeof engine);
    if (w->s.sequences) engine.sequences = w->s.sequences;
    if (w->s.pace > 0) engine.prefill_budget = w->s.pace;
    ht_batch_options o;
    ht_batch_options_init(&o, sizeof o);
    if (w->s.sequences) o.engine = &engine;
    const double begin = now();
    ht_error err = {0};
    w->generated = 0;
    check(ht_batch_generate(w->model, w->requests, (size_t)w->s.prompts, &o, count, w, &err), &err);
    return (double)w->generated / (now() - begin);
}

static bool take(const ht_classification *result, void *user) {
    (void)user;
    return !result->status;
}

static double classify(work *w) {
    const double begin = now();
    ht_error err = {0};
    check(ht_classify(w->model, w->prompt, (size_t)w->s.prompts, NULL, take, NULL, &err), &err);
    return (double)w->s.prompts * w->s.prompt_tokens / (now() - begin);
}

static bool ignore(const float *logits, int64_t first, int64_t n_rows, int32_t vocab, void *user) {
    (void)logits, (void)first, (void)n_rows, (void)vocab, (void)user;
    return true;
}

static double prefill(work *w) {
    ht_error err = {0};
    ht_session_reset(w->session);
    const double begin = now();
    check(ht_session_forward(w->session, w->ids, CHUNK, NULL, ignore, NULL, &err), &err);
    return (double)CHUNK / (now() - begin);
}

/* ---- set up ---- */

static void make_prompts(work *w) {
    const size_t n = (size_t)w->s.prompts, length = (size_t)w->s.prompt_tokens, all = n * length;
    const int32_t vocab = ht_model_vocab_size(w->model);
    w->ids = calloc(all < CHUNK ? CHUNK : all, sizeof *w->ids);
    w->prompt = calloc(n, sizeof *w->prompt);
    w->request = calloc(n, sizeof *w->request);
    w->requests = calloc(n, sizeof *w->requests);
    if (!w->ids || !w->prompt || !w->request || !w->requests) exit(1);
    for (size_t i = 0; i < (all < CHUNK ? CHUNK : all); i++)
        w->ids[i] = 300 + (int32_t)((i * 7919 + i / length * 104729 + 13) % (size_t)(vocab - 400));
    ht_generate_options_init(&w->how, sizeof w->how);
    w->how.sampler = greedy();
    w->how.max_tokens = w->s.generated;
    w->how.ignore_eos = true;
    for (size_t i = 0; i < n; i++) {
        w->prompt[i] = (ht_prompt){.ids = w->ids + i * length, .n_ids = length};
        ht_request_init(&w->request[i], sizeof w->request[i]);
        w->request[i].ids = w->prompt[i].ids;
        w->request[i].n_ids = length;
        w->request[i].options = &w->how;
        w->requests[i] = &w->request[i];
    }
}

static void open_work(work *w) {
    ht_error err = {0};
    ht_device_options device;
    ht_device_options_init(&device, sizeof device);
    device.n_threads = w->s.threads;
    ht_model_options model;
    ht_model_options_init(&model, sizeof model);
    check(ht_device_open("cpu", &device, &model.device, &err), &err);
    check(ht_model_load(w->s.model, &model, &w->model, &err), &err);
    ht_device_free(model.device);
    check(ht_session_new(w->model, NULL, &w->session, &err), &err);
    make_prompts(w);
}

static void close_work(work *w) {
    ht_session_free(w->session);
    ht_model_free(w->model);
    free(w->ids);
    free(w->prompt);
    free(w->request);
    free((void *)w->requests);
}

int main(int argc, char **argv) {
    work w = {.s = {.threads = 2, .rounds = 3, .prompts = 64, .prompt_tokens = 64, .generated = 64}};
    for (int c; (c = getopt(argc, argv, "t:r:n:p:g:s:a:")) != -1;) {
        const int value = atoi(optarg ? optarg : "0");
        switch (c) {
        case 't': w.s.threads = value; break;
        case 'r': w.s.rounds = value; break;
        case 'n': w.s.prompts = value; break;
        case 'p': w.s.prompt_tokens = value; break;
        case 'g': w.s.generated = value; break;
        case 's': w.s.sequences = value; break;
        case 'a': w.s.pace = atof(optarg); break;
        default: return 2;
        }
    }
    if (optind + 1 != argc || w.s.rounds < 1 || w.s.prompts < 1 || w.s.prompt_tokens < 1 || w.s.generated < 0) {
        fprintf(stderr, "bench_batch [-t threads] [-r rounds] [-n prompts] [-p prompt tokens] [-g generated] [-s "
                        "sequences] MODEL\n");
        return 2;
    }
    w.s.model = argv[optind];
    open_work(&w);
    for (int i = -1; i < w.s.rounds; i++) {
        const double before = prefill(&w), classified = classify(&w), after = prefill(&w);
        double alone = 0, together = 0;
        if (w.s.generated) {
            /* The first round warms up alone: one by one takes long. */
            if (i >= 0) alone = one_by_one(&w);
            together = batch(&w);
        }
        if (i < 0) continue;
        printf("{\"prefill_tokens_per_second\": %.2f, \"classify_tokens_per_second\": %.2f, "
               "\"alone_tokens_per_second\": %.2f, \"batch_tokens_per_second\": %.2f}\n",
               (before + after) / 2, classified, alone, together);
        fflush(stdout);
    }
    close_work(&w);
    return 0;
}
