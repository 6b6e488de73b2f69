/* Trains a LoRA adapter on a file of samples, evaluates it on another, and saves it in PEFT's format:
 *
 *     cc finetune.c $(pkg-config --cflags --libs hearth) -o finetune
 *     ./finetune model.gguf train.jsonl valid.jsonl adapter
 *     hearth run model.gguf --adapter adapter "..." */
#include <hearth/hearth.h>

#include <stdio.h>

enum { EPOCHS = 2, EVERY = 10 };

static ht_status open_trainer(ht_model *model, const char *data, const char *valid, ht_trainer **trainer,
                              ht_error *err) {
    ht_lora_options lora;
    ht_lora_options_init(&lora, sizeof lora);
    lora.rank = 8;
    lora.targets = "q_proj,v_proj";
    ht_trainer_options options;
    ht_trainer_options_init(&options, sizeof options);
    options.lora = &lora;
    options.data = data;
    options.valid = valid;
    options.epochs = EPOCHS;
    options.max_length = 256;
    options.learning_rate = 5e-4;
    options.schedule = HT_SCHEDULE_COSINE;
    return ht_trainer_new(model, &options, trainer, err);
}

/* Takes all steps, with a line for every tenth and the last one. */
static ht_status train(ht_trainer *trainer, ht_error *err) {
    ht_trainer_plan plan;
    ht_trainer_describe(trainer, &plan);
    printf("%lld samples, %lld parameters in %d projections\n", (long long)plan.data->n_samples,
           (long long)plan.n_parameters, plan.n_projections);
    ht_status st = HT_OK;
    for (int64_t i = 0; !st && i < plan.iters; i++) {
        ht_train_step step;
        st = ht_trainer_step(trainer, &step, err);
        if (!st && (step.iter % EVERY == 0 || step.iter == plan.iters))
            printf("iter %lld/%lld  loss %.4f  lr %.3g\n", (long long)step.iter, (long long)plan.iters, step.loss,
                   step.learning_rate);
    }
    return st;
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: %s MODEL TRAIN.jsonl VALID.jsonl ADAPTER\n", argv[0]);
        return 2;
    }
    ht_error err = {0};
    ht_model *model = NULL;
    ht_trainer *trainer = NULL;
    ht_adapter *adapter = NULL;
    double before = 0, after = 0;
    ht_status st = ht_model_load(argv[1], NULL, &model, &err);
    if (!st) st = open_trainer(model, argv[2], argv[3], &trainer, &err);
    if (!st) st = ht_trainer_evaluate(trainer, &before, &err);
    if (!st) st = train(trainer, &err);
    if (!st) st = ht_trainer_evaluate(trainer, &after, &err);
    if (!st) st = ht_trainer_adapter(trainer, &adapter, &err);
    if (!st) st = ht_adapter_save(adapter, model, argv[4], HT_ADAPTER_PEFT, &err);
    if (st)
        fprintf(stderr, "%s\n", err.message);
    else
        printf("held-out loss %.4f before, %.4f after\n", before, after);
    ht_adapter_free(adapter);
    ht_trainer_free(trainer);
    ht_model_free(model);
    return st ? 1 : 0;
}
