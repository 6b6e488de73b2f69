/* Token masks: walks the trie of tokens with the lexer, and with rows where lexemes end. */
#include "grammar/masks.h"

#include "base/checked.h"
#include "base/error.h"

#include <string.h>

/* ---- runs of plain text ---- */

/* The number of plain characters, whichever they are, that a lexer state takes. It decides about tokens of plain
 * text without walking the trie. run_of finds it from the sets of states after one, two, three characters. */

enum { PLAIN_FORMS = 8 };

/* Byte classes of plain characters. */
typedef struct plain_classes {
    ht_byte_set ascii[HT_PLAIN_KINDS];                         /* a bit per class; each kind extends those before it */
    ht_byte_set first[PLAIN_FORMS], second[PLAIN_FORMS], next; /* bytes of characters of two to four */
} plain_classes;

typedef struct plain_run {
    ht_plain_kind kind; /* HT_PLAIN_KINDS: no run; plain tokens are walked as all others */
    int n;              /* texts of the kind continue up to this number of characters, and no further */
} plain_run;

/* First and second bytes of characters of two to four bytes, and how many follow (Unicode standard, table 3-7). */
static const struct {
    unsigned char first, last, second_first, second_last;
    int more;
} forms[PLAIN_FORMS] = {{0xC2, 0xDF, 0x80, 0xBF, 0}, {0xE0, 0xE0, 0xA0, 0xBF, 1}, {0xE1, 0xEC, 0x80, 0xBF, 1},
                        {0xED, 0xED, 0x80, 0x9F, 1}, {0xEE, 0xEF, 0x80, 0xBF, 1}, {0xF0, 0xF0, 0x90, 0xBF, 2},
                        {0xF1, 0xF3, 0x80, 0xBF, 2}, {0xF4, 0xF4, 0x80, 0x8F, 2}};

static void add_classes(const ht_automaton *a, unsigned first, unsigned last, ht_byte_set *to) {
    for (unsigned b = first; b <= last; b++) ht_byte_set_add(to, a->class_of[b], a->class_of[b]);
}

static void find_plain_classes(const ht_automaton *a, plain_classes *out) {
    *out = (plain_classes){.next = {{0}}};
    for (unsigned b = 0; b < 0x80; b++) {
        const ht_plain_kind kind = ht_plain_kind_of((unsigned char)b);
        if (kind < HT_PLAIN_KINDS) add_classes(a, b, b, &out->ascii[kind]);
    }
    for (int i = 0; i < PLAIN_FORMS; i++) {
        add_classes(a, forms[i].first, forms[i].last, &out->first[i]);
        add_classes(a, forms[i].second_first, forms[i].second_last, &out->second[i]);
    }
    add_classes(a, 0x80, 0xBF, &out->next);
}

/* States of one set at most; beyond that, tokens are checked one by one. */
enum { STATES_MOST = 8 };

typedef struct state_set {
    uint32_t state[STATES_MOST];
    int n;
    bool has_dead, is_crowded;
    bool accepts; /* a lexeme may end in one of them, and a token continue in the next */
} state_set;

static void add_state(const ht_automaton *a, state_set *set, uint32_t state) {
    if (state == HT_LEX_DEAD) {
        set->has_dead = true;
        return;
    }
    for (int i = 0; i < set->n; i++)
        if (set->state[i] == state) return;
    set->accepts = set->accepts || a->state[state].n_accepts;
    if (set->n == STATES_MOST)
        set->is_crowded = true;
    else
        set->state[set->n++] = state;
}

static void join(const ht_automaton *a, state_set *to, const state_set *from) {
    for (int i = 0; i < from->n; i++) add_state(a, to, from->state[i]);
    to->has_dead = to->has_dead || from->has_dead;
    to->is_crowded = to->is_crowded || from->is_crowded;
    to->accepts = to->accepts || from->accepts;
}

/* Whether there is no run: some texts continue and others do not, or there are too many states. */
static bool is_mixed(const state_set *set) { return set->is_crowded || (set->has_dead && set->n); }

