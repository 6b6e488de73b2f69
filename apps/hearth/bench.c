/* hearth bench: prefill and decode speed over several rounds, and the part of the machine's limit that each of them is.
 *
 * Prefill and decoding are measured apart, each from an empty cache (or one filled with --depth tokens first), and right
 * before and after each of them what the machine can do at best: it gives more in one second than in the next. */
#include "bench.h"

#include "command.h"
#include "model_path.h"
#include "terminal.h"

#include <stdio.h>
#include <stdlib.h>

/* Of one probe, and the most memory one reads: beyond a gigabyte no cache is left that could matter. */
static const double read_seconds = 0.05, compute_seconds = 0.03;
static const int64_t most_read_bytes = (int64_t)1 << 30;

static bool ignore_text(const char *text, size_t n, void *user) {
    (void)text, (void)n, (void)user;
    return true;
}

ht_forward_options bench_forward_options(void) {
    ht_forward_options how;
    ht_forward_options_init(&how, sizeof how);
    how.cancel = interrupt_flag();
    return how;
}

/* With a message for whoever waited for figures. */
ht_status bench_status(ht_status st, ht_error *err) {
    if (st == HT_ERR_CANCELLED)
        snprintf(err->message, sizeof err->message, "interrupted: nothing was measured to the end");
    return st;
}

static ht_status start_at_depth(bench *b, ht_error *err) {
    ht_session_reset(b->e.session);
    if (b->depth == 0) return HT_OK;
    const ht_forward_options how = bench_forward_options();
    return ht_session_forward(b->e.session, b->ids, (size_t)b->depth, &how, NULL, NULL, err);
}

/* The most likely tokens unless an option says otherwise: a model's own values are of its answers. */
static ht_sampler_options sampler_of(const bench *b) {
    ht_sampler_options s = options_sampler(b->o);
    if (!options_given(b->o, "temperature")) s.temperature = 0;
    if (!options_given(b->o, "repeat-penalty")) s.repeat_penalty = 1;
    if (!options_given(b->o, "presence-penalty")) s.presence_penalty = 0;
    if (!options_given(b->o, "frequency-penalty")) s.frequency_penalty = 0;
    return s;
}

static ht_status generate(bench *b, int32_t n_prompt, int32_t n_tokens, ht_metrics *metrics, ht_error *err) {
    const ht_sampler_options sampler = sampler_of(b);
    ht_generate_options how;
    ht_generate_options_init(&how, sizeof how);
    how.max_tokens = n_tokens;
    how.sampler = &sampler;
    how.ignore_eos = true;
    how.cancel = interrupt_flag();
    ht_text_fn *each = ht_model_tokenizer(b->e.model) ? ignore_text : NULL; /* ids without a text are measured, too */
    ht_status st = start_at_depth(b, err);
    if (!st) st = ht_generate(b->e.session, b->ids, (size_t)n_prompt, &how, each, NULL, metrics, err);
    return bench_status(st, err);
}

/* ---- what the machine can do at best ---- */

static bool uses(const bench *b, int a) { return b->layer_products[a] || b->head_products[a]; }

/* Adds what each arithmetic of the model reaches to `rates`; one half, as it is called before and after. */
static void probe_compute(bench *b, double rates[HT_ARITHMETICS]) {
    for (int a = 0; b->meter && a < HT_ARITHMETICS; a++)
        if (uses(b, a)) rates[a] += ht_meter_compute(b->meter, (ht_arithmetic)a, compute_seconds) / 2;
}

static double probe_read(bench *b) { return b->meter ? ht_meter_read(b->meter, read_seconds) / 2 : 0; }

/* The seconds that the products of the prompt take at best; only its last row meets the head. */
static double least_seconds(const bench *b, const double rates[HT_ARITHMETICS]) {
    double seconds = 0;
    for (int a = 0; a < HT_ARITHMETICS; a++) {
        double products = (double)b->layer_products[a] * b->n_prompt + (double)b->head_products[a];
        if (uses(b, a) && rates[a] > 0) seconds += 2 * products / rates[a];
    }
    return seconds;
}

/* ---- rounds ---- */

static ht_status measure_prefill(bench *b, ht_error *err) {
    ht_metrics m;
    double rates[HT_ARITHMETICS] = {0};
    probe_compute(b, rates);
    ht_status st = generate(b, b->n_prompt, 1, &m, err);
    if (st) return st;
    probe_compute(b, rates);
    series_add(&b->series[PREFILL], b->n_prompt / m.prefill_seconds);
    series_add(&b->series[FIRST_TOKEN], m.first_token_seconds * 1e3);
    if (!b->meter) return HT_OK;
    series_add(&b->series[OF_PEAK], least_seconds(b, rates) / m.prefill_seconds);
    for (int a = 0; a < HT_ARITHMETICS; a++)
        if (uses(b, a)) series_add(&b->series[PEAK + a], rates[a]);
    return HT_OK;
}

static ht_status measure_decode(bench *b, ht_error *err) {
    ht_metrics m;
    double read = probe_read(b);
    /* The first token belongs to reading the one-token prompt; the n after it are decoding. */
    ht_status st = generate(b, 1, b->n_decode + 1, &m, err);
    if (st) return st;
    read += probe_read(b);
    double rate = (double)(m.generated_tokens - 1) / m.decode_seconds;
    series_add(&b->series[DECODE], rate);
    if (!b->meter) return HT_OK;
    series_add(&b->series[READ], read);
    series_add(&b->series[OF_READ], rate * (double)(b->bytes_per_token + b->kv_bytes_per_token) / read);
    return HT_OK;
}

static ht_status measure_round(bench *b, ht_error *err) {
    ht_status st = b->n_prompt ? measure_prefill(b, err) : HT_OK;
    if (!st && b->n_decode) st = measure_decode(b, err);
    if (!st && b->n_together) st = bench_together(b, err);
    return st;
}

