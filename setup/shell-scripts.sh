#!/usr/bin/env bash
# Print every shell script of the project, by extension or first line, each ended by a NUL.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
find . -type d \( -name '.[a-z]*' ! -name .ci ! -name .github -o -path ./captures \) -prune -o -type f -size -1024k -print0 |
  xargs -0 awk 'FNR == 1 { if (/^#!.*[\/ ](ba|da)?sh( |$)/ || FILENAME ~ /\.sh$/) printf "%s%c", FILENAME, 0; nextfile }'
