#!/usr/bin/env bash
# Builds Kubernetes' own test suite (test/e2e), Ginkgo's runner and the images that its network specs ask for,
# once, and prints the directory that has them (cache.sh).
#
#   integration/cluster/conformance.sh [LINK]      (LINK: a symbolic link that leads there afterwards)
#
# Nothing is pulled: an image of the suite's name is made here from the suite's own agnhost and this machine's
# programs.
set -euo pipefail
. "$(dirname "$0")/cache.sh"

say() { echo "conformance: $*" >&2; }

# The suite's names of the images NAME…, as `a,b,c`.
references() {
    local name
    for name in "$@"; do
        grep -E "/$name:[^/]*$" "$unfinished/images.txt" || { say "the suite knows no image $name"; exit 1; }
    done | paste -sd ,
}

build() {
    local root=$unfinished/root images=k8s.io/kubernetes/test/images suite
    say "building the suite of $version into $cache: 20 s when Go's own cache has it, some minutes else"
    pure_go test -c -vet=off -trimpath -ldflags "-s -w" -o "$unfinished/bin/e2e.test" \
        k8s.io/kubernetes/test/e2e
    pure_go build -trimpath -ldflags "-s -w" -o "$unfinished/bin/ginkgo" github.com/onsi/ginkgo/v2/ginkgo
    "$unfinished/bin/e2e.test" --list-images >"$unfinished/images.txt" 2>/dev/null

    # /bin/sh is dash: busybox' shell prefers its own `nc`, which has no UDP. `dig` is what DNS specs call.
    "$here/root.sh" "$root" dash bash curl dig getent nc.openbsd nslookup wget ss ip
    mkdir -p "$root/etc" "$root/uploads" "$unfinished/images"
    # As busybox' wget, which specs expect: GNU's tries twenty times, which takes minutes where nothing answers.
    echo 'tries = 1' >"$root/etc/wgetrc"
    pure_go build -trimpath -ldflags "-s -w" -o "$root/agnhost" "$images/agnhost"
    pure_go -C coredns build -trimpath -ldflags "-s -w" -o "$root/coredns" .
    # The certificate that agnhost's `porter` serves.
    suite=$(cd "$here" && go list -m -f '{{.Dir}}' k8s.io/kubernetes)
    install -m 644 "$suite"/test/images/agnhost/porter/localhost.{crt,key} "$root"
    # A pod that brings its own command finds the same programs under every name.
    "$here/image.sh" "$(references agnhost busybox jessie-dnsutils nginx httpd pause)" "$root" \
        "$unfinished/images/agnhost.tar" /agnhost -- pause
    rm -rf "$root"
    # A server whose answers have sequence numbers outside of the connection's window.
    mkdir -p "$root"
    pure_go build -trimpath -ldflags "-s -w" -o "$root/regression-issue-74839" \
        "$images/regression-issue-74839"
    "$here/image.sh" "$(references regression-issue-74839)" "$root" "$unfinished/images/regression.tar" \
        /regression-issue-74839
    rm -rf "$root"
}

cached conformance "${1:-}" "$here"/{,coredns/}go.{mod,sum} "$here"/coredns/*.go \
    "$here"/{conformance,image,root}.sh
