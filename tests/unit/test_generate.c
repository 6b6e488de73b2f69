/* Generation on a small model: repeatable, streamed whole characters, stops, limits, cancellation, steady memory. */
#include "base/text.h"
#include "generate/session_internal.h"
#include "generate/token_output.h"
#include "support/chat.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT = 20 };
static ht_model *model;
static int32_t prompt[PROMPT];
static ht_sampler_options lively;
static bool is_brief; /* fewer texts, whose tokens take long */

static int setup(void **state) {
    scratch_make();
    is_brief = TEST_SLOW || test_is_late();
    *state = model = tiny_load(&(tiny_options){.type = HT_W_Q8_0});
    tiny_ids(prompt, PROMPT, 3);
    lively = OPTIONS(ht_sampler_options, with.temperature = 1.2f, with.top_p = 0.95f, with.seed = 11,
                     with.repeat_penalty = 1.1f);
    return 0;
}

static ht_session *open_session(ht_model *m) {
    ht_session *s;
    assert_works(ht_session_new, m, NULL, &s);
    return s;
}

/* Collects the output; every call must be whole characters, NUL-terminated. */
typedef struct reader {
    char text[20000];
    size_t n;
    int calls, last_call; /* after last_call calls it wants no more; 0: never */
    ht_cancel *cancel;    /* requested at every call when set */
} reader;

static bool read_text(const char *text, size_t n, void *user) {
    reader *r = user;
    assert_true(n > 0 && text[n] == '\0' && ht_utf8_valid(text, n));
    assert_true(r->n + n < sizeof r->text);
    memcpy(r->text + r->n, text, n);
    r->n += n;
    r->text[r->n] = '\0';
    if (r->cancel) ht_cancel_request(r->cancel);
    return ++r->calls != r->last_call;
}

static bool read_part(const ht_answer_piece *piece, void *user) {
    return piece->part == HT_ANSWER_CALL || read_text(piece->text, piece->n, user);
}

static void generate(ht_session *s, const int32_t *from, size_t n, const ht_generate_options *o, reader *r,
                     ht_metrics *metrics) {
    assert_works(ht_generate, s, from, n, o, r ? read_text : NULL, r, metrics);
}

/* ---- what comes out ---- */

UNIT_TEST(the_text_is_the_tokens_decoded) {
    for (uint64_t seed = 0; seed < 20; seed++) {
        if (is_brief && !test_takes((int64_t)seed, 5)) continue;
        ht_session *s = open_session(model);
        ht_generate_options o =
            OPTIONS(ht_generate_options, with.max_tokens = 200, with.sampler = &lively, with.ignore_eos = true);
        ht_sampler_options seeded = lively;
        seeded.seed = seed;
        o.sampler = &seeded;
        reader r = {0};
        ht_metrics metrics;
        generate(s, prompt, PROMPT, &o, &r, &metrics);
        assert_int_equal(metrics.finish, HT_FINISH_LENGTH);
        assert_int_equal(metrics.generated_tokens, 200);
        assert_int_equal(metrics.prompt_tokens, PROMPT);
        assert_int_equal(metrics.reused_tokens, 0);
        assert_true(metrics.prefill_seconds > 0 && metrics.first_token_seconds >= metrics.prefill_seconds);
        assert_true(metrics.decode_seconds > 0 && metrics.peak_memory_bytes > 0);
        assert_int_equal(ht_session_length(s), PROMPT + 200);
        assert_memory_equal(ht_session_tokens(s), prompt, sizeof prompt);
        char *text;
        size_t n;
        assert_works(ht_tokenizer_decode, model->tokenizer, ht_session_tokens(s) + PROMPT, 200, true, &text, &n);
        assert_string_equal(r.text, text);
        assert_true(r.calls > 50 && n > 150);
        free(text);
        ht_session_free(s);
    }
}

