#!/usr/bin/env bash
# Runs this router in front of the real TileRT decode server (stub engine, real control plane, KV over NIXL on host memory), then the
# same requests through the real TileRT router and this one, and holds every difference against test/peer/differences.txt.
# usage: test/peer.sh [smoke] [diff]     default: both
#        test/peer.sh setup              only installs the peer (once, into the cache)
# env: PEER_VENV, a peer that is already installed; OUT, a folder for differences.jsonl
set -uo pipefail
# shellcheck source=test/lib.sh
. "$(dirname "$0")/lib.sh"
need_kit peer
[ $# -gt 0 ] || set -- smoke diff
export PEER_VENV=${PEER_VENV:-$cache/peer}

once peer "$(cksum < "$kit/peer/setup.sh") $PEER_VENV" bash "$kit/peer/setup.sh" > "$work/setup.log" 2>&1 || { show setup; die "setup of the peer failed"; }
[ "$*" != setup ] || exit 0

build
tok=$work/tok
bash "$kit/peer/peer.sh" tok "$tok" || die "no tokenizer"
read -r ctrl_port http_port prefill_port our_port their_port <<< "$(ports 5)"
node_url=http://127.0.0.1:$http_port prefill_url=http://127.0.0.1:$prefill_port
our_url=http://127.0.0.1:$our_port their_url=http://127.0.0.1:$their_port

# The engine says these ids after the first token of the prefill node, one every 20 ms: ", world. STOP tail more!" and then more.
words=202,203,204,205,206,207,208
for _ in $(seq 56); do words+=,206,207; done

# node MODE: the decode server, (re)started with an engine of that kind (PEER_MODE of the kit's slowdecode.py; "" says the words).
node() {
  [ -z "${pid[node]:-}" ] || stop "${pid[node]}"
  PEER_MODE=$1 PEER_TOKENS=$words PEER_TOKEN_MS=20 launch node bash "$kit/peer/peer.sh" slow "$ctrl_port" "$http_port"
  up node "$node_url/health"
}

node ""
launch prefill bash "$kit/peer/peer.sh" prefill "$prefill_port" --kv nixl
up prefill "$prefill_url/health"
launch ours "$router" --vllm-url "$prefill_url" --decode "127.0.0.1:$ctrl_port:$http_port" --host 127.0.0.1 --port "$our_port" \
  --model-path "$tok" --parser none --queue-timeout 30
up ours "$our_url/health"

bad=0
for what; do
  case $what in
    smoke) python3 -B "$root/test/peer/smoke.py" "$our_url" "$prefill_url" "$node_url" "$work/prefill.log" || bad=1 ;;
    diff)
      launch theirs bash "$kit/peer/peer.sh" router "$their_port" "$prefill_url" "127.0.0.1:$ctrl_port:$http_port" \
        --model-path "$tok" --model glm5 --queue-timeout 30
      up theirs "$their_url/health" 180 # half a minute of imports on a busy machine
      for mode in "" eos window raise; do
        node "$mode"
        python3 -B "$root/test/peer/diff.py" run "${mode:-plain}" "$their_url" "$our_url" "$prefill_url" "$node_url" >> "$work/differences.jsonl" || bad=1
      done
      [ -z "${OUT:-}" ] || { mkdir -p "$OUT" && cp "$work/differences.jsonl" "$OUT/"; }
      python3 -B "$root/test/peer/diff.py" judge "$work/differences.jsonl" "$root/test/peer/differences.txt" || bad=1 ;;
    *) die "unknown: $what" ;;
  esac
done
exit $bad
