/* Data sets of fine-tuning: files of lines, what is left of them, and the report. */
#include "models/model.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"
#include "support/train_data.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static ht_model *model;

static int open_model(void **state) {
    scratch_start(state);
    *state = model = tiny_load(&(tiny_options){.context = 64});
    return 0;
}

/* ---- lines ---- */

#define IDS(ids) "{\"input_ids\": [" ids "]}\n"

/* Samples of two ids, the first of which is given, from lines of these numbers. */
static void expect_lines(const char *text, int64_t n, const int32_t *first, const int64_t *numbers) {
    ht_data *d = train_open(model, text, &(ht_data_options){0});
    assert_int_equal(ht_data_get_report(d)->n_lines, n);
    assert_int_equal(ht_data_length(d), n);
    for (int64_t i = 0; i < n; i++) {
        assert_int_equal(ht_data_sample(d, i)->id[0], first[i]);
        assert_int_equal(ht_data_line(d, i), numbers[i]);
    }
    ht_data_free(d);
}

UNIT_TEST(lines_of_files) {
    expect_lines("\xEF\xBB\xBF" IDS("1,9") "\r\n \t\n {\"input_ids\": [2,9]}\r\n\n", 2, (const int32_t[]){1, 2},
                 (const int64_t[]){1, 4});
    expect_lines("\n\n{\"input_ids\": [1,9]}", 1, (const int32_t[]){1}, (const int64_t[]){3});
    static const char *const empty[] = {"", "\n \n", "\xEF\xBB\xBF"};
    for (int i = 0; i < 3; i++) {
        assert_fails(HT_ERR_FORMAT, "is empty", train_open_fails, model, empty[i], &(ht_data_options){0});
    }
}

/* Lines across the pieces in which a file is read. */
UNIT_TEST(long_lines) {
    enum { LINE = 700000, LINES = 5 };
    char *text = malloc(LINE * LINES + 1);
    memset(text, ' ', LINE * LINES);
    text[LINE * LINES] = '\0';
    for (int i = 0; i < LINES; i++) {
        char *line = text + i * LINE;
        if (i != 3) line[snprintf(line, 64, "{\"input_ids\": [%d,", i + 1)] = ' ';
        if (i != 3) memcpy(line + LINE - 5, "9]}", 3);
        line[LINE - 1] = '\n';
    }
    expect_lines(text, 4, (const int32_t[]){1, 2, 3, 5}, (const int64_t[]){1, 2, 3, 5});
    free(text);
}

static ht_status open_fails(const char *path, ht_error *err) {
    ht_data *d;
    const ht_status status = ht_data_open(model, path, &(ht_data_options){0}, &d, err);
    assert_null(d);
    return status;
}

UNIT_TEST(files_that_cannot_be_read) {
    assert_fails(HT_ERR_IO, "", open_fails, scratch_path("none"));
    assert_fails(HT_ERR_IO, "", open_fails, scratch_directory());
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 7\n";
    scratch_write("lfs", pointer, sizeof pointer - 1);
    assert_fails(HT_ERR_FORMAT, "Git LFS", open_fails, scratch_path("lfs"));
    enum { TOO_LONG = (64 << 20) + 1 };
    char *bytes = malloc(TOO_LONG);
    memset(bytes, 'a', TOO_LONG);
    scratch_write("long", bytes, TOO_LONG);
    free(bytes);
    assert_fails(HT_ERR_LIMIT, "long: line 1: it has 67108865 bytes", open_fails, scratch_path("long"));
}

/* ---- reports ---- */

UNIT_TEST(report_of_what_is_left) {
    static const char text[] = IDS("1,2,3") "\n"            /* 1 */
        IDS("1,2,3,4,5,6,7,271")                            /* 3 */
        "{\"text\": \"ab\"}\n"                              /* 4 */
        IDS("1")                                            /* 5: nothing to learn */
        "{\"input_ids\": [1,2], \"labels\": [-100,-100]}\n" /* 6: neither */
        "{\"prompt\": \"a\", \"completion\": \"b\"}";       /* 7 */
    train_use_template(model, NULL);
    ht_data *d = train_open(model, text, &(ht_data_options){.time = 77});
    const ht_data_report *r = ht_data_get_report(d);
    assert_int_equal(r->n_lines, 6);
    assert_int_equal(r->n_samples, 4);
    assert_int_equal(ht_data_length(d), 4);
    assert_int_equal(r->n_form[HT_SAMPLE_IDS], 2);
    assert_int_equal(r->n_form[HT_SAMPLE_TEXT], 1);
    assert_int_equal(r->n_form[HT_SAMPLE_COMPLETION], 1);
    assert_int_equal(r->n_form[HT_SAMPLE_MESSAGES], 0);
    assert_int_equal(r->n_tokens, 3 + 8 + 3 + 3);
    assert_int_equal(r->n_learned, 2 + 7 + 2 + 2);
    assert_int_equal(r->longest, 8);
    assert_int_equal(r->max_length, 64); /* the model's context */
    assert_int_equal(r->time, 77);
    assert_int_equal(r->length[1], 3);
    assert_int_equal(r->length[3], 1);
    assert_int_equal(r->unlearned.n, 2);
    assert_int_equal(r->unlearned.line[0], 5);
    assert_int_equal(r->unlearned.line[1], 6);
    assert_int_equal(r->stopless.n, 1);
    assert_int_equal(r->stopless.line[0], 1);
    assert_int_equal(r->bad.n + r->too_long.n + r->truncated.n + r->prompt_differs.n + r->history_differs.n, 0);
    static const int64_t lines[] = {1, 3, 4, 7};
    static const int32_t tokens[] = {3, 8, 3, 3};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ht_data_line(d, i), lines[i]);
        assert_int_equal(ht_data_sample(d, i)->n, tokens[i]);
    }
    ht_data_free(d);
}

