#include "chat/response.h"

#include "base/checked.h"
#include "base/error.h"
#include "chat/answer_formats.h"
#include "chat/conversation.h"
#include "chat/marks.h"
#include "chat/message_header.h"
#include "chat/tool_call_reader.h"
#include "chat/tools.h"
#include "template/eval.h"
#include "tokenizer/unicode.h"

#include <stdlib.h>
#include <string.h>

enum { TRIES_MAX = 64 }; /* closing marks to try before a call is text */

typedef enum state { IN_TEXT, IN_REASONING, IN_CALL, IN_HEADER } state;

typedef enum opening {
    BY_MARK,
    BY_HEADER,
    AT_START, /* ht_tool_call_format.at_start */
    BY_TEXT   /* ht_tool_call_format.bare */
} opening;

struct ht_response_reader {
    const ht_reasoning_format *reasoning;
    const ht_tool_call_format *calls;  /* NULL: no calls are read */
    const ht_message_format *messages; /* NULL: answers have no messages */
    bool in_text_marks;                /* after the mark that opens the text */
    ht_jinja_value tools;
    ht_answer_fn *fn;
    void *user;
    ht_text held; /* not delivered yet; of a call, all after its opening mark */
    state state;
    bool fresh;      /* only white space since the beginning, reasoning or a call */
    bool first;      /* and nothing before: the white space belongs to the text */
    bool separated;  /* another message of the same part came before: a blank line precedes what is delivered next */
    size_t prompted; /* held bytes that the prompt wrote of a header */
    unsigned shown;  /* parts of which messages were delivered, as bits */
    bool titled;     /* after the reasoning's title and the white space around it */
    bool has_title;  /* it has a title, or the prompt has written it */
    opening opened;  /* how the present calls were opened */
    bool unopened;   /* a closing mark of unmarked calls may follow */
    size_t looked;   /* index from which to search their closing mark */
    int tries;
    size_t failed;   /* after the first closing mark that ended no calls; 0: none */
    size_t head;     /* bytes of the header before a call's arguments */
    ht_text blanks;  /* before their opening mark */
    bool pieces;     /* deliver calls in pieces */
    bool only_calls; /* drop text */
    bool begun;      /* a piece of these calls was delivered: none of them is text */
    ht_call_stream stream;
    bool refused;
};

void ht_response_reader_set_call_pieces(ht_response_reader *r, bool on) { r->pieces = on; }

void ht_response_reader_set_only_calls(ht_response_reader *r) { r->only_calls = true; }

void ht_response_reader_free(ht_response_reader *r) {
    if (!r) return;
    ht_text_discard(&r->held);
    ht_text_discard(&r->blanks);
    free(r);
}

/* ---- delivery ---- */

static void deliver(ht_response_reader *r, const ht_answer_piece *piece) {
    if (piece->part == HT_ANSWER_TEXT && r->only_calls) return;
    if (!r->refused && r->fn && !r->fn(piece, r->user)) r->refused = true;
}

/* Delivers [from, to) of the held text, NUL-terminated. */
static void deliver_held(ht_response_reader *r, ht_answer_part part, size_t from, size_t to) {
    if (to <= from) return;
    char *text = r->held.data;
    const char next = text[to];
    text[to] = '\0';
    deliver(r, &(ht_answer_piece){.part = part, .text = text + from, .n = to - from});
    text[to] = next;
    if (part == HT_ANSWER_TEXT) r->fresh = r->first = r->unopened = false;
}

/* The same, then drops the first n held bytes. */
static void show(ht_response_reader *r, ht_answer_part part, size_t from, size_t to, size_t n) {
    deliver_held(r, part, from, to);
    r->held.len -= n;
    memmove(r->held.data, r->held.data + n, r->held.len + 1);
}

/* Returns to text, or to the next header, after reasoning or calls. */
static void return_to_text(ht_response_reader *r) {
    r->unopened = r->state == IN_CALL && r->opened == BY_TEXT;
    r->state = r->messages ? IN_HEADER : IN_TEXT;
    r->fresh = true;
    r->first = false;
}

