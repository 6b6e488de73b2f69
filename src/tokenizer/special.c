/* Added tokens: leftmost-longest matches of a trie over the text, before all other stages. */
#include "base/error.h"
#include "base/grow.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static int32_t new_node(ht_trie *trie, unsigned char byte) {
    if (!HT_GROW_ONE(trie->nodes, trie->n)) return -1;
    trie->nodes[trie->n] = (ht_trie_node){.child = -1, .sibling = -1, .value = -1, .byte = byte};
    return trie->n++;
}

static int32_t find_child(const ht_trie *trie, int32_t node, unsigned char byte) {
    int32_t child = trie->nodes[node].child;
    while (child >= 0 && trie->nodes[child].byte != byte) child = trie->nodes[child].sibling;
    return child;
}

static bool insert(ht_trie *trie, const char *text, size_t n, int32_t value) {
    int32_t node = trie->root[(unsigned char)text[0]];
    if (node < 0) {
        node = new_node(trie, (unsigned char)text[0]);
        if (node < 0) return false;
        trie->root[(unsigned char)text[0]] = node;
    }
    for (size_t i = 1; i < n; i++) {
        int32_t child = find_child(trie, node, (unsigned char)text[i]);
        if (child < 0) {
            child = new_node(trie, (unsigned char)text[i]);
            if (child < 0) return false;
            trie->nodes[child].sibling = trie->nodes[node].child;
            trie->nodes[node].child = child;
        }
        node = child;
    }
    trie->nodes[node].value = value;
    return true;
}

ht_status ht_trie_build(ht_trie *trie, const ht_added *added, size_t n, bool normalized, ht_error *err) {
    memset(trie->root, -1, sizeof trie->root);
    for (size_t i = 0; i < n; i++) {
        if (added[i].normalized != normalized) continue;
        const char *text = added[i].normal ? added[i].normal : added[i].text;
        size_t length = added[i].normal ? added[i].n_normal : added[i].n_text;
        if (length && !insert(trie, text, length, (int32_t)i))
            return ht_fail_memory(err, (size_t)trie->n * sizeof *trie->nodes, "added tokens");
    }
    return HT_OK;
}

void ht_trie_free(ht_trie *trie) {
    free(trie->nodes);
    *trie = (ht_trie){0};
}

/* Index of the longest added token at text[at], or -1; *end is the match's end. */
static int32_t longest_at(const ht_trie *trie, const char *text, size_t n, size_t at, size_t *end) {
    int32_t node = trie->root[(unsigned char)text[at]], best = -1;
    for (size_t i = at + 1; node >= 0; i++) {
        if (trie->nodes[node].value >= 0) {
            best = trie->nodes[node].value;
            *end = i;
        }
        if (i == n) break;
        node = find_child(trie, node, (unsigned char)text[i]);
    }
    return best;
}

/* \w of the reference's regex: alphabetic characters, marks, decimal digits, connectors, joiners. */
static bool is_word_char(uint32_t c) {
    if (c == 0x200C || c == 0x200D) return true;
    if ((c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
        (c >= 0x1F170 && c <= 0x1F189))
        return true; /* circled and squared letters: category symbol, but alphabetic */
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) || category == UTF8PROC_CATEGORY_PC;
}

static size_t char_before(const char *text, size_t at) {
    do at--;
    while (at > 0 && ((unsigned char)text[at] & 0xC0) == 0x80);
    return at;
}

static bool is_single_word(const char *text, size_t n, size_t begin, size_t end) {
    size_t length;
    if (begin > 0 && is_word_char(ht_utf8_next(text + char_before(text, begin), &length))) return false;
    return end == n || !is_word_char(ht_utf8_next(text + end, &length));
}

static bool is_space_at(const char *text, size_t at, size_t *length) {
    return ht_unicode_class(ht_utf8_next(text + at, length)) & HT_CLASS_SPACE;
}

/* Extends a match by the spaces that its token strips, on the left not before `done`. */
static void strip_spaces(const ht_added *token, const char *text, size_t n, size_t done, size_t *begin, size_t *end) {
    size_t length;
    while (token->lstrip && *begin > done) {
        size_t before = char_before(text, *begin);
        if (before < done || !is_space_at(text, before, &length)) break;
        *begin = before;
    }
    while (token->rstrip && *end < n && is_space_at(text, *end, &length)) *end += length;
}

/* Start of the token's text in a match of its normal form, which may begin with a U+2581. */
static size_t own_text(const ht_added *token, size_t at, size_t end) {
    return token->normal && token->n_text <= end - at ? end - token->n_text : at;
}

/* As in Hugging Face `tokenizers`, a match that is rejected afterwards (single_word, or special tokens as plain text)
 * still consumes its text, and spaces consumed by rstrip may contain the next match. */
void ht_find_added(const ht_tokenizer *t, const ht_trie *trie, const char *text, size_t n,
                   ht_special_fn *may_be_special, ht_part_fn *fn, void *user) {
    size_t done = 0;
    for (size_t at = 0; trie->n && at < n;) {
        size_t end = at;
        int32_t value = trie->root[(unsigned char)text[at]] < 0 ? -1 : longest_at(trie, text, n, at, &end);
        if (value < 0) {
            at++;
            continue;
        }
        const ht_added *token = &t->added[value];
        size_t begin = at;
        at = end;
        if ((token->control && !may_be_special(user, token->special, own_text(token, begin, end), end)) ||
            (token->single_word && !is_single_word(text, n, begin, end)))
            continue;
        strip_spaces(token, text, n, done, &begin, &end);
        if (done < begin) fn(user, text, done, begin, -1);
        fn(user, text, begin, end, value);
        done = end;
    }
    if (done < n) fn(user, text, done, n, -1);
}