/* However a conversation is cut into calls, the tokens are the same, and so they are without a reader. */
UNIT_TEST(calls_continue_each_other) {
    static const int32_t parts[] = {1, 2, 7, 30, 60};
    for (int greedy = 0; greedy < 2; greedy++) {
        ht_generate_options o = OPTIONS(ht_generate_options, with.max_tokens = 100, with.ignore_eos = true);
        if (!greedy) o.sampler = &lively;
        ht_session *whole = open_session(model), *cut = open_session(model);
        generate(whole, prompt, PROMPT, &o, NULL, NULL);
        size_t n = PROMPT;
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            o.max_tokens = parts[i];
            generate(cut, prompt, n, &o, NULL, NULL);
            n = 0;
        }
        assert_int_equal(ht_session_length(cut), ht_session_length(whole));
        assert_memory_equal(ht_session_tokens(cut), ht_session_tokens(whole), (PROMPT + 100) * sizeof(int32_t));
        /* Also when the last token has been computed, and after going back. */
        assert_works(ht_session_truncate, cut, PROMPT + 40);
        o.max_tokens = 60;
        generate(cut, NULL, 0, &o, NULL, NULL);
        assert_memory_equal(ht_session_tokens(cut), ht_session_tokens(whole), (PROMPT + 100) * sizeof(int32_t));
        ht_session_free(whole);
        ht_session_free(cut);
    }
}

static bool copy_row(const float *logits, int64_t first, int64_t n_rows, int32_t vocab, void *user) {
    (void)first;
    assert_int_equal(n_rows, 1);
    memcpy(user, logits, (size_t)vocab * sizeof *logits);
    return true;
}

/* A token that was generated last and not yet computed is computed by whatever comes next. */
UNIT_TEST(the_last_token_is_not_lost) {
    ht_generate_options o = OPTIONS(ht_generate_options, with.max_tokens = 5, with.ignore_eos = true);
    ht_session *a = open_session(model), *b = open_session(model), *c = open_session(model);
    generate(a, prompt, PROMPT, &o, NULL, NULL);
    generate(b, prompt, PROMPT, &o, NULL, NULL);
    int32_t ids[PROMPT + 6];
    memcpy(ids, ht_session_tokens(a), (PROMPT + 5) * sizeof *ids);
    ids[PROMPT + 5] = 42;
    float logits[3][TINY_VOCAB];
    assert_int_equal(a->cache->length, PROMPT + 4);
    assert_works(ht_session_forward, a, &ids[PROMPT + 5], 1, NULL, copy_row, logits[0]);
    assert_works(ht_session_forward_together, &b, &ids[PROMPT + 5], 1, NULL, logits[1]);
    assert_works(ht_session_forward, c, ids, PROMPT + 6, NULL, copy_row, logits[2]);
    assert_memory_equal(logits[0], logits[2], sizeof logits[0]);
    assert_memory_equal(logits[1], logits[2], sizeof logits[0]);
    assert_int_equal(ht_session_length(b), PROMPT + 6);
    ht_session_free(a);
    ht_session_free(b);
    ht_session_free(c);
}

/* The same where the two rows straddle a page of a ring for chunks of one row: the window of 256 n + 1 keys then fills
 * whole pages for one row, and for two it does not. */
UNIT_TEST(the_last_token_is_not_lost_in_a_ring) {
    enum { WINDOW = 257, TOTAL = 513 };
    ht_model *sliding = tiny_load(&(tiny_options){.window = WINDOW, .type = HT_W_Q8_0});
    ht_session *narrow, *wide = open_session(sliding);
    assert_works(ht_session_new, sliding, OPTIONS_AT(ht_session_options, with.chunk = 1), &narrow);
    ht_generate_options o = OPTIONS(ht_generate_options, with.max_tokens = TOTAL - 1 - PROMPT, with.ignore_eos = true);
    generate(narrow, prompt, PROMPT, &o, NULL, NULL);
    assert_int_equal(ht_session_length(narrow), TOTAL - 1); /* the last one at position 511 waits */
    assert_int_equal(narrow->cache->length, TOTAL - 2);
    int32_t ids[TOTAL];
    memcpy(ids, ht_session_tokens(narrow), (TOTAL - 1) * sizeof *ids);
    ids[TOTAL - 1] = 42;
    float together[TINY_VOCAB], whole[TINY_VOCAB];
    assert_works(ht_session_forward_together, &narrow, &ids[TOTAL - 1], 1, NULL, together);
    assert_works(ht_session_forward, wide, ids, TOTAL, NULL, copy_row, whole);
    assert_memory_equal(together, whole, sizeof together);
    /* Both rows can be taken back: the ring holds the keys that the first one looked back on. */
    assert_works(ht_session_truncate, narrow, TOTAL - 2);
    assert_works(ht_session_forward_together, &narrow, &ids[TOTAL - 2], 1, NULL, together);
    assert_works(ht_session_forward_together, &narrow, &ids[TOTAL - 1], 1, NULL, together);
    assert_memory_equal(together, whole, sizeof together);
    ht_session_free(narrow);
    ht_session_free(wide);
    ht_model_free(sliding);
}

