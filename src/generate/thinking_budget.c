#include "generate/thinking_budget.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"
#include "generate/speculate.h"
#include "generate/token_output.h"
#include "tokenizer/token_trie.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Last prompt tokens that show whether it opened reasoning: marks and titles have fewer. */
enum { LAST_TOKENS = 64 };

static_assert(HT_DRAFT_TOKENS_MAX + 1 <= 32, "the rows of a step are bits of a word");

/* ---- white space ---- */

/* Parts of an answer that no template contains. */
static const char reasoning[] = "reasoning-of-the-answer", text_behind[] = "text-of-the-answer";

static bool is_blank(char c) { return c && strchr(" \t\r\n", c); }

/* Copies white space. No template writes more than fits. */
static void copy_blanks(char *to, const char *from, size_t n) {
    if (n > HT_REASONING_BLANKS_MOST) return;
    memcpy(to, from, n);
    to[n] = '\0';
}

/* Reads the white space around the mark of a rendered conversation. Templates may write the mark alone. */
static void read_blanks(const char *written, const ht_reasoning_format *t, ht_reasoning_blanks *out) {
    const size_t n_close = strlen(t->close), n_reasoning = strlen(reasoning);
    const char *text = strstr(written, text_behind), *end = text;
    while (end && end > written && is_blank(end[-1])) end--;
    if (!end || (size_t)(end - written) < n_close || memcmp(end - n_close, t->close, n_close) != 0) return;
    const char *mark = end - n_close, *before = mark;
    copy_blanks(out->behind, end, (size_t)(text - end));
    while (before > written && is_blank(before[-1])) before--;
    if ((size_t)(before - written) >= n_reasoning && memcmp(before - n_reasoning, reasoning, n_reasoning) == 0)
        copy_blanks(out->before, before, (size_t)(mark - before));
}

static ht_status write_answer(const ht_model *m, char **written, ht_error *err) {
    const ht_chat_message answer = {
        .size = sizeof answer, .role = "assistant", .content = text_behind, .thinking = reasoning};
    ht_chat *chat;
    ht_chat_text text = {0};
    ht_status status = ht_chat_new(&chat, err);
    if (!status) status = ht_chat_add(chat, "user", "question", err);
    if (!status) status = ht_chat_set_thinking(chat, true, err);
    if (!status) status = ht_chat_add_message(chat, &answer, err);
    if (!status) status = ht_chat_write_for(m, chat, &text, err);
    *written = text.text;
    free(text.runs);
    ht_chat_free(chat);
    return status;
}

static ht_status find_blanks(const ht_model *m, const ht_reasoning_format *t, ht_reasoning_blanks *out, ht_error *err) {
    char *written;
    const ht_status status = write_answer(m, &written, err);
    *out = (ht_reasoning_blanks){0};
    if (t->before) copy_blanks(out->before, t->before, strlen(t->before));
    if (t->behind) copy_blanks(out->behind, t->behind, strlen(t->behind));
    if (!status) read_blanks(written, t, out);
    free(written);
    /* A template that rejects this conversation gives no white space; running out of memory is a failure. */
    return status == HT_ERR_MEMORY ? status : HT_OK;
}

/* ---- tokens ---- */

/* Bytes of a token, 0 unless `text`, of n bytes, begins with them; NULL: any text does. */
static ht_status token_length(const ht_tokenizer *t, int32_t id, const char *text, size_t n, size_t *length,
                              ht_error *err) {
    char *bytes = NULL;
    const char *piece = ht_tokenizer_piece(t, id);
    *length = strlen(piece);
    if (!ht_tokenizer_is_special(t, id)) {
        const ht_status status = ht_tokenizer_token_bytes(t, id, &bytes, length, err);
        if (status) return status;
        piece = bytes;
    }
    if (text && (*length > n || memcmp(piece, text, *length) != 0)) *length = 0;
    ht_text_free(bytes);
    return HT_OK;
}

/* Appends a token that spells `length` bytes from `at` on; the end has capacity for it. */
static void append(ht_reasoning_end *end, int32_t id, size_t at, size_t length, size_t before, size_t mark_end) {
    end->id[end->n++] = id;
    if (at + length <= before) end->n_before = end->n;
    if (at < mark_end) end->n_mark = end->n;
}

