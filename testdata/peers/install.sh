#!/usr/bin/env bash
# install.sh - installs the MCP servers that the tests talk to, into node_modules and the folders venv* beside this file,
# servers with many tools, into many/node_modules and venv-many, the official conformance suite, into
# conformance/node_modules, and authorization servers, into authorization/node_modules. Run it again at any time: what is up
# to date is left alone. Needs node, npm and Python 3.11 or newer; the suite brings the Node that it needs itself, which runs
# the authorization servers, too.
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

# make_modules installs what the package.json of a folder names. No package's own script is run. The second argument is a program
# without which the installation is not whole: npm says nothing of an optional package that it could not get.
make_modules() {
	local folder=$1 program=$2 from
	from="node $(node --version) $(cat "$folder"/{package.json,package-lock.json,.npmrc} | cksum)"
	if [[ $(cat "$folder/node_modules/$stamp" 2>/dev/null) == "$from" ]] && "$program" --version >/dev/null 2>&1; then
		echo "$folder/node_modules is up to date"
		return
	fi
	echo "installing $folder/node_modules"
	(cd "$folder" && ${limit[@]+"${limit[@]}"} npm ci --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error \
		--fetch-timeout=60000 --fetch-retries=1 >/dev/null) || die "npm ci failed in $folder"
	"$program" --version >/dev/null 2>&1 || die "$program does not run: $folder/package.json has none for this system, or it could not be downloaded"
	printf '%s\n' "$from" >"$folder/node_modules/$stamp"
}

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

make_modules . node
make_venv venv requirements.txt
make_venv venv-modern requirements-modern.txt
make_venv venv-fastmcp requirements-fastmcp.txt
make_venv venv-authlib requirements-authlib.txt
if python3 -c 'import sys; sys.exit(sys.version_info >= (3, 14))'; then
	make_venv venv-old requirements-old.txt
else
	echo "venv-old is left out: what it needs was not made for $(python3 --version)"
fi
make_modules many node
make_venv venv-many requirements-many.txt
make_modules conformance conformance/node_modules/.bin/node
make_modules authorization conformance/node_modules/.bin/node
