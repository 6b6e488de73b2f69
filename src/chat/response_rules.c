#include "chat/response_rules.h"

#include "base/error.h"
#include "chat/tool_call_rules.h"

#include <string.h>

/* ---- texts, and reasoning before the text of a grammar ---- */

static ht_re text_of(ht_regexes *re, const char *text) { return ht_re_text(re, text, strlen(text)); }

/* Up to `most` spaces, tabs and ends of lines. */
static ht_re white_space(ht_regexes *re, uint32_t most) {
    ht_byte_set set = {{0}};
    ht_byte_set_add(&set, '\t', '\n');
    ht_byte_set_add(&set, '\r', '\r');
    ht_byte_set_add(&set, ' ', ' ');
    return ht_re_repeat(re, ht_re_bytes(re, &set), 0, most);
}

static ht_symbol blank_lexeme(ht_rules *r, uint32_t most) {
    return ht_rules_lexeme(r, ht_re_without_empty(r->re, white_space(r->re, most)));
}

static ht_re containing(ht_regexes *re, const char *text) {
    return ht_re_concat(re, HT_RE_ALL, ht_re_concat(re, text_of(re, text), HT_RE_ALL));
}

/* Whether an end of one text begins the other. */
static bool overlaps(const char *first, const char *second) {
    const size_t n = strlen(first);
    for (size_t length = 1; length < n; length++)
        if (strncmp(first + n - length, second, length) == 0) return true;
    return false;
}

/* Text through a mark. Before it come neither the mark nor any of the n_others, nor a text of `not_before`. */
static ht_re until(ht_regexes *re, const char *mark, const char *const *others, size_t n_others, ht_re not_before) {
    const ht_re end = text_of(re, mark);
    ht_re before = containing(re, mark);
    bool overlap = overlaps(mark, mark);
    for (size_t i = 0; i < n_others; i++) {
        before = ht_re_either(re, before, containing(re, others[i]));
        overlap = overlap || overlaps(others[i], mark);
    }
    before = ht_re_either(re, before, not_before);
    const ht_re text = ht_re_concat(re, ht_re_not(re, before), end);
    if (!overlap) return text;
    /* A text that overlaps the mark ends before it: only the whole text ends with a mark, no beginning of it. */
    const ht_re more = ht_re_concat(re, ht_re_byte_range(re, 0, 255), HT_RE_ALL);
    ht_re later = ht_re_concat(re, ht_re_concat(re, HT_RE_ALL, end), more);
    for (size_t i = 0; i < n_others; i++)
        later = ht_re_either(re, later, ht_re_concat(re, ht_re_concat(re, HT_RE_ALL, text_of(re, others[i])), more));
    return ht_re_both(re, ht_re_concat(re, ht_re_not(re, not_before), end), ht_re_not(re, later));
}

ht_answer_marks ht_answer_marks_of(const ht_chat_template *t) {
    if (!t) return (ht_answer_marks){0};
    return (ht_answer_marks){ht_reasoning_format_in(t), ht_message_format_of(ht_chat_template_source(t))};
}

static void note(const char *const *texts, size_t n, ht_text *spelled) {
    for (size_t i = 0; i < n; i++)
        if (texts[i]) ht_text_printf(spelled, "%s\n", texts[i]);
}

void ht_answer_marks_note(const ht_answer_marks *marks, ht_text *spelled) {
    const ht_reasoning_format *t = marks->reasoning;
    const ht_message_format *m = marks->messages;
    if (t) note((const char *const[]){t->open, t->close, t->text, t->text_end}, 4, spelled);
    if (!m) return;
    note((const char *const[]){m->begin, m->body}, 2, spelled);
    note(m->fields, HT_HEADERS_MOST, spelled);
    note(m->text, HT_HEADERS_MOST, spelled);
    note(m->call, HT_HEADERS_MOST, spelled);
}

