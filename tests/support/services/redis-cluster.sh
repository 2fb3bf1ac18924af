#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# redis-cluster.sh: a Redis Cluster of three masters on loopback: ports PORT, PORT+1, PORT+2 and, for
# the nodes among themselves, each of these + 100. Node N is in DIR/nodeN.
#   redis-cluster.sh fetch              checks that the server is installed
#   redis-cluster.sh start DIR PORT     starts what is down, makes the cluster at the first start
#   redis-cluster.sh stop|kill DIR      SIGTERM or SIGKILL for all nodes, and waits for the end
#   redis-cluster.sh cut|join DIR N     ends node N by SIGKILL; starts it again
# REDIS_PASSWORD: asked of the default user.
here=$(dirname "$(realpath "$0")")
. "$here/common.sh"

NODES=3

cli() { REDISCLI_AUTH=${REDIS_PASSWORD:-} redis-cli "$@"; }

start_node() { # start_node DIR PORT N
    mkdir -p "$1/node$3"
    REDIS_OPTIONS="--cluster-enabled yes --cluster-config-file nodes.conf --cluster-node-timeout 2000 \
        --cluster-port $(($2 + $3 + 99)) --cluster-require-full-coverage no" \
        "$here/redis.sh" start "$1/node$3" $(($2 + $3 - 1)) >/dev/null
}

all_know() { # all_know PORT: every node sees a whole cluster
    local n info
    for n in $(seq 1 "$NODES"); do
        info=$(cli -p $(($1 + n - 1)) cluster info 2>/dev/null) || return 1
        grep -q '^cluster_state:ok' <<<"$info" && grep -q "^cluster_known_nodes:$NODES" <<<"$info" &&
            grep -q '^cluster_slots_ok:16384' <<<"$info" || return 1
    done
}

start() { # start DIR PORT
    local n addresses=() tries=0
    for n in $(seq 1 "$NODES"); do
        start_node "$1" "$2" "$n"
        addresses+=("127.0.0.1:$(($2 + n - 1))@$(($2 + n + 99))")
    done
    if [ ! -e "$1/made" ]; then
        cli --cluster create "${addresses[@]}" --cluster-replicas 0 --cluster-yes >"$1/create.log" 2>&1 || {
            tail -n 20 "$1/create.log" >&2
            sv_die "the cluster could not be made"
        }
        printf '%s\n' "$2" >"$1/made"
    fi
    until all_know "$2"; do
        tries=$((tries + 1))
        [ "$tries" -le 600 ] || sv_die "the cluster is not whole after 30 s"
        sleep 0.05
    done
}

end_all() { # end_all DIR stop|kill
    local n status=0
    for n in $(seq 1 "$NODES"); do
        [ ! -d "$1/node$n" ] || "$here/redis.sh" "$2" "$1/node$n" || status=1
    done
    return "$status"
}

case "${1:-} $#" in
"fetch 1") exec "$here/redis.sh" fetch ;;
"start 3")
    mkdir -p "$2"
    start "$(realpath "$2")" "$3"
    ;;
"stop 2" | "kill 2") end_all "$2" "$1" ;;
"cut 3") exec "$here/redis.sh" kill "$2/node$3" ;;
"join 3") start_node "$(realpath "$2")" "$(cat "$2/made")" "$3" ;;
*) sv_die "usage: redis-cluster.sh fetch | start DIR PORT | stop|kill DIR | cut|join DIR N" ;;
esac