/* ---- marks ---- */

bool ht_response_wants_special(const ht_response_reader *r, const char *token) {
    const ht_reasoning_format *t = r->reasoning;
    if (r->state == IN_CALL || r->state == IN_HEADER) return true;
    if (r->messages) return ht_message_is_end(r->messages, token);
    if (r->state == IN_REASONING) return strcmp(token, t->close) == 0;
    if (t->text && strcmp(token, r->in_text_marks ? t->text_end : t->text) == 0) return r->in_text_marks || r->fresh;
    if (strcmp(token, t->open) == 0)
        return t->anywhere || (r->fresh && ht_blanks_after(r->held.data, r->held.len) == r->held.len);
    return r->calls && r->calls->open && strcmp(token, r->calls->open) == 0;
}

ht_reasoning_position ht_response_reasoning_position(const ht_response_reader *r) {
    const ht_reasoning_format *t = r->reasoning;
    const size_t n = r->held.len, n_title = t->title && !r->titled && !r->has_title ? strlen(t->title) : 0;
    if (r->state != IN_REASONING) return (ht_reasoning_position){0};
    const bool is_title = n < n_title && (n == 0 || memcmp(r->held.data, t->title, n) == 0);
    return (ht_reasoning_position){.is_inside = true,
                                   .is_title = is_title,
                                   .has_title = r->has_title,
                                   .title_bytes = is_title ? n : 0,
                                   .closing_bytes = n ? n - ht_mark_beginning(r->held.data, n, t->close) : 0};
}

/* ---- states: each true when there is more to do ---- */

/* Whether a mark shows that there are calls; else only those of known tools are. */
static bool is_marked(const ht_response_reader *r) { return r->opened == BY_MARK || r->opened == BY_HEADER; }

static void enter_call(ht_response_reader *r, opening opened) {
    r->state = IN_CALL;
    r->opened = opened;
    r->looked = 0;
    r->tries = 0;
    r->failed = 0;
    r->begun = false;
    r->stream = (ht_call_stream){.format = r->calls};
}

static bool has_tools(const ht_response_reader *r) { return r->tools.kind == HT_VALUE_LIST && r->tools.list->n; }

/* Texts that open calls anywhere: the mark, and with tools the bare beginning. NULL: none. */
static const char *mark_of_calls(const ht_response_reader *r) { return r->calls ? r->calls->open : NULL; }
static const char *bare_calls(const ht_response_reader *r) { return r->calls && has_tools(r) ? r->calls->bare : NULL; }

/* Index from which the text may begin a mark, or its length. */
static size_t before_a_beginning(const ht_response_reader *r, size_t blank) {
    const ht_reasoning_format *t = r->reasoning;
    const char *text = r->held.data, *const openings[] = {mark_of_calls(r), bare_calls(r)};
    const size_t n = r->held.len, reasoning = ht_mark_beginning(text, n, t->open);
    size_t to = n;
    for (int i = 0; i < 2; i++)
        if (openings[i]) to = ht_min_size(to, ht_mark_beginning(text, n, openings[i]));
    if (r->unopened && ht_mark_beginning(text, n, r->calls->close) == blank) to = ht_min_size(to, blank);
    if (t->text && r->in_text_marks) to = ht_min_size(to, ht_mark_beginning(text, n, t->text_end));
    if (t->text && r->fresh && ht_mark_beginning(text, n, t->text) == blank) to = ht_min_size(to, blank);
    if (reasoning < to && (t->anywhere || (r->fresh && reasoning == blank))) to = reasoning;
    const size_t close = r->first ? ht_mark_beginning(text, n, t->close) : n;
    return close < to && close == blank ? close : to;
}

/* Whether text begins calls of `at_start`: with their first character, or with a tool's name before an object. *may: more
 * text can decide it. */
