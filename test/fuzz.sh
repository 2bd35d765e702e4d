#!/usr/bin/env bash
# Runs every fuzz target, one after the other (go test takes one at a time).  usage: test/fuzz.sh FUZZTIME [NAME_PART]
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
seconds=${1:?FUZZTIME, e.g. 10s} part=${2:-}
passed=0 failed=0

fuzz() { # package, target
  go test -run '^$' -fuzz "^$2\$" -fuzztime "$seconds" "$1" 2>&1
}

while IFS=: read -r file name; do
  [[ $name == *"$part"* ]] || continue
  package=./$(dirname "$file")
  out=$(fuzz "$package" "$name"); rc=$?
  # A run that is cut off at its end by its own clock is no finding (go test reports it as a failure without an input).
  if [ $rc != 0 ] && [[ $out == *"context deadline exceeded"* && $out != *"Failing input"* ]]; then
    out=$(fuzz "$package" "$name"); rc=$?
  fi
  if [ $rc = 0 ]; then
    passed=$((passed + 1))
    echo "ok   $package $name, $(grep -oE 'execs: [0-9]+' <<< "$out" | tail -n 1)"
  else
    failed=$((failed + 1))
    printf 'FAIL %s %s\n%s\n' "$package" "$name" "$out"
  fi
done < <(grep -rHoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' cmd internal 2> /dev/null | sed 's/func //' | sort)
echo "fuzz: $passed passed, $failed failed"
[ $failed = 0 ]
