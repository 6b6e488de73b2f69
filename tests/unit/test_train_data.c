/* Data sets of fine-tuning: files of lines, what is left of them, and the report. */
#include "models/model.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"
#include "support/train_data.h"
#include "train/jsonl.h"

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

static void expect_lines(const char *bytes, size_t n, size_t n_lines, const char *const *lines,
                         const int64_t *numbers) {
    ht_jsonl *j;
    ht_text line = {0};
    ht_error err = {0};
    scratch_write("lines", bytes, n);
    if (ht_jsonl_open(scratch_path("lines"), &j, &err)) fail_msg("%s", err.message);
    assert_int_equal(ht_jsonl_length(j), n_lines);
    for (size_t i = n_lines; i-- > 0;) {
        if (ht_jsonl_read(j, i, &line, &err)) fail_msg("%s", err.message);
        assert_int_equal(line.len, strlen(line.data));
        assert_string_equal(line.data, lines[i]);
        assert_int_equal(ht_jsonl_number(j, i), numbers[i]);
    }
    ht_text_discard(&line);
    ht_jsonl_close(j);
}

static void lines_of_files(void **state) {
    (void)state;
    static const char *const two[] = {"{1}", " {2}\r"};
    static const char text[] = "\xEF\xBB\xBF{1}\n\r\n \t\n {2}\r\n\n";
    expect_lines(text, sizeof text - 1, 2, two, (const int64_t[]){1, 4});
    expect_lines("\n\n{1}", 5, 1, two, (const int64_t[]){3});
    expect_lines("", 0, 0, NULL, NULL);
    expect_lines("\n \n", 3, 0, NULL, NULL);
    expect_lines("\xEF\xBB\xBF", 3, 0, NULL, NULL);
}

/* Lines across the pieces in which a file is read. */
static void long_lines(void **state) {
    (void)state;
    enum { LINE = 700000, LINES = 5 };
    char *bytes = malloc(LINE * LINES), *text[LINES];
    int64_t numbers[LINES];
    for (int i = 0; i < LINES; i++) {
        memset(bytes + i * LINE, i == 3 ? ' ' : 'a' + i, LINE - 1);
        bytes[i * LINE + LINE - 1] = '\n';
        text[i] = malloc(LINE);
        memcpy(text[i], bytes + i * LINE, LINE - 1);
        text[i][LINE - 1] = '\0';
        numbers[i] = i + 1;
    }
    numbers[3] = 5;
    const char *const lines[] = {text[0], text[1], text[2], text[4]};
    expect_lines(bytes, LINE * LINES, 4, lines, numbers);
    for (int i = 0; i < LINES; i++) free(text[i]);
    free(bytes);
}

static void files_that_cannot_be_read(void **state) {
    (void)state;
    ht_jsonl *j;
    ht_error err = {0};
    assert_int_equal(ht_jsonl_open(scratch_path("none"), &j, &err), HT_ERR_IO);
    assert_null(j);
    assert_int_equal(ht_jsonl_open(scratch_directory(), &j, &err), HT_ERR_IO);
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 7\n";
    scratch_write("lfs", pointer, sizeof pointer - 1);
    assert_int_equal(ht_jsonl_open(scratch_path("lfs"), &j, &err), HT_ERR_FORMAT);
    assert_non_null(strstr(err.message, "Git LFS"));
    enum { TOO_LONG = HT_JSONL_LINE_BYTES_MAX + 1 };
    char *bytes = malloc(TOO_LONG);
    memset(bytes, 'a', TOO_LONG);
    scratch_write("long", bytes, TOO_LONG);
    free(bytes);
    ht_text line = {0};
    assert_int_equal(ht_jsonl_open(scratch_path("long"), &j, &err), HT_OK);
    assert_int_equal(ht_jsonl_read(j, 0, &line, &err), HT_ERR_LIMIT);
    assert_non_null(strstr(err.message, "long: line 1: it has 67108865 bytes"));
    ht_text_discard(&line);
    ht_jsonl_close(j);
}

/* ---- reports ---- */

#define IDS(ids) "{\"input_ids\": [" ids "]}\n"

static void report_of_what_is_left(void **state) {
    (void)state;
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
    for (int i = 3; i >= 0; i--) {
        ht_sample s;
        ht_error err = {0};
        if (ht_data_sample(d, i, &s, &err)) fail_msg("%s", err.message);
        assert_int_equal(ht_data_line(d, i), lines[i]);
        assert_int_equal(ht_data_tokens(d, i), tokens[i]);
        assert_int_equal(s.n, tokens[i]);
        ht_sample_free(&s);
        assert_int_equal(ht_data_sample(d, i < 2 ? -1 : 4, &s, &err), HT_ERR_ARGUMENT);
    }
    ht_data_free(d);
}