static bool begins_calls(const ht_response_reader *r, const char *text, size_t n, bool *may) {
    const char first = ht_tool_call_format_first(r->calls);
    size_t name = 0;
    while (!first && name < n && !ht_is_blank(text[name])) name++;
    const size_t after = name + ht_blanks_after(text + name, n - name);
    *may = !first && after == n &&
           (name == n ? ht_tool_name_begins(r->tools, text, n) : ht_tool_find(r->tools, text, name) != NULL);
    if (first) return n && *text == first;
    return after < n && text[after] == '{' && ht_tool_find(r->tools, text, name);
}

/* Reads text up to the next mark, if any; `end`: the answer ends here. */
static bool read_text(ht_response_reader *r, bool end) {
    const ht_reasoning_format *t = r->reasoning;
    const ht_tool_call_format *c = r->calls;
    const char *text = r->held.data;
    const size_t n = r->held.len, blank = r->fresh ? ht_blanks_after(text, n) : 0, from = r->first ? 0 : blank;
    bool may_be_call = false;
    if (c && c->at_start && r->fresh && has_tools(r) && begins_calls(r, text + blank, n - blank, &may_be_call)) {
        if (!r->first) show(r, HT_ANSWER_TEXT, 0, 0, blank);
        enter_call(r, AT_START);
        return true;
    }
    if (may_be_call && !end) return false;
    /* The closing mark of calls that had no opening mark. */
    if (r->unopened && blank < n &&
        (ht_mark_is_at(text + blank, n - blank, c->close) || (end && ht_mark_beginning(text, n, c->close) == blank))) {
        show(r, HT_ANSWER_TEXT, 0, 0, ht_min_size(n, blank + strlen(c->close)));
        r->unopened = false;
        return true;
    }
    if (t->text && !r->in_text_marks && r->fresh && ht_mark_is_at(text + blank, n - blank, t->text)) {
        show(r, HT_ANSWER_TEXT, 0, 0, blank + strlen(t->text));
        r->first = false;
        r->in_text_marks = true;
        return true;
    }
    /* A repeated closing mark of reasoning that the prompt has already closed. */
    if (r->first && blank < n && ht_mark_find(text, n, 0, t->close) == blank) {
        show(r, HT_ANSWER_TEXT, 0, 0, blank + strlen(t->close));
        r->first = false;
        return true;
    }
    const size_t marked = mark_of_calls(r) ? ht_mark_find(text, n, 0, c->open) : n,
                 bare = bare_calls(r) ? ht_mark_find(text, n, 0, c->bare) : n, call = ht_min_size(marked, bare);
    size_t reasoning = ht_mark_find(text, n, 0, t->open);
    if (!t->anywhere && !(r->fresh && reasoning == blank)) reasoning = n;
    const size_t text_end = r->in_text_marks ? ht_mark_find(text, n, 0, t->text_end) : n;
    if (text_end < ht_min_size(reasoning, call)) {
        show(r, HT_ANSWER_TEXT, from, ht_max_size(from, ht_blanks_before(text, text_end)),
             text_end + strlen(t->text_end));
        r->in_text_marks = false;
        r->fresh = true;
        return true;
    }
    if (reasoning < call) {
        show(r, HT_ANSWER_TEXT, from, ht_max_size(from, ht_blanks_before(text, reasoning)),
             reasoning + strlen(t->open));
        r->state = IN_REASONING;
        r->titled = r->has_title = false;
        return true;
    }
    if (call < n) {
        const size_t to = ht_max_size(from, ht_blanks_before(text, call));
        ht_text_clear(&r->blanks);
        ht_text_append(&r->blanks, text + to, call - to);
        show(r, HT_ANSWER_TEXT, from, to, bare < marked ? call : call + strlen(c->open));
        enter_call(r, bare < marked ? BY_TEXT : BY_MARK);
        return true;
    }
    const size_t to = end ? n : ht_blanks_before(text, before_a_beginning(r, blank));
    if (to > blank || end) show(r, HT_ANSWER_TEXT, from, to, to);
    return false;
}

/* ---- messages ---- */

static unsigned part_bit(ht_answer_part part) { return 1u << part; }