/* Text through the end of reasoning. In messages other marks cannot precede it. */
static ht_re reasoning_text(ht_regexes *re, const ht_reasoning_format *t, const ht_message_format *m) {
    const char *const others[] = {m ? m->begin : NULL, m ? m->body : NULL, m ? m->fields[0] : NULL};
    return until(re, t->close, others, m ? 3 : 0, HT_RE_NONE);
}

/* The text between a message and the next one's header. */
static ht_re next_message(ht_regexes *re, const ht_message_format *m) {
    return ht_re_concat(re, text_of(re, m->begin), text_of(re, m->role));
}

static ht_symbol header_lexeme(ht_rules *r, const ht_message_format *m) {
    ht_regexes *re = r->re;
    ht_re all = HT_RE_NONE;
    for (int i = 0; i < HT_HEADERS_MOST && m->text[i]; i++) all = ht_re_either(re, all, text_of(re, m->text[i]));
    return ht_rules_lexeme(r, ht_re_concat(re, all, text_of(re, m->body)));
}

/* A text, alone or between the marks of texts. */
static ht_symbol in_text_marks(ht_rules *r, const ht_reasoning_format *t, ht_symbol text) {
    ht_regexes *re = r->re;
    const ht_re blanks = white_space(re, HT_BLANKS_MOST);
    const ht_symbol all = ht_rules_rule(r);
    const ht_symbol open = ht_rules_lexeme(r, ht_re_concat(re, text_of(re, t->text), blanks));
    const ht_symbol close = ht_rules_lexeme(r, ht_re_concat(re, blanks, text_of(re, t->text_end)));
    ht_rules_add(r, all, &text, 1);
    ht_rules_add(r, all, (ht_symbol[]){open, text, close}, 3);
    return all;
}

void ht_rules_add_reasoning(ht_rules *r, const ht_answer_marks *marks, bool is_text) {
    const ht_reasoning_format *t = marks->reasoning;
    const ht_message_format *m = marks->messages;
    if (!t || r->status) return;
    ht_regexes *re = r->re;
    bool has_text;
    const ht_symbol bare = r->start[0], text = is_text && t->text ? in_text_marks(r, t, bare) : bare;
    const ht_symbol after = ht_rules_rule(r), in = ht_rules_rule(r), answer = ht_rules_rule(r);
    const ht_re blanks = m ? HT_RE_EMPTY : white_space(re, HT_BLANKS_MOST);
    const ht_symbol open = ht_rules_lexeme(r, ht_re_concat(re, blanks, text_of(re, t->open)));
    const ht_symbol reasoning = ht_rules_free_lexeme(r, reasoning_text(re, t, m), false, false);
    if (m) {
        const ht_symbol next = ht_rules_lexeme(r, next_message(re, m));
        ht_rules_add(r, after, (ht_symbol[]){next, answer}, 2);
    } else {
        const ht_symbol blank = blank_lexeme(r, HT_BLANKS_MOST);
        ht_rules_add(r, after, &text, 1);
        ht_rules_add(r, after, (ht_symbol[]){blank, text}, 2);
    }
    ht_rules_add(r, in, (ht_symbol[]){reasoning, after}, 2);
    if (m && is_text) {
        const ht_symbol header = header_lexeme(r, m);
        ht_rules_add(r, answer, (ht_symbol[]){header, text}, 2);
    } else
        ht_rules_add(r, answer, &text, 1);
    ht_rules_add(r, answer, (ht_symbol[]){open, in}, 2);
    r->start[HT_START_ANSWER] = answer;
    r->start[HT_START_IN_REASONING] = in;
    r->n_starts = HT_START_IN_REASONING + 1;
    ht_rules_finish(r, bare, &has_text);
}

typedef struct answer_rules {
    const ht_tool_request *q;
    ht_tool_calls calls;
    const ht_reasoning_format *reasoning; /* never NULL */
    const ht_tool_call_format *format;
    const ht_message_format *messages; /* NULL: none */
    ht_re bare;                        /* the beginning of a call without mark; HT_RE_NONE: the format has marks */
    bool no_text;                      /* no tool has valid arguments */
} answer_rules;

