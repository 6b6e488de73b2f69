#include "checkpoint/modules.h"

#include "base/error.h"
#include "base/grow.h"
#include "checkpoint/family.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

/* ---- files ---- */

static const char modules_file[] = "modules.json";

/* Parses a JSON file next to the weights, in `folder` unless that is "". *out is NULL when it does not
 * exist. Only modules.json may be a list. */
static ht_status read_json(const ht_checkpoint_files *c, const char *folder, const char *name, ht_json **out,
                           char title[HT_SIBLING_NAME], ht_error *err) {
    char *text;
    size_t size;
    *out = NULL;
    if (snprintf(title, HT_SIBLING_NAME, "%s%s%s", folder, *folder ? "/" : "", name) >= HT_SIBLING_NAME)
        return ht_fail(err, HT_ERR_FORMAT, "modules.json: the path `%.100s` is too long", folder);
    ht_status status = ht_checkpoint_text(c, title, &text, &size, err);
    if (status || !text) return status;
    const ht_json_options how = {.name = title, .as_python = true, .any_value = !strcmp(name, modules_file)};
    status = ht_json_load(text, size, &how, out, err);
    free(text);
    return status;
}

/* The word after the last point: the class of a module or an activation. */
static const char *class_of(const char *type) {
    const char *point = strrchr(type, '.');
    return point ? point + 1 : type;
}

/* ---- the list of modules ---- */

typedef ht_status module_fn(const char *type, const char *folder, void *user, ht_error *err);

/* Folders lie in the checkpoint's directory: a list must not lead elsewhere. */
static bool is_inside(const char *folder) { return *folder != '/' && !strstr(folder, ".."); }

/* Calls fn with the class and the folder of each module in modules.json. Without that file there is the folder
 * 1_Pooling, or nothing. */
static ht_status visit(const ht_checkpoint_files *c, module_fn *fn, void *user, ht_error *err) {
    ht_json *list;
    char title[HT_SIBLING_NAME];
    ht_status status = read_json(c, "", modules_file, &list, title, err);
    if (status || !list) return status ? status : fn("Pooling", "1_Pooling", user, err);
    ht_json_reader r = {.file = title, .err = err};
    if (!ht_json_is_array(list)) ht_json_fail(&r, HT_ERR_FORMAT, "expected a list of modules");
    for (size_t i = 0; !r.status && i < ht_json_array_size(list); i++) {
        const ht_json *module = ht_json_array_get(list, i);
        const char *type = NULL, *folder = "";
        if (!ht_json_is_object(module)) {
            ht_json_fail(&r, HT_ERR_FORMAT, "module %zu is no object", i);
            break;
        }
        if (!ht_json_str(&r, module, "type", &type)) ht_json_missing(&r, "type", "a string");
        ht_json_str(&r, module, "path", &folder);
        if (!r.status && !is_inside(folder))
            ht_json_fail(&r, HT_ERR_FORMAT, "the path `%.100s` leads out of the directory", folder);
        if (!r.status) r.status = fn(class_of(type), folder, user, err);
    }
    ht_json_decref(list);
    return r.status;
}

/* ---- pooling ---- */

typedef struct pooling {
    const ht_checkpoint_files *c;
    const char *name;
    bool skips_prompt;
} pooling;