/* ---- where it ends ---- */

UNIT_TEST(stop_ids_end_the_output) {
    ht_session *s = open_session(model);
    ht_generate_options o = OPTIONS(ht_generate_options, with.max_tokens = 60, with.ignore_eos = true);
    o.sampler = &lively;
    generate(s, prompt, PROMPT, &o, NULL, NULL);
    int32_t tokens[60];
    memcpy(tokens, ht_session_tokens(s) + PROMPT, sizeof tokens);
    int at = 30, saved = model->stop_ids[0];
    for (int i = 0; i < at; i++) /* the stop must not have come before */
        if (tokens[i] == tokens[at]) at++, i = -1;
    assert_true(at < 60);
    model->stop_ids[0] = tokens[at];
    o.ignore_eos = false;
    ht_metrics metrics;
    ht_session_reset(s);
    generate(s, prompt, PROMPT, &o, NULL, &metrics);
    assert_int_equal(metrics.finish, HT_FINISH_STOP);
    assert_int_equal(metrics.stop_id, tokens[at]);
    assert_int_equal(metrics.stop, -1);
    assert_int_equal(metrics.generated_tokens, at);
    assert_int_equal(ht_session_length(s), PROMPT + at); /* the stop is no part of it */
    model->stop_ids[0] = saved;
    ht_session_free(s);
}

/* Where `what` first occurs in n bytes of text, which may hold zeros. */
static size_t place_of(const char *text, size_t n, const char *what) {
    size_t length = strlen(what), at = 0;
    while (at + length <= n && memcmp(text + at, what, length)) at++;
    assert_true(at + length <= n);
    return at;
}

/* Every substring of an output, given as a stop string, ends it right before its first occurrence. */
UNIT_TEST(stop_strings_end_the_output) {
    ht_session *s = open_session(model);
    ht_generate_options o =
        OPTIONS(ht_generate_options, with.max_tokens = 40, with.ignore_eos = true, with.sampler = &lively);
    static reader full, part;
    full = (reader){0};
    generate(s, prompt, PROMPT, &o, &full, NULL);
    int tried = 0;
    for (size_t begin = 0; begin < full.n; begin += 3)
        for (size_t length = 1; length < 12 && begin + length <= full.n; length += 2) {
            char stop[16];
            memcpy(stop, full.text + begin, length);
            stop[length] = '\0';
            if (strlen(stop) != length || !ht_utf8_valid(stop, length)) continue;
            if (is_brief && !test_takes((int64_t)(begin / 3 + length / 2), 4)) continue;
            const char *stops[] = {"never to be seen", stop};
            o.stop = stops;
            o.n_stop = 2;
            part = (reader){0};
            ht_metrics metrics;
            ht_session_reset(s);
            generate(s, prompt, PROMPT, &o, &part, &metrics);
            assert_int_equal(metrics.finish, HT_FINISH_STOP);
            assert_int_equal(metrics.stop, 1);
            assert_int_equal(metrics.stop_id, -1);
            assert_int_equal(part.n, place_of(full.text, full.n, stop));
            assert_memory_equal(part.text, full.text, part.n);
            tried++;
        }
    assert_true(tried > (is_brief ? 7 : 30));
    ht_session_free(s);
}

