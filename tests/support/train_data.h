/* Training data of tests: files of lines, models with a chat template of the test's, and samples as marked text. */
#ifndef TESTS_SUPPORT_TRAIN_DATA_H
#define TESTS_SUPPORT_TRAIN_DATA_H

#include "train/data.h"

/* The model writes its conversations by this template from now on; NULL: it has no chat format. */
void train_use_template(ht_model *m, const char *source);
/* The text of a line's sample with what is learned in brackets, "a question [an answer]"; fails the test when the line is bad.
 * The caller frees it. `sample` may be NULL, else it is the caller's to free. */
char *train_marked(const ht_model *m, const char *line, const ht_sample_options *options, ht_sample *sample);
/* The text in the scratch directory as data; fails the test when it is not opened. */
ht_data *train_open(ht_model *m, const char *text, const ht_data_options *options);
/* How opening it fails; fails the test when it does not. */
ht_status train_open_fails(ht_model *m, const char *text, const ht_data_options *options, ht_error *err);

#endif
