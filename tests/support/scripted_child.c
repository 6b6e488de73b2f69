#include "support/scripted_child.h"

#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

const char script_info[] = "{\"id\":1,\"event\":\"info\",\"architecture\":\"llama\",\"engine\":\"script\",\"device\":"
                           "\"cpu\",\"context\":1000000,"
                           "\"vocab\":28,\"n_layers\":2,\"memory_bytes\":4096}";

const char script_functions[] =
    "say() { printf '%s\\n' \"$1\"; }\n"
    "id() { id=${line#*'\"id\":'}; id=${id%%[,\\}]*}; }\n"
    "done_with() { s=-1; if [ $1 = stop ]; then s=27; fi; say "
    "\"{\\\"id\\\":$id,\\\"event\\\":\\\"done\\\",\\\"finish\\\":\\\"$1\\\",\\\"stop_id\\\":$s,"
    "\\\"peak_memory_bytes\\\":1}\"; }\n"
    "tokens() { say \"{\\\"id\\\":$id,\\\"event\\\":\\\"tokens\\\",\\\"ids\\\":[$1]}\"; }\n"
    "serve() {\n"
    "  while read -r line; do\n"
    "    case $line in\n"
    "    *'\"command\":\"cancel\"'*) ;;\n"
    "    *'\"command\":\"quit\"'*) exit 0 ;;\n"
    "    *'\"command\":\"load\"'*) say '" /* script_info follows */;

const char script_good[] = "serve";

/* What a request gets, behind the info. */
static const char rest_of_serve[] =
    "' ;;\n"
    "    *'\"command\":\"info\"'*)\n"
    "      id\n"
    "      say "
    "\"{\\\"id\\\":$id,\\\"event\\\":\\\"info\\\",\\\"architecture\\\":\\\"llama\\\",\\\"engine\\\":\\\"script\\\","
    "\\\"device\\\":\\\"cpu\\\",\\\"context\\\":1000000,\\\"vocab\\\":28,\\\"n_layers\\\":2,\\\"memory_bytes\\\":8192}"
    "\" ;;\n"
    "    *)\n"
    "      id\n"
    "      say \"{\\\"id\\\":$id,\\\"event\\\":\\\"begin\\\",\\\"reused\\\":0}\"\n"
    "      tokens 0\n"
    "      if [ \"$slow\" ]; then read -r line; done_with cancelled; continue; fi\n"
    "      tokens 1\n"
    "      tokens 2\n"
    "      done_with stop ;;\n"
    "    esac\n"
    "  done\n"
    "}\n";

void script_write_checkpoint(void) {
    static const char config[] = "{\"model_type\": \"llama\", \"eos_token_id\": 27}";
    char tokenizer[2048] =
        "{\"added_tokens\": [{\"id\": 26, \"content\": \"<|im_start|>\", \"special\": true}, {\"id\": 27, \"content\": "
        "\"<|im_end|>\", \"special\": true}], "
        "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}, "
        "\"decoder\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", \"merges\": [], \"vocab\": {";
    for (int i = 0; i < 26; i++) snprintf(strchr(tokenizer, 0), 32, "%s\"%c\": %d", i ? ", " : "", 'a' + i, i);
    strcat(tokenizer, "}}}");
    scratch_write("config.json", config, sizeof config - 1);
    scratch_write("tokenizer.json", tokenizer, strlen(tokenizer));
}

static double or_long(double seconds) { return seconds > 0 ? seconds : 3600; }

ht_status script_load(const char *script, script_deadlines seconds, ht_backend_model **out, ht_error *err) {
    static char whole[16384];
    const int n = snprintf(whole, sizeof whole, "%s%s%s%s\n", script_functions, script_info, rest_of_serve, script);
    assert_true(n > 0 && (size_t)n < sizeof whole);
    const ht_backend_options how =
        OPTIONS(ht_backend_options, with.python = "/bin/sh", with.bridge = whole, with.line_bytes = 10000,
                with.load_seconds = or_long(seconds.load), with.first_seconds = or_long(seconds.first),
                with.next_seconds = or_long(seconds.next));
    return ht_backend_load("mlx_lm", scratch_directory(), &how, out, err);
}

int script_open_files(void) {
    int n = 0;
    for (int fd = 0; fd < 1024; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

void script_check_clean(int n_files) {
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    assert_int_equal(script_open_files(), n_files);
}
