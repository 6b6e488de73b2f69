/* Known chat templates: format and dialect by fingerprint.
 *
 * Templates are programs, and many that contain a format's tokens write something else: a system text of their own,
 * none, or one in another place. So a template is only recognised if its normal form equals that of a template whose
 * output was compared with `transformers` (tests/golden/check_templates.py). */
#ifndef HT_MODELS_TEMPLATE_H
#define HT_MODELS_TEMPLATE_H

#include <hearth/status.h>

#include <stdbool.h>
#include <stdint.h>

/* X(name, opening, bos): a chat format, the token that opens a turn (identifies the format in a vocabulary without
 * template, first match wins), and whether its models were trained with BOS. */
#define HT_CHAT_FORMATS(X)                                                                                             \
    X(chatml, "<|im_start|>", false)                                                                                   \
    X(gemma, "<start_of_turn>", true)                                                                                  \
    X(gemma4, "<|turn>", true)                                                                                         \
    X(llama3, "<|start_header_id|>", true)                                                                             \
    X(deepseek, "<\xEF\xBD\x9CUser\xEF\xBD\x9C>", true)                                                                \
    X(llama2, "<<SYS>>", true)                                                                                         \
    X(mistral, "[INST]", true)

/* Dialect flags: differences from the plain format, which is 0. */
enum {
    HT_CHAT_BOS = 1 << 0, /* any format: begins with BOS */

    HT_CHATML_DROPS_THOUGHTS = 1 << 1, /* thoughts are removed from earlier answers, and line ends stripped */
    HT_CHATML_QWEN3 = 1 << 2,          /* only from answers with thoughts; a user message must follow an answer */
    HT_CHATML_THINKS = 1 << 3,         /* the generation prompt opens a thought */
    HT_CHATML_NO_THOUGHT = 1 << 4,     /* and closes it at once */

    HT_LLAMA3_DATES = 1 << 1, /* always a system turn, with dates */

    HT_GEMMA4_JOINS = 1 << 1,      /* consecutive answers share one header */
    HT_GEMMA4_NO_THOUGHT = 1 << 2, /* the generation prompt has an empty thought */
    HT_GEMMA4_ONE_TURN = 1 << 3,   /* consecutive answers share one turn */

    HT_DEEPSEEK_THINKS = 1 << 1,     /* the generation prompt opens a thought */
    HT_DEEPSEEK_NO_THOUGHT = 1 << 2, /* and closes it at once */

    HT_LLAMA2_BOS_AGAIN = 1 << 1, /* BOS before every user message */

    HT_MISTRAL_SHIFT = 1 /* row of the dialect table in generate/chat_mistral.c, above the BOS bit */
};

typedef struct ht_template {
    const char *format;    /* of HT_CHAT_FORMATS; NULL: unknown template */
    const char *resembles; /* for an unknown template, the format whose opening token it contains, or NULL */
    unsigned dialect;
    char *system;         /* default system text; NULL: no system turn */
    uint64_t fingerprint; /* of the normal form; 0: unreadable */
} ht_template;

/* Identifies a template's text. Free *out with ht_template_free. Fails only when out of memory. */
ht_status ht_template_read(const char *text, ht_template *out, ht_error *err);
void ht_template_free(ht_template *t);

/* Name, opening and BOS of format i (each may be NULL); false past the last format. */
bool ht_template_format(int i, const char **name, const char **opening, bool *bos);

/* template_known.c: looks up t->fingerprint, sets format and dialect. */
void ht_template_find(ht_template *t);

#endif