static void step_classes(ht_automaton *a, const state_set *from, const ht_byte_set *classes, state_set *to) {
    for (int w = 0; w < 8; w++)
        for (uint32_t left = classes->bits[w]; left && !is_mixed(to); left &= left - 1)
            for (int i = 0; i < from->n; i++)
                add_state(a, to, ht_lex_next(a, from->state[i], w * 32 + __builtin_ctz(left)));
}

/* The states that the states of a set reach by one plain character. */
static void step_character(ht_automaton *a, const plain_classes *of, const state_set *from, ht_plain_kind kind,
                           state_set *to) {
    *to = (state_set){.n = 0};
    for (int k = 0; k <= (int)kind; k++) step_classes(a, from, &of->ascii[k], to);
    for (int i = 0; kind == HT_PLAIN_ANY && i < PLAIN_FORMS && !is_mixed(to); i++) {
        state_set now = {.n = 0};
        step_classes(a, from, &of->first[i], &now);
        for (int k = -1; k < forms[i].more; k++) {
            state_set next = {.has_dead = now.has_dead, .is_crowded = now.is_crowded, .accepts = now.accepts};
            step_classes(a, &now, k < 0 ? &of->second[i] : &of->next, &next);
            now = next;
        }
        join(a, to, &now);
    }
}

/* Characters of the kind that a state takes; -1: depends on which, or longer texts continue in other lexemes. */
static int run_of(ht_automaton *a, const plain_classes *classes, uint32_t state, ht_plain_kind kind) {
    state_set now = {.state = {state}, .n = 1}, next;
    bool accepts = false;
    for (int k = 1; k <= HT_PLAIN_MOST; k++) {
        step_character(a, classes, &now, kind, &next);
        if (is_mixed(&next)) return -1;
        if (!next.n) return accepts ? -1 : k - 1;
        if (next.n == now.n && !memcmp(next.state, now.state, (size_t)now.n * sizeof *now.state)) return HT_PLAIN_MOST;
        accepts = accepts || next.accepts;
        now = next;
    }
    return HT_PLAIN_MOST;
}

static plain_run plain_run_of(ht_automaton *a, const plain_classes *classes, uint32_t state) {
    for (int kind = HT_PLAIN_KINDS; kind-- > 0;) {
        const int n = run_of(a, classes, state, (ht_plain_kind)kind);
        if (n >= 0) return (plain_run){(ht_plain_kind)kind, n};
    }
    return (plain_run){HT_PLAIN_KINDS, 0};
}

/* ---- masks ---- */

/* A trie node where a lexeme ends and tokens continue. */
typedef struct crossing {
    uint32_t node, state; /* of the lexer after the node's byte */
} crossing;

/* A cached mask with at most this many tokens is a list: most masks allow a handful. */
enum { LISTED_MOST = 256 };

typedef struct kept_mask {
    uint32_t *words; /* [n] tokens, or [n_words] bits; NULL: not computed */
    uint32_t n;
    bool is_list;
} kept_mask;

/* Effect of a lexer state on all tokens, whatever the row. */
typedef struct lex_mask {
    kept_mask whole;          /* tokens that it takes whole */
    const ht_trie_part *part; /* trie part of the crossings */
    crossing *crossing;       /* [n_crossings] */
    uint32_t n_crossings;
    size_t crossings_capacity;
} lex_mask;

struct ht_masks {
    ht_automaton *a;
    const ht_token_trie *trie;
    const int32_t *ending; /* [n_ending] */
    int n_ending;
    const ht_spelled_token *spelled; /* [n_spelled] */
    int n_spelled;
    plain_classes plain;
    lex_mask *lex; /* [lex_capacity] by state */
    size_t lex_capacity;
    kept_mask *mask; /* [mask_capacity] by configuration */
    size_t mask_capacity;
    uint32_t *bits;  /* [n_words] of the lexer state being computed */
    uint32_t *found; /* [n_words] of a mask computed in advance */
    size_t bytes;
    uint32_t *state_at; /* [deepest + 2] lexer state after each byte of the path to a node */
    uint32_t *end_at;   /* likewise, end of its threads in `threads` */
    ht_threads threads; /* of all depths */
};

