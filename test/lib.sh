# Common part of the scripts in this folder; they source it after `set -uo pipefail`.
#
# kit     the conformance kit (CONTRIBUTING.md): black-box cases, real clients, the real peer. Never written to.
# cache   what is installed once and kept: PD_ROUTER_CACHE, else pd-router-ci in the user's cache folder.
# router  bin/pd-router, or PD_ROUTER: another program with the same flags, to try the tests themselves.
# work    a folder of this run, with a NAME.log of everything that `launch` started; removed at the end unless something failed.
# Everything that `launch` started is ended by its pid when the script ends, however it ends.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
kit=${PD_KIT:-$root/../shared}
cache=${PD_ROUTER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pd-router-ci}
router=${PD_ROUTER:-$root/bin/pd-router}
work=$(mktemp -d "${TMPDIR:-/tmp}/pd-router.XXXXXX")
export PYTHONDONTWRITEBYTECODE=1 # the kit may be read-only
export NO_PROXY=127.0.0.1,localhost no_proxy=127.0.0.1,localhost

started=()           # pids, oldest first
declare -A pid=()    # name -> pid

die() {
  echo "$(basename "$0"): $*" >&2
  exit 2
}

need_kit() { # part
  kit=$(cd "$kit" 2> /dev/null && pwd) && [ -d "$kit/$1" ] || die "no conformance kit with $1/ at ${PD_KIT:-../shared}: set PD_KIT (CONTRIBUTING.md)"
}

build() {
  [ -n "${PD_ROUTER:-}" ] || make -s -C "$root" build || die "the build failed"
}

# launch NAME COMMAND...: starts it in the background with its output in $work/NAME.log.
launch() {
  local name=$1
  shift
  "$@" > "$work/$name.log" 2>&1 < /dev/null &
  pid[$name]=$!
  started+=("$!")
}

# up NAME URL [SECONDS]: waits until URL answers 200; ends the script when NAME dies first.
up() {
  local name=$1 url=$2 end=$((SECONDS + ${3:-60}))
  until curl -sf -m 5 -o /dev/null "$url"; do
    kill -0 "${pid[$name]}" 2> /dev/null || die "$name ended before $url answered"
    [ $SECONDS -lt $end ] || die "$name: no 200 from $url within ${3:-60} s"
    sleep 0.05
  done
}

show() { # NAME: the end of its log
  echo "--- last lines of $1:" >&2
  tail -n 20 "$work/$1.log" | cut -c1-400 >&2
}

# stop PID...: TERM, five seconds, KILL.
stop() {
  local pid i
  for pid; do kill "$pid" 2> /dev/null; done
  for pid; do
    for ((i = 0; i < 100; i++)); do
      kill -0 "$pid" 2> /dev/null || break
      sleep 0.05
    done
    kill -9 "$pid" 2> /dev/null
    wait "$pid" 2> /dev/null
  done
}

# ports N: N free ports of loopback, below the range that outgoing connections take theirs from.
ports() {
  python3 -B - "$1" <<'PY'
import random, socket, sys
held = []
while len(held) < int(sys.argv[1]):
    s = socket.socket(socket.AF_INET6)      # the peer's decode server binds [::]
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    try:
        s.bind(("::", random.randint(20000, 32000)))
        held.append(s)
    except OSError:
        s.close()
print(*(s.getsockname()[1] for s in held))
PY
}

# once KEY STAMP COMMAND...: runs COMMAND unless it has succeeded with the same STAMP before. Others that want KEY wait meanwhile.
once() {
  local key=$1 stamp=$2
  shift 2
  mkdir -p "$cache"
  (
    flock 9
    [ "$(cat "$cache/.$key.done" 2> /dev/null)" = "$stamp" ] && exit 0
    rm -f "$cache/.$key.done"
    "$@" 9>&- || exit 1
    printf %s "$stamp" > "$cache/.$key.done"
  ) 9> "$cache/.$key.lock"
}

# find_chromium sets chromium, and installs it with apt where there is none.
find_chromium() {
  chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome) && return
  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium; } > "$work/apt.log" 2>&1 \
    || { tail -n 5 "$work/apt.log" >&2; die "no Chromium, and apt could not install it"; }
  chromium=$(command -v chromium)
}

# debs FOLDER PACKAGE...: Debian's packages, unpacked there and not installed; without root if the package lists are there.
debs() {
  local to=$1 deb
  shift
  rm -rf "$to" && mkdir -p "$to" && cd "$to" || return
  apt-get -q download "$@" > apt.log 2>&1 || { apt-get -q update && apt-get -q download "$@"; } > apt.log 2>&1 || {
    tail -n 3 apt.log >&2
    return 1
  }
  for deb in *.deb; do dpkg -x "$deb" . || return; done
  rm -f ./*.deb
}

# find_prometheus sets prometheus and promtool: those in PATH, else Debian's. It is false where there are none.
find_prometheus() {
  prometheus=prometheus promtool=promtool
  command -v prometheus > /dev/null && command -v promtool > /dev/null && return
  once prometheus 1 debs "$cache/prometheus" prometheus || return
  prometheus=$cache/prometheus/usr/bin/prometheus promtool=$cache/prometheus/usr/bin/promtool
}

# npm_packages NAME PACKAGE@VERSION...: installs them once; NODE_PATH is then $cache/NAME/node_modules.
npm_packages() {
  local name=$1
  shift
  once "$name" "$*" npm install --silent --no-fund --no-audit --ignore-scripts --legacy-peer-deps --prefix "$cache/$name" "$@" > "$work/npm.log" 2>&1 \
    || { tail -n 5 "$work/npm.log" >&2; die "npm could not install $*"; }
  export NODE_PATH=$cache/$name/node_modules
}

finish() {
  local rc=$? name
  trap - EXIT
  [ ${#started[@]} = 0 ] || stop "${started[@]}"
  if [ $rc = 0 ]; then
    rm -rf "$work"
  else
    for name in "${!pid[@]}"; do show "$name"; done
    echo "logs: $work" >&2
  fi
  exit $rc
}
trap finish EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
