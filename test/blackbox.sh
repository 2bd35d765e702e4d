#!/usr/bin/env bash
# Runs the black-box suite against bin/pd-router. Every case passes, or stands with its reason in test/known-missing.txt.
# usage: test/blackbox.sh [--only B11,T4] [--group RT] [--src peer] [--jobs 2]     (arguments of the suite)
set -uo pipefail
# shellcheck source=test/lib.sh
. "$(dirname "$0")/lib.sh"
need_kit blackbox
build

cd "$work" || exit 2
PYTHONPATH=$kit python3 -B -m blackbox --json result.json "$@" --router "'$router' --vllm-url {vllm} --decode {decode} \
  --host 127.0.0.1 --port {port} --model-path {tok} --parser {parser} --queue-timeout {qt} {extra}"
[ -s result.json ] || die "the suite ended without a result"
python3 -B "$root/test/known.py" "$root/test/known-missing.txt" result.json
