#include "chat/tool_call_stream.h"

/* Moves to the next call; MATCHES: at its arguments. */
static ht_match seek(ht_call_stream *c, ht_span s, const char *text) {
    const ht_tool_call_format *f = c->format;
    ht_span_skip_any(&s, " \t\r\n,;");
    if (!f->close && f->open) {
        if (s.n && s.n < strlen(f->open) && memcmp(s.p, f->open, s.n) == 0) return HT_TRUNCATED;
        while (ht_span_accept(&s, f->open)) ht_span_skip_blanks(&s);
    }
    if (s.n && *s.p == '[') ht_span_skip(&s, 1);
    const ht_match m = ht_tool_call_read_head(f, &s, &c->name, &c->id, &c->tail);
    if (m == HT_MATCHES) c->at = c->begin = c->shown = (size_t)(s.p - text);
    return m;
}

/* Reads on in the arguments and the JSON object that encloses them. */
static ht_call_event read_json(ht_call_stream *c, const char *text, size_t n) {
    for (; c->at < n; c->at++) {
        const char b = text[c->at];
        if (c->is_quoted) {
            if (!c->is_escaped && b == '"') c->is_quoted = false;
            c->is_escaped = !c->is_escaped && b == '\\';
            continue;
        }
        /* JSON has none outside of strings: a mark, before the call has ended. */
        if (b == '<') {
            c->is_broken = c->stage == HT_CALL_IN_ARGUMENTS;
            c->end = c->is_broken ? c->at : c->end;
            c->stage = HT_CALL_REST;
            return HT_CALL_ENDS;
        }
        if (b == '"')
            c->is_quoted = true;
        else if (b == '{' || b == '[')
            c->depth++;
        else if ((b == '}' || b == ']') && c->stage == HT_CALL_AFTER_ARGUMENTS && !c->depth) {
            c->at++;
            c->stage = HT_CALL_SEEK;
            return HT_CALL_ENDS;
        } else if ((b == '}' || b == ']') && !--c->depth && c->stage == HT_CALL_IN_ARGUMENTS) {
            c->end = ++c->at;
            c->stage = HT_CALL_AFTER_ARGUMENTS;
            return HT_CALL_NEEDS_TEXT;
        }
    }
    return HT_CALL_NEEDS_TEXT;
}

ht_call_event ht_call_stream_next(ht_call_stream *c, const char *text, size_t n) {
    if (c->stage == HT_CALL_SEEK) {
        const ht_match m = seek(c, (ht_span){text + c->at, n - c->at}, text);
        if (m == HT_MATCHES) {
            c->stage = HT_CALL_IN_ARGUMENTS;
            c->depth = 0;
            c->is_quoted = c->is_escaped = false;
            return HT_CALL_BEGINS;
        }
        if (m == HT_DIFFERS) c->stage = HT_CALL_REST;
        return HT_CALL_NEEDS_TEXT;
    }
    if (c->stage == HT_CALL_IN_ARGUMENTS) {
        const ht_call_event event = read_json(c, text, n);
        if (c->stage != HT_CALL_AFTER_ARGUMENTS) return event;
    }
    if (c->stage != HT_CALL_AFTER_ARGUMENTS) return HT_CALL_NEEDS_TEXT;
    if (strchr(c->tail, '}')) return read_json(c, text, n);
    ht_span s = {text + c->at, n - c->at};
    const ht_match m = ht_tool_call_read_tail(&s, c->tail);
    if (m == HT_TRUNCATED) return HT_CALL_NEEDS_TEXT;
    c->stage = m == HT_MATCHES ? HT_CALL_SEEK : HT_CALL_REST;
    c->at = (size_t)(s.p - text);
    return HT_CALL_ENDS;
}