/* Encodes the text with the tokenizer; *whole is false when the tokens spell another text, as with a space in front. */
static ht_status encode_end(const ht_tokenizer *t, const char *text, size_t n, size_t before, size_t mark_end,
                            ht_reasoning_end *end, bool *whole, ht_error *err) {
    int32_t *ids;
    size_t n_ids, at = 0, length = 1;
    *whole = false;
    ht_status status = ht_tokenizer_encode(t, text, n, HT_ENCODE_PARSE_SPECIAL, &ids, &n_ids, err);
    if (status) return status;
    for (size_t i = 0; i < n_ids && !status && length && at < n; i++, at += length) {
        status = token_length(t, ids[i], text + at, n - at, &length, err);
        if (length) append(end, ids[i], at, length, before, mark_end);
    }
    ht_ids_free(ids);
    *whole = !status && at == n;
    return status;
}

/* The longest token with which the text begins; -1: none. */
static int32_t longest_token(const ht_token_trie *trie, const char *text, size_t n, size_t *length) {
    const ht_trie_part *all = &trie->all;
    int32_t longest = -1;
    for (uint32_t depth = 0, at = 0, end = all->n; depth < n; depth++) {
        at = ht_trie_find(all, at, end, (uint8_t)text[depth]);
        if (at == end) break;
        if (all->token[at] >= 0) {
            longest = all->token[at];
            *length = depth + 1;
        }
        end = all->next[at++];
    }
    return longest;
}

/* Encodes the text by longest tokens, and the mark by its own token if it has one. */
static ht_status spell(ht_model *m, const char *text, size_t n, size_t before, size_t mark_end, int32_t mark_token,
                       ht_reasoning_end *end, ht_error *err) {
    const ht_token_trie *trie;
    ht_status status = ht_model_token_trie(m, &trie, err);
    if (status) return status;
    end->n = end->n_before = end->n_mark = 0;
    for (size_t at = 0, length = 0; at < n; at += length) {
        const bool is_mark = mark_token >= 0 && at == before;
        length = mark_end - before;
        const int32_t id = is_mark ? mark_token : longest_token(trie, text + at, n - at, &length);
        if (id < 0)
            return ht_fail(err, HT_ERR_UNSUPPORTED,
                           "max_thinking_tokens: no tokens of the model write \"%s\", the end of reasoning", text);
        append(end, id, at, length, before, mark_end);
    }
    return HT_OK;
}

ht_status ht_reasoning_end_write(ht_model *m, const ht_reasoning_format *t, const ht_reasoning_blanks *blanks,
                                 const ht_reasoning_position *place, ht_reasoning_end *out, ht_error *err) {
    const int32_t mark_token = ht_tokenizer_find(m->tokenizer, t->close);
    const bool goes_on = place->closing_bytes > 0 && mark_token < 0 && !place->is_title;
    ht_text text = {0};
    *out = (ht_reasoning_end){0};
    if (place->is_title) ht_text_append_str(&text, t->title + place->title_bytes);
    if (!goes_on) ht_text_append_str(&text, blanks->before);
    const size_t before = text.len;
    ht_text_append_str(&text, t->close + (goes_on ? place->closing_bytes : 0));
    const size_t mark_end = text.len;
    ht_text_append_str(&text, blanks->behind);
    bool whole = false;
    if (!text.failed) out->id = malloc((text.len + 1) * sizeof *out->id); /* a token has a byte or more */
    ht_status status = out->id ? HT_OK : ht_fail_memory(err, text.len * sizeof *out->id, "the end of reasoning");
    if (!status) status = encode_end(m->tokenizer, text.data, text.len, before, mark_end, out, &whole, err);
    if (!status && !whole) status = spell(m, text.data, text.len, before, mark_end, mark_token, out, err);
    ht_text_discard(&text);
    if (status) ht_reasoning_end_free(out);
    return status;
}

void ht_reasoning_end_free(ht_reasoning_end *end) {
    free(end->id);
    *end = (ht_reasoning_end){0};
}

/* ---- the budget ---- */

/* How far the end of reasoning is written. */
typedef struct writing {
    bool is_on;
    bool is_forced; /* a token of it differs from the sampler's */
    int32_t at;     /* tokens of the end that are written */
} writing;

struct ht_thinking_budget {
    ht_model *model;
    const ht_chat *chat; /* lent; NULL: none */
    const ht_reasoning_format *format;
    ht_reasoning_blanks blanks;
    int32_t most, used;
    int32_t of_title; /* tokens of a possible title of the present reasoning, which do not count */
    bool no_calls;
    ht_response_reader *reader; /* NULL before the first step */
    ht_token_output output;
    ht_reasoning_end end; /* of the present reasoning; without tokens before it is needed */
    writing taken, drawn; /* after the taken tokens; after those drawn in this step */
    /* In this step: drawn rows, taken rows, and bits of the rows whose token is not the sampler's. */
    int32_t n_drawn, n_taken;
    uint32_t forced_rows;
    bool has_ended;
};

