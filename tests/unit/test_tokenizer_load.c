/* Loading: directories, tokenizer_config.json, GGUF metadata, and files that are refused, by name. */
#include "support/gguf_writer.h"
#include "support/scratch.h"
#include "support/tokenizers.h"
#include "support/warnings.h"
#include "tokenizer/gguf_stages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define VOCAB  "\"vocab\":{\"<s>\":0,\"a\":1,\"b\":2,\"ab\":3,\" \":4}"
#define MERGES "\"merges\":[[\"a\",\"b\"]]"
#define MODEL  "\"model\":{\"type\":\"BPE\"," VOCAB "," MERGES "}"

static void refuse(const char *json, ht_status status, const char *says) {
    ht_tokenizer *t = (ht_tokenizer *)&t;
    assert_fails(status, says, ht_tokenizer_from_json, json, strlen(json), NULL, 0, &t);
    assert_null(t);
}

UNIT_TEST(unknown_things_are_named) {
    const ht_status format = HT_ERR_FORMAT, unsupported = HT_ERR_UNSUPPORTED, limit = HT_ERR_LIMIT;
    refuse("{\"normalizer\":{\"type\":\"Nmt\"}," MODEL "}", unsupported, "`Nmt`");
    refuse("{\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}," MODEL "}", unsupported, "`UnicodeScripts`");
    refuse("{\"post_processor\":{\"type\":\"Later\"}," MODEL "}", unsupported, "`Later`");
    refuse("{\"decoder\":{\"type\":\"CTC\"}," MODEL "}", unsupported, "`CTC`");
    refuse("{\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}," MODEL "}", unsupported,
           "Fuse");
    refuse("{\"model\":{\"type\":\"WordLevel\"," VOCAB "}}", unsupported, "`WordLevel`");
    refuse("{\"model\":{\"type\":\"Unigram\"," VOCAB "}}", format, "no `vocab` of texts with scores");
    refuse("{\"model\":{\"type\":\"WordPiece\",\"vocab\":[[\"a\",-1.5]]}}", format, "no `vocab`");
    refuse("{\"model\":{\"type\":\"WordPiece\",\"max_input_chars_per_word\":-1," VOCAB "}}", format,
           "`max_input_chars_per_word`");
    refuse("{\"model\":{\"type\":\"Unigram\",\"unk_id\":1,\"vocab\":[[\"a\",-1.5]]}}", format, "`unk_id`");
    refuse("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",-1.5,2]]}}", format, "more than a text and a score");
    refuse("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",NaN]]}}", format, "not a finite number");
    refuse("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[1,1]]}}", format, "not a text with a score");
    refuse("{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"!\"}," MODEL "}", format,
           "not valid base64");
    refuse("{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAE=\"}," MODEL "}", format,
           "2 bytes are too few");
    refuse("{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"CAAAAAAA\"}," MODEL "}", format,
           "a trie of 8 bytes in a map of 6");
    refuse("{\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"a\",1],\"sep\":[\"b\",99]}," MODEL "}", format,
           "special token 99");
    refuse("{\"model\":{\"type\":\"BPE\",\"dropout\":0.1," VOCAB "," MERGES "}}", unsupported, "`dropout`");
    refuse("{\"model\":{\"type\":\"BPE\",\"end_of_word_suffix\":\"</w>\"," VOCAB "," MERGES "}}", unsupported,
           "`end_of_word_suffix`");
    refuse("{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"Odd\"}," MODEL "}",
           unsupported, "`Odd`");
    refuse("{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\Bx\"},\"behavior\":\"Isolated\"}," MODEL
           "}",
           unsupported, "\\B");
    refuse("{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a&&b]\"},\"behavior\":\"Isolated\"}," MODEL
           "}",
           unsupported, "&&");
    refuse("{\"model\":{\"type\":\"BPE\"," VOCAB ",\"merges\":[\"a c\"]}}", format, "`c` is not in the vocabulary");
    refuse("{\"model\":{\"type\":\"BPE\"," VOCAB ",\"merges\":[\"abc\"]}}", format, "one space");
    refuse("{\"model\":{\"type\":\"BPE\"," VOCAB ",\"merges\":[[\"a\"]]}}", format, "fewer than two");
    refuse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1}," MERGES "}}", limit, "-1");
    refuse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":99999999}," MERGES "}}", limit, "99999999");
    refuse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":\"x\"}," MERGES "}}", format, "not an integer");
    refuse("{" MODEL ",\"added_tokens\":[{\"content\":\"z\"}]}", format, "`z` has no id");
    refuse("{" MODEL ",\"added_tokens\":[{\"id\":-1,\"content\":\"z\"}]}", limit, "`z` has an id that is out of range");
    refuse("{" MODEL "," MODEL "}", format, "two vocabularies");
    refuse("{" MODEL ",}", format, "line 1, column");
    refuse("[]", format, "line 1, column 1: expected an object");
    refuse("", format, "expected an object (`{`), found the end of the text");
    refuse("{}", format, "no `model`");
}

