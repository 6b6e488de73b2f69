/* Context-free rules over lexemes, into which schemas, regular expressions and grammars are compiled.
 *
 * Productions are sequences of rules and of lexemes, regular expressions that take at least one byte. A text may be
 * divided into lexemes in every way that the rules allow; no longest match decides. Productions may be made on
 * demand, so that rules with parameters need not be listed. Errors are sticky. One thread at a time. */
#ifndef HT_GRAMMAR_RULES_H
#define HT_GRAMMAR_RULES_H

#include "grammar/intern.h"
#include "grammar/regex.h"

/* A rule, or with HT_LEXEME_BIT a lexeme, or HT_SYMBOL_END at the end of a production. */
typedef uint32_t ht_symbol;
#define HT_LEXEME_BIT UINT32_C(0x80000000)
#define HT_SYMBOL_END UINT32_MAX

typedef struct ht_rule {
    uint32_t first, last; /* productions, linked; HT_INTERN_FAILED: none */
    uint32_t number;      /* of a rule made on demand among those; HT_INTERN_FAILED: of any other */
    bool is_nullable;     /* it has the empty text; false of rules made on demand */
    bool is_productive;   /* it has any text */
    bool is_expanded;
} ht_rule;

/* A lexeme of free text. */
typedef struct ht_free_lexeme {
    uint32_t lexeme; /* number in `lexemes` */
    bool may_end, is_endless;
} ht_free_lexeme;

enum { HT_STARTS_MOST = 6, HT_FREE_LEXEMES_MOST = 16 };

/* Where a text begins: numbers of the rules' starts. */
typedef enum ht_grammar_start {
    HT_START_TEXT,         /* with the grammar's text */
    HT_START_ANSWER,       /* the answer may begin with reasoning */
    HT_START_IN_REASONING, /* the prompt has begun the reasoning */
    /* This and two more, as above, with `beside_text` (chat/response_rules.h): answers that begin as no call. */
    HT_START_NO_CALL
} ht_grammar_start;

typedef struct ht_rules ht_rules;

/* Adds the productions of the rule that `words` name. Each begins with a lexeme, and makes expressions of finished ones only. */
typedef void ht_rules_expand(ht_rules *rules, ht_symbol rule, const uint32_t *words, size_t n, void *user);

struct ht_rules {
    ht_regexes *re;
    ht_symbol start[HT_STARTS_MOST]; /* [n_starts] of texts; the first is that of ht_rules_finish */
    int n_starts;
    ht_intern lexemes; /* of one word, the expression */
    ht_rule *rule;     /* [n_rules] */
    uint32_t n_rules;
    uint32_t *production; /* [2 * n_productions] where its symbols begin, and the next production of its rule */
    uint32_t n_productions;
    ht_symbol *symbol; /* [n_symbols] of all productions, each ended by HT_SYMBOL_END */
    uint32_t n_symbols;
    size_t symbols_capacity;
    ht_free_lexeme free_lexeme[HT_FREE_LEXEMES_MOST]; /* [n_free_lexemes] */
    int n_free_lexemes;
    ht_intern demanded;      /* names of the rules made on demand */
    uint32_t *demanded_rule; /* [demanded.n] */
    ht_rules_expand *expand;
    void *user;
    void (*free_user)(void *user); /* NULL: nothing to free */
    struct {
        uint32_t n_rules, n_productions, n_symbols, n_lexemes, n_demanded;
    } finished;
    ht_status status;
};

/* NULL when memory ran out. */
ht_rules *ht_rules_new(void);
void ht_rules_free(ht_rules *r); /* NULL is fine */
ht_status ht_rules_status(const ht_rules *r, ht_error *err);

/* The lexeme of an expression, which does not have the empty text. */
ht_symbol ht_rules_lexeme(ht_rules *r, ht_re re);
/* The same for free text, in which tokens without text are allowed. `may_end`: the whole text may end within it.
 * `is_endless`: no mark ends it, nothing follows it, and every prefix of its texts must match, too. At most
 * HT_FREE_LEXEMES_MOST different ones; the first call decides. */
ht_symbol ht_rules_free_lexeme(ht_rules *r, ht_re re, bool may_end, bool is_endless);
/* The free lexeme with this number; NULL for other lexemes. */
const ht_free_lexeme *ht_rules_is_free(const ht_rules *r, uint32_t lexeme);
/* The symbol of any expression: a lexeme, or a rule of one and the empty text. */
ht_symbol ht_rules_text(ht_rules *r, ht_re re);
/* A new rule without productions. */
ht_symbol ht_rules_rule(ht_rules *r);
/* Adds a production: n symbols, none for the empty text. */
void ht_rules_add(ht_rules *r, ht_symbol rule, const ht_symbol *symbols, size_t n);
/* The rule made on demand that n words name. */
ht_symbol ht_rules_demand(ht_rules *r, const uint32_t *words, size_t n);

/* Ends construction: finds which rules have the empty text or none, drops productions without texts, and freezes the expressions.
 * *has_text: whether the start has any text. Call it again after adding rules and starts. */
void ht_rules_finish(ht_rules *r, ht_symbol start, bool *has_text);
/* Discards what was made since, when memory is short. */
void ht_rules_reset(ht_rules *r);

/* The first production of a rule; makes those of rules on demand. HT_INTERN_FAILED: none. */
uint32_t ht_rules_first(ht_rules *r, ht_symbol rule);
static inline uint32_t ht_rules_next(const ht_rules *r, uint32_t production) {
    return r->production[2 * production + 1];
}

size_t ht_rules_bytes(const ht_rules *r);

/* Parses n bytes of UTF-8 in GBNF, llama.cpp's grammar format, with the start `root` (gbnf.c). HT_ERR_FORMAT, with
 * line and column: invalid, or without texts; HT_ERR_LIMIT: too large. The caller frees *out. */
ht_status ht_gbnf_parse(const char *text, size_t n, ht_rules **out, ht_error *err);

#endif