static ht_symbol rule_of(ht_rules *r, const ht_symbol *symbols, size_t n) {
    const ht_symbol rule = ht_rules_rule(r);
    ht_rules_add(r, rule, symbols, n);
    return rule;
}

static ht_symbol endless_text(ht_rules *r, ht_re text) {
    return ht_rules_free_lexeme(r, ht_re_without_empty(r->re, text), true, true);
}

/* ---- calls alone ---- */

/* A group of calls with its marks. */
static ht_symbol group(answer_rules *a) {
    ht_rules *r = a->calls.r;
    const ht_symbol inside = ht_tool_calls_inside(&a->calls);
    const bool is_bare = a->format->at_start, may_have_mark = a->format->open && a->q->beside_text;
    if (is_bare && !may_have_mark) return inside; /* the template does not write the mark */
    const ht_symbol open = ht_rules_lexeme(r, text_of(r->re, a->format->open));
    const ht_symbol all = rule_of(r, (ht_symbol[]){open, inside}, 2);
    if (is_bare) ht_rules_add(r, all, &inside, 1);
    return all;
}

/* Whether another group may follow one. */
static bool may_repeat(const answer_rules *a) {
    return a->q->parallel && !a->format->once && (a->format->close || !a->format->separator);
}

/* A call as a message with its header. */
static ht_symbol message(answer_rules *a) {
    ht_rules *r = a->calls.r;
    const ht_symbol all = ht_rules_rule(r);
    for (int i = 0; i < HT_HEADERS_MOST && a->messages->call[i]; i++) {
        const ht_symbol call = ht_tool_calls_by(&a->calls, a->messages->call[i]);
        ht_rules_add(r, all, &call, 1);
    }
    return all;
}

static ht_symbol groups(answer_rules *a) {
    ht_rules *r = a->calls.r;
    if (a->messages) return message(a);
    const ht_symbol one = group(a), all = ht_rules_rule(r);
    ht_rules_add(r, all, &one, 1);
    if (may_repeat(a)) {
        const ht_symbol blank = blank_lexeme(r, HT_BLANKS_MOST);
        ht_rules_add(r, all, (ht_symbol[]){one, all}, 2);
        ht_rules_add(r, all, (ht_symbol[]){one, blank, all}, 3);
    }
    return all;
}

/* Text between its marks, after which calls of `at_start` come; HT_RE_NONE: the format has no such marks. `is_empty`: no text. */
static ht_re text_before_calls(const answer_rules *a, bool is_empty) {
    ht_regexes *re = a->calls.r->re;
    const ht_reasoning_format *t = a->reasoning;
    if (!a->format->at_start || !t->text) return HT_RE_NONE;
    const ht_re end = is_empty ? text_of(re, t->text_end) : until(re, t->text_end, NULL, 0, HT_RE_NONE);
    return ht_re_concat(re, text_of(re, t->text), end);
}

static void make_alone(answer_rules *a, bool *has_text) {
    ht_rules *r = a->calls.r;
    const ht_re marks = text_before_calls(a, true);
    const ht_symbol blank = blank_lexeme(r, HT_BLANKS_MOST);
    const ht_symbol calls = groups(a), body = rule_of(r, &calls, 1);
    if (!a->messages) ht_rules_add(r, body, (ht_symbol[]){blank, calls}, 2);
    if (marks != HT_RE_NONE) ht_rules_add(r, body, (ht_symbol[]){ht_rules_lexeme(r, marks), calls}, 2);
    ht_rules_finish(r, body, has_text);
}

/* ---- answers without calls ---- */