/* The tool's name in a header; NULL: the message is no call. */
static const char *called_name(const ht_response_reader *r, const ht_message_header *h, size_t *n) {
    const size_t n_before = strlen(r->messages->calls);
    if (!r->calls || !h->recipient) return NULL;
    const bool has_before = ht_mark_is_at(h->recipient, h->n_recipient, r->messages->calls);
    *n = h->n_recipient - (has_before ? n_before : 0);
    return has_before || ht_tool_find(r->tools, h->recipient, h->n_recipient) ? h->recipient + h->n_recipient - *n
                                                                              : NULL;
}

/* Reduces a call's header to the name and `body`, as the tool-call format has them. */
static void enter_message_call(ht_response_reader *r, const ht_message_header *h, const char *name, size_t n) {
    ht_text call = {0};
    ht_text_append(&call, name, n);
    ht_text_append_str(&call, r->messages->body);
    const size_t n_head = call.len;
    ht_text_append(&call, r->held.data + h->n, r->held.len - h->n);
    ht_text_discard(&r->held);
    r->held = call;
    enter_call(r, BY_HEADER);
    r->looked = n_head;
    r->head = n_head;
}

/* Enters the message of a header that has ended. */
static void enter_message(ht_response_reader *r, const ht_message_header *h) {
    size_t n = 0;
    const char *name = called_name(r, h, &n);
    r->prompted = 0;
    if (name) {
        enter_message_call(r, h, name, n);
        return;
    }
    r->state = h->is_reasoning ? IN_REASONING : IN_TEXT;
    r->separated = r->shown & part_bit(h->is_reasoning ? HT_ANSWER_THINKING : HT_ANSWER_TEXT);
    show(r, HT_ANSWER_TEXT, 0, 0, h->n);
}

/* Finds the message in which the prompt ends. */
static void begin_in_prompt(ht_response_reader *r, const char *prompt, size_t n) {
    const ht_message_format *m = r->messages;
    const char *last = NULL;
    ht_message_header h;
    for (const char *at = prompt; (at = memmem(at, n - (size_t)(at - prompt), m->begin, strlen(m->begin))); at++)
        last = at;
    r->state = IN_HEADER;
    if (!last) return;
    n -= (size_t)(last - prompt);
    const ht_header_match match = ht_message_header_match(m, last, n, &h);
    if (match == HT_HEADER_WHOLE && ht_message_end_find(m, last, n, h.n).at == n)
        r->state = h.is_reasoning ? IN_REASONING : IN_TEXT;
    else if (match == HT_HEADER_NONE)
        r->state = IN_TEXT;
    if (match != HT_HEADER_BEGUN) return;
    ht_text_append(&r->held, last, n);
    r->prompted = n;
}

/* Delivers the first n held bytes of a message, and drops `skip` more. */
static void show_content(ht_response_reader *r, ht_answer_part part, size_t n, size_t skip) {
    if (n && r->separated) deliver(r, &(ht_answer_piece){.part = part, .text = "\n\n", .n = 2});
    if (n) {
        r->separated = false;
        r->shown |= part_bit(part);
    }
    show(r, part, 0, n, n + skip);
}

/* Reads a header. Text that is none is text. */
static bool read_header(ht_response_reader *r, bool end) {
    ht_message_header h;
    const ht_header_match match = ht_message_header_match(r->messages, r->held.data, r->held.len, &h);
    if (match == HT_HEADER_WHOLE) {
        enter_message(r, &h);
        return true;
    }
    if (match == HT_HEADER_BEGUN && !end) return false;
    const size_t n_head = ht_max_size(ht_min_size(r->prompted, r->held.len), h.n_role);
    r->prompted = 0;
    r->state = IN_TEXT;
    r->separated = r->shown & part_bit(HT_ANSWER_TEXT);
    show(r, HT_ANSWER_TEXT, 0, 0, n_head);
    if (match == HT_HEADER_BEGUN && (h.has_field || memchr(r->held.data, '<', r->held.len))) ht_text_clear(&r->held);
    /* A mark that begins no message becomes text; else it would be read as the next header. */
    const char *const marks[] = {r->messages->begin, r->messages->fields[0]};
    const size_t blank = ht_blanks_after(r->held.data, r->held.len);
    for (int i = 0; i < 2 && !n_head; i++)
        if (ht_mark_is_at(r->held.data + blank, r->held.len - blank, marks[i])) {
            show_content(r, HT_ANSWER_TEXT, blank + strlen(marks[i]), 0);
            break;
        }
    return r->held.len > 0;
}

