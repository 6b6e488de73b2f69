/* hearth bench: prefill and decode speed over several rounds, and the fraction of the machine's peak that each reaches.
 *
 * Prefill and decode are timed separately, each from an empty cache or one prefilled with --depth tokens. The peak is
 * measured right before and after each of them, because clocks and load vary from second to second. */
#include "command.h"
#include "engine.h"
#include "fail.h"
#include "json.h"
#include "model_path.h"
#include "terminal.h"

#include <hearth/measure.h>

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* One value per round. */
typedef struct series {
    double *values;
    int n;
} series;

enum {
    PREFILL,          /* tokens per second */
    DECODE,           /* likewise */
    FIRST_TOKEN,      /* milliseconds */
    TOGETHER,         /* tokens per second of all sessions */
    TOGETHER_GAIN,    /* TOGETHER / DECODE of the same round */
    READ,             /* bytes per second, measured around decoding */
    OF_READ,          /* fraction of READ that decode reaches */
    TOGETHER_OF_READ, /* the same for all sessions, which share one read of the weights per step */
    OF_PEAK,          /* fraction of peak arithmetic that prefill reaches, measured around it */
    PEAK,             /* operations per second, HT_ARITHMETICS of them */
    N_SERIES = PEAK + HT_ARITHMETICS
};

typedef struct bench {
    const options *o;
    engine e;
    int32_t *ids; /* [max(n_prompt, depth) + 1], arbitrary valid ids: the work does not depend on them */
    int32_t n_prompt, n_decode, depth;
    int n_together;        /* sessions decoding in one step; 0: not measured */
    ht_session **sessions; /* [n_together] */
    int32_t *next;         /* [n_together] */
    ht_meter *meter;       /* created after the first round, so that its memory does not count towards the peak */
    int64_t layer_products[HT_ARITHMETICS], head_products[HT_ARITHMETICS]; /* multiply-adds of a token */
    int64_t bytes_per_token;    /* of weights that one token reads, with these sampling options */
    int64_t kv_bytes_per_token; /* of keys and values, halfway through decode */
    long long peak_bytes;
    series series[N_SERIES];
} bench;

/* ---- series ---- */

/* 0 when empty. */
static double series_mean(const series *s) {
    double sum = 0;
    for (int i = 0; i < s->n; i++) sum += s->values[i];
    return s->n ? sum / s->n : 0;
}

/* Sample standard deviation (n - 1). */
static double series_deviation(const series *s) {
    double sum = 0, m = series_mean(s);
    for (int i = 0; i < s->n; i++) sum += (s->values[i] - m) * (s->values[i] - m);
    return s->n > 1 ? sqrt(sum / (s->n - 1)) : 0;
}

/* Quadratic, but n is the number of rounds. */
static double series_median(const series *s) {
    double low = 0, high = 0;
    for (int i = 0; i < s->n; i++) {
        int below = 0, equal = 0;
        for (int j = 0; j < s->n; j++) {
            below += s->values[j] < s->values[i];
            equal += s->values[j] == s->values[i];
        }
        if (below <= (s->n - 1) / 2 && (s->n - 1) / 2 < below + equal) low = s->values[i];
        if (below <= s->n / 2 && s->n / 2 < below + equal) high = s->values[i];
    }
    return (low + high) / 2;
}

static void series_add(series *s, double value) { s->values[s->n++] = value; }

/* ---- calls ---- */

/* Duration of one probe, and the memory that it reads at most: no cache holds a gigabyte. */
static const double read_seconds = 0.05, compute_seconds = 0.03;
static const int64_t most_read_bytes = (int64_t)1 << 30;

static bool ignore_text(const char *text, size_t n, void *user) {
    (void)text, (void)n, (void)user;
    return true;
}

static ht_forward_options forward_options(void) {
    ht_forward_options how;
    ht_forward_options_init(&how, sizeof how);
    how.cancel = interrupt_flag();
    return how;
}

/* Adds a message when the status is an interruption. */
static ht_status measured(ht_status st, ht_error *err) {
    return st == HT_ERR_CANCELLED ? ht_fail(err, st, "interrupted: nothing was measured to the end") : st;
}

static ht_status start_at_depth(bench *b, ht_error *err) {
    ht_session_reset(b->e.session);
    if (b->depth == 0) return HT_OK;
    const ht_forward_options how = forward_options();
    return ht_session_forward(b->e.session, b->ids, (size_t)b->depth, &how, NULL, NULL, err);
}

