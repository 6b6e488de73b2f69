/* Known template fingerprints: published templates whose output equals that of `transformers` over some 250
 * conversations each. Rows are generated and verified by tests/golden/check_templates.py. */
#include "models/template.h"

#include <stddef.h>

static const struct {
    uint64_t fingerprint;
    const char *format;
    unsigned dialect;
} known[] = {
    /* clang-format off */
    /* chatml */
    {0x2b5c30fef08cad73, "chatml", 0}, /* Qwen2.5 */
    {0x6eb42139c8ca7ba5, "chatml", HT_CHATML_DROPS_THOUGHTS | HT_CHATML_THINKS | HT_CHATML_NO_THOUGHT}, /* QwQ, with enable_thinking */
    {0x7299cf1f6e897aba, "chatml", HT_CHATML_DROPS_THOUGHTS | HT_CHATML_THINKS}, /* QwQ */
    {0x5ede443142401a74, "chatml", HT_CHATML_DROPS_THOUGHTS | HT_CHATML_QWEN3}, /* Qwen3 */
    {0x4766088824b1346a, "chatml", 0}, /* Qwen3-Coder */
    {0x95a69fb1177d8adc, "chatml", HT_CHAT_BOS | HT_CHATML_DROPS_THOUGHTS | HT_CHATML_QWEN3 | HT_CHATML_THINKS}, /* Step 3.5 Flash */
    {0x2cf7165100bc7a36, "chatml", HT_CHAT_BOS | HT_CHATML_DROPS_THOUGHTS | HT_CHATML_QWEN3}, /* MiniCPM5 */
    {0xd465a8420102caa3, "chatml", 0}, /* Qwen2, SmolLM2 */
    {0x105b96736170b2bf, "chatml", 0}, /* plain */
    {0x3dfaca0a7e8cb926, "chatml", 0}, /* MiniCPM-V 2.6 */
    {0x004ce85d873f6743, "chatml", 0}, /* plain, role by role */
    {0x75b5d8bdfacfa161, "chatml", 0}, /* Qwen2.5, of fine-tunes */
    {0x034d9a3602201ed3, "chatml", HT_CHATML_DROPS_THOUGHTS | HT_CHATML_QWEN3}, /* Qwen3, of fine-tunes */
    {0xcc8d9cc4bd945e35, "chatml", HT_CHATML_DROPS_THOUGHTS | HT_CHATML_QWEN3}, /* Qwen3 Instruct 2507, of fine-tunes */
    {0x0b1871b02e538abb, "chatml", HT_CHATML_DROPS_THOUGHTS | HT_CHATML_QWEN3 | HT_CHATML_THINKS}, /* Qwen3 Thinking 2507 */
    {0xc210043be7d4b1db, "chatml", HT_CHAT_BOS}, /* plain, behind BOS */
    {0x8ce4c186383a9855, "chatml", 0}, /* Yi */
    {0x3f88c40718cd1c42, "chatml", 0}, /* Qwen2-VL */
    {0xc77a2937ebdc73c3, "chatml", 0}, /* Qwen3 Instruct 2507, for training */
    {0xf7f8ef568d602db7, "chatml", 0}, /* Qwen2.5, for training */
    {0x96fa84de1b948de8, "chatml", 0}, /* Qwen3 Instruct 2507 */
    {0x49221fb14a819fd6, "chatml", HT_CHATML_DROPS_THOUGHTS | HT_CHATML_QWEN3}, /* Qwen3, latest */
    {0x4f1698df5c61d12b, "chatml", 0}, /* Qwen2.5-VL, for training */
    {0xd76c63124865316d, "chatml", 0}, /* a default system text, add_generation_prompt by default */
    {0xbd04284bfe936449, "chatml", HT_CHATML_QWEN3}, /* Qwen1.5 */
    /* gemma */
    {0x3bc3db6f7f5efe9c, "gemma", HT_CHAT_BOS}, /* Gemma 2 */
    {0x2276f22382ad2460, "gemma", 0}, /* Gemma 1, in GGUF files */
    {0x4dfc14e644912cd5, "gemma", HT_CHAT_BOS}, /* Gemma 3 */
    {0xdb231cd47c69a75f, "gemma", HT_CHAT_BOS}, /* Gemma 3n */
    {0x9a0b1475998cc9f5, "gemma", HT_CHAT_BOS}, /* Gemma 3, for training */
    {0xfe603049a659d2ba, "gemma", HT_CHAT_BOS}, /* Gemma 2, for training */
    /* gemma4 */
    {0x69ed3c345d283a3b, "gemma4", HT_CHAT_BOS | HT_GEMMA4_NO_THOUGHT}, /* Gemma 4, interleaved */
    {0x300860273fea4ece, "gemma4", HT_CHAT_BOS | HT_GEMMA4_JOINS | HT_GEMMA4_NO_THOUGHT}, /* Gemma 4 31B */
    {0x6d67b9902548acf4, "gemma4", HT_CHAT_BOS | HT_GEMMA4_NO_THOUGHT}, /* Gemma 4, in GGUF files */
    {0x5ba44f55027b5af0, "gemma4", 0}, /* Gemma 4, of fine-tunes */
    {0xca59524f2e53f247, "gemma4", HT_GEMMA4_NO_THOUGHT}, /* Gemma 4, of fine-tunes that think */
    {0xd4e21200a9d746d2, "gemma4", HT_CHAT_BOS | HT_GEMMA4_ONE_TURN}, /* Gemma, diffusion */
    {0x74aed4edf192b1dc, "gemma4", HT_CHAT_BOS | HT_GEMMA4_ONE_TURN}, /* Gemma 4, fifth edition */
    {0x01145d187d22b97a, "gemma4", HT_CHAT_BOS | HT_GEMMA4_JOINS}, /* Gemma 4, third edition */
    {0x7201f5d85fd13406, "gemma4", HT_CHAT_BOS}, /* Gemma 4, second edition */
    {0xbbff99cae2f8a7ad, "gemma4", HT_CHAT_BOS | HT_GEMMA4_ONE_TURN}, /* Gemma, diffusion, for training */
    {0x6f2f1f385fb9678d, "gemma4", HT_CHAT_BOS | HT_GEMMA4_JOINS}, /* Gemma 4, first edition */
    {0x5186cf136b9d14ca, "gemma4", HT_CHAT_BOS | HT_GEMMA4_JOINS}, /* Gemma 4, fourth edition */
    /* llama3 */
    {0x7b0741d1445aa358, "llama3", HT_CHAT_BOS | HT_LLAMA3_DATES}, /* Llama 3.1, 3.3 */
    {0xfadff7824934d246, "llama3", HT_CHAT_BOS | HT_LLAMA3_DATES}, /* Llama 3.2 */
    {0x175a541c855ed07e, "llama3", HT_CHAT_BOS}, /* Llama 3 */
    {0xeb8771927f6e924c, "llama3", HT_CHAT_BOS}, /* Llama 3, the turn opened always */
    {0xff6fe2eb1cdfd00f, "llama3", HT_CHAT_BOS}, /* Llama 3, role by role */
    {0x644e842d15eeaffe, "llama3", HT_CHAT_BOS}, /* Llama 3, add_generation_prompt by default */
    {0xd18bd5993ca54775, "llama3", HT_CHAT_BOS}, /* Llama 3, for training */
    /* deepseek */
    {0x37b3caf525e47481, "deepseek", HT_CHAT_BOS | HT_DEEPSEEK_THINKS}, /* R1 distills */
    {0x0d3582e0033fad23, "deepseek", HT_CHAT_BOS | HT_DEEPSEEK_THINKS | HT_DEEPSEEK_NO_THOUGHT}, /* R1 distills, with enable_thinking */
    /* llama2 */
    {0x0fe3640dce15c729, "llama2", HT_CHAT_BOS | HT_LLAMA2_BOS_AGAIN}, /* Llama 2 */
    {0xec60db250cc8f81d, "llama2", HT_CHAT_BOS | HT_LLAMA2_BOS_AGAIN}, /* Llama 2, with the filter trim */
    /* mistral */
    {0xa7c8af320471900e, "mistral", HT_CHAT_BOS | 7 << HT_MISTRAL_SHIFT}, /* Mistral Small 3.2 */
    {0xd4a303efcada647c, "mistral", HT_CHAT_BOS | 7 << HT_MISTRAL_SHIFT}, /* Ministral 3 */
    {0x1abac8ac8dcdf904, "mistral", HT_CHAT_BOS | 5 << HT_MISTRAL_SHIFT}, /* Mistral Nemo 2407 */
    {0x288a18b43b33223a, "mistral", HT_CHAT_BOS | 8 << HT_MISTRAL_SHIFT}, /* Devstral Small 2507 */
    {0xe034ec3fbf845c6f, "mistral", HT_CHAT_BOS | 2 << HT_MISTRAL_SHIFT}, /* Mistral 7B v0.2, Mixtral */
    {0xdb8c4ebd17317fc9, "mistral", HT_CHAT_BOS | 3 << HT_MISTRAL_SHIFT}, /* Mistral 7B v0.2 with system messages */
    {0xffae8b8eee0186b1, "mistral", HT_CHAT_BOS | 4 << HT_MISTRAL_SHIFT}, /* Mistral Large 2407 */
    {0x22e6448cdbb9a533, "mistral", HT_CHAT_BOS | 6 << HT_MISTRAL_SHIFT}, /* Mistral Large 2411 */
    {0x051ccc883f6b1867, "mistral", HT_CHAT_BOS | 1 << HT_MISTRAL_SHIFT}, /* Mistral 7B v0.1 */
    {0x99473281a10a546f, "mistral", HT_CHAT_BOS | 3 << HT_MISTRAL_SHIFT}, /* Mistral 7B v0.1, tokenizer v1 */
    {0x76613929a8803d53, "mistral", HT_CHAT_BOS | 9 << HT_MISTRAL_SHIFT}, /* Mistral 7B v0.3 */
    {0x1b9aafe3fad3ff0f, "mistral", HT_CHAT_BOS | 0 << HT_MISTRAL_SHIFT}, /* Mistral Nemo without system messages */
    {0xa6d3bc1105dd58fd, "mistral", HT_CHAT_BOS | 5 << HT_MISTRAL_SHIFT}, /* Pixtral */
    /* clang-format on */
};

void ht_template_find(ht_template *t) {
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].fingerprint == t->fingerprint) {
            t->format = known[i].format;
            t->dialect = known[i].dialect;
        }
}
