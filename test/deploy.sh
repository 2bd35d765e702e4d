#!/usr/bin/env bash
# Checks deploy/ with the programs that it is for, as far as they run without a container engine and a cluster.
# usage: test/deploy.sh [PART...]   default: systemd container compose helm slurm dist
#        test/deploy.sh setup       only installs what they need (once, into the cache): Helm and compose-go are built from source
# Every command line, variable and file of deploy/ meets the real program, between simulated nodes and with a real request. What a machine
# cannot do is left out with a line that begins with "skip": compose's services and a Slurm of two hosts run in namespaces, which need
# root, and Prometheus and Slurm are Debian's. All else must be there and right.
set -uo pipefail
# shellcheck source=test/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$root" || exit 2
helm_module=helm.sh/helm/v3/cmd/helm@v3.22.0
compose_module=github.com/compose-spec/compose-go/v2/cmd@v2.16.2
validator=kubernetes-validate==1.37.0 # a Python package that brings the schemas of each Kubernetes version
kubernetes="1.25 1.34 1.37"           # validated against these
go=${GO:-go}

# skip WHAT: a line instead of a check, and false.
skip() {
  skipped=$((skipped + 1))
  echo "skip $part: $*"
  return 1
}
skipped=0

# What the parts need.
install_go() { GOBIN=$cache/deploy/$1 GOFLAGS='' "$go" install "$2"; }
install_validator() { rm -rf "$cache/deploy/py" && python3 -m venv "$cache/deploy/py" && "$cache/deploy/py/bin/pip" install -q --disable-pip-version-check "$validator"; }
need_helm() {
  once deploy-helm "$helm_module" install_go helm "$helm_module" || die "no Helm"
  once deploy-validator "$validator" install_validator || die "no $validator"
}
need_compose() { once deploy-compose "$compose_module" install_go compose "$compose_module" || die "no compose-go"; }
need_prometheus() { find_prometheus || skip "no Prometheus, and apt-get cannot download it"; }
need_slurm() {
  once deploy-slurm 1 debs "$slurm" slurmctld slurmd slurm-client slurm-wlm-basic-plugins libmunge2 libhwloc15 ||
    skip "no whole job: no Slurm, and apt-get cannot download it"
}
helm=$cache/deploy/helm/helm compose=$cache/deploy/compose/cmd validate=$cache/deploy/py/bin/kubernetes-validate slurm=$cache/deploy/slurm
if [ "${1:-}" = setup ]; then
  part=setup
  need_helm
  need_compose
  need_prometheus
  need_slurm
  exit 0
