#include "generate/chat.h"

#include "base/error.h"
#include "generate/chat_internal.h"
#include "models/chat_detection.h"
#include "models/model.h"

#include <stdlib.h>
#include <string.h>

bool ht_chat_has_role(const ht_chat_message *m, const char *role) { return strcmp(m->role, role) == 0; }
bool ht_chat_begins_with_system(const ht_chat_writer *c) { return ht_chat_has_role(&c->messages[0], "system"); }

/* What templates trim: the white space of Python's str.strip. */
static bool is_space(uint32_t c) {
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

ht_text_span ht_chat_trim(const char *text, size_t n) {
    size_t begin = n, end = 0;
    for (size_t at = 0; at < n;) {
        uint32_t code_point;
        size_t length = ht_utf8_decode(text + at, n - at, &code_point);
        if (!is_space(code_point)) {
            if (begin == n) begin = at;
            end = at + length;
        }
        at += length;
    }
    return begin < end ? (ht_text_span){text + begin, end - begin} : (ht_text_span){text, 0};
}

static void put_trimmed(ht_chat_writer *c, const char *text) { ht_chat_put(c, ht_chat_trim(text, strlen(text))); }

ht_status ht_chat_check_turns(const ht_chat_writer *c, size_t first, const char *format, ht_error *err) {
    if (c->n == first)
        return ht_fail(err, HT_ERR_ARGUMENT, "the %s chat format needs a user message after the system message",
                       format);
    for (size_t i = first; i < c->n; i++) {
        const char *expected = (i - first) % 2 ? "assistant" : "user";
        if (!ht_chat_has_role(&c->messages[i], expected))
            return ht_fail(
                err, HT_ERR_ARGUMENT,
                "message %zu has the role %s, but the %s chat format alternates user and assistant: expected "
                "%s",
                i, c->messages[i].role, format, expected);
    }
    return HT_OK;
}

/* ---- chatml ---- */

/* An answer as the templates of thinking models write it: what follows its thoughts, but for an answer that is the last
 * message. Qwen3's leaves answers alone that have none. */
static const char *without_thought(const ht_chat_writer *c, size_t i) {
    static const char close[] = "</think>";
    const char *content = c->messages[i].content, *answer = content;
    if (!(c->dialect & HT_CHATML_DROPS_THOUGHTS) || i == c->n - 1) return content;
    for (const char *p = content; (p = strstr(p, close));) answer = p += strlen(close);
    if (c->dialect & HT_CHATML_QWEN3 && answer == content) return content;
    return answer + strspn(answer, "\n");
}

static bool is_tool_response(const char *content) {
    static const char begin[] = "<tool_response>", end[] = "</tool_response>";
    size_t n = strlen(content), n_end = strlen(end);
    return strncmp(content, begin, strlen(begin)) == 0 && n >= n_end && strcmp(content + n - n_end, end) == 0;
}

static ht_status ht_chat_write_chatml(ht_chat_writer *c, ht_error *err) {
    size_t last_user = 0;
    for (size_t i = 0; i < c->n; i++)
        if (ht_chat_has_role(&c->messages[i], "user") && !is_tool_response(c->messages[i].content)) last_user = i;
    /* Qwen3's templates put an empty thought into an answer that the user has not answered. */
    for (size_t i = last_user; c->dialect & HT_CHATML_QWEN3 && i < c->n; i++)
        if (ht_chat_has_role(&c->messages[i], "assistant"))
            return ht_fail(
                err, HT_ERR_UNSUPPORTED,
                "message %zu is an answer that no user's message follows, which Hearth cannot write for this "
                "chat template",
                i);
    if (c->system && !ht_chat_begins_with_system(c))
        ht_text_printf(&c->out, "<|im_start|>system\n%s<|im_end|>\n", c->system);
    for (size_t i = 0; i < c->n; i++) {
        const ht_chat_message *m = &c->messages[i];
        ht_text_printf(&c->out, "<|im_start|>%s\n%s<|im_end|>\n", m->role,
                       ht_chat_has_role(m, "assistant") ? without_thought(c, i) : m->content);
    }
    ht_chat_put_text(c, "<|im_start|>assistant\n");
    if (c->dialect & HT_CHATML_THINKS) ht_chat_put_text(c, "<think>\n");
    if (c->dialect & HT_CHATML_NO_THOUGHT) ht_chat_put_text(c, "</think>");
    return HT_OK;
}

/* ---- llama3 ---- */

static void put_llama3_header(ht_chat_writer *c, const char *role) {
    ht_text_printf(&c->out, "<|start_header_id|>%s<|end_header_id|>\n\n", role);
}

static ht_status ht_chat_write_llama3(ht_chat_writer *c, ht_error *err) {
    (void)err;
    size_t first = 0;
    if (c->dialect & HT_LLAMA3_DATES) {
        /* Llama 3.1 and later always write a system turn with dates. The date is the templates' own fallback: an answer
         * may not depend on the day. */
        put_llama3_header(c, "system");
        ht_chat_put_text(c, "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n");
        if (ht_chat_begins_with_system(c)) put_trimmed(c, c->messages[first++].content);
        ht_chat_put_text(c, "<|eot_id|>");
    }
    for (size_t i = first; i < c->n; i++) {
        put_llama3_header(c, c->messages[i].role);
        put_trimmed(c, c->messages[i].content);
        ht_chat_put_text(c, "<|eot_id|>");
    }
    put_llama3_header(c, "assistant");
    return HT_OK;
}

/* ---- gemma ---- */

static const char *gemma_role(const ht_chat_message *m) { return ht_chat_has_role(m, "assistant") ? "model" : m->role; }

/* The system text goes in front of the first user message; turns alternate. */
static ht_status ht_chat_write_gemma(ht_chat_writer *c, ht_error *err) {
    size_t first = ht_chat_begins_with_system(c) ? 1 : 0;
    ht_status status = ht_chat_check_turns(c, first, "gemma", err);
    if (status) return status;
    for (size_t i = first; i < c->n; i++) {
        const ht_chat_message *m = &c->messages[i];
        ht_text_printf(&c->out, "<start_of_turn>%s\n", gemma_role(m));
        if (i == first && first) ht_text_printf(&c->out, "%s\n\n", c->messages[0].content);
        put_trimmed(c, m->content);
        ht_chat_put_text(c, "<end_of_turn>\n");
    }
    ht_chat_put_text(c, "<start_of_turn>model\n");
    return HT_OK;
}

/* ---- gemma4 ---- */

/* An earlier answer without its thoughts: of every stretch up to a `<channel|>`, what stands before `<|channel>`. */
static void put_answer(ht_chat_writer *c, const char *content) {
    static const char open[] = "<|channel>", close[] = "<channel|>";
    ht_text kept = {0};
    for (const char *p = content; p;) {
        const char *end = strstr(p, close), *thought = strstr(p, open);
        size_t n = end ? (size_t)(end - p) : strlen(p);
        if (thought && (size_t)(thought - p) < n) n = (size_t)(thought - p);
        ht_text_append(&kept, p, n);
        p = end ? end + strlen(close) : NULL;
    }
    if (kept.len) ht_chat_put(c, ht_chat_trim(kept.data, kept.len));
    c->out.failed = c->out.failed || kept.failed;
    ht_text_discard(&kept);
}

static ht_status ht_chat_write_gemma4(ht_chat_writer *c, ht_error *err) {
    (void)err;
    const bool joins = c->dialect & (HT_GEMMA4_JOINS | HT_GEMMA4_ONE_TURN), one = c->dialect & HT_GEMMA4_ONE_TURN;
    for (size_t i = 0; i < c->n; i++) {
        const ht_chat_message *m = &c->messages[i];
        bool answer = ht_chat_has_role(m, "assistant");
        if (!(joins && answer && i > 0 && ht_chat_has_role(m - 1, "assistant")))
            ht_text_printf(&c->out, "<|turn>%s\n", gemma_role(m));
        if (answer)
            put_answer(c, m->content);
        else
            put_trimmed(c, m->content);
        bool goes_on = one && answer && i + 1 < c->n && ht_chat_has_role(m + 1, "assistant");
        if (!goes_on) ht_chat_put_text(c, "<turn|>\n");
    }
    ht_chat_put_text(c, "<|turn>model\n");
    if (c->dialect & HT_GEMMA4_NO_THOUGHT) ht_chat_put_text(c, "<|channel>thought\n<channel|>");
    return HT_OK;
}

/* ---- deepseek ---- */

#define DEEPSEEK(name) "<\xEF\xBD\x9C" name "\xEF\xBD\x9C>"
#define UNDERLINE      "\xE2\x96\x81"

/* The last system text, without a header; then the turns. Earlier answers are written without their thoughts, and the next
 * one begins with one where the template says so. */
static ht_status ht_chat_write_deepseek(ht_chat_writer *c, ht_error *err) {
    (void)err;
    const char *system = "", *close = "</think>";
    for (size_t i = 0; i < c->n; i++)
        if (ht_chat_has_role(&c->messages[i], "system")) system = c->messages[i].content;
    ht_chat_put_text(c, system);
    for (size_t i = 0; i < c->n; i++) {
        const ht_chat_message *m = &c->messages[i];
        if (ht_chat_has_role(m, "user")) ht_text_printf(&c->out, DEEPSEEK("User") "%s", m->content);
        if (!ht_chat_has_role(m, "assistant")) continue;
        const char *answer = m->content;
        for (const char *p = answer; (p = strstr(p, close));) answer = p += strlen(close);
        ht_text_printf(&c->out, DEEPSEEK("Assistant") "%s" DEEPSEEK("end" UNDERLINE "of" UNDERLINE "sentence"), answer);
    }
    ht_chat_put_text(c, DEEPSEEK("Assistant"));
    if (c->dialect & HT_DEEPSEEK_THINKS) ht_chat_put_text(c, "<think>\n");
    if (c->dialect & HT_DEEPSEEK_NO_THOUGHT) ht_chat_put_text(c, close);
    return HT_OK;
}

/* ---- choosing ---- */

#define FORMAT(name, opening, bos) {#name, ht_chat_write_##name},
static const struct {
    const char *name;
    ht_status (*write)(ht_chat_writer *c, ht_error *err);
} formats[] = {HT_CHAT_FORMATS(FORMAT)};

static ht_status no_format(const ht_template *template, ht_error *err) {
    if (!template->resembles)
        return ht_fail(err, HT_ERR_UNSUPPORTED,
                       "the model has no chat format that Hearth knows; give it the text as it is instead");
    return ht_fail(err, HT_ERR_UNSUPPORTED,
                   "the chat template has the marks of the %s format, but is none of those that Hearth knows and may "
                   "write something else with them; give the model the text as it is instead",
                   template->resembles);
}

ht_status ht_chat_write(const ht_template *template, const char *bos, const char *eos, const ht_chat *chat, char **text,
                        ht_error *err) {
    *text = NULL;
    if (chat->n == 0) return ht_fail(err, HT_ERR_ARGUMENT, "a conversation of no messages");
    size_t f = 0, n_formats = sizeof formats / sizeof *formats;
    while (f < n_formats && (!template->format || strcmp(template->format, formats[f].name) != 0)) f++;
    if (f == n_formats) return no_format(template, err);
    ht_chat_writer c = {.dialect = template->dialect,
                        .system = template->system,
                        .bos = bos && template->dialect & HT_CHAT_BOS ? bos : "",
                        .eos = eos ? eos : "",
                        .messages = chat->messages,
                        .n = chat->n};
    ht_chat_put_text(&c, c.bos);
    ht_status status = formats[f].write(&c, err);
    if (status) {
        ht_text_discard(&c.out);
        return status;
    }
    *text = ht_text_take(&c.out);
    return *text ? HT_OK : ht_fail_memory(err, c.out.len, "the formatted conversation");
}

static const char *piece_of(const ht_tokenizer *t, int32_t id) { return id >= 0 ? ht_tokenizer_piece(t, id) : NULL; }

ht_status ht_chat_format(const ht_model *m, const ht_chat *chat, char **text, ht_error *err) {
    const ht_tokenizer *t = m->tokenizer;
    *text = NULL;
    ht_status status = ht_model_need_tokenizer(m, err);
    if (status) return status;
    return ht_chat_write(&m->chat, piece_of(t, ht_tokenizer_bos(t)), piece_of(t, ht_tokenizer_eos(t)), chat, text, err);
}

const char *ht_chat_format_name(const ht_model *m) { return m->chat.format; }
