#!/usr/bin/env bash
# install.sh - installs the MCP servers that the tests talk to, into node_modules, venv and venv-modern beside this file.
# Run it again at any time: what is up to date is left alone. Needs node, npm and Python 3.11 or newer.
# SPDX-License-Identifier: 0BSD
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

die() {
	printf 'install.sh: %s\n' "$*" >&2
	exit 1
}

for tool in node npm python3; do
	command -v "$tool" >/dev/null || die "$tool is not installed, or not on PATH"
done
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
	die "Python 3.11 or newer is needed; python3 is $(python3 --version)"

# Five minutes for each installation as a whole where the system has GNU timeout; the fetch limits below hold everywhere.
# --foreground lets Ctrl-C through.
limit=()
if timeout --foreground 1 true 2>/dev/null; then
	limit=(timeout --foreground -k 10 300)
fi

# A stamp says what a folder was made from. It lies in that folder, is written last, and goes when the folder is made anew,
# so an installation that was cut short is never taken for a whole one.
stamp=.made-from

from="node $(node --version) $(cat package.json package-lock.json .npmrc | cksum)"
if [[ $(cat "node_modules/$stamp" 2>/dev/null) == "$from" ]]; then
	echo "node_modules is up to date"
else
	echo "installing node_modules"
	${limit[@]+"${limit[@]}"} npm ci --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error \
		--fetch-timeout=60000 --fetch-retries=1 >/dev/null || die "npm ci failed"
	printf '%s\n' "$from" >"node_modules/$stamp"
fi

# make_venv makes a virtual environment with what a list of packages names.
make_venv() {
	local venv=$1 list=$2 from
	from="$(python3 --version) $(cksum <"$list")"
	if [[ $(cat "$venv/$stamp" 2>/dev/null) == "$from" && -x $venv/bin/python ]]; then
		echo "$venv is up to date"
		return
	fi
	echo "installing $venv"
	python3 -m venv --clear "$venv" >/dev/null || die "python3 cannot make a virtual environment (on Debian, install python3-venv)"
	${limit[@]+"${limit[@]}"} "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --no-deps --only-binary=:all: \
		--timeout=60 --retries=1 -r "$list" || die "pip install failed"
	"$venv/bin/python" -m pip --disable-pip-version-check check >/dev/null || die "$list is not complete: run $venv/bin/python -m pip check"
	printf '%s\n' "$from" >"$venv/$stamp"
}

make_venv venv requirements.txt
make_venv venv-modern requirements-modern.txt
