#!/bin/sh
# Runs every fuzz target of the workspace for so many executions each, which take a few seconds. With a time instead of a
# count, go test may fail with "context deadline exceeded" when that time ends in the middle of an execution.
set -eu
cd "$(dirname "$0")/.."
count=${1:-10000x}
go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}' work | while read -r dir; do
	grep -lqs '^func Fuzz' "$dir"/*_test.go || continue
	for f in $(cd "$dir" && go test -list '^Fuzz' . | grep '^Fuzz'); do
		echo "fuzz ${dir#"$PWD"/} $f"
		(cd "$dir" && go test -run '^$' -fuzz "^$f\$" -fuzztime "$count" .)
	done
done
