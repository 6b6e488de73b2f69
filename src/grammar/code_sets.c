/* Sets of code points: classes, general categories, complements. */
#include "base/grow.h"
#include "grammar/regex_syntax.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define LAST_CODE_POINT 0x10FFFFu

void ht_code_set_free(ht_code_set *s) {
    free(s->range);
    *s = (ht_code_set){0};
}

bool ht_code_set_add(ht_code_set *s, uint32_t first, uint32_t last) {
    if (!HT_GROW(s->range, s->capacity, s->n + 1)) return false;
    s->range[s->n++] = (ht_code_range){first, last};
    return true;
}

static int by_first(const void *a, const void *b) {
    const ht_code_range *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

bool ht_code_set_invert(ht_code_set *s, size_t first) {
    const size_t n = s->n - first;
    ht_code_set others = {0};
    uint32_t next = 0;
    bool good = true;
    if (n > 1) qsort(s->range + first, n, sizeof *s->range, by_first);
    for (size_t i = first; i < s->n && good; i++) {
        const ht_code_range r = s->range[i];
        if (r.first > next) good = ht_code_set_add(&others, next, r.first - 1);
        if (r.last >= next) next = r.last + 1;
    }
    if (good && next <= LAST_CODE_POINT) good = ht_code_set_add(&others, next, LAST_CODE_POINT);
    s->n = first;
    for (size_t i = 0; i < others.n && good; i++)
        good = ht_code_set_add(s, others.range[i].first, others.range[i].last);
    ht_code_set_free(&others);
    return good;
}

static bool add_all(ht_code_set *s, const ht_code_range *ranges, size_t n) {
    bool good = true;
    for (size_t i = 0; i < n && good; i++) good = ht_code_set_add(s, ranges[i].first, ranges[i].last);
    return good;
}

bool ht_code_set_add_class(ht_code_set *s, char name) {
    static const ht_code_range digits[] = {{'0', '9'}}, words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                               spaces[] = {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
                                           {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                                           {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
    const size_t first = s->n;
    const char lower = (char)(name | 0x20);
    const bool good = lower == 'd'   ? add_all(s, digits, 1)
                      : lower == 'w' ? add_all(s, words, 4)
                                     : add_all(s, spaces, sizeof spaces / sizeof *spaces);
    return good && (name == lower || ht_code_set_invert(s, first));
}

/* General categories by number of utf8proc, with both names of Unicode's PropertyValueAliases. */
static const struct {
    utf8proc_category_t category;
    const char *abbreviation, *name;
} categories[] = {{UTF8PROC_CATEGORY_LU, "Lu", "Uppercase_Letter"},
                  {UTF8PROC_CATEGORY_LL, "Ll", "Lowercase_Letter"},
                  {UTF8PROC_CATEGORY_LT, "Lt", "Titlecase_Letter"},
                  {UTF8PROC_CATEGORY_LM, "Lm", "Modifier_Letter"},
                  {UTF8PROC_CATEGORY_LO, "Lo", "Other_Letter"},
                  {UTF8PROC_CATEGORY_MN, "Mn", "Nonspacing_Mark"},
                  {UTF8PROC_CATEGORY_MC, "Mc", "Spacing_Mark"},
                  {UTF8PROC_CATEGORY_ME, "Me", "Enclosing_Mark"},
                  {UTF8PROC_CATEGORY_ND, "Nd", "Decimal_Number"},
                  {UTF8PROC_CATEGORY_NL, "Nl", "Letter_Number"},
                  {UTF8PROC_CATEGORY_NO, "No", "Other_Number"},
                  {UTF8PROC_CATEGORY_PC, "Pc", "Connector_Punctuation"},
                  {UTF8PROC_CATEGORY_PD, "Pd", "Dash_Punctuation"},
                  {UTF8PROC_CATEGORY_PS, "Ps", "Open_Punctuation"},
                  {UTF8PROC_CATEGORY_PE, "Pe", "Close_Punctuation"},
                  {UTF8PROC_CATEGORY_PI, "Pi", "Initial_Punctuation"},
                  {UTF8PROC_CATEGORY_PF, "Pf", "Final_Punctuation"},
                  {UTF8PROC_CATEGORY_PO, "Po", "Other_Punctuation"},
                  {UTF8PROC_CATEGORY_SM, "Sm", "Math_Symbol"},
                  {UTF8PROC_CATEGORY_SC, "Sc", "Currency_Symbol"},
                  {UTF8PROC_CATEGORY_SK, "Sk", "Modifier_Symbol"},
                  {UTF8PROC_CATEGORY_SO, "So", "Other_Symbol"},
                  {UTF8PROC_CATEGORY_ZS, "Zs", "Space_Separator"},
                  {UTF8PROC_CATEGORY_ZL, "Zl", "Line_Separator"},
                  {UTF8PROC_CATEGORY_ZP, "Zp", "Paragraph_Separator"},
                  {UTF8PROC_CATEGORY_CC, "Cc", "Control"},
                  {UTF8PROC_CATEGORY_CF, "Cf", "Format"},
                  {UTF8PROC_CATEGORY_CS, "Cs", "Surrogate"},
                  {UTF8PROC_CATEGORY_CO, "Co", "Private_Use"},
                  {UTF8PROC_CATEGORY_CN, "Cn", "Unassigned"}};

/* Names of groups of categories: the first letter of their abbreviations. */
static const struct {
    const char *name;
    char letter;
} groups[] = {{"Letter", 'L'},    {"Mark", 'M'},  {"Number", 'N'}, {"Punctuation", 'P'}, {"Symbol", 'S'},
              {"Separator", 'Z'}, {"Other", 'C'}, {"digit", 'd'},  {"punct", 'P'}};

static bool is_name(const char *name, size_t n, const char *text) {
    return strlen(text) == n && !memcmp(name, text, n);
}

/* The categories of a name as bits; 0: unknown name. */
static uint32_t categories_of(const char *name, size_t n) {
    static const char *const prefixes[] = {"gc=", "General_Category="};
    for (size_t i = 0; i < 2; i++) {
        const size_t m = strlen(prefixes[i]);
        if (n > m && !memcmp(name, prefixes[i], m)) {
            name += m;
            n -= m;
        }
    }
    char letter = n == 1 ? *name : '\0';
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        if (is_name(name, n, groups[i].name)) letter = groups[i].letter;
    uint32_t bits = 0;
    for (size_t i = 0; i < sizeof categories / sizeof *categories; i++) {
        const char *abbreviation = categories[i].abbreviation;
        const bool is_in = letter ? *abbreviation == letter || (letter == 'd' && !strcmp(abbreviation, "Nd"))
                                  : is_name(name, n, abbreviation) || is_name(name, n, categories[i].name);
        if (is_in) bits |= 1u << categories[i].category;
    }
    return bits;
}

/* Runs of code points of one category (3,300 in Unicode 15), computed once, as a scan takes milliseconds. */
enum { RUNS_MOST = 8192 };
static struct {
    pthread_once_t once;
    uint32_t end[RUNS_MOST]; /* first code point after each run */
    uint8_t category[RUNS_MOST];
    int n;
} runs = {.once = PTHREAD_ONCE_INIT};

static void find_runs(void) {
    for (uint32_t c = 0; c <= LAST_CODE_POINT; c++) {
        const uint8_t category = (uint8_t)utf8proc_category((utf8proc_int32_t)c);
        if (runs.n == 0 || (runs.category[runs.n - 1] != category && runs.n < RUNS_MOST))
            runs.category[runs.n++] = category;
        runs.end[runs.n - 1] = c + 1;
    }
}

int ht_code_set_add_property(ht_code_set *s, const char *name, size_t n, bool inverted) {
    const uint32_t bits = is_name(name, n, "Any") ? UINT32_MAX : categories_of(name, n);
    const size_t begin = s->n;
    if (!bits) return 0;
    pthread_once(&runs.once, find_runs);
    for (int i = 0; i < runs.n; i++) {
        const uint32_t first = i ? runs.end[i - 1] : 0;
        if ((bits >> runs.category[i] & 1) == inverted) continue;
        if (s->n > begin && s->range[s->n - 1].last + 1 == first)
            s->range[s->n - 1].last = runs.end[i] - 1;
        else if (!ht_code_set_add(s, first, runs.end[i] - 1))
            return -1;
    }
    return 1;
}
