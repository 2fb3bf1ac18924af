#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# redis.sh: a Redis server on loopback with an append-only file, for the tests of the Redis inbox.
#   redis.sh fetch              checks that the server is installed
#   redis.sh start DIR PORT     prints the pid once it answers PING; the data in DIR is kept
#   redis.sh stop|kill DIR      SIGTERM or SIGKILL, and waits for the end
#   redis.sh freeze|continue DIR   SIGSTOP, SIGCONT
# REDIS_PASSWORD: asked of the default user. REDIS_OPTIONS: more options of redis-server.
. "$(dirname "$(realpath "$0")")/common.sh"

sv_prepare() {
    command -v redis-server >/dev/null && command -v redis-cli >/dev/null ||
        sv_die "redis-server and redis-cli are not installed"
}

# pong PORT: it answers, and has loaded its data (LOADING is an error reply).
pong() { [ "$(REDISCLI_AUTH=${REDIS_PASSWORD:-} redis-cli -p "$1" ping 2>/dev/null)" = PONG ]; }

sv_run() {
    local options=() auth=() tries=0
    sv_prepare
    read -ra options <<<"${REDIS_OPTIONS:-}"
    [ -z "${REDIS_PASSWORD:-}" ] || auth=(--requirepass "$REDIS_PASSWORD" --masterauth "$REDIS_PASSWORD")
    # With everysec Redis answers before it writes while an fsync is under way: a SIGKILL then loses
    # what was acknowledged.
    sv_start "$1" "$2" redis-server --port "$2" --bind 127.0.0.1 --dir "$1" --save '' --daemonize no \
        --appendonly yes --appendfsync always "${auth[@]}" "${options[@]}"
    until pong "$2"; do
        tries=$((tries + 1))
        [ "$tries" -le 600 ] || sv_die "no PONG after 30 s; the output is in $1/server.log"
        sleep 0.05
    done
}

sv_main "$@"