/* ---- life ---- */

ht_status ht_thinking_budget_new(ht_model *m, const ht_chat *chat, int32_t most, ht_thinking_budget **out,
                                 ht_error *err) {
    *out = NULL;
    const ht_chat_template *template = ht_chat_template_of(&m->chat, chat);
    if (!m->tokenizer || !template) return HT_OK;
    ht_thinking_budget *b = calloc(1, sizeof *b);
    if (!b) return ht_fail_memory(err, sizeof *b, "a thinking budget");
    *b = (ht_thinking_budget){.model = m, .chat = chat, .most = most};
    b->format = ht_reasoning_format_of(ht_chat_template_source(template));
    ht_status status = find_blanks(m, b->format, &b->blanks, err);
    /* Fail now, not in the middle of an answer, if no tokens write the mark. */
    if (!status) status = ht_reasoning_end_write(m, b->format, &b->blanks, &(ht_reasoning_position){0}, &b->end, err);
    ht_reasoning_end_free(&b->end);
    if (status)
        ht_thinking_budget_free(b);
    else
        *out = b;
    return status;
}

void ht_thinking_budget_free(ht_thinking_budget *b) {
    if (!b) return;
    ht_reasoning_end_free(&b->end);
    ht_token_output_free(&b->output);
    ht_response_reader_free(b->reader);
    free(b);
}

void ht_thinking_budget_end_calls(ht_thinking_budget *b) {
    b->no_calls = true;
    if (b->reader) ht_response_reader_end_calls(b->reader);
}

/* ---- the prompt ---- */

/* The last occurrence of `mark` in n bytes, which may contain NUL; NULL: none. */
static const char *find_last(const char *text, size_t n, const char *mark) {
    const size_t length = strlen(mark);
    for (size_t end = n; end >= length; end--)
        if (memcmp(text + end - length, mark, length) == 0) return text + end - length;
    return NULL;
}

/* Counts the last tokens, which spell the last n_bytes of text. */
static ht_status count_tokens(ht_thinking_budget *b, const int32_t *token, int64_t n, size_t n_bytes, ht_error *err) {
    const ht_tokenizer *t = b->model->tokenizer;
    for (size_t counted = 0; counted < n_bytes && n > 0 && b->used < INT32_MAX; b->used++) {
        size_t length;
        const ht_status status = token_length(t, token[--n], NULL, 0, &length, err);
        if (status) return status;
        counted += length;
    }
    return HT_OK;
}

/* A session's tokens may end within reasoning that the last mark opened; its tokens so far count. */
static ht_status find_open_reasoning(ht_thinking_budget *b, const char *text, size_t n_text, const int32_t *token,
                                     int64_t n, ht_text *opening, ht_error *err) {
    const ht_reasoning_format *t = b->format;
    const char *open = find_last(text, n_text, t->open), *close = find_last(text, n_text, t->close);
    if (!open || (close && close > open)) return HT_OK;
    const char *begun = open + strlen(t->open);
    ht_text_append_str(opening, t->open);
    if (t->title && strncmp(begun, t->title, strlen(t->title)) == 0) {
        ht_text_append_str(opening, t->title);
        begun += strlen(t->title);
    }
    begun += strspn(begun, " \t\r\n"); /* white space of the prompt, like a template's */
    return count_tokens(b, token, n, n_text - (size_t)(begun - text), err);
}

/* Creates the reader in the state in which the prompt ends. */
static ht_status begin(ht_thinking_budget *b, const int32_t *token, int64_t n, ht_error *err) {
    static const ht_generate_options none = {0};
    const ht_tokenizer *t = b->model->tokenizer;
    const int64_t n_read = b->chat ? ht_min_i64(n, LAST_TOKENS) : n;
    int64_t first = n - n_read;
    /* Rows of the head that are no tokens have no text. */
    for (int64_t i = first; i < n; i++)
        if (token[i] >= ht_tokenizer_vocab_size(t)) first = i + 1;
    char *text = NULL;
    size_t n_text = 0;
    ht_text opening = {0};
    ht_status status = ht_tokenizer_decode(t, token + first, (size_t)(n - first), false, &text, &n_text, err);
    if (!status && !b->chat) status = find_open_reasoning(b, text, n_text, token, n, &opening, err);
    if (!status && opening.failed) status = ht_fail_memory(err, n_text, "a prompt's reasoning");
    const bool opened = opening.len > 0;
    if (!status)
        status = ht_response_reader_new(ht_chat_template_of(&b->model->chat, b->chat),
                                        b->chat ? b->chat->tools : (ht_jinja_value){.kind = HT_VALUE_NONE},
                                        opened ? opening.data : text, opened ? opening.len : n_text, NULL, NULL,
                                        &b->reader, err);
    ht_text_free(text);
    ht_text_discard(&opening);
    if (!status) status = ht_token_output_begin(&b->output, t, &none, b->reader, NULL, NULL, err);
    if (!status && b->no_calls) ht_response_reader_end_calls(b->reader);
    return status;
}