UNIT_TEST(text_is_held_back_only_as_needed) {
    static const char *const stops[] = {"abcd", "cx", "\xc3\xa9!"};
    static const struct {
        const char *put, *shown;
        ht_text_stream_state state;
    } steps[] = {{"xa", "x", HT_TEXT_STREAM_OPEN},        {"b", "", HT_TEXT_STREAM_OPEN},
                 {"c", "", HT_TEXT_STREAM_OPEN},          {"e", "abce", HT_TEXT_STREAM_OPEN},
                 {"abab", "ab", HT_TEXT_STREAM_OPEN},     {"\xc3\xa9", "ab", HT_TEXT_STREAM_OPEN},
                 {"?", "\xc3\xa9?", HT_TEXT_STREAM_OPEN}, {"abc", "", HT_TEXT_STREAM_OPEN},
                 {"x!", "ab", HT_TEXT_STREAM_STOPPED},    {"more", "", HT_TEXT_STREAM_OPEN}};
    static reader r;
    r = (reader){0};
    ht_text_stream o = {.stop = stops, .n_stop = 3, .found = -1, .fn = read_text, .user = &r};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        r.n = 0, r.text[0] = '\0';
        assert_int_equal(ht_text_stream_put(&o, steps[i].put, strlen(steps[i].put)), steps[i].state);
        assert_string_equal(r.text, steps[i].shown);
        assert_int_equal(o.found, i < 8 ? -1 : 1);
    }
    assert_int_equal(ht_text_stream_end(&o), HT_TEXT_STREAM_OPEN);
    ht_text_stream_free(&o);
    r = (reader){0};
    o = (ht_text_stream){.stop = stops, .n_stop = 3, .fn = read_text, .user = &r};
    ht_text_stream_put(&o, "yabc", 4);
    assert_string_equal(r.text, "y");
    ht_text_stream_end(&o);
    assert_string_equal(r.text, "yabc"); /* no stop came: it belongs to the output */
    ht_text_stream_free(&o);
}

