#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# apt-install.sh PACKAGE...: installs Debian packages as root and starts no daemon while doing so.
# Called by ./start and ./test (through sudo when they are not root), and only with what is missing.
set -eu

POLICY=/usr/sbin/policy-rc.d
SAVED=$POLICY.sluice-saved

[ "$(id -u)" = 0 ] || { echo "apt-install.sh: must run as root" >&2; exit 1; }
[ $# -gt 0 ] || { echo "usage: apt-install.sh PACKAGE..." >&2; exit 2; }

restore() {
    rm -f "$POLICY"
    [ ! -e "$SAVED" ] || mv "$SAVED" "$POLICY"
}

# A policy file of the machine's own is put back afterwards, also after an interrupted earlier run.
[ -e "$SAVED" ] || [ ! -e "$POLICY" ] || mv "$POLICY" "$SAVED"
trap restore EXIT
trap 'exit 130' INT TERM HUP
printf '#!/bin/sh\nexit 101\n' >"$POLICY"
chmod 755 "$POLICY"

export DEBIAN_FRONTEND=noninteractive

install_them() {
    apt-get install -y -q --no-install-recommends -o DPkg::Lock::Timeout=300 \
        -o Dpkg::Options::=--force-confold "$@" </dev/null
}

# Package lists older than a day (or absent) are fetched first: stale ones name files that are gone.
if [ -z "$(find /var/lib/apt/lists -maxdepth 1 -name '*_Packages*' -mtime -1 2>/dev/null | head -n 1)" ]; then
    apt-get update -q </dev/null || echo "apt-install.sh: apt-get update failed; trying with the lists at hand" >&2
fi
install_them "$@" && exit 0
echo "apt-install.sh: once more after apt-get update" >&2
apt-get update -q </dev/null
install_them "$@"
