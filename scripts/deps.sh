#!/bin/sh
# Installs the Debian packages that the tests start servers from. Does nothing if they are there.
set -eu
packages='redis-server mariadb-server postgresql pgbouncer faketime etcd-server etcd-client zookeeper libcurator-recipes-java python3-kazoo python3-redis default-jdk-headless'
missing=
for p in $packages; do
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing="$missing $p"
done
[ -z "$missing" ] && exit 0
sudo=
if [ "$(id -u)" != 0 ]; then
	sudo=sudo
	command -v sudo >/dev/null 2>&1 || { echo "please install:$missing" >&2; exit 1; }
fi
command -v apt-get >/dev/null 2>&1 || { echo "no apt-get here: please install:$missing" >&2; exit 1; }
# The tests start servers of their own: the packages must not start theirs.
policy=/usr/sbin/policy-rc.d
made=
if [ ! -e "$policy" ]; then
	printf '#!/bin/sh\nexit 101\n' | $sudo tee "$policy" >/dev/null
	$sudo chmod +x "$policy"
	made=1
fi
trap '[ -z "$made" ] || $sudo rm -f "$policy"' EXIT
$sudo apt-get update -qq
# shellcheck disable=SC2086 # a list
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
