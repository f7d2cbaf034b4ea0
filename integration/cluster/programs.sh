#!/usr/bin/env bash
# Builds the programs of Kubernetes, containerd 2, CoreDNS and the images that test pods run, once, and prints
# the directory that has them (cache.sh).
#
#   integration/cluster/programs.sh [LINK]      (LINK: a symbolic link that leads there afterwards)
set -euo pipefail
. "$(dirname "$0")/cache.sh"

say() { echo "kubernetes: $*" >&2; }

IFS=. read -r major minor _ <<<"${version#v}"
# Without these, kubectl refuses what the API server says of its version.
stamp=k8s.io/component-base/version
ldflags="-s -w -X $stamp.gitVersion=$version -X $stamp.gitMajor=$major -X $stamp.gitMinor=$minor"
ldflags+=" -X $stamp.gitTreeState=clean -X $stamp.gitCommit=0000000000000000000000000000000000000000"
ldflags+=" -X $stamp.buildDate=1970-01-01T00:00:00Z"

build() {
    local root=$unfinished/root
    say "building $version into $cache: 2 s when Go's own cache has it, 5 to 10 minutes when nothing was" \
        "ever built here"
    pure_go build -trimpath -ldflags "$ldflags" -o "$unfinished/bin/" tool
    # Away from the others: the containerd in PATH is Debian's.
    pure_go -C containerd build -trimpath -ldflags "-s -w" -o "$unfinished/containerd-2/" tool
    mkdir "$unfinished/images"
    # `pause` keeps a pod's namespaces: a shell that has nothing to do, and ends when it is told to.
    "$here/root.sh" "$root"
    "$here/image.sh" localhost/pause:1 "$root" "$unfinished/images/pause.tar" \
        /bin/sh -c 'trap "exit 0" TERM INT; while :; do sleep 1000000 & wait; done'
    rm -rf "$root"
    # `agnhost` is what test pods run: its servers and clients, busybox, and clients that look names up.
    "$here/root.sh" "$root" dash curl getent nslookup wget
    cp "$unfinished/bin/agnhost" "$root/agnhost"
    "$here/image.sh" localhost/agnhost:1 "$root" "$unfinished/images/agnhost.tar" /agnhost netexec
    rm -rf "$root"
    # CoreDNS needs nothing else.
    mkdir -p "$root/tmp"
    pure_go -C coredns build -trimpath -ldflags "-s -w" -o "$root/coredns" .
    "$here/image.sh" localhost/coredns:1 "$root" "$unfinished/images/coredns.tar" /coredns
    rm -rf "$root"
}

cached kubernetes "${1:-}" "$here"/{,containerd/,coredns/}go.{mod,sum} "$here"/coredns/*.go \
    "$here"/{programs,image,root}.sh
