"""Every #include in src/ and apps/ goes down the table of docs/layout.md, or stays in its layer; the command sees public
headers alone. Run from the repository root, without arguments."""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent
rows = [line for line in (root / "docs/layout.md").read_text().splitlines() if re.match(r"\| \w+ \| `(apps|src)/", line)]
height = {folder: -i for i, row in enumerate(rows) for folder in re.findall(r"`((?:apps|src)/\w+)/`", row)}

wrong = []
for source in sorted([*root.glob("src/**/*.[ch]"), *root.glob("apps/**/*.[ch]")]):
    name = source.relative_to(root)
    folder = "/".join(name.parts[:2])
    if folder not in height:
        wrong.append(f"{name}: {folder}/ is in no layer of docs/layout.md")
        continue
    for number, line in enumerate(source.read_text().splitlines(), 1):
        included = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if not included or (source.parent / included[1]).exists():
            continue
        other = "src/" + included[1].split("/")[0]
        public_only = folder.startswith("apps/")
        if public_only or other not in height or height[other] > height[folder]:
            wrong.append(f"{name}:{number}: {folder}/ may not include {included[1]}")

print("\n".join(wrong) or f"{len(height)} folders, every include points down")
sys.exit(1 if wrong or len(height) < 2 else 0)