ht_status ht_masks_new(ht_automaton *a, const ht_token_trie *trie, const int32_t *ending, int n, ht_masks **out,
                       ht_error *err) {
    ht_masks *m = *out = calloc(1, sizeof *m);
    const size_t depth = (size_t)trie->all.deepest + 2;
    if (!m) return ht_fail_memory(err, sizeof *m, "token masks");
    m->a = a;
    m->trie = trie;
    m->ending = ending;
    m->n_ending = n;
    find_plain_classes(a, &m->plain);
    m->state_at = malloc(depth * sizeof *m->state_at);
    m->end_at = malloc(depth * sizeof *m->end_at);
    m->bits = malloc((trie->n_words + 1) * sizeof *m->bits);
    m->found = malloc((trie->n_words + 1) * sizeof *m->found);
    if (m->state_at && m->end_at && m->bits && m->found) return HT_OK;
    ht_masks_free(m);
    *out = NULL;
    return ht_fail_memory(err, depth, "token masks");
}

void ht_masks_reset(ht_masks *m) {
    for (size_t i = 0; i < m->lex_capacity; i++) {
        free(m->lex[i].whole.words);
        free(m->lex[i].crossing);
    }
    for (size_t i = 0; i < m->mask_capacity; i++) free(m->mask[i].words);
    free(m->lex);
    free(m->mask);
    m->lex = NULL;
    m->mask = NULL;
    m->lex_capacity = m->mask_capacity = 0;
    m->bytes = 0;
}

void ht_masks_free(ht_masks *m) {
    if (!m) return;
    ht_masks_reset(m);
    ht_threads_free(&m->threads);
    free(m->state_at);
    free(m->end_at);
    free(m->bits);
    free(m->found);
    free(m);
}

void ht_masks_spell(ht_masks *m, const ht_spelled_token *spelled, int n) {
    m->spelled = spelled;
    m->n_spelled = n;
}

const char *ht_masks_text(const ht_masks *m, int32_t token, size_t *n) {
    for (int i = 0; i < m->n_spelled; i++)
        if (m->spelled[i].token == token) {
            *n = strlen(m->spelled[i].text);
            return m->spelled[i].text;
        }
    return ht_token_trie_text(m->trie, token, n);
}

bool ht_masks_spells(const ht_masks *m, char first) {
    for (int i = 0; i < m->n_spelled; i++)
        if (*m->spelled[i].text == first) return true;
    return false;
}

bool ht_masks_has(const ht_masks *m, uint32_t configuration) {
    return configuration < m->mask_capacity && m->mask[configuration].words;
}

size_t ht_masks_bytes(const ht_masks *m) { return m->bytes; }

static void set_token(const ht_token_trie *trie, uint32_t *bits, int32_t token) {
    bits[token >> 5] |= 1u << (token & 31);
    if (trie->has_same)
        while ((token = trie->same[token]) >= 0) bits[token >> 5] |= 1u << (token & 31);
}

/* ---- cached masks ---- */

static bool list_tokens(const uint32_t *bits, size_t n_words, uint32_t *listed, uint32_t *n) {
    enum { AT_ONCE = 16 };
    *n = 0;
    for (size_t begin = 0; begin < n_words; begin += AT_ONCE) {
        const size_t end = ht_min_size(begin + AT_ONCE, n_words);
        uint32_t any = 0;
        for (size_t w = begin; w < end; w++) any |= bits[w];
        for (size_t w = begin; w < end && any; w++)
            for (uint32_t left = bits[w]; left; left &= left - 1) {
                if (*n == LISTED_MOST) return false;
                listed[(*n)++] = (uint32_t)w * 32 + (uint32_t)__builtin_ctz(left);
            }
    }
    return true;
}

