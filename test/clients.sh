#!/usr/bin/env bash
# Runs published clients against the router in front of simulated nodes.
# usage: test/clients.sh [CLIENT...]        default: bench openai-py node go litellm lm-eval aiperf-smoke
#        test/clients.sh setup [CLIENT...]  only installs what those clients need (once, into the cache)
# env: CLIENTS_URL, a router that already runs, instead of starting one
#      SKIP=check,check (left out by the clients that know them), MODEL, AX_SECONDS, TIMEOUT (seconds per client)
set -uo pipefail
# shellcheck source=test/lib.sh
. "$(dirname "$0")/lib.sh"
need_kit clients
export CLIENTS_HOME=$cache
only_setup=
if [ "${1:-}" = setup ]; then only_setup=1; shift; fi
[ $# -gt 0 ] || set -- bench openai-py node go litellm lm-eval aiperf-smoke

needs() { # client: the parts of the kit's setup.sh that it takes
  case $1 in
    bench) ;;
    openai-py | litellm | lm-eval) echo light ;;
    aiperf-*) echo load ;;
    node | go | inference-perf) echo "$1" ;;
    *) die "unknown client $1" ;;
  esac
}
# The router's own tokenizer is one of the parts: the replies are real text.
parts=$(for c; do needs "$c" || exit 2; done | sort -u) || exit 2
stamp=$(cksum < "$kit/clients/setup.sh")
for part in tokenizer $parts; do
  once "clients-$part" "$stamp" bash "$kit/clients/setup.sh" "$part" > "$work/setup-$part.log" 2>&1 \
    || { show "setup-$part"; die "setup of $part failed"; }
done
[ -z "$only_setup" ] || exit 0

export MODEL=${MODEL:-glm5} SLOTS=1 OUT=$work/out
if [ -n "${CLIENTS_URL:-}" ]; then
  bash "$kit/clients/run.sh" "$CLIENTS_URL" "$@"
  exit
fi

build
"$router" sim tokenizer "$work/tok" > /dev/null || die "no tokenizer"
declare -A at
read -r at[plain] at[thinking] ctrl_port http_port port <<< "$(ports 5)"
# A small KV shape, as prompts of 20,000 tokens are among the requests; a line for each token, as AIPerf judges how streams flow.
launch plain "$router" sim prefill --listen "127.0.0.1:${at[plain]}" --model tiny
launch thinking "$router" sim prefill --listen "127.0.0.1:${at[thinking]}" --model tiny --thinking
launch decode "$router" sim decode --ctrl "127.0.0.1:$ctrl_port" --http "127.0.0.1:$http_port" --model tiny --per-token

# run PREFILL PARSER CLIENT...: a router with that parser before that prefill node, and those clients against it.
run() {
  local prefill=$1 parser=$2 flags=()
  shift 2
  # A deployment whose model does not think tells the router so, as it tells vLLM.
  [ "$prefill" = plain ] && flags=(--default-chat-template-kwargs '{"enable_thinking":false}')
  [ -z "${pid[router]:-}" ] || stop "${pid[router]}"
  launch router "$router" --vllm-url "http://127.0.0.1:${at[$prefill]}" --decode "127.0.0.1:$ctrl_port:$http_port" \
    --host 127.0.0.1 --port "$port" --model-path "$work/tok" --parser "$parser" --queue-timeout 1800 "${flags[@]}"
  up router "http://127.0.0.1:$port/health"
  bash "$kit/clients/run.sh" "http://127.0.0.1:$port" "$@"
}

bad=0
run plain none "$@" || bad=1
# Once more with the parser and a tool call that must come.
callers=$(printf '%s\n' "$@" | grep -xE 'openai-py|node|go|litellm')
if [ -n "$callers" ]; then
  # shellcheck disable=SC2086
  EXPECT_TOOLS=1 run plain glm47 $callers || bad=1
fi
# And with a model that thinks first, for those that read reasoning. Their check `blocking` wants 16 tokens to hold an answer.
thinkers=$(printf '%s\n' "$@" | grep -xE 'node|litellm')
if [ -n "$thinkers" ]; then
  # shellcheck disable=SC2086
  EXPECT_TOOLS=1 SKIP=blocking,${SKIP:-} run thinking glm47 $thinkers || bad=1
fi
exit $bad
