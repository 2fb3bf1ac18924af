#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# postgres.sh: a PostgreSQL server on loopback, for the tests of the metadata port. It refuses to run
# as root, so root runs it as user postgres, which must be able to reach DIR.
#   postgres.sh fetch              checks that the server is installed
#   postgres.sh start DIR PORT     prints the pid once it takes connections; the data in DIR is kept
#   postgres.sh stop|kill DIR      a fast shutdown, or SIGKILL of all its processes; waits for the end
#   postgres.sh freeze|continue DIR   SIGSTOP, SIGCONT of all its processes
# User postgres with POSTGRES_PASSWORD (postgres) by scram-sha-256. POSTGRES_OPTIONS: more options.
. "$(dirname "$(realpath "$0")")/common.sh"

# shellcheck disable=SC2034 # read by common.sh
SV_STOP_SIGNAL=INT # TERM would wait for the clients to leave
AS=()
[ "$(id -u)" != 0 ] || AS=(setpriv --reuid=postgres --regid=postgres --init-groups)

bin_folder() {
    find /usr/lib/postgresql -mindepth 2 -maxdepth 2 -name bin 2>/dev/null | sort -V | tail -n 1
}

sv_prepare() {
    local bin
    bin=$(bin_folder)
    [ -x "${bin:-/nowhere}/initdb" ] || sv_die "the PostgreSQL server is not installed (Debian: postgresql)"
    [ ${#AS[@]} -eq 0 ] || id postgres >/dev/null 2>&1 || sv_die "run as root, it needs a user postgres"
}

# family DIR: the server's process and its children.
family() {
    local pid
    pid=$(sv_pid "$1") || return 1
    printf '%s %s\n' "$pid" "$(cat "/proc/$pid/task/$pid/children" 2>/dev/null)"
}

# The first process first: a frozen one makes no more children.
sv_signal() {
    local pid
    family "$1" >/dev/null || sv_die "no server is running in $1"
    for pid in $(family "$1"); do kill -"$2" "$pid" 2>/dev/null || true; done
    for pid in $(family "$1"); do kill -"$2" "$pid" 2>/dev/null || true; done
}

make_cluster() {
    local bin=$1 dir=$2
    rm -rf "$dir/data"
    (umask 077 && printf '%s\n' "${POSTGRES_PASSWORD:-postgres}" >"$dir/password")
    [ ${#AS[@]} -eq 0 ] || chown postgres: "$dir" "$dir/password"
    (cd / && "${AS[@]}" test -w "$dir") || sv_die "user postgres cannot reach $dir; take a folder whose parents are open to it"
    (cd / && "${AS[@]}" "$bin/initdb" -D "$dir/data" -U postgres -A scram-sha-256 --pwfile="$dir/password" \
        -E UTF8 --no-locale --no-sync) >"$dir/initdb.log" 2>&1 ||
        { tail -n 20 "$dir/initdb.log" >&2; sv_die "initdb failed"; }
}

sv_run() {
    local bin options=() tries=0 socket=$1
    sv_prepare
    bin=$(bin_folder)
    read -ra options <<<"${POSTGRES_OPTIONS:-}"
    [ -s "$1/data/PG_VERSION" ] || make_cluster "$bin" "$1"
    [ ${#1} -le 90 ] || socket='' # the path of a socket holds 107 bytes
    cd /
    # Shared memory of a crashed server stays in use until the last of its processes is gone.
    until (sv_start "$1" "$2" "${AS[@]}" "$bin/postgres" -D "$1/data" -p "$2" -c listen_addresses=127.0.0.1 \
        -c "unix_socket_directories=$socket" "${options[@]}") 2>"$1/start.log"; do
        tries=$((tries + 1))
        if [ "$tries" -gt 40 ] || ! grep -qE 'still in use|already exists' "$1/start.log"; then
            cat "$1/start.log" >&2
            return 1
        fi
        sleep 0.25
    done
    # The port is open before the recovery after a crash is through.
    until "$bin/pg_isready" -q -h 127.0.0.1 -p "$2" -U postgres -d postgres; do
        tries=$((tries + 1))
        [ "$tries" -le 600 ] || sv_die "no connection after 30 s; the output is in $1/server.log"
        sleep 0.05
    done
}

if [ "${1:-}" = kill ] && dir=$(realpath -e "${2:-}" 2>/dev/null) && all=$(family "$dir"); then
    kill -STOP "${all%% *}"
    for pid in $(family "$dir"); do [ "$pid" = "${all%% *}" ] || kill -KILL "$pid" 2>/dev/null || true; done
fi
sv_main "$@"
