/* Answers: whatever a model writes, in whatever format, the parts are the same however it comes, and hold nothing that the
 * answer did not. The first byte chooses a template that uses a format, the second how the rest, the answer, is cut. */
#include "base/text.h"
#include "chat/response.h"
#include "template/eval.h"
#include "template/template.h"
#include "tokens.h"

#include <stdlib.h>
#include <string.h>

static const char *const sources[] = {
    "",
    "<tool_call>",
    "<|python_tag|>",
    "[THINK][TOOL_CALLS]",
    "<\xEF\xBD\x9Ctool\xE2\x96\x81"
    "calls\xE2\x96\x81"
    "begin\xEF\xBD\x9C>",
    "<|channel><tool_call|>",
    "<|tool_calls_section_begin|>",
    "</seed:think><seed:tool_call>",
    "minimax:tool_call",
    "<|tool_call_start|>",
    "<|START_THINKING|><|START_ACTION|>",
    "dsml_token",
    "<function=",
    "<function name=",
    "<|tool_call:begin|>",
    "<|tool_call|>",
    "<tool_call><parameter=",
    "[TOOL_CALLS][ARGS]",
    "<|channel|>analysis",
    "<answer><tool_calls>```json",
    "<function_calls>",
    "[func_name1(param",
    "Action:\\n```json",
    "<tool_calls{}></think{}>",
    "<|observation|>metadata",
    "<|python_end|>",
    "functools[",
};
enum { N_SOURCES = sizeof sources / sizeof *sources };

/* Calls in pieces: each begins, has arguments, and ends. */
typedef struct call_notes {
    ht_text text;
    bool is_open;
    size_t n_calls;
} call_notes;

static bool note(const ht_answer_piece *piece, void *user);

static bool note_pieces(const ht_answer_piece *piece, void *user) {
    call_notes *to = user;
    check(piece->part != HT_ANSWER_CALL);
    const bool in_call = piece->part >= HT_ANSWER_CALL_BEGIN;
    check(to->is_open == (piece->part == HT_ANSWER_CALL_ARGUMENTS || piece->part == HT_ANSWER_CALL_END));
    if (!in_call) return note(piece, &to->text);
    to->is_open = piece->part != HT_ANSWER_CALL_END;
    if (piece->part == HT_ANSWER_CALL_BEGIN) {
        to->n_calls++;
        check(piece->call->name[0] && ht_utf8_valid(piece->call->name, strlen(piece->call->name)));
        ht_text_printf(&to->text, "\1%s ", piece->call->name);
    } else if (piece->part == HT_ANSWER_CALL_ARGUMENTS) {
        check(piece->n > 0 && !piece->text[piece->n] && ht_utf8_valid(piece->text, piece->n));
        ht_text_append(&to->text, piece->text, piece->n);
    } else
        ht_text_append_str(&to->text, piece->cut ? "!" : ".");
    return true;
}

static bool note_calls_alone(const ht_answer_piece *piece, void *user) {
    check(piece->part != HT_ANSWER_TEXT);
    return note_pieces(piece, user);
}

static bool note(const ht_answer_piece *piece, void *user) {
    ht_text *to = user;
    if (piece->part == HT_ANSWER_CALL) {
        check(!piece->text && piece->call->name[0] && piece->call->arguments[0] == '{');
        check(ht_utf8_valid(piece->call->name, strlen(piece->call->name)) &&
              ht_utf8_valid(piece->call->arguments, strlen(piece->call->arguments)));
        ht_text_printf(to, "\1%s %s", piece->call->name, piece->call->arguments);
    } else {
        check(piece->n > 0 && !piece->text[piece->n] && ht_utf8_valid(piece->text, piece->n));
        const char part = piece->part == HT_ANSWER_TEXT ? 2 : 3;
        /* One mark before each run of a part: pieces are cut anywhere. */
        size_t last = to->len;
        while (last && (unsigned char)to->data[last - 1] > 3) last--;
        if (!last || to->data[last - 1] != part) ht_text_append(to, &part, 1);
        ht_text_append(to, piece->text, piece->n);
    }
    return true;
}

static ht_jinja_value tools;

static void read_in_pieces(const ht_chat_template *t, const char *text, size_t n, size_t bytes, ht_answer_fn *fn,
                           void *to) {
    ht_response_reader *r;
    ht_error err = {0};
    check(!ht_response_reader_new(t, tools, "", 0, fn, to, &r, &err));
    ht_response_reader_set_call_pieces(r, fn != note);
    if (fn == note_calls_alone) ht_response_reader_set_only_calls(r);
    for (size_t at = 0; at < n;) {
        size_t end = at + bytes < n ? at + bytes : n;
        while (end < n && ((unsigned char)text[end] & 0xC0) == 0x80) end++;
        check(ht_response_put(r, text + at, end - at) == HT_RESPONSE_OPEN);
        at = end;
    }
    check(ht_response_end(r) == HT_RESPONSE_OPEN);
    ht_response_reader_free(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    const char *source = sources[data[0] % N_SOURCES], *text = (const char *)data + 2;
    const size_t n = size - 2;
    for (size_t i = 0; i < n; i++)
        if (text[i] >= 0 && text[i] < 4) return 0; /* what the notes are told apart by */
    if (!ht_utf8_valid(text, n)) return 0;
    ht_chat_template *t;
    ht_error err = {0};
    check(!ht_chat_template_parse(source, strlen(source), "t", &t, &err));
    ht_jinja_arena arena = {.limit = 1 << 20, .name = "tools"};
    static const char list[] = "[{\"name\": \"f\", \"parameters\": {\"properties\": {\"a\": {\"type\": \"string\"}}}}]";
    tools = data[1] & 16 ? ht_jinja_none() : ht_jinja_json_value(&arena, list, sizeof list - 1, "tools");
    ht_text whole = {0}, cut = {0};
    read_in_pieces(t, text, n, n + 1, note, &whole);
    read_in_pieces(t, text, n, 1 + data[1] % 16, note, &cut);
    check(whole.len == cut.len && (!whole.len || memcmp(whole.data, cut.data, whole.len) == 0));
    ht_text_discard(&whole);
    ht_text_discard(&cut);
    call_notes at_once = {.is_open = false}, piece_by_piece = {.is_open = false};
    read_in_pieces(t, text, n, n + 1, note_pieces, &at_once);
    read_in_pieces(t, text, n, 1 + data[1] % 16, note_pieces, &piece_by_piece);
    const ht_text *a = &at_once.text, *b = &piece_by_piece.text;
    check(!at_once.is_open && !piece_by_piece.is_open);
    check(a->len == b->len && (!a->len || memcmp(a->data, b->data, a->len) == 0));
    call_notes alone = {.is_open = false};
    read_in_pieces(t, text, n, 1 + data[1] % 16, note_calls_alone, &alone);
    check(!alone.is_open && alone.n_calls == at_once.n_calls);
    ht_text_discard(&at_once.text);
    ht_text_discard(&piece_by_piece.text);
    ht_text_discard(&alone.text);
    ht_chat_template_free(t);
    ht_jinja_arena_free(&arena);
    return 0;
}
