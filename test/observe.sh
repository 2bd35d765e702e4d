#!/usr/bin/env bash
# Two routers between simulated nodes, watched by a real Prometheus with the alerts of deploy/prometheus: one hands KV over directly, the
# other is staged, with nodes of its own over NIXL.
#   test/observe.sh check   traffic with every outcome, a decode node and the prefill node dying in it; then every query of every
#                           dashboard and alert must have data. Also the generator's own tests, promtool's tests of the alerts, and
#                           what other readers make of the metrics page. A minute.
#   test/observe.sh up      light traffic until Ctrl-C, to look at Prometheus and to try dashboards
#   test/observe.sh draw    the same traffic as check for twice as long, and pictures of the dashboards after it, in docs/img. They are
#                           drawn with Grafana's own library in a browser, without Grafana's server (test/observe/draw).
# Prometheus comes from PATH, else from the Debian package, which is unpacked into the cache and not installed. NIXL is that of
# PD_ROUTER_NIXL_LIBRARY or of test/nixl-deps.sh. Pictures need Node and Chromium, which is installed with apt when it is missing; what
# npm brings, 430 MB, is kept in the cache.
set -uo pipefail
mode=${1:-check}
[[ $mode == check || $mode == up || $mode == draw ]] || {
  echo "usage: test/observe.sh check|up|draw" >&2
  exit 2
}
# shellcheck source=test/lib.sh
. "$(dirname "$0")/lib.sh"
here=$root/test/observe

find_prometheus || die "no Prometheus: install it, or run this where apt-get can fetch it"
PD_ROUTER_NIXL_LIBRARY=${PD_ROUTER_NIXL_LIBRARY:-$(bash "$root/test/nixl-deps.sh")} || die "no NIXL library"
if [ "$mode" = draw ]; then
  find_chromium
  npm_packages dashboards @grafana/{data,schema,ui}@13.2.3 react{,-dom}@19.3.1 \
    @fontsource/inter@5.3.0 d3-scale-chromatic@3.1.1 esbuild@0.28.2 upng-js@2.1.0 playwright-core@1.65.1
fi
export PD_ROUTER_NIXL_LIBRARY UCX_TLS=tcp UCX_NET_DEVICES=lo UCX_DEBUG_SIGNO=0
build

read -r router_port staged_port merged_port prom_port <<< "$(ports 4)"
read -r prefill_port a_ctrl a_http b_ctrl b_http far_port far_ctrl far_http <<< "$(ports 8)"
router_url=http://127.0.0.1:$router_port staged_url=http://127.0.0.1:$staged_port prom_url=http://127.0.0.1:$prom_port
prefill() {
  launch prefill "$router" sim prefill --listen "127.0.0.1:$prefill_port" --model tiny --senders 2 --transport tcp --fault refuse=1/40
}
decode() { # NAME CTRL HTTP FLAG...
  local name=$1 ctrl=$2 http=$3
  shift 3
  launch "$name" "$router" sim decode --ctrl "127.0.0.1:$ctrl" --http "127.0.0.1:$http" --model tiny --senders 2 --max-seq-len 4096 "$@"
}
decode_b() { decode decode-b "$b_ctrl" "$b_http" --transport tcp --fault truncate=1/15 --fault busy=1/20; } # the one that misbehaves
dies() { # NAME
  kill -9 "${pid[$1]}"
  wait "${pid[$1]}" 2> /dev/null
}
traffic() { # STRETCH [SECONDS]: adds what it sent to $work/sent
  python3 -B "$here/traffic.py" "${to:-$router_url}" "$@" >> "$work/sent" || die "traffic $1 failed"
}

"$router" sim tokenizer "$work/model" || die "no tokenizer of the simulated model"
prefill
decode decode-a "$a_ctrl" "$a_http" --transport tcp
decode_b
launch prefill-nixl "$router" sim prefill --listen "127.0.0.1:$far_port" --model tiny --senders 2 --transport nixl --fault kv-lost=1/8
decode decode-nixl "$far_ctrl" "$far_http" --transport nixl
# A short line and a short wait, so that both bounds are reached in seconds.
serve() { # NAME PORT FLAG...
  local name=$1 port=$2
  shift 2
  launch "$name" "$router" --host 127.0.0.1 --port "$port" --model-path "$work/model" --parser none --queue-timeout 2 --queue-max 8 \
    --log-level warn "$@"
}
direct=(--vllm-url "http://127.0.0.1:$prefill_port" --decode "127.0.0.1:$a_ctrl:$a_http" "127.0.0.1:$b_ctrl:$b_http")
serve router "$router_port" "${direct[@]}"
serve staged "$staged_port" --vllm-url "http://127.0.0.1:$far_port" --decode "127.0.0.1:$far_ctrl:$far_http" --kv-handoff staged --kv-arena-slots 3
up router "$router_url/health"
up staged "$staged_url/health"
python3 -B "$here/prove.py" config "127.0.0.1:$router_port" "127.0.0.1:$staged_port" > "$work/prometheus.yml" || die "no configuration for Prometheus"
launch prometheus "$prometheus" --config.file="$work/prometheus.yml" --storage.tsdb.path="$work/tsdb" \
  --web.listen-address="127.0.0.1:$prom_port" --log.level=error
