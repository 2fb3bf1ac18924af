#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# with_redis.sh standalone|cluster PROGRAM [ARGUMENT...]: runs it against a Redis of its own with a
# password, named in the broker's environment variables. Ends with 77 (skipped) when there can be none.
set -euo pipefail
services=$(dirname "$(realpath "$0")")/../../support/services
kind=$1
shift
case $kind in
standalone) script=$services/redis.sh ;;
cluster) script=$services/redis-cluster.sh ;;
*) echo "with_redis.sh: standalone or cluster, not '$kind'" >&2 && exit 2 ;;
esac
"$script" fetch || exit 77

export REDIS_PASSWORD='p&ss w"rd' REDIS_CONNECTION_TYPE=$kind REDIS_HOST=127.0.0.1
[ "$kind" = standalone ] || REDIS_PASSWORD=password # redis-cli --cluster passes it on in a command line
folder=$(mktemp -d)
trap '"$script" kill "$folder/redis" >/dev/null 2>&1 || true; rm -rf "$folder"' EXIT
for _ in 1 2 3 4 5; do
    port=$((20000 + RANDOM % 10000))
    if "$script" start "$folder/redis" "$port" >"$folder/out" 2>&1; then
        REDIS_PORT=$port REDIS_NODES=127.0.0.1:$port SLUICE_TEST_REDIS_DIR=$folder/redis "$@"
        exit
    fi
    "$script" kill "$folder/redis" >/dev/null 2>&1 || true
    rm -rf "$folder/redis"
done
cat "$folder/out" >&2
exit 1
