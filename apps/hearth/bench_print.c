/* The report of `hearth bench`, as text and as JSON. */
#include "bench.h"
#include "json.h"
#include "terminal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static int64_t layer_products(const bench *b, int a) { return b->layer_products[a]; }

/* The arithmetic that most of a prompt's products are done in. */
static ht_arithmetic main_arithmetic(const bench *b) {
    int best = 0;
    for (int a = 1; a < HT_ARITHMETICS; a++)
        if (layer_products(b, a) > layer_products(b, best)) best = a;
    return (ht_arithmetic)best;
}

static int64_t sum(const int64_t products[HT_ARITHMETICS]) {
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
    ht_json_object_set_new(to, "layer_products_per_token", ht_json_integer((int64_t)sum(b->layer_products)));
    ht_json_object_set_new(to, "head_products_per_token", ht_json_integer((int64_t)sum(b->head_products)));
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

bool bench_print_json(const bench *b) {
    ht_device *d = b->e.device;
    const series *s = b->series;
    ht_json *value = ht_json_pack("{so ss ss ss si si si si si}", "model", ht_json_string(b->o->model), "device",
                                  ht_device_name(d), "instruction_set", ht_device_instruction_set(d), "precision",
                                  options_precision_name(b->o), "threads", ht_device_threads(d), "prompt_tokens",
                                  (int)b->n_prompt, "decode_tokens", (int)b->n_decode, "depth", (int)b->depth,
                                  "repetitions", s[PREFILL].n > s[DECODE].n ? s[PREFILL].n : s[DECODE].n);
    struct {
        const char *name;
        double value;
    } numbers[] = {
        {"prefill_tokens_per_second", series_mean(&s[PREFILL])},
        {"prefill_deviation", series_deviation(&s[PREFILL])},
        {"decode_tokens_per_second", series_mean(&s[DECODE])},
        {"decode_deviation", series_deviation(&s[DECODE])},
        {"time_to_first_token_ms", series_mean(&s[FIRST_TOKEN])},
        {"time_to_first_token_deviation_ms", series_deviation(&s[FIRST_TOKEN])},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        ht_json_object_set_new(value, numbers[i].name, ht_json_real(numbers[i].value));
    if (b->n_together) {
        ht_json_object_set_new(value, "parallel", ht_json_integer(b->n_together));
        set_number(value, "parallel_tokens_per_second", series_mean(&s[TOGETHER]), true);
        set_number(value, "parallel_deviation", series_deviation(&s[TOGETHER]), true);
        set_number(value, "parallel_of_one", series_median(&s[TOGETHER_GAIN]), true);
        set_number(value, "parallel_of_read_bandwidth", series_median(&s[TOGETHER_OF_READ]), s[TOGETHER_OF_READ].n);
    }
    set_yardsticks(value, b);
    ht_json_object_set_new(value, "peak_memory_bytes", ht_json_integer(b->peak_bytes));
    return json_output(value);
}

/* ---- text ---- */

/* One line: the figure and, behind it, what it is a part of. */
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

void bench_print_text(const bench *b) {
    const series *s = b->series;
    if (!b->meter) { /* the device cannot measure itself */
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
