/* The table of all commands. */
#include "command.h"

const command command_table[] = {
    {"chat", "MODEL [PROMPT]", "Talk with a model.",
     "A line is a message; pasted lines are one, and so is what stands between \"\"\" and \"\"\". What begins with / "
     "is a command:\n"
     "/help lists them. Ctrl-C stops an answer, twice it ends the program, as Ctrl-D does at an empty line. Keys and "
     "values of\n"
     "earlier turns are kept, so that only what is new is computed. Standard input that is no terminal is read line by "
     "line; after\n"
     "PROMPT all of it belongs to that one message.",
     FOR_CHAT, true, 1, chat_command},
    {"run", "MODEL [PROMPT]", "Answer one prompt.",
     "Without PROMPT and --messages the prompt is read from standard input. It is written as the model's chat template "
     "says, when "
     "there "
     "is\n"
     "one; --messages puts a whole conversation before it. A terminal shows thoughts dimmed; elsewhere they are left "
     "out.",
     FOR_RUN, true, 1, run_command},
    {"serve", "MODEL|--models DIR", "Serve models over HTTP.",
     "Clients of OpenAI's, Anthropic's and Ollama's interfaces can talk to it, and a page for browsers is at /. "
     "Requests go "
     "through\none engine, side by side, and share what their prompts have in common. Requests without sampling "
     "values "
     "have those\nof the command line, else the model's. SIGTERM ends the server once "
     "requests are "
     "answered; SIGHUP\nopens logs and certificates anew.",
     FOR_SERVE, false, 1, serve_command},
    {"info", "MODEL", "Show what a checkpoint is and the memory it needs.", NULL, FOR_INFO, true, 0, info_command},
    {"discover", "DIR", "List the checkpoints under a directory.",
     "Directories are searched recursively, but for hidden ones. What cannot be read is listed with the reason.",
     FOR_DISCOVER, false, 1, discover_command},
    {"list", "", "List the models in the cache.",
     "Every command takes their names in the place of a path. The cache is ~/.cache/hearth/models, or where "
     "XDG_CACHE_HOME says.",
     FOR_LIST, false, 0, list_command},
    {"pull", "ORG/REPO[:QUANTIZATION]", "Fetch a model from the Hugging Face hub into the cache.",
     "NAME is ORG/REPO, ORG/REPO:Q4_K_M or ORG/REPO/FILE.gguf, behind it @REVISION for another than main. A repository "
     "of "
     "safetensors is\n"
     "fetched with config.json and tokenizer, but nothing of other libraries. Of one with GGUF files it is Q4_K_M "
     "unless "
     "another\n"
     "quantisation is named; a model in several files is fetched whole. Every command then takes ORG/REPO, or "
     "ORG/REPO:Q4_K_M,\n"
     "in the place of a path.\n\n"
     "Files are checked by the hashes that the hub lists, and the model appears when all of it is there. An "
     "interrupted "
     "command\n"
     "goes on where it was when it is given again; given for a model that is there, it fetches what has changed. "
     "HF_ENDPOINT names\n"
     "another hub, HF_TOKEN is the token for private and gated models (or the file that the hub's own tools write). "
     "Nothing but this\n"
     "command uses the network.",
     FOR_PULL, false, 1, pull_command},
    {"rm", "NAME...", "Remove models from the cache.",
     "Names are those of hearth list and of hearth pull, of which it also removes what has come of an interrupted one; "
     "other files are\nnever removed.",
     FOR_RM, false, -1, rm_command},
    {"tokenize", "MODEL [TEXT]", "Print the token ids of a text.",
     "Without TEXT standard input is read. Special tokens written in the text are recognised.", FOR_TOKENIZE, true, 1,
     tokenize_command},
    {"detokenize", "MODEL ID...", "Print the text of token ids.", "Without ids they are read from standard input.",
     FOR_DETOKENIZE, true, -1, detokenize_command},
    {"template", "MODEL|--template FILE --messages FILE", "Print a conversation as a chat template writes it.",
     "The messages are a JSON list, or an object as chat clients send it, whose members are the template's variables:\n"
     "messages, tools and any others. The template is a checkpoint's own, with its BOS and EOS tokens, or that of a "
     "file.\n"
     "With --answer, what a model would have answered is taken apart as the template's notations say.",
     FOR_TEMPLATE, true, 0, template_command},
    {"finetune", "MODEL --data FILE.jsonl --out DIR", "Train a LoRA adapter on the model's weights as they are.",
     "A line of the data is {\"messages\": [...]}, {\"prompt\": ..., \"completion\": ...}, {\"text\": ...} or\n"
     "{\"input_ids\": [...], \"labels\": [...]}. Answers are learned, with the token that ends them, in the model's "
     "own\n"
     "chat format. DIR becomes the adapter, which `hearth run MODEL --adapter DIR` uses: the best one on --valid, or "
     "the\n"
     "last. DIR.training holds the last one, and the checkpoints from which --resume goes on bit-exactly; Ctrl-C "
     "saves\n"
     "one. --config takes the options from a file.",
     FOR_FINETUNE, true, 0, finetune_command},
    {"adapter", "info ADAPTER | convert IN OUT --to FORMAT", "Show a LoRA adapter, or convert it to another format.",
     "An adapter is a directory of PEFT or mlx-lm, or a GGUF file. Converted, all pairs have one rank and one scale, "
     "in\n"
     "float32, which every reader takes. GGUF names the tensors of its model and, in some families, orders the rows of "
     "q "
     "and\n"
     "k by its heads: --model is needed then.",
     FOR_ADAPTER, false, 3, adapter_command},
    {"fuse", "MODEL --adapter [NAME=]PATH[@X] OUT", "Write a checkpoint with adapters merged into its weights.",
     "OUT is a GGUF file when MODEL is one, else a directory, with the files that are beside the weights. Only weights "
     "that\n"
     "change are written as floats, where the format can mix both; fp8 and NVFP4 checkpoints become floats as a "
     "whole.\n"
     "--quantize rounds again, which may lose what was learned: the result says how much of the change is left.",
     FOR_FUSE, true, 1, fuse_command},
    {"convert", "MODEL OUT --to gguf|safetensors|mlx", "Write a checkpoint in another container.",
     "gguf is a file as llama.cpp reads it; safetensors and mlx are directories as transformers and mlx-lm read them. "
     "Values stay\n"
     "what they are: weights keep their type where OUT has it, and quantised ones become floats where it has none for "
     "them, f32\n"
     "without --dtype. Configuration, tokenizer and chat template go over; what OUT cannot say is an error that names "
     "it.\n"
     "hearth quantize goes from one container to the other, too.",
     FOR_CONVERT, true, 1, convert_command},
    {"quantize", "MODEL OUT --to TYPE", "Write a checkpoint with its weights rounded to fewer bits.",
     "OUT is a GGUF file when it is called so (.gguf) or MODEL is one, a directory in MLX's format when TYPE is one of "
     "MLX's "
     "or MODEL\n"
     "is a directory, with the files that are beside the weights.\n"
     "TYPE is for GGUF Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q6_K, IQ4_NL, IQ4_XS, MXFP4, F16, BF16, F32, or a mix: Q2_K, "
     "Q2_K_S, Q3_K_S,\n"
     "Q3_K_M, Q3_K_L, Q4_K_S, Q4_K_M, Q5_K_S, Q5_K_M; for MLX a number of bits with the columns of a group, 4 or 4:32, "
     "or mxfp4.\n"
     "Rounding an already rounded checkpoint again adds up both errors: take the one with the most bits that there is.",
     FOR_QUANTIZE, true, 1, quantize_command},
    {"split", "MODEL OUT --max-size SIZE", "Write a checkpoint in several files.",
     "Every tensor is copied, bit for bit. Of a GGUF file OUT is NAME.gguf: the parts are NAME-00001-of-00003.gguf and "
     "so on, as\n"
     "llama.cpp calls them, and the first one is the model to load. With any other name OUT is a directory of such "
     "parts. A part is\n"
     "at most SIZE long, but a tensor that is larger has a part of its own, and so has the metadata where it leaves no "
     "room. "
     "Where one\n"
     "file is enough, it is NAME.gguf. Of a directory of safetensors OUT is a directory, with an index and the other "
     "files. "
     "What was\n"
     "split before is shared out anew.",
     FOR_SPLIT, true, 1, split_command},
    {"merge", "MODEL OUT", "Write a checkpoint in one file.",
     "MODEL is any part of a GGUF file, or a directory. OUT is a GGUF file, or a directory with model.safetensors; it "
     "becomes a\n"
     "directory, too, where MODEL is one with GGUF files and OUT does not end with .gguf. Every tensor is copied, bit "
     "for bit.",
     FOR_MERGE, true, 1, merge_command},
    {"imatrix", "MODEL --text FILE --out FILE.gguf", "Write how much each weight column matters to a text.",
     "For each matrix the file has the sums of the squares of its inputs, column by column, as llama.cpp's importance\n"
     "matrix (imatrix) does: quantisers of both read it. The text is encoded as a whole and cut into windows of --ctx\n"
     "tokens, one after the other, each computed by itself; where the checkpoint asks for BOS, every window begins "
     "with "
     "it.\n"
     "A last window that is not full counts when it is at least half of one, or the only one. --ids takes the ids as "
     "they\n"
     "are.\n\n"
     "--from adds to what was gathered before, in either form of llama.cpp's files; without a text the files of --from "
     "are\n"
     "added up. A text that takes long can be computed in parts, with --skip-chunks and --chunks. Every ten windows, "
     "or\n"
     "--save-every N, the file is written with what there is by then, so that an interrupted run goes on from it.",
     FOR_IMATRIX, true, 0, imatrix_command},
    {"logits", "MODEL --ids 1,2,3 --out FILE.npy", "Write the logits after every position, float32 [ids, vocabulary].",
     NULL, FOR_LOGITS, true, 0, logits_command},
    {"inspect", "MODEL [PROMPT] --out FILE.npz", "Write keys, values, queries and attention weights of a prompt.",
     "The file has \"layer.3.k\", float32 [key heads, tokens, head size], for every layer: the keys after RoPE as the "
     "model\n"
     "computes them, before the cache rounds them. --v and --q add values and queries, and --attention\n"
     "\"layer.3.attention\", [heads, tokens, tokens]. Layers that share keys with an earlier one have none of their "
     "own;\n"
     "--json names the owner. The prompt is written as for hearth run, in the model's chat format unless --raw.",
     FOR_INSPECT, true, 1, inspect_command},
    {"embed", "MODEL TEXT... | --prompts FILE", "Turn texts into vectors: their pooled hidden states.",
     "A line for each text, with the values of its vector; --json writes the number of tokens, too, and --out a NumPy "
     "file\n"
     "[texts, hidden]. The vector is the hidden state of the text's last token after the final norm, or the mean of "
     "all,\n"
     "scaled to a length of 1. Texts are encoded as they are, without the chat format. One that fails is named, and "
     "the\n"
     "others go on.",
     FOR_EMBED, true, -1, embed_command},
    {"eval", "MODEL --text FILE [--kl-vs MODEL2]", "Measure how well a model predicts a text.",
     "The text is encoded as a whole and cut into windows of --ctx tokens, one after the other, without overlap; each "
     "is\n"
     "computed by itself. Where the checkpoint asks for BOS, every window begins with it and holds one token of the "
     "text\n"
     "less. Every token of a window but the first one counts: it is predicted from all before it (with BOS, that is "
     "every\n"
     "token of the text). --ids takes the ids as they are, without BOS.\n\n"
     "Perplexity is exp of the mean of -log p; errors are standard errors, as if tokens were independent. With a "
     "second\n"
     "model, KL is the mean of sum p log(p / q) in nats, p being the second model's probabilities, and \"same top\" "
     "the\n"
     "share of tokens for which both find the same one most likely.",
     FOR_EVAL, true, 0, eval_command},
    {"classify", "MODEL --prompts FILE [--labels a,b,c]", "Choose what follows each of many prompts.",
     "A line of FILE is a prompt, or all lines are JSON objects when the first is one: {\"prompt\": \"...\"}, "
     "{\"messages\": [...]} or\n"
     "{\"ids\": [...]}, and \"id\", which the result repeats. Prompts are written in the model's chat format unless "
     "--raw is given.\n"
     "The result of each is a line: the likeliest label with its probability among the labels, or without labels the "
     "likeliest\n"
     "token. Labels of several tokens count as a whole. --json has all labels and log-probabilities.",
     FOR_CLASSIFY, true, 0, classify_command},
    {"batch", "MODEL --prompts FILE [--out FILE.jsonl]", "Answer many prompts, side by side.",
     "A line of FILE is a prompt, or all lines are JSON objects when the first is one: {\"prompt\": \"...\"}, "
     "{\"messages\": [...]} or\n"
     "{\"ids\": [...]}, and \"id\", which the result repeats; max_tokens, temperature, top_k, top_p, min_p, "
     "repeat_penalty,\n"
     "repeat_window, presence_penalty, frequency_penalty, logit_bias, thinking_budget, seed, stop, ignore_eos and n go "
     "before the "
     "options of the command line, and \"adapter\" names one "
     "of --adapter, or\n"
     "with null none. Results are JSON objects, a line each, in the order of prompts. With --out an interrupted batch "
     "goes on\n"
     "where it was.",
     FOR_BATCH, true, 0, batch_command},
    {"score", "MODEL --prompts FILE.jsonl [--top N]", "Tell how likely given texts are after prompts.",
     "A line of FILE is a JSON object: \"prompt\", \"messages\" or \"ids\" as in `hearth batch`, and "
     "\"continuations\", a list of texts or\n"
     "lists of ids. Results are JSON objects, a line each, with the log-probability of each continuation and of its "
     "tokens.",
     FOR_SCORE, true, 0, score_command},
    {"bench", "MODEL [-p 512] [-n 128] [-t N] [-r 5]", "Measure the speed of prefill and decoding.",
     "Each figure is followed by the part of the machine that it is, measured right before and after it on the same\n"
     "threads: of prefill, two operations per weight and token by the peak of a loop with all operands in registers; "
     "of\n"
     "decoding, the bytes of all matrices that a token is multiplied by, by the speed of reading a buffer of the same\n"
     "size, so that a cache helps both alike. Decoding takes the most likely tokens unless --temperature is given.",
     FOR_BENCH, true, 0, bench_command},
    {"formats", "[--markdown]", "List the families, weight types and chat formats that this build reads.", NULL,
     FOR_FORMATS, false, 0, formats_command},
    {"doctor", "[--json]", "Show what this machine offers, measured, and what is missing.", NULL, FOR_DOCTOR, false, 0,
     doctor_command},
    {"completion", "bash|zsh|fish", "Print what completes words of the command in a shell.",
     "For one session: eval \"$(hearth completion bash)\", or in fish: hearth completion fish | source. `cmake "
     "--install` puts them\nwhere the shells look.",
     FOR_COMPLETION, false, 1, completion_command},
    {"man", "[COMMAND]", "Print a manual page.", "To be read by: hearth man run | man -l -", FOR_MAN, false, 1,
     man_command},
};
const int command_count = sizeof command_table / sizeof *command_table;
