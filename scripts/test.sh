#!/bin/sh
# Runs the tests of every module of the workspace. The last line counts them.
set -eu
cd "$(dirname "$0")/.."
redis-server --version
dpkg-query -W -f '${Package} ${Version}\n' mariadb-server postgresql etcd-server zookeeper 2>/dev/null || true
exec "${GOTESTSUM:-gotestsum}" --format pkgname --format-hide-empty-pkg -- "$@" work
