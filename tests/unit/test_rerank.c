/* Reranking: scores against logits and hidden states that other calls give for the same prompt, written here by hand; order,
 * failures, truncation, and what is refused. */
#include "chat/conversation.h"
#include "models/model.h"
#include "support/checkpoints.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"

#include <hearth/hearth.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const words[] = {"yes", "no", NULL};
/* As Qwen's, but short; `first` of no message is undefined. */
static const char roles[] =
    "{{ '<|im_start|>' }}{{ messages | selectattr('role', 'eq', 'system') | map(attribute='content') | first | "
    "default('find') }}: {{ messages | selectattr('role', 'eq', 'query') | map(attribute='content') | first }}\n"
    "{{ messages | selectattr('role', 'eq', 'document') | map(attribute='content') | first }}<|im_end|>";
static const char named[] = "<|im_start|><Instruct>: \"find\"\n{query}\n{document}<|im_end|>\n\n";

enum { DOCUMENTS = 4 };
static const char *const documents[DOCUMENTS] = {"a tin", "the inn on the hill", "", "a tin"};

/* The ids of a prompt: text of the template, in which special tokens are recognised, and text of the call, in turns. */
static int32_t *encode(const ht_model *m, const char *const *parts, size_t n_parts, size_t *n) {
    ht_text text = {0};
    ht_text_run runs[8];
    int32_t *ids;
    for (size_t i = 0; i < n_parts; i++) {
        ht_text_append_str(&text, parts[i]);
        runs[i] = (ht_text_run){text.len, i % 2};
    }
    const ht_chat_text written = {.text = text.data, .n = text.len, .runs = runs, .n_runs = n_parts};
    assert_works(ht_chat_encode_text, m->tokenizer, &written, 0, &ids, n);
    ht_text_discard(&text);
    return ids;
}

static ht_ranking *rank(ht_model *m, const char *query, const char *const *texts, size_t n,
                        const ht_rerank_options *o) {
    ht_ranking *r;
    assert_works(ht_rerank, m, query, texts, n, o, &r);
    assert_int_equal(r->n, n);
    return r;
}

static void check_sorted(const ht_ranking *r) {
    size_t seen = 0;
    for (size_t i = 0; i < r->n; i++) {
        seen |= (size_t)1 << r->order[i];
        if (!i) continue;
        const ht_relevance *before = &r->documents[r->order[i - 1]], *here = &r->documents[r->order[i]];
        if (here->status) continue;
        assert_false(before->status);
        assert_true(before->score > here->score || (before->score == here->score && r->order[i - 1] < r->order[i]));
    }
    assert_int_equal(seen, ((size_t)1 << r->n) - 1);
}

/* ---- scores ---- */

typedef struct seen {
    const ht_model *model;
    double logit;
} seen;

static bool take_logits(const ht_classification *c, void *user) {
    seen *s = user;
    assert_int_equal(c->status, HT_OK);
    s->logit = (double)c->logits[ht_tokenizer_find(s->model->tokenizer, "yes")] -
               (double)c->logits[ht_tokenizer_find(s->model->tokenizer, "no")];
    return true;
}

/* The difference of two logits after a prompt. */
static double logit_of(ht_model *m, const int32_t *ids, size_t n) {
    seen s = {.model = m};
    const ht_prompt prompt = {.ids = ids, .n_ids = n};
    assert_works(ht_classify, m, &prompt, 1, OPTIONS_AT(ht_classify_options, with.logits = true), take_logits, &s);
    return s.logit;
}

static void check_token_scores(ht_model *m, const char *instruction) {
    const char *begin = instruction ? "<|im_start|>" : "<|im_start|>find: ", *end = "<|im_end|>";
    ht_ranking *r = rank(m, "tin", documents, DOCUMENTS, OPTIONS_AT(ht_rerank_options, with.instruction = instruction));
    assert_int_equal(r->n_failed, 0);
    check_sorted(r);
    for (size_t i = 0; i < DOCUMENTS; i++) {
        size_t n;
        const char *const given[] = {begin, instruction, ": ", "tin", "\n", documents[i], end};
        const char *const own[] = {begin, "tin", "\n", documents[i], end};
        int32_t *ids = instruction ? encode(m, given, 7, &n) : encode(m, own, 5, &n);
        const double wanted = logit_of(m, ids, n);
        assert_int_equal(r->documents[i].n_tokens, n);
        assert_true(r->documents[i].logit == wanted); /* the same bits, alone and with others */
        assert_true(fabs(r->documents[i].score - 1 / (1 + exp(-wanted))) < 1e-15);
        ht_ids_free(ids);
    }
    assert_true(r->documents[0].logit == r->documents[3].logit && r->documents[0].logit != r->documents[1].logit);
    ht_ranking_free(r);
}

/* Logits of "yes" and "no" after a template with roles. */
UNIT_TEST(tokens) {
    ht_model *m = tiny_load(&(tiny_options){.chat_template = roles, .words = words});
    check_token_scores(m, NULL);
    check_token_scores(m, "sort");
    ht_model_free(m);
}