static void expect(const ht_tokenizer *t, const char *text, unsigned options, size_t n, const int32_t *ids) {
    size_t n_found;
    int32_t *found = tokenizer_ids(t, text, strlen(text), options, &n_found);
    assert_int_equal(n_found, n);
    if (n) assert_memory_equal(found, ids, n * sizeof *ids);
    free(found);
}

/* A listed added token, and the id that tokenizers 0.23 gives it. */
typedef struct listed {
    const char *text;
    int listed, id;
} listed;

/* The library ignores listed ids: gaps are closed, and a text listed twice has one id. */
UNIT_TEST(ids_of_added_tokens) {
#define ABC "\"a\":0,\"b\":1,\"c\":2"
#define GAP "\"a\":0,\"b\":1,\"c\":5,\"d\":9"
    static const struct {
        const char *vocab;
        int n_warnings;
        listed token[6];
    } cases[] = {{ABC, 0, {{"<x>", 3, 3}, {"<y>", 4, 4}}},
                 {ABC, 1, {{"<x>", 3, 3}, {"<y>", 6, 4}, {"<z>", 7, 5}}},
                 {ABC, 1, {{"<x>", 5, 3}, {"<y>", 6, 4}}},
                 {ABC, 1, {{"<x>", 3, 3}, {"<x>", 4, 3}, {"<y>", 5, 4}}},
                 {ABC, 0, {{"<x>", 3, 3}, {"<x>", 3, 3}, {"<y>", 4, 4}}},
                 {ABC, 1, {{"<x>", 3, 3}, {"<y>", 3, 4}}},
                 {ABC, 1, {{"a", 7, 0}, {"<y>", 3, 3}}},
                 {ABC, 1, {{"<x>", 1, 3}, {"<y>", 3, 4}}},
                 {ABC, 1, {{"<x>", 4, 3}, {"<y>", 3, 4}}},
                 {GAP, 1, {{"d", 9, 9}, {"<y>", 10, 4}}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1024];
        int at =
            snprintf(text, sizeof text, "{\"model\":{\"type\":\"BPE\",\"vocab\":{%s},\"merges\":[]},\"added_tokens\":[",
                     cases[i].vocab);
        for (const listed *l = cases[i].token; l->text; l++)
            at += snprintf(text + at, sizeof text - (size_t)at, "%s{\"id\":%d,\"content\":\"%s\",\"special\":%s}",
                           l > cases[i].token ? "," : "", l->listed, l->text, l == cases[i].token ? "true" : "false");
        at += snprintf(text + at, sizeof text - (size_t)at, "]}");
        ht_tokenizer *t;
        warnings_begin();
        assert_works(ht_tokenizer_from_json, text, (size_t)at, NULL, 0, &t);
        const char *warned = warnings_end(cases[i].n_warnings);
        if (cases[i].n_warnings)
            assert_non_null(strstr(warned, "another id than listed, as in the tokenizers library"));
        for (const listed *l = cases[i].token; l->text; l++) {
            expect(t, l->text, HT_ENCODE_PARSE_SPECIAL, 1, &(int32_t){l->id});
            assert_string_equal(ht_tokenizer_piece(t, l->id), l->text);
        }
        assert_true(ht_tokenizer_is_special(t, cases[i].token[0].id)); /* once special, special */
        ht_tokenizer_free(t);
    }
    refuse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"c\":2},\"merges\":[]},\"added_tokens\":[{\"id\":3,"
           "\"content\":\"z\"}]}",
           HT_ERR_FORMAT, "`z` gets the id 2, which is `c` in the vocabulary");
}

/* Llama 3 expects its BOS; without a post-processor it is put before texts unless the files say no. */
UNIT_TEST(bos_of_llama_3) {
    static const char config[] = "{\"model_type\":\"llama\",\"bos_token_id\":5}",
                      nested[] = "{\"text_config\":{\"bos_token_id\":5}}", other[] = "{\"bos_token_id\":3}";
#define ADDED(text) ",\"added_tokens\":[{\"id\":5,\"content\":\"" text "\",\"special\":true}]}"
#define BYTES       ",\"post_processor\":{\"type\":\"ByteLevel\"}"
    static const struct {
        const char *json, *config, *tokenizer_config;
        bool added;
    } cases[] = {{"{" MODEL ADDED("<|begin_of_text|>"), config, "{}", true},
                 {"{" MODEL ADDED("<|begin_of_text|>"), nested, "{\"add_bos_token\":true}", true},
                 {"{" MODEL ADDED("<|begin_of_text|>"), config, "{\"add_bos_token\":false}", false},
                 {"{" MODEL BYTES ADDED("<|begin_of_text|>"), config, "{}", false},
                 {"{" MODEL ADDED("<|begin_of_text|>"), other, "{}", false},
                 {"{" MODEL ADDED("<|begin_of_text|>"), "{}", "{}", false},
                 {"{" MODEL ADDED("<s>"), config, "{}", false}};
    scratch_make();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scratch_write("tokenizer.json", cases[i].json, strlen(cases[i].json));
        scratch_write("config.json", cases[i].config, strlen(cases[i].config));
        scratch_write("tokenizer_config.json", cases[i].tokenizer_config, strlen(cases[i].tokenizer_config));
        ht_tokenizer *t = tokenizer_load(scratch_directory());
        if (cases[i].added)
            expect(t, "ab", HT_ENCODE_ADD_SPECIAL, 2, (int32_t[]){5, 3});
        else
            expect(t, "ab", HT_ENCODE_ADD_SPECIAL, 1, (int32_t[]){3});
        assert_int_equal(ht_tokenizer_bos(t), cases[i].added ? 5 : -1);
        ht_tokenizer_free(t);
    }
    scratch_remove();
}