static bool keep(ht_masks *m, const uint32_t *bits, kept_mask *out) {
    uint32_t listed[LISTED_MOST], n;
    const bool is_list = list_tokens(bits, m->trie->n_words, listed, &n);
    if (!is_list) n = (uint32_t)m->trie->n_words;
    uint32_t *words = malloc(((size_t)n + 1) * sizeof *words);
    if (!words) return false;
    memcpy(words, is_list ? listed : bits, n * sizeof *words);
    *out = (kept_mask){words, n, is_list};
    m->bytes += ((size_t)n + 1) * sizeof *words;
    return true;
}

static void add_kept(const kept_mask *kept, uint32_t *bits) {
    const uint32_t *words = kept->words;
    for (uint32_t i = 0; i < kept->n && kept->is_list; i++) bits[words[i] >> 5] |= 1u << (words[i] & 31);
    for (uint32_t i = 0; i < kept->n && !kept->is_list; i++) bits[i] |= words[i];
}

/* ---- states of the lexer ---- */

static bool add_crossing(ht_masks *m, lex_mask *of, uint32_t node, uint32_t state) {
    const size_t before = of->crossings_capacity;
    if (!ht_automaton_reserve(m->a, &of->crossing, &of->crossings_capacity, (size_t)of->n_crossings + 1,
                              sizeof *of->crossing))
        return false;
    m->bytes += (of->crossings_capacity - before) * sizeof *of->crossing;
    of->crossing[of->n_crossings++] = (crossing){node, state};
    return true;
}

/* Adds the tokens of a part of the trie that the state allows. */
static void walk_lexer(ht_masks *m, lex_mask *of, const ht_trie_part *part, uint32_t state) {
    ht_automaton *a = m->a;
    const uint8_t *class_of = a->class_of;
    m->state_at[0] = state;
    of->part = part;
    for (uint32_t i = 0; i < part->n;) {
        const uint32_t depth = part->depth[i];
        const uint32_t next = ht_lex_next(a, m->state_at[depth], class_of[part->byte[i]]);
        if (next == HT_LEX_DEAD) {
            i = part->next[i];
            continue;
        }
        if (part->token[i] >= 0) set_token(m->trie, m->bits, part->token[i]);
        const ht_lex_state *described = &a->state[next];
        if (described->n_accepts && part->next[i] > i + 1 && !add_crossing(m, of, i, next)) return;
        m->state_at[depth + 1] = next;
        i = described->goes_on ? i + 1 : part->next[i];
    }
}

static const lex_mask *lex_mask_of(ht_masks *m, uint32_t state) {
    const size_t n_words = m->trie->n_words;
    if (state < m->lex_capacity && m->lex[state].whole.words) return &m->lex[state];
    const size_t before = m->lex_capacity;
    if (!ht_automaton_reserve(m->a, &m->lex, &m->lex_capacity, (size_t)state + 1, sizeof *m->lex)) return NULL;
    for (size_t i = before; i < m->lex_capacity; i++) m->lex[i] = (lex_mask){0};
    lex_mask *of = &m->lex[state];
    of->n_crossings = 0;
    const plain_run run = plain_run_of(m->a, &m->plain, state);
    if (run.kind < HT_PLAIN_KINDS) {
        const ht_plain_tokens *plain = &m->trie->plain[run.kind];
        memcpy(m->bits, plain->mask + (size_t)run.n * n_words, n_words * sizeof *m->bits);
        walk_lexer(m, of, &plain->rest, state);
    } else {
        memset(m->bits, 0, n_words * sizeof *m->bits);
        walk_lexer(m, of, &m->trie->all, state);
    }
    if (!keep(m, m->bits, &of->whole)) ht_automaton_fail(m->a, HT_ERR_MEMORY);
    return m->a->status ? NULL : of;
}

/* ---- where lexemes end ---- */

