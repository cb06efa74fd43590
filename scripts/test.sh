#!/bin/sh
# Runs the tests of every module of the workspace. The last line counts them. The tests start many real servers and kill
# them: on a busy machine a few may miss their generous limits, so up to twelve failed tests are run once more, and named.
set -eu
cd "$(dirname "$0")/.."
redis-server --version
dpkg-query -W -f '${Package} ${Version}\n' mariadb-server postgresql etcd-server zookeeper 2>/dev/null || true
# An etcd of the current line is built once, from its own module, and kept in the build cache.
GOWORK=off go -C etcdlock/etcdtest/server tool -n go.etcd.io/etcd/server/v3 >/dev/null
exec "${GOTESTSUM:-gotestsum}" --format pkgname --format-hide-empty-pkg --rerun-fails=1 --rerun-fails-max-failures=12 --packages=work -- "$@"
