#!/usr/bin/env bash
# Runs the black-box suite against bin/pd-router. Every case passes, or stands with its reason in test/known-missing.txt.
# usage: test/blackbox.sh [--only B11,T4] [--group RT] [--src peer] [--jobs 2]     (arguments of the suite)
set -uo pipefail
# shellcheck source=test/lib.sh
. "$(dirname "$0")/lib.sh"
need_kit blackbox
build
known=$root/test/known-missing.txt

suite() { # RESULT.json, arguments of the suite
  local result=$1
  shift
  PYTHONPATH=$kit python3 -B -m blackbox --json "$result" "$@" --router "'$router' --vllm-url {vllm} --decode {decode} \
    --host 127.0.0.1 --port {port} --model-path {tok} --parser {parser} --queue-timeout {qt} {extra}"
  [ -s "$result" ] || die "the suite ended without a result"
}

cd "$work" || exit 2
suite first.json "$@"
again=$(python3 -B "$root/test/known.py" again "$known" first.json) || exit 1
if [ -n "$again" ]; then
  # Requests a few milliseconds apart arrive as one on a machine that is busy: what fails twice, the second time alone, is a failure.
  echo "again: $again"
  suite second.json --only "$again"
fi
python3 -B "$root/test/known.py" judge "$known" first.json $([ -z "$again" ] || echo second.json)