/* Greedy unless an option says otherwise; the model's recommended sampling values do not apply to a benchmark. */
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
    ht_text_fn *each = ht_model_tokenizer(b->e.model) ? ignore_text : NULL; /* NULL: no tokenizer, no text */
    ht_status st = start_at_depth(b, err);
    if (!st) st = ht_generate(b->e.session, b->ids, (size_t)n_prompt, &how, each, NULL, metrics, err);
    return measured(st, err);
}

/* ---- peak measurements ---- */

static bool uses(const bench *b, int a) { return b->layer_products[a] || b->head_products[a]; }

/* Adds half of the peak rate of each arithmetic to `rates`: called before and after, the halves give the mean. */
static void probe_compute(bench *b, double rates[HT_ARITHMETICS]) {
    for (int a = 0; b->meter && a < HT_ARITHMETICS; a++)
        if (uses(b, a)) rates[a] += ht_meter_compute(b->meter, (ht_arithmetic)a, compute_seconds) / 2;
}

static double probe_read(bench *b) { return b->meter ? ht_meter_read(b->meter, read_seconds) / 2 : 0; }

/* Minimum seconds for the prompt's matrix products; only its last row is multiplied by the output head. */
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
    /* The first token belongs to prefill of the one-token prompt; the n after it are decode. */
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

static ht_status begin_together(bench *b, ht_error *err) {
    const ht_forward_options how = forward_options();
    ht_status st = HT_OK;
    for (int i = 0; i < b->n_together && !st; i++) {
        ht_session_reset(b->sessions[i]);
        st = ht_session_forward(b->sessions[i], b->ids, (size_t)b->depth + 1, &how, NULL, NULL, err);
        b->next[i] = b->ids[i % (b->depth + 1)];
    }
    return st;
}

/* Decodes several sessions in one batch, which reads each weight matrix once. */
static ht_status measure_together(bench *b, ht_error *err) {
    ht_status st = begin_together(b, err);
    double start = now_seconds();
    const ht_forward_options how = forward_options();
    for (int32_t step = 0; step < b->n_decode && !st; step++)
        st = ht_session_decode_together(b->sessions, b->next, b->n_together, &how, b->next, err);
    double rate = (double)b->n_together * b->n_decode / (now_seconds() - start);
    if (st) return measured(st, err);
    const series *alone = &b->series[DECODE];
    series_add(&b->series[TOGETHER], rate);
    series_add(&b->series[TOGETHER_GAIN], rate / alone->values[alone->n - 1]);
    if (!b->meter) return HT_OK;
    const series *read = &b->series[READ];
    const double step_bytes = (double)b->bytes_per_token + (double)b->n_together * (double)b->kv_bytes_per_token;
    series_add(&b->series[TOGETHER_OF_READ], rate / b->n_together * step_bytes / read->values[read->n - 1]);
    return HT_OK;
}

static ht_status measure_round(bench *b, ht_error *err) {
    ht_status st = b->n_prompt ? measure_prefill(b, err) : HT_OK;
    if (!st && b->n_decode) st = measure_decode(b, err);
    if (!st && b->n_together) st = measure_together(b, err);
    return st;
}

/* Round 0 warms up caches, page tables and clocks. By its end the process has reached its peak memory. */
static ht_status after_warm_up(bench *b, ht_error *err) {
    for (int i = 0; i < N_SERIES; i++) b->series[i].n = 0;
    b->peak_bytes = peak_memory_bytes();
    int64_t bytes = b->bytes_per_token < most_read_bytes ? b->bytes_per_token : most_read_bytes;
    const ht_status st = ht_meter_new(b->e.device, (size_t)bytes, &b->meter, err);
    return st == HT_ERR_UNSUPPORTED ? HT_OK : st; /* the report then omits fractions of the peak */
}

/* KV bytes that a token reads in full-attention layers, halfway through decode. Sliding layers are not counted. */
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
        progress_show((double)(i + 1) / (rounds + 1), &show);
    }
    progress_end(&show);
    return st;
}

/* KV positions that a round needs, including the last token, which generation has not computed yet. */
static int64_t prefill_positions(const bench *b) { return b->n_prompt ? b->depth + (int64_t)b->n_prompt + 1 : 0; }
static int64_t decode_positions(const bench *b) { return b->n_decode ? b->depth + (int64_t)b->n_decode + 2 : 0; }
static int64_t round_positions(const bench *b) {
    int64_t prefill = prefill_positions(b), decode = decode_positions(b);
    return prefill > decode ? prefill : decode;
}

/* Checks up front that a whole round fits into the context. */
static ht_status check_context(const bench *b, ht_error *err) {
    long long positions = round_positions(b), context = ht_model_context(b->e.model);
    if (positions <= context) return HT_OK;
    return ht_fail(err, HT_ERR_LIMIT, "a round takes %lld position%s, the context has %lld: choose less of %s",
                   positions, plural(positions), context,
                   b->depth                                     ? "--depth, -p or -n"
                   : prefill_positions(b) > decode_positions(b) ? "-p"
                                                                : "-n");
}

