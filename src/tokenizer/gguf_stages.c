/* The pre-tokenizers that GGUF names, as the stages of their models' tokenizer.json. */
#include "tokenizer/gguf_stages.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

#define ANY_CASE_CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LLAMA3_END           "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LLAMA3               ANY_CASE_CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" LLAMA3_END
#define QWEN2                ANY_CASE_CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" LLAMA3_END
#define QWEN35                                                                                                         \
    ANY_CASE_CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*"          \
                         "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER     "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER     "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED_END "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define TEKKEN    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*|\\p{N}" CASED_END
#define CASED(upper, lower)                                                                                            \
    "[^\\r\\n\\p{L}\\p{N}]?" upper "*" lower "+" ANY_CASE_CONTRACTION "?|[^\\r\\n\\p{L}\\p{N}]?" upper "+" lower       \
    "*" ANY_CASE_CONTRACTION "?"
#define GPT4O      CASED(UPPER, LOWER) "|\\p{N}{1,3}" CASED_END
#define UPPER_KIMI "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define LOWER_KIMI "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define WORDS_DEEPSEEK_V3                                                                                              \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"                 \
    " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
#define THOUSANDS "(?=(\\d{3})+(?!\\d))"
#define PORO      " ?[^(\\s|.,!?…。，、।۔،)]+"
#define DEEPSEEK_LETTERS                                                                                               \
    "\\s?[A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}\\x{1C4}-\\x{293}\\x{295}-"      \
    "\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-"     \
    "\\x{3A1}\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}\\x{13A0}-"        \
    "\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}"         \
    "\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-"        \
    "\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}"           \
    "\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-"        \
    "\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}"           \
    "\\x{2126}\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}"          \
    "\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}"           \
    "\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-"        \
    "\\x{ABBF}\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}"       \
    "\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}"        \
    "\\x{1E900}-\\x{1E943}]+"

/* A pre-tokenizer step: a Split pattern (Isolated), or one of these codes for a built-in step. */
#define DIGITS      "\1" /* Digits, individual */
#define DIGIT_RUNS  "\2" /* Digits, contiguous */
#define PUNCTUATION "\3" /* Punctuation, contiguous */
#define BYTES       "\4" /* ByteLevel, no pattern */
#define BYTES_GPT2  "\5" /* ByteLevel with the GPT-2 pattern */

