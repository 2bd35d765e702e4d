#!/usr/bin/env bash
# Runs the staging arena between a sender of another make (the kit's kvsender.py, which uses NIXL's Python API) and the real TileRT decode
# server: stub engine, real control plane with 8 sender ranks, KV over NIXL on host memory. What is checked is TestRealNode in internal/staging.
# usage: test/staging-peer.sh
# env: PEER_VENV, a peer that is already installed; PD_ROUTER_NIXL_LIBRARY, the library for the arena
set -uo pipefail
# shellcheck source=test/lib.sh
. "$(dirname "$0")/lib.sh"
need_kit peer
export PEER_VENV=${PEER_VENV:-$cache/peer}
[ -x "$PEER_VENV/bin/python" ] || bash "$root/test/peer.sh" setup || die "no peer"
PD_ROUTER_NIXL_LIBRARY=${PD_ROUTER_NIXL_LIBRARY:-$(bash "$root/test/nixl-deps.sh")} || die "no NIXL library"
export PD_ROUTER_NIXL_LIBRARY

read -r ctrl_port http_port <<< "$(ports 2)"
PEER_MAX_SEQ=256 launch node bash "$kit/peer/peer.sh" decode "$ctrl_port" "$http_port"
up node "http://127.0.0.1:$http_port/health"

export UCX_TLS=tcp UCX_NET_DEVICES=lo UCX_DEBUG_SIGNO=0
export PD_ROUTER_STAGING_NODE="127.0.0.1 $ctrl_port $http_port ${pid[node]}"
export PD_ROUTER_STAGING_SENDER="$PEER_VENV/bin/python -B $kit/peer/kvsender.py --model glm5 --max-seq 256"
cd "$root" && go test -count 1 -timeout 120s -run '^TestRealNode$' -v ./internal/staging | grep -v '^=== RUN'
