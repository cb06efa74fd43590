#!/bin/sh
# Runs the tests of every module of the workspace. The last line counts them.
set -eu
cd "$(dirname "$0")/.."
redis-server --version
exec "${GOTESTSUM:-gotestsum}" --format pkgname --format-hide-empty-pkg -- "$@" work