UNIT_TEST(warnings_of_templates) {
    static const char text[] =
        "{\"prompt\": \"a\", \"completion\": \"b\"}\n"
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\","
        "\"reasoning_content\": \"so\"},{\"role\": \"user\", \"content\": \"c\"}, {\"role\": \"assistant\", "
        "\"content\": \"d\"}]}\n";
    train_use_template(model, "{% for m in messages %}{{ m.role[0] }}{% if loop.last %}!{% endif %}{{ m.content }}"
                              "<|im_end|>{% endfor %}{% if add_generation_prompt %}a<think>{% endif %}");
    ht_data *d = train_open(model, text, &(ht_data_options){0});
    const ht_data_report *r = ht_data_get_report(d);
    assert_int_equal(r->prompt_differs.n, 2);
    assert_int_equal(r->history_differs.n, 1);
    assert_int_equal(r->history_differs.line[0], 2);
    assert_int_equal(r->stopless.n, 0);
    ht_data_free(d);
}

/* ---- long samples ---- */

UNIT_TEST(long_samples) {
    static const char text[] = IDS("1,2,3") IDS("1,2,3,4,271")
        IDS("1,2,3,271") "{\"input_ids\": [1,2,3,4,5], \"labels\": [-100,-100,-100,-100,5]}\n";
    ht_data *d = train_open(model, text, &(ht_data_options){.max_length = 4});
    const ht_data_report *r = ht_data_get_report(d);
    assert_int_equal(r->n_samples, 2);
    assert_int_equal(r->too_long.n, 2);
    assert_int_equal(r->too_long.line[0], 2);
    assert_int_equal(r->too_long.line[1], 4);
    ht_data_free(d);

    d = train_open(model, text, &(ht_data_options){.max_length = 4, .long_samples = HT_LONG_TRUNCATE});
    r = ht_data_get_report(d);
    assert_int_equal(r->n_samples, 3);
    assert_int_equal(r->n_tokens, 3 + 4 + 4);
    assert_int_equal(r->n_learned, 2 + 3 + 3);
    assert_int_equal(r->truncated.n, 1);
    assert_int_equal(r->truncated.line[0], 2);
    assert_int_equal(r->unlearned.n, 1); /* its one answer was cut off */
    assert_int_equal(r->unlearned.line[0], 4);
    assert_int_equal(r->stopless.n, 2); /* so was an end */
    assert_int_equal(ht_data_sample(d, 1)->n, 4);
    assert_true(ht_data_sample(d, 1)->truncated);
    ht_data_free(d);
    assert_fails(HT_ERR_LIMIT, "train.jsonl: line 2: it has 5 tokens, at most 4", train_open_fails, model, text,
                 &(ht_data_options){.max_length = 4, .long_samples = HT_LONG_REFUSE});
    assert_fails(HT_ERR_LIMIT, "", train_open_fails, model, text,
                 &(ht_data_options){.max_length = 4, .long_samples = HT_LONG_REFUSE, .skip_bad = true});
}

UNIT_TEST(whole_bounds) {
    ht_data *d = train_open(model, IDS("1,2"), &(ht_data_options){.max_length = 2});
    assert_int_equal(ht_data_get_report(d)->max_length, 2);
    ht_data_free(d);
    d = train_open(model, IDS("1,2"), &(ht_data_options){.max_length = INT64_MAX});
    assert_int_equal(ht_data_get_report(d)->max_length, 64);
    ht_data_free(d);
    assert_fails(HT_ERR_ARGUMENT, "", train_open_fails, model, IDS("1,2"), &(ht_data_options){.max_length = 1});
    assert_fails(HT_ERR_ARGUMENT, "", train_open_fails, model, IDS("1,2"), &(ht_data_options){.max_length = -1});
    assert_fails(HT_ERR_ARGUMENT, "", train_open_fails, model, IDS("1,2"), &(ht_data_options){.mask = (ht_mask)3});
    assert_fails(HT_ERR_ARGUMENT, "", train_open_fails, model, IDS("1,2"),
                 &(ht_data_options){.long_samples = (ht_long_samples)3});
}

/* ---- bad lines ---- */