/* Reads the content of a message of reasoning or text. */
static bool read_content(ht_response_reader *r, bool end) {
    const ht_answer_part part = r->state == IN_REASONING ? HT_ANSWER_THINKING : HT_ANSWER_TEXT;
    const size_t n = r->held.len;
    const ht_message_end close = ht_message_end_find(r->messages, r->held.data, n, 0);
    const bool closed = close.at < n;
    if (closed) r->state = IN_HEADER;
    show_content(r, part, closed || end ? close.at : ht_message_end_beginning(r->messages, r->held.data, n),
                 close.skip);
    return closed;
}

ht_status ht_response_reader_new(const ht_chat_template *t, ht_jinja_value tools, const char *prompt, size_t n_prompt,
                                 ht_answer_fn *fn, void *user, ht_response_reader **out, ht_error *err) {
    ht_response_reader *r = *out = calloc(1, sizeof *r);
    if (!r) return ht_fail_memory(err, sizeof *r, "an answer");
    *r = (ht_response_reader){.reasoning = ht_reasoning_format_of(ht_chat_template_source(t)),
                              .calls = ht_tool_call_format_of(ht_chat_template_source(t)),
                              .messages = ht_message_format_of(ht_chat_template_source(t)),
                              .tools = tools,
                              .fn = fn,
                              .user = user,
                              .fresh = true,
                              .first = true};
    if (r->messages)
        begin_in_prompt(r, prompt, n_prompt);
    else if (ht_reasoning_is_open(r->reasoning, prompt, n_prompt, &r->has_title))
        r->state = IN_REASONING;
    if (!r->held.failed) return HT_OK;
    ht_response_reader_free(r);
    *out = NULL;
    return ht_fail_memory(err, n_prompt, "an answer");
}

static bool read_reasoning(ht_response_reader *r, bool end) {
    const ht_reasoning_format *t = r->reasoning;
    const size_t close = ht_mark_find(r->held.data, r->held.len, 0, t->close);
    const bool closed = close < r->held.len;
    if (!r->titled) {
        const size_t n_title = t->title ? strlen(t->title) : 0;
        size_t from = ht_blanks_after(r->held.data, close);
        const bool may_be_title = close - from < n_title && memcmp(r->held.data + from, t->title, close - from) == 0;
        if (!closed && !end && (from == close || may_be_title)) return false;
        if (n_title && ht_mark_is_at(r->held.data + from, close - from, t->title)) {
            from += n_title;
            r->has_title = true;
        }
        show(r, HT_ANSWER_THINKING, 0, 0, from);
        r->titled = true;
        return true;
    }
    const char *text = r->held.data;
    const size_t n = r->held.len;
    if (closed) {
        const size_t to = ht_blanks_before(text, close);
        show(r, HT_ANSWER_THINKING, 0, to, close + strlen(t->close));
        return_to_text(r);
        return true;
    }
    const size_t to = end ? ht_blanks_before(text, n) : ht_blanks_before(text, ht_mark_beginning(text, n, t->close));
    show(r, HT_ANSWER_THINKING, 0, to, end ? n : to);
    return false;
}

/* Delivers a whole call, or with `cut` the beginning of one. */
static void show_call(ht_response_reader *r, const ht_tool_call *call, bool cut) {
    if (!r->pieces) {
        deliver(r, &(ht_answer_piece){.part = HT_ANSWER_CALL, .call = call});
        return;
    }
    const ht_tool_call head = {.name = call->name, .id = call->id};
    deliver(r, &(ht_answer_piece){.part = HT_ANSWER_CALL_BEGIN, .call = &head});
    const size_t n = strlen(call->arguments);
    if (n) deliver(r, &(ht_answer_piece){.part = HT_ANSWER_CALL_ARGUMENTS, .text = call->arguments, .n = n});
    deliver(r, &(ht_answer_piece){.part = HT_ANSWER_CALL_END, .cut = cut});
}

