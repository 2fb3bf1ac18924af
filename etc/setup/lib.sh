# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# lib.sh: what ./start and ./test share; sourced, not run. Packages, disk, ports, the owner of the
# checkout, the build. Needs only what a minimal Debian has: bash, coreutils, util-linux, dpkg, apt.

SL_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
SL_PROGRAM=${0##*/}

# shellcheck disable=SC2034 # for the scripts that source this file
# Everything that compiling and linking needs, and nothing else: tests/install proves it in a chroot.
SL_BUILD_PACKAGES=(gcc libc6-dev cmake ninja-build pkg-config librocksdb-dev libuv1-dev
    libhttp-parser-dev libmicrohttpd-dev libcjson-dev libyaml-dev libsqlite3-dev libmongoc-dev
    libxxhash-dev libhiredis-dev libpq-dev libprotobuf-c-dev protobuf-c-compiler libssl-dev)

say() { printf '%s: %s\n' "$SL_PROGRAM" "$*"; }
warn() { printf '%s: %s\n' "$SL_PROGRAM" "$*" >&2; }
die() {
    warn "$*"
    exit 1
}

is_root() { [ "$(id -u)" = 0 ]; }

# SL_AS_OWNER is the prefix that runs a command as the user that the checkout belongs to: root in
# somebody else's checkout must not leave files there that this user cannot remove.
SL_AS_OWNER=()
as_owner() { "${SL_AS_OWNER[@]}" "$@"; }
find_owner() {
    local uid gid home groups=--clear-groups
    uid=$(stat -c %u "$SL_ROOT")
    gid=$(stat -c %g "$SL_ROOT")
    { is_root && [ "$uid" != 0 ]; } || return 0
    home=$(getent passwd "$uid" | cut -d : -f 6 || true)
    [ -z "$home" ] || groups=--init-groups
    { [ -n "$home" ] && [ -d "$home" ]; } || home=/tmp
    SL_AS_OWNER=(env "HOME=$home" setpriv --reuid "$uid" --regid "$gid" "$groups")
}
find_owner

# packages_missing PACKAGE...: prints those that dpkg does not have installed.
packages_missing() {
    local have p
    # A package that dpkg has never heard of is an error to it and only missing to us.
    # shellcheck disable=SC2016 # the format is dpkg-query's, not the shell's
    have=$(dpkg-query -W -f '${db:Status-Abbrev}${Package}\n' "$@" 2>/dev/null | sed -n 's/^ii *//p' || true)
    for p in "$@"; do
        grep -qxF -- "$p" <<<"$have" || printf '%s\n' "$p"
    done
}

# packages_ensure PACKAGE...: installs what is missing, as root or through sudo; false on failure.
packages_ensure() {
    local missing installer=$SL_ROOT/etc/setup/apt-install.sh
    mapfile -t missing < <(packages_missing "$@")
    [ "${#missing[@]}" -gt 0 ] || return 0
    command -v apt-get >/dev/null || {
        warn "these packages are missing and there is no apt-get: ${missing[*]}"
        return 1
    }
    if is_root; then
        say "installing ${#missing[@]} Debian packages: ${missing[*]}"
        "$installer" "${missing[@]}"
    elif command -v sudo >/dev/null; then
        say "installing packages needs root; running: sudo $installer ${missing[*]}"
        sudo "$installer" "${missing[@]}"
    else
        warn "packages are missing, and there is no sudo. As root, run:"
        warn "  $installer ${missing[*]}"
        return 1
    fi
}

# disk_ensure PATH MEGABYTES WHAT: the file system of PATH (or of its nearest existing parent).
disk_ensure() {
    local path=$1 free
    while [ ! -e "$path" ]; do path=$(dirname "$path"); done
    free=$(df -Pm "$path" | awk 'NR == 2 {print $4}')
    [ "$free" -ge "$2" ] ||
        die "$3 needs $2 MB in $path, but only $free MB are free there; make room and run $SL_PROGRAM again"
}

# port_holder PORT: prints who listens on a TCP port, or nothing. Reads /proc only, since ss and
# lsof need not be there; another user's process is known by its user only.
port_holder() {
    local hex table row uid inode fd pid name
    hex=$(printf '%04X' "$1")
    for table in /proc/net/tcp /proc/net/tcp6; do
        [ -r "$table" ] || continue
        row=$(awk -v port=":$hex" '$4 == "0A" && substr($2, length($2) - 4) == port {print $8, $10; exit}' "$table")
        [ -n "$row" ] && break
    done
    [ -n "$row" ] || return 0
    read -r uid inode <<<"$row"
    for fd in /proc/[0-9]*/fd/*; do
        [ "$(readlink "$fd" 2>/dev/null)" = "socket:[$inode]" ] || continue
        pid=${fd#/proc/}
        pid=${pid%%/*}
        name=$(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | cut -c 1-120)
        printf 'process %s (%s)' "$pid" "${name% }"
        return 0
    done
    name=$(getent passwd "$uid" | cut -d : -f 1 || true)
    printf 'a process of user %s' "${name:-$uid}"
}

# port_ensure PORT WHAT HOW_TO_CHANGE
port_ensure() {
    local who
    who=$(port_holder "$1")
    [ -z "$who" ] || die "port $1 ($2) is held by $who; stop it, or $3"
}

# build_tree DIR TARGET CMAKE_OPTION...: configures and builds, as the owner of the checkout. TARGET
# may be several words. A folder configured for another place (a moved checkout) is made anew.
build_tree() {
    local dir=$1 targets
    read -ra targets <<<"$2"
    shift 2
    if [ -f "$dir/CMakeCache.txt" ] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$SL_ROOT" "$dir/CMakeCache.txt"; then
        say "$dir was configured for another folder; configuring anew"
        rm -rf "$dir/CMakeCache.txt" "$dir/CMakeFiles"
    fi
    as_owner cmake --log-level=WARNING -S "$SL_ROOT" -B "$dir" -G Ninja "$@" || {
        warn "configuring $dir failed; cmake's message is above"
        return 1
    }
    as_owner ninja -C "$dir" "${targets[@]}" || {
        warn "the build in $dir failed; the compiler's messages are above"
        return 1
    }
}
