/* The table of reasoning formats. */
#include "chat/reasoning_formats.h"

#include <string.h>

static const ht_reasoning_format formats[] = {
    {"<|channel>", "<|channel>", "<channel|>", "thought\n", true, NULL, NULL},
    {"[THINK]", "[THINK]", "[/THINK]", NULL, true, NULL, NULL},
    {"<|START_THINKING|>", "<|START_THINKING|>", "<|END_THINKING|>", NULL, true, NULL, NULL},
    {"<|inner_prefix|>", "<|inner_prefix|>", "<|inner_suffix|>", NULL, true, NULL, NULL},
    {"</seed:think>", "<seed:think>", "</seed:think>", NULL, false, NULL, NULL},
    {"[BEGIN FINAL RESPONSE]", "Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]", NULL, false, NULL, NULL},
    {"", "<think>", "</think>", NULL, false, "\n", "\n\n"},
};

const ht_reasoning_format *ht_reasoning_format_of(const char *source) {
    const ht_reasoning_format *f = formats;
    while (!strstr(source, f->mark)) f++;
    return f;
}

const ht_reasoning_format *ht_reasoning_format_in(const ht_chat_template *t) {
    const char *source = ht_chat_template_source(t);
    const ht_reasoning_format *f = ht_reasoning_format_of(source);
    return strstr(source, f->open) || strstr(source, f->close) ? f : NULL;
}

bool ht_reasoning_is_open(const ht_reasoning_format *f, const char *prompt, size_t n, bool *with_title) {
    while (n && strchr(" \t\r\n", prompt[n - 1])) n--;
    const size_t n_title = f->title ? strlen(f->title) - 1 : 0, n_open = strlen(f->open);
    *with_title = n_title && n >= n_title && memcmp(prompt + n - n_title, f->title, n_title) == 0;
    if (*with_title) n -= n_title;
    return n >= n_open && memcmp(prompt + n - n_open, f->open, n_open) == 0;
}