/* The shortest beginnings that only calls have; each begins a text of make_alone. */
static ht_re beginning(answer_rules *a) {
    ht_regexes *re = a->calls.r->re;
    const ht_message_format *m = a->messages;
    const ht_re blanks = white_space(re, HT_BLANKS_MOST);
    ht_re all = a->format->at_start ? ht_tool_calls_beginning(&a->calls, blanks) : HT_RE_NONE;
    for (int i = 0; m && i < HT_HEADERS_MOST && m->call[i]; i++)
        all = ht_re_either(re, all, ht_re_text(re, m->call[i], strcspn(m->call[i], "%")));
    if (m) return all;
    if (a->format->open) all = ht_re_either(re, all, ht_re_concat(re, blanks, text_of(re, a->format->open)));
    return all;
}

/* Any text that does not begin with one of `call`. */
static ht_symbol without(ht_rules *r, ht_re call) {
    const ht_symbol text = endless_text(r, ht_re_not(r->re, ht_re_concat(r->re, call, HT_RE_ALL)));
    const ht_symbol rule = rule_of(r, NULL, 0);
    ht_rules_add(r, rule, &text, 1);
    return rule;
}

/* Adds the starts of answers without calls. Their reasoning is the same. */
static void add_no_call(answer_rules *a, const ht_reasoning_format *t) {
    ht_rules *r = a->calls.r;
    if (r->status) return;
    ht_regexes *re = r->re;
    bool has_text;
    const ht_re text = beginning(a);
    ht_re answer = text, in_reasoning = text;
    if (t && a->messages) {
        const ht_re in = ht_re_concat(re, reasoning_text(re, t, a->messages), next_message(re, a->messages));
        const ht_re any = ht_re_repeat(re, ht_re_concat(re, text_of(re, t->open), in), 0, HT_RE_UNBOUNDED);
        answer = ht_re_concat(re, any, text);
        in_reasoning = ht_re_concat(re, in, answer);
    } else if (t) {
        const ht_re blanks = white_space(re, HT_BLANKS_MOST);
        const ht_re open = ht_re_concat(re, blanks, text_of(re, t->open));
        const ht_re reasoning = reasoning_text(re, t, NULL);
        in_reasoning = ht_re_concat(re, ht_re_concat(re, reasoning, blanks), text);
        answer = ht_re_either(re, text, ht_re_concat(re, open, in_reasoning));
    } else
        r->start[HT_START_ANSWER] = r->start[HT_START_IN_REASONING] = r->start[HT_START_TEXT];
    r->start[HT_START_NO_CALL + HT_START_TEXT] = without(r, text);
    r->start[HT_START_NO_CALL + HT_START_ANSWER] = without(r, answer);
    r->start[HT_START_NO_CALL + HT_START_IN_REASONING] = without(r, in_reasoning);
    r->n_starts = HT_START_NO_CALL + HT_START_IN_REASONING + 1;
    ht_rules_finish(r, r->start[HT_START_TEXT], &has_text);
}

/* ---- calls in free text ---- */

/* White space before reasoning, as the response reader skips it. */
static ht_re blanks_before_reasoning(ht_regexes *re) {
    ht_byte_set set = {{0}};
    ht_byte_set_add(&set, '\t', '\r');
    ht_byte_set_add(&set, ' ', ' ');
    return ht_re_repeat(re, ht_re_bytes(re, &set), 0, HT_RE_UNBOUNDED);
}

