#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# mongo.sh: a server that speaks the MongoDB wire protocol, on loopback, for the tests of the MongoDB
# sink. It is SecantusDB (GPL-2.0, run as a process, never linked), which stores through WiredTiger,
# mongod's own engine; no package registry carries mongod itself, so what passes here is proven for
# the protocol and not for every mongod.
#   mongo.sh fetch              fills the cache
#   mongo.sh start DIR PORT     prints the pid once the port answers; the data in DIR is kept
#   mongo.sh stop|kill DIR      SIGTERM or SIGKILL, and waits for the end
#   mongo.sh freeze|continue DIR   SIGSTOP, SIGCONT
. "$(dirname "$(realpath "$0")")/common.sh"

VERSION=0.7.0b3

install_server() {
    /usr/bin/python3 -m venv "$1/venv" &&
        "$1/venv/bin/pip" install -q --disable-pip-version-check "secantusdb==$VERSION"
}
sv_prepare() { sv_fetch "secantusdb-$VERSION" install_server; }

sv_run() {
    local folder
    folder=$(sv_prepare)
    mkdir -p "$1/db"
    # Without syncing at commit a SIGKILL loses the last acknowledged writes, which is not what a
    # majority write with journal means.
    sv_start "$1" "$2" "$folder/venv/bin/secantusd-py" --host 127.0.0.1 --port "$2" \
        --storage-path "$1/db" --cache-size 128M --log-level WARNING --sync-on-commit
}

sv_main "$@"