/* Adds the tokens below a node that continue the threads in m->threads. */
static void walk_threads(ht_masks *m, const ht_trie_part *part, uint32_t node, uint32_t *bits) {
    ht_automaton *a = m->a;
    ht_threads *all = &m->threads;
    const uint32_t base = part->depth[node] + 1u;
    m->end_at[0] = all->n;
    for (uint32_t i = node + 1; i < part->next[node] && !a->status;) {
        /* Threads of depth d lie between the ends of depths d - 1 and d. */
        const uint32_t depth = part->depth[i] - base;
        const uint32_t begin = depth ? m->end_at[depth - 1] : 0, end = m->end_at[depth];
        all->n = end;
        all->accepts = false;
        for (uint32_t t = begin; t < end; t++)
            if (!ht_automaton_step(a, all->thread[t], part->byte[i], all)) return;
        if (all->n == end && !all->accepts) {
            i = part->next[i];
            continue;
        }
        if (part->token[i] >= 0) set_token(m->trie, bits, part->token[i]);
        m->end_at[depth + 1] = all->n;
        i = all->n > end ? i + 1 : part->next[i];
    }
}

static void add_thread_mask(ht_masks *m, ht_thread t, uint32_t *bits) {
    const lex_mask *lex = lex_mask_of(m, t.state);
    if (!lex) return;
    add_kept(&lex->whole, bits);
    for (uint32_t i = 0; i < lex->n_crossings && !m->a->status; i++) {
        m->threads.n = 0;
        if (ht_automaton_accept(m->a, t.row, lex->crossing[i].state, &m->threads))
            walk_threads(m, lex->part, lex->crossing[i].node, bits);
    }
}

static void set_bit(uint32_t *bits, int32_t token, bool on) {
    const uint32_t bit = 1u << (token & 31);
    bits[token >> 5] = on ? bits[token >> 5] | bit : bits[token >> 5] & ~bit;
}

/* Adds tokens outside the trie: spelled tokens, tokens without text, and tokens that end a text. */
static void add_special(ht_masks *m, uint32_t configuration, uint32_t *bits) {
    ht_automaton *a = m->a;
    size_t n;
    if (ht_automaton_is_free(a, configuration))
        for (int32_t t = 0; t < m->trie->n_tokens; t++) {
            ht_token_trie_text(m->trie, t, &n);
            if (!n) set_bit(bits, t, true);
        }
    for (int i = 0; i < m->n_spelled && !a->status; i++) {
        const char *text = m->spelled[i].text;
        set_bit(bits, m->spelled[i].token,
                ht_automaton_is_live(a, ht_automaton_feed(a, configuration, text, strlen(text))));
    }
    const bool may_end = ht_automaton_may_end(a, configuration);
    for (int i = 0; i < m->n_ending; i++)
        if (m->ending[i] >= 0 && m->ending[i] < m->trie->n_tokens) set_bit(bits, m->ending[i], may_end);
}

ht_status ht_masks_of(ht_masks *m, uint32_t configuration, uint32_t *bits, ht_error *err) {
    const kept_mask *known = ht_masks_has(m, configuration) ? &m->mask[configuration] : NULL;
    if (!bits) bits = m->found;
    if (known && !known->is_list) {
        memcpy(bits, known->words, known->n * sizeof *bits);
        return HT_OK;
    }
    memset(bits, 0, m->trie->n_words * sizeof *bits);
    if (known) {
        add_kept(known, bits);
        return HT_OK;
    }
    const size_t before = m->mask_capacity;
    if (!ht_automaton_reserve(m->a, &m->mask, &m->mask_capacity, (size_t)configuration + 1, sizeof *m->mask))
        return ht_automaton_status(m->a, err);
    for (size_t i = before; i < m->mask_capacity; i++) m->mask[i] = (kept_mask){0};
    size_t n;
    ht_automaton_threads(m->a, configuration, &n);
    for (size_t i = 0; i < n && !m->a->status; i++) {
        size_t same;
        add_thread_mask(m, ht_automaton_threads(m->a, configuration, &same)[i], bits);
    }
    if (!m->a->status) add_special(m, configuration, bits);
    const ht_status status = ht_automaton_status(m->a, err);
    if (status) return status;
    if (!keep(m, bits, &m->mask[configuration]))
        return ht_fail_memory(err, m->trie->n_words * sizeof *bits, "a token mask");
    return HT_OK;
}
