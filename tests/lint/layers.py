# SPDX-License-Identifier: Apache-2.0
"""Which folder may include what: our own layers, and the third-party libraries behind them."""
import fnmatch
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
# The client session (client.[ch], client_*.[ch]) is a peer of the network, the rest of the codec is pure.
CLIENT_SESSION = re.compile(r"broker/common/mqtt/client(_\w+)?\.[ch]")
CLIENT_LAYERS = {"base", "loop", "net"}
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

# Third-party header (prefix) -> the folders or files ("x*": names that begin so) that may include it. A header that includes one
# is private to its folder.
LIBRARIES = {
    "uv.h": ["broker/common/loop", "broker/common/net", "broker/common/http"],
    "openssl/": ["broker/common/net", "broker/common/http", "broker/src/store/redis_client.c"],
    "hiredis/": ["broker/src/store/redis_reply.c"],
    "http_parser.h": ["broker/common/http"],
    "microhttpd.h": ["broker/common/http"],
    "rocksdb/": ["broker/common/log"],
    "yaml.h": ["broker/common/base"],
    "cjson/": ["broker/common/base", "gateway/src/document_json.c"],
    "xxhash.h": ["broker/common", "broker/src"],
    "urcu": ["broker/src/route"],
    "libpq-fe.h": ["broker/src/store/db_pg*"],
    "sqlite3.h": ["broker/src/store", "gateway/src/sink_sqlite.c"],
    "mongoc/": ["gateway/src/sink_mongo*"],
    "bson/": ["gateway/src/sink_mongo*"],
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
        allowed = CLIENT_LAYERS if CLIENT_SESSION.fullmatch(path) else COMMON_LAYERS.get(layer)
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
        if any(path == f or path.startswith(f + "/") or fnmatch.fnmatch(path, f) for f in folders):
            return None
        return f"<{name}> belongs to {', '.join(folders)}"
    if SYSTEM.fullmatch(name):
        return None
    return f"<{name}> is neither C, POSIX nor a library known to tests/lint/layers.py"


def private_headers(tree):
    """Headers that bring third-party types along."""
    return {path for path in tree.matching(".h") if folder_of(path)
            and any(kind == "<" and name.startswith(tuple(LIBRARIES)) for _, kind, name in includes(tree.read(path)))}


def check(tree):
    problems = []
    private = private_headers(tree)
    for path in tree.sources():
        if folder_of(path) is None:
            continue  # tests may include everything
        for line, kind, name in includes(tree.read(path)):
            if kind == "<" or GENERATED.search(name):
                why = library_why_not(path, name) if kind == "<" else None
            else:
                target = resolve(tree, path, name)
                why = why_not(path, target) if target else f'"{name}" is no file of the tree'
                if target in private and posixpath.dirname(target) != posixpath.dirname(path):
                    why = why or f"{name} has third-party types: it is private to its folder"
            if why:
                problems.append(f"{path}:{line}: {why}")
    return problems
