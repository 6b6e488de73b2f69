"""Every #include in src/ and apps/ goes down the table of docs/architecture.md, or stays in its layer, where no two folders include
each other, whatever the way round; the command sees public headers, the base, the readers of JSON and conversations and the server alone, the server public headers, the base, the readers of
JSON and conversations and HTTP, which of the base takes what is a header alone, the plain reference no vector source, and nothing above the devices a thread pool. Run from the repository root, without arguments."""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent
rows = [line for line in (root / "docs/architecture.md").read_text().splitlines() if re.match(r"\| \w+ \| `(apps|src)/", line)]
height = {folder: -i for i, row in enumerate(rows) for folder in re.findall(r"`((?:apps|src)/\w+)/`", row)}

wrong = []
for source in sorted([*root.glob("src/**/*.[ch]"), *root.glob("apps/**/*.[ch]")]):
    name = source.relative_to(root)
    folder = "/".join(name.parts[:2])
    if folder not in height:
        wrong.append(f"{name}: {folder}/ is in no layer of docs/architecture.md")
        continue
    for number, line in enumerate(source.read_text().splitlines(), 1):
        included = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if not included or (source.parent / included[1]).exists():
            continue
        other = "src/" + included[1].split("/")[0]
        public_only = folder.startswith("apps/") and other not in ("src/serve", "src/base") and included[1] not in ("formats/json.h", "chat/reader.h")
        if folder == "src/http" and (other != "src/base" or (root / "src" / included[1]).with_suffix(".c").exists()):
            public_only = other != folder
        if folder == "src/serve":
            public_only = other not in ("src/serve", "src/http", "src/base") and included[1] not in ("formats/json.h", "chat/reader.h")
        if public_only or other not in height or height[other] > height[folder]:
            wrong.append(f"{name}:{number}: {folder}/ may not include {included[1]}")

# Folders of one layer, subfolders by themselves: which includes which.
uses = {}
for source in root.glob("src/**/*.[ch]"):
    folder = source.parent.relative_to(root / "src").as_posix()
    for included in re.findall(r'^\s*#\s*include\s+"([^"]+)"', source.read_text(), re.M):
        other = pathlib.PurePosixPath(included).parent.as_posix()
        # The table of the routes is the one place that knows all dialects.
        if source.name == "routes.c" and folder == "serve":
            continue
        if other != folder and (root / "src" / included).exists():
            uses.setdefault(folder, {}).setdefault(other, f"{source.relative_to(root)} includes {included}")


def find_circle(path):
    for other in uses.get(path[-1], {}):
        if other in path:
            return path[path.index(other):] + [other]
        if other not in done:
            circle = find_circle(path + [other])
            if circle:
                return circle
    done.add(path[-1])


done = set()
for folder in sorted(uses):
    circle = folder not in done and find_circle([folder])
    if circle:
        wrong.append(" -> ".join(circle) + ": " + "; ".join(uses[a][b] for a, b in zip(circle, circle[1:])))
        break
if "cpu/vector" in uses.get("cpu/reference", {}):
    wrong.append("the reference is independent of the vector kernels: " + uses["cpu/reference"]["cpu/vector"])

# Who computes, with how many threads and where, is the devices' business.
for source in root.glob("src/**/*.[ch]"):
    folder = source.relative_to(root / "src").parts[0]
    if folder in ("array", "ops", "checkpoint", "models", "tokenizer", "template", "chat", "generate", "analysis", "train", "backends"):
        for number, line in enumerate(source.read_text().splitlines(), 1):
            if re.search(r"\bht_pool(?!ing)|base/pool\.h", line):
                wrong.append(f"{source.relative_to(root)}:{number}: threads are behind ht_device.run_on_host")

print("\n".join(wrong) or f"{len(height)} folders, every include points down")
sys.exit(1 if wrong or len(height) < 2 else 0)
