/* Training data: whatever a file holds, its lines are samples or errors, and its batches are made of the samples alone. The
 * model has a tokenizer and a chat template, no weights: bit 0 of the first byte says which template, the next ones the options;
 * the rest is the file. */
#include "files.h"
#include "models/model.h"
#include "tokens.h"
#include "train/batches.h"

static const char tokenizer[] =
    "{\"added_tokens\":[{\"id\":7,\"content\":\"<|end|>\",\"special\":true,\"normalized\":false},"
    "{\"id\":8,\"content\":\"<|start|>\",\"special\":true,\"normalized\":false}],"
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"merges\":[\"a b\"],"
    "\"vocab\":{\"<unk>\":0,\"a\":1,\"b\":2,\"ab\":3,\" \":4,\"c\":5,\"\\n\":6}}}";
static const char config[] = "{\"eos_token\":\"<|end|>\"}";
static const char *const templates[] = {
    "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}",
    /* Thoughts that earlier answers are written without, and a prompt that opens them. */
    "{% for m in messages %}<|start|>{{ m.role }}{% if loop.last and m.reasoning_content %}{{ m.reasoning_content }}{% "
    "endif %}"
    "{{ m.content | trim }}{% for c in m.tool_calls %}{{ c | tojson }}{% endfor %}{% if m.role != 'tool' %}<|end|>{% "
    "endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|start|>assistant b{% endif %}"};

static int32_t stop_ids[] = {7};
static ht_model model = {.vocab = 9, .context = 64, .stop_ids = stop_ids, .n_stop_ids = 1, .refs = 1};
static ht_chat_template *formats[2];

static void make_model(void) {
    ht_error err = {0};
    check(!ht_tokenizer_from_json(tokenizer, strlen(tokenizer), config, strlen(config), &model.tokenizer, &err));
    for (int i = 0; i < 2; i++)
        check(!ht_chat_template_parse(templates[i], strlen(templates[i]), "t", &formats[i], &err));
}

static bool add_length(const char *text, size_t n, bool learned, void *user) {
    (void)text, (void)learned;
    *(size_t *)user += n;
    return true;
}

static void check_sample(const ht_data *d, int64_t i) {
    const ht_sample *s = ht_data_sample(d, i);
    ht_error err = {0};
    size_t shown = 0, n;
    char *text;
    check(s->n >= 2 && !s->learned[0]);
    int32_t n_learned = 0;
    for (int32_t t = 0; t < s->n; t++) {
        check(s->id[t] >= 0 && s->id[t] < model.vocab);
        n_learned += s->learned[t];
    }
    check(n_learned == s->n_learned && n_learned > 0);
    check(!ht_sample_pieces(&model, s, add_length, &shown, &err));
    if (s->begin) {
        check(s->n_texts >= 2 && s->begin[0] == 0 && s->begin[s->n_texts] == s->n);
        for (int32_t t = 0; t < s->n_texts; t++) {
            check(s->begin[t] < s->begin[t + 1]);
            shown--; /* its newline */
            check(!ht_tokenizer_decode(model.tokenizer, s->id + s->begin[t], (size_t)(s->begin[t + 1] - s->begin[t]),
                                       false, &text, &n, &err) &&
                  n <= shown);
            ht_text_free(text);
            shown -= n;
        }
        check(shown == 0);
        return;
    }
    check(!ht_tokenizer_decode(model.tokenizer, s->id, (size_t)s->n, false, &text, &n, &err) && n == shown);
    ht_text_free(text);
}

static void check_batches(const ht_data *d, unsigned options) {
    ht_batches *b;
    ht_error err = {0};
    const ht_batches_options o = {
        .batch = 2, .pack = options & 1, .shuffle = options >> 1 & 1, .temperature = 1, .seed = options};
    check(!ht_batches_new(d, &o, &b, &err));
    int64_t n_seq = 0;
    for (int64_t step = 0; step < ht_batches_per_epoch(b); step++) {
        ht_train_batch batch;
        check(!ht_batches_get(b, step, &batch, &err) && batch.n_seq > 0);
        check(batch.seq_start[0] == 0 && batch.seq_start[batch.n_seq] == batch.n_tok);
        for (int32_t s = 0; s < batch.n_seq; s++)
            for (int32_t i = batch.seq_start[s]; i < batch.seq_start[s + 1]; i++)
                check(batch.pos[i] == i - batch.seq_start[s] && batch.target[i] < model.vocab);
        n_seq += batch.match ? batch.n_learned : batch.n_seq;
    }
    if (o.pack || o.shuffle) check(n_seq == ht_data_length(d));
    ht_batches_free(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size || size > FILES_DATA_MAX) return 0;
    if (!model.tokenizer) make_model();
    const unsigned options = data[0];
    model.chat = (ht_chat_setup){.name = "template", .template = formats[options & 1]};
    files_begin();
    files_write("train.jsonl", data + 1, size - 1);
    char path[128];
    snprintf(path, sizeof path, "%s/train.jsonl", files_directory);
    ht_data *d;
    ht_error err = {0};
    const ht_data_options o = {.method = options >> 7 ? HT_METHOD_EMBED : HT_METHOD_SFT,
                               .mask = (ht_mask)((options >> 1 & 3) % 3),
                               .long_samples = (ht_long_samples)((options >> 3 & 3) % 3),
                               .max_length = options >> 5 & 1 ? 6 : 0,
                               .skip_bad = options >> 6 & 1,
                               .time = 1};
    const ht_status status = ht_data_open(&model, path, &o, &d, &err);
    if (refused(status, &err, d)) return 0;
    for (int64_t i = 0; i < ht_data_length(d); i++) check_sample(d, i);
    check_batches(d, options >> 4);
    ht_data_free(d);
    return 0;
}
