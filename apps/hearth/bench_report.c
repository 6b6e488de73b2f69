/* hearth bench --report: what the library's report on a model says, as text and as JSON. */
#include "command.h"
#include "engine.h"
#include "json.h"
#include "terminal.h"

#include <hearth/report.h>

#include <stdio.h>

static double rate(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

/* ---- JSON ---- */

static ht_json *checks_json(const ht_bench_report *r) {
    ht_json *all = ht_json_new_array();
    for (int32_t i = 0; i < r->n_checks; i++)
        ht_json_array_append_new(all, ht_json_pack("{ss sb ss}", "name", r->checks[i].name, "passed",
                                                   r->checks[i].passed, "detail", r->checks[i].detail));
    return all;
}

static ht_json *prefix_json(const ht_bench_report *r) {
    if (*r->prefix_note) return ht_json_pack("{ss}", "note", r->prefix_note);
    return ht_json_pack("{sI sf sf sf sf}", "reused_tokens", (int64_t)r->prefix_reused, "hit_rate", r->prefix_hit_rate,
                        "cold_seconds", r->cold_seconds, "warm_seconds", r->warm_seconds, "saved_seconds",
                        r->cold_seconds - r->warm_seconds);
}

static ht_json *probes_json(const ht_bench_report *r) {
    ht_json *counts = ht_json_new_object();
    for (int32_t i = 0; i < r->n_probes; i++)
        ht_json_object_set_new(counts, r->probes[i].name, ht_json_integer((int64_t)r->probes[i].count));
    return ht_json_pack("{so sf}", "counts", counts, "overhead", r->probe_overhead);
}

static void print_json(const options *o, const ht_bench_report *r) {
    ht_json *generation = ht_json_pack(
        "{sI sI sf sf sf sf sf sI}", "prompt_tokens", (int64_t)r->prompt_tokens, "generated_tokens",
        (int64_t)r->generated_tokens, "prefill_seconds", r->prefill_seconds, "first_token_seconds",
        r->first_token_seconds, "decode_seconds", r->decode_seconds, "prefill_tokens_per_second",
        rate((double)r->prompt_tokens, r->prefill_seconds), "decode_tokens_per_second",
        rate((double)r->generated_tokens - 1, r->decode_seconds), "peak_memory_bytes", (int64_t)r->peak_memory_bytes);
    ht_json *state = ht_json_pack("{sI sI sf sf sf}", "bytes", (int64_t)r->state_bytes, "cache_bytes",
                                  (int64_t)r->cache_bytes, "save_seconds", r->state_save_seconds, "load_seconds",
                                  r->state_load_seconds, "prefill_seconds", r->prefill_seconds);
    json_output(ht_json_pack("{ss so ss ss ss ss si so so so so so}", "version", r->version, "model",
                             ht_json_string(o->model), "architecture", r->architecture, "instruction_set",
                             r->instruction_set, "precision", r->precision, "kv", r->kv_type, "threads",
                             (int)r->threads, "generation", generation, "prefix_cache", prefix_json(r), "state", state,
                             "probes", probes_json(r), "checks", checks_json(r)));
}

/* ---- text ---- */

static void print_text(const ht_bench_report *r) {
    output_field("generation", "%lld token%s read in %.3f s (%.0f tok/s), %lld written, %.1f tok/s; peak %.2f GB",
                 (long long)r->prompt_tokens, plural(r->prompt_tokens), r->prefill_seconds,
                 rate((double)r->prompt_tokens, r->prefill_seconds), (long long)r->generated_tokens,
                 rate((double)r->generated_tokens - 1, r->decode_seconds), (double)r->peak_memory_bytes / 1e9);
    if (*r->prefix_note)
        output_field("prefix cache", "%s", r->prefix_note);
    else
        output_field("prefix cache", "asked again, %lld token%s (%.0f %%) reused: first token after %.3f s, not %.3f",
                     (long long)r->prefix_reused, plural(r->prefix_reused), 1e2 * r->prefix_hit_rate, r->warm_seconds,
                     r->cold_seconds);
    output_field("saved state", "%.2f MB for %.2f MB of cache; saved in %.3f s, back in %.3f s",
                 (double)r->state_bytes / 1e6, (double)r->cache_bytes / 1e6, r->state_save_seconds,
                 r->state_load_seconds);
    long long probes = 0;
    for (int32_t i = 0; i < r->n_probes; i++) probes += (long long)r->probes[i].count;
    output_field("probes", "%lld of %d kinds; with all on a token takes %.3f times as long", probes, (int)r->n_probes,
                 1 + r->probe_overhead);
    for (int32_t i = 0; i < r->n_checks; i++)
        output_field(r->checks[i].passed ? "passed" : "FAILED", "%s: %s", r->checks[i].name, r->checks[i].detail);
}

int bench_report_command(const options *o) {
    ht_error err = {0};
    engine e = {0};
    ht_bench_report *r = NULL;
    ht_report_options how;
    ht_report_options_init(&how, sizeof how);
    how.prompt = o->prompt;
    how.cancel = interrupt_flag();
    if (o->max_tokens > 0) how.max_tokens = (int32_t)o->max_tokens;
    ht_status st = engine_open(&e, o, 0, &err);
    if (!st) st = ht_bench_report_run(e.model, &how, &r, &err);
    if (!st && o->json)
        print_json(o, r);
    else if (!st)
        print_text(r);
    if (!st && !o->json && !o->quiet)
        fprintf(stderr, "hearth %s, %s, %s precision, %s cache, %d thread%s\n", r->version, r->instruction_set,
                r->precision, r->kv_type, (int)r->threads, plural(r->threads));
    ht_bench_report_free(r);
    engine_close(&e);
    return output_finish(st ? report(&err) : EXIT_OK);
}
