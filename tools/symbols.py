#!/usr/bin/env python3
"""Writes tools/symbols.txt: the symbols that the shared library exports, as the headers declare them.

    python3 tools/symbols.py                    writes it
    python3 tools/symbols.py --check LIBRARY    compares headers, list and library (by nm), and the library's name with
                                                HT_ABI_VERSION; ends with 1 when they differ

The list is kept so that a symbol comes or goes on purpose."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADERS, LIST = ROOT / "include/hearth", ROOT / "tools/symbols.txt"
BY_THE_LINKER = {"__bss_start", "_edata", "_end", "_fini", "_init"}
HOW = """
On purpose? Run tools/symbols.py and commit tools/symbols.txt. A symbol that went, or whose arguments or structs changed, also
needs a new HT_ABI_VERSION (include/hearth/version.h), as programs that use it have to be compiled anew."""


def declared():
    """What the headers declare with HT_API."""
    names = set()
    for path in HEADERS.glob("*.h"):
        text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
        text = re.sub(r"^#.*$", "", text, flags=re.M)
        for declaration in re.findall(r"\bHT_API\b([^;]*);", text):
            function = re.match(r"[^(]*?(\w+)\s*\(", declaration)
            names.add(function[1] if function else re.findall(r"\w+", declaration)[-1])
    return names


def exported(library):
    lines = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout.splitlines()
    return {line.split()[-1] for line in lines} - BY_THE_LINKER


def soname(library):
    text = subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True).stdout
    return re.search(r"SONAME.*\[(.*)\]", text)[1]


def differences(names, others, what):
    return [f"{name}: {what}" for name in sorted(names - others)]


def main():
    if "--check" not in sys.argv[1:]:
        LIST.write_text("".join(f"{name}\n" for name in sorted(declared())))
        return
    library = sys.argv[-1]
    listed = set(LIST.read_text().split())
    wrong = differences(exported(library), listed, "exported, but not in tools/symbols.txt")
    wrong += differences(listed, exported(library), "in tools/symbols.txt, but not exported")
    wrong += differences(declared(), listed, "declared in a header, but not in tools/symbols.txt")
    wrong += differences(listed, declared(), "in tools/symbols.txt, but declared in no header")
    if wrong:
        sys.exit("\n".join(wrong) + HOW)
    version = re.search(r"#define HT_ABI_VERSION (\d+)", (HEADERS / "version.h").read_text())[1]
    if soname(library) != f"libhearth.so.{version}":
        sys.exit(f"the library is called {soname(library)}, but HT_ABI_VERSION is {version}")


if __name__ == "__main__":
    main()
