#!/usr/bin/env bash
# Build the programs of the other stacks into .cache/stacks, and install ns-3 there. Needs cargo, go, cc, make, gawk, git,
# python3, and of Debian liblwip-dev and libssl-dev. FreeBSD's stack is fetched, as libuinet (BSD licence), from
# github.com/pkelsey/libuinet, or copied from the checkout UINET=/path.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
into=$(realpath ../..)/.cache/stacks
mkdir -p "$into"

for tool in cargo go cc make gawk git; do
  command -v "$tool" >/dev/null || { echo "$0: $tool is missing; install it, then call this again" >&2; exit 2; }
done
[[ -e /usr/include/lwip/lwip/api.h ]] || { echo "$0: lwIP is missing; apt-get install liblwip-dev" >&2; exit 2; }

nice cargo build --quiet --release --manifest-path smoltcp/Cargo.toml --target-dir "$into/smoltcp"
cp "$into/smoltcp/release/smoltcp-peer" "$into/"
(cd netstack && nice go build -o "$into/netstack-peer" .)
cc -std=c11 -D_DEFAULT_SOURCE -O2 -Wall -Wextra -I/usr/include/lwip -o "$into/lwip-peer" lwip/main.c -llwip

uinet=$into/libuinet
if [[ ! -d $uinet ]]; then
  if [[ -n ${UINET:-} ]]; then
    cp -r "$UINET" "$uinet"
  else
    git clone --quiet https://github.com/pkelsey/libuinet "$uinet"
    git -C "$uinet" checkout --quiet 253e24687886cec583331b56d594b60ed3cd0410
  fi
  # Its drivers need netmap and an old libpcap; ours takes the place of the second.
  sed -i '/uinet_if_netmap/d; /uinet_if_pcap_host.c/d' "$uinet/lib/libuinet/Makefile"
fi
cp freebsd/device.c "$uinet/lib/libuinet/uinet_if_pcap.c"
nice make --silent -C "$uinet/lib/libuinet" WERROR=-w libuinet.a # in parallel it fails
cc -std=c11 -D_DEFAULT_SOURCE -O2 -Wall -Wextra -I"$uinet/lib/libuinet/api_include" -o "$into/freebsd-peer" \
  freebsd/main.c "$uinet/lib/libuinet/libuinet.a" -lpthread -lcrypto

[[ -x $into/ns3/bin/python ]] || python3 -m venv "$into/ns3"
"$into/ns3/bin/pip" install --quiet ns3==3.44.post0
