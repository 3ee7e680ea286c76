#!/usr/bin/env bash
# Remove what the lab made: containers and networks of ended runs, images, .venv, caches, the site. Captures stay.
# clean.sh runs: remove the recorded runs, and nothing else.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# A run's containers and networks name, in labels, its host and the file it holds locked while it lives.
readonly LABELS='{{.ID}}|{{.Label "nagle-lab.host"}}|{{.Label "nagle-lab.lock"}}'
in_use=no

# has_ended LOCK HOST: true when the run is known to have ended; not when it was started by hand or on another host.
has_ended() { [[ -n $1 && $2 == "$(uname -n)" ]] && { [[ ! -e $1 ]] || flock --nonblock "$1" true; }; }

# Read lines of LABELS; leave the ids of what has ended in $ended.
find_ended() {
  local id host lock
  ended=()
  while IFS='|' read -r id host lock; do
    if has_ended "$lock" "$host"; then ended+=("$id"); else in_use=yes; fi
  done
}

remove_leftovers() {
  local ended
  find_ended < <(docker ps --all --filter label=nagle-lab.lock --format "$LABELS")
  ((${#ended[@]} == 0)) || docker rm --force --volumes "${ended[@]}" >/dev/null
  find_ended < <(docker network ls --filter label=nagle-lab.lock --format "$LABELS")
  ((${#ended[@]} == 0)) || docker network rm "${ended[@]}" >/dev/null
}

remove_images() {
  local images
  mapfile -t images < <(docker image ls --filter 'reference=nagle-lab/*' --filter 'reference=nagle-lab-again-*/*' \
    --format '{{.Repository}}:{{.Tag}}' | grep -v '<none>')
  ((${#images[@]} == 0)) || docker image rm "${images[@]}" >/dev/null
  docker image prune --force --filter label=nagle-lab.base >/dev/null  # first stages of images built in two
}

cd "$checkout"
if [[ ${1:-} == runs ]]; then
  require_ours captures captures/runs captures/runs/*
  rm -rf captures/runs
  exit
fi

if timeout 10 docker version >/dev/null 2>&1; then
  remove_leftovers
  if [[ $in_use == yes ]]; then
    say "keeping the images, and the containers of runs in progress or that you started yourself"
  else
    remove_images
  fi
elif command -v docker >/dev/null; then
  say "no Docker engine answers: containers, networks and images, if any, are kept"
fi

require_ours . .venv .venv/lib .cache public .pytest_cache .mypy_cache .ruff_cache .hypothesis
rm -rf .venv .cache sbom .pytest_cache .mypy_cache .ruff_cache .hypothesis analysis/{build,*.egg-info,.mypy_cache,.ruff_cache}
[[ ! -e public/.nagle-lab-site ]] || rm -rf public
find . -path ./.git -prune -o -path ./.venv -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
