/* GGUF files of converted metadata (checkpoint/convert_metadata.h), with the tensors by which a configuration is read. */
#ifndef TESTS_SUPPORT_METADATA_FILE_H
#define TESTS_SUPPORT_METADATA_FILE_H

#include "checkpoint/config.h"
#include "formats/json.h"

/* Writes metadata with zeros for the tensors whose shapes or presence the configuration is read from: the embedding, the
 * head, biases, routers, values, and RoPE's divisors. config NULL: no tensor. Fails the test when that fails. */
void metadata_file_write(const char *path, ht_json *metadata, const ht_config *config);

#endif
