#include "generate/token_output.h"

#include "base/error.h"
#include "tokenizer/tokenizer.h"

#include <string.h>

ht_status ht_text_stream_check_stops(const char *const *stop, int n_stop, ht_error *err) {
    if (n_stop < 0 || (n_stop > 0 && !stop))
        return ht_fail(err, HT_ERR_ARGUMENT, "%d stop strings were announced and none given", n_stop);
    for (int i = 0; i < n_stop; i++) {
        if (!stop[i] || !*stop[i]) return ht_fail(err, HT_ERR_ARGUMENT, "stop string %d is empty", i);
        if (!ht_utf8_valid(stop[i], strlen(stop[i])))
            return ht_fail(err, HT_ERR_ARGUMENT, "stop string %d is not UTF-8", i);
    }
    return HT_OK;
}

void ht_text_stream_free(ht_text_stream *o) { ht_text_discard(&o->held); }

/* Start of the first complete stop string, or `none`; *which is the first of those that begin there. */
static size_t find_stop(const ht_text_stream *o, size_t none, int *which) {
    size_t found = none;
    for (int i = 0; i < o->n_stop; i++) {
        size_t length = strlen(o->stop[i]);
        for (size_t at = 0; at + length <= o->held.len && at < found; at++)
            if (memcmp(o->held.data + at, o->stop[i], length) == 0) {
                found = at;
                *which = i;
            }
    }
    return found;
}

/* Length of the longest suffix of the text that begins a stop string. */
static size_t beginning_of_stop(const ht_text_stream *o) {
    size_t longest = 0;
    for (int i = 0; i < o->n_stop; i++) {
        size_t length = strlen(o->stop[i]) - 1;
        if (length > o->held.len) length = o->held.len;
        for (; length > longest; length--)
            if (memcmp(o->held.data + o->held.len - length, o->stop[i], length) == 0) longest = length;
    }
    return longest;
}

/* Delivers the first n held bytes. */
static ht_text_stream_state show(ht_text_stream *o, size_t n) {
    if (n == 0) return HT_TEXT_STREAM_OPEN;
    char next = o->held.data[n];
    o->held.data[n] = '\0';
    if (o->fn && !o->fn(o->held.data, n, o->user)) o->closed = true;
    o->held.data[n] = next;
    o->held.len -= n;
    memmove(o->held.data, o->held.data + n, o->held.len + 1);
    return o->closed ? HT_TEXT_STREAM_REFUSED : HT_TEXT_STREAM_OPEN;
}

ht_text_stream_state ht_text_stream_put(ht_text_stream *o, const char *text, size_t n) {
    if (o->closed || n == 0) return HT_TEXT_STREAM_OPEN;
    ht_text_append(&o->held, text, n);
    if (o->held.failed) return HT_TEXT_STREAM_NO_MEMORY;
    int which = -1;
    size_t stop = find_stop(o, o->held.len, &which);
    if (stop == o->held.len) return show(o, o->held.len - beginning_of_stop(o));
    ht_text_stream_state state = show(o, stop);
    ht_text_clear(&o->held);
    o->closed = true;
    if (state != HT_TEXT_STREAM_OPEN) return state;
    o->found = which;
    return HT_TEXT_STREAM_STOPPED;
}

ht_text_stream_state ht_text_stream_end(ht_text_stream *o) {
    return o->closed || o->held.failed ? HT_TEXT_STREAM_OPEN : show(o, o->held.len);
}

static bool put_answer(const char *text, size_t n, void *user) {
    ht_token_output *o = user;
    const ht_response_state state = ht_response_put(o->answer, text, n);
    o->no_memory = state == HT_RESPONSE_NO_MEMORY;
    return state == HT_RESPONSE_OPEN;
}

ht_status ht_token_output_begin(ht_token_output *o, const ht_tokenizer *t, const ht_generate_options *options,
                                ht_response_reader *answer, ht_text_fn *fn, void *user, ht_error *err) {
    *o = (ht_token_output){.tokenizer = t, .answer = answer, .stream.found = -1};
    ht_status status = ht_text_stream_check_stops(options->stop, options->n_stop, err);
    if (status) return status;
    o->stream = (ht_text_stream){.stop = options->stop,
                                 .n_stop = options->n_stop,
                                 .found = -1,
                                 .fn = answer ? put_answer : fn,
                                 .user = answer ? o : user};
    return o->stream.fn || o->stream.n_stop ? ht_decoder_new(t, true, &o->decoder, err) : HT_OK;
}

