/* Ends of thoughts: white space found by writing an answer with the chat template, tokens by the tokenizer. */
#include "generate/thought_end.h"

#include "base/error.h"
#include "base/text.h"
#include "chat/conversation.h"
#include "tokenizer/token_trie.h"

#include <stdlib.h>
#include <string.h>

/* ---- white space ---- */

/* The answer that is written: no template has these texts. */
static const char thought[] = "thought-of-the-answer", text_behind[] = "text-of-the-answer";

static bool is_blank(char c) { return c && strchr(" \t\r\n", c); }

/* Copies white space; more than fits is none that a template writes. */
static void copy_blanks(char *to, const char *from, size_t n) {
    if (n > HT_THOUGHT_BLANKS_MOST) return;
    memcpy(to, from, n);
    to[n] = '\0';
}

/* Of a conversation as it was written: what stands between the thought, the mark and the text. Templates that leave thoughts out may
 * write the mark all the same. */
static void read_blanks(const char *written, const ht_reasoning_format *t, ht_thought_blanks *out) {
    const size_t n_close = strlen(t->close), n_thought = strlen(thought);
    const char *text = strstr(written, text_behind), *end = text;
    while (end && end > written && is_blank(end[-1])) end--;
    if (!end || (size_t)(end - written) < n_close || memcmp(end - n_close, t->close, n_close) != 0) return;
    const char *mark = end - n_close, *before = mark;
    copy_blanks(out->behind, end, (size_t)(text - end));
    while (before > written && is_blank(before[-1])) before--;
    if ((size_t)(before - written) >= n_thought && memcmp(before - n_thought, thought, n_thought) == 0)
        copy_blanks(out->before, before, (size_t)(mark - before));
}

static ht_status write_answer(const ht_model *m, char **written, ht_error *err) {
    const ht_chat_message answer = {
        .size = sizeof answer, .role = "assistant", .content = text_behind, .thinking = thought};
    ht_chat *chat;
    ht_text_run *runs = NULL;
    size_t n, n_runs;
    *written = NULL;
    ht_status status = ht_chat_new(&chat, err);
    if (!status) status = ht_chat_add(chat, "user", "question", err);
    if (!status) status = ht_chat_set_thinking(chat, true, err);
    if (!status) status = ht_chat_add_message(chat, &answer, err);
    if (!status) status = ht_chat_write_for(m, chat, written, &n, &runs, &n_runs, err);
    free(runs);
    ht_chat_free(chat);
    return status;
}

ht_status ht_thought_blanks_find(const ht_model *m, const ht_reasoning_format *t, ht_thought_blanks *out,
                                 ht_error *err) {
    char *written;
    const ht_status status = write_answer(m, &written, err);
    *out = (ht_thought_blanks){0};
    if (t->before) copy_blanks(out->before, t->before, strlen(t->before));
    if (t->behind) copy_blanks(out->behind, t->behind, strlen(t->behind));
    if (!status) read_blanks(written, t, out);
    free(written);
    /* A template that refuses this conversation tells nothing; without memory it would have told something. */
    return status == HT_ERR_MEMORY ? status : HT_OK;
}

/* ---- tokens ---- */

/* Bytes of a token, which stand at the beginning of the n bytes; *length is 0 when they do not. */
static ht_status match(const ht_tokenizer *t, int32_t id, const char *text, size_t n, size_t *length, ht_error *err) {
    char *bytes = NULL;
    const char *piece = ht_tokenizer_piece(t, id);
    *length = 0;
    if (ht_tokenizer_is_special(t, id)) {
        *length = strlen(piece);
    } else {
        const ht_status status = ht_tokenizer_token_bytes(t, id, &bytes, length, err);
        if (status) return status;
        piece = bytes;
    }
    if (*length > n || memcmp(piece, text, *length) != 0) *length = 0;
    ht_text_free(bytes);
    return HT_OK;
}

/* Appends a token of so many bytes behind the `at` first; the end has room for it. */
static void append(ht_thought_end *end, int32_t id, size_t at, size_t length, size_t before, size_t mark_end) {
    end->id[end->n++] = id;
    if (at + length <= before) end->n_before = end->n;
    if (at < mark_end) end->n_mark = end->n;
}

/* As the tokenizer writes the text; *whole is false when that is another text, such as one with a space before it. */
static ht_status encode(const ht_tokenizer *t, const char *text, size_t n, size_t before, size_t mark_end,
                        ht_thought_end *end, bool *whole, ht_error *err) {
    int32_t *ids;
    size_t n_ids, at = 0, length = 1;
    *whole = false;
    ht_status status = ht_tokenizer_encode(t, text, n, HT_ENCODE_PARSE_SPECIAL, &ids, &n_ids, err);
    if (status) return status;
    for (size_t i = 0; i < n_ids && !status && length && at < n; i++, at += length) {
        status = match(t, ids[i], text + at, n - at, &length, err);
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

/* By the longest tokens, and by the mark's own where it is one. */
static ht_status spell(ht_model *m, const char *text, size_t n, size_t before, size_t mark_end, int32_t mark_token,
                       ht_thought_end *end, ht_error *err) {
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

ht_status ht_thought_end_write(ht_model *m, const ht_reasoning_format *t, const ht_thought_blanks *blanks,
                               const ht_reasoning_position *place, ht_thought_end *out, ht_error *err) {
    const int32_t mark_token = ht_tokenizer_find(m->tokenizer, t->close);
    const bool goes_on = place->closing_bytes > 0 && mark_token < 0 && !place->is_title;
    ht_text text = {0};
    *out = (ht_thought_end){0};
    if (place->is_title) ht_text_append_str(&text, t->title + place->title_bytes);
    if (!goes_on) ht_text_append_str(&text, blanks->before);
    const size_t before = text.len;
    ht_text_append_str(&text, t->close + (goes_on ? place->closing_bytes : 0));
    const size_t mark_end = text.len;
    ht_text_append_str(&text, blanks->behind);
    bool whole = false;
    if (!text.failed) out->id = malloc((text.len + 1) * sizeof *out->id); /* a token has a byte or more */
    ht_status status = out->id ? HT_OK : ht_fail_memory(err, text.len * sizeof *out->id, "the end of reasoning");
    if (!status) status = encode(m->tokenizer, text.data, text.len, before, mark_end, out, &whole, err);
    if (!status && !whole) status = spell(m, text.data, text.len, before, mark_end, mark_token, out, err);
    ht_text_discard(&text);
    if (status) ht_thought_end_free(out);
    return status;
}

void ht_thought_end_free(ht_thought_end *end) {
    free(end->id);
    *end = (ht_thought_end){0};
}
