#include "generate/text_stream.h"

#include "base/error.h"

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

/* Where the first stop string that is there in full begins, or `none`; *which is the first of those that begin there. */
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

/* Length of the longest end of the text that begins a stop string. */
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

/* Hands over the first n held bytes. */
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
