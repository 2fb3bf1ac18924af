#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# bare_debian.sh: ./start on a Debian 12 that has nothing else. See README.md. Exit status 77: skipped.
set -euo pipefail
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/sluice-tests
MQTT_PORT=21883
ADMIN_PORT=21083
HTTP_PORT=21080

skip() {
    echo "SKIPPED: $*"
    exit 77
}
fail() {
    echo "FAILED: $*"
    exit 1
}

tree_files() { git -C "$ROOT" -c "safe.directory=$ROOT" ls-files -z; }

# What decides about the result: not every line of C, but what is linked and how it is built and run.
state_key() {
    (
        cd "$ROOT"
        tree_files | grep -zE '^(start|etc/|docker-compose)|CMakeLists\.txt$|\.cmake$|^tests/install/|/main\.c$' |
            sort -z | xargs -0 sha256sum
        tree_files | grep -zE '\.[ch]$' | xargs -0 sed -n 's/^#include \(<[^>]*>\).*/\1/p' | sort -u
    ) | sha256sum | cut -c 1-32
}

# own_source: the first package source of this machine; nothing about it is written into the project.
own_source() {
    local uri
    uri=$(sed -n 's/^URIs: *\([^ ]*\).*/\1/p' /etc/apt/sources.list.d/debian.sources 2>/dev/null | head -n 1)
    [ -n "$uri" ] || uri=$(sed -n 's/^deb \(\[[^]]*\] \)\?\([^ ]*\) bookworm main.*/\2/p' /etc/apt/sources.list 2>/dev/null | head -n 1)
    printf '%s' "$uri"
}

make_debian() {
    local uri=$1 file
    debootstrap --variant=minbase bookworm "$DEBIAN" "$uri" >"$WORK/debootstrap.log" 2>&1 || {
        tail -n 3 "$WORK/debootstrap.log"
        skip "debootstrap could not fetch Debian (no network?)"
    }
    rm -f "$DEBIAN/etc/apt/sources.list"
    for file in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list /etc/resolv.conf /etc/hosts; do
        [ ! -e "$file" ] || cp -L "$file" "$DEBIAN$file"
    done
    cp -r /etc/apt/apt.conf.d/. "$DEBIAN/etc/apt/apt.conf.d/"
}

# INSIDE is the prefix that runs a command in the chroot, with a mount namespace that takes /proc away
# again at its end. Every part of it replaces itself by the next, so that its pid is the command's.
# Interrupts are let through: a shell's background command would ignore them.
set_inside() {
    # shellcheck disable=SC2016 # expanded inside
    INSIDE=(unshare --mount env --default-signal=INT sh -c
        'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"' "$DEBIAN"
        env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C ${http_proxy:+http_proxy="$http_proxy"}
        "LISTENER_TCP_BIND_PORT=$MQTT_PORT" "HTTP_BIND_PORT=$ADMIN_PORT" "SLUICE_GATEWAY_PORT=$HTTP_PORT")
}
inside() { "${INSIDE[@]}" "$@"; }

check_build() {
    local program
    inside /src/start --build || fail "./start --build in a bare Debian"
    for program in sluice-broker sluice-gateway; do
        inside "/src/build/bin/$program" --version || fail "build/bin/$program --version"
    done
    inside /src/start --build | tee "$WORK/again.log"
    grep -q 'no work to do' "$WORK/again.log" || fail "a second ./start --build builds again"
}

check_owner() {
    local alien
    alien=$(find "$DEBIAN/src" ! -user "$OWNER" | head -n 5)
    [ -z "$alien" ] || fail "files of another user in a user's checkout: $alien"
}

# check_run: the whole command, and the three lines that it prints.
check_run() {
    local run=$WORK/run.log pid line tries=0
    "${INSIDE[@]}" /src/start >"$run" 2>&1 &
    pid=$!
    until grep -q 'Sluice is running' "$run"; do
        kill -0 "$pid" 2>/dev/null || { cat "$run"; fail "./start ended instead of running"; }
        tries=$((tries + 1))
        [ "$tries" -lt 1800 ] || { cat "$run"; fail "./start does not get to running"; }
        sleep 0.2
    done
    line=$(sed -n 's/^ *publish *//p' "$run")
    inside sh -c "$line" || fail "the line to publish: $line"
    line=$(sed -n 's/^ *ask *//p' "$run")
    tries=0
    until inside sh -c "$line" 2>/dev/null | grep -q '"text' ; do
        tries=$((tries + 1))
        [ "$tries" -lt 50 ] || { cat "$run"; fail "the line to ask gives no message: $line"; }
        sleep 0.2
    done
    line=$(sed -n 's/^ *watch *//p' "$run")
    inside timeout 5 sh -c "$line" >"$WORK/watch.log" 2>/dev/null || true
    grep -q 'data:.*hello' "$WORK/watch.log" || fail "the line to watch shows no event: $line"
    kill -INT "$pid"
    tries=0
    while kill -0 "$pid" 2>/dev/null; do
        tries=$((tries + 1))
        [ "$tries" -lt 150 ] || { cat "$run"; fail "./start does not end 30 s after an interrupt"; }
        sleep 0.2
    done
    grep -q 'stopping sluice-broker' "$run" || { cat "$run"; fail "an interrupt does not stop ./start in order"; }
    ! grep -q 'ended with status' "$run" || { cat "$run"; fail "a program did not end cleanly"; }
    [ -z "$(running)" ] || fail "processes are left after ./start: $(running)"
}

# running: the pids of processes that work inside the chroot.
running() {
    local link
    for link in /proc/[0-9]*/root; do
        [ "$(readlink "$link" 2>/dev/null)" = "$DEBIAN" ] && basename "$(dirname "$link")"
    done
    return 0
}
cleanup() {
    local pid
    for pid in $(running); do kill -KILL "$pid" 2>/dev/null || true; done
    rm -rf --one-file-system "$WORK"
}

[ "$(id -u)" = 0 ] || skip "needs root (for debootstrap)"
command -v debootstrap >/dev/null || skip "needs debootstrap"
SOURCE=$(own_source)
[ -n "$SOURCE" ] || skip "this machine has no Debian bookworm package source"
tree_files >/dev/null || skip "needs a git checkout"
PASSED=$CACHE/bare-debian-$(state_key).passed
if [ -e "$PASSED" ]; then
    echo "passed on $(cat "$PASSED") with the same scripts, CMake lists and libraries"
    exit 0
fi
WORK=$(mktemp -d /var/tmp/sluice-bare-debian.XXXXXX)
DEBIAN=$WORK/debian
OWNER=54321
trap cleanup EXIT
trap 'exit 143' INT TERM HUP
unshare --mount true 2>/dev/null || skip "needs mount namespaces"
set_inside
make_debian "$SOURCE"
mkdir "$DEBIAN/src"
tree_files | tar -C "$ROOT" --null -T - -cf - | tar -C "$DEBIAN/src" -xf -
chown -R "$OWNER:$OWNER" "$DEBIAN/src"
check_build
check_owner
check_run
check_owner
mkdir -p "$CACHE"
date -u '+%Y-%m-%d %H:%M UTC' >"$PASSED"
echo "passed"