static void warnings_of_templates(void **state) {
    (void)state;
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

static void long_samples(void **state) {
    (void)state;
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
    ht_sample s;
    ht_error err = {0};
    assert_int_equal(ht_data_sample(d, 1, &s, &err), HT_OK);
    assert_int_equal(s.n, 4);
    assert_true(s.truncated);
    ht_sample_free(&s);
    ht_data_free(d);

    assert_int_equal(
        train_open_fails(model, text, &(ht_data_options){.max_length = 4, .long_samples = HT_LONG_REFUSE}, &err),
        HT_ERR_LIMIT);
    assert_non_null(strstr(err.message, "train.jsonl: line 2: it has 5 tokens, at most 4"));
    assert_int_equal(
        train_open_fails(model, text,
                         &(ht_data_options){.max_length = 4, .long_samples = HT_LONG_REFUSE, .skip_bad = true}, &err),
        HT_ERR_LIMIT);
}

static void whole_bounds(void **state) {
    (void)state;
    ht_error err;
    ht_data *d = train_open(model, IDS("1,2"), &(ht_data_options){.max_length = 2});
    assert_int_equal(ht_data_get_report(d)->max_length, 2);
    ht_data_free(d);
    d = train_open(model, IDS("1,2"), &(ht_data_options){.max_length = INT64_MAX});
    assert_int_equal(ht_data_get_report(d)->max_length, 64);
    ht_data_free(d);
    assert_int_equal(train_open_fails(model, IDS("1,2"), &(ht_data_options){.max_length = 1}, &err), HT_ERR_ARGUMENT);
    assert_int_equal(train_open_fails(model, IDS("1,2"), &(ht_data_options){.max_length = -1}, &err), HT_ERR_ARGUMENT);
    assert_int_equal(train_open_fails(model, IDS("1,2"), &(ht_data_options){.mask = (ht_mask)3}, &err),
                     HT_ERR_ARGUMENT);
    assert_int_equal(train_open_fails(model, IDS("1,2"), &(ht_data_options){.long_samples = (ht_long_samples)3}, &err),
                     HT_ERR_ARGUMENT);
}

/* ---- bad lines ---- */

static void bad_lines_end_it(void **state) {
    (void)state;
    ht_error err;
    assert_int_equal(train_open_fails(model, IDS("1,2") "\n{\"text\": 1}\n{\n", &(ht_data_options){0}, &err),
                     HT_ERR_FORMAT);
    assert_non_null(strstr(err.message, "train.jsonl: line 3, column 10: `text` is 1, expected a string"));
    assert_int_equal(train_open_fails(model, IDS("1,2") "{\n", &(ht_data_options){0}, &err), HT_ERR_FORMAT);
    assert_non_null(strstr(err.message, "train.jsonl: line 2, column "));
}

static void bad_lines_are_skipped(void **state) {
    (void)state;
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

static void nothing_is_left(void **state) {
    (void)state;
    ht_error err;
    assert_int_equal(train_open_fails(model, "\n\n", &(ht_data_options){0}, &err), HT_ERR_FORMAT);
    assert_non_null(strstr(err.message, "is empty"));
    assert_int_equal(train_open_fails(model, "{\n" IDS("1") IDS("1,2,3"),
                                      &(ht_data_options){.skip_bad = true, .max_length = 2}, &err),
                     HT_ERR_FORMAT);
    assert_non_null(strstr(err.message, "no sample is left of 3 lines: 1 are bad such as "));
    assert_non_null(strstr(err.message, "1 have more than 2 tokens, 1 have no token to learn"));
}

/* ---- files that change, and calls that end ---- */

static void files_that_change(void **state) {
    (void)state;
    ht_sample s;
    ht_error err = {0};
    ht_data *d = train_open(model, IDS("1,2"), &(ht_data_options){0});
    const uint64_t before = ht_data_get_report(d)->fingerprint;
    scratch_write("train.jsonl", IDS("1,2,3"), strlen(IDS("1,2,3")));
    assert_int_equal(ht_data_sample(d, 0, &s, &err), HT_ERR_IO);
    assert_non_null(strstr(err.message, "has changed"));
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

static void progress_and_cancel(void **state) {
    (void)state;
    char text[200 * sizeof IDS("1,2")] = "";
    for (int i = 0; i < 200; i++) strcat(text, IDS("1,2"));
    double done = 0;
    ht_data *d = train_open(model, text, &(ht_data_options){.progress = note, .user = &done});
    assert_true(done > 0.9);
    ht_data_free(d);
    ht_cancel cancel = {0};
    ht_error err;
    ht_cancel_request(&cancel);
    assert_int_equal(train_open_fails(model, text, &(ht_data_options){.cancel = &cancel}, &err), HT_ERR_CANCELLED);
}

/* A date is the same whenever a sample is made. */
static void dates_stay(void **state) {
    (void)state;
    train_use_template(model, "{{ strftime_now('%Y') }}{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}");
    ht_data *d = train_open(model, "{\"prompt\": \"a\", \"completion\": \"b\"}", &(ht_data_options){.time = 86400});
    ht_sample s;
    ht_error err = {0};
    assert_int_equal(ht_data_sample(d, 0, &s, &err), HT_OK);
    char *text;
    size_t n;
    assert_int_equal(ht_tokenizer_decode(model->tokenizer, s.id, 4, false, &text, &n, &err), HT_OK);
    assert_string_equal(text, "1970");
    ht_text_free(text);
    ht_sample_free(&s);
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