/* Round 0 warms up: caches, page tables, clocks. By its end all memory is in use that the work needs. */
static ht_status after_warm_up(bench *b, ht_error *err) {
    for (int i = 0; i < N_SERIES; i++) b->series[i].n = 0;
    b->peak_bytes = peak_memory_bytes();
    int64_t bytes = b->bytes_per_token < most_read_bytes ? b->bytes_per_token : most_read_bytes;
    const ht_status st = ht_meter_new(b->e.device, (size_t)bytes, &b->meter, err);
    return st == HT_ERR_UNSUPPORTED ? HT_OK : st; /* parts of the machine are left out then */
}

/* Keys and values that a token reads, in layers that do not slide: of all positions before it. */
static int64_t kv_bytes_per_token(const bench *b) {
    ht_model_info *info;
    ht_error ignored = {0};
    char *path;
    if (model_path(b->o->model, &path, &ignored)) return 0;
    const ht_status st = ht_model_info_read(path, &info, &ignored);
    free(path);
    if (st) return 0;
    const int64_t bytes = ht_model_info_kv_bytes_per_position(info, options_kv_dtype(b->o));
    ht_model_info_free(info);
    return bytes * (b->depth + b->n_decode / 2);
}

static ht_status measure(bench *b, int rounds, ht_error *err) {
    progress show;
    progress_begin(&show, "measuring", b->o->quiet);
    for (int a = 0; a < HT_ARITHMETICS; a++) {
        b->layer_products[a] = ht_model_layer_products(b->e.model, (ht_arithmetic)a);
        b->head_products[a] = ht_model_head_products(b->e.model, (ht_arithmetic)a);
    }
    b->bytes_per_token = ht_model_token_bytes(b->e.model, sampler_of(b).temperature == 0);
    b->kv_bytes_per_token = kv_bytes_per_token(b);
    ht_status st = HT_OK;
    for (int i = 0; i <= rounds && !st; i++) {
        st = measure_round(b, err);
        if (i == 0 && !st) st = after_warm_up(b, err);
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
    snprintf(err->message, sizeof err->message,
             "a round takes %lld position%s, the context has %lld: choose less of %s", positions, plural(positions),
             context,
             b->depth                                     ? "--depth, -p or -n"
             : prefill_positions(b) > decode_positions(b) ? "-p"
                                                          : "-n");
    return err->status = HT_ERR_LIMIT;
}

static ht_status out_of_memory(ht_error *err) {
    snprintf(err->message, sizeof err->message, "out of memory for the measurements");
    return err->status = HT_ERR_MEMORY;
}

static ht_status open_sessions(bench *b, ht_error *err) {
    size_t n = (size_t)b->n_together;
    if (!n) return HT_OK;
    b->sessions = calloc(n, sizeof *b->sessions);
    b->next = calloc(n, sizeof *b->next);
    if (!b->sessions || !b->next) return out_of_memory(err);
    ht_status st = HT_OK;
    for (size_t i = 0; i < n && !st; i++) st = engine_session(&b->e, b->o, &b->sessions[i], err);
    return st;
}

/* Room for the figures of all rounds, the ids and the sessions. */
static ht_status prepare(bench *b, int rounds, ht_error *err) {
    size_t n = (size_t)(b->n_prompt > b->depth ? b->n_prompt : b->depth) + 1;
    int32_t vocab = ht_model_vocab_size(b->e.model);
    b->ids = malloc(n * sizeof *b->ids);
    bool good = b->ids != NULL;
    for (int i = 0; i < N_SERIES; i++) {
        b->series[i].values = calloc((size_t)rounds + 1, sizeof(double));
        good = good && b->series[i].values;
    }
    if (!good) return out_of_memory(err);
    uint32_t state = 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        b->ids[i] = (int32_t)((state >> 8) % (uint32_t)vocab);
    }
    return open_sessions(b, err);
}

static void free_bench(bench *b) {
    ht_meter_free(b->meter);
    for (int i = 0; b->sessions && i < b->n_together; i++) ht_session_free(b->sessions[i]);
    for (int i = 0; i < N_SERIES; i++) free(b->series[i].values);
    free(b->sessions);
    free(b->next);
    free(b->ids);
    engine_close(&b->e);
}

int bench_command(const options *o) {
    if (o->report) return bench_report_command(o);
    ht_error err = {0};
    int rounds = o->rounds > 0 ? (int)o->rounds : 5;
    bench b = {
        .o = o,
        .n_prompt = o->prompt_tokens >= 0 ? (int32_t)o->prompt_tokens : 512,
        .n_decode = o->max_tokens >= 0 ? (int32_t)o->max_tokens : 128,
        .depth = o->depth > 0 ? (int32_t)o->depth : 0,
        .n_together = (int)o->parallel,
    };
    if ((!b.n_prompt && !b.n_decode) || (b.n_together && !b.n_decode)) {
        fprintf(stderr, "hearth bench: %s (see hearth bench --help)\n",
                b.n_together ? "--parallel decodes, and with -n 0 there is nothing to decode"
                             : "with -p 0 and -n 0 there is nothing to measure");
        return EXIT_USAGE;
    }
    int status = EXIT_OK;
    ht_status st = engine_open(&b.e, o, round_positions(&b), &err);
    if (!st) st = check_context(&b, &err);
    if (!st) st = prepare(&b, rounds, &err);
    if (!st) st = measure(&b, rounds, &err);
    if (st)
        status = report(&err);
    else if (!o->json)
        bench_print_text(&b);
    else if (!bench_print_json(&b))
        status = EXIT_FAILED;
    free_bench(&b);
    return output_finish(status);
}