fi
# apart COMMAND...: in namespaces of its own, with a network of its own and its own /etc/hosts, and an end of all when it ends.
apart=(unshare --pid --fork --kill-child --mount --mount-proc --net --uts)
need_namespaces() {
  "${apart[@]}" sh -c 'ip link set lo up && mount --bind /etc/hosts /etc/hosts && hostname x' > /dev/null 2>&1 ||
    skip "$1: this machine allows no namespaces (${apart[*]} fails)"
}
[ $# -gt 0 ] || set -- systemd container compose helm slurm dist
build

passed=0 failed=0
# is WHAT COMMAND...: COMMAND must succeed. What it says is in said.
is() {
  local what=$1
  shift
  if said=$("$@" 2>&1); then
    passed=$((passed + 1))
    echo "ok   $part: $what"
  else
    failed=$((failed + 1))
    echo "FAIL $part: $what"
    tail -n 15 <<< "$said" | cut -c1-400 | sed 's/^/      | /'
  fi
}
exits() { # CODE TEXT COMMAND...: with that exit code and those words in its output
  local code=$1 text=$2 rc=0 out
  shift 2
  out=$("$@" 2>&1) || rc=$?
  echo "$out"
  [ $rc = "$code" ] && grep -qF -- "$text" <<< "$out" || { echo "(exit code $rc, want $code and: $text)"; return 1; }
}
# answer URL: one streamed request, which must end as it should.
answer() {
  curl -sfN -m 20 "$1/v1/chat/completions" -d '{"stream":true,"max_tokens":20,"ignore_eos":true,"messages":[{"role":"user","content":"hello"}]}' |
    grep -q '^data: \[DONE\]'
}
until_true() { # COMMAND...: within five seconds
  local i
  for ((i = 0; i < 100; i++)); do
    "$@" 2> /dev/null && return
    sleep 0.05
  done
  return 1
}
silent() { # TEXT COMMAND...: succeeds without a line that has TEXT
  local text=$1 out
  shift
  out=$("$@" 2>&1) && ! grep -F -- "$text" <<< "$out"
}
gone() { ! kill -0 "$1" 2> /dev/null; }
status() { # CODE URL
  [ "$(curl -s -m 5 -o /dev/null -w '%{http_code}' "$2")" = "$1" ]
}

# One prefill node and two decode nodes for the parts that want nodes.
nodes() {
  [ -z "${prefill_port:-}" ] || return 0
  read -r prefill_port a_ctrl a_http b_ctrl b_http <<< "$(ports 5)"
  launch prefill "$router" sim prefill --listen "127.0.0.1:$prefill_port" --model tiny --max-model-len 32768 --transport tcp
  launch decode-a "$router" sim decode --ctrl "127.0.0.1:$a_ctrl" --http "127.0.0.1:$a_http" --model tiny --max-seq-len 32768 --transport tcp
  launch decode-b "$router" sim decode --ctrl "127.0.0.1:$b_ctrl" --http "127.0.0.1:$b_http" --model tiny --max-seq-len 32768 --transport tcp
  up prefill "http://127.0.0.1:$prefill_port/health"
  up decode-a "http://127.0.0.1:$a_http/health"
  up decode-b "http://127.0.0.1:$b_http/health"
  "$router" sim tokenizer "$work/tiny" || die "no tokenizer of the simulated model"
}

part_systemd() {
  local unit=deploy/systemd/pd-router.service env=deploy/systemd/pd-router.env port exec_start name unknown='' rc
  sed "s#/usr/local/bin/pd-router#$router#" $unit > "$work/pd-router.service"
  if command -v systemd-analyze > /dev/null; then
    is "systemd-analyze verifies the unit, with no word about it" silent pd-router.service systemd-analyze verify "$work/pd-router.service"
    is "its exposure is 2.5 or less (systemd-analyze security)" systemd-analyze security --offline=true --threshold=25 "$work/pd-router.service"
  else
    skip "no systemd-analyze"
  fi
  for name in $(grep -o '^#\?PD_ROUTER_[A-Z_]*' $env | tr -d '#'); do grep -qF "\`$name\`" docs/config.md || unknown+=" $name"; done
  is "each variable of the env file is a setting" test -z "$unknown"
  nodes
  read -r port <<< "$(ports 1)"
  exec_start=$(sed -n "s#^ExecStart=/usr/local/bin/pd-router##p" $unit)
  launch systemd python3 -B test/deploy/notified.py "$work/notify" "$work/told"
  until_true test -S "$work/notify"
  # The env file as it is, but for addresses and folders.
  # shellcheck disable=SC2016,SC2086
  launch unit env -i NOTIFY_SOCKET="$work/notify" bash -c 'set -a; . "$1"; PD_ROUTER_VLLM_URL=$2 PD_ROUTER_DECODE=$3 PD_ROUTER_MODEL_PATH=$4 PD_ROUTER_PORT=$5; shift 5; exec "$@"' \
    bash "$env" "http://127.0.0.1:$prefill_port" "127.0.0.1:$a_ctrl:$a_http 127.0.0.1:$b_ctrl:$b_http" "$work/tiny" "$port" "$router" $exec_start
  up unit "http://127.0.0.1:$port/health"
  is "its command line with its env file serves a request" answer "http://127.0.0.1:$port"
  is "systemd is told that it is ready" until_true grep -qx 'READY=1 STATUS=serving' "$work/told"
  kill "${pid[unit]}"
  wait "${pid[unit]}"
  rc=$?
  is "it ends well" test $rc = 0
  is "systemd is told of the end and asked for the drain's time" until_true grep -qx 'STOPPING=1 .* EXTEND_TIMEOUT_USEC=35000000' "$work/told"
}

part_container() {
  local file=deploy/container/Containerfile context=$work/context line
  git clone -q . "$context" || die "no clone"
  while read -r line; do
    is "build stage: $line" bash -c "cd '$context' && $line"
  done < <(awk '/^FROM/ { n++ } n == 1 && sub(/^RUN /, "")' $file)
  is "the result notes its commit" bash -c "$go version -m '$context/bin/pd-router' | grep -q 'vcs.revision=$(git rev-parse HEAD)'"
}

part_compose() {
  local rc
  need_compose
  (cd deploy/compose && "$compose" -format json compose.yaml) > "$work/project.json" 2> "$work/compose.log"
  rc=$?
  is "compose-go takes the file" test $rc = 0
  [ $rc = 0 ] || { cat "$work/compose.log"; return; }
  need_prometheus && need_namespaces "services do not run" || return
  mkdir -p "$work/compose"
  is "its services run together, under their names" "${apart[@]}" python3 -B test/deploy/compose.py "$work/project.json" deploy/container/Containerfile "$router" "$(command -v "$prometheus")" "$work/compose"
  grep '^ok ' <<< "$said"
}

part_helm() {
  local chart=deploy/helm/pd-router all=$work/values.yaml version port paths path
  need_helm
  nodes
  cat > "$all" <<VALUES
config:
  vllm-url: http://127.0.0.1:$prefill_port
  decode: ["127.0.0.1:$a_ctrl:$a_http", "127.0.0.1:$b_ctrl:$b_http"]
  queue-max: 10000000
model: {hostPath: {path: /models/GLM-5-FP8}}
serviceMonitor: {enabled: true, labels: {release: prometheus}}
prometheusRule: {enabled: true, labels: {release: prometheus}}
dashboards: {enabled: true}
env: [{name: UCX_NET_DEVICES, value: "mlx5_0:1"}]
volumes: [{name: nixl, hostPath: {path: /opt/nixl}}]
volumeMounts: [{name: nixl, mountPath: /opt/nixl, readOnly: true}]
pod: {hostNetwork: true, nodeSelector: {disk: fast}}
VALUES
  render() { "$helm" template demo $chart --kube-version 1.34.0 -f "$all" "$@" 2>> "$work/helm.log"; }
  is "helm lint, nothing to warn of" "$helm" lint --strict $chart -f "$all"
  render > "$work/all.yaml"
  render --set serviceMonitor.enabled=false,prometheusRule.enabled=false,dashboards.enabled=false,model=null,env=null,volumes=null,volumeMounts=null,pod=null > "$work/least.yaml"
  render --set serviceMonitor.enabled=false,prometheusRule.enabled=false > "$work/core.yaml"
  for version in $kubernetes; do
    is "Kubernetes $version takes the manifests" "$validate" --strict -k "$version" "$work/core.yaml" "$work/least.yaml"
  done
  is "the Prometheus operator takes its own, with the rules of deploy/prometheus" bash -c "$go -C test/deploy run . '$root/deploy/prometheus/pd-router.rules.yml' < '$work/all.yaml'"
  is "links to the runbook get their base" bash -c "cd '$root' && '$helm' template demo $chart --kube-version 1.34.0 -f '$all' --set prometheusRule.runbookBase=https://git.example.com/docs 2> /dev/null | grep -q 'runbook_url: https://git.example.com/docs/runbook.md#pdrouterdown'"
  is "a wrong key is refused before anything stops" exits 1 "queue-timout" "$helm" template demo $chart --kube-version 1.34.0 -f "$all" --set config.queue-timout=1
  is "a drain that is no number of seconds is refused" exits 1 "drain-timeout" "$helm" template demo $chart --kube-version 1.34.0 -f "$all" --set config.drain-timeout=30s
  # The chart sets port and config; host is the pod's.
  "$router" --help | grep -oE '^ +(-., )?--[a-z0-9-]+' | grep -oE '[a-z0-9][a-z0-9-]+$' | grep -vxE 'help|version|config|port|host' | sort > "$work/flags"
  python3 -c 'import json, sys; print(*sorted(json.load(sys.stdin)["properties"]["config"]["propertyNames"]["enum"]), sep="\n")' < $chart/values.schema.json > "$work/keys"
  is "the schema has the router's flags" diff "$work/flags" "$work/keys"
  is "its version is the program's" test "$(sed -n 's/^appVersion: \([^ ]*\).*/pd-router \1/p' $chart/Chart.yaml)" = "$("$router" --version)"
  is "the grace period is the drain and ten seconds" grep -q 'terminationGracePeriodSeconds: 40$' "$work/core.yaml"

  # What is in the ConfigMap is what the router reads; only model and port are of here.
  awk '/^kind: / { k = $2 } /^  router.yaml: / { on = 1; next } on && !/^    / { on = 0 } on { print substr($0, 5) }' "$work/core.yaml" > "$work/router.yaml"
  read -r port <<< "$(ports 1)"
  launch chart "$router" --config "$work/router.yaml" --model-path "$work/tiny" --host 127.0.0.1 --port "$port"
  up chart "http://127.0.0.1:$port/health"
  is "the router takes the rendered file and serves a request" answer "http://127.0.0.1:$port"
  paths=$(grep -oE 'path: /[a-z_]+, port: http' "$work/core.yaml" | sed 's/path: //; s/,.*//')
  is "there are two probes" test "$(xargs <<< "$paths")" = "/health /pool_status"
  for path in $paths; do is "$path is 200 when nodes answer" status 200 "http://127.0.0.1:$port$path"; done
  stop "${pid[chart]}"
  launch alone "$router" --config "$work/router.yaml" --vllm-url http://127.0.0.1:1 --model-path "$work/tiny" --host 127.0.0.1 --port "$port"
  up alone "http://127.0.0.1:$port/pool_status"
  is "without nodes it is alive and not ready" status 503 "http://127.0.0.1:$port/health"
  stop "${pid[alone]}"
}

part_slurm() {
  local port dir=$work/slurm rc
  nodes
  read -r port <<< "$(ports 1)"
  mkdir -p "$dir/logs"
  local here=(env MODEL_PATH="$work/tiny" DECODE_HOST=127.0.0.1 DECODE_CTRL_PORT="$a_ctrl" DECODE_HTTP_PORT="$a_http" PREFILL_PORT="$prefill_port"
    PORT="$port" ROUTER_WAIT=20 BENCHMARK_LOGS_DIR="$dir/logs" PD_ROUTER="$router")
  cat > "$dir/client" <<'CLIENT'
#!/usr/bin/env bash
pgrep -f "port $PORT --model-path" | head -n 1 > "$BENCHMARK_LOGS_DIR/router.pid"
echo "metrics: $AIPERF_SERVER_METRICS_URLS"
curl -sfN -m 20 "http://localhost:$PORT/v1/chat/completions" -d '{"stream":true,"max_tokens":20,"ignore_eos":true,"messages":[{"role":"user","content":"hello"}]}' | grep '^data: \[DONE\]' || exit 9
[ -z "${LINGER:-}" ] || exec sleep 60
[ -z "${KILL_ROUTER:-}" ] || { kill -9 "$(cat "$BENCHMARK_LOGS_DIR/router.pid")"; exec sleep 60; }
exit 7
CLIENT
  chmod +x "$dir/client"
  is "a client is run when the router is ready; its exit code is the script's" exits 7 "data: [DONE]" "${here[@]}" deploy/slurm/router.sh "$dir/client"
  is "the client is told where vLLM's metrics are" grep -qF "metrics: http://127.0.0.1:$prefill_port/metrics" <<< "$said"
  is "and no router is left" gone "$(cat "$dir/logs/router.pid")"
  is "the log has the command, as launchers read it" grep -q '^\[cmd\] .*--queue-timeout 1800' "$dir/logs/tilert_router.log"
  is "a router that dies ends the client, and says so" exits 137 "while the client ran" "${here[@]}" KILL_ROUTER=1 deploy/slurm/router.sh "$dir/client"
  is "nodes that do not answer end it in time, with the reason" exits 1 "did not answer within --startup-timeout" timeout 10 "${here[@]}" PREFILL_PORT=1 ROUTER_WAIT=1 deploy/slurm/router.sh "$dir/client"
  is "a setting that cannot be used too" exits 2 "--parser=wrong" "${here[@]}" TILERT_PARSER=wrong deploy/slurm/router.sh "$dir/client"
  launch served "${here[@]}" deploy/slurm/router.sh
  up served "http://127.0.0.1:$port/health"
  kill "${pid[served]}"
  wait "${pid[served]}"
  rc=$?
  is "TERM ends script and router" test $rc = 143
  is "and the port is free" status 000 "http://127.0.0.1:$port/health"
  is "launchers of the Python router start this one" exits 0 "$("$router" --version)" env PD_ROUTER="$router" deploy/slurm/python -m tilert.pd_vllm.pd_router --version
  is "and their other Python stays" exits 0 "4" deploy/slurm/python -c 'print(2 + 2)'
  need_slurm && need_namespaces "no whole job" || return

  # A whole job in a real Slurm, with the ports that the launcher has by itself.
  local job=(env MODEL_PATH="$work/tiny" ROUTER_WAIT=20 PD_ROUTER="$router" BENCHMARK_LOGS_DIR="$dir/job"
    PREFILL_COMMAND="exec '$router' sim prefill --listen \$PREFILL_HOST:8000 --model tiny --max-model-len 32768 --transport tcp"
    DECODE_COMMAND="exec '$router' sim decode --ctrl \$SLURMD_NODENAME:5556 --http \$SLURMD_NODENAME:5557 --model tiny --max-seq-len 32768 --transport tcp")
  local run=(timeout -k 5 60 "${apart[@]}" test/deploy/slurm.sh "$slurm")
  is "a whole job in Slurm: nodes, router and client, of which nothing is left" exits 7 "data: [DONE]" "${job[@]}" "${run[@]}" "$dir/slurm1" "$dir/client"
  is "a node that ends ends the job, and is named" exits 5 "the decode step ended first, with exit code 5" "${job[@]}" DECODE_COMMAND='exit 5' "${run[@]}" "$dir/slurm2" "$dir/client"
  is "scancel ends all of it" exits 0 "data: [DONE]" "${job[@]}" LINGER=1 "${run[@]}" "$dir/slurm3" "$dir/client"
}

part_dist() {
  local arch here=$work/dist name
  arch=$("$go" env GOHOSTARCH)
  mkdir "$here"
  git clone -q . "$here/a" && git clone -q . "$here/b-with-another-path" || die "no clones"
  is "archives are made" make -s -C "$here/a" dist ARGS="$arch"
  is "and elsewhere" bash -c "umask 077 && make -s -C '$here/b-with-another-path' dist ARGS=$arch"
  is "both are the same bytes" cmp "$here/a/out/dist/SHA256SUMS" "$here/b-with-another-path/out/dist/SHA256SUMS"
  for name in "$here/a/out/dist/"*.tar.gz; do tar -xzf "$name" -C "$here"; done
  for name in "$here"/pd-router-*; do
    is "$(basename "$name") is the version and the commit" bash -c "'$name/pd-router' --version | grep -qx '$("$router" --version)' && $go version -m '$name/pd-router' | grep -q 'vcs.revision=$(git rev-parse HEAD)'"
    is "$(basename "$name") has documents and deploy/" test -f "$name/docs/config.md" -a -f "$name/deploy/helm/pd-router/files/pd-router.rules.yml"
  done
  is "the one without cgo is static" exits 1 "not a dynamic executable" ldd "$here"/pd-router-*-nocgo/pd-router
  is "it refuses staged handoff, and says why" exits 1 "built without cgo" "$here"/pd-router-*-nocgo/pd-router --vllm-url http://127.0.0.1:1 --decode 127.0.0.1:2:3 --parser none --port 0 --kv-handoff staged
}

for part; do
  declare -F "part_$part" > /dev/null || die "unknown part $part"
  "part_$part"
done
echo "deploy: $passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
