#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# with_mongo.sh PROGRAM [ARGUMENT...]: runs it with SLUICE_TEST_MONGO_URI, against the server named there
# already or against one started for this run. Ends with 77 (skipped) when there can be none.
set -euo pipefail
script=$(dirname "$(realpath "$0")")/../../support/services/mongo.sh

if [ -n "${SLUICE_TEST_MONGO_URI:-}" ]; then exec "$@"; fi
if [ -n "${SLUICE_NO_MONGO:-}" ] || ! "$script" fetch; then
    echo "skipped: no MongoDB-wire server could be fetched" >&2
    exit 77
fi

folder=$(mktemp -d)
trap '"$script" kill "$folder/mongo" >/dev/null 2>&1 || true; rm -rf "$folder"' EXIT
for _ in 1 2 3 4 5; do
    port=$((20000 + RANDOM % 10000))
    if "$script" start "$folder/mongo" "$port" >"$folder/out" 2>&1; then
        SLUICE_TEST_MONGO_URI=mongodb://127.0.0.1:$port SLUICE_TEST_MONGO_DIR=$folder/mongo "$@"
        exit
    fi
    "$script" kill "$folder/mongo" >/dev/null 2>&1 || true
    rm -rf "$folder/mongo"
done
cat "$folder/out" >&2
exit 1