/* Free text without marks, through `mark`; NULL: without end. */
static ht_symbol free_text(answer_rules *a, const char *mark) {
    ht_regexes *re = a->calls.r->re;
    const ht_reasoning_format *t = a->reasoning;
    const char *const marks[] = {a->format->open, a->format->bare, t->anywhere ? t->open : NULL}, *others[3];
    size_t n = 0;
    for (int i = 0; i < 3; i++)
        if (marks[i] && (!mark || strcmp(mark, marks[i]) != 0)) others[n++] = marks[i];
    ht_re not_before = a->bare == HT_RE_NONE ? HT_RE_NONE : ht_re_concat(re, a->bare, HT_RE_ALL);
    if (!t->anywhere) {
        const ht_re open = ht_re_concat(re, blanks_before_reasoning(re), text_of(re, t->open));
        not_before = ht_re_either(re, not_before, ht_re_concat(re, open, HT_RE_ALL));
    }
    if (mark) return ht_rules_free_lexeme(a->calls.r, until(re, mark, others, n, not_before), true, false);
    for (size_t i = 0; i < n; i++) not_before = ht_re_either(re, not_before, containing(re, others[i]));
    return endless_text(a->calls.r, ht_re_not(re, not_before));
}

/* Adds reasoning before `next` to `all`. Returns the rule of an answer whose prompt has opened its reasoning. */
static ht_symbol add_reasoning(answer_rules *a, ht_symbol all, ht_symbol next) {
    ht_rules *r = a->calls.r;
    ht_regexes *re = r->re;
    const ht_reasoning_format *t = a->reasoning;
    const ht_symbol reasoning = ht_rules_free_lexeme(r, until(re, t->close, NULL, 0, HT_RE_NONE), true, false);
    const ht_symbol in = rule_of(r, (ht_symbol[]){reasoning, next}, 2);
    const ht_symbol open =
        t->anywhere ? free_text(a, t->open)
                    : ht_rules_lexeme(r, ht_re_concat(re, blanks_before_reasoning(re), text_of(re, t->open)));
    ht_rules_add(r, all, (ht_symbol[]){open, in}, 2);
    return in;
}

static void finish_free(answer_rules *a, ht_symbol all, ht_symbol in, bool *has_text) {
    ht_rules *r = a->calls.r;
    r->start[HT_START_ANSWER] = all;
    r->start[HT_START_IN_REASONING] = in;
    r->n_starts = HT_START_IN_REASONING + 1;
    ht_rules_finish(r, all, has_text);
}

static void make_without_calls(answer_rules *a, bool *has_text) {
    const ht_symbol text = free_text(a, NULL), all = rule_of(a->calls.r, &text, 1);
    finish_free(a, all, add_reasoning(a, all, all), has_text);
}

/* Everything that may follow a group of calls in an answer. */
static ht_symbol after_calls(answer_rules *a, ht_symbol all) {
    ht_rules *r = a->calls.r;
    if (a->q->parallel && a->format->close) return all;
    const ht_symbol after = rule_of(r, NULL, 0);
    if (may_repeat(a)) {
        const ht_symbol more = groups(a);
        ht_rules_add(r, after, &more, 1);
    }
    return after;
}

/* Adds calls without opening mark in free text; a closing mark may follow. */
static void add_bare_calls(answer_rules *a, ht_symbol all) {
    ht_rules *r = a->calls.r;
    const ht_symbol text = free_text(a, a->format->bare), call = ht_tool_calls_after_bare(&a->calls);
    ht_symbol after = all;
    if (!a->q->parallel) {
        const ht_re blanks = white_space(r->re, HT_BLANKS_MOST);
        const ht_symbol close = ht_rules_lexeme(r, ht_re_concat(r->re, blanks, text_of(r->re, a->format->close)));
        after = rule_of(r, NULL, 0);
        ht_rules_add(r, after, &close, 1);
    }
    ht_rules_add(r, all, (ht_symbol[]){text, call, after}, 3);
}