static const ht_gguf_stages rows[] = {
    {.names = " gpt-2 phi-2 jais mellum exaone4 modern-bert jina-es jina-de jina-v2-es jina-v2-de gigachat a.x-4.0 "
              "trillion granite-docling ",
     .steps = {BYTES_GPT2}},
    {.names = " mpt olmo ", .steps = {BYTES_GPT2}, .nfc = true},
    {.names = " smollm starcoder refact codeshell exaone minerva-7b mellum2 ", .steps = {DIGITS, BYTES_GPT2}},
    {.names = " command-r ", .steps = {DIGITS, BYTES_GPT2}, .nfc = true},
    {.names = " llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 ",
     .steps = {LLAMA3, BYTES},
     .ignore_merges = true,
     .add_bos = true},
    {.names = " dbrx smaug-bpe chatglm-bpe ", .steps = {LLAMA3, BYTES}},
    {.names = " glm4 glm5 ", .steps = {LLAMA3, BYTES}, .ignore_merges = true},
    {.names = " qwen2 deepseek-r1-qwen stablelm2 hunyuan megrez grok-2 kormo f2llmv2 solar-open ",
     .steps = {QWEN2, BYTES},
     .nfc = true},
    {.names = " qwen35 ", .steps = {QWEN35, BYTES}, .nfc = true},
    {.names = " tekken ", .steps = {TEKKEN, BYTES}, .ignore_merges = true, .add_bos = true},
    {.names = " gpt-4o llama4 minimax-m2 kanana2 talkie ", .steps = {GPT4O, BYTES}},
    {.names = " cohere2moe tiny_aya ", .steps = {"\\d{1,3}(?=(?:\\d{3})*\\b)", GPT4O, BYTES}, .nfc = true},
    {.names = " kimi-k2 ",
     .steps = {"[\\p{Han}]+|" CASED(UPPER_KIMI, LOWER_KIMI) "|\\p{N}{1,3}" LLAMA3_END, BYTES},
     .ignore_merges = true},
    {.names = " youtu ",
     .steps = {"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+",
               CASED(UPPER, LOWER) "|\\p{N}" CASED_END, BYTES},
     .ignore_merges = true},
    {.names = " seed-coder ",
     .steps = {ANY_CASE_CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|"
                                    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
               BYTES}},
    {.names = " laguna ", .steps = {"[^\\n]+|[\\n]+", QWEN2, BYTES}},
    {.names = " exaone-moe ",
     .steps = {ANY_CASE_CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}|"
                                    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
               BYTES}},
    {.names = " bailingmoe bailingmoe2 llada-moe ",
     .steps = {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|"
               "\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
               BYTES}},
    {.names = " superbpe ", .steps = {"\\p{N}+", THOUSANDS, BYTES}},
    {.names = " afmoe ",
     .steps =
         {"\\p{N}+", THOUSANDS,
          "[一-鿿㐀-䶿\\x{F900}-\\x{FAFF}぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-"
          "힯ᄀ-"
          "ᇿ]"
          "+",
          WORDS_DEEPSEEK_V3, BYTES}},
    {.names = " minicpm5 ",
     .steps = {"\\p{N}{1,3}", ANY_CASE_CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}+" LLAMA3_END, BYTES},
     .ignore_merges = true},
    {.names = " poro-chat bloom gpt3-finnish ", .steps = {PORO, BYTES}},
    {.names = " viking ", .steps = {PORO, DIGITS, BYTES}},
    {.names = " deepseek-llm ",
     .steps = {"[\r\n]", DEEPSEEK_LETTERS, "\\s?[!-/:-~！-／：-～‘-‟　-。]+", "\\s+$", "[一-龥ࠀ-一가-퟿]+",
               DIGITS, BYTES}},
    {.names = " deepseek-coder ",
     .steps = {"[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[一-龥ࠀ-一가-퟿]+", DIGITS, BYTES}},
    {.names = " deepseek-v3 hunyuan-dense joyai-llm hy_v4 ",
     .steps = {"\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", WORDS_DEEPSEEK_V3, BYTES}},
    {.names = " falcon ", .steps = {PUNCTUATION, BYTES_GPT2, DIGIT_RUNS, "[0-9][0-9][0-9]"}},
    /* written by converters that do not know the model */
    {.names = " default ",
     .steps = {"[\\p{P}\\$\\+<=>\\^~\\|]+",
               "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)", "\\p{N}+",
               "[0-9][0-9][0-9]", BYTES}},
};

const ht_gguf_stages *ht_gguf_stages_at(size_t i) { return i < sizeof rows / sizeof *rows ? &rows[i] : NULL; }

const ht_gguf_stages *ht_gguf_stages_named(ht_bytes name) {
    char padded[64];
    if (name.len + 3 > sizeof padded || memchr(name.data, ' ', name.len) || memchr(name.data, '\0', name.len))
        return NULL;
    padded[0] = ' ';
    memcpy(padded + 1, name.data, name.len);
    padded[name.len + 1] = ' ';
    padded[name.len + 2] = '\0';
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strstr(rows[i].names, padded)) return &rows[i];
    return NULL;
}

static ht_status add_class_split(ht_tokenizer *t, uint8_t classes, ht_behavior behavior, ht_error *err) {
    ht_pre_step *step = ht_add_pre(t, HT_PRE_SPLIT, err);
    if (!step) return HT_ERR_LIMIT;
    step->classes = classes;
    step->behavior = behavior;
    return HT_OK;
}

