#include "pull_name.h"

#include "fail.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- the grammar ---- */

static ht_status bad_name(const char *text, ht_error *err) {
    return ht_fail(
        err, HT_ERR_ARGUMENT,
        "\"%.200s\" names no model of a hub, expected ORG/REPO, ORG/REPO:Q4_K_M or ORG/REPO/FILE.gguf, and behind it "
        "@REVISION for another than main",
        text);
}

/* The rest of `text` after `prefix`; NULL if it has another beginning. */
static const char *behind(const char *text, const char *prefix) {
    const size_t n = strlen(prefix);
    return strncasecmp(text, prefix, n) == 0 ? text + n : NULL;
}

/* Strips a leading hub address, which ends with a slash. */
static const char *without_address(const char *text, const char *endpoint) {
    static const char *const hubs[] = {"huggingface.co/", "hf.co/", "www.huggingface.co/"};
    const char *rest = endpoint ? behind(text, endpoint) : NULL;
    if (rest && *rest == '/') return rest + 1;
    const char *host = behind(text, "https://");
    if (!host) host = behind(text, "http://");
    if (!host) host = text;
    for (size_t i = 0; i < sizeof hubs / sizeof *hubs; i++)
        if ((rest = behind(host, hubs[i]))) return rest;
    return text;
}

/* Length of a name of letters, digits, '.', '_' and '-' that begins with one of the first three; 0 for none. */
static size_t word_length(const char *text) {
    size_t n = 0;
    if (*text == '-' || *text == '.') return 0;
    while (isalnum((unsigned char)text[n]) || (text[n] && strchr("._-", text[n]))) n++;
    return n <= 96 ? n : 0;
}

static bool copy(char **out, const char *from, size_t n) { return (*out = strndup(from, n)) != NULL; }

/* Accepts branches, tags and commits, except those with rare characters that git allows. */
static bool is_revision(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr("._-/+", text[i])) return false;
    return n > 0 && n <= 200 && text[0] != '/' && text[0] != '-' && !memmem(text, n, "..", 2);
}

static bool is_gguf(const char *path, size_t n) { return n > 5 && strncasecmp(path + n - 5, ".gguf", 5) == 0; }

/* Parses ":QUANTIZATION" and "@REVISION" in either order. */
static bool parse_suffixes(const char *at, pull_name *out, bool *memory) {
    while (*at) {
        const char mark = *at++;
        const size_t n = strcspn(at, ":@");
        char **field = mark == ':' ? &out->quantization : &out->revision;
        if (*field || (mark == ':' ? word_length(at) != n || n == 0 || n >= QUANTIZATION_BYTES : !is_revision(at, n)))
            return false;
        *memory = copy(field, at, n);
        if (!*memory) return false;
        at += n;
    }
    return true;
}

/* Parses "/blob/REVISION/FILE" of a web page's URL; it accepts no suffixes. */
static bool parse_page(const char *at, pull_name *out, bool *memory) {
    static const char *const kinds[] = {"/blob/", "/resolve/", "/raw/", "/tree/"};
    const char *revision = NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !revision; i++) revision = behind(at, kinds[i]);
    if (!revision) return false;
    const size_t end = strcspn(revision, "?#"), n = strcspn(revision, "/?#");
    *memory = copy(&out->revision, revision, n);
    if (!*memory || !is_revision(revision, n)) return false;
    if (n == end || n + 1 == end) return true;
    *memory = copy(&out->file, revision + n + 1, end - n - 1);
    return *memory && is_gguf(out->file, strlen(out->file));
}

static bool parse(const char *text, bool is_address, pull_name *out, bool *memory) {
    const size_t org = word_length(text), repo = org && text[org] == '/' ? word_length(text + org + 1) : 0;
    const char *at = text + org + 1 + repo;
    if (!repo) return false;
    *memory = copy(&out->repo, text, org + 1 + repo);
    if (!*memory) return false;
    if (is_address && parse_page(at, out, memory)) return true;
    if (!*memory || out->file || out->revision) return false;
    if (*at == '/') {
        const size_t n = strcspn(++at, ":@");
        if (n == 0 && is_address) return at[n] == '\0'; /* trailing slash */
        if (!is_gguf(at, n)) return false;
        *memory = copy(&out->file, at, n);
        if (!*memory) return false;
        at += n;
    }
    return parse_suffixes(at, out, memory) && !(out->file && out->quantization);
}

ht_status pull_name_parse(const char *text, const char *endpoint, pull_name *out, ht_error *err) {
    bool memory = true;
    *out = (pull_name){0};
    const char *name = without_address(text, endpoint);
    if (parse(name, name != text, out, &memory)) return HT_OK;
    return memory ? bad_name(text, err) : fail_memory(err, "the name of a model");
}

