#!/usr/bin/env bash
# What the action does between setting up Python and uploading: install nagle-lab from this checkout, guard the command,
# add to the job's summary. Inputs are in GUARD_… (action.yml); RUNNER_TEMP, GITHUB_OUTPUT and GITHUB_STEP_SUMMARY are
# the runner's.
#
# Exit codes are those of `nagle-lab guard`: 0 as expected · 1 the other verdict · 2 INVALID, set-up or usage ·
# 3 INCONCLUSIVE · 124 time limit · the command's own when it fails.
set -euo pipefail

checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
readonly checkout venv=$RUNNER_TEMP/nagle-lab-guard-venv

error() { echo "::error title=nagle-lab guard::$1"; }

# is_true NAME VALUE: whether an input that is true or false is true.
is_true() {
  case $2 in
    true) return 0 ;;
    false | "") return 1 ;;
  esac
  error "input $1: say true or false"
  exit 2
}

command=${GUARD_COMMAND:-}
if [[ -z ${command//[[:space:]]/} ]]; then
  error "input command is empty: say what to run, such as: npm test"
  exit 2
fi
options=(--expect "${GUARD_EXPECT:-clean}")
if is_true both-sides "${GUARD_BOTH_SIDES:-}"; then options+=(--both-sides); fi
if is_true trace "${GUARD_TRACE:-}"; then options+=(--trace); fi
if is_true keep "${GUARD_KEEP:-}"; then upload=true; else upload=false; fi
if [[ -n ${GUARD_TIME_LIMIT:-} ]]; then options+=(--time-limit "$GUARD_TIME_LIMIT"); fi
read -rd '' -a ports <<<"${GUARD_PORTS:-}" || true # it reads to the end, and says so
read -rd '' -a allowed <<<"${GUARD_ALLOW:-}" || true
for port in "${ports[@]}"; do options+=(--port "$port"); done
for server in "${allowed[@]}"; do options+=(--allow "$server"); done
python=${GUARD_PYTHON:-}
unset "${!GUARD_@}" # the command does not see them

if ! PATH=${python:+${python%/*}:}$PATH NAGLE_LAB_VENV=$venv "$checkout/setup/python.sh"; then
  error "nagle-lab could not be installed: see the log"
  exit 2
fi

folder=$(mktemp -d "$RUNNER_TEMP/nagle-guard-XXXXXX")
code=0
"$venv/bin/nagle-lab" guard "${options[@]}" --keep "$folder/recording" \
  --junit "$folder/junit.xml" --markdown "$folder/summary.md" -- bash -euo pipefail -c "$command" || code=$?

verdict=
if [[ -s $folder/recording/guard.json ]]; then
  verdict=$("$venv/bin/python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["verdict"])' "$folder/recording/guard.json")
  cat "$folder/summary.md" >>"$GITHUB_STEP_SUMMARY"
fi
if (( code )); then
  upload=true
  error "${verdict:-nothing was judged}, exit code $code: see the log${verdict:+ and the job summary}"
fi
printf '%s\n' "verdict=$verdict" "folder=$folder" "upload=$upload" >>"$GITHUB_OUTPUT"
exit "$code"
