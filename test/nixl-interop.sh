#!/usr/bin/env bash
# Runs internal/nixl against a NIXL peer that is not ours (nixl/nixl_peer.py of the kit), both ways, through the wheel's Python API and
# through its C API; then many agents coming and going.
# usage: test/nixl-interop.sh [capi] [api]     default: both
# env: PEER_VENV, a Python environment with nixl-cu12 and numpy; SOAK, how many agents come and go (1000)
set -uo pipefail
# shellcheck source=test/lib.sh
. "$(dirname "$0")/lib.sh"
need_kit nixl
[ $# -gt 0 ] || set -- capi api

PD_ROUTER_NIXL_LIBRARY=${PD_ROUTER_NIXL_LIBRARY:-$("$root/test/nixl-deps.sh")} || die "no NIXL library"
export PD_ROUTER_NIXL_LIBRARY
export PD_ROUTER_NIXL_PEER=$kit/nixl/nixl_peer.py PD_ROUTER_NIXL_PEER_IMPLS="$*" PD_ROUTER_NIXL_PEER_PYTHON=python3
if [[ " $* " == *" api "* ]]; then
  export PEER_VENV=${PEER_VENV:-$cache/peer}
  once peer "$(cksum < "$kit/peer/setup.sh") $PEER_VENV" bash "$kit/peer/setup.sh" > "$work/setup.log" 2>&1 || die "setup of the peer failed: $(tail -n 3 "$work/setup.log")"
  PD_ROUTER_NIXL_PEER_PYTHON=$PEER_VENV/bin/python
fi

cd "$root" || exit 2
PD_ROUTER_NIXL_SOAK=${SOAK:-1000} CI=1 go test -count=1 -timeout 20m -v -run '^(TestInterop|TestRealAgentsComeAndGo)$' ./internal/nixl/ > "$work/go.log" 2>&1
rc=$?
grep -E '^ *--- (PASS|FAIL): Test[A-Za-z]+(/[^/#]+)? |cycles:' "$work/go.log"
[ $rc = 0 ] || tail -n 60 "$work/go.log"
echo "nixl-interop: $(grep -cE '^ +--- PASS: TestInterop/' "$work/go.log") passed, $(grep -cE '^ +--- FAIL: TestInterop/' "$work/go.log") failed"
exit $rc
