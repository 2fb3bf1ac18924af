# SPDX-License-Identifier: Apache-2.0
"""Which folder may include what: our own layers, and the third-party libraries behind them."""
import posixpath
import re

from tree import blank_comments

COMMON = "broker/common"
# Folder of broker/common -> the folders of broker/common that it may include besides itself.
COMMON_LAYERS = {
    "base": set(),
    "loop": {"base"},
    "net": {"base", "loop"},
    "http": {"base", "loop", "net"},
    "mqtt": {"base"},
    "log": {"base", "loop"},
}
# The client session is a peer of the network, the rest of the codec is pure.
FILE_LAYERS = {
    "broker/common/mqtt/client.h": {"base", "loop", "net"},
    "broker/common/mqtt/client.c": {"base", "loop", "net"},
}
# Program folder -> what it may include besides itself and broker/common.
PROGRAM_LAYERS = {
    "broker/src": set(),
    "broker/integration": {"plugins/include"},
    "gateway/src": {"plugins/include"},
    "plugins/include": None,  # not even broker/common: plugins are compiled against it alone
    "plugins/examples": {"plugins/include"},
}
INCLUDE_ROOTS = [COMMON, "broker/src", "broker/integration", "gateway/src", "plugins/include",
                 "tests/support"]

# Third-party header (prefix) -> the folders whose .c files may include it.
LIBRARIES = {
    "uv.h": ["broker/common/loop", "broker/common/net"],
    "openssl/": ["broker/common/net", "broker/common/http"],
    "http_parser.h": ["broker/common/http"],
    "microhttpd.h": ["broker/common/http"],
    "rocksdb/": ["broker/common/log"],
    "yaml.h": ["broker/common/base"],
    "cjson/": ["broker/common/base"],
    "xxhash.h": ["broker/common", "broker/src"],
    "urcu": ["broker/src/route"],
    "sqlite3.h": ["broker/src/store", "gateway/src/sink_sqlite.c"],
    "mongoc/": ["gateway/src/sink_mongo.c"],
    "bson/": ["gateway/src/sink_mongo.c"],
    "protobuf-c/": ["broker/src/proto"],
}
SYSTEM = re.compile(
    r"(assert|byteswap|ctype|dirent|dlfcn|endian|errno|fcntl|fenv|float|getopt|inttypes|iso646|"
    r"limits|locale|malloc|math|netdb|poll|pthread|pwd|sched|semaphore|setjmp|signal|stdalign|"
    r"stdarg|stdatomic|stdbool|stddef|stdint|stdio|stdlib|stdnoreturn|string|strings|syslog|"
    r"threads|time|unistd|wchar|(arpa|linux|net|netinet|sys|sanitizer)/[a-z_0-9]+)\.h")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)
GENERATED = re.compile(r"\.pb-c\.h$")


def includes(text):
    """(line, '<' or '"', name) of every include."""
    plain = blank_comments(text, strings=False)
    for match in INCLUDE.finditer(plain):
        yield plain.count("\n", 0, match.start()) + 1, match.group(1), match.group(2)


def resolve(tree, path, name):
    here = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
    for candidate in [here] + [f"{root}/{name}" for root in INCLUDE_ROOTS]:
        if candidate in tree.paths:
            return candidate
    return None


def folder_of(path):
    for root in PROGRAM_LAYERS:
        if path.startswith(root + "/"):
            return root
    return COMMON if path.startswith(COMMON + "/") else None


def why_not(path, target):
    """The reason why path may not include target (both files of ours), or None."""
    mine, theirs = folder_of(path), folder_of(target)
    if mine == COMMON:
        if theirs != COMMON:
            return "broker/common includes nothing from outside broker/common"
        layer, other = path.split("/")[2], target.split("/")[2]
        allowed = FILE_LAYERS.get(path, COMMON_LAYERS.get(layer))
        if allowed is None:
            return f"broker/common/{layer} is not a known layer; add it to tests/lint/layers.py"
        if other != layer and other not in allowed:
            return f"layer {layer} may include {sorted(allowed)}, not {other}"
        return None
    if mine is None or mine == theirs:
        return None
    allowed = PROGRAM_LAYERS[mine]
    if allowed is not None and (theirs == COMMON or theirs in allowed):
        return None
    return f"{mine} may not include {theirs or posixpath.dirname(target)}"


def library_why_not(path, name):
    """The reason why path may not include the library header name, or None."""
    for prefix, folders in LIBRARIES.items():
        if not name.startswith(prefix):
            continue
        if path.endswith(".h") and not path.endswith("_int.h"):
            return f"<{name}> in a header: third-party types stay inside .c files"
        if any(path == f or path.startswith(f + "/") for f in folders):
            return None
        return f"<{name}> belongs to {', '.join(folders)}"
    if SYSTEM.fullmatch(name):
        return None
    return f"<{name}> is neither C, POSIX nor a library known to tests/lint/layers.py"


def check(tree):
    problems = []
    for path in tree.sources():
        if folder_of(path) is None:
            continue  # tests may include everything
        for line, kind, name in includes(tree.read(path)):
            if kind == "<" or GENERATED.search(name):
                why = library_why_not(path, name) if kind == "<" else None
            else:
                target = resolve(tree, path, name)
                why = why_not(path, target) if target else f'"{name}" is no file of the tree'
            if why:
                problems.append(f"{path}:{line}: {why}")
    return problems