/* Names in the files, each as a field, or as a value of `pooling_mode`. */
static const struct {
    const char *field, *value, *name;
} modes[] = {{"pooling_mode_cls_token", "cls", "cls"},
             {"pooling_mode_mean_tokens", "mean", "mean"},
             {"pooling_mode_lasttoken", "lasttoken", "last"},
             {"pooling_mode_max_tokens", "max", "max"},
             {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", "mean_sqrt_len"},
             {"pooling_mode_weightedmean_tokens", "weightedmean", "weightedmean"}};
enum { MODES = sizeof modes / sizeof *modes };

static void add_mode(pooling *p, const char *name) { p->name = *p->name ? "several" : name; }

static void add_value(pooling *p, ht_json_reader *r, const ht_json *value) {
    char shown[80];
    const char *text = ht_json_string_value(value);
    for (size_t i = 0; text && i < MODES; i++)
        if (!strcmp(text, modes[i].value)) {
            add_mode(p, modes[i].name);
            return;
        }
    ht_json_fail(r, HT_ERR_FORMAT, "`pooling_mode` has %s, which is not known",
                 ht_json_describe(value, shown, sizeof shown));
}

static ht_status read_pooling(const char *type, const char *folder, void *user, ht_error *err) {
    pooling *p = user;
    ht_json *root;
    char title[HT_SIBLING_NAME];
    if (strcmp(type, "Pooling") != 0) return HT_OK;
    ht_status status = read_json(p->c, folder, "config.json", &root, title, err);
    if (status || !root) return status;
    ht_json_reader r = {.file = title, .err = err};
    bool on, with_prompt = true;
    for (size_t i = 0; i < MODES; i++)
        if (ht_json_bool(&r, root, modes[i].field, &on) && on) add_mode(p, modes[i].name);
    const ht_json *mode = ht_json_object_get(root, "pooling_mode");
    for (size_t i = 0; i < ht_json_array_size(mode); i++) add_value(p, &r, ht_json_array_get(mode, i));
    if (mode && !ht_json_is_array(mode) && !ht_json_is_null(mode)) add_value(p, &r, mode);
    ht_json_bool(&r, root, "include_prompt", &with_prompt);
    p->skips_prompt = !with_prompt;
    ht_json_decref(root);
    return r.status;
}

ht_status ht_modules_pooling(const ht_checkpoint_files *c, const char **out, ht_error *err) {
    pooling p = {.c = c, .name = ""};
    const ht_status status = visit(c, read_pooling, &p, err);
    *out = p.name;
    return status;
}

const char *ht_modules_pooling_field(size_t i, const char **name) {
    if (i >= MODES) return NULL;
    *name = modes[i].name;
    return modes[i].field;
}

/* ---- dense layers ---- */

static void free_stack(ht_dense_stack *s) {
    for (int i = 0; i < s->n; i++) {
        free(s->layer[i].weight);
        free(s->layer[i].bias);
    }
    *s = (ht_dense_stack){0};
}

/* The values of a tensor of n_out rows, transposed. */
static ht_status read_transposed(const ht_stored_tensor *t, int64_t n_out, int64_t n_in, float *out, ht_error *err) {
    const size_t n = (size_t)(n_out * n_in);
    float *rows = malloc(n * sizeof *rows);
    if (!rows) return ht_fail_memory(err, n * sizeof *rows, "a dense layer");
    const ht_status status = ht_tensor_read_f32(t, n_out * n_in, rows, err);
    for (int64_t o = 0; !status && o < n_out; o++)
        for (int64_t i = 0; i < n_in; i++) out[i * n_out + o] = rows[o * n_in + i];
    free(rows);
    return status;
}

/* Appends a layer with the tensors `weight` and `bias` (NULL: none). It follows n_in values. */
static ht_status add_layer(ht_dense_stack *s, const ht_stored_tensor *weight, const ht_stored_tensor *bias,
                           int64_t n_in, ht_dense_activation activation, ht_error *err) {
    char shape[HT_DIMS_TEXT];
    if (s->n) n_in = s->layer[s->n - 1].n_out;
    if (s->n == HT_DENSE_MOST)
        return ht_fail(err, HT_ERR_UNSUPPORTED, "%s: more than %d dense layers", weight->file_name, HT_DENSE_MOST);
    ht_dims_text(weight->dims, weight->n_dims, shape);
    if (weight->n_dims != 2 || weight->dims[1] != n_in || weight->dims[0] < 1)
        return ht_fail(err, HT_ERR_FORMAT, "%s: `%.*s` is [%s], expected [n, %lld]", weight->file_name,
                       (int)weight->name_len, weight->name, shape, (long long)n_in);
    const int64_t n_out = weight->dims[0];
    if (bias && (bias->n_dims != 1 || bias->dims[0] != n_out))
        return ht_fail(err, HT_ERR_FORMAT, "%s: `%.*s` has another shape than [%lld]", bias->file_name,
                       (int)bias->name_len, bias->name, (long long)n_out);
    ht_dense *d = &s->layer[s->n++];
    const size_t bytes = (size_t)(n_in * n_out) * sizeof *d->weight;
    *d = (ht_dense){.n_in = n_in, .n_out = n_out, .activation = activation, .weight = malloc(bytes)};
    if (bias) d->bias = malloc((size_t)n_out * sizeof *d->bias);
    if (!d->weight || (bias && !d->bias)) return ht_fail_memory(err, bytes, "a dense layer");
    ht_status status = read_transposed(weight, n_out, n_in, d->weight, err);
    if (!status && bias) status = ht_tensor_read_f32(bias, n_out, d->bias, err);
    return status;
}

/* Appends the layer of a checkpoint's tensors "NAME.weight" and "NAME.bias", if there is a matrix of that name. */
static ht_status add_tensors(ht_dense_stack *s, const ht_checkpoint_files *c, const char *name, int64_t n_in,
                             ht_dense_activation activation, ht_error *err) {
    ht_stored_tensor weight, bias;
    char full[64];
    snprintf(full, sizeof full, "%s.weight", name);
    if (!ht_checkpoint_find(c, full, &weight) || weight.n_dims != 2) return HT_OK;
    snprintf(full, sizeof full, "%s.bias", name);
    const bool has_bias = ht_checkpoint_find(c, full, &bias);
    return add_layer(s, &weight, has_bias ? &bias : NULL, n_in, activation, err);
}

typedef struct reading {
    const ht_checkpoint_files *c;
    const ht_config *config;
    ht_modules *out;
} reading;

static void lack(ht_modules *m, const char *what) {
    if (!*m->unsupported) snprintf(m->unsupported, sizeof m->unsupported, "%s", what);
}

/* False for an activation that is not supported. */
static bool activation_named(const char *name, ht_dense_activation *out) {
    static const char *const names[] = {"Identity", "Tanh", "Sigmoid", "ReLU", "GELU"};
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (!strcmp(class_of(name), names[i])) {
            *out = (ht_dense_activation)i;
            return true;
        }
    return false;
}

/* Reads linear.weight and linear.bias of the folder's safetensors. */
static ht_status read_dense_weights(const reading *r, const char *folder, ht_dense_activation activation,
                                    ht_error *err) {
    char *path = ht_path_join(r->c->path, folder);
    ht_safetensors *set = NULL;
    if (!path) return ht_fail_memory(err, strlen(folder), "a path");
    ht_status status = ht_safetensors_open(path, &set, err);
    const ht_safetensor *weight = status ? NULL : ht_safetensors_find(set, "linear.weight"),
                        *bias = status ? NULL : ht_safetensors_find(set, "linear.bias");
    if (!status && !weight)
        status = ht_fail(err, HT_ERR_FORMAT, "%.200s: the tensor `linear.weight` is missing", folder);
    if (!status) {
        const ht_stored_tensor w = ht_stored_of_safetensors(set, (size_t)(weight - set->tensors));
        ht_stored_tensor b = {0};
        if (bias) b = ht_stored_of_safetensors(set, (size_t)(bias - set->tensors));
        status = add_layer(&r->out->dense, &w, bias ? &b : NULL, r->config->hidden, activation, err);
    }
    ht_safetensors_close(set);
    free(path);
    return status;
}

static ht_status read_dense(reading *r, const char *folder, ht_error *err) {
    ht_json *root;
    char title[HT_SIBLING_NAME];
    const char *name = "Tanh"; /* sentence-transformers' default */
    ht_dense_activation activation;
    ht_status status = read_json(r->c, folder, "config.json", &root, title, err);
    if (status) return status;
    ht_json_reader reader = {.file = title, .err = err};
    ht_json_str(&reader, root, "activation_function", &name);
    const bool known = activation_named(name, &activation);
    char shown[64];
    snprintf(shown, sizeof shown, "Dense with %.48s", class_of(name));
    ht_json_decref(root);
    if (reader.status) return reader.status;
    if (!known) {
        lack(r->out, shown);
        return HT_OK;
    }
    return read_dense_weights(r, folder, activation, err);
}

/* ---- the modules of a directory ---- */

static ht_status read_score(const reading *r, const char *folder, ht_error *err) {
    ht_json *root;
    char title[HT_SIBLING_NAME];
    ht_status status = read_json(r->c, folder, "config.json", &root, title, err);
    if (status) return status;
    ht_json_reader reader = {.file = title, .err = err};
    if (!ht_json_i64(&reader, root, "true_token_id", &r->out->yes_token))
        ht_json_missing(&reader, "true_token_id", "an integer");
    ht_json_i64(&reader, root, "false_token_id", &r->out->no_token);
    ht_json_decref(root);
    if (reader.status) return reader.status;
    const int64_t vocab = r->config->vocab;
    if (r->out->yes_token < 0 || r->out->yes_token >= vocab || r->out->no_token < -1 || r->out->no_token >= vocab)
        return ht_fail(err, HT_ERR_FORMAT, "%s: a token is outside the vocabulary of %lld", title, (long long)vocab);
    r->out->is_reranker = true;
    return HT_OK;
}

static ht_status read_module(const char *type, const char *folder, void *user, ht_error *err) {
    /* Modules without effect here: the model itself, scaling (an option of each call), and training's. */
    static const char *const others[] = {"Transformer", "Normalize", "Dropout", NULL};
    reading *r = user;
    if (!strcmp(type, "Pooling")) {
        pooling p = {.c = r->c, .name = ""};
        const ht_status status = read_pooling(type, folder, &p, err);
        r->out->skips_prompt = p.skips_prompt;
        if (r->out->dense.n) lack(r->out, "Dense before Pooling");
        return status;
    }
    if (!strcmp(type, "Dense")) return read_dense(r, folder, err);
    if (!strcmp(type, "LogitScore")) return read_score(r, folder, err);
    int i = 0;
    while (others[i] && strcmp(type, others[i]) != 0) i++;
    if (!others[i]) lack(r->out, type);
    return HT_OK;
}

static ht_status add_prompt(ht_modules *m, const char *name, const char *text, ht_error *err) {
    if (!HT_GROW_ONE(m->prompt, m->n_prompts)) return ht_fail_memory(err, strlen(text), "prompts");
    ht_named_prompt *p = &m->prompt[m->n_prompts++];
    *p = (ht_named_prompt){strdup(name), strdup(text)};
    return p->name && p->text ? HT_OK : ht_fail_memory(err, strlen(text), "prompts");
}

static ht_status read_prompts(reading *r, ht_error *err) {
    ht_json *root, *text;
    const char *name, *chosen = NULL;
    char title[HT_SIBLING_NAME];
    ht_status status = read_json(r->c, "", "config_sentence_transformers.json", &root, title, err);
    if (status || !root) return status;
    ht_json_reader reader = {.file = title, .err = err};
    const ht_json *prompts = ht_json_object(&reader, root, "prompts");
    ht_json_str(&reader, root, "default_prompt_name", &chosen);
    ht_json_object_foreach(prompts, name, text) {
        if (reader.status) break;
        if (!ht_json_is_string(text))
            ht_json_fail(&reader, HT_ERR_FORMAT, "prompt `%.60s` is no string", name);
        else
            reader.status = add_prompt(r->out, name, ht_json_string_value(text), err);
    }
    for (size_t i = 0; chosen && i < r->out->n_prompts; i++)
        if (!strcmp(r->out->prompt[i].name, chosen)) r->out->default_prompt = r->out->prompt[i].name;
    if (!reader.status && chosen && !r->out->default_prompt)
        ht_json_fail(&reader, HT_ERR_FORMAT, "there is no prompt `%.60s`, the default", chosen);
    ht_json_decref(root);
    return reader.status;
}

/* The longest text and its case, of a directory for sentence-transformers. */
static ht_status read_text_settings(reading *r, ht_error *err) {
    ht_json *root;
    char title[HT_SIBLING_NAME];
    int64_t most;
    ht_status status = read_json(r->c, "", "sentence_bert_config.json", &root, title, err);
    if (status || !root) return status;
    ht_json_reader reader = {.file = title, .err = err};
    const bool states = ht_json_i64(&reader, root, "max_seq_length", &r->out->max_tokens);
    ht_json_bool(&reader, root, "do_lower_case", &r->out->lowercase);
    if (!reader.status && r->out->max_tokens < 0) ht_json_fail(&reader, HT_ERR_FORMAT, "`max_seq_length` is negative");
    ht_json_decref(root);
    if (states || reader.status) return reader.status;
    /* Newer versions leave it to the tokenizer, which states an absurdly large number for no limit. */
    status = read_json(r->c, "", "tokenizer_config.json", &root, title, err);
    const ht_json *stated = status ? NULL : ht_json_object_get(root, "model_max_length");
    if (stated && ht_json_whole(stated, &most) && most > 0) r->out->max_tokens = most;
    if (!status) ht_json_decref(root);
    return status;
}

/* ---- classifiers ---- */

bool ht_modules_has(const ht_config *config, const char *name) {
    if (!strncmp(name, "dense_2.", 8) || !strncmp(name, "dense_3.", 8)) return true;
    return !config->two_sided && !strncmp(name, "cls.", 4);
}

/* Classifiers of decoders as files name them: a hidden layer, if there is one, and the output. Those of text encoders
 * are weights of their families (models/label_head.h). */
static const struct {
    bool gguf;
    const char *hidden, *output;
    ht_dense_activation activation;
} classifiers[] = {{true, "cls", "cls.output", HT_DENSE_TANH}, {false, NULL, "score", HT_DENSE_IDENTITY}};

static ht_status read_classifier(reading *r, ht_error *err) {
    ht_status status = HT_OK;
    ht_stored_tensor output;
    char name[64];
    for (size_t i = 0; !r->config->two_sided && !status && i < sizeof classifiers / sizeof *classifiers; i++) {
        snprintf(name, sizeof name, "%s.weight", classifiers[i].output);
        if (classifiers[i].gguf != (r->c->gguf != NULL) || !ht_checkpoint_find(r->c, name, &output) ||
            output.n_dims != 2)
            continue;
        if (classifiers[i].hidden)
            status = add_tensors(&r->out->classifier, r->c, classifiers[i].hidden, r->config->hidden,
                                 classifiers[i].activation, err);
        if (!status)
            status = add_tensors(&r->out->classifier, r->c, classifiers[i].output, r->config->hidden, HT_DENSE_IDENTITY,
                                 err);
    }
    r->out->is_reranker |= r->out->classifier.n > 0;
    return status;
}

static bool names_reranker(const char *text) {
    static const char word[] = "reranker";
    for (; *text; text++)
        if (!strncasecmp(text, word, sizeof word - 1)) return true;
    return false;
}

const ht_gguf_value *ht_modules_labels(const ht_checkpoint_files *c) {
    char key[128], architecture[64];
    (void)ht_meta_text(c->gguf, "general.architecture", architecture, sizeof architecture);
    snprintf(key, sizeof key, "%s.classifier.output_labels", architecture);
    const ht_gguf_value *list = ht_gguf_find(c->gguf, key);
    return list && list->type == HT_GGUF_ARRAY && list->item_type == HT_GGUF_STRING ? list : NULL;
}

/* Whether the outputs of the classifier are labelled "yes" and "no". */
static bool labels_are_yes_and_no(const ht_checkpoint_files *c) {
    static const char *const labels[] = {"yes", "no"};
    const ht_gguf_value *list = ht_modules_labels(c);
    size_t offset = 0;
    ht_bytes label;
    if (!list || list->n_items != 2) return false;
    for (int i = 0; i < 2; i++)
        if (!ht_gguf_next_string(list, &offset, &label) || label.len != strlen(labels[i]) ||
            memcmp(label.data, labels[i], label.len) != 0)
            return false;
    return true;
}

static ht_status read_gguf(reading *r, ht_error *err) {
    static const char *const names[] = {"dense_2", "dense_3"};
    ht_status status = HT_OK;
    ht_bytes prompt;
    r->out->yes_and_no = labels_are_yes_and_no(r->c);
    for (int i = 0; !status && i < 2; i++)
        status = add_tensors(&r->out->dense, r->c, names[i], r->config->hidden, HT_DENSE_IDENTITY, err);
    if (status || !ht_gguf_get_string(r->c->gguf, "tokenizer.chat_template.rerank", &prompt)) return status;
    r->out->is_reranker = true;
    r->out->rerank_prompt = strndup(prompt.data, prompt.len);
    return r->out->rerank_prompt ? HT_OK : ht_fail_memory(err, prompt.len, "a prompt");
}

/* ---- all of it ---- */

ht_status ht_modules_read(const ht_checkpoint_files *c, const ht_config *config, ht_modules *out, ht_error *err) {
    *out = (ht_modules){.yes_token = -1, .no_token = -1};
    out->is_reranker = names_reranker(ht_base_name(c->path)) || names_reranker(config->name);
    reading r = {.c = c, .config = config, .out = out};
    ht_status status = c->gguf ? read_gguf(&r, err) : visit(c, read_module, &r, err);
    if (!status) status = read_prompts(&r, err);
    if (!status) status = read_text_settings(&r, err);
    return status ? status : read_classifier(&r, err);
}

void ht_modules_free(ht_modules *m) {
    free_stack(&m->dense);
    free_stack(&m->classifier);
    for (size_t i = 0; i < m->n_prompts; i++) {
        free(m->prompt[i].name);
        free(m->prompt[i].text);
    }
    free(m->prompt);
    free(m->rerank_prompt);
    *m = (ht_modules){0};
}
