/* The command table and its listing. */
#include "command.h"
#include "terminal.h"

#include <stdio.h>
#include <string.h>

/* In the order of the help, by group. */
const command command_table[] = {
    {"Run", "chat", "MODEL [PROMPT]", "Talk with a model.",
     "Each line is a message. Pasted lines are one message, and so is text between \"\"\" and \"\"\". Lines that begin "
     "with / are commands; /help lists them. Ctrl-C stops an answer; a second one, or Ctrl-D on an empty line, ends "
     "the program. The KV cache of earlier turns is kept, so that only new text is computed. If standard input is not "
     "a terminal, it is read line by line, or with PROMPT as the rest of that message.",
     FOR_CHAT, true, 1, chat_command},
    {"Run", "run", "MODEL [PROMPT]", "Answer one prompt.",
     "Without PROMPT and --messages the prompt is read from standard input. It is formatted with the chat template of "
     "the model, if there is one, after the conversation of --messages. Thinking is shown dimmed on a terminal, and "
     "left out elsewhere.",
     FOR_RUN, true, 1, run_command},
    {"Run", "batch", "MODEL --prompts FILE [--out FILE.jsonl]", "Answer many prompts together.",
     "A line of FILE is a prompt. If FILE ends in .jsonl or its first line begins with {, lines are JSON objects: "
     "{\"prompt\": \"...\"}, "
     "{\"messages\": [...]} or {\"ids\": [...]}, with an \"id\" that the result repeats. The fields max_tokens, "
     "temperature, top_k, top_p, min_p, repeat_penalty, repeat_window, presence_penalty, frequency_penalty, "
     "logit_bias, thinking_budget, seed, stop, ignore_eos and n override the command line; \"adapter\" names one of "
     "--adapter, or is null for none.\n\nResults are JSON objects, one per line, in the order of the prompts. With "
     "--out an interrupted batch resumes: run the command again.",
     FOR_BATCH, true, 0, batch_command},
    {"Run", "classify", "MODEL --prompts FILE [--labels a,b,c]", "Choose the most likely label for many prompts.",
     "A line of FILE is a prompt. If FILE ends in .jsonl or its first line begins with {, lines are JSON objects: "
     "{\"prompt\": \"...\"}, "
     "{\"messages\": [...]} or {\"ids\": [...]}, with an \"id\" that the result repeats. Prompts are written in the "
     "chat format of the model, except with --raw.\n\nThe result is a line per prompt: the most likely label and its "
     "probability among the labels, or without --labels the most likely token. Labels of several tokens are scored as "
     "a whole. --json has all labels and log-probabilities.",
     FOR_CLASSIFY, true, 0, classify_command},
    {"Run", "score", "MODEL --prompts FILE.jsonl [--top N]", "Score given continuations of prompts.",
     "A line of FILE is a JSON object with \"prompt\", \"messages\" or \"ids\", as for hearth batch, and "
     "\"continuations\", a list of texts or of lists of ids. Results are JSON objects, one per line, with the "
     "log-probability of each continuation and of its tokens.",
     FOR_SCORE, true, 0, score_command},
    {"Run", "embed", "MODEL TEXT... | --prompts FILE", "Compute embeddings of texts: pooled hidden states.",
     "Prints a line per text with the values of its vector, with --pooling none a line per token; --json adds the "
     "number of tokens, and --out writes a NumPy file [texts, hidden]. Vectors are pooled from the hidden states after "
     "the final norm, and scaled to a length of 1. Texts are encoded without the chat format. A text that fails is "
     "named, and the others go on.",
     FOR_EMBED, true, -1, embed_command},
    {"Run", "rerank", "MODEL --query TEXT --documents FILE", "Sort documents by their relevance to a query.",
     "MODEL is a reranker: a text encoder whose head has one label, or a decoder, which may take an --instruction. A "
     "line of FILE is a document. If FILE ends in .jsonl or its first line begins with {, lines are JSON objects with "
     "\"text\"; an \"id\" is repeated in the result, other fields are ignored.\n\nPrints a line per document, the "
     "best first: its score from 0 to 1, its index from 0, and its text. --json also has the logits and numbers of "
     "tokens. A document that fails is named, and the others go on.",
     FOR_RERANK, true, 0, rerank_command},
    {"Serve", "serve", "[MODEL]", "Serve models over HTTP.",
     "Serves MODEL, the models of --models, or both; without either the models of hearth list. Clients of the "
     "interfaces of OpenAI, Anthropic and Ollama can connect, and a web page is at /. Requests are decoded together "
     "and share common prefixes. Requests override the options of the command line, which override the sampling values "
     "of "
     "the model.\n\nSIGTERM ends the server after the running requests. SIGHUP reopens logs and certificates.",
     FOR_SERVE, false, 1, serve_command},
    {"Fine-tune", "finetune", "MODEL --data FILE.jsonl --out DIR",
     "Train a LoRA adapter on a model of any weight type.",
     "A line of the data is {\"messages\": [...]}, {\"prompt\": ..., \"completion\": ...}, {\"text\": ...} or "
     "{\"input_ids\": [...], \"labels\": [...]}. The loss covers answers, with the token that ends them, in the chat "
     "format of the model.\n\n--method embed trains embeddings, of text encoders too: a line is {\"anchor\": ..., "
     "\"positive\": ..., \"negatives\": [...]}, and --batch lines are contrasted with each other.\n\nDIR becomes the "
     "adapter, for hearth run MODEL --adapter DIR: the best one on --valid, or "
     "the last. DIR.training holds the last adapter and the checkpoints from which --resume continues bit-exactly. "
     "Ctrl-C saves a checkpoint.",
     FOR_FINETUNE, true, 0, finetune_command},
    {"Fine-tune", "adapter", "info ADAPTER | convert IN OUT --to FORMAT", "Show a LoRA adapter, or convert it.",
     "An adapter is a directory of PEFT or mlx-lm, or a GGUF file. Converting gives all pairs one rank and one scale "
     "in float32, which every reader supports. GGUF adapters contain tensor names of the model and, in some families, "
     "rows or columns in another order, and need --model. So do adapters of Falcon-H1, whose factors on products are "
     "in the weights of some files.",
     FOR_ADAPTER, false, 3, adapter_command},
    {"Fine-tune", "fuse", "MODEL --adapter [NAME=]PATH[@X] OUT", "Merge adapters into the weights of a checkpoint.",
     "OUT is a GGUF file if MODEL is one, else a directory, with the other files of the checkpoint. Only weights that "
     "change are written as floats, if the format allows that; fp8 and NVFP4 checkpoints become floats as a whole. "
     "--quantize rounds the weights again, which may lose what was learned: the result says how much of the change is "
     "left.",
     FOR_FUSE, true, 1, fuse_command},
    {"Convert", "convert", "MODEL OUT --to gguf|safetensors|mlx", "Convert a checkpoint to another format.",
     "gguf is a file for llama.cpp; safetensors and mlx are directories for transformers and mlx-lm. Weights keep "
     "their type if OUT has it; other quantized weights become floats, f32 without --dtype. Configuration, tokenizer "
     "and chat template are converted, too; anything that OUT cannot express is an error that names it. hearth "
     "quantize also converts between formats.",
     FOR_CONVERT, true, 1, convert_command},
    {"Convert", "quantize", "MODEL OUT --to TYPE", "Quantize a checkpoint to fewer bits.",
     "OUT is a GGUF file if its name ends with .gguf or MODEL is one. It is a directory in MLX format, with the other "
     "files of the checkpoint, if TYPE is one of MLX or MODEL is a directory.\n\nTYPE is for GGUF Q4_0, Q4_1, Q5_0, "
     "Q5_1, Q8_0, Q6_K, IQ4_NL, IQ4_XS, MXFP4, F16, BF16, F32, or a mix: Q2_K, Q2_K_S, Q3_K_S, Q3_K_M, Q3_K_L, Q4_K_S, "
     "Q4_K_M, Q5_K_S, Q5_K_M; for MLX a number of bits with an optional group size, 4 or 4:32, or mxfp4. Quantizing a "
     "quantized checkpoint adds up both errors: start from the one with the most bits.",
     FOR_QUANTIZE, true, 1, quantize_command},
    {"Convert", "imatrix", "MODEL --text FILE --out FILE.gguf", "Compute an importance matrix for quantization.",
     "The file has for each matrix the sums of squares of its inputs by column, as the importance matrix (imatrix) of "
     "llama.cpp; quantizers of both read it. The text is encoded as a whole and split into windows of --ctx tokens, "
     "each computed on its own, and each with BOS if the checkpoint asks for it. A last window that is not full counts "
     "if it is at least half full, or the only one. --ids takes the ids as they are.\n\n--from adds to earlier files, "
     "in either format of llama.cpp; without a text the files of --from are added up. --skip-chunks and --chunks "
     "compute a text in parts. The file is written every ten windows, or --save-every N, so that an interrupted run "
     "can continue from it.",
     FOR_IMATRIX, true, 0, imatrix_command},
    {"Convert", "split", "MODEL OUT --max-size SIZE", "Split a checkpoint into several files.",
     "Every tensor is copied bit for bit. For a GGUF file OUT is NAME.gguf: the parts are NAME-00001-of-00003.gguf and "
     "so on, as llama.cpp names them, and the first one is the model to load; if one file is enough, it is NAME.gguf. "
     "With any other name OUT is a directory of such parts. For a directory of safetensors OUT is a directory, with an "
     "index and the other files.\n\nA part is at most SIZE long. A tensor that is larger has a part to itself, and so "
     "has metadata that leaves no space for tensors. A checkpoint in several files is divided again.",
     FOR_SPLIT, true, 1, split_command},
    {"Convert", "merge", "MODEL OUT", "Merge the files of a checkpoint into one.",
     "MODEL is any part of a GGUF file, or a directory. OUT is a GGUF file, or a directory with model.safetensors; it "
     "is also a directory if MODEL is one with GGUF files and OUT does not end with .gguf. Every tensor is copied bit "
     "for bit.",
     FOR_MERGE, true, 1, merge_command},
    {"Inspect", "info", "MODEL", "Show a checkpoint and the memory that it needs.", NULL, FOR_INFO, true, 0,
     info_command},
    {"Inspect", "tokenize", "MODEL [TEXT]", "Print the token ids of a text.",
     "Without TEXT standard input is read. Special tokens in the text are recognized.", FOR_TOKENIZE, true, 1,
     tokenize_command},
    {"Inspect", "detokenize", "MODEL ID...", "Print the text of token ids.",
     "Without ids they are read from standard input.", FOR_DETOKENIZE, true, -1, detokenize_command},
    {"Inspect", "template", "MODEL|--template FILE [PROMPT]",
     "Print the prompt that hearth run makes of a conversation.",
     "The conversation is PROMPT, or that of --messages: a JSON list of messages, or an object as chat clients send "
     "it. "
     "The template is that of a checkpoint, with its BOS and EOS tokens, or a file. --answer parses an answer of a "
     "model by the tool-call format of the template.",
     FOR_TEMPLATE, true, 1, template_command},
    {"Inspect", "logits", "MODEL --ids 1,2,3 --out FILE.npy",
     "Write the logits after every position, float32 [ids, vocabulary].", NULL, FOR_LOGITS, true, 0, logits_command},
    {"Inspect", "inspect", "MODEL [PROMPT] --out FILE.npz", "Write keys, values, queries and attention weights.",
     "The file has \"layer.3.k\", float32 [kv heads, tokens, head size], for every layer: keys after RoPE, before the "
     "cache rounds them. --v and --q add values and queries, --attention \"layer.3.attention\", [heads, tokens, "
     "tokens]. Layers that share the keys of an earlier layer have none; --json names that layer. The prompt is in the "
     "chat format of the model, except with --raw.",
     FOR_INSPECT, true, 1, inspect_command},
    {"Inspect", "eval", "MODEL --text FILE [--kl-vs MODEL2]", "Compute the perplexity of a text, and KL divergence.",
     "The text is encoded as a whole and split into windows of --ctx tokens without overlap, each computed on its own, "
     "and each with BOS if the checkpoint asks for it. Every token of a window but the first counts, predicted from "
     "all before it; after BOS that is every token of the text. --ids takes the ids as they are, without "
     "BOS.\n\nPerplexity is exp of the mean of -log p. Errors are standard errors that treat tokens as independent. "
     "With a second model, KL is the mean of sum p log(p / q) in nats, where p is the second model; \"same top\" is "
     "the share of tokens for which both have the same most likely token.",
     FOR_EVAL, true, 0, eval_command},
    {"Models", "pull", "ORG/REPO[:QUANTIZATION]", "Fetch a model from the Hugging Face hub.",
     "The name is ORG/REPO, ORG/REPO:Q4_K_M or ORG/REPO/FILE.gguf, and @REVISION after it selects a revision other "
     "than main. A repository of safetensors is fetched with its configuration and tokenizer; from one with GGUF files "
     "Q4_K_M is fetched unless another quantization is named. Every command then takes ORG/REPO, or ORG/REPO:Q4_K_M, "
     "as MODEL.\n\nFiles are checked by the hashes of the hub, and the model appears once it is complete. Interrupted "
     "downloads resume: run the command again. For a model that is already there, it fetches what has changed. "
     "HF_ENDPOINT sets another hub; HF_TOKEN, or the token file of the tools of the hub, is used for private and gated "
     "models. No other command uses the network.",
     FOR_PULL, false, 1, pull_command},
    {"Models", "list", "", "List the models in the cache.",
     "Every command takes these names as MODEL. The cache is ~/.cache/hearth/models, or $XDG_CACHE_HOME/hearth/models.",
     FOR_LIST, false, 0, list_command},
    {"Models", "rm", "NAME...", "Remove models from the cache.",
     "Names are those of hearth list and of hearth pull; interrupted downloads are removed, too. Files outside the "
     "cache are never removed.",
     FOR_RM, false, -1, rm_command},
    {"Models", "discover", "DIR", "List the checkpoints under a directory.",
     "Directories are searched recursively, except hidden ones. Files that cannot be read are listed with the reason.",
     FOR_DISCOVER, false, 1, discover_command},
    {"Other", "bench", "MODEL [-p 512] [-n 128] [-t N] [-r 5]", "Measure the speed of prefill and decoding.",
     "Each speed is followed by its share of the speed of the machine, measured right before and after it on the same "
     "threads. For prefill that is two operations per weight and token at the peak of a loop with all operands in "
     "registers; for decoding, the bytes of all matrices that a token is multiplied with, at the speed of reading a "
     "buffer of the same size, so that caches help both alike. Decoding takes the most likely tokens unless "
     "--temperature is given.",
     FOR_BENCH, true, 0, bench_command},
    {"Other", "doctor", "[--json]", "Show what this machine offers, measured, and what is missing.", NULL, FOR_DOCTOR,
     false, 0, doctor_command},
    {"Other", "formats", "[--markdown]", "List the families, weight types and chat formats of this build.", NULL,
     FOR_FORMATS, false, 0, formats_command},
    {"Other", "completion", "bash|zsh|fish", "Print the completions for a shell.",
     "For one session: eval \"$(hearth completion bash)\", or in fish: hearth completion fish | source. cmake "
     "--install puts them where the shells look.",
     FOR_COMPLETION, false, 1, completion_command},
    {"Other", "man", "[COMMAND]", "Show a manual page.",
     "On a terminal the page is shown by man, or as plain text. Elsewhere it is printed as roff.", FOR_MAN, false, 1,
     man_command},
};
const int command_count = sizeof command_table / sizeof *command_table;

const command *command_named(const char *name) {
    for (int i = 0; i < command_count; i++)
        if (strcmp(command_table[i].name, name) == 0) return &command_table[i];
    return NULL;
}

void commands_help(void) {
    printf("hearth runs language models on this machine.\n");
    for (int i = 0; i < command_count; i++) {
        const command *c = &command_table[i];
        if (i == 0 || strcmp(c->group, command_table[i - 1].group) != 0) printf("\n%s:\n", c->group);
        char left[32];
        snprintf(left, sizeof left, "  %s", c->name);
        output_entry(left, 16, c->summary);
    }
    output_paragraphs("hearth COMMAND --help shows the options of a command, hearth --version the version.");
}
