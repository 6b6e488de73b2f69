/* Children that follow a script of the shell in the place of mlx_lm's, and what they must leave behind. */
#ifndef TESTS_SUPPORT_SCRIPTED_CHILD_H
#define TESTS_SUPPORT_SCRIPTED_CHILD_H

#include <hearth/backend.h>

/* Ids of the children's vocabulary: letters a to z, then the marks of ChatML. */
enum { SCRIPT_VOCAB = 28 };

/* Functions of the shell for scripts: `say LINE`; `id`, which sets id to that of the request in $line; `serve`, which answers
 * requests for ever: a generate with the tokens a, b, c, then "stop"; after slow=1 with the first one, and the end when
 * it is cancelled. */
extern const char script_functions[];
/* The line that a load is answered with. */
extern const char script_info[];
/* A child that does all right. */
extern const char script_good[];

/* Writes config.json and tokenizer.json of that vocabulary, into the scratch directory. */
void script_write_checkpoint(void);
/* Seconds that a child has to load, to its first token, and from one to the next; 0: as many as no test takes. */
typedef struct script_deadlines {
    double load, first, next;
} script_deadlines;

/* Loads a child of script_functions with `script` behind them. */
ht_status script_load(const char *script, script_deadlines seconds, ht_backend_model **out, ht_error *err);

/* Descriptors that are open in this process. */
int script_open_files(void);
/* Fails the test when this process has children, zombies included, or other than n_files open descriptors. */
void script_check_clean(int n_files);

#endif
