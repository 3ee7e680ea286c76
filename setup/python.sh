#!/usr/bin/env bash
# python.sh [run|dev]: make sure that .venv holds nagle-lab and its pinned dependencies.
#
# `run` is what the lab needs, `dev` adds what tests and lint need. A stamp in .venv says what it
# holds; without one (half made, or made by hand), or moved, or on another Python, it is made anew.
# NAGLE_LAB_VENV=<folder> makes it there.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly VENV=${NAGLE_LAB_VENV:-$checkout/.venv}
readonly STAMP=$VENV/nagle-lab.stamp
readonly PACKAGE=$checkout/analysis/nagle_lab
readonly ENGINE=(
  "$PACKAGE"/capture/records.c "$PACKAGE"/packet/segment.c "$PACKAGE"/tcp/{machine,live,programs,tables,engine}.c
  "$PACKAGE"/capture/records.h "$PACKAGE"/packet/segment.h "$PACKAGE"/tcp/{connection,machine,live,programs,tables,engine}.h
)
readonly HOOKS=("$PACKAGE"/guard/tracing/hooks/{java.c,java.h,native.c})
readonly VERSIONS="3.11, 3.12 or 3.13"

requirements() { if [[ $1 == dev ]]; then echo requirements-dev.txt; else echo requirements.txt; fi; }

# digest SET: changes with the pinned versions, with the project's description, and with what is compiled.
digest() {
  cat "$checkout/analysis/$(requirements "$1")" "$checkout/analysis/pyproject.toml" "${ENGINE[@]}" "${HOOKS[@]}" |
    sha256sum | cut -d ' ' -f 1
}

# Where the environment is and which Python runs it: if this changed, nothing in it can be kept.
identity() {
  "$VENV/bin/python" -ISc 'import sys; print("python %d.%d.%d" % sys.version_info[:3], "in", sys.argv[1])' "$VENV" 2>/dev/null
}

stamp_says() { grep -Fqsx "$1" "$STAMP"; }

# dev holds everything that run holds.
holds() {
  stamp_says "$(identity)" || return
  stamp_says "dev $(digest dev)" || { [[ $1 == run ]] && stamp_says "run $(digest run)"; }
}

supported() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; }

find_python() {
  local candidate
  for candidate in python3 python3.13 python3.12 python3.11; do
    if supported "$candidate"; then
      echo "$candidate"
      return
    fi
  done
  die "Python $VERSIONS is needed; python3 here is $(python3 -V 2>/dev/null || echo missing)." \
    "Install one of them so that it runs as python3.13, python3.12 or python3.11."
}

# Debian and Ubuntu ship the module that puts pip into an environment as a package of its own.
ensure_venv_module() { # PYTHON
  "$1" -c 'import venv, ensurepip' 2>/dev/null && return
  local package
  package=$("$1" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
  if is_root && is_debian && installing_allowed; then
    apt_update
    apt_install "$package"
  fi
  "$1" -c 'import venv, ensurepip' 2>/dev/null ||
    die "this Python cannot make virtual environments. Run: sudo apt-get install -y $package"
}

make_venv() {
  local python said
  python=$(find_python)
  ensure_venv_module "$python"
  [[ $VENV == "$checkout/.venv" || ! -e $VENV || -e $VENV/pyvenv.cfg ]] ||
    die "NAGLE_LAB_VENV=$VENV exists and is not a Python environment. Name another folder."
  say "making .venv with $("$python" -V)"
  rm -rf "$VENV"
  said=$("$python" -m venv "$VENV" 2>&1) || die "cannot make .venv: $(last_line <<<"$said")"
}

pip_install() {
  local said
  said=$(PIP_USER=0 "$VENV/bin/python" -m pip --disable-pip-version-check --no-input install --quiet "$@" 2>&1 </dev/null) ||
    die "pip cannot install what nagle-lab needs: $(grep -i '^ERROR: ' <<<"$said" | last_line) Check that a package index can be reached."
}

# A compiler makes large captures some ten times faster; as root on Debian or Ubuntu it is installed.
ensure_compiler() {
  command -v cc >/dev/null && return
  if is_root && is_debian && installing_allowed; then
    (apt_update && apt_install gcc libc6-dev) || true  # it works without one
  fi
}

# The engine is compiled where there is a C compiler; what an earlier set-up compiled must not stay in its place, and is
# told by its sources: whoever pulls and does not set up again goes on with plain Python.
install_nagle_lab() {
  ensure_compiler
  local compiled source
  source=$(cat "${ENGINE[@]}" | "$VENV/bin/python" -c 'import sys, zlib; print(zlib.crc32(sys.stdin.buffer.read()))')
  compiled=$PACKAGE/tcp/_engine$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
  rm -f "$compiled" "$PACKAGE"/guard/tracing/hooks/_*.so
  local -x CPPFLAGS="${CPPFLAGS:-} -DSOURCE=$source"  # CFLAGS would replace those that Python was built with
  pip_install --no-deps --no-build-isolation --editable "$checkout/analysis"
  "$VENV/bin/python" -m compileall -q "$PACKAGE" >/dev/null || true
  [[ -e $compiled ]] || say "$(why_plain): using plain Python, which takes about ten times as long for large captures"
}

why_plain() {
  if command -v cc >/dev/null; then
    echo "cc could not compile the engine (to see why: cd analysis && ../.venv/bin/python setup.py build_ext)"
  else
    echo "no C compiler found"
  fi
}

fill_venv() { # SET
  rm -f "$STAMP"
  say "installing the pinned Python packages ($(requirements "$1")) into .venv"
  pip_install --require-hashes --requirement "$checkout/analysis/$(requirements "$1")"
  install_nagle_lab
  printf '%s\n' "$(identity)" "$1 $(digest "$1")" >"$STAMP"
}

set_wanted=${1:-run}
[[ $set_wanted == run || $set_wanted == dev ]] || die "unknown set of packages: $set_wanted. Use run or dev."
holds "$set_wanted" && exit
require_ours "${VENV%/*}" "$VENV" "$checkout/analysis" "$PACKAGE" "$PACKAGE/tcp"
one_at_a_time "$checkout/setup/python.sh"
holds "$set_wanted" && exit
stamp_says "$(identity)" || make_venv
fill_venv "$set_wanted"
