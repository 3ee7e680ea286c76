#!/usr/bin/env bash
# Make sure that tshark is there: the reference dissector that the tests compare us with (the lab does not need it).
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

command -v tshark >/dev/null && exit
readonly BY_HAND="sudo apt-get install -y tshark"
is_debian || die "the tests need tshark. Install it with this system's package manager (often in the package wireshark-cli)."
is_root || die "the tests need tshark, and only root can install it. Run: $BY_HAND"
installing_allowed || die "the tests need tshark and NAGLE_LAB_NO_INSTALL=1 forbids installing it. Unset it, or run: $BY_HAND"
lock_host
apt_update
apt_install tshark
