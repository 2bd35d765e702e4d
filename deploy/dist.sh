#!/usr/bin/env bash
# Writes release archives and their checksums to out/dist. The same commit, Go and C compiler give the same bytes anywhere.
#   deploy/dist.sh [ARCH...]       default: amd64 arm64
#   NAME-linux-ARCH.tar.gz         with NIXL, for --kv-handoff staged: needs a C library (glibc) as new as the one it was built with, or
#                                  newer. For another architecture than this machine's only where its C compiler is installed.
#   NAME-linux-ARCH-nocgo.tar.gz   one static file that runs anywhere, for direct handoff; it refuses --kv-handoff staged when it starts
# NAME is pd-router-VERSION where the tag vVERSION is checked out and nothing is changed, else it has the commit too.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$PWD/out/dist
short=$(git rev-parse --short=12 HEAD) || { echo "dist.sh: no commit: archives are made from the repository" >&2; exit 1; }
version=$(sed -n 's/^const version = "\(.*\)"$/\1/p' cmd/pd-router/version.go)
name=pd-router-$version
if [ -n "$(git status --porcelain)" ]; then
  name+=-g$short-dirty
elif [ "$(git rev-parse -q --verify "v$version^{commit}" || true)" != "$(git rev-parse HEAD)" ]; then
  name+=-g$short
fi
time=$(git log -1 --format=%ct)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf "$out"
mkdir -p "$out"
unset GOFLAGS CGO_CFLAGS CGO_LDFLAGS GOAMD64 GOARM64 GOEXPERIMENT

# archive SUFFIX ENV...: one build with that environment, beside the documents and deploy/ of the commit.
archive() {
  local dir=$name-$1
  shift
  mkdir "$work/$dir"
  git archive HEAD README.md CHANGELOG.md docs deploy | tar -x -C "$work/$dir"
  env GOOS=linux "$@" "${GO:-go}" build -trimpath -buildvcs=true -ldflags '-s -w' -o "$work/$dir/pd-router" ./cmd/pd-router
  tar -c -C "$work" --format=gnu --sort=name --mtime="@$time" --owner=0 --group=0 --numeric-owner --mode=u+rwX,go+rX,go-w "$dir" |
    gzip -9n > "$out/$dir.tar.gz"
  rm -rf "${work:?}/$dir"
}

here=$("${GO:-go}" env GOHOSTARCH)
[ $# -gt 0 ] || set -- amd64 arm64
for arch; do
  cc=cc
  [ "$arch" = "$here" ] || case $arch in amd64) cc=x86_64-linux-gnu-gcc ;; arm64) cc=aarch64-linux-gnu-gcc ;; esac
  if command -v $cc > /dev/null; then
    archive "linux-$arch" GOARCH="$arch" CGO_ENABLED=1 CC=$cc
  else
    echo "dist.sh: no $cc: linux-$arch only without NIXL (-nocgo)" >&2
  fi
  archive "linux-$arch-nocgo" GOARCH="$arch" CGO_ENABLED=0
done
cd "$out"
sha256sum -- *.tar.gz | tee SHA256SUMS
