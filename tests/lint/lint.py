#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lint checks; each is one ctest test (tests/lint/CMakeLists.txt).

usage: lint.py CHECK [--root DIR] [--broker PROGRAM] [--gateway PROGRAM] [--write]

Prints one line per problem, file and line first, and exits 1 if there is any. --write makes `docs`
write the generated files instead of comparing them.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys

import layers
from tree import Tree, blank_comments

MAX_LINES = 900
BANNED = {
    "strcpy": "sl_buf or snprintf", "strcat": "sl_buf", "sprintf": "snprintf", "vsprintf": "vsnprintf",
    "strncpy": "memcpy with a known length", "strncat": "sl_buf", "strtok": "sl_slice",
    "atoi": "strtol with checks", "atol": "strtol with checks", "atof": "strtod with checks",
    "gets": "fgets", "gmtime": "gmtime_r", "localtime": "localtime_r", "strerror": "strerror_r",
    "alloca": "a bounded array or the heap",
}
# Headers of program folders as their own files include them.
INCLUDE_FLAGS = ["-Ibroker/common", "-Ibroker/src", "-Igateway/src", "-Iplugins/include",
                 "-Itests/support"]
LIBRARY_PACKAGES = ["libuv", "yaml-0.1", "libcjson", "libxxhash", "liburcu", "sqlite3", "openssl",
                    "libmicrohttpd", "libmongoc-1.0", "hiredis", "cmocka"]
# Written in parts, so that this file does not contain what it looks for.
FORBIDDEN_WORDS = [
    ("/" + "work/", "a path of one machine"), ("/" + "farm/", "a path of one machine"),
    ("/" + "home/", "a path of one machine"), ("py" + "pi.org", "a registry host"),
    ("npm" + "js.org", "a registry host"), ("deb." + "debian.org", "a registry host"),
    ("security." + "debian.org", "a registry host"), ("crates" + ".io", "a registry host"),
    ("proxy." + "golang.org", "a registry host"), ("docker" + ".io", "a registry host"),
]
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


def run(tree, command, **options):
    return subprocess.run(command, cwd=tree.root, capture_output=True, text=True, check=False, **options)


def check_format(tree, _options):
    """clang-format-14 has nothing to change."""
    done = run(tree, ["clang-format-14", "--dry-run", "--Werror", "--ferror-limit=3", *tree.sources()])
    if done.returncode == 0:
        return []
    lines = [line for line in done.stderr.splitlines() if "-Wclang-format-violations" in line]
    return lines or [done.stderr]


def check_banned(tree, _options):
    """No call of a banned function, no thread made outside broker/common/loop, no exit outside main.c."""
    calls = re.compile(r"(?<![\w.>])(" + "|".join(BANNED) + r")\s*\(")
    threads = re.compile(r"\b(pthread_create|thrd_create|uv_thread_create\w*)\s*\(")
    leaving = re.compile(r"(?<![\w.>])(exit|_exit|quick_exit)\s*\(")
    problems = []
    for path in tree.sources():
        product = not path.startswith("tests/")
        for number, line in enumerate(blank_comments(tree.read(path)).split("\n"), 1):
            for match in calls.finditer(line):
                name = match.group(1)
                problems.append(f"{path}:{number}: {name} is banned; use {BANNED[name]}")
            if product and threads.search(line) and not path.startswith("broker/common/loop/"):
                problems.append(f"{path}:{number}: threads are made in broker/common/loop only")
            if product and leaving.search(line) and not path.endswith("/main.c"):
                problems.append(f"{path}:{number}: only main.c leaves the process")
    return problems


def check_layers(tree, _options):
    """The include graph follows the layers of docs/architecture.md."""
    return layers.check(tree)


def check_headers(tree, _options):
    """Every header compiles alone, with gcc and with clang."""
    helpers = sorted({str(pathlib.PurePosixPath(p).parent) for p in tree.matching(".h") if p.startswith("tests/support/")})
    flags = [f"-I{folder}" for folder in helpers] + run(tree, ["pkg-config", "--cflags", *LIBRARY_PACKAGES]).stdout.split()
    problems = []
    for compiler in ["gcc", "clang-14"]:
        for path in tree.matching(".h"):
            command = [compiler, "-fsyntax-only", "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror",
                       "-Wno-unused-function", *INCLUDE_FLAGS, *flags, "-x", "c", "-"]
            # Through an including file: a header compiled as main file gets warnings of its own.
            done = run(tree, command, input=f'#include "{tree.root / path}"\n')
            if done.returncode != 0:
                problems.append(f"{path}: does not compile alone with {compiler}:\n{done.stderr.strip()}")
    return problems


def check_spdx(tree, _options):
    """Every source file names its licence in its first lines."""
    wanted = tree.matching(".c", ".h", ".proto", "CMakeLists.txt", ".cmake") + tree.scripts() + tree.python()
    return [f"{path}:1: no SPDX-License-Identifier line" for path in sorted(set(wanted))
            if "SPDX-License-Identifier: Apache-2.0" not in "\n".join(tree.read(path).split("\n")[:4])]


