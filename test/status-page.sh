#!/usr/bin/env bash
# Opens the status page of a router with 10,000 waiting connections in a real browser and looks at it: contents, what must not be
# there, light and dark, keyboard, a narrow screen, accessibility rules, what the feed costs, and its end at a drain.
# usage: test/status-page.sh [-update]     -update writes the pictures of docs/img anew; else they go to out/
# Needs Node and Chromium, which is installed with apt when it is missing; what npm brings is kept in the cache.
set -uo pipefail
# shellcheck source=test/lib.sh
. "$(dirname "$0")/lib.sh"
pictures=$root/out
[ "${1:-}" != -update ] || pictures=$root/docs/img

find_chromium
npm_packages status-page playwright-core@1.65.1 axe-core@4.14.1

build
files=12000 # on each side of the 10,000 connections
[ "$(ulimit -n)" = unlimited ] || [ "$(ulimit -n)" -ge $files ] || ulimit -n $files || die "the limit of open files is $(ulimit -n); the run needs $files"
read -r prefill_port ctrl_a http_a ctrl_b http_b ctrl_c http_c port <<< "$(ports 8)"
launch prefill "$router" sim prefill --listen "127.0.0.1:$prefill_port" --kv none --latency 60ms
launch node-a "$router" sim decode --ctrl "127.0.0.1:$ctrl_a" --http "127.0.0.1:$http_a" --kv none --tokens-per-second 400 --jitter 0.3
launch node-b "$router" sim decode --ctrl "127.0.0.1:$ctrl_b" --http "127.0.0.1:$http_b" --kv none --tokens-per-second 250 --jitter 0.3
# Nobody is at the third node: one that is down must show.
launch router "$router" --vllm-url "http://127.0.0.1:$prefill_port" --host 127.0.0.1 --port "$port" --parser none --queue-max 20000 \
  --decode "127.0.0.1:$ctrl_a:$http_a" "127.0.0.1:$ctrl_b:$http_b" "127.0.0.1:$ctrl_c:$http_c"
up router "http://127.0.0.1:$port/health"
mkdir -p "$pictures"
ROUTER_PID=${pid[router]} CHROMIUM=$chromium PICTURES=$pictures TOP="$router" \
  node "$root/test/status-page.cjs" "http://127.0.0.1:$port"
