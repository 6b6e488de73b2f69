/* Batches of fine-tuning: their rows, and the order of samples, which depends on seed and step alone. */
#include "models/model.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"
#include "support/train_data.h"
#include "train/batches.h"

#include <stdio.h>
#include <string.h>

static ht_model *model;

static int open_model(void **state) {
    scratch_start(state);
    *state = model = tiny_load(&(tiny_options){.context = 64});
    return 0;
}

/* n samples, the i-th of which has 2 + i * 7 % 19 ids. */
static ht_data *open_many(int n, int64_t max_length) {
    ht_text text = {0};
    for (int i = 0; i < n; i++) {
        ht_text_append_str(&text, "{\"input_ids\": [1");
        for (int k = 0; k < 1 + i * 7 % 19; k++) ht_text_printf(&text, ",%d", (i + k) % 256);
        ht_text_append_str(&text, "]}\n");
    }
    ht_data *d = train_open(model, text.data, &(ht_data_options){.max_length = max_length});
    assert_int_equal(ht_data_length(d), n);
    ht_text_discard(&text);
    return d;
}

static ht_batches *batches_of(const ht_data *d, ht_batches_options o) {
    ht_batches *b;
    assert_works(ht_batches_new, d, &o, &b);
    return b;
}

static ht_train_batch get(ht_batches *b, int64_t step) {
    ht_train_batch batch;
    ht_error err = {0};
    if (ht_batches_get(b, step, &batch, &err)) fail_msg("step %lld: %s", (long long)step, err.message);
    return batch;
}

/* Every sequence is the sample of its line, without its last id. */
static void check_rows(const ht_data *d, const ht_batches *b, const ht_train_batch *batch) {
    int64_t n_learned = 0;
    assert_int_equal(batch->seq_start[0], 0);
    assert_int_equal(batch->seq_start[batch->n_seq], batch->n_tok);
    for (int32_t s = 0; s < batch->n_seq; s++) {
        const ht_sample *sample = ht_data_sample(d, ht_batches_line(b, s) - 1);
        const int32_t from = batch->seq_start[s], n = batch->seq_start[s + 1] - from;
        assert_int_equal(n, sample->n - 1);
        for (int32_t i = 0; i < n; i++) {
            assert_int_equal(batch->id[from + i], sample->id[i]);
            assert_int_equal(batch->pos[from + i], i);
            assert_int_equal(batch->target[from + i], sample->learned[i + 1] ? sample->id[i + 1] : -1);
            n_learned += batch->target[from + i] >= 0;
        }
    }
    assert_int_equal(batch->n_learned, n_learned);
}

/* ---- rows ---- */

UNIT_TEST(rows_of_a_batch) {
    static const char text[] = "{\"input_ids\": [5, 6, 7, 8], \"labels\": [-100, -100, 7, -100]}\n"
                               "{\"input_ids\": [9, 10]}\n";
    ht_data *d = train_open(model, text, &(ht_data_options){0});
    ht_batches *b = batches_of(d, (ht_batches_options){.batch = 2});
    assert_int_equal(ht_batches_per_epoch(b), 1);
    ht_train_batch batch = get(b, 0);
    assert_int_equal(batch.n_seq, 2);
    assert_int_equal(batch.n_tok, 4);
    assert_int_equal(batch.n_learned, 2);
    assert_memory_equal(batch.id, ((int32_t[]){5, 6, 7, 9}), 16);
    assert_memory_equal(batch.pos, ((int32_t[]){0, 1, 2, 0}), 16);
    assert_memory_equal(batch.target, ((int32_t[]){-1, 7, -1, 10}), 16);
    assert_memory_equal(batch.seq_start, ((int32_t[]){0, 3, 4}), 12);
    ht_batches_free(b);
    ht_data_free(d);
}

/* ---- order of the file ---- */

UNIT_TEST(order_of_the_file) {
    ht_data *d = open_many(7, 0);
    ht_batches *b = batches_of(d, (ht_batches_options){.batch = 3});
    assert_int_equal(ht_batches_per_epoch(b), 3);
    for (int64_t step = 20; step >= 0; step--) {
        ht_train_batch batch = get(b, step);
        assert_int_equal(batch.n_seq, 3);
        for (int32_t s = 0; s < 3; s++) assert_int_equal(ht_batches_line(b, s), (step * 3 + s) % 7 + 1);
        check_rows(d, b, &batch);
    }
    (void)get(b, INT64_MAX);
    ht_batches_free(b);
    /* More of them than there are samples. */
    b = batches_of(d, (ht_batches_options){.batch = 10});
    ht_train_batch batch = get(b, 1);
    assert_int_equal(batch.n_seq, 10);
    assert_int_equal(ht_batches_line(b, 0), 4);
    assert_int_equal(ht_batches_line(b, 9), 6);
    ht_batches_free(b);
    ht_data_free(d);
}

