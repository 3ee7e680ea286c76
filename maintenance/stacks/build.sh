#!/usr/bin/env bash
# Build the programs of the other stacks into .cache/stacks, and install ns-3 there. Needs cargo, go, cc, python3, and
# liblwip-dev of Debian.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
into=$(realpath ../..)/.cache/stacks
mkdir -p "$into"

for tool in cargo go cc; do
  command -v "$tool" >/dev/null || { echo "$0: $tool is missing; install it, then call this again" >&2; exit 2; }
done
[[ -e /usr/include/lwip/lwip/api.h ]] || { echo "$0: lwIP is missing; apt-get install liblwip-dev" >&2; exit 2; }

nice cargo build --quiet --release --manifest-path smoltcp/Cargo.toml --target-dir "$into/smoltcp"
cp "$into/smoltcp/release/smoltcp-peer" "$into/"
(cd netstack && nice go build -o "$into/netstack-peer" .)
cc -std=c11 -D_DEFAULT_SOURCE -O2 -Wall -Wextra -I/usr/include/lwip -o "$into/lwip-peer" lwip/main.c -llwip
[[ -x $into/ns3/bin/python ]] || python3 -m venv "$into/ns3"
"$into/ns3/bin/pip" install --quiet ns3==3.44.post0
