#!/usr/bin/env bash
# Runs the Go tests that plain `make test` skips because something has to be installed first: real tokenizers, the NIXL library.
# usage: test/real.sh         env: RACE=1 with the race detector
#        test/real.sh setup   only installs (once, into the cache)
set -uo pipefail
# shellcheck source=test/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$root" || exit 2

once tokenizers "$(cksum < test/tokenizers.sh)" bash test/tokenizers.sh "$cache/tokenizers" > "$work/tokenizers.log" 2>&1 \
  || { show tokenizers; die "no tokenizers"; }
bash test/nixl-deps.sh > "$work/nixl.log" 2>&1 || { show nixl; die "no NIXL library"; }
[ "${1:-}" != setup ] || exit 0

# Every package that looks for the NIXL library or for a folder of tokenizers.
packages=$(grep -rlE --include='*_test.go' 'PD_ROUTER_TOKENIZERS|nixl\.(PathVariable|Open)|[^.]PathVariable' internal | xargs -n 1 dirname | sort -u | sed 's|^|./|')
export PD_ROUTER_TOKENIZERS=$cache/tokenizers PD_ROUTER_CACHE=$cache
# Two need more than libraries, and have scripts of their own: TestRealNode a node (test/staging-peer.sh), TestInterop a NIXL peer of
# another make (test/nixl-interop.sh).
# shellcheck disable=SC2086
go test ${RACE:+-race} -skip '^(TestRealNode|TestInterop)$' -v $packages > "$work/go.log" 2>&1
rc=$?
# Whole routers that hold KV; TestChaos has a target of its own.
go test ${RACE:+-race} -count=1 -run '^TestStaged$' -v ./test/scenario >> "$work/go.log" 2>&1 || rc=1
grep -E '^(ok|FAIL|panic:)|^ *--- (FAIL|SKIP)|DATA RACE' "$work/go.log"
echo "real: $(grep -cE '^--- PASS' "$work/go.log") passed, $(grep -cE '^--- FAIL' "$work/go.log") failed"
if [ $rc = 0 ] && grep -qE '^ *--- SKIP' "$work/go.log"; then
  die "a test was skipped although all that it needs is installed"
fi
exit $rc
