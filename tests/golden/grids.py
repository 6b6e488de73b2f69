"""Makes src/formats/codebook_tables.c from the tables of the `gguf` package (gguf.quants).

    python3 tests/golden/grids.py > src/formats/codebook_tables.c      (needs: pip install gguf==0.19.0)"""
from gguf import quants

print("""/* Codebooks of the IQ types, made by tests/golden/grids.py from the tables of gguf 0.19.0 (gguf.quants); do not edit. */
#include "formats/codebook_tables.h"
""")
for name, table in {"iq2_xxs": quants.IQ2_XXS, "iq2_xs": quants.IQ2_XS, "iq2_s": quants.IQ2_S, "iq3_xxs": quants.IQ3_XXS,
                    "iq3_s": quants.IQ3_S, "iq1": quants.IQ1_S}.items():
    table.init_grid()
    values = table.grid.reshape(table.grid_shape)
    bits = 16 // table.grid_shape[1]
    codes = [sum(table.grid_map.index(v) << (bits * i) for i, v in enumerate(row)) for row in values.astype(int)]
    print(f"const uint16_t ht_grid_{name}[{len(codes)}] = {{")
    for i in range(0, len(codes), 14):
        print("    " + ", ".join(f"0x{c:04x}" for c in codes[i : i + 14]) + ",")
    print("};\n" if name != "iq1" else "};")
