#!/usr/bin/env bash
# Holds the simulated decode node against the control-plane and decode-node cases that the real one passes.
set -uo pipefail
# shellcheck source=test/lib.sh
. "$(dirname "$0")/lib.sh"
need_kit peer
build
read -r ctrl_port http_port <<< "$(ports 2)"
# The cases are written for two sender ranks and prompts of 128 tokens at most.
launch node "$router" sim decode --ctrl "127.0.0.1:$ctrl_port" --http "127.0.0.1:$http_port" --engine stub --senders 2 --max-seq-len 128
up node "http://127.0.0.1:$http_port/health"
python3 -B "$kit/peer/ctrlcases.py" --ctrl-port "$ctrl_port" --http-port "$http_port"
