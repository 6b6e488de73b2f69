/* Reports on a model: what always holds passes, what a random model cannot know does not, and nothing is left behind. */
#include "models/model.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"

#include <hearth/hearth.h>

#include <dirent.h>
#include <string.h>

static ht_model *model;

static int setup(void **state) {
    scratch_make();
    *state = model = tiny_load(&(tiny_options){.type = HT_W_Q8_0});
    return 0;
}

static const ht_report_check *find_check(const ht_bench_report *r, const char *name) {
    for (int32_t i = 0; i < r->n_checks; i++)
        if (strcmp(r->checks[i].name, name) == 0) return &r->checks[i];
    fail_msg("there is no check \"%s\"", name);
    return NULL;
}

static int files_in(const char *folder) {
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

UNIT_TEST(what_it_says) {
    static const char *const hold[] = {"the same twice", "an engine answers as a session", "a restored state goes on",
                                       "the same with a seed", "text is UTF-8"};
    ht_bench_report *r;
    const char *folder = scratch_path(".");
    const int before = files_in(folder);
    const ht_report_options o = OPTIONS(ht_report_options, with.directory = folder, with.max_tokens = 20);
    assert_works(ht_bench_report_run, model, &o, &r);
    for (size_t i = 0; i < sizeof hold / sizeof *hold; i++)
        if (!find_check(r, hold[i])->passed) fail_msg("%s: %s", hold[i], find_check(r, hold[i])->detail);
    assert_false(find_check(r, "known continuations")->passed);
    assert_non_null(strstr(find_check(r, "known continuations")->detail, "0 of 4"));
    assert_true(r->prompt_tokens > 100);
    assert_int_equal(r->generated_tokens, 20);
    assert_true(r->prefix_reused >= 512);
    assert_true(r->prefix_hit_rate > 0.9 && r->prefix_hit_rate < 1);
    assert_string_equal(r->prefix_note, "");
    assert_true(r->state_bytes > 1000 && r->cache_bytes > 1000);
    assert_int_equal(r->n_probes, 7); /* there are no experts */
    for (int32_t i = 0; i < r->n_probes; i++) assert_int_equal(r->probes[i].count, 20);
    assert_string_equal(r->probes[1].name, "top");
    assert_true(r->probe_overhead > -1);
    assert_string_equal(r->version, ht_version());
    assert_string_equal(r->architecture, "llama");
    ht_bench_report_free(r);
    assert_int_equal(files_in(folder), before);
}

/* A prompt after which the model ends the text at once: answers are compared all the same, and reuse is measured of a longer one. */
UNIT_TEST(no_answer_is_empty) {
    static const char *const same[] = {"the same twice", "an engine answers as a session", "a restored state goes on",
                                       "the same with a seed"};
    ht_bench_report *r;
    int32_t every[TINY_VOCAB], *const stop_ids = model->stop_ids;
    const int n_stop_ids = model->n_stop_ids;
    const ht_report_options o = OPTIONS(ht_report_options, with.prompt = "ab", with.max_tokens = 4);
    for (int32_t id = 0; id < TINY_VOCAB; id++) every[id] = id;
    model->stop_ids = every;
    model->n_stop_ids = TINY_VOCAB;
    assert_works(ht_bench_report_run, model, &o, &r);
    model->stop_ids = stop_ids;
    model->n_stop_ids = n_stop_ids;
    assert_int_equal(r->generated_tokens, 4);
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        const ht_report_check *c = find_check(r, same[i]);
        if (!c->passed || strstr(c->detail, " 0 tokens")) fail_msg("%s: %s", same[i], c->detail);
    }
    assert_string_equal(r->prefix_note, "");
    assert_true(r->prefix_reused >= 512);
    ht_bench_report_free(r);
}

/* A context that holds no two pages: what fits is measured, or the report says why it was not. */
UNIT_TEST(a_small_context) {
    ht_model *m = tiny_load(&(tiny_options){.type = HT_W_Q8_0, .context = 256});
    for (int32_t tokens = 4; tokens <= 230; tokens += 226) {
        ht_bench_report *r;
        const ht_report_options o = OPTIONS(ht_report_options, with.prompt = "ab", with.max_tokens = tokens);
        assert_works(ht_bench_report_run, m, &o, &r);
        if (tokens == 4)
            assert_true(r->prefix_reused > 200 && r->prefix_reused < 252);
        else {
            assert_non_null(strstr(r->prefix_note, "is too short, expected 32 or more; the context has 256"));
            assert_true(r->prefix_hit_rate == 0 && r->prefix_reused == 0);
        }
        ht_bench_report_free(r);
    }
    ht_model_free(m);
}

UNIT_TEST(refusals) {
    ht_bench_report *r;
    ht_cancel cancel = {0};
    ht_report_options o = OPTIONS(ht_report_options, with.max_tokens = 1);
    assert_fails(HT_ERR_ARGUMENT, "", ht_bench_report_run, model, &o, &r);
    o.max_tokens = 4;
    o.directory = "/nowhere/at/all";
    assert_fails(HT_ERR_IO, "/nowhere/at/all", ht_bench_report_run, model, &o, &r);
    o.directory = NULL;
    o.cancel = &cancel;
    ht_cancel_request(&cancel);
    assert_fails(HT_ERR_CANCELLED, "", ht_bench_report_run, model, &o, &r);
    assert_null(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_it_says),
        cmocka_unit_test(no_answer_is_empty),
        cmocka_unit_test(a_small_context),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, setup, tiny_teardown);
}
