#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each lint check must find the fault it is for, and accept the same file without it."""
import pathlib
import sys
import tempfile
import types

import lint
from tree import Tree

LICENCE = "SPDX-License-Identifier: Apache-2.0"
HEAD = f"/* {LICENCE} */\n"
STUB = "#!/bin/sh\nwhile read -r _; do :; done\n[ \"$2\" != config ] || echo table\n"

# check, path of the faulty file, its text, the text that is right, what the message must contain
CASES = [
    ("format", "broker/src/a.c", "int  a;\n", "int a;\n", "broker/src/a.c:1"),
    ("banned", "broker/src/a.c", "int a = atoi(s);\n", "/* atoi(s) */\n", "atoi is banned"),
    ("banned", "broker/src/a.c", "x = strerror (e);\n", "x = strerror_r(e);\n", "strerror is banned"),
    ("banned", "broker/src/a.c", "pthread_create(&t);\n", "", "threads are made"),
    ("banned", "gateway/src/a.c", "exit(1);\n", "on_exit_now(1);\n", "only main.c"),
    ("layers", "broker/common/base/a.c", '#include "loop/b.h"\n', '#include "base/b.h"\n', "layer base"),
    ("layers", "broker/common/base/a.c", '#include "b_far.h"\n', "", "nothing from outside"),
    ("layers", "gateway/src/a.c", '#include "../../broker/src/b_far.h"\n', '#include "base/b.h"\n', "may not include"),
    ("layers", "broker/src/a.c", "#include <uv.h>\n", "#include <stdio.h>\n", "belongs to"),
    ("layers", "broker/common/net/a.c", '#include "loop/uv_int.h"\n', '#include "loop/b.h"\n', "private to its folder"),
    ("layers", "broker/common/mqtt/a.c", '#include "loop/b.h"\n', "", "layer mqtt"),
    ("layers", "broker/common/log/a.c", '#include "mqtt/a.h"\n', "", "no file of the tree"),
    ("layers", "broker/src/a.c", "#include <curl/curl.h>\n", "", "neither C, POSIX"),
    ("layers", "broker/src/a.c", '#include "none.h"\n', '// #include "none.h"\n', "no file of the tree"),
    ("headers", "broker/src/a.h", HEAD + "size_t a;\n", HEAD + "#include <stddef.h>\nextern size_t a;\n",
     "does not compile alone"),
    ("spdx", "broker/src/a.c", "int a;\n", HEAD, "no SPDX"),
    ("readmes", "broker/src/deep/a.c", HEAD, None, "broker/src/deep/README.md"),
    ("length", "broker/src/a.c", "\n" * 901, "\n" * 900, "901 lines"),
    ("words", "etc/a.yml", "dir: /" + "work/x\n", "dir: /var/x\n", "path of one machine"),
    ("words", "broker/src/a.c", "// TO" + "DO later\n", "// todos are fine\n", "finish it"),
    ("links", "docs/a.md", "[b](b.md)\n", "[b](../README.md) [c](https://example.org)\n", "does not exist"),
    ("scripts", "a.sh", "#!/bin/sh\ncd $1 && unused=1\nrm -rf $x/*\n", "#!/bin/sh\necho hello\n", "a.sh:"),
    ("scripts", "a.py", "def f(:\n", "def f():\n    pass\n", "a.py:1"),
    ("docs", "docs/configuration-broker.md", "other\n", "table\n", "configuration-broker.md: differs"),
]


def problems(check, files):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
        program = root / "program"
        program.write_text(STUB, encoding="utf-8")
        program.chmod(0o755)
        options = types.SimpleNamespace(broker=str(program), gateway=str(program), write=False)
        return lint.CHECKS[check](Tree(root), options)


def base_files():
    header = HEAD + "extern int b;\n"
    style = pathlib.Path(__file__).resolve().parents[2] / ".clang-format"
    return {
        "README.md": "x\n", ".clang-format": style.read_text(), "broker/common/base/b.h": header,
        "broker/common/loop/b.h": header, "broker/common/loop/uv_int.h": "#include <uv.h>\n",
         "broker/src/b_far.h": header, "etc/broker.yml": "",
        "etc/gateway.yml": "", "docs/metrics-broker.md": "", "docs/metrics-gateway.md": "",
        "docs/configuration-gateway.md": "table\n",
    }


def main():
    failures = []
    for check, path, bad, good, message in CASES:
        found = problems(check, {**base_files(), path: bad})
        if not any(message in problem for problem in found):
            failures.append(f"{check} does not find {bad!r} in {path}: {found}")
        if good is not None and any(path in p for p in problems(check, {**base_files(), path: good})):
            failures.append(f"{check} refuses {good!r} in {path}")
    unchecked = set(lint.CHECKS) - {case[0] for case in CASES}
    failures += [f"no case here for the check {name}" for name in sorted(unchecked)]
    print("\n".join(failures) or f"{len(CASES)} cases")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