/* Delivers the calls in the held bytes [from, n); false if they are not calls. */
static bool show_calls(ht_response_reader *r, size_t from, size_t n, bool is_truncated, bool with_truncated) {
    ht_jinja_arena a = {.limit = (size_t)64 << 20, .name = "an answer"};
    ht_call_reading reading = {.a = &a,
                               .tools = r->tools,
                               .only_tools = !is_marked(r),
                               .is_truncated = is_truncated,
                               .with_truncated = with_truncated};
    bool good = ht_tool_calls_read(&reading, r->calls, r->held.data + from, n - from);
    /* Before a truncated call whose name is unknown there may be others. */
    good = (good || (with_truncated && r->opened != AT_START)) && !a.status && reading.n;
    ht_tool_call *calls = good ? ht_jinja_arena_alloc(&a, reading.n * sizeof *calls) : NULL;
    for (size_t i = 0; calls && i < reading.n; i++) {
        const ht_read_call *c = &reading.calls[i];
        const ht_jinja_string *arguments = c->begun ? c->begun : ht_tool_json(&a, c->arguments);
        if (arguments) calls[i] = (ht_tool_call){c->name->text, arguments->text, c->id ? c->id->text : NULL};
    }
    good = calls && !a.status;
    for (size_t i = 0; good && i < reading.n; i++) show_call(r, &calls[i], reading.calls[i].begun);
    ht_jinja_arena_free(&a);
    return good;
}

/* Turns failed calls into text, with the white space before, up to the first closing mark. Later text is read again. */
static void call_is_text(ht_response_reader *r) {
    size_t n = r->failed;
    if (r->opened == BY_HEADER) {
        r->state = IN_TEXT;
        r->separated = r->shown & part_bit(HT_ANSWER_TEXT);
        show(r, HT_ANSWER_TEXT, 0, 0, r->head);
        return;
    }
    if (r->opened != AT_START) {
        ht_text whole = {0};
        ht_text_append(&whole, r->blanks.data, r->blanks.len);
        if (r->opened == BY_MARK)
            ht_text_append_str(&whole, r->calls->open);
        else
            n = ht_max_size(n, strlen(r->calls->bare));
        n += whole.len;
        ht_text_append(&whole, r->held.data, r->held.len);
        ht_text_discard(&r->held);
        r->held = whole;
    } else
        n = r->held.len;
    r->state = IN_TEXT;
    if (!r->held.failed) show(r, HT_ANSWER_TEXT, 0, n, n);
    r->fresh = r->first = false;
}

void ht_response_reader_end_calls(ht_response_reader *r) {
    if (r->state == IN_CALL && r->begun) return;
    if (r->state == IN_CALL) call_is_text(r);
    r->calls = NULL;
    r->unopened = false;
}

/* ---- calls in pieces ---- */

static void show_arguments(ht_response_reader *r, size_t to) {
    deliver_held(r, HT_ANSWER_CALL_ARGUMENTS, r->stream.shown, to);
    r->stream.shown = ht_max_size(r->stream.shown, to);
}

/* False if the name is invalid: the text is then no call. */
static bool show_beginning(ht_response_reader *r) {
    const ht_span n = r->stream.name, i = r->stream.id;
    ht_text name = {0}, id = {0};
    if (!ht_is_call_name(n.p, n.n) || (!is_marked(r) && !ht_tool_find(r->tools, n.p, n.n))) return false;
    ht_text_append(&name, n.p, n.n);
    ht_text_append(&id, i.p, i.n);
    if (name.failed || id.failed)
        r->held.failed = true;
    else {
        const ht_tool_call call = {.name = name.data, .id = i.n ? id.data : NULL};
        deliver(r, &(ht_answer_piece){.part = HT_ANSWER_CALL_BEGIN, .call = &call});
    }
    ht_text_discard(&name);
    ht_text_discard(&id);
    r->begun = true;
    return true;
}

