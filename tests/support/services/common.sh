# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# common.sh: start, stop, crash and freeze one server process per folder; sourced by the service
# scripts. DIR/server.pid names the process and its start time, so that a pid which the kernel has
# given to somebody else in the meantime is never signalled.
set -euo pipefail

SV_NAME=$(basename "$0" .sh)
SV_CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/sluice-tests

sv_die() {
    echo "$SV_NAME: $*" >&2
    exit 1
}

# sv_birth PID: when the process started, in clock ticks since boot; nothing if there is none.
sv_birth() {
    local stat
    stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
    # The command may contain blanks and brackets; the fields after its last ')' are plain.
    read -r -a stat <<<"${stat##*) }"
    [ "${stat[0]}" = Z ] || printf '%s' "${stat[19]}"
}

# sv_pid DIR: prints the pid of the server of that folder if it lives.
sv_pid() {
    local pid birth
    [ -s "$1/server.pid" ] || return 1
    read -r pid birth <"$1/server.pid"
    [ -n "$birth" ] && [ "$(sv_birth "$pid")" = "$birth" ] && printf '%s\n' "$pid"
}

sv_answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# sv_start DIR PORT COMMAND...: runs it detached with its output in DIR/server.log, waits until the
# port answers and prints the pid.
sv_start() {
    local dir=$1 port=$2 pid tries=0
    shift 2
    setsid "$@" >>"$dir/server.log" 2>&1 </dev/null &
    pid=$!
    disown "$pid"
    printf '%s %s\n' "$pid" "$(sv_birth "$pid")" >"$dir/server.pid"
    until sv_answers "$port"; do
        if ! sv_pid "$dir" >/dev/null; then
            tail -n 20 "$dir/server.log" >&2
            sv_die "the server ended while starting; its output is in $dir/server.log"
        fi
        tries=$((tries + 1))
        if [ "$tries" -gt 1200 ]; then
            tail -n 20 "$dir/server.log" >&2
            sv_die "port $port does not answer after 60 s; the output is in $dir/server.log"
        fi
        sleep 0.05
    done
    printf '%s\n' "$pid"
}

# sv_end DIR SIGNAL: sends it and waits for the end; a server that ignores it for 20 s is killed.
sv_end() {
    local pid tries=0
    pid=$(sv_pid "$1") || { rm -f "$1/server.pid"; return 0; }
    kill -"$2" "$pid"
    kill -CONT "$pid" 2>/dev/null || true # a frozen process takes no TERM
    while sv_pid "$1" >/dev/null; do
        tries=$((tries + 1))
        [ "$tries" -ne 400 ] || kill -KILL "$pid" 2>/dev/null || true
        [ "$tries" -lt 500 ] || sv_die "process $pid cannot be ended"
        sleep 0.05
    done
    rm -f "$1/server.pid"
}

# sv_signal DIR SIGNAL: to a server that must be running.
sv_signal() {
    local pid
    pid=$(sv_pid "$1") || sv_die "no server is running in $1"
    kill -"$2" "$pid"
}

# sv_fetch NAME FUNCTION: calls FUNCTION FOLDER once per user, also when several callers come at
# once; prints the folder. A folder that was left half filled is made anew.
sv_fetch() {
    local folder=$SV_CACHE/$1
    mkdir -p "$SV_CACHE"
    (
        flock 9
        [ -e "$folder/.complete" ] && exit 0
        rm -rf "$folder"
        mkdir "$folder"
        "$2" "$folder" >&2 9>&- && touch "$folder/.complete"
    ) 9>"$SV_CACHE/$1.lock" || sv_die "fetching $1 failed; see above"
    printf '%s\n' "$folder"
}

# sv_main ARGUMENT...: the commands that all services share; the service defines sv_prepare (fetches
# what it needs) and sv_run DIR PORT (calls sv_start).
sv_main() {
    local usage="usage: $SV_NAME.sh fetch | start DIR PORT | stop|kill|freeze|continue DIR" dir
    case "${1:-} $#" in
    "fetch 1")
        sv_prepare >/dev/null
        return
        ;;
    "start 3")
        [[ "$3" =~ ^[1-9][0-9]{3,4}$ ]] || sv_die "'$3' is not a usable port"
        mkdir -p "$2"
        dir=$(realpath "$2")
        if sv_pid "$dir"; then return; fi
        ! sv_answers "$3" || sv_die "port $3 is in use"
        sv_run "$dir" "$3"
        return
        ;;
    "stop 2" | "kill 2" | "freeze 2" | "continue 2") ;;
    *) sv_die "$usage" ;;
    esac
    dir=$(realpath -e "$2" 2>/dev/null) || sv_die "no such folder: $2"
    case $1 in
    stop) sv_end "$dir" "${SV_STOP_SIGNAL:-TERM}" ;;
    kill) sv_end "$dir" KILL ;;
    freeze) sv_signal "$dir" STOP ;;
    continue) sv_signal "$dir" CONT ;;
    esac
}