UNIT_TEST(bad_lines_end_it) {
    assert_fails(HT_ERR_FORMAT, "train.jsonl: line 3, column 10: `text` is 1, expected a string", train_open_fails,
                 model, IDS("1,2") "\n{\"text\": 1}\n{\n", &(ht_data_options){0});
    assert_fails(HT_ERR_FORMAT, "train.jsonl: line 2, column ", train_open_fails, model, IDS("1,2") "{\n",
                 &(ht_data_options){0});
}

UNIT_TEST(bad_lines_are_skipped) {
    static const char text[] = "{\n" IDS("1,2") "7\n\n{\"text\": 1}\n{\"messages\": []}\n{}\n[]\n[]\n";
    ht_data *d = train_open(model, text, &(ht_data_options){.skip_bad = true});
    const ht_data_report *r = ht_data_get_report(d);
    assert_int_equal(r->n_lines, 8);
    assert_int_equal(r->n_samples, 1);
    assert_int_equal(r->bad.n, 7);
    static const int64_t lines[] = {1, 3, 5, 6, 7};
    assert_memory_equal(r->bad.line, lines, sizeof lines);
    assert_int_equal(r->first_bad.status, HT_ERR_FORMAT);
    assert_non_null(strstr(r->first_bad.message, "train.jsonl: line 1, column 2: "));
    assert_int_equal(ht_data_line(d, 0), 2);
    ht_data_free(d);
}

UNIT_TEST(nothing_is_left) {
    static const char *const says[] = {"no sample is left of 3 lines: 1 are bad such as ",
                                       "1 have more than 2 tokens, 1 have no token to learn"};
    assert_fails(HT_ERR_FORMAT, "is empty", train_open_fails, model, "\n\n", &(ht_data_options){0});
    for (int i = 0; i < 2; i++)
        assert_fails(HT_ERR_FORMAT, says[i], train_open_fails, model, "{\n" IDS("1") IDS("1,2,3"),
                     &(ht_data_options){.skip_bad = true, .max_length = 2});
}

/* ---- files that change, and calls that end ---- */

/* The samples are those that were read. */
UNIT_TEST(files_that_change) {
    ht_data *d = train_open(model, IDS("1,2"), &(ht_data_options){0});
    const uint64_t before = ht_data_get_report(d)->fingerprint;
    scratch_write("train.jsonl", IDS("1,3"), strlen(IDS("1,3")));
    assert_int_equal(ht_data_sample(d, 0)->id[1], 2);
    ht_data_free(d);
    d = train_open(model, IDS("1,3"), &(ht_data_options){0});
    assert_true(ht_data_get_report(d)->fingerprint != before);
    ht_data_free(d);
    d = train_open(model, IDS("1,2"), &(ht_data_options){.max_length = 2});
    assert_true(ht_data_get_report(d)->fingerprint == before);
    ht_data_free(d);
}

static void note(double done, void *user) {
    double *last = user;
    assert_true(done > *last && done <= 1);
    *last = done;
}

UNIT_TEST(progress_and_cancel) {
    char text[200 * sizeof IDS("1,2")] = "";
    for (int i = 0; i < 200; i++) strcat(text, IDS("1,2"));
    double done = 0;
    ht_data *d = train_open(model, text, &(ht_data_options){.progress = note, .user = &done});
    assert_true(done > 0.9);
    ht_data_free(d);
    ht_cancel cancel = {0};
    ht_cancel_request(&cancel);
    assert_fails(HT_ERR_CANCELLED, "", train_open_fails, model, text, &(ht_data_options){.cancel = &cancel});
}

/* A date is the same whenever a sample is made. */
UNIT_TEST(dates_stay) {
    train_use_template(model, "{{ strftime_now('%Y') }}{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}");
    ht_data *d = train_open(model, "{\"prompt\": \"a\", \"completion\": \"b\"}", &(ht_data_options){.time = 86400});
    char *text;
    size_t n;
    assert_works(ht_tokenizer_decode, model->tokenizer, ht_data_sample(d, 0)->id, 4, false, &text, &n);
    assert_string_equal(text, "1970");
    ht_text_free(text);
    ht_data_free(d);
    const int64_t before = time(NULL);
    d = train_open(model, IDS("1,2"), &(ht_data_options){0});
    assert_true(ht_data_get_report(d)->time >= before);
    ht_data_free(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_of_files),
        cmocka_unit_test(long_lines),
        cmocka_unit_test(files_that_cannot_be_read),
        cmocka_unit_test(report_of_what_is_left),
        cmocka_unit_test(warnings_of_templates),
        cmocka_unit_test(long_samples),
        cmocka_unit_test(whole_bounds),
        cmocka_unit_test(bad_lines_end_it),
        cmocka_unit_test(bad_lines_are_skipped),
        cmocka_unit_test(nothing_is_left),
        cmocka_unit_test(files_that_change),
        cmocka_unit_test(progress_and_cancel),
        cmocka_unit_test(dates_stay),
    };
    return cmocka_run_group_tests(tests, open_model, tiny_teardown);
}
