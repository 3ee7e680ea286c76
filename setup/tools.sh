#!/usr/bin/env bash
# Make sure that the tests have tshark, the reference dissector they compare us with; strace, with which a guard names
# the writes of a stall; Chromium, in which they open reports; and promtool, which tests alert rules. The lab needs none.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

has_browser() {
  local name
  for name in chromium chromium-browser google-chrome google-chrome-stable; do
    command -v "$name" >/dev/null && return
  done
  return 1
}

# Of Debian's package prometheus only promtool: installed, it would start a server. Without it one test is skipped.
fetch_promtool() {
  local -r into=$checkout/.venv/bin/promtool
  local folder
  [[ ! -x $into && -d ${into%/*} ]] && ! command -v promtool >/dev/null || return 0
  is_debian && installing_allowed && apt_has prometheus || return 0
  say "fetching promtool from the package prometheus"
  folder=$(mktemp -d)
  if (cd "$folder" && apt-get -qq download prometheus && dpkg-deb --extract prometheus_*.deb .) >/dev/null 2>&1; then
    mv "$folder/usr/bin/promtool" "$into"
  else
    say "cannot fetch promtool: the test of the alert rules is skipped"
  fi
  rm -rf "$folder"
}

missing=()
command -v tshark >/dev/null || missing+=(tshark)
command -v strace >/dev/null || missing+=(strace)
has_browser || missing+=(chromium)
if ((${#missing[@]} == 0)); then
  fetch_promtool
  exit
fi

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
fetch_promtool