static void make_auto(answer_rules *a, bool *has_text) {
    ht_rules *r = a->calls.r;
    const ht_symbol all = ht_rules_rule(r), inside = ht_tool_calls_inside(&a->calls), after = after_calls(a, all);
    ht_rules_add(r, all, NULL, 0); /* the answer may end here, or in its text */
    if (a->format->open) {
        const ht_symbol text = free_text(a, a->format->open);
        ht_rules_add(r, all, (ht_symbol[]){text, inside, after}, 3);
        if (a->format->bare) add_bare_calls(a, all);
    } else {
        const ht_symbol text = free_text(a, NULL);
        ht_rules_add(r, all, &text, 1);
    }
    if (a->format->at_start) {
        const ht_symbol blank = blank_lexeme(r, HT_RE_UNBOUNDED);
        ht_rules_add(r, all, &inside, 1);
        ht_rules_add(r, all, (ht_symbol[]){blank, inside}, 2);
    }
    const ht_re before = text_before_calls(a, false);
    if (before != HT_RE_NONE)
        ht_rules_add(r, all, (ht_symbol[]){ht_rules_free_lexeme(r, before, true, false), inside}, 2);
    finish_free(a, all, add_reasoning(a, all, all), has_text);
}

/* ---- calls among free messages ---- */

/* Beginnings of texts that have a message for a recipient: " to=" after a role or channel, or before all. */
static ht_re with_recipient(ht_regexes *re, const ht_message_format *m) {
    ht_byte_set word = {{0}};
    ht_byte_set_add(&word, '!', '<' - 1);
    ht_byte_set_add(&word, '<' + 1, '~');
    const ht_re channel =
        ht_re_concat(re, text_of(re, m->fields[0]), ht_re_repeat(re, ht_re_bytes(re, &word), 0, HT_RE_UNBOUNDED));
    const ht_re to = ht_re_concat(re, white_space(re, HT_BLANKS_MOST), text_of(re, m->recipient));
    const ht_re header = ht_re_concat(re, ht_re_either(re, channel, next_message(re, m)), to);
    return ht_re_either(re, ht_re_concat(re, HT_RE_ALL, ht_re_concat(re, header, HT_RE_ALL)),
                        ht_re_concat(re, to, HT_RE_ALL));
}

/* Free messages without recipients, through the beginning of a call's header. */
static ht_symbol until_call(answer_rules *a, const char *call, ht_re with_recipient) {
    ht_regexes *re = a->calls.r->re;
    const ht_re head = ht_re_text(re, call, strcspn(call, "%")), before = ht_re_not(re, with_recipient);
    if (strncmp(call, a->messages->fields[0], strlen(a->messages->fields[0])) == 0)
        return ht_rules_free_lexeme(a->calls.r, ht_re_concat(re, before, head), true, false);
    const ht_re later = ht_re_concat(re, before, ht_re_concat(re, next_message(re, a->messages), head));
    return ht_rules_free_lexeme(a->calls.r, ht_re_either(re, head, later), true, false);
}

static void make_messages(answer_rules *a, bool *has_text) {
    ht_rules *r = a->calls.r;
    const ht_re call = with_recipient(r->re, a->messages);
    const ht_symbol all = rule_of(r, NULL, 0), text = endless_text(r, ht_re_not(r->re, call));
    ht_rules_add(r, all, &text, 1);
    for (int i = 0; a->q->choice == HT_TOOL_CHOICE_AUTO && i < HT_HEADERS_MOST && a->messages->call[i]; i++) {
        const char *pattern = a->messages->call[i];
        const ht_symbol head = until_call(a, pattern, call), rest = ht_tool_calls_by(&a->calls, strchr(pattern, '%'));
        ht_rules_add(r, all, (ht_symbol[]){head, rest}, 2);
    }
    finish_free(a, all, all, has_text);
}

/* ---- answers ---- */