up prometheus "$prom_url/-/ready"
began=$(date +%s)

if [ "$mode" = up ]; then
  trap 'exit 0' INT TERM
  launch traffic python3 -B "$here/traffic.py" "$router_url" steady 1e9
  launch ahead python3 -B "$here/traffic.py" "$staged_url" ahead 1e9
  echo "router      $router_url/v1/chat/completions, /metrics; with staged KV $staged_url"
  echo "Prometheus  $prom_url/alerts, $prom_url/graph"
  echo "nodes       prefill 127.0.0.1:$prefill_port, decode 127.0.0.1:$a_ctrl:$a_http 127.0.0.1:$b_ctrl:$b_http"
  echo "dashboards  deploy/grafana/*.json, to be imported into a Grafana with $prom_url as data source"
  echo "Ctrl-C ends all of it."
  wait "${pid[traffic]}"
  die "the traffic ended"
fi

# story SLOWER AHEAD: traffic with every outcome, SLOWER times 31 seconds; beside it, AHEAD seconds for the staged router.
story() {
  local rc=0 ahead_pid steady_pid
  to=$staged_url traffic ahead "$2" &
  ahead_pid=$!
  traffic wrong
  traffic steady $((5 * $1))
  traffic crowd $((8 * $1))
  traffic steady $((9 * $1)) & # a decode node dies under it and comes back
  steady_pid=$!
  sleep $((2 * $1))
  dies decode-b
  sleep $((3 * $1))
  decode_b
  wait $steady_pid || rc=1
  dies prefill # and so does the prefill node
  traffic steady $((3 * $1))
  prefill
  traffic steady $((6 * $1))
  wait $ahead_pid || rc=1
  return $rc
}

if [ "$mode" = draw ]; then
  story 2 64 || die "the traffic failed"
  # From when the first rates have their 8 seconds.
  CHROMIUM=$chromium node "$here/draw/draw.cjs" "$prom_url" $((began + 8)) "$(date +%s)" "$root/docs/img" "$root"/deploy/grafana/*.json
  exit
fi

# What needs no traffic runs beside it.
static() {
  local rc=0
  (cd "$root/deploy/grafana/gen" && go test ./... > "$work/gen.log" 2>&1) && echo "ok   dashboards are as the generator writes them, and keep its rules" ||
    { rc=1; echo "FAIL deploy/grafana/gen"; cat "$work/gen.log"; }
  (cd "$root/deploy/prometheus" && "$promtool" check config prometheus.yml && "$promtool" test rules pd-router.rules.test.yml) > "$work/rules.log" 2>&1 &&
    echo "ok   promtool: configuration and rules are valid, and the alerts pass their tests" || { rc=1; echo "FAIL promtool"; cat "$work/rules.log"; }
  curl -s "$staged_url/metrics" | grep -v '\bvllm:' | "$promtool" check metrics > "$work/lint.log" 2>&1 && # their colon is vLLM's
    echo "ok   promtool: the metrics page follows the rules for names and help" || { rc=1; echo "FAIL promtool check metrics"; cat "$work/lint.log"; }
  return $rc
}

rc=0
python3 -B "$here/page.py" "$router_url" > "$work/page" || rc=1
grep -v '^{' "$work/page"
grep '^{' "$work/page" >> "$work/sent"
serve merged "$merged_port" "${direct[@]}" --reexport-vllm-metrics # of the same nodes, only to be read
up merged "http://127.0.0.1:$merged_port/health"
python3 -B "$here/page.py" "http://127.0.0.1:$merged_port" merged || rc=1
stop "${pid[merged]}"
static > "$work/static" 2>&1 &
static_pid=$!
story 1 12 || rc=1
wait $static_pid || rc=1
cat "$work/static"
sent=$(python3 -B -c 'import json, sys; print(sum(json.loads(x)["sent"] for x in sys.stdin))' < "$work/sent")
python3 -B "$here/prove.py" check "$prom_url" "$began" "$sent" "$router_url" "$staged_url" || rc=1
exit $rc