static void show_ending(ht_response_reader *r, bool broken) {
    const ht_call_stream *c = &r->stream;
    ht_jinja_arena a = {.limit = (size_t)64 << 20, .name = "an answer"};
    const size_t from = c->begin;
    const bool whole = !broken && ht_is_arguments(&a, r->held.data + from, c->shown - from);
    ht_jinja_arena_free(&a);
    deliver(r, &(ht_answer_piece){.part = HT_ANSWER_CALL_END, .cut = !whole});
}

/* Streams the calls received so far. */
static void read_pieces(ht_response_reader *r) {
    ht_call_stream *c = &r->stream;
    for (bool more = c->stage != HT_CALL_REST; more && !r->refused && !r->held.failed;) {
        const ht_call_event event = ht_call_stream_next(c, r->held.data, r->held.len);
        if (event == HT_CALL_BEGINS && !show_beginning(r)) {
            c->stage = HT_CALL_REST;
            c->at = 0;
        }
        if (c->stage == HT_CALL_IN_ARGUMENTS)
            show_arguments(r, c->at);
        else if (c->stage == HT_CALL_AFTER_ARGUMENTS || event == HT_CALL_ENDS)
            show_arguments(r, c->end);
        if (event == HT_CALL_ENDS) show_ending(r, c->is_broken);
        more = event != HT_CALL_NEEDS_TEXT && c->stage != HT_CALL_REST;
    }
}

/* The text that ends calls; NULL: the end of the answer, or of the message. */
static const char *closing_text(const ht_response_reader *r) {
    if (r->opened == BY_TEXT) return ht_tool_call_format_bare_end(r->calls);
    return r->opened == BY_MARK ? r->calls->close : NULL;
}

/* The first end of calls from an index of the held text on. */
static ht_message_end find_close(const ht_response_reader *r, size_t from) {
    const char *close = closing_text(r), *text = r->held.data;
    const size_t n = r->held.len;
    if (r->opened == BY_HEADER) return ht_message_end_find(r->messages, text, n, from);
    return close ? (ht_message_end){ht_mark_find(text, n, from, close), strlen(close)} : (ht_message_end){.at = n};
}

/* Ends streamed calls at the closing mark, and delivers calls before it that could not be streamed. */
static bool finish_pieces(ht_response_reader *r, bool end) {
    ht_call_stream *c = &r->stream;
    const bool is_open = c->stage == HT_CALL_IN_ARGUMENTS || c->stage == HT_CALL_AFTER_ARGUMENTS;
    const ht_message_end close = is_open ? (ht_message_end){.at = r->held.len} : find_close(r, c->at);
    size_t at = close.at;
    if (at == r->held.len && !end) return false;
    if (is_open) {
        show_ending(r, c->stage == HT_CALL_IN_ARGUMENTS);
        at = c->at = r->held.len;
    }
    size_t to = ht_blanks_before(r->held.data, at);
    if (to > c->at && r->held.data[to - 1] == ']' && r->calls->begin) to--;
    const bool is_truncated = at == r->held.len;
    if (to > c->at && !c->is_broken) (void)show_calls(r, c->at, to, is_truncated, is_truncated);
    show(r, HT_ANSWER_CALL, 0, 0, is_truncated ? at : at + close.skip);
    return_to_text(r);
    return r->held.len > 0;
}

/* Index from which held text may begin an end of calls. */
static size_t before_close(const ht_response_reader *r) {
    const char *close = closing_text(r), *text = r->held.data;
    if (r->opened == BY_HEADER) return ht_message_end_beginning(r->messages, text, r->held.len);
    return close ? ht_mark_beginning(text, r->held.len, close) : r->held.len;
}