static ht_status make(answer_rules *a, ht_tool_list *tools, bool *again, ht_error *err) {
    const ht_tool_request *q = a->q;
    bool has_text = false;
    ht_rules *r = ht_rules_new();
    if (!r) return ht_fail_memory(err, sizeof *r, "the rules of tools");
    const ht_tool_choice choice = q->choice;
    const bool are_alone = q->beside_text || (choice != HT_TOOL_CHOICE_NONE && choice != HT_TOOL_CHOICE_AUTO);
    ht_tool_calls_begin(&a->calls, r, tools, q->parallel, a->format);
    a->bare =
        a->format->at_start ? ht_tool_calls_beginning(&a->calls, white_space(r->re, HT_RE_UNBOUNDED)) : HT_RE_NONE;
    a->bare = ht_re_either(r->re, a->bare, ht_re_concat(r->re, text_before_calls(a, false), a->bare));
    if (are_alone)
        make_alone(a, &has_text);
    else if (a->messages)
        make_messages(a, &has_text);
    else if (choice == HT_TOOL_CHOICE_NONE)
        make_without_calls(a, &has_text);
    else
        make_auto(a, &has_text);
    *again = a->calls.again;
    if (*again) return HT_OK;
    ht_status status = a->calls.status;
    if (status && err) *err = a->calls.err;
    if (!status) status = ht_rules_status(r, err);
    if (!status && are_alone) {
        const ht_answer_marks marks = ht_answer_marks_of(q->template);
        ht_rules_add_reasoning(r, &marks, false);
        if (q->beside_text) add_no_call(a, marks.reasoning);
        status = ht_rules_status(r, err);
    }
    a->no_text = !status && !has_text;
    if (!a->no_text || q->beside_text) return status;
    return ht_fail(err, HT_ERR_ARGUMENT,
                   "the tool choice requires a call, but no arguments are valid by the schema of any tool");
}

static ht_status check(const ht_tool_request *q, const answer_rules *a, const ht_tool_list *tools, ht_error *err) {
    if (q->choice == HT_TOOL_CHOICE_NAMED && !tools->n)
        return ht_fail(err, HT_ERR_ARGUMENT, "the tool choice requires a call of `%.200s`, but there is no such tool",
                       q->name);
    if (!tools->n)
        return ht_fail(err, HT_ERR_ARGUMENT, "the tool choice requires a call, but there are no tools to call");
    if (!a->format)
        return ht_fail(err, HT_ERR_UNSUPPORTED,
                       "the tool choice requires a call, but the model's chat template uses no known tool-call format");
    return HT_OK;
}

static void note_texts(const answer_rules *a, ht_text *spelled) {
    const ht_tool_call_format *f = a->format;
    const char *const texts[] = {f->open, f->close, f->begin, f->call, f->separator, f->end, f->raw, f->json, f->bare};
    note(texts, sizeof texts / sizeof *texts, spelled);
    ht_answer_marks_note(&(ht_answer_marks){a->reasoning, a->messages}, spelled);
}

ht_status ht_response_rules_new(const ht_tool_request *q, ht_rules **out, ht_text *spelled, ht_error *err) {
    const char *source = ht_chat_template_source(q->template);
    answer_rules a = {.q = q,
                      .reasoning = ht_reasoning_format_of(source),
                      .format = ht_tool_call_format_of(source),
                      .messages = ht_message_format_of(source)};
    const bool is_wanted = q->choice == HT_TOOL_CHOICE_REQUIRED || q->choice == HT_TOOL_CHOICE_NAMED;
    ht_tool_list tools;
    *out = NULL;
    ht_status status = ht_tool_list_read(&tools, q->tools, q->choice == HT_TOOL_CHOICE_NAMED ? q->name : NULL, err);
    if (!status && is_wanted) status = check(q, &a, &tools, err);
    const bool is_free = q->choice == HT_TOOL_CHOICE_FREE || !tools.n || !a.format;
    if (!status && !is_free) {
        note_texts(&a, spelled);
        if (spelled->failed) status = ht_fail_memory(err, 0, "the rules of tools");
        bool again = true;
        /* Each pass relaxes another tool. */
        while (!status && again) {
            status = make(&a, &tools, &again, err);
            if (status || again || a.no_text) {
                ht_rules_free(a.calls.r);
                a.calls.r = NULL;
            }
        }
        *out = status ? NULL : a.calls.r;
    }
    ht_jinja_arena_free(&tools.arena);
    return status;
}
