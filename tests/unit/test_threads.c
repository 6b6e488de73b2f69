/* Arrays that several threads evaluate, read and let go of at once. What is wrong here a thread sanitizer sees. */
#include "array/array.h"
#include "support/arrays.h"
#include "support/test.h"

#include <hearth/transform.h>

#include <pthread.h>

enum { THREADS = 4, ROWS = 24, COLUMNS = 16 };

/* What a round's threads share: arrays of which every thread has a hold. */
typedef struct shared {
    ht_array *array[3];
    pthread_barrier_t begin;
    void (*use)(ht_scope *s, struct shared *with, int thread);
    const void *data[THREADS];
    bool right[THREADS];
} shared;

typedef struct worker {
    shared *with;
    int thread;
    pthread_t id;
} worker;

static void *work(void *arg) {
    worker *w = arg;
    ht_error err = {0};
    ht_stream *stream = NULL;
    if (ht_stream_new(ht_stream_device(test_stream), &stream, &err)) return NULL;
    ht_scope *s = ht_scope_new(stream);
    pthread_barrier_wait(&w->with->begin);
    w->with->use(s, w->with, w->thread);
    for (int i = 0; i < 3; i++) ht_array_free(w->with->array[i]);
    ht_scope_free(s);
    ht_stream_free(stream);
    return NULL;
}

/* x of small numbers, 2 x + 1 as it is and transposed, and what is computed of that; held by the threads alone. */
static void make(shared *with) {
    ht_scope *s = ht_scope_new(test_stream);
    ht_array *x = test_counting(s, (int64_t[]){ROWS, COLUMNS}, 2);
    ht_array *y = ht_add(s, ht_add(s, x, x), ht_full(s, 1, HT_F32, NULL, 0));
    with->array[0] = y;
    with->array[1] = ht_transpose(s, y, NULL);
    with->array[2] = ht_multiply(s, with->array[1], with->array[1]);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < THREADS; k++) assert_non_null(ht_array_retain(with->array[i]));
    ht_scope_free(s);
}

static void run(void (*use)(ht_scope *s, shared *with, int thread)) {
    size_t before = ht_memory_get(test_device()).active_bytes;
    for (int round = 0; round < test_cases(20, 2000); round++) {
        shared with = {.use = use};
        worker workers[THREADS];
        make(&with);
        pthread_barrier_init(&with.begin, NULL, THREADS);
        for (int i = 0; i < THREADS; i++) {
            workers[i] = (worker){.with = &with, .thread = i};
            assert_int_equal(pthread_create(&workers[i].id, NULL, work, &workers[i]), 0);
        }
        for (int i = 0; i < THREADS; i++) pthread_join(workers[i].id, NULL);
        for (int i = 0; i < THREADS; i++) assert_true(with.right[i]);
        pthread_barrier_destroy(&with.begin);
    }
    assert_int_equal(ht_memory_get(test_device()).active_bytes, before);
}

/* ---- the same nodes evaluated, and looked through, at once ---- */

static int product_with(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    shared *with = user;
    (void)n_in, (void)max_out;
    out[0] = ht_sum(s, ht_multiply(s, in[0], ht_add(s, with->array[0], ht_transpose(s, with->array[1], NULL))), NULL, 0,
                    false);
    return 1;
}

static void evaluate_and_differentiate(ht_scope *s, shared *with, int thread) {
    ht_error err = {0};
    ht_array *asked[2] = {with->array[thread % 3], with->array[(thread + 1) % 3]};
    bool right = ht_array_eval(s, asked, 2, &err) == HT_OK && ht_array_eval(s, with->array, 3, &err) == HT_OK;
    ht_array *w = ht_full(s, 3, HT_F32, NULL, 0), *one = ht_full(s, 1, HT_F32, NULL, 0), *gradient = NULL;
    float found = 0;
    /* the way from the result to w is looked for through the nodes that are shared */
    right = right && ht_vjp(s, &(ht_function){product_with, with}, &w, 1, &one, 1, NULL, &gradient);
    right = right && ht_array_read(s, gradient, &found, sizeof found, &err) == HT_OK;
    const int n = ROWS * COLUMNS;
    with->right[thread] = right && found == (float)(2 * n * (n - 1) + 2 * n);
}

UNIT_TEST(nodes_are_evaluated_by_several_threads) { run(evaluate_and_differentiate); }

/* ---- asynchronously ---- */

static void submit_and_read(ht_scope *s, shared *with, int thread) {
    ht_error err = {0};
    const void *data = NULL;
    bool right = ht_array_eval_async(s, with->array, 3, &err) == HT_OK;
    ht_array *a = with->array[thread % 3];
    right = right && ht_array_lend(s, a, &data, &err) == HT_OK;
    with->right[thread] = right && *(const float *)data == 1;
}

UNIT_TEST(nodes_are_submitted_by_several_threads) { run(submit_and_read); }

/* ---- the first readers of a view ---- */

static void read_row_by_row(ht_scope *s, shared *with, int thread) {
    ht_error err = {0};
    bool right = ht_array_data(s, with->array[1], &with->data[thread], &err) == HT_OK;
    const float *x = with->data[thread];
    for (int i = 0; right && i < ROWS * COLUMNS; i++) right = x[i] == (float)(2 * (i % ROWS * COLUMNS + i / ROWS) + 1);
    with->right[thread] = right;
}

UNIT_TEST(a_view_has_several_first_readers) { run(read_row_by_row); }

/* ---- cut off ---- */

static void detach(ht_scope *s, shared *with, int thread) {
    ht_error err = {0};
    ht_graphs_kept++; /* so that evaluation cuts off nothing */
    bool right = ht_array_eval(s, with->array, 3, &err) == HT_OK;
    ht_graphs_kept--;
    for (int i = 0; i < 3; i++) right = right && ht_array_detach(s, with->array[i], &err) == HT_OK;
    with->right[thread] = right && with->array[2]->n_in == 0;
}

UNIT_TEST(an_array_is_detached_by_several_threads) { run(detach); }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_are_evaluated_by_several_threads),
        cmocka_unit_test(nodes_are_submitted_by_several_threads),
        cmocka_unit_test(a_view_has_several_first_readers),
        cmocka_unit_test(an_array_is_detached_by_several_threads),
    };
    return cmocka_run_group_tests(tests, test_open_stream, test_close_stream);
}