static bool read_call(ht_response_reader *r, bool end) {
    if (r->pieces) read_pieces(r);
    if (r->begun) return finish_pieces(r, end);
    const char *bare_end = r->opened == BY_TEXT ? closing_text(r) : NULL; /* a part of the call */
    const bool ends_by_mark = closing_text(r);
    const ht_message_end close = find_close(r, r->looked);
    if (close.at < r->held.len) {
        if (show_calls(r, 0, close.at + (bare_end ? close.skip : 0), false, false)) {
            show(r, HT_ANSWER_CALL, 0, 0, close.at + close.skip);
            return_to_text(r);
            return true;
        }
        r->looked = close.at + 1;
        if (!r->failed) r->failed = close.at + close.skip;
        if (++r->tries == TRIES_MAX) call_is_text(r);
        return true;
    }
    r->looked = ht_max_size(r->looked, before_close(r));
    if (!end) return false;
    /* An incomplete closing mark is not part of the calls. */
    const size_t n = bare_end ? r->held.len : before_close(r);
    if (!show_calls(r, 0, n, ends_by_mark, r->pieces && !r->failed)) {
        call_is_text(r);
        return r->held.len > 0;
    }
    ht_text_clear(&r->held);
    r->state = IN_TEXT;
    r->first = false;
    return false;
}

static ht_response_state advance(ht_response_reader *r, bool end) {
    bool more = true;
    if (!r->held.data) ht_text_append_str(&r->held, "");
    while (more && !r->refused && !r->held.failed) {
        switch (r->state) {
        case IN_TEXT: more = r->messages ? read_content(r, end) : read_text(r, end); break;
        case IN_REASONING: more = r->messages ? read_content(r, end) : read_reasoning(r, end); break;
        case IN_HEADER: more = read_header(r, end); break;
        case IN_CALL: more = read_call(r, end); break;
        }
    }
    return r->held.failed || r->blanks.failed ? HT_RESPONSE_NO_MEMORY
           : r->refused                       ? HT_RESPONSE_REFUSED
                                              : HT_RESPONSE_OPEN;
}

ht_response_state ht_response_put(ht_response_reader *r, const char *text, size_t n) {
    ht_text_append(&r->held, text, n);
    return advance(r, false);
}

ht_response_state ht_response_put_special(ht_response_reader *r, const char *token) {
    return ht_response_wants_special(r, token) ? ht_response_put(r, token, strlen(token)) : HT_RESPONSE_OPEN;
}

ht_response_state ht_response_end(ht_response_reader *r) { return advance(r, true); }

/* ---- a whole answer ---- */

enum { ANSWER_PIECE = 4096 };

ht_status ht_chat_read_answer(const ht_chat *chat, const ht_chat_template *t, const char *prompt, const char *text,
                              size_t n, ht_answer_fn *fn, void *user, ht_error *err) {
    ht_text repaired = {0};
    if (!ht_utf8_valid(text, n)) {
        ht_unicode_repair(text, n, &repaired);
        text = repaired.data;
        n = repaired.len;
    }
    ht_response_reader *r = NULL;
    ht_status status = repaired.failed ? ht_fail_memory(err, n, "an answer") : HT_OK;
    if (!status)
        status = ht_response_reader_new(t, chat ? chat->tools : ht_jinja_none(), prompt ? prompt : "",
                                        prompt ? strlen(prompt) : 0, fn, user, &r, err);
    ht_response_state reading = HT_RESPONSE_OPEN;
    /* In pieces: each delivery moves the rest of the held text, which must stay short. */
    for (size_t at = 0, end; at < n && !status && reading == HT_RESPONSE_OPEN; at = end) {
        end = n - at > ANSWER_PIECE ? at + ANSWER_PIECE : n;
        while (end < n && ((unsigned char)text[end] & 0xC0) == 0x80) end++;
        reading = ht_response_put(r, text + at, end - at);
    }
    if (!status && reading == HT_RESPONSE_OPEN) reading = ht_response_end(r);
    if (reading == HT_RESPONSE_REFUSED) status = ht_fail(err, HT_ERR_CANCELLED, "reading the answer was ended");
    if (reading == HT_RESPONSE_NO_MEMORY) status = ht_fail_memory(err, n, "an answer");
    ht_response_reader_free(r);
    ht_text_discard(&repaired);
    return status;
}
