/* Roles of weight files by name: the words that repositories use for files other than the model itself. */
#include <hearth/discover.h>

#include <ctype.h>
#include <string.h>
#include <strings.h>

typedef enum match { ANYWHERE, BEGINNING, WORD } match;

/* The last word of GGUF's naming convention is "LoRA" or "vocab" for files that are no model. The other words are llama.cpp's, mlx's and
 * those of draft models. A merged or finetuned model may have some of them in its name, so they are HT_FILE_AUXILIARY. */
static const struct {
    const char *text;
    match match;
    ht_file_role role;
} rules[] = {
    {"mmproj", ANYWHERE, HT_FILE_PROJECTOR},
    {"imatrix", BEGINNING, HT_FILE_IMPORTANCE},
    {"imatrix", ANYWHERE, HT_FILE_AUXILIARY},
    {"adapter", BEGINNING, HT_FILE_ADAPTER},
    {"ggml-adapter", BEGINNING, HT_FILE_ADAPTER},
    {"lora", WORD, HT_FILE_AUXILIARY},
    {"vocab", WORD, HT_FILE_AUXILIARY},
    {"draft", WORD, HT_FILE_AUXILIARY},
    {"drafter", WORD, HT_FILE_AUXILIARY},
    {"speculator", WORD, HT_FILE_AUXILIARY},
    {"mtp", WORD, HT_FILE_AUXILIARY},
    {"nextn", WORD, HT_FILE_AUXILIARY},
    {"eagle", WORD, HT_FILE_AUXILIARY},
    {"medusa", WORD, HT_FILE_AUXILIARY},
    {"dflash", WORD, HT_FILE_AUXILIARY},
};

/* Bytes of the letters at the beginning. */
static size_t letters(const char *text, size_t n) {
    size_t i = 0;
    while (i < n && isalpha((unsigned char)text[i])) i++;
    return i;
}

static bool begins(const char *text, size_t n, const char *with) {
    return n >= strlen(with) && strncasecmp(text, with, strlen(with)) == 0;
}

/* Whether a name of n bytes has the text; a word may have digits after it, as "eagle3", but no letter or digit before. */
static bool matches(const char *name, size_t n, const char *text, match how) {
    if (how == BEGINNING) return begins(name, n, text);
    for (size_t i = 0; i < n; i++) {
        if (!begins(name + i, n - i, text)) continue;
        if (how == ANYWHERE) return true;
        if (letters(name + i, n - i) == strlen(text) && (i == 0 || !isalnum((unsigned char)name[i - 1]))) return true;
    }
    return false;
}

ht_file_role ht_file_role_of(const char *path) {
    ht_file_role role = HT_FILE_MODEL;
    for (const char *name = path;; name++) {
        const size_t n = strcspn(name, "/");
        for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
            if (rules[i].role > role && matches(name, n, rules[i].text, rules[i].match)) role = rules[i].role;
        name += n;
        if (*name == '\0') return role;
    }
}