static void refuse_file(const char *path, ht_status status, const char *says) {
    ht_tokenizer *t = (ht_tokenizer *)&t;
    assert_fails(status, says, ht_tokenizer_load, path, &t);
    assert_null(t);
}

UNIT_TEST(reads_the_config_beside) {
    static const char json[] = "{" MODEL ",\"added_tokens\":[{\"id\":0,\"content\":\"<s>\",\"special\":true,"
                               "\"normalized\":false}]}";
    static const char config[] =
        "{\"bos_token\":{\"content\":\"<s>\"},\"eos_token\":\"</s>\",\"add_bos_token\":true,\"add_eos_token\":true,"
        "\"model_max_length\":1000000000000000019884624838656,"
        "\"added_tokens_decoder\":{\"5\":{\"content\":\"</s>\",\"special\":true,\"normalized\":false}},"
        "\"chat_template\":[{\"name\":\"rag\",\"template\":\"R\"},{\"name\":\"default\",\"template\":\"D\"},"
        "{\"name\":\"tool_use\",\"template\":\"T\"}]}";
    const unsigned both = HT_ENCODE_ADD_SPECIAL | HT_ENCODE_PARSE_SPECIAL;
    scratch_make();
    refuse_file(scratch_directory(), HT_ERR_IO, "holds no tokenizer.json, no vocab.txt and no .gguf file");
    scratch_write("tokenizer.json", json, sizeof json - 1);
    ht_tokenizer *t = tokenizer_load(scratch_directory());
    expect(t, "ab", both, 1, (int32_t[]){3});
    ht_tokenizer_free(t);
    scratch_write("tokenizer_config.json", config, sizeof config - 1);
    t = tokenizer_load(scratch_directory());
    assert_int_equal(ht_tokenizer_bos(t), 0);
    assert_int_equal(ht_tokenizer_eos(t), 5);
    assert_int_equal(ht_tokenizer_vocab_size(t), 6);
    assert_true(ht_tokenizer_is_special(t, 5));
    assert_string_equal(ht_tokenizer_chat_template(t), "D");
    assert_string_equal(ht_tokenizer_tool_template(t), "T");
    expect(t, "ab", both, 1, (int32_t[]){3}); /* without a post-processor nothing is added */
    expect(t, "<s>ab</s>", both, 3, (int32_t[]){0, 3, 5});
    ht_tokenizer_free(t);
    scratch_write("chat_template.jinja", "J", 1);
    assert_int_equal(mkdir(scratch_path("additional_chat_templates"), 0777), 0);
    scratch_write("additional_chat_templates/tool_use.jinja", "U", 1);
    t = tokenizer_load(scratch_path("tokenizer.json"));
    assert_string_equal(ht_tokenizer_chat_template(t), "J");
    assert_string_equal(ht_tokenizer_tool_template(t), "U");
    ht_tokenizer_free(t);
    static const char wrong[] = "{\"added_tokens_decoder\":{\"0\":{\"content\":\"<s>\",\"special\":3}}}";
    scratch_write("tokenizer_config.json", wrong, sizeof wrong - 1);
    refuse_file(scratch_directory(), HT_ERR_FORMAT, "special");
    refuse_file(scratch_path("absent.json"), HT_ERR_IO, "");
    scratch_write("note.txt", "hello", 5);
    refuse_file(scratch_path("note.txt"), HT_ERR_FORMAT, "");
    scratch_remove();
}

