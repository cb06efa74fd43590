# The two commands that matter: `make test` installs what the tests need and runs them all with the race detector;
# `make check` is what CI runs.

MODULES   := . cronlock redislock redislock/goredis redislock/peertest sqllock etcdlock zklock cmd/pawl torture uses bench
FUZZTIME  ?= 10000x
# Without vet, which is a target of its own: for these flags it would analyse every dependency once more.
TESTFLAGS ?= -race -vet=off -timeout 6m

.PHONY: test check deps tools fmt vet staticcheck tidy fuzz bench bench-peers bench-counts bench-growth interop-shedlock

test: deps tools
	GOTESTSUM=bin/gotestsum scripts/test.sh $(TESTFLAGS)

check: fmt vet staticcheck tidy test bench-counts fuzz

# Debian packages: servers that the tests start for themselves.
deps:
	scripts/deps.sh

tools: bin/gotestsum bin/staticcheck

bin/gotestsum bin/staticcheck: tools/go.mod tools/go.sum
	GOWORK=off go -C tools build -o ../bin/ tool
	@touch bin/gotestsum bin/staticcheck

fmt:
	@out=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$out" || { echo "not gofmt-ed:"; echo "$$out"; exit 1; }

vet:
	go vet work
	GOOS=darwin go vet . ./driver ./memlock ./fence ./record
	GOOS=windows go vet . ./driver ./memlock ./fence ./record

staticcheck: tools
	@bad=0; for m in $(MODULES); do echo "staticcheck $$m"; (cd $$m && $(CURDIR)/bin/staticcheck ./...) || bad=1; done; exit $$bad

# Every go.mod is tidy, so that what the repository says is what is built.
tidy:
	@bad=0; for m in $(MODULES) tools; do echo "tidy $$m"; (cd $$m && GOWORK=off go mod tidy -diff) || bad=1; done; exit $$bad

fuzz:
	scripts/fuzz.sh $(FUZZTIME)

# One hot key and many held leases on Redis, beside other people's locks, in one run of a minute.
bench: deps
	cd bench && go run .

# Everything beside everybody, on real servers, in about 15 minutes; writes its part of docs/benchmarks.md.
bench-peers: deps
	cd bench && go run . -peers ../docs/benchmarks.md

# The counts that have no noise, on every store; fails if one is above its goal.
bench-counts: deps
	cd bench && go run . -counts || { echo 'once more: something else may have disturbed the counts'; go run . -counts; }

# Cost as work grows, and the curves of the two knobs; writes charts and its part of docs/benchmarks.md.
bench-growth: deps
	cd bench && go run . -growth ../docs

# sqllock/shedlock beside ShedLock itself, which Maven downloads (Debian's packages maven and default-jdk-headless).
interop-shedlock: deps
	@command -v mvn >/dev/null || { echo "please install maven"; exit 1; }
	cd sqllock && go test -count=1 -tags maven -timeout 10m ./shedlock/interop