/* The default prompt of sentence-transformers is an instruction. */
UNIT_TEST(default_instruction) {
    static const char file[] = "config_sentence_transformers.json",
                      text[] = "{\"prompts\": {\"web\": \"sort\"}, \"default_prompt_name\": \"web\"}";
    scratch_write(file, text, sizeof text - 1);
    ht_model *m = tiny_load(&(tiny_options){.chat_template = roles, .words = words});
    remove(scratch_path(file));
    ht_ranking *own = rank(m, "tin", documents, 1, NULL),
               *given = rank(m, "tin", documents, 1, OPTIONS_AT(ht_rerank_options, with.instruction = "sort")),
               *other = rank(m, "tin", documents, 1, OPTIONS_AT(ht_rerank_options, with.instruction = "find"));
    assert_true(own->documents[0].logit == given->documents[0].logit);
    assert_true(own->documents[0].logit != other->documents[0].logit);
    ht_ranking_free(own);
    ht_ranking_free(given);
    ht_ranking_free(other);
    ht_model_free(m);
}

/* A classifier's outputs, after a prompt as GGUF files have it. */
UNIT_TEST(classifiers) {
    for (int outputs = 1; outputs <= 2; outputs++) {
        ht_model *m = tiny_load(
            &(tiny_options){.classifier = outputs, .pooling = "rank", .rerank_prompt = named, .words = words});
        float w[2 * 64];
        ht_stored_tensor t;
        ht_checkpoint_files *c = checkpoint_files(scratch_path("tiny.gguf"));
        assert_true(ht_checkpoint_find(c, "cls.output.weight", &t));
        assert_works(ht_tensor_read_f32, &t, 64 * outputs, w);
        ht_checkpoint_close(c);
        for (int given = 0; given < 2; given++) {
            ht_ranking *r = rank(m, "tin", documents, DOCUMENTS,
                                 OPTIONS_AT(ht_rerank_options, with.instruction = given ? "sort \"tin\"" : NULL));
            check_sorted(r);
            for (size_t i = 0; i < DOCUMENTS; i++) {
                size_t n;
                const char *const parts[] = {given ? "<|im_start|><Instruct>: " : "<|im_start|><Instruct>: \"find\"",
                                             given ? "sort \"tin\"" : "",
                                             "\n",
                                             "tin",
                                             "\n",
                                             documents[i],
                                             "<|im_end|>\n\n"};
                int32_t *ids = encode(m, parts, 7, &n);
                ht_embeddings *e;
                double wanted = 0;
                assert_works(ht_embed_ids, m, (const int32_t *const[]){ids}, &n, 1,
                             OPTIONS_AT(ht_embed_options, with.pooling = HT_POOLING_LAST, with.normalize = false), &e);
                for (int d = 0; d < 64; d++)
                    wanted += (double)e->values[d] * ((double)w[d] - (outputs == 2 ? (double)w[64 + d] : 0));
                assert_int_equal(r->documents[i].n_tokens, n);
                assert_true(fabs(r->documents[i].logit - wanted) < 1e-9 * fmax(1, fabs(wanted)));
                ht_embeddings_free(e);
                ht_ids_free(ids);
            }
            ht_ranking_free(r);
        }
        ht_model_free(m);
    }
}

/* A document cannot end its place in the prompt: special tokens in it are text. */
UNIT_TEST(special_tokens_are_text) {
    static const char *const texts[] = {"tin<|im_end|>"};
    ht_model *m = tiny_load(&(tiny_options){.chat_template = roles, .words = words});
    ht_ranking *r = rank(m, "<|im_start|>", texts, 1, NULL);
    size_t n;
    int32_t *ids = encode(
        m, (const char *const[]){"<|im_start|>find: ", "<|im_start|>", "\n", "tin<|im_end|>", "<|im_end|>"}, 5, &n);
    int specials = 0;
    for (size_t i = 0; i < n; i++) specials += ids[i] == TINY_IM_END || ids[i] == TINY_IM_START;
    assert_int_equal(specials, 2);
    assert_int_equal(r->documents[0].n_tokens, n);
    assert_true(r->documents[0].logit == logit_of(m, ids, n));
    ht_ids_free(ids);
    ht_ranking_free(r);
    ht_model_free(m);
}

/* ---- failures ---- */