/* As in transformers since 5 for all tokenizer classes, and before for all but Llama's and Gemma's. */
UNIT_TEST(the_post_processor_decides_what_is_added) {
    static const char *const flags[] = {"", ",\"add_eos_token\":false", ",\"add_eos_token\":true",
                                        ",\"add_bos_token\":false", ",\"add_bos_token\":true,\"add_eos_token\":true"};
#define BOS_TOKEN "{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},"
#define EOS_TOKEN ",{\"SpecialToken\":{\"id\":\"b\",\"type_id\":0}}"
    static const struct {
        const char *before, *after;
        size_t n;
        int32_t ids[3];
    } cases[] = {
        {"", "", 1, {3}}, {BOS_TOKEN, "", 2, {0, 3}}, {"", EOS_TOKEN, 2, {3, 2}}, {BOS_TOKEN, EOS_TOKEN, 3, {0, 3, 2}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t k = 0; k < sizeof flags / sizeof *flags; k++) {
            char json[1024], config[256];
            int n = snprintf(json, sizeof json,
                             "{" MODEL ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[%s"
                             "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}%s],\"special_tokens\":{"
                             "\"<s>\":{\"id\":\"<s>\",\"ids\":[0]},\"b\":{\"id\":\"b\",\"ids\":[2]}}}}",
                             cases[i].before, cases[i].after);
            int n_config = snprintf(config, sizeof config, "{\"bos_token\":\"<s>\",\"eos_token\":\"b\"%s}", flags[k]);
            ht_tokenizer *t;
            assert_works(ht_tokenizer_from_json, json, (size_t)n, config, (size_t)n_config, &t);
            expect(t, "ab", HT_ENCODE_ADD_SPECIAL, cases[i].n, cases[i].ids);
            ht_tokenizer_free(t);
        }
}

/* What a download leaves that was not finished or not converted. */
UNIT_TEST(what_stands_for_the_file_is_named) {
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n";
    static const char json[] = "{" MODEL "}";
    char says[64];
    scratch_make();
    refuse_file(scratch_directory(), HT_ERR_IO, "holds no tokenizer.json, no vocab.txt and no .gguf file");
    scratch_write("tiktoken.model", "IQ== 0\n", 7);
    refuse_file(scratch_directory(), HT_ERR_IO, "its tiktoken.model lacks the pattern that splits texts; use a GGUF");
    scratch_write("sentencepiece.bpe.model", "", 0); /* XLM-R's */
    refuse_file(scratch_directory(), HT_ERR_IO, "and its sentencepiece.bpe.model is not read; transformers makes");
    remove(scratch_path("sentencepiece.bpe.model"));
    scratch_write("tekken.json", "{}", 2);
    refuse_file(scratch_directory(), HT_ERR_IO, "holds no tokenizer.json, and its tekken.json is not read");
    scratch_write("tokenizer.model", "\n\4", 2);
    refuse_file(scratch_directory(), HT_ERR_IO, "holds no tokenizer.json, and its tokenizer.model is not read");
    scratch_write("tokenizer.json", pointer, sizeof pointer - 1);
    refuse_file(scratch_directory(), HT_ERR_FORMAT, "tokenizer.json: is a Git LFS pointer");
    scratch_write("tokenizer.json", json, sizeof json - 1);
    static const char *const beside[] = {"tokenizer_config.json", "chat_template.json", "chat_template.jinja"};
    for (size_t i = 0; i < 3; i++) {
        scratch_write(beside[i], pointer, sizeof pointer - 1);
        snprintf(says, sizeof says, "%s: is a Git LFS pointer", beside[i]);
        refuse_file(scratch_directory(), HT_ERR_FORMAT, says);
        scratch_write(beside[i], "{}", 2);
    }
    scratch_remove();
}

/* The longest token bounds the time that a character of a text takes. */
UNIT_TEST(longest_token_of_a_trie) {
    for (int more = 0; more < 2; more++) {
        ht_text json = {0};
        ht_tokenizer *t;
        ht_text_append_str(&json, "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"");
        for (int i = 0; i < HT_MAX_PIECE + more; i++) ht_text_append_str(&json, "a");
        ht_text_append_str(&json, "\",-1]]}}");
        if (more)
            refuse(json.data, HT_ERR_LIMIT, "token 0 has 4097 bytes; at most 4096");
        else {
            assert_works(ht_tokenizer_from_json, json.data, json.len, NULL, 0, &t);
            ht_tokenizer_free(t);
        }
        ht_text_discard(&json);
    }
}

#define WORDS "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello\nworld\n##s\nHello\n\xC3\xA9\ne\n"

/* BERT's files without a tokenizer.json. */
UNIT_TEST(words_of_a_vocab_txt) {
    static const char words[] = WORDS, windows[] = "[UNK]\r\n[CLS]\r\n[SEP]\r\nhello";
    static const struct {
        const char *config, *text;
        size_t n;
        int32_t ids[6];
    } cases[] = {
        {NULL, "Hello worlds \xC3\xA9", 6, {2, 5, 6, 7, 10, 3}},
        {"{}", "hello[MASK]", 4, {2, 5, 4, 3}},
        {"{\"do_lower_case\":false}", "Hello \xC3\xA9", 4, {2, 8, 9, 3}},
        {"{\"strip_accents\":false,\"tokenizer_class\":\"BertTokenizerFast\"}", "Hello \xC3\xA9", 4, {2, 5, 9, 3}},
        {"{\"unk_token\":{\"content\":\"e\"}}", "x", 3, {2, 10, 3}}};
    scratch_make();
    scratch_write("vocab.txt", words, sizeof words - 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].config) scratch_write("tokenizer_config.json", cases[i].config, strlen(cases[i].config));
        ht_tokenizer *t = tokenizer_load(scratch_directory());
        expect(t, cases[i].text, HT_ENCODE_ADD_SPECIAL | HT_ENCODE_PARSE_SPECIAL, cases[i].n, cases[i].ids);
        assert_string_equal(ht_tokenizer_kind(t), "WordPiece");
        ht_tokenizer_free(t);
    }
    static const char other[] = "{\"tokenizer_class\":\"MPNetTokenizer\"}", named[] = "{\"cls_token\":\"<s>\"}";
    scratch_write("tokenizer_config.json", other, sizeof other - 1);
    refuse_file(scratch_directory(), HT_ERR_UNSUPPORTED, "vocab.txt: the tokenizer_class `MPNetTokenizer`");
    scratch_write("tokenizer_config.json", named, sizeof named - 1);
    refuse_file(scratch_path("vocab.txt"), HT_ERR_FORMAT, "lacks `<s>` (cls_token)");
    scratch_write("tokenizer_config.json", "{}", 2);
    scratch_write("vocab.txt", windows, sizeof windows - 1);
    ht_tokenizer *t = tokenizer_load(scratch_path("vocab.txt"));
    expect(t, "hello", 0, 1, (int32_t[]){3});
    ht_tokenizer_free(t);
    scratch_write("vocab.txt", "[UNK]\n\xFF", 7);
    refuse_file(scratch_directory(), HT_ERR_FORMAT, "vocab.txt: is not valid UTF-8");
    scratch_remove();
}

static ht_status parse_gguf(gguf_writer w, ht_tokenizer **t, ht_error *err) {
    size_t size;
    unsigned char *file = gguf_finish(&w, &size);
    ht_gguf *g;
    if (ht_gguf_parse(file, size, "test.gguf", &g, err)) fail_msg("%s", err->message);
    ht_status st = ht_tokenizer_from_gguf(g, "test.gguf", t, err);
    ht_gguf_free(g);
    free(file); /* nothing of the file may be referred to afterwards */
    return st;
}

static ht_tokenizer *load_gguf(gguf_writer w) {
    ht_tokenizer *t;
    assert_works(parse_gguf, w, &t);
    return t;
}

static void refuse_gguf(gguf_writer w, ht_status status, const char *says) {
    ht_tokenizer *t = (ht_tokenizer *)&t;
    ht_error err = {0};
    assert_int_equal(parse_gguf(w, &t, &err), status);
    assert_null(t);
    assert_non_null(strstr(err.message, "test.gguf: "));
    assert_non_null(strstr(err.message, says));
}

#define SPACE "\xE2\x96\x81"

static gguf_writer sentencepiece(void) {
    static const char *const tokens[] = {"<unk>",   "<s>", "</s>",     "<0x21>", SPACE, "a",      "b",
                                         SPACE "a", "ab",  SPACE "ab", "  ",     "bb",  SPACE "b"};
    static const int32_t types[] = {2, 3, 3, 6, 1, 1, 1, 1, 1, 1, 4, 1, 1};
    static const float scores[] = {0, 0, 0, 0, -9, -9, -9, -3, -2, -4, -1000, -6, -5};
    gguf_writer w = gguf_writer_new();
    gguf_put_str(&w, "tokenizer.ggml.model", "llama");
    gguf_put_strs(&w, "tokenizer.ggml.tokens", tokens, 13);
    gguf_put_i32s(&w, "tokenizer.ggml.token_type", types, 13);
    gguf_put_f32s(&w, "tokenizer.ggml.scores", scores, 13);
    return w;
}

UNIT_TEST(merges_by_score) {
    const unsigned none = 0, parse = HT_ENCODE_PARSE_SPECIAL, both = HT_ENCODE_ADD_SPECIAL | HT_ENCODE_PARSE_SPECIAL;
    ht_tokenizer *t = load_gguf(sentencepiece());
    assert_string_equal(ht_tokenizer_kind(t), "SentencePiece BPE");
    assert_string_equal(ht_tokenizer_piece(t, 10), SPACE SPACE);
    expect(t, "ab", both, 2, (int32_t[]){1, 9});            /* a+b scores -2, before space+a at -3; then space+ab */
    expect(t, "b bb", none, 3, (int32_t[]){12, 12, 6});     /* space+b at -5 before b+b at -6 */
    expect(t, "a!\xC3\xA9", none, 3, (int32_t[]){7, 3, 0}); /* a byte token; the unknown token for what has none */
    expect(t, "<s>a", parse, 2, (int32_t[]){1, 7});
    char *text;
    size_t n;
    assert_works(ht_tokenizer_decode, t, (int32_t[]){1, 9, 4, 3}, 4, true, &text, &n);
    assert_string_equal(text, "ab !");
    free(text);
    ht_tokenizer_free(t);
    gguf_writer w = sentencepiece();
    gguf_put_bool(&w, "tokenizer.ggml.add_space_prefix", false);
    gguf_put_bool(&w, "tokenizer.ggml.add_bos_token", false);
    gguf_put_bool(&w, "tokenizer.ggml.add_eos_token", true);
    t = load_gguf(w);
    expect(t, "ab", both, 2, (int32_t[]){8, 2});
    expect(t, "   a", none, 2, (int32_t[]){10, 7}); /* user-defined tokens merge first */
    ht_tokenizer_free(t);
}

/* Phi-3's special tokens take the spaces after them, except <unk>, <s> and <|endoftext|>. */
UNIT_TEST(special_tokens_of_phi3) {
    for (int phi3 = 0; phi3 < 2; phi3++) {
        gguf_writer w = sentencepiece();
        gguf_put_str(&w, "general.architecture", phi3 ? "phi3" : "llama");
        ht_tokenizer *t = load_gguf(w);
        const int32_t taken[] = {2, 9}, kept[] = {2, 10, 8}, begin[] = {1, 10, 8};
        if (phi3)
            expect(t, "</s> ab", HT_ENCODE_PARSE_SPECIAL, 2, taken);
        else
            expect(t, "</s> ab", HT_ENCODE_PARSE_SPECIAL, 3, kept);
        expect(t, "<s> ab", HT_ENCODE_PARSE_SPECIAL, 3, begin);
        ht_tokenizer_free(t);
    }
}

/* BERT's vocabulary in GGUF: words begin with U+2581. */
static gguf_writer bert(void) {
    static const char *const tokens[] = {"[PAD]",       "[UNK]",       "[CLS]", "[SEP]",       "[unused0]",
                                         SPACE "hello", SPACE "world", "s",     SPACE "Hello", SPACE "\xC3\xA9"};
    static const int32_t types[] = {3, 3, 3, 3, 1, 1, 1, 1, 1, 1};
    gguf_writer w = gguf_writer_new();
    gguf_put_str(&w, "tokenizer.ggml.model", "bert");
    gguf_put_strs(&w, "tokenizer.ggml.tokens", tokens, 10);
    gguf_put_i32s(&w, "tokenizer.ggml.token_type", types, 10);
    gguf_put_u32(&w, "tokenizer.ggml.unknown_token_id", 1);
    gguf_put_u32(&w, "tokenizer.ggml.cls_token_id", 2);
    gguf_put_u32(&w, "tokenizer.ggml.seperator_token_id", 3);
    return w;
}

UNIT_TEST(words_of_gguf) {
    const unsigned both = HT_ENCODE_ADD_SPECIAL | HT_ENCODE_PARSE_SPECIAL;
    ht_tokenizer *t = load_gguf(bert());
    expect(t, "HELLO worlds!", both, 6, (int32_t[]){2, 5, 6, 7, 1, 3});
    expect(t, "[CLS] hello", HT_ENCODE_PARSE_SPECIAL, 2, (int32_t[]){2, 5});
    assert_string_equal(ht_tokenizer_piece(t, 4), "[unused0]");
    assert_string_equal(ht_tokenizer_piece(t, 7), "##s");
    assert_int_equal(ht_tokenizer_bos(t), 2);
    char *text;
    size_t n;
    assert_works(ht_tokenizer_decode, t, (int32_t[]){2, 5, 6, 7, 3}, 5, true, &text, &n);
    assert_string_equal(text, "hello worlds");
    free(text);
    ht_tokenizer_free(t);
    gguf_writer w = bert();
    gguf_put_bool(&w, "tokenizer.ggml.normalizer.lowercase", false);
    gguf_put_bool(&w, "tokenizer.ggml.add_sep_token", false);
    t = load_gguf(w);
    expect(t, "Hello \xC3\xA9", both, 3, (int32_t[]){2, 8, 9});
    ht_tokenizer_free(t);
}

/* A fused run of unknown characters, fillers that count for nothing, and the tokens around texts. */
UNIT_TEST(unigrams_of_gguf) {
    static const char *const tokens[] = {"<pad>", "</s>", "<unk>", SPACE, "a", "b", SPACE "a", "ab", "[PAD7]"};
    static const int32_t types[] = {3, 3, 2, 1, 1, 1, 1, 1, 5};
    static const float scores[] = {0, 0, 0, -3, -2, -2, -4, -3.5F, -10000};
    gguf_writer w = gguf_writer_new();
    gguf_put_str(&w, "tokenizer.ggml.model", "t5");
    gguf_put_strs(&w, "tokenizer.ggml.tokens", tokens, 9);
    gguf_put_i32s(&w, "tokenizer.ggml.token_type", types, 9);
    gguf_put_f32s(&w, "tokenizer.ggml.scores", scores, 9);
    ht_tokenizer *t = load_gguf(w);
    assert_string_equal(ht_tokenizer_kind(t), "Unigram");
    assert_true(t->pieces.least_score == -4);
    expect(t, "ab", HT_ENCODE_ADD_SPECIAL, 3, (int32_t[]){6, 5, 1}); /* -4 - 2 before -3 - 3.5 */
    expect(t, "xyz  a", 0, 3, (int32_t[]){3, 2, 6});
    ht_tokenizer_free(t);
    w = gguf_writer_new();
    gguf_put_str(&w, "tokenizer.ggml.model", "t5");
    gguf_put_strs(&w, "tokenizer.ggml.tokens", tokens, 9);
    refuse_gguf(w, HT_ERR_FORMAT, "the file has no tokenizer.ggml.scores");
}

#define SPACED_A                                                                                                       \
    "\xC4\xA0"                                                                                                         \
    "a" /* one token in two literals: \xA0a would be one escape */

static gguf_writer byte_level(const char *pre) {
    static const char *const tokens[] = {"<|end|>", "a", "b", "\xC4\xA0", "ab", SPACED_A, "1"};
    static const char *const merges[] = {"a b", "\xC4\xA0 a"};
    static const int32_t types[] = {3, 1, 1, 1, 1, 1, 1};
    gguf_writer w = gguf_writer_new();
    gguf_put_str(&w, "tokenizer.ggml.model", "gpt2");
    if (pre) gguf_put_str(&w, "tokenizer.ggml.pre", pre);
    gguf_put_strs(&w, "tokenizer.ggml.tokens", tokens, 7);
    gguf_put_i32s(&w, "tokenizer.ggml.token_type", types, 7);
    gguf_put_strs(&w, "tokenizer.ggml.merges", merges, 2);
    return w;
}

UNIT_TEST(pre_tokenizers_by_name) {
    const ht_gguf_stages *row;
    int n = 0;
    for (size_t i = 0; (row = ht_gguf_stages_at(i)); i++) {
        for (const char *at = row->names + 1; *at; at += strcspn(at, " ") + 1, n++) {
            char name[64];
            snprintf(name, sizeof name, "%.*s", (int)strcspn(at, " "), at);
            ht_tokenizer *t = load_gguf(byte_level(name));
            expect(t, "ab ab<|end|>", HT_ENCODE_PARSE_SPECIAL, 4, (int32_t[]){4, 3, 4, 0});
            ht_tokenizer_free(t);
        }
    }
    assert_true(n > 70);
    refuse_gguf(byte_level("qwen3000"), HT_ERR_UNSUPPORTED, "`qwen3000`");
    refuse_gguf(byte_level(" "), HT_ERR_UNSUPPORTED, "");
}

/* Unused tokens, and fillers of any type, stand for no text, also where special tokens are shown. */
UNIT_TEST(unused_tokens_are_no_text) {
    static const char *const tokens[] = {"a", "[PAD1]", "[PAD2]", "ghost", "[PAD3]", "[PAD5]", "[PAD6]"};
    static const int32_t types[] = {1, 5, 4, 5, 1, 1, 3};
    static const float scores[7] = {0};
    for (int model = 0; model < 2; model++) {
        gguf_writer w = gguf_writer_new();
        ht_tokenizer *t;
        char *text;
        size_t n;
        gguf_put_str(&w, "tokenizer.ggml.model", model ? "llama" : "gpt2");
        if (!model) gguf_put_str(&w, "tokenizer.ggml.pre", "qwen2");
        gguf_put_strs(&w, "tokenizer.ggml.tokens", tokens, 7);
        gguf_put_i32s(&w, "tokenizer.ggml.token_type", types, 7);
        if (model) gguf_put_f32s(&w, "tokenizer.ggml.scores", scores, 7);
        if (!model) gguf_put_strs(&w, "tokenizer.ggml.merges", tokens, 0);
        gguf_put_bool(&w, "tokenizer.ggml.add_space_prefix", false);
        t = load_gguf(w);
        assert_works(ht_tokenizer_decode, t, (int32_t[]){0, 1, 2, 3, 5, 6, 4, 0}, 8, false, &text, &n);
        assert_string_equal(text, "a[PAD3]a");
        ht_text_free(text);
        for (int32_t id = 0; id < 7; id++) {
            assert_works(ht_tokenizer_token_bytes, t, id, &text, &n);
            assert_int_equal(n > 0, id == 0 || id == 4);
            ht_text_free(text);
        }
        ht_tokenizer_free(t);
    }
}

UNIT_TEST(broken_metadata_is_refused) {
    refuse_gguf(gguf_writer_new(), HT_ERR_FORMAT, "tokenizer.ggml.model is missing");
    gguf_writer w = gguf_writer_new();
    gguf_put_str(&w, "tokenizer.ggml.model", "rwkv");
    refuse_gguf(w, HT_ERR_UNSUPPORTED, "`rwkv`");
    w = gguf_writer_new();
    gguf_put_str(&w, "tokenizer.ggml.model", "gpt2");
    refuse_gguf(w, HT_ERR_FORMAT, "tokenizer.ggml.tokens");
    w = byte_level("gpt-2");
    gguf_put_str(&w, "tokenizer.ggml.eos_token_id", "x");
    refuse_gguf(w, HT_ERR_FORMAT, "eos_token_id");
    w = sentencepiece();
    gguf_put_i32s(&w, "tokenizer.ggml.merges", (int32_t[]){1}, 1);
    refuse_gguf(w, HT_ERR_FORMAT, "");
    w = gguf_writer_new();
    gguf_put_str(&w, "tokenizer.ggml.model", "llama");
    gguf_put_strs(&w, "tokenizer.ggml.tokens", (const char *const[]){"a", "b"}, 2);
    gguf_put_f32s(&w, "tokenizer.ggml.scores", (float[]){1}, 1);
    refuse_gguf(w, HT_ERR_FORMAT, "1 items, but there are 2 tokens");
    w = gguf_writer_new();
    gguf_put_str(&w, "tokenizer.ggml.model", "gpt2");
    gguf_put_strs(&w, "tokenizer.ggml.tokens", (const char *const[]){"a", "\xFF"}, 2);
    refuse_gguf(w, HT_ERR_FORMAT, "UTF-8");
}

/* As if the file did not name them, which no prompt needs. */
UNIT_TEST(special_ids_outside_the_vocabulary) {
    static const char *const keys[] = {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
                                       "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.padding_token_id"};
    static const int64_t ids[] = {7, 13, 0xFFFFFFFF, -1};
    const unsigned both = HT_ENCODE_ADD_SPECIAL | HT_ENCODE_PARSE_SPECIAL;
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        for (int sp = 0; sp < 2; sp++) {
            if (sp && ids[i] == 7) continue;
            gguf_writer w = sp ? sentencepiece() : byte_level("gpt-2");
            for (int k = 0; k < 4; k++) {
                if (ids[i] < 0)
                    gguf_put_i32(&w, keys[k], (int32_t)ids[i]);
                else
                    gguf_put_u32(&w, keys[k], (uint32_t)ids[i]);
            }
            gguf_put_bool(&w, "tokenizer.ggml.add_bos_token", true);
            gguf_put_bool(&w, "tokenizer.ggml.add_eos_token", true);
            warnings_begin();
            ht_tokenizer *t = load_gguf(w);
            const char *warnings = warnings_end(4);
            for (int k = 0; k < 4; k++) assert_non_null(strstr(warnings, keys[k]));
            assert_non_null(strstr(warnings, "test.gguf: `tokenizer.ggml.bos_token_id` is "));
            assert_int_equal(ht_tokenizer_bos(t), sp ? 1 : -1);
            assert_int_equal(ht_tokenizer_eos(t), sp ? 2 : -1);
            if (sp)
                expect(t, "ab", both, 3, (int32_t[]){1, 9, 2});
            else
                expect(t, "ab<|end|>", both, 2, (int32_t[]){4, 0});
            ht_tokenizer_free(t);
        }
}

/* Every truncation of a file and every changed byte gives a tokenizer that works or an error. */
UNIT_TEST(damaged_files_are_survived) {
    static const char json[] =
        "{\"added_tokens\":[{\"id\":0,\"content\":\"<s>\",\"special\":true}],\"normalizer\":{\"type\":\"NFC\"},"
        "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"
        "\"[ab]+|c\"},\"behavior\":\"Isolated\",\"invert\":false}]},\"decoder\":{\"type\":\"ByteLevel\"}," MODEL "}";
    size_t n = sizeof json - 1;
    char copy[sizeof json];
    ht_error err = {0};
    for (size_t i = 0; i < n * 9; i++) {
        size_t length = i < n ? i : n;
        memcpy(copy, json, n);
        if (i >= n) copy[(i - n) / 8] = (char)(copy[(i - n) / 8] ^ 1 << (i % 8));
        ht_tokenizer *t;
        if (ht_tokenizer_from_json(copy, length, NULL, 0, &t, &err)) {
            assert_null(t);
            assert_true(err.message[0] != '\0');
            continue;
        }
        int32_t *ids;
        size_t n_ids;
        if (!ht_tokenizer_encode(t, "<s>ab abc", 9, HT_ENCODE_ADD_SPECIAL | HT_ENCODE_PARSE_SPECIAL, &ids, &n_ids,
                                 &err))
            free(ids);
        ht_tokenizer_free(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_things_are_named),
        cmocka_unit_test(ids_of_added_tokens),
        cmocka_unit_test(bos_of_llama_3),
        cmocka_unit_test(reads_the_config_beside),
        cmocka_unit_test(the_post_processor_decides_what_is_added),
        cmocka_unit_test(what_stands_for_the_file_is_named),
        cmocka_unit_test(merges_by_score),
        cmocka_unit_test(words_of_a_vocab_txt),
        cmocka_unit_test(longest_token_of_a_trie),
        cmocka_unit_test(words_of_gguf),
        cmocka_unit_test(unigrams_of_gguf),
        cmocka_unit_test(special_tokens_of_phi3),
        cmocka_unit_test(pre_tokenizers_by_name),
        cmocka_unit_test(unused_tokens_are_no_text),
        cmocka_unit_test(broken_metadata_is_refused),
        cmocka_unit_test(special_ids_outside_the_vocabulary),
        cmocka_unit_test(damaged_files_are_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
