#!/usr/bin/env bash
# Fetches the NIXL library from PyPI and unpacks what host memory over UCX needs of it: no CUDA, no torch, no Python package.
# Prints the path of libnixl_capi.so, where the tests of internal/nixl and bench/nixl find it by themselves:
#   ${PD_ROUTER_CACHE:-${XDG_CACHE_HOME:-~/.cache}/pd-router-ci}/nixl/lib/.nixl_cu12.mesonpy.libs/libnixl_capi.so
# usage: test/nixl-deps.sh     (needs python3 with pip; libssl3 and zlib of the system; 69 MB download, 65 MB on disk)
set -euo pipefail
# shellcheck source=test/lib.sh
. "$(dirname "$0")/lib.sh"

wheel=nixl-cu12==1.5.1
sha256=a02005f84e498641b8fe02d058fdc6762c99edf7ae6430176d2d16fa57f4fb93
[ "$(uname -sm)" = "Linux x86_64" ] || die "the pinned wheel is for Linux on x86-64, this is $(uname -sm): install NIXL and set PD_ROUTER_NIXL_LIBRARY"
dir=$cache/nixl
lib=$dir/lib/.nixl_cu12.mesonpy.libs/libnixl_capi.so

fetch() {
  echo "$wheel --hash=sha256:$sha256" > "$work/wheel.txt"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: --implementation cp \
    --python-version 3.12 --platform manylinux_2_28_x86_64 --requirement "$work/wheel.txt" --dest "$work" >&2 || return 1
  rm -rf "$dir"
  mkdir -p "$dir"
  # The two folders stay siblings: the libraries find each other relative to themselves.
  python3 -B - "$work" "$dir/lib.new" <<'PY' || return 1
import fnmatch, glob, sys, zipfile
work, out = sys.argv[1:]
own, other = ".nixl_cu12.mesonpy.libs/", "nixl_cu12.libs/"
needed = [own + n for n in ("libnixl.so", "libnixl_build.so", "libnixl_common.so", "libnixl_capi.so", "libserdes.so", "libstream.so", "plugins/libplugin_UCX.so")]
needed += [other + f"lib{n}*.so*" for n in ("absl_", "address_sorting", "etcd", "gpr", "grpc", "ibverbs", "mlx5", "nl-", "protobuf", "re2", "ucm-", "ucp-", "ucs-", "uct-", "upb_", "utf8_")]
needed += [other + f"ucx/libuct_{n}.so*" for n in ("cma", "ib", "ib_mlx5")]
(wheel,) = glob.glob(work + "/*.whl")
with zipfile.ZipFile(wheel) as z:
    names = z.namelist()
    for pattern in needed:
        found = fnmatch.filter(names, pattern)
        if not found:
            sys.exit(f"{wheel} has no {pattern}")
        for n in found:
            z.extract(n, out)
PY
  if ldd "$dir"/lib.new/.nixl_cu12.mesonpy.libs/{libnixl_capi.so,plugins/libplugin_UCX.so} | grep 'not found' >&2; then
    echo "libraries of the system are missing (Debian: libssl3, zlib1g)" >&2
    return 1
  fi
  mv "$dir/lib.new" "$dir/lib"
}

[ -f "$lib" ] || rm -f "$cache/.nixl.done" # somebody emptied the folder
once nixl "$sha256 1" fetch || die "cannot fetch $wheel"
echo "$lib"