static ht_status add_pre_step(ht_tokenizer *t, const char *word, ht_error *err) {
    switch (word[0]) {
    case '\1': return add_class_split(t, HT_CLASS_DIGIT, HT_SPLIT_ISOLATED, err);
    case '\2': return add_class_split(t, HT_CLASS_DIGIT, HT_SPLIT_CONTIGUOUS, err);
    case '\3': return add_class_split(t, HT_CLASS_PUNCT_STEP, HT_SPLIT_CONTIGUOUS, err);
    case '\4':
    case '\5': {
        ht_pre_step *step = ht_add_pre(t, HT_PRE_BYTE_LEVEL, err);
        if (!step) return HT_ERR_LIMIT;
        step->scan = word[0] == '\5' ? ht_scan_gpt2 : NULL;
        return HT_OK;
    }
    default: return ht_add_split_regex(t, word, strlen(word), HT_SPLIT_ISOLATED, false, err);
    }
}

ht_status ht_gguf_stages_add(const ht_gguf_stages *row, ht_tokenizer *t, ht_error *err) {
    if (row->nfc) {
        ht_normal_step *step = ht_add_normal(t, HT_NORMAL_FORM, err);
        if (!step) return HT_ERR_LIMIT;
        step->form = HT_NFC;
    }
    ht_status st = HT_OK;
    for (int i = 0; i < HT_GGUF_STAGES && row->steps[i] && !st; i++) st = add_pre_step(t, row->steps[i], err);
    t->ignore_merges = row->ignore_merges;
    t->decode.byte_level = true;
    return st;
}

/* ---- WordPiece and Unigram ---- */

static const char *say(bool value) { return value ? "true" : "false"; }

static void write_stages(const ht_gguf_keys *k, ht_text *out) {
    const char *scheme = k->adds_prefix ? "always" : "never";
    if (k->is_bert) {
        ht_text_printf(out,
                       "{\"normalizer\":{\"type\":\"BertNormalizer\",\"strip_accents\":%s,\"lowercase\":%s},"
                       "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},"
                       "\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true}}",
                       say(k->strip_accents), say(k->lowercase));
        return;
    }
    ht_text_printf(out,
                   "{%s\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[%s{\"type\":\"Metaspace\","
                   "\"replacement\":\"" HT_METASPACE "\",\"prepend_scheme\":\"%s\"}]},"
                   "\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"" HT_METASPACE
                   "\",\"prepend_scheme\":\"%s\"}}",
                   k->charsmap.data ? "\"normalizer\":{\"type\":\"Precompiled\"}," : "",
                   k->collapses ? "{\"type\":\"WhitespaceSplit\"}," : "", scheme, scheme);
}

/* BERT: [CLS] A [SEP] B [SEP], the last two of type 1. XLM-R: <s> A </s></s> B </s>. T5: A </s> B </s>. */
static ht_status add_ends(const ht_gguf_keys *k, ht_tokenizer *t, ht_error *err) {
    const int32_t type = k->is_bert,
                  ids[] = {k->begin,       HT_PAIR_FIRST, k->end, k->is_bert || k->begin < 0 ? -1 : k->end,
                           HT_PAIR_SECOND, k->end};
    ht_status st = HT_OK;
    if (k->begin >= 0) st = ht_append_id(&t->prefix, &t->n_prefix, k->begin, err);
    if (!st && k->end >= 0) st = ht_append_id(&t->suffix, &t->n_suffix, k->end, err);
    for (int i = 0; i < 6 && !st; i++)
        if (ids[i] >= 0 || i == 1 || i == 4) st = ht_add_pair_item(t, ids[i], i > 3 ? type : 0, err);
    return st;
}

ht_status ht_gguf_keys_add(const ht_gguf_keys *k, ht_tokenizer *t, ht_error *err) {
    ht_text json = {0};
    write_stages(k, &json);
    ht_status st =
        json.failed ? ht_fail_memory(err, 0, "stages") : ht_load_stages(t, json.data, json.len, k->charsmap, err);
    ht_text_discard(&json);
    return st ? st : add_ends(k, t, err);
}

/* The number of [PAD<number>], or -1. */
static long filler_number(const char *text) {
    char *end;
    if (strncmp(text, "[PAD", 4) != 0 || text[4] < '0' || text[4] > '9') return -1;
    const long number = strtol(text + 4, &end, 10);
    return strcmp(end, "]") == 0 ? number : -1;
}

bool ht_gguf_is_filler(const char *text, int32_t id) { return filler_number(text) == id; }

bool ht_gguf_is_any_filler(const char *text) { return filler_number(text) >= 0; }
