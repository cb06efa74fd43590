#!/bin/sh
# Runs every fuzz target of the workspace for a short time each.
set -eu
cd "$(dirname "$0")/.."
time=${1:-5s}
go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}' work | while read -r dir; do
	grep -lqs '^func Fuzz' "$dir"/*_test.go || continue
	for f in $(cd "$dir" && go test -list '^Fuzz' . | grep '^Fuzz'); do
		echo "fuzz ${dir#"$PWD"/} $f"
		(cd "$dir" && go test -run '^$' -fuzz "^$f\$" -fuzztime "$time" .)
	done
done
