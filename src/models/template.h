/* Chat templates that Hearth knows: which format each writes, and in which dialect of it.
 *
 * A template is a program, and many that hold the marks of a format write something else with them: a system text of their
 * own, none, or one in another place. So none is told by its marks: a template is known when it is, in the spelling aside, one
 * whose output was compared (tests/golden/check_templates.py), and else it has no format. */
#ifndef HT_MODELS_TEMPLATE_H
#define HT_MODELS_TEMPLATE_H

#include <hearth/status.h>

#include <stdbool.h>
#include <stdint.h>

/* X(name, opening, bos): the chat formats there are, with the token that opens a turn, by which a format is told in a
 * vocabulary that comes without a template (the first that is there), and whether its models were trained on texts that begin
 * with BOS. */
#define HT_CHAT_FORMATS(X)                                                                                             \
    X(chatml, "<|im_start|>", false)                                                                                   \
    X(gemma, "<start_of_turn>", true)                                                                                  \
    X(gemma4, "<|turn>", true)                                                                                         \
    X(llama3, "<|start_header_id|>", true)                                                                             \
    X(deepseek, "<\xEF\xBD\x9CUser\xEF\xBD\x9C>", true)                                                                \
    X(llama2, "<<SYS>>", true)                                                                                         \
    X(mistral, "[INST]", true)

/* What a dialect adds to the plain form of its format; the plain form is 0. */
enum {
    HT_CHAT_BOS = 1 << 0, /* of any format: BOS comes first */

    HT_CHATML_DROPS_THOUGHTS = 1 << 1, /* earlier answers are written from behind their thoughts, line ends cut */
    HT_CHATML_QWEN3 = 1 << 2,      /* only from those that have any; an answer has to be followed by a user's message */
    HT_CHATML_THINKS = 1 << 3,     /* the answer begins with a thought */
    HT_CHATML_NO_THOUGHT = 1 << 4, /* which is over at once */

    HT_LLAMA3_DATES = 1 << 1, /* there always is a system turn, and dates in it */

    HT_GEMMA4_JOINS = 1 << 1,      /* an answer behind another one has no header */
    HT_GEMMA4_NO_THOUGHT = 1 << 2, /* the answer begins behind an empty thought */
    HT_GEMMA4_ONE_TURN = 1 << 3,   /* and the turn of the other one does not end */

    HT_DEEPSEEK_THINKS = 1 << 1,     /* the answer begins with a thought */
    HT_DEEPSEEK_NO_THOUGHT = 1 << 2, /* which is over at once */

    HT_LLAMA2_BOS_AGAIN = 1 << 1, /* BOS comes before every message of the user */

    HT_MISTRAL_SHIFT = 1 /* above BOS: which row of the dialects of generate/chat_mistral.c */
};

typedef struct ht_template {
    const char *format;    /* of HT_CHAT_FORMATS; NULL: none that is known */
    const char *resembles; /* then, the format whose marks the template has, or NULL */
    unsigned dialect;
    char *system;         /* what it writes where there is no system message; NULL: no system turn */
    uint64_t fingerprint; /* of its form; 0 when it cannot be read */
} ht_template;

/* Of a template's text. The caller frees *out with ht_template_free. Fails only when memory runs out. */
ht_status ht_template_read(const char *text, ht_template *out, ht_error *err);
void ht_template_free(ht_template *t);

/* The i-th format's name, opening and BOS (each may be NULL); false past the last one. */
bool ht_template_format(int i, const char **name, const char **opening, bool *bos);

/* template_known.c: sets format and dialect of a known fingerprint. */
void ht_template_find(ht_template *t);

#endif