static ht_status open_sessions(bench *b, ht_error *err) {
    size_t n = (size_t)b->n_together;
    if (!n) return HT_OK;
    b->sessions = calloc(n, sizeof *b->sessions);
    b->next = calloc(n, sizeof *b->next);
    if (!b->sessions || !b->next) return fail_memory(err, "the measurements");
    ht_status st = HT_OK;
    for (size_t i = 0; i < n && !st; i++) st = engine_session(&b->e, b->o, &b->sessions[i], err);
    return st;
}

/* Allocates the measurements of all rounds, the ids and the sessions. */
static ht_status prepare(bench *b, int rounds, ht_error *err) {
    size_t n = (size_t)(b->n_prompt > b->depth ? b->n_prompt : b->depth) + 1;
    int32_t vocab = ht_model_vocab_size(b->e.model);
    b->ids = malloc(n * sizeof *b->ids);
    bool good = b->ids != NULL;
    for (int i = 0; i < N_SERIES; i++) {
        b->series[i].values = calloc((size_t)rounds + 1, sizeof(double));
        good = good && b->series[i].values;
    }
    if (!good) return fail_memory(err, "the measurements");
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

/* ---- the report ---- */

/* The arithmetic of most multiply-adds in prefill. */
static ht_arithmetic main_arithmetic(const bench *b) {
    int best = 0;
    for (int a = 1; a < HT_ARITHMETICS; a++)
        if (b->layer_products[a] > b->layer_products[best]) best = a;
    return (ht_arithmetic)best;
}

static int64_t sum_of(const int64_t products[HT_ARITHMETICS]) {
    int64_t all = 0;
    for (int a = 0; a < HT_ARITHMETICS; a++) all += products[a];
    return all;
}

/* ---- JSON ---- */

static void set_number(ht_json *to, const char *name, double value, bool there) {
    ht_json_object_set_new(to, name, there ? ht_json_real(value) : ht_json_null());
}

static void set_yardsticks(ht_json *to, const bench *b) {
    ht_json_object_set_new(to, "bytes_per_token", ht_json_integer((int64_t)b->bytes_per_token));
    ht_json_object_set_new(to, "kv_bytes_per_token", ht_json_integer((int64_t)b->kv_bytes_per_token));
    ht_json_object_set_new(to, "layer_products_per_token", ht_json_integer((int64_t)sum_of(b->layer_products)));
    ht_json_object_set_new(to, "head_products_per_token", ht_json_integer((int64_t)sum_of(b->head_products)));
    ht_json_object_set_new(to, "arithmetic", ht_json_string(ht_arithmetic_name(main_arithmetic(b))));
    set_number(to, "read_bytes_per_second", series_median(&b->series[READ]), b->series[READ].n);
    for (int a = 0; a < HT_ARITHMETICS; a++) {
        char name[40];
        snprintf(name, sizeof name, "%s_ops_per_second", ht_arithmetic_name((ht_arithmetic)a));
        set_number(to, name, series_median(&b->series[PEAK + a]), b->series[PEAK + a].n);
    }
    set_number(to, "decode_of_read_bandwidth", series_median(&b->series[OF_READ]), b->series[OF_READ].n);
    set_number(to, "prefill_of_peak", series_median(&b->series[OF_PEAK]), b->series[OF_PEAK].n);
}

static void print_json(const bench *b) {
    ht_device *d = b->e.device;
    const series *s = b->series;
    ht_json *value = ht_json_pack(
        "{so ss ss ss si si si si si sf sf sf sf sf sf}", "model", ht_json_string(b->o->model), "device",
        ht_device_name(d), "instruction_set", ht_device_instruction_set(d), "precision", options_precision_name(b->o),
        "threads", ht_device_threads(d), "prompt_tokens", (int)b->n_prompt, "decode_tokens", (int)b->n_decode, "depth",
        (int)b->depth, "repetitions", s[PREFILL].n > s[DECODE].n ? s[PREFILL].n : s[DECODE].n,
        "prefill_tokens_per_second", series_mean(&s[PREFILL]), "prefill_deviation", series_deviation(&s[PREFILL]),
        "decode_tokens_per_second", series_mean(&s[DECODE]), "decode_deviation", series_deviation(&s[DECODE]),
        "time_to_first_token_ms", series_mean(&s[FIRST_TOKEN]), "time_to_first_token_deviation_ms",
        series_deviation(&s[FIRST_TOKEN]));
    if (b->n_together) {
        ht_json_object_set_new(value, "parallel", ht_json_integer(b->n_together));
        set_number(value, "parallel_tokens_per_second", series_mean(&s[TOGETHER]), true);
        set_number(value, "parallel_deviation", series_deviation(&s[TOGETHER]), true);
        set_number(value, "parallel_of_one", series_median(&s[TOGETHER_GAIN]), true);
        set_number(value, "parallel_of_read_bandwidth", series_median(&s[TOGETHER_OF_READ]), s[TOGETHER_OF_READ].n);
    }
    set_yardsticks(value, b);
    ht_json_object_set_new(value, "peak_memory_bytes", ht_json_integer(b->peak_bytes));
    json_output(value);
}

/* ---- text ---- */

/* Prints one line: the measurement, then its fraction of the peak. */
__attribute__((format(printf, 5, 6))) static void print_series(const char *name, int64_t n_tokens, const series *s,
                                                               const char *unit, const char *more, ...) {
    char text[240];
    if (!s->n) return;
    int n = snprintf(text, sizeof text, "%-20s %6lld tok  %10.2f ± %.2f %s", name, (long long)n_tokens, series_mean(s),
                     series_deviation(s), unit);
    output_write(text, (size_t)n);
    va_list arguments;
    va_start(arguments, more);
    n = vsnprintf(text, sizeof text, more, arguments);
    va_end(arguments);
    output_write(text, (size_t)n);
    output_write("\n", 1);
}

static void print_against_machine(const bench *b) {
    const series *s = b->series;
    const ht_arithmetic a = main_arithmetic(b);
    const double peak = series_median(&s[PEAK + a]);
    const bool large = peak >= 1e13;
    print_series("prefill", b->n_prompt, &s[PREFILL], "tok/s", ", %.0f %% of the %s peak of %.0f %c operations/s",
                 1e2 * series_median(&s[OF_PEAK]), ht_arithmetic_name(a), peak / (large ? 1e12 : 1e9),
                 large ? 'T' : 'G');
    double read = series_median(&s[READ]);
    print_series("decode", b->n_decode, &s[DECODE], "tok/s", ", %.0f %% of reading %.0f MB per token at %.1f GB/s",
                 1e2 * series_median(&s[OF_READ]), 1e-6 * (double)(b->bytes_per_token + b->kv_bytes_per_token),
                 1e-9 * read);
}

static void print_text(const bench *b) {
    const series *s = b->series;
    if (!b->meter) { /* the device has no peak measurement */
        print_series("prefill", b->n_prompt, &s[PREFILL], "tok/s", "%s", "");
        print_series("decode", b->n_decode, &s[DECODE], "tok/s", "%s", "");
    } else
        print_against_machine(b);
    char name[32];
    snprintf(name, sizeof name, "decode, %d together", b->n_together);
    char of_read[80] = "";
    if (b->meter)
        snprintf(of_read, sizeof of_read, ", %.0f %% of reading weights once and every cache",
                 1e2 * series_median(&s[TOGETHER_OF_READ]));
    print_series(name, (int64_t)b->n_together * b->n_decode, &s[TOGETHER], "tok/s", ", %.2f times one alone%s",
                 series_median(&s[TOGETHER_GAIN]), of_read);
    print_series("time to first token", b->n_prompt, &s[FIRST_TOKEN], "ms", "%s", "");
    char text[160];
    int n = snprintf(text, sizeof text, "%-20s %10s  %10.2f GB\n", "peak memory", "", (double)b->peak_bytes / 1e9);
    output_write(text, (size_t)n);
    if (b->o->quiet) return;
    fprintf(stderr, "%s, %d thread%s, %s precision, depth %d\n", ht_device_instruction_set(b->e.device),
            ht_device_threads(b->e.device), plural(ht_device_threads(b->e.device)), options_precision_name(b->o),
            (int)b->depth);
}

/* ---- the command ---- */

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
    if (b.n_together && !b.n_decode)
        return usage_error(o, "--parallel decodes, and with -n 0 there is nothing to decode");
    if (!b.n_prompt && !b.n_decode) return usage_error(o, "with -p 0 and -n 0 there is nothing to measure");
    ht_status st = engine_open(&b.e, o, round_positions(&b), &err);
    if (!st) st = check_context(&b, &err);
    if (!st) st = prepare(&b, rounds, &err);
    if (!st) st = measure(&b, rounds, &err);
    if (!st) (o->json ? print_json : print_text)(&b);
    free_bench(&b);
    return output_finish(st ? report(&err) : EXIT_OK);
}