void ht_token_output_free(ht_token_output *o) {
    ht_decoder_free(o->decoder);
    ht_text_stream_free(&o->stream);
}

void ht_token_output_join(ht_token_output *o, const int32_t *ids, int64_t n) {
    int64_t i = 0;
    while (o->decoder && i < n && ht_tokenizer_is_special(o->tokenizer, ids[i])) i++;
    if (o->decoder && i < n) ht_decoder_join(o->decoder);
}

static ht_status after(const ht_token_output *o, ht_text_stream_state state, ht_finish *finish, ht_error *err) {
    switch (state) {
    case HT_TEXT_STREAM_OPEN: break;
    case HT_TEXT_STREAM_STOPPED: *finish = HT_FINISH_STOP; break;
    case HT_TEXT_STREAM_REFUSED:
        if (o->no_memory) return ht_fail_memory(err, 0, "the answer");
        *finish = HT_FINISH_CALLBACK;
        break;
    case HT_TEXT_STREAM_NO_MEMORY: return ht_fail_memory(err, o->stream.held.len, "the generated text");
    }
    return HT_OK;
}

/* Flushes half a character before a mark, as the other half cannot follow. */
static ht_status put_half_character(ht_token_output *o, ht_finish *finish, ht_error *err) {
    const char *piece;
    size_t n;
    const ht_status status = ht_decoder_flush(o->decoder, &piece, &n, err);
    if (o->has_text) ht_decoder_join(o->decoder);
    return status ? status : after(o, ht_text_stream_put(&o->stream, piece, n), finish, err);
}

/* A special token may be a mark in an answer; otherwise it is no text. Text held back for a stop string comes first. */
static ht_status put_special(ht_token_output *o, int32_t id, ht_finish *finish, ht_error *err) {
    const char *token = ht_tokenizer_piece(o->tokenizer, id);
    if (!ht_response_wants_special(o->answer, token)) return HT_OK;
    ht_status status = put_half_character(o, finish, err);
    if (!status && !*finish) status = after(o, ht_text_stream_end(&o->stream), finish, err);
    if (status || *finish) return status;
    const ht_response_state state = ht_response_put_special(o->answer, token);
    o->no_memory = state == HT_RESPONSE_NO_MEMORY;
    return after(o, state == HT_RESPONSE_OPEN ? HT_TEXT_STREAM_OPEN : HT_TEXT_STREAM_REFUSED, finish, err);
}

ht_status ht_token_output_put(ht_token_output *o, int32_t id, ht_finish *finish, ht_error *err) {
    /* The head may have more rows than the vocabulary has tokens; those have no text. */
    if (!o->decoder || id >= ht_tokenizer_vocab_size(o->tokenizer)) return HT_OK;
    if (o->answer && ht_tokenizer_is_special(o->tokenizer, id)) return put_special(o, id, finish, err);
    const char *piece;
    size_t n;
    const ht_status status = ht_decoder_feed(o->decoder, id, &piece, &n, err);
    o->has_text = true;
    return status ? status : after(o, ht_text_stream_put(&o->stream, piece, n), finish, err);
}

ht_status ht_token_output_end(ht_token_output *o, ht_finish *finish, ht_error *err) {
    const char *piece;
    size_t n;
    if (!o->decoder) return HT_OK;
    if (!o->stream.closed) {
        if (ht_decoder_flush(o->decoder, &piece, &n, NULL) == HT_OK) (void)ht_text_stream_put(&o->stream, piece, n);
        (void)ht_text_stream_end(&o->stream);
    }
    const ht_response_state state = o->answer ? ht_response_end(o->answer) : HT_RESPONSE_OPEN;
    if (state == HT_RESPONSE_NO_MEMORY) o->no_memory = true;
    if (state == HT_RESPONSE_REFUSED) *finish = HT_FINISH_CALLBACK;
    return o->no_memory ? ht_fail_memory(err, 0, "the answer") : HT_OK;
}
