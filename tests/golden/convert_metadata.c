/* Converts a checkpoint's configuration and tokenizer, for scripts that compare them with other libraries
 * (convert_check.py):
 *
 *     convert_metadata MODEL OUT
 *
 * writes the JSON documents of a GGUF file into the directory OUT, and those of a directory as a GGUF file OUT that has no
 * tensor. */
#include "checkpoint/convert_metadata.h"

#include "support/metadata_file.h"
#include "support/test.h"

#include <stdio.h>
#include <string.h>

/* A file that is a vocabulary alone has no tensor that says where Gemma 4's values are its keys. */
static void assume_values(const ht_checkpoint_files *c, ht_config *config) {
    for (int64_t i = 0; !ht_gguf_n_tensors(c->gguf) && i < config->n_layers; i++)
        config->layer[i].v_is_k &= !config->layer[i].slides;
}

static void write_documents(const ht_checkpoint_files *c, const ht_config *config, const char *directory) {
    ht_directory_documents d;
    ht_error err = {0};
    if (ht_directory_documents_of(c, config, false, "float32", &d, &err)) fail_msg("%s", err.message);
    for (int i = 0; i < d.n; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", directory, d.document[i].name);
        FILE *f = fopen(path, "wb");
        assert_non_null(f);
        assert_int_equal(fwrite(d.document[i].text, 1, strlen(d.document[i].text), f), strlen(d.document[i].text));
        assert_int_equal(fclose(f), 0);
    }
    ht_directory_documents_free(&d);
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: convert_metadata MODEL OUT\n");
        return 2;
    }
    ht_checkpoint_files *c;
    ht_config config;
    ht_error err = {0};
    if (ht_checkpoint_open(argv[1], &c, &err) || ht_checkpoint_config(c, &config, &err)) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    if (c->gguf) {
        assume_values(c, &config);
        write_documents(c, &config, argv[2]);
    } else {
        ht_json *metadata;
        if (ht_gguf_metadata_of(c, &config, &metadata, &err)) {
            fprintf(stderr, "%s\n", err.message);
            return 1;
        }
        metadata_file_write(argv[2], metadata, NULL);
        ht_json_decref(metadata);
    }
    ht_checkpoint_close(c);
    return 0;
}
