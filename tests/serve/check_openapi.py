"""What /openapi.json says of `hearth serve`, checked against the server by schemathesis: what it describes is taken, what it rules out is
refused, with the statuses and types that it names, and what comes back is as described, events of streams included. Lines of streams are left
to check_answers.py, which has answers of every kind.

    HEARTH=build/release/bin/hearth build/openapi/bin/python tests/serve/check_openapi.py [OPTION OF schemathesis...]
"""

import os
import pathlib
import shutil
import subprocess
import sys

from support import PlainServer, variant
from test_serve_rerank import ROLES
from tool_model import TEMPLATE

HERE = pathlib.Path(__file__).resolve().parent
MARKS = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]


def main(options):
    folder = variant("tiny.gguf", special=MARKS, template=TEMPLATE).parent / "slots"
    folder.mkdir()
    models = folder.parent / "more"
    models.mkdir()
    variant(models / "reranker.gguf", words=["yes", "no"], template=ROLES)
    server = PlainServer(folder.parent / "tiny.gguf", "--models", models, "--context", "2048", "--slots-directory", str(folder))
    command = [
        shutil.which("schemathesis", path=pathlib.Path(sys.executable).parent), "run", server.url + "/openapi.json", "--no-color",
        "--continue-on-failure", "--exclude-checks", "ignored_auth", *options,
    ]
    env = {**os.environ, "SCHEMATHESIS_HOOKS": "openapi_hooks", "PYTHONPATH": str(HERE)}
    status = subprocess.run(command, env=env, cwd=folder.parent).returncode
    server.stop()
    return status


sys.exit(main(sys.argv[1:]))