/* ---- shuffled ---- */

/* The lines of n steps, each followed by a 0. */
static int64_t *lines_of(ht_batches *b, int64_t first, int64_t n, size_t *n_lines) {
    int64_t *lines = NULL;
    *n_lines = 0;
    for (int64_t step = first; step < first + n; step++) {
        ht_train_batch batch = get(b, step);
        lines = realloc(lines, (*n_lines + (size_t)batch.n_seq + 1) * sizeof *lines);
        for (int32_t s = 0; s < batch.n_seq; s++) lines[(*n_lines)++] = ht_batches_line(b, s);
        lines[(*n_lines)++] = 0;
    }
    return lines;
}

static void expect_each_once(const int64_t *lines, size_t n, int n_samples, int times) {
    int *seen = calloc((size_t)n_samples + 1, sizeof *seen);
    for (size_t i = 0; i < n; i++) seen[lines[i]]++;
    for (int i = 1; i <= n_samples; i++)
        if (seen[i] != times) fail_msg("line %d came %d times, expected %d", i, seen[i], times);
    free(seen);
}

UNIT_TEST(epochs_have_every_sample_once) {
    for (int n = 1; n < 160; n += 13) {
        ht_data *d = open_many(n, 0);
        ht_batches *b = batches_of(d, (ht_batches_options){.batch = 4, .shuffle = true, .seed = 3});
        const int64_t steps = ht_batches_per_epoch(b);
        assert_int_equal(steps, (n + 3) / 4);
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            size_t n_lines;
            int64_t *lines = lines_of(b, epoch * steps, steps, &n_lines);
            expect_each_once(lines, n_lines, n, 1);
            free(lines);
        }
        for (int64_t step = 0; step < steps; step++) {
            ht_train_batch batch = get(b, step);
            assert_in_range(batch.n_seq, n / steps, (n + steps - 1) / steps);
            check_rows(d, b, &batch);
        }
        ht_batches_free(b);
        ht_data_free(d);
    }
}

/* In a window, the batches split the samples by length. */
UNIT_TEST(windows_are_sorted_by_length) {
    enum { BATCH = 4, WINDOW = 16, N = 2 * WINDOW * BATCH };
    ht_data *d = open_many(N, 0);
    ht_batches *b = batches_of(d, (ht_batches_options){.batch = BATCH, .shuffle = true, .seed = 1});
    bool falls = false, rises = false;
    int32_t before = 0;
    for (int w = 0; w < 2; w++) {
        int32_t least[WINDOW], most[WINDOW];
        for (int i = 0; i < WINDOW; i++) {
            ht_train_batch batch = get(b, w * WINDOW + i);
            least[i] = most[i] = batch.seq_start[1];
            for (int32_t s = 1; s < batch.n_seq; s++) {
                const int32_t n = batch.seq_start[s + 1] - batch.seq_start[s];
                if (n < least[i]) least[i] = n;
                if (n > most[i]) most[i] = n;
            }
            falls = falls || batch.n_tok < before;
            rises = rises || batch.n_tok > before;
            before = batch.n_tok;
        }
        for (int i = 0; i < WINDOW; i++)
            for (int j = 0; j < i; j++) assert_true(least[i] >= most[j] || least[j] >= most[i]);
    }
    assert_true(falls && rises); /* but do not come by length */
    ht_batches_free(b);
    ht_data_free(d);
}

static void same_lines(ht_batches *a, ht_batches *b, int64_t step, bool same) {
    size_t n, m;
    int64_t *x = lines_of(a, step, 5, &n), *y = lines_of(b, step, 5, &m);
    assert_int_equal(n == m && memcmp(x, y, n * sizeof *x) == 0, same);
    free(x);
    free(y);
}

/* Training that goes on in the middle of an epoch, or of a later one, has the batches that it would have had. */
UNIT_TEST(going_on_at_a_step) {
    ht_data *d = open_many(101, 24);
    for (int pack = 0; pack < 2; pack++) {
        const ht_batches_options o = {.batch = 2, .pack = pack, .shuffle = true, .seed = 9};
        ht_batches *through = batches_of(d, o);
        for (int64_t step = 0; step < 200; step += 7) {
            ht_batches *from = batches_of(d, o);
            same_lines(through, from, step, true);
            ht_batches_free(from);
        }
        /* And back again. */
        ht_batches *from = batches_of(d, o);
        for (int64_t step = 200; step >= 0; step -= 40) same_lines(from, through, step, true);
        ht_batches_free(from);
        ht_batches_options other = o;
        other.seed = 10;
        from = batches_of(d, other);
        same_lines(through, from, 0, false);
        same_lines(through, from, 150, false);
        ht_batches_free(from);
        ht_batches_free(through);
    }
    ht_data_free(d);
}