void pull_name_free(pull_name *name) {
    free(name->repo);
    free(name->revision);
    free(name->quantization);
    free(name->file);
    *name = (pull_name){0};
}

/* ---- quantisations ---- */

static bool is_letter_or_digit(char c) { return isalnum((unsigned char)c) != 0; }

/* Length of `word` if `text` begins with it and no letter or digit follows; else 0. */
static size_t whole_word(const char *text, const char *word) {
    const char *rest = behind(text, word);
    return rest && !is_letter_or_digit(*rest) ? (size_t)(rest - text) : 0;
}

/* Length of a suffix such as "_K", "_0" or "_XXS". */
static size_t type_suffix(const char *text) {
    static const char *const suffixes[] = {"_K", "_S", "_M", "_L", "_XS", "_XXS", "_XL", "_XXL", "_NL"};
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        const size_t n = whole_word(text, suffixes[i]);
        if (n) return n;
    }
    size_t digits = 1;
    while (*text == '_' && isdigit((unsigned char)text[digits])) digits++;
    return digits > 1 && !is_letter_or_digit(text[digits]) ? digits : 0;
}

/* Length of a weight type's name: Q4_K_M, IQ2_XXS, TQ1_0, F16, MXFP4_MOE, ...; 0 for none. */
static size_t type_length(const char *text) {
    static const char *const words[] = {"F16", "F32", "BF16", "FP16", "FP32", "MXFP4_MOE", "MXFP4", "NVFP4"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const size_t n = whole_word(text, words[i]);
        if (n) return n;
    }
    size_t n = strchr("IiTt", *text) && *text ? 1 : 0;
    if (text[n] != 'Q' && text[n] != 'q') return 0;
    const size_t digits = ++n;
    while (isdigit((unsigned char)text[n])) n++;
    if (n == digits || is_letter_or_digit(text[n])) return 0;
    for (size_t more; (more = type_suffix(text + n)) > 0;) n += more;
    return n;
}

static bool label_of(const char *name, size_t end, char label[QUANTIZATION_BYTES]) {
    bool found = false;
    for (size_t i = 0; i < end; i++) {
        if (i && is_letter_or_digit(name[i - 1])) continue;
        size_t n = type_length(name + i), from = i;
        if (!n || i + n > end) continue;
        if (i >= 3 && strncasecmp(name + i - 3, "UD-", 3) == 0 && (i == 3 || !is_letter_or_digit(name[i - 4])))
            from -= 3;
        if (i - from + n >= QUANTIZATION_BYTES) continue;
        n += i - from;
        for (size_t k = 0; k < n; k++) label[k] = (char)toupper((unsigned char)name[from + k]);
        label[n] = '\0';
        found = true;
        i = from + n - 1;
    }
    return found;
}

bool quantization_of(const char *path, char label[QUANTIZATION_BYTES]) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *folder = slash;
    *label = '\0';
    if (label_of(name, strlen(name), label)) return true;
    if (!slash) return false;
    while (folder > path && folder[-1] != '/') folder--;
    return label_of(folder, (size_t)(slash - folder), label);
}

static int find_label(const char *const *paths, int n, const char *wanted, bool dynamic) {
    char label[QUANTIZATION_BYTES];
    int found = NONE_MATCHES;
    for (int i = 0; i < n; i++) {
        if (!quantization_of(paths[i], label)) continue;
        const char *rest = dynamic ? behind(label, "UD-") : label;
        if (!rest || strcasecmp(rest, wanted) != 0) continue;
        if (found >= 0) return SEVERAL_MATCH;
        found = i;
    }
    return found;
}

int quantization_find(const char *const *paths, int n, const char *wanted) {
    if (!wanted && n == 1) return 0;
    if (!wanted) wanted = "Q4_K_M";
    const int exact = find_label(paths, n, wanted, false);
    return exact == NONE_MATCHES ? find_label(paths, n, wanted, true) : exact;
}

int gguf_parts(const char *path, size_t *prefix) {
    enum { SUFFIX = sizeof "-00001-of-00003.gguf" - 1 };
    const size_t n = strlen(path);
    int part, parts, end = 0;
    *prefix = n;
    if (n <= SUFFIX || sscanf(path + n - SUFFIX, "-%5d-of-%5d.gguf%n", &part, &parts, &end) != 2) return 1;
    if (end != SUFFIX || part < 1 || part > parts) return 1;
    *prefix = n - SUFFIX;
    return parts;
}