/* ---- steps ---- */

ht_status ht_thinking_budget_prepare(ht_thinking_budget *b, const int32_t *token, int64_t n, ht_error *err) {
    ht_status status = b->reader ? HT_OK : begin(b, token, n, err);
    if (status) return status;
    const ht_reasoning_position place = ht_response_reasoning_position(b->reader);
    if (!b->taken.is_on && place.is_inside && b->used >= b->most) {
        ht_reasoning_end_free(&b->end);
        status = ht_reasoning_end_write(b->model, b->format, &b->blanks, &place, &b->end, err);
        b->taken = (writing){.is_on = !status};
    }
    b->drawn = b->taken;
    b->n_drawn = b->n_taken = 0;
    b->forced_rows = 0;
    return status;
}

const int32_t *ht_thinking_budget_ending(const ht_thinking_budget *b, int32_t *n) {
    *n = b->taken.is_on ? b->end.n - b->taken.at : 0;
    return b->taken.is_on ? b->end.id + b->taken.at : NULL;
}

int32_t ht_thinking_budget_guesses(const ht_thinking_budget *b, int32_t room) {
    if (!ht_response_reasoning_position(b->reader).is_inside) return room;
    return ht_min_i32(room, ht_max_i32(b->most - b->used - 1, 0));
}

int32_t ht_thinking_budget_draw(ht_thinking_budget *b, int32_t id) {
    const ht_reasoning_end *end = &b->end;
    writing *w = &b->drawn;
    const int32_t row = b->n_drawn++;
    if (!w->is_on) return id;
    /* A model may leave out the white space before its mark. */
    if (!w->is_forced && w->at < end->n_before && id == end->id[end->n_before]) w->at = end->n_before;
    if (id != end->id[w->at]) {
        w->is_forced = true;
        b->forced_rows |= (uint32_t)1 << row;
    }
    id = end->id[w->at++];
    if (w->at == end->n || (w->at >= end->n_mark && !w->is_forced)) w->is_on = false;
    return id;
}

void ht_thinking_budget_give_up(ht_thinking_budget *b) {
    b->drawn = (writing){0};
    b->forced_rows &= ~((uint32_t)1 << (b->n_drawn - 1));
}

/* A character that ends the opening mark, or a byte of one, may complete it. */
bool ht_thinking_budget_ends_step(const ht_thinking_budget *b, int32_t id) {
    const ht_reasoning_format *t = b->format;
    const char *piece = ht_tokenizer_piece(b->model->tokenizer, id);
    if (b->most - b->used > HT_DRAFT_TOKENS_MAX || b->taken.is_on || !piece) return false;
    if (ht_response_reasoning_position(b->reader).is_inside) return false;
    return strchr(piece, t->open[strlen(t->open) - 1]) || strncmp(piece, "<0x", 3) == 0;
}

/* ---- tokens ---- */

ht_status ht_thinking_budget_take(ht_thinking_budget *b, int32_t id, ht_error *err) {
    const ht_reasoning_position before = ht_response_reasoning_position(b->reader);
    ht_finish finish = 0; /* stays 0: this output has no reader */
    const ht_status status = ht_token_output_put(&b->output, id, &finish, err);
    const ht_reasoning_position place = ht_response_reasoning_position(b->reader);
    if (b->forced_rows >> b->n_taken++ & 1) b->has_ended = true;
    if (!before.is_inside || !place.is_inside) {
        b->of_title = 0;
        return status;
    }
    b->of_title++;
    if (place.is_title) return status;
    if (!before.is_title || !place.has_title) b->used += ht_min_i32(b->of_title, INT32_MAX - b->used);
    b->of_title = 0;
    return status;
}

void ht_thinking_budget_end_step(ht_thinking_budget *b) { b->taken = b->drawn; }

bool ht_thinking_budget_has_ended(const ht_thinking_budget *b) { return b->has_ended; }
