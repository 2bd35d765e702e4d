#!/usr/bin/env bash
# Starts the router on the prefill node of a job, waits until it is ready, and runs a client against it:
#   srun --overlap --nodes=1 --ntasks=1 --nodelist="$PREFILL_HOST" deploy/slurm/router.sh [CLIENT ARG...]
# Without CLIENT it serves until it is told to stop. The exit code is the client's; the router's, where that ends first.
#
# Set by the environment, with the names and defaults that launchers of TileRT jobs have:
#   MODEL_PATH, DECODE_HOST          required; several decode nodes with blanks between them
#   PREFILL_HOST, PREFILL_PORT       127.0.0.1, 8000
#   DECODE_CTRL_PORT, ..._HTTP_PORT  5556, 5557
#   PORT                             8888, the router's
#   TILERT_PARSER                    none
#   TILERT_QUEUE_TIMEOUT             1800
#   ROUTER_WAIT                      3600, how long the nodes may take to answer for the first time
#   BENCHMARK_LOGS_DIR               ., where tilert_router.log is appended to
#   PD_ROUTER                        pd-router, the program
# All else as PD_ROUTER_* (docs/config.md), such as PD_ROUTER_KV_HANDOFF=staged.
set -euo pipefail
: "${MODEL_PATH:?is not set: the folder of the model}" "${DECODE_HOST:?is not set: the hosts of the decode nodes}"
port=${PORT:-8888} wait=${ROUTER_WAIT:-3600} logs=${BENCHMARK_LOGS_DIR:-.}
url=http://127.0.0.1:$port log=$logs/tilert_router.log prefill=http://${PREFILL_HOST:-127.0.0.1}:${PREFILL_PORT:-8000}
nodes=()
for host in $DECODE_HOST; do nodes+=("$host:${DECODE_CTRL_PORT:-5556}:${DECODE_HTTP_PORT:-5557}"); done
command=("${PD_ROUTER:-pd-router}" --vllm-url "$prefill" --decode "${nodes[@]}" --host 0.0.0.0 --port "$port" --model-path "$MODEL_PATH"
  --parser "${TILERT_PARSER:-none}" --queue-timeout "${TILERT_QUEUE_TIMEOUT:-1800}" --startup-timeout "$wait")

say() { echo "router.sh: $*" >&2; }

# end PID SECONDS: TERM, and KILL when that did not help in time.
end() {
  local i
  kill "$1" 2> /dev/null || return 0
  for ((i = 0; i < $2 * 10; i++)); do
    kill -0 "$1" 2> /dev/null || return 0
    sleep 0.1
  done
  say "process $1 did not end within $2 s: killed"
  kill -9 "$1" 2> /dev/null || true
}

# However this script ends, by errexit too, nothing of it stays: the client first, so that its replies are not cut.
router='' client=''
cleanup() {
  local rc=$?
  trap - EXIT
  trap '' INT TERM
  [ -z "$client" ] || end "$client" 10
  [ -z "$router" ] || end "$router" 40 # more than --drain-timeout
  exit $rc
}
trap cleanup EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

mkdir -p "$logs"
printf '===== [router] %s =====\n[cmd] %s\n[cwd] %s\n[host] %s\n' "$(date -Is)" "${command[*]}" "$PWD" "$(hostname)" >> "$log"
CUDA_VISIBLE_DEVICES='' HIP_VISIBLE_DEVICES='' ROCR_VISIBLE_DEVICES='' "${command[@]}" >> "$log" 2>&1 < /dev/null &
router=$!

# died RC WHEN: the router is gone, which is told with its reason. Its exit code is this script's, but never 0 before a client has run.
died() {
  router=''
  say "the router ended with exit code $1 $2. The end of $log:"
  tail -n 5 "$log" >&2
  exit $(($1 == 0 ? 1 : $1))
}
# The router ends by itself when the nodes do not answer in time; ten seconds later this does.
deadline=$((SECONDS + ${wait%.*} + 10))
until curl -sf -m 5 -o /dev/null "$url/health" && kill -0 "$router" 2> /dev/null; do
  if ! kill -0 "$router" 2> /dev/null; then
    rc=0
    wait "$router" || rc=$?
    died $rc "before it was ready"
  fi
  if [ $SECONDS -ge $deadline ]; then
    say "not ready after $wait s; it says: $(curl -s -m 5 "$url/health" || echo nothing)"
    exit 1
  fi
  sleep 0.5
done
say "ready at $url, log in $log"
if [ $# = 0 ]; then
  wait "$router"
  exit
fi

# vLLM has a metrics page of its own, which AIPerf reads beside the router's.
AIPERF_SERVER_METRICS_URLS=${AIPERF_SERVER_METRICS_URLS:-$prefill/metrics} PORT=$port "$@" &
client=$!
rc=0
wait -n -p ended "$router" "$client" || rc=$?
[ "$ended" = "$client" ] || died $rc "while the client ran"
client=''
exit $rc
