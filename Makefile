# clawbot. "make" alone lists what there is to make.
#
# Needed: Go and make. "make test" also needs a C compiler, for the race
# detector. PostgreSQL is installed if it is missing and can be.

.DEFAULT_GOAL := help
.PHONY: help run build test lint vet vuln bench fuzz clean postgres cc

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := v1.9.0

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null)
LDFLAGS := -X main.version=$(VERSION) -X main.commit=$(COMMIT)

# For all of them: make test PKG=./store/...
PKG ?= ./...
# Of a single package's tests. The slowest need a minute on a small machine.
TIMEOUT ?= 10m
# Empty it where there is no C compiler: make test RACE=
RACE ?= -race
# The race detector waits a second at the end of each test binary, for reports
# of threads that are still running. A tenth will do.
GORACE ?= atexit_sleep_ms=100
export GORACE
# How long each fuzz test runs.
FUZZTIME ?= 10s

help: ## what can be made
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1	\2/p' $(firstword $(MAKEFILE_LIST))

run: build ## clawbot with the channels whose tokens are set, or in this terminal
	@if [ -z "$$DATABASE_URL$$DATABASE_URL_FILE" ]; then scripts/setup-postgres; fi
	@if [ -n "$$SLACK_BOT_TOKEN$$SLACK_BOT_TOKEN_FILE$$DISCORD_BOT_TOKEN$$DISCORD_BOT_TOKEN_FILE" ]; \
	then exec bin/clawbot serve; else exec bin/clawbot chat; fi

build: ## bin/clawbot
	go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/clawbot ./cmd/clawbot

test: postgres cc ## all tests, with the race detector
	go test $(RACE) -timeout $(TIMEOUT) $(PKG)

lint: vet vuln ## gofmt, go vet (Linux and macOS), staticcheck, govulncheck

vet:
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); \
	if [ -n "$$unformatted" ]; then echo "not formatted by gofmt:"; echo "$$unformatted"; exit 1; fi
	go vet $(PKG)
	GOOS=darwin CGO_ENABLED=0 go vet $(PKG)
	go run $(STATICCHECK) $(PKG)

vuln:
	scripts/vulncheck $(GOVULNCHECK)

bench: postgres build ## a turn, a start and their memory, beside a raw commit
	go run ./bench -program bin/clawbot

fuzz: ## every fuzz test, for FUZZTIME each
	scripts/fuzz $(FUZZTIME)

clean: ## remove what was built
	rm -rf bin

postgres:
	@scripts/setup-postgres

cc:
	@if [ -n "$(RACE)" ] && ! command -v $$(go env CC) >/dev/null 2>&1; then \
	echo 'the race detector needs a C compiler: run "apt-get install gcc libc6-dev" (macOS: "xcode-select --install"), or "make test RACE="' >&2; exit 1; fi
