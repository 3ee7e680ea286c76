#!/usr/bin/env bash
# Make sure that the tests have tshark, the reference dissector they compare us with; strace, with which a guard names
# the writes of a stall; and Chromium, in which they open reports. The lab needs none of them.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

has_browser() {
  local name
  for name in chromium chromium-browser google-chrome google-chrome-stable; do
    command -v "$name" >/dev/null && return
  done
  return 1
}

missing=()
command -v tshark >/dev/null || missing+=(tshark)
command -v strace >/dev/null || missing+=(strace)
has_browser || missing+=(chromium)
((${#missing[@]})) || exit 0

readonly BY_HAND="sudo apt-get install -y ${missing[*]}"
what=${missing[-1]}
((${#missing[@]} == 1)) || what="$(printf '%s, ' "${missing[@]:0:${#missing[@]}-1}" | sed 's/, $//') and $what"
is_debian || die "the tests need $what. Install what is missing with this system's package manager (tshark is often in the package wireshark-cli)."
is_root || die "the tests need $what, which only root can install. Run: $BY_HAND"
installing_allowed || die "the tests need $what and NAGLE_LAB_NO_INSTALL=1 forbids installing it. Unset it, or run: $BY_HAND"
lock_host
apt_update
if [[ " ${missing[*]} " == *" chromium "* ]] && ! apt_has chromium; then
  die "the tests need Chromium, which this system's apt does not have. Install Chromium or Google Chrome so that one of them is in PATH."
fi
apt_install "${missing[@]}"