/* The same on every machine: from another implementation of what the headers say. */
UNIT_TEST(order_is_fixed) {
    ht_data *d = open_many(10, 0);
    static const struct {
        uint64_t seed;
        int64_t step;
        int64_t lines[15];
    } cases[] = {{0U, 0, {6, 9, 0, 8, 3, 5, 0, 2, 10, 0, 7, 4, 1, 0}},
                 {1U, 0, {7, 4, 1, 0, 10, 2, 0, 8, 5, 3, 0, 6, 9, 0}},
                 {16045690981402826360U, 4, {2, 10, 0, 9, 6, 0, 4, 7, 1, 0, 8, 5, 3, 0}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ht_batches *b = batches_of(d, (ht_batches_options){.batch = 3, .shuffle = true, .seed = cases[i].seed});
        size_t n;
        int64_t *lines = lines_of(b, cases[i].step, 4, &n);
        assert_int_equal(n, 14);
        assert_memory_equal(lines, cases[i].lines, n * sizeof *lines);
        free(lines);
        ht_batches_free(b);
    }
    ht_data_free(d);
}

/* ---- packed ---- */

UNIT_TEST(packed_batches) {
    enum { N = 700, BATCH = 2, LENGTH = 24 };
    ht_data *d = open_many(N, LENGTH);
    int64_t rows = 0;
    for (int i = 0; i < N; i++) rows += ht_data_sample(d, i)->n - 1;
    ht_batches *b = batches_of(d, (ht_batches_options){.batch = BATCH, .pack = true, .shuffle = true, .seed = 2});
    const int64_t steps = ht_batches_per_epoch(b);
    assert_in_range(steps, rows / (BATCH * LENGTH), rows / (BATCH * LENGTH) + 2); /* hardly any room is left */
    size_t n;
    int64_t *lines = lines_of(b, 0, steps, &n);
    expect_each_once(lines, n, N, 1);
    free(lines);
    int64_t step = 0;
    for (int64_t packed = 0; packed < 3 * rows; step++) { /* three epochs */
        ht_train_batch batch = get(b, step);
        assert_in_range(batch.n_tok, 1, BATCH * LENGTH);
        check_rows(d, b, &batch);
        packed += batch.n_tok;
    }
    lines = lines_of(b, 0, step, &n);
    expect_each_once(lines, n, N, 3);
    free(lines);
    ht_batches_free(b);
    ht_data_free(d);
}

UNIT_TEST(packed_in_the_order_of_the_file) {
    ht_data *d = open_many(50, 24);
    ht_batches *b = batches_of(d, (ht_batches_options){.batch = 2, .pack = true});
    const int64_t steps = ht_batches_per_epoch(b);
    int64_t line = 0;
    for (int64_t step = 0; step < 2 * steps; step++) {
        ht_train_batch batch = get(b, step);
        for (int32_t s = 0; s < batch.n_seq; s++) assert_int_equal(ht_batches_line(b, s), line++ % 50 + 1);
        assert_true(batch.n_tok <= 48);
        if (line % 50) assert_true(batch.n_tok + ht_data_sample(d, line % 50)->n - 1 > 48);
        check_rows(d, b, &batch);
    }
    assert_int_equal(line, 100);
    ht_batches_free(b);
    ht_data_free(d);
}

/* ---- what is refused ---- */

UNIT_TEST(refused) {
    ht_data *d = open_many(3, 0);
    ht_batches *b;
    assert_fails(HT_ERR_ARGUMENT, "", ht_batches_new, d, &(ht_batches_options){.batch = 0}, &b);
    assert_null(b);
    assert_fails(HT_ERR_LIMIT, "", ht_batches_new, d, &(ht_batches_options){.batch = INT32_MAX}, &b);
    assert_fails(HT_ERR_LIMIT, "", ht_batches_new, d, &(ht_batches_options){.batch = 1 << 26, .pack = true}, &b);
    b = batches_of(d, (ht_batches_options){.batch = 2});
    ht_train_batch batch = {.n_tok = 7};
    assert_fails(HT_ERR_ARGUMENT, "", ht_batches_get, b, -1, &batch);
    assert_int_equal(batch.n_tok, 0);
    ht_batches_free(b);
    ht_data_free(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_a_batch),
        cmocka_unit_test(order_of_the_file),
        cmocka_unit_test(epochs_have_every_sample_once),
        cmocka_unit_test(windows_are_sorted_by_length),
        cmocka_unit_test(going_on_at_a_step),
        cmocka_unit_test(order_is_fixed),
        cmocka_unit_test(packed_batches),
        cmocka_unit_test(packed_in_the_order_of_the_file),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, open_model, tiny_teardown);
}