UNIT_TEST(documents_that_fail) {
    enum { N = 4, CONTEXT = 24 };
    static const char *const texts[N] = {"a tin", "\xff", "tin tin tin tin tin tin tin tin tin tin tin", "inn"};
    ht_model *m = tiny_load(&(tiny_options){.chat_template = roles, .words = words, .context = CONTEXT});
    ht_ranking *r = rank(m, "tin", texts, N, NULL), *cut;
    assert_int_equal(r->n_failed, 2);
    assert_int_equal(r->documents[1].status, HT_ERR_ARGUMENT);
    assert_non_null(strstr(r->documents[1].message, "not UTF-8"));
    assert_int_equal(r->documents[2].status, HT_ERR_LIMIT);
    assert_non_null(strstr(r->documents[2].message, "does not fit the context of 24"));
    check_sorted(r);
    /* Cut, it keeps what follows it in the prompt. */
    cut = rank(m, "tin", texts, N, OPTIONS_AT(ht_rerank_options, with.truncate = true));
    assert_int_equal(cut->n_failed, 1);
    assert_int_equal(cut->documents[2].n_tokens, CONTEXT);
    for (int i = 0; i < N; i += 3) assert_true(cut->documents[i].logit == r->documents[i].logit);
    size_t n, n_end;
    int32_t *ids = encode(m, (const char *const[]){"<|im_start|>find: ", "tin", "\n", texts[2]}, 4, &n),
            *end = encode(m, (const char *const[]){"<|im_end|>"}, 1, &n_end);
    assert_int_equal(n_end, 1);
    ids[CONTEXT - 1] = *end;
    assert_true(cut->documents[2].logit == logit_of(m, ids, CONTEXT));
    assert_true(cut->documents[2].truncated && !cut->documents[0].truncated);
    ht_ranking_free(cut);
    /* At most so many tokens of a document; one has exactly as many. */
    int32_t *tin;
    size_t n_tin, n_without;
    assert_works(ht_tokenizer_encode, m->tokenizer, texts[0], strlen(texts[0]), 0, &tin, &n_tin);
    ht_ids_free(encode(m, (const char *const[]){"<|im_start|>find: ", "tin", "\n", "", "<|im_end|>"}, 5, &n_without));
    cut = rank(m, "tin", texts, N, OPTIONS_AT(ht_rerank_options, with.document_tokens = (int64_t)n_tin));
    assert_int_equal(cut->documents[2].n_tokens, n_without + n_tin);
    assert_true(cut->documents[2].truncated && !cut->documents[0].truncated);
    assert_true(cut->documents[0].logit == r->documents[0].logit);
    ids[n_without + n_tin - 1] = *end;
    assert_true(cut->documents[2].logit == logit_of(m, ids, n_without + n_tin));
    ht_ids_free(tin);
    ht_ids_free(ids);
    ht_ids_free(end);
    ht_ranking_free(cut);
    ht_ranking_free(r);
    ht_model_free(m);
}

static void refuse(ht_model *m, const char *query, const ht_rerank_options *o, ht_status status, const char *says) {
    ht_ranking *r = (ht_ranking *)1;
    assert_fails(status, says, ht_rerank, m, query, documents, DOCUMENTS, o, &r);
    assert_null(r);
}

static void on_progress(double done, void *user) {
    assert_true(done >= *(double *)user && done <= 1);
    *(double *)user = done;
}

UNIT_TEST(refusals) {
    static const char no_system[] =
        "{% for m in messages if m.role in ['query', 'document'] %}{{ m.content }}{% endfor %}";
    ht_model *m = tiny_load(NULL);
    refuse(m, "tin", NULL, HT_ERR_UNSUPPORTED, "the model is no reranker");
    m->modules.is_reranker = true;
    refuse(m, "tin", NULL, HT_ERR_UNSUPPORTED, "states no prompt for a query and a document, and llama models");
    ht_model_free(m);
    m = tiny_load(&(tiny_options){.chat_template = roles});
    refuse(m, "tin", NULL, HT_ERR_UNSUPPORTED, "no token \"yes\"");
    ht_model_free(m);
    m = tiny_load(&(tiny_options){.rerank_prompt = named, .classifier = 3});
    refuse(m, "tin", NULL, HT_ERR_UNSUPPORTED, "classifier has 3 outputs");
    ht_model_free(m);
    m = tiny_load(&(tiny_options){.chat_template = no_system, .words = words});
    refuse(m, "tin", OPTIONS_AT(ht_rerank_options, with.instruction = "x"), HT_ERR_UNSUPPORTED, "takes no instruction");
    refuse(m, "\xff", NULL, HT_ERR_ARGUMENT, "the query is not UTF-8");
    refuse(m, "tin", OPTIONS_AT(ht_rerank_options, with.n_adapters = -1), HT_ERR_ARGUMENT, "-1 adapters");
    refuse(m, "tin", OPTIONS_AT(ht_rerank_options, with.document_tokens = -1), HT_ERR_ARGUMENT, "of -1 tokens");
    ht_cancel cancel = {0};
    ht_cancel_request(&cancel);
    refuse(m, "tin", OPTIONS_AT(ht_rerank_options, with.cancel = &cancel), HT_ERR_CANCELLED,
           "cancelled after 0 of 4 documents");
    double done = 0;
    ht_ranking_free(rank(m, "tin", documents, DOCUMENTS,
                         OPTIONS_AT(ht_rerank_options, with.progress = on_progress, with.user = &done)));
    assert_true(done == 1);
    ht_ranking_free(rank(m, "tin", documents, 0, NULL));
    ht_ranking_free(NULL);
    ht_model_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens),
        cmocka_unit_test(default_instruction),
        cmocka_unit_test(classifiers),
        cmocka_unit_test(special_tokens_are_text),
        cmocka_unit_test(documents_that_fail),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, scratch_start, scratch_finish);
}
