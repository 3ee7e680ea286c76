#!/usr/bin/env bash
# Does it still stall without TCP_NODELAY, and is it still gone with it? For CI, or anybody's shell.
#
#   ci/nagle-regression.sh OUT      OUT: a new or empty folder
#
# Runs every variant of VARIANTS, holds each against what it expects, and writes into OUT:
#   junit.xml, summary.md   of the last run of each variant, and their comparison
#   runs/                   all runs with their captures; removed when green, unless KEEP=1
#
# Exit codes: 0 as expected · 1 red: the behaviour changed, and a second run says so, too · 2 set-up or usage ·
# 3 this machine is too noisy to say: runs were INVALID or inconclusive, or did not agree.
#
# Settings, from the environment: SCENARIO, VARIANTS, ATTEMPTS (runs per variant at most, at least 2), KEEP; and what
# the scenario and set-up listen to (REQUESTS, CONCURRENCY, SERVER_IMAGE, BASE_IMAGE …).
set -euo pipefail

readonly SCENARIO=${SCENARIO:-nginx-static} ATTEMPTS=${ATTEMPTS:-3}
read -ra variants <<<"${VARIANTS:-nodelay-off nodelay-on}"

die() {
  echo "nagle-regression: $1" >&2
  exit 2
}

say() { echo "nagle-regression: $1" >&2; }

[[ $# -eq 1 && $1 != -* ]] || die "usage: ci/nagle-regression.sh OUT, a new or empty folder for the results"
[[ $ATTEMPTS =~ ^[1-9][0-9]?$ && $ATTEMPTS -ge 2 ]] || die "ATTEMPTS=$ATTEMPTS: give a number from 2 on, for red needs a second run"
(( ${#variants[@]} )) || die "VARIANTS is empty: name at least one (make list names them)"
out=$1
mkdir -p "$out" || die "$out: cannot be made: name another folder"
out=$(cd "$out" && pwd)
[[ -z $(ls -A "$out") ]] || die "$out: is not empty: name a new folder, or empty it"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly nagle_lab=.venv/bin/nagle-lab

declare -A outcomes=() # variant → how each of its runs ended

# One run. Prints green, red or noisy; ends the script where there is nothing to judge.
attempt() {
  local code=0 result=$out/$1.json
  "$nagle_lab" run "$SCENARIO" "$1" --runs "$out/runs" --json >"$result" || code=$?
  case $code in
    0) echo green ;;
    1) echo red ;;
    3) echo noisy ;;
    2) if [[ -s $result ]]; then echo noisy; else return 2; fi ;; # with a result it is INVALID: lossy, say
    *) return "$code" ;;
  esac
  rm -f "$result"
}

# Runs of one variant until its outcome is sure: 0 green at once, 1 red twice, 3 anything else.
settle() {
  local outcome reds=0 code=0
  for ((n = 1; n <= ATTEMPTS; n++)); do
    say "$SCENARIO $1, run $n of at most $ATTEMPTS"
    outcome=$(attempt "$1") || code=$?
    (( code == 0 )) || { say "$SCENARIO $1 could not be run"; exit "$code"; }
    outcomes[$1]+="${outcomes[$1]:+, }$outcome"
    case $outcome in
      green) return $((reds ? 3 : 0)) ;;
      red) (( ++reds < 2 )) || return 1 ;;
    esac
  done
  return 3
}

# The page: what came out, each variant, and all of them side by side.
summarize() {
  local -A words=([0]="🟢 as expected" [1]="🔴 the behaviour changed" [3]="🟡 too noisy to say")
  echo "## $SCENARIO: ${words[$1]}"
  echo
  for variant in "${variants[@]}"; do echo "- \`$variant\`: ${outcomes[$variant]:-not run}"; done
  echo
  cat "$out"/runs.md
  if [[ -s $out/compare.md ]]; then cat "$out/compare.md"; fi
}

report() {
  local runs=()
  for variant in "${variants[@]}"; do
    if [[ -e $out/runs/latest-$SCENARIO-$variant ]]; then runs+=("$out/runs/latest-$SCENARIO-$variant"); fi
  done
  : >"$out/runs.md"
  if (( ${#runs[@]} )); then
    "$nagle_lab" analyze "${runs[@]}" --json --junit "$out/junit.xml" --markdown "$out/runs.md" >/dev/null || true # its exit code is that of the runs
    [[ -s $out/junit.xml ]] || die "the runs could not be read again; they are in $out/runs"
  fi
  if (( ${#runs[@]} > 1 )); then "$nagle_lab" compare "${runs[@]}" --json --markdown "$out/compare.md" >/dev/null || true; fi
  summarize "$1" >"$out/summary.md"
  rm -f "$out/runs.md" "$out/compare.md"
  if [[ -n ${GITHUB_STEP_SUMMARY:-} ]]; then cat "$out/summary.md" >>"$GITHUB_STEP_SUMMARY"; fi
}

for step in engine base-image python; do "setup/$step.sh" || die "set-up failed (setup/$step.sh)"; done

verdict=0
for variant in "${variants[@]}"; do
  code=0
  settle "$variant" || code=$?
  if (( code == 1 || verdict == 0 )); then verdict=$code; fi
done
report "$verdict"
if (( verdict == 0 )) && [[ ${KEEP:-} != 1 ]]; then rm -rf "$out/runs"; fi
for variant in "${variants[@]}"; do say "$variant: ${outcomes[$variant]}"; done
case $verdict in
  0) say "as expected; the reports are in $out" ;;
  1) say "RED: the behaviour changed; captures and reports are in $out" ;;
  3) say "too noisy to say; captures and reports are in $out" ;;
esac
exit "$verdict"
