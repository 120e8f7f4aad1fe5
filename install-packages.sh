#!/bin/sh
# Installs the Debian packages named as arguments that are missing, and says which. A command that is already there
# under the package's name (node, npm, chromium from elsewhere) counts as installed.
set -eu

present() {
	case $1 in
	nodejs) command -v node >/dev/null ;;
	npm | chromium | chromium-headless-shell | espeak-ng | pkg-config | gcc) command -v "$1" >/dev/null ;;
	*) dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'ok installed' ;;
	esac
}

missing=
for package in "$@"; do
	present "$package" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null; then
	echo "Missing:$missing. Please install them; this script only knows Debian's apt-get." >&2
	exit 1
fi
sudo=
if [ "$(id -u)" -ne 0 ]; then
	sudo=sudo
fi
echo "Installing Debian packages:$missing"
$sudo env DEBIAN_FRONTEND=noninteractive apt-get update -qq
# shellcheck disable=SC2086 # a list of names
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