/* The first that is whole; of those that one piece makes whole the one that begins first, and of these the first listed. */
UNIT_TEST(which_stop_it_was) {
    static const struct {
        const char *stops[3], *pieces[3];
        int found;
    } cases[] = {{{"ab", "abc", "c"}, {"xabc"}, 0},        {{"abc", "ab", "c"}, {"xabc"}, 0},
                 {{"abc", "ab", "c"}, {"xab", "c"}, 1},    {{"c", "abc", "bc"}, {"xab", "c"}, 1},
                 {{"c", "abcd", "b"}, {"a", "bc"}, 2},     {{"abcd", "c", "x"}, {"ab", "c", "d"}, 1},
                 {{"q", "same", "same"}, {"the same"}, 1}, {{"q", "r", "s"}, {"abc"}, -1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ht_text_stream o = {.stop = cases[i].stops, .n_stop = 3, .found = -1};
        for (int k = 0; k < 3 && cases[i].pieces[k]; k++)
            ht_text_stream_put(&o, cases[i].pieces[k], strlen(cases[i].pieces[k]));
        assert_int_equal(o.found, cases[i].found);
        ht_text_stream_free(&o);
    }
}

UNIT_TEST(a_reader_can_stop) {
    for (int calls = 1; calls < 20; calls += 6) {
        ht_session *s = open_session(model);
        ht_generate_options o =
            OPTIONS(ht_generate_options, with.max_tokens = 100, with.ignore_eos = true, with.sampler = &lively);
        reader r = {.last_call = calls};
        ht_metrics metrics;
        generate(s, prompt, PROMPT, &o, &r, &metrics);
        assert_int_equal(metrics.finish, HT_FINISH_CALLBACK);
        assert_int_equal(r.calls, calls); /* and is not called again */
        assert_int_equal(ht_session_length(s), PROMPT + metrics.generated_tokens);
        ht_session_free(s);
    }
}

UNIT_TEST(a_full_context_ends_the_output) {
    ht_model *small = tiny_load(&(tiny_options){.context = 64});
    ht_session *s = open_session(small);
    ht_error err = {0};
    ht_metrics metrics;
    static reader r;
    int32_t ids[70];
    tiny_ids(ids, 70, 1);
    ht_generate_options o =
        OPTIONS(ht_generate_options, with.max_tokens = 100, with.ignore_eos = true, with.sampler = &lively);
    assert_int_equal(ht_generate(s, ids, 65, &o, NULL, NULL, &metrics, &err), HT_ERR_LIMIT);
    assert_string_equal(err.message, "prompt of 65 tokens does not fit the context of 64");
    assert_int_equal(ht_generate(s, ids, 64, &o, NULL, NULL, NULL, &err), HT_ERR_LIMIT);
    assert_string_equal(err.message,
                        "prompt of 64 tokens fills the context of 64 and leaves no position for an answer");
    assert_int_equal(ht_session_length(s), 0);
    r = (reader){0};
    assert_int_equal(ht_generate(s, ids, 40, &o, read_text, &r, &metrics, &err), HT_OK);
    assert_int_equal(metrics.finish, HT_FINISH_LENGTH);
    assert_int_equal(metrics.generated_tokens, 24);
    assert_int_equal(ht_session_length(s), 64);
    char *text;
    size_t n;
    assert_int_equal(ht_tokenizer_decode(small->tokenizer, ht_session_tokens(s) + 40, 24, true, &text, &n, &err),
                     HT_OK);
    assert_string_equal(r.text, text); /* all of it was handed over */
    free(text);
    assert_int_equal(ht_generate(s, NULL, 0, &o, read_text, &r, &metrics, &err), HT_ERR_LIMIT);
    assert_string_equal(err.message, "the context of 64 is full and leaves no position to go on");
    o.max_tokens = 24; /* exactly as much as fits is no error */
    ht_session_reset(s);
    assert_int_equal(ht_generate(s, ids, 40, &o, NULL, NULL, &metrics, &err), HT_OK);
    ht_session_free(s);
    ht_model_free(small);
}

UNIT_TEST(bad_requests_are_refused) {
    ht_session *s = open_session(model);
    const char *empty = "", *torn = "\xc3";
    const ht_sampler_options cold = OPTIONS(ht_sampler_options, with.temperature = -1);
    const struct {
        ht_generate_options o;
        const char *part;
    } wrong[] = {{OPTIONS(ht_generate_options, with.max_tokens = -1), "max_tokens is -1"},
                 {OPTIONS(ht_generate_options, with.max_tokens = 0), "max_tokens is 0"},
                 {OPTIONS(ht_generate_options, with.stop = &empty, with.n_stop = 1), "stop string 0 is empty"},
                 {OPTIONS(ht_generate_options, with.stop = &torn, with.n_stop = 1), "stop string 0 is not UTF-8"},
                 {OPTIONS(ht_generate_options, with.n_stop = 1), "none given"},
                 {OPTIONS(ht_generate_options, with.sampler = &cold), "temperature"},
                 {{.max_tokens = 5}, "ht_generate_options were not made by ht_generate_options_init"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_fails(HT_ERR_ARGUMENT, wrong[i].part, ht_generate, s, prompt, PROMPT, &wrong[i].o, NULL, NULL, NULL);
    }
    assert_fails(HT_ERR_ARGUMENT, "the prompt is empty", ht_generate, s, NULL, 0, NULL, NULL, NULL, NULL);
    assert_fails(HT_ERR_ARGUMENT, "", ht_generate, s, (const int32_t[]){3, 999}, 2, NULL, NULL, NULL, NULL);
    assert_fails(HT_ERR_ARGUMENT, "", ht_generate_text, s, "", NULL, NULL, NULL, NULL);
    assert_int_equal(ht_session_length(s), 0);
    ht_session_free(s);
}

/* ---- cancelling ---- */

UNIT_TEST(cancelling_from_the_callback) {
    ht_session *s = open_session(model);
    ht_generate_options o =
        OPTIONS(ht_generate_options, with.max_tokens = 100, with.ignore_eos = true, with.sampler = &lively);
    ht_cancel flag = {0};
    reader r = {.cancel = &flag};
    o.cancel = &flag;
    ht_metrics metrics;
    ht_error err = {0};
    assert_int_equal(ht_generate(s, prompt, PROMPT, &o, read_text, &r, &metrics, &err), HT_ERR_CANCELLED);
    assert_true(metrics.generated_tokens > 0 && metrics.generated_tokens < 20);
    char says[64]; /* without the prompt's */
    snprintf(says, sizeof says, "cancelled after %lld generated token", (long long)metrics.generated_tokens);
    assert_ptr_equal(strstr(err.message, says), err.message);
    assert_int_equal(ht_session_length(s), PROMPT + metrics.generated_tokens);
    o.cancel = NULL;
    o.max_tokens = (int32_t)(100 - metrics.generated_tokens); /* it goes on as if nothing had been */
    generate(s, NULL, 0, &o, NULL, NULL);
    ht_session *whole = open_session(model);
    o.max_tokens = 100;
    generate(whole, prompt, PROMPT, &o, NULL, NULL);
    assert_memory_equal(ht_session_tokens(s), ht_session_tokens(whole), (PROMPT + 100) * sizeof(int32_t));
    ht_session_free(whole);
    ht_session_free(s);
}

/* A server cancels between two calls, before the one that is meant has begun. */
UNIT_TEST(cancelling_before_the_call) {
    ht_session *s = open_session(model);
    ht_cancel flag = {0};
    ht_generate_options o = OPTIONS(ht_generate_options, with.max_tokens = 5, with.cancel = &flag);
    ht_error err = {0};
    ht_chat *chat = test_chat(&(test_message){"user", "the rain"}, 1);
    ht_metrics metrics;
    ht_cancel next = {0};
    o.cancel = &next;
    generate(s, prompt, PROMPT, &o, NULL, NULL);
    const int64_t held = ht_session_length(s);
    o.cancel = &flag;
    ht_cancel_request(&flag);
    for (int call = 0; call < 3; call++) {
        metrics.generated_tokens = -1;
        ht_status status = call == 0   ? ht_generate(s, prompt, PROMPT, &o, NULL, NULL, &metrics, &err)
                           : call == 1 ? ht_generate_text(s, "the rain", &o, NULL, NULL, &metrics, &err)
                                       : ht_generate_chat(s, chat, &o, NULL, NULL, &metrics, &err);
        assert_int_equal(status, HT_ERR_CANCELLED);
        assert_int_equal(metrics.generated_tokens, 0);
        assert_int_equal(ht_session_length(s), held); /* a chat with another beginning drops nothing, either */
    }
    /* The request of one answer does not end the next. */
    o.cancel = &next;
    generate(s, NULL, 0, &o, NULL, NULL);
    ht_chat_free(chat);
    ht_session_free(s);
}

/* ---- memory ---- */

static ht_session *watched;
static size_t first_bytes;

static bool watch_memory(const char *text, size_t n, void *user) {
    (void)text, (void)n;
    int64_t generated = ht_session_length(watched) - PROMPT;
    size_t besides = ht_memory_get(watched->model->device).active_bytes - ht_session_cache_bytes(watched);
    if (generated >= 10 && first_bytes == 0) first_bytes = besides;
    if (generated >= 10) assert_int_equal(besides, first_bytes);
    assert_int_equal(ht_session_cache_bytes(watched),
                     ht_cache_bytes(watched->model, ht_session_length(watched) - 1, watched->chunk));
    ++*(int *)user;
    return true;
}

UNIT_TEST(a_thousand_tokens_take_pages_alone) {
    ht_model *sliding = tiny_load(&(tiny_options){.window = 100, .type = HT_W_Q8_0});
    ht_model *both[] = {model, sliding};
    for (int i = 0; i < 2; i++) {
        watched = open_session(both[i]);
        first_bytes = 0;
        int calls = 0;
        ht_generate_options o =
            OPTIONS(ht_generate_options, with.max_tokens = 1000, with.ignore_eos = true, with.sampler = &lively);
        assert_works(ht_generate, watched, prompt, PROMPT, &o, watch_memory, &calls, NULL);
        assert_true(calls > 300);
        ht_session_free(watched);
    }
    ht_model_free(sliding);
}

/* ---- from text ---- */

UNIT_TEST(text_and_chat_reuse_what_is_there) {
    ht_session *s = open_session(model), *fresh = open_session(model);
    ht_generate_options o = OPTIONS(ht_generate_options, with.max_tokens = 12);
    ht_metrics metrics;
    static reader first, second, again;
    first = second = again = (reader){0};
    assert_string_equal(ht_chat_format_name(model), "chatml");
    ht_chat *talk = test_chat(&(test_message){"user", "in the other on"}, 1);
    assert_works(ht_generate_chat, s, talk, &o, read_part, &first, &metrics);
    assert_int_equal(ht_chat_length(talk), 1);
    assert_int_equal(metrics.reused_tokens, 0);
    assert_int_equal(ht_session_tokens(s)[0], TINY_IM_START);
    assert_works(ht_chat_add, talk, "assistant", first.text);
    assert_works(ht_chat_add, talk, "user", "then");
    assert_works(ht_generate_chat, s, talk, &o, read_part, &second, &metrics);
    assert_true(metrics.reused_tokens > 10);
    assert_int_equal(metrics.reused_tokens + metrics.prompt_tokens + metrics.generated_tokens, ht_session_length(s));
    assert_works(ht_generate_chat, fresh, talk, &o, read_part, &again, &metrics);
    assert_int_equal(metrics.reused_tokens, 0);
    assert_string_equal(again.text, second.text);
    assert_int_equal(ht_session_length(fresh), ht_session_length(s));
    assert_memory_equal(ht_session_tokens(fresh), ht_session_tokens(s), (size_t)ht_session_length(s) * sizeof(int32_t));
    /* The same conversation once more: all but the last prompt token is there. */
    again = (reader){0};
    assert_works(ht_generate_chat, s, talk, &o, read_part, &again, &metrics);
    assert_int_equal(metrics.prompt_tokens, 1);
    assert_string_equal(again.text, second.text);
    /* A call that is refused takes nothing of another conversation away. */
    ht_chat *another = test_chat(&(test_message){"user", "something else"}, 1);
    const int64_t held = ht_session_length(s);
    ht_generate_options wrong = OPTIONS(ht_generate_options, with.max_tokens = 0);
    assert_fails(HT_ERR_ARGUMENT, "", ht_generate_chat, s, another, &wrong, NULL, NULL, NULL);
    assert_int_equal(ht_session_length(s), held);
    ht_chat_free(another);
    ht_chat *silent = test_chat(NULL, 0);
    assert_fails(HT_ERR_ARGUMENT, "", ht_generate_chat, s, silent, &o, NULL, NULL, NULL);
    ht_chat_free(silent);
    ht_chat_free(talk);

    ht_session_reset(s);
    assert_works(ht_generate_text, s, "the <|im_start|>x", &o, NULL, NULL, &metrics);
    assert_int_equal(metrics.prompt_tokens, 4); /* "the", " ", the special token, "x" */
    assert_int_equal(ht_session_tokens(s)[2], TINY_IM_START);
    ht_session_free(s);
    ht_session_free(fresh);
}

/* Where a ring lost the place to go back to, the conversation is computed anew, with the same answer. */
UNIT_TEST(chat_starts_over_when_it_cannot_go_back) {
    ht_model *sliding = tiny_load(&(tiny_options){.window = 30, .type = HT_W_Q8_0});
    ht_session *s, *fresh = open_session(sliding);
    assert_works(ht_session_new, sliding, OPTIONS_AT(ht_session_options, with.chunk = 16), &s);
    char long_text[1200];
    for (size_t i = 0; i < sizeof long_text; i++) long_text[i] = "the rain on"[i % 11];
    long_text[sizeof long_text - 1] = '\0';
    ht_chat *one = test_chat(&(test_message){"user", long_text}, 1);
    ht_chat *other = test_chat(&(test_message){"user", "the sun"}, 1);
    ht_generate_options o = OPTIONS(ht_generate_options, with.max_tokens = 8);
    ht_metrics metrics;
    static reader a, b;
    a = b = (reader){0};
    assert_works(ht_generate_chat, s, one, &o, NULL, NULL, &metrics);
    assert_works(ht_generate_chat, s, other, &o, read_part, &a, &metrics);
    assert_int_equal(metrics.reused_tokens, 0);
    assert_works(ht_generate_chat, fresh, other, &o, read_part, &b, &metrics);
    assert_string_equal(a.text, b.text);
    ht_chat_free(one);
    ht_chat_free(other);
    ht_session_free(s);
    ht_session_free(fresh);
    ht_model_free(sliding);
}

/* ---- values that a request leaves out ---- */

static ht_sampler_options resolved(const ht_model *m, const ht_sampler_options *given) {
    ht_sampler_options out;
    ht_sampler_options_init(&out, sizeof out);
    assert_works(ht_sampler_options_resolve, m, given, &out);
    return out;
}

UNIT_TEST(unset_values_are_the_models) {
    ht_model *m = tiny_load(&(tiny_options){.unsettled = true});
    ht_sampler_options o = resolved(m, NULL), zero;
    assert_true(o.temperature == 0.7f && o.top_k == 0 && o.top_p == 0.95f && o.min_p == 0.05f && o.seed == 11);
    assert_true(o.repeat_penalty == 1 && o.repeat_window == 64 && o.presence_penalty == 0 && o.frequency_penalty == 0);
    ht_sampler_options_init(&zero, sizeof zero);
    zero.temperature = zero.min_p = zero.top_p = 0;
    zero.repeat_window = 0;
    o = resolved(m, &zero);
    assert_true(o.temperature == 0 && o.top_p == 0 && o.min_p == 0 && o.repeat_window == 0 && o.repeat_penalty == 1);
    assert_string_equal(ht_model_sampling(m, 0)->name, "temperature");
    assert_string_equal(ht_model_sampling(m, 0)->source, "default");
    assert_string_equal(ht_model_sampling(model, 0)->source, "GGUF metadata");
    assert_true(resolved(model, NULL).temperature == 0);
    int n = 0;
    while (ht_model_sampling(m, n)) n++;
    assert_int_equal(n, 8);
    assert_null(ht_model_sampling(m, -1));
    zero.top_p = 2;
    assert_fails(HT_ERR_ARGUMENT, "", ht_sampler_options_resolve, m, &zero, &o);
    ht_model_free(m);
}

/* Options without a sampler, and no options, as the values by name. */
UNIT_TEST(an_answer_without_options_is_sampled) {
    ht_model *m = tiny_load(&(tiny_options){.unsettled = true});
    const ht_sampler_options named =
        OPTIONS(ht_sampler_options, with.temperature = 0.7f, with.top_p = 0.95f, with.min_p = 0.05f, with.seed = 11);
    ht_generate_options plain, by_name = OPTIONS(ht_generate_options, with.sampler = &named),
                               greedy = DEFAULTS(ht_generate_options);
    ht_generate_options_init(&plain, sizeof plain);
    const ht_generate_options *how[] = {NULL, &plain, &by_name, &greedy};
    static reader r[4];
    for (int i = 0; i < 4; i++) {
        ht_session *s = open_session(m);
        r[i] = (reader){.calls = 0};
        generate(s, prompt, PROMPT, how[i], &r[i], NULL);
        ht_session_free(s);
    }
    assert_true(r[0].n > 0);
    assert_string_equal(r[0].text, r[2].text);
    assert_string_equal(r[1].text, r[2].text);
    assert_string_not_equal(r[0].text, r[3].text);
    ht_model_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unset_values_are_the_models),
        cmocka_unit_test(an_answer_without_options_is_sampled),
        cmocka_unit_test(the_text_is_the_tokens_decoded),
        cmocka_unit_test(calls_continue_each_other),
        cmocka_unit_test(the_last_token_is_not_lost),
        cmocka_unit_test(the_last_token_is_not_lost_in_a_ring),
        cmocka_unit_test(stop_ids_end_the_output),
        cmocka_unit_test(stop_strings_end_the_output),
        cmocka_unit_test(text_is_held_back_only_as_needed),
        cmocka_unit_test(which_stop_it_was),
        cmocka_unit_test(a_reader_can_stop),
        cmocka_unit_test(a_full_context_ends_the_output),
        cmocka_unit_test(bad_requests_are_refused),
        cmocka_unit_test(cancelling_from_the_callback),
        cmocka_unit_test(cancelling_before_the_call),
        cmocka_unit_test(a_thousand_tokens_take_pages_alone),
        cmocka_unit_test(text_and_chat_reuse_what_is_there),
        cmocka_unit_test(chat_starts_over_when_it_cannot_go_back),
    };
    return cmocka_run_group_tests(tests, setup, tiny_teardown);
}
