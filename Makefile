# `make` alone lists the targets; a line that ends in "## text" describes its target.
TESTFLAGS ?=
FUZZTIME  ?= 30s

.PHONY: help build run test matrix flood test-vm test-vm-iommufd race check fmt vet staticcheck generated deps bench generate fuzz clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

build: ## bin/splicectl
	CGO_ENABLED=0 go build -o bin/splicectl ./tools/splicectl

run: build ## the demo: a client, the card and three servers in namespaces of their own
	bin/splicectl demo

test: ## all tests; as root also those that make network namespaces
	go test $(TESTFLAGS) ./...

matrix: ## as root: every combination of the kernel's TCP options over good and bad wires, through the card
	SPLICE_MATRIX=1 go test -count=1 -v -timeout 40m $(TESTFLAGS) -run '^TestMatrix$$' ./tools/acceptance

flood: ## as root, with nothing else on two processors: spoofed SYNs as fast as one can send, clients that wait at most 3 s
	SPLICE_FLOOD=1 go test -count=1 -v $(TESTFLAGS) -run '^TestFlood$$' ./tools/acceptance

test-vm: ## in virtual machines that own emulated cards over the kernel's VFIO; fetches QEMU and kernels the first time
	SPLICE_VM=1 go test -count=1 -v -timeout 20m $(TESTFLAGS) ./tools/vm

test-vm-iommufd: ## the same over iommufd; builds a kernel the first time, which takes most of an hour on one processor
	SPLICE_VM=iommufd go test -count=1 -v -timeout 3h $(TESTFLAGS) ./tools/vm

race: ## the tests under the race detector
	go test -race $(TESTFLAGS) ./...

check: fmt vet staticcheck generated deps race ## what must hold before a commit

fmt: ## fails where gofmt would change a file
	@files=$$(gofmt -l .); test -z "$$files" || { echo "gofmt would change:"; echo "$$files"; exit 1; }

vet: ## go vet, on both architectures
	go vet ./...
	GOARCH=arm64 go vet ./...

staticcheck: ## honnef.co/go/tools at the version of go.mod
	go tool staticcheck ./...

GENERATED = regs emu/datapath

generated: ## generates again and compares with the files in the tree
	@before=$$(mktemp -d) && trap 'rm -rf "$$before"' EXIT && cp -R --parents $(GENERATED) "$$before" && go generate ./... && \
	for d in $(GENERATED); do diff -r "$$before/$$d" $$d || stale=1; done; \
	test -z "$$stale" || { echo "generated files were stale; they have been written anew"; exit 1; }

deps: ## who may import whom
	go test -count=1 .

bench: ## every benchmark, and the figures of the card
	go test -run '^$$' -bench . -benchmem ./...
	go run ./tools/splicectl bench datapath
	go run ./tools/splicectl bench rules

generate: ## the Go, C and SystemVerilog of regs/spec, and the documents made from data
	go generate ./...

fuzz: ## each fuzz target for FUZZTIME
	@for p in $$(go list ./...); do \
	  for f in $$(go test -list '^Fuzz' $$p | grep '^Fuzz'); do \
	    echo "$$p $$f" && go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$p || exit 1; \
	  done; \
	done

clean: ## remove what was built
	rm -rf bin
