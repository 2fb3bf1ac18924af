#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# with_postgres.sh PROGRAM [ARGUMENT...]: runs it with SLUICE_TEST_POSTGRES_URI, against the server named
# there already or against one started for this run, whose folder is then in SLUICE_TEST_POSTGRES_DIR.
# Ends with 77 (skipped) when there can be none.
set -euo pipefail
script=$(dirname "$(realpath "$0")")/../../support/services/postgres.sh

if [ -n "${SLUICE_TEST_POSTGRES_URI:-}" ]; then exec "$@"; fi
"$script" fetch || exit 77

# Special characters, as a password may have them and a URL may not.
export POSTGRES_PASSWORD='p&ss w"rd' POSTGRES_OPTIONS='-c fsync=off -c max_connections=60'
folder=$(mktemp -d)
chmod 755 "$folder" # user postgres has to get through
trap '"$script" kill "$folder/pg" >/dev/null 2>&1 || true; rm -rf "$folder"' EXIT
for _ in 1 2 3 4 5; do
    port=$((20000 + RANDOM % 10000))
    if "$script" start "$folder/pg" "$port" >"$folder/out" 2>&1; then
        SLUICE_TEST_POSTGRES_URI="postgresql://postgres:p%26ss%20w%22rd@127.0.0.1:$port/postgres" \
            SLUICE_TEST_POSTGRES_DIR=$folder/pg SLUICE_TEST_POSTGRES_PORT=$port "$@"
        exit
    fi
    "$script" kill "$folder/pg" >/dev/null 2>&1 || true
    rm -rf "$folder/pg"
done
cat "$folder/out" >&2
exit 1
