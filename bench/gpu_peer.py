"""What torch takes for the matrix products of a prompt of 2048 tokens of Llama 3.1 8B in bf16, as JSON; says so where it is not installed."""

import json
import time

# Rows and columns of a layer's matrices, which are there 32 times.
SHAPES = [(4096, 4096), (1024, 4096), (1024, 4096), (4096, 4096), (14336, 4096), (14336, 4096), (4096, 14336)]
TOKENS, LAYERS, ROUNDS = 2048, 32, 5


def measure(torch):
    weights = [[torch.randn(*shape, dtype=torch.bfloat16, device="cuda") for shape in SHAPES] for _ in range(LAYERS)]
    x = {columns: torch.randn(TOKENS, columns, dtype=torch.bfloat16, device="cuda") for columns in (4096, 14336)}
    best = float("inf")
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for layer in weights:
            for w in layer:
                x[w.shape[1]] @ w.T
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - begin)
    products = TOKENS * LAYERS * sum(rows * columns for rows, columns in SHAPES)
    return f"{TOKENS / best:.0f} tokens/s, {2 * products / best / 1e12:.0f} T operations/s (torch {torch.__version__})"


def main():
    try:
        import torch

        text = measure(torch) if torch.cuda.is_available() else "torch has no GPU"
    except ImportError:
        text = "not installed"
    print(json.dumps({"text": text}))


if __name__ == "__main__":
    main()
