#!/usr/bin/env bash
# Runs the simulated nodes over NIXL against nodes that are not ours: the real TileRT decode server (stub engine, 8 sender ranks, host memory)
# behind the router, senders by NIXL's Python and C API, and themselves when they are killed under load. Bytes are compared in the memory of
# the process that received them.
# usage: test/sim-nixl.sh [outbound] [staged] [inbound] [raw] [restart]     default: all
# env: PEER_VENV, a peer that is already installed; PD_ROUTER_NIXL_LIBRARY, the library for our side
set -uo pipefail
# shellcheck source=test/lib.sh
. "$(dirname "$0")/lib.sh"
need_kit peer
need_kit nixl
[ $# -gt 0 ] || set -- outbound staged inbound raw restart
export KIT=$kit PEER_VENV=${PEER_VENV:-$cache/peer}
[ -x "$PEER_VENV/bin/python" ] || bash "$root/test/peer.sh" setup || die "no peer"
PD_ROUTER_NIXL_LIBRARY=${PD_ROUTER_NIXL_LIBRARY:-$(bash "$root/test/nixl-deps.sh")} || die "no NIXL library"
export PD_ROUTER_NIXL_LIBRARY UCX_TLS=tcp UCX_NET_DEVICES=lo UCX_DEBUG_SIGNO=0
build
"$router" sim tokenizer "$work/model" || die "no tokenizer"

passed=0 failed=0
count() { # STATUS
  if [ "$1" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
}
checks=("$PEER_VENV/bin/python" -B "$root/test/sim-nixl/checks.py")
check() { # PART ARGUMENT...
  "${checks[@]}" "$@"
  count $?
}

# again NAME SIGNAL: ends a process by its pid, with no more than that signal.
again() {
  kill "-$2" "${pid[$1]}"
  wait "${pid[$1]}" 2> /dev/null
}

# The simulated nodes have fixed ports, so that they come back where they were. Prefill: NAME PORT FLAG...; decode: NAME CTRL HTTP FLAG...
sim_prefill() {
  launch "$1" "$router" sim prefill --listen "127.0.0.1:$2" --transport nixl "${@:3}"
  up "$1" "http://127.0.0.1:$2/health"
}
sim_decode() {
  launch "$1" "$router" sim decode --ctrl "127.0.0.1:$2" --http "127.0.0.1:$3" --transport nixl "${@:4}"
  up "$1" "http://127.0.0.1:$3/health"
}
route() { # NAME PORT PREFILL_PORT CTRL HTTP FLAG...
  launch "$1" "$router" --vllm-url "http://127.0.0.1:$3" --decode "127.0.0.1:$4:$5" --host 127.0.0.1 --port "$2" \
    --model-path "$work/model" --parser none --queue-timeout 60 "${@:6}"
  up "$1" "http://127.0.0.1:$2/health"
}
real_decode() {
  PEER_MAX_SEQ=256 launch node bash "$kit/peer/peer.sh" decode "$1" "$2"
  up node "http://127.0.0.1:$2/health"
}

outbound() { # our prefill node to the real decode server
  local pre flip ctrl http front
  read -r pre flip ctrl http front <<< "$(ports 5)"
  real_decode "$ctrl" "$http"
  sim_prefill prefill "$pre" --max-model-len 256
  route front "$front" "$pre" "$ctrl" "$http"
  check sent "http://127.0.0.1:$front" "$ctrl" "${pid[node]}"
  sim_prefill flip "$flip" --max-model-len 256 --fault kv-flip
  check damaged "http://127.0.0.1:$flip" "$ctrl" "${pid[node]}"
  again node TERM # and back as another agent
  real_decode "$ctrl" "$http"
  check sent "http://127.0.0.1:$front" "$ctrl" "${pid[node]}"
  again prefill KILL
  sim_prefill prefill "$pre" --max-model-len 256
  check sent "http://127.0.0.1:$front" "$ctrl" "${pid[node]}"
  stop "${pid[front]}" "${pid[flip]}" "${pid[prefill]}" "${pid[node]}"
}

staged() { # our prefill node to the router's memory, and on to the real decode server, which starts again meanwhile
  local pre ctrl http front
  read -r pre ctrl http front <<< "$(ports 4)"
  real_decode "$ctrl" "$http"
  sim_prefill prefill "$pre" --max-model-len 256
  route front "$front" "$pre" "$ctrl" "$http" --kv-handoff staged --kv-arena-slots 2 --kv-verify 1
  check sent "http://127.0.0.1:$front" "$ctrl" "${pid[node]}"
  again node TERM
  real_decode "$ctrl" "$http"
  check sent "http://127.0.0.1:$front" "$ctrl" "${pid[node]}"
  [ "$(curl -sf "http://127.0.0.1:$front/metrics" | awk '/^pd_router_kv_transfer_seconds_count/ { n += $2 } END { print n }')" = 16 ]
  count $?
  stop "${pid[front]}" "${pid[prefill]}" "${pid[node]}"
}

inbound() { # senders by NIXL's Python API to our decode node
  local pre ctrl http front
  read -r pre ctrl http front <<< "$(ports 4)"
  sim_decode decode "$ctrl" "$http" --engine stub --max-seq-len 300
  "$PEER_VENV/bin/python" -B "$kit/peer/kvsender.py" --ctrl-port "$ctrl" --max-seq 256 --seq-len 200 --repeat 3 --verify-pid "${pid[decode]}" > "$work/kvsender.log"
  count $?
  grep -h verified_bytes "$work/kvsender.log" || show kvsender
  launch fake bash "$kit/peer/peer.sh" prefill "$pre" --kv nixl --first-token 40
  up fake "http://127.0.0.1:$pre/health"
  route front "$front" "$pre" "$ctrl" "$http"
  check taken "http://127.0.0.1:$front" "http://127.0.0.1:$http"
  stop "${pid[front]}" "${pid[fake]}" "${pid[decode]}"
}

raw() { # NIXL's own interfaces on both sides
  local pre ctrl_a http_a ctrl_b http_b impl
  read -r pre ctrl_a http_a ctrl_b http_b <<< "$(ports 5)"
  sim_prefill prefill "$pre" --model tiny --senders 1 --max-model-len 512
  sim_decode a "$ctrl_a" "$http_a" --model tiny --senders 1 --max-seq-len 512
  sim_decode b "$ctrl_b" "$http_b" --model tiny --senders 1 --max-seq-len 512 --shards 2
  for impl in capi api; do
    NIXL_LIB=$PD_ROUTER_NIXL_LIBRARY check raw "http://127.0.0.1:$pre" "$ctrl_a" "127.0.0.1:$ctrl_b:$http_b" "$impl"
  done
  stop "${pid[prefill]}" "${pid[a]}" "${pid[b]}"
}

restart() { # both of ours, killed under load
  local pre ctrl http front
  read -r pre ctrl http front <<< "$(ports 4)"
  sim_prefill prefill "$pre" --model tiny
  sim_decode decode "$ctrl" "$http" --model tiny --max-seq-len 8192 --age 1s --tokens-per-second 0
  route front "$front" "$pre" "$ctrl" "$http" --kv-timeout 5 # a request whose KV was lost with a node waits that long
  echo 0 > "$work/good"
  launch load "${checks[@]}" load "http://127.0.0.1:$front" "$work/good"
  for _ in 1 2; do
    answered 20
    again decode KILL
    sim_decode decode "$ctrl" "$http" --model tiny --max-seq-len 8192 --age 1s --tokens-per-second 0
    answered 20
    again prefill KILL
    sim_prefill prefill "$pre" --model tiny
  done
  answered 20
  touch "$work/good.stop"
  wait "${pid[load]}"
  count $?
  cat "$work/load.log"
  stop "${pid[front]}" "${pid[prefill]}" "${pid[decode]}"
}

answered() { # N: waits for N more good answers
  local from end=$((SECONDS + 60))
  from=$(cat "$work/good")
  until [ "$(cat "$work/good")" -ge $((from + $1)) ]; do
    [ $SECONDS -lt $end ] || die "$(cat "$work/good") good answers, and no $1 more since $from"
    sleep 0.05
  done
}

for part; do
  case $part in
    outbound | staged | inbound | raw | restart) "$part" ;;
    *) die "unknown: $part" ;;
  esac
done
echo "sim-nixl: $passed passed, $failed failed"
[ "$failed" = 0 ]