def check_readmes(tree, _options):
    """Every folder with sources has a README.md (unit, contract and fuzz tests share one)."""
    folders = {str(pathlib.PurePosixPath(p).parent) for p in tree.sources() + tree.python()}
    folders |= {"broker", "gateway", "plugins", "etc", "tutorial", "docs", "tests"}
    shared = re.compile(r"tests/(unit|contract|fuzz)(/|$)")
    return [f"{folder}/README.md is missing" for folder in sorted(folders)
            if not shared.match(folder) and f"{folder}/README.md" not in tree.paths]


def functions(text):
    """(name, first line, lines) of each function, by the brace in the first column."""
    plain = blank_comments(text).split("\n")
    start, name = None, None
    for number, line in enumerate(plain, 1):
        if line.startswith("{") and start is None:
            head = " ".join(plain[max(0, number - 6):number - 1])
            match = re.search(r"(\w+)\s*\([^;{}]*\)\s*$", head.rstrip())
            start, name = (number, match.group(1)) if match else (None, None)
        elif line.startswith("}") and start is not None:
            yield name, start, number - start + 1
            start = None


def check_length(tree, _options):
    """No file over 900 lines; the twenty longest functions are printed for the reader."""
    problems, found = [], []
    for path in tree.matching(".c", ".h", ".ts", ".tsx") + tree.scripts() + tree.python():
        lines = tree.read(path).count("\n")
        if lines > MAX_LINES:
            problems.append(f"{path}: {lines} lines; split it (the limit is {MAX_LINES})")
        if path.endswith(".c"):
            found += [(lines, path, start, name) for name, start, lines in functions(tree.read(path))]
    print("longest functions (lines, place, name):")
    for lines, path, start, name in sorted(found, reverse=True)[:20]:
        print(f"  {lines:4} {path}:{start} {name}")
    return problems


def check_words(tree, _options):
    """No path of one machine, no registry host, no unfinished work."""
    problems = []
    for path in tree.paths:
        if path in ("LICENSE", "tests/lint/lint.py"):
            continue
        for number, line in enumerate(tree.read(path).split("\n"), 1):
            for word, what in FORBIDDEN_WORDS:
                if word in line:
                    problems.append(f"{path}:{number}: '{word}' is {what}")
            match = UNFINISHED.search(line)
            if match:
                problems.append(f"{path}:{number}: '{match.group(1)}': finish it or file an issue")
    return problems


def check_docs(tree, options):
    """etc/*.yml and the reference pages are what the programs print from their tables."""
    problems = []
    for name, program in [("broker", options.broker), ("gateway", options.gateway)]:
        if not program or not os.path.exists(program):
            problems.append(f"--{name} must name a program that exists, not {program}")
            continue
        for kind, path in [("config", f"docs/configuration-{name}.md"), ("metrics", f"docs/metrics-{name}.md"),
                           ("template", f"etc/{name}.yml")]:
            done = run(tree, [program, "--print-reference", kind])
            if done.returncode != 0:
                problems.append(f"{program} --print-reference {kind}: {done.stderr.strip()}")
            elif options.write:
                (tree.root / path).write_text(done.stdout, encoding="utf-8")
            elif path not in tree.paths or tree.read(path) != done.stdout:
                problems.append(f"{path}: differs from the table in code; run "
                                f"tests/lint/lint.py docs --write --broker ... --gateway ...")
    return problems


def check_links(tree, _options):
    """Every relative link of a Markdown page leads to a file or folder of the tree."""
    link = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")
    problems = []
    for path in tree.matching(".md"):
        for number, line in enumerate(tree.read(path).split("\n"), 1):
            for target in link.findall(line):
                if not os.path.exists(tree.root / pathlib.PurePosixPath(path).parent / target):
                    problems.append(f"{path}:{number}: link to {target}, which does not exist")
    return problems


def check_scripts(tree, _options):
    """shellcheck finds nothing, Python compiles."""
    problems = []
    # SC2317 takes functions called through a trap or a variable for unreachable.
    done = run(tree, ["shellcheck", "-x", "-S", "warning", "-e", "SC2317", "-f", "gcc", *tree.scripts()])
    if done.returncode != 0:
        problems += (done.stdout + done.stderr).strip().split("\n")
    for path in tree.python():
        try:
            compile(tree.read(path), path, "exec")
        except SyntaxError as error:
            problems.append(f"{path}:{error.lineno}: {error.msg}")
    return problems


CHECKS = {name[len("check_"):]: function for name, function in list(globals().items())
          if name.startswith("check_")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("check", choices=sorted(CHECKS))
    parser.add_argument("--root", default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("--broker")
    parser.add_argument("--gateway")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    problems = CHECKS[options.check](Tree(options.root), options)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
