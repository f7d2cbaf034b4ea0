#!/usr/bin/env bash
# Builds the conformance suites of the network-policy-api project and the image of their pods, once, and prints
# the directory that has them (cache.sh): for each suite a folder with its program and the definitions of its
# objects.
#
#   integration/cluster/network-policy-api.sh [LINK]      (LINK: a symbolic link that leads there afterwards)
#
# Each suite is built inside its module, with the versions that the module's own go.sum names.
set -euo pipefail
. "$(dirname "$0")/cache.sh"

module=sigs.k8s.io/network-policy-api
# The last version with AdminNetworkPolicy and BaselineAdminNetworkPolicy, and the newest one, whose suite is
# about ClusterNetworkPolicy alone.
suites=(
    admin-network-policy v0.1.7 h1:obY2FTEidLXVdRYu7gJ4q1RYE57pBnrpMqoE2LZgp4g=
    cluster-network-policy v0.3.0 h1:RL6fVXiix9IW1pj0ImkW645m+EWmb3dBGCiW19bg5+k=
)

say() { echo "network-policy-api: $*" >&2; }

# The folder of the module in Go's cache.
downloaded() {
    local version=$1 sum=$2 answer
    answer=$(cd / && go mod download -json "$module@$version") || { say "$module@$version cannot be downloaded: $answer"; exit 1; }
    [ "$(field Sum "$answer")" = "$sum" ] || { say "$module@$version is not what it was: $(field Sum "$answer") instead of $sum"; exit 1; }
    field Dir "$answer"
}

field() { sed -n "s/^\t\"$1\": \"\(.*\)\",\?\$/\1/p" <<<"$2"; }

build() {
    local root=$unfinished/root directory name version sum references
    : >"$unfinished/images.txt"
    set -- "${suites[@]}"
    while [ $# -gt 0 ]; do
        name=$1 version=$2 sum=$3
        shift 3
        say "building the suite of $module@$version into $cache: a minute when Go's own cache has its modules, some minutes else"
        directory=$(downloaded "$version" "$sum")
        mkdir -p "$unfinished/$name/definitions"
        # The project's module file is as it was published: no workspace, no vendored packages.
        (cd "$directory" && GOWORK=off GOFLAGS=-mod=readonly CGO_ENABLED=0 go test -c -vet=off -trimpath \
            -ldflags "-s -w" -o "$unfinished/$name/conformance.test" ./conformance)
        install -m 644 -t "$unfinished/$name/definitions" \
            "$directory"/config/crd/experimental/policy.networking.k8s.io_*.yaml
        sed -n 's/^ *image: *//p' "$directory/conformance/base/manifests.yaml" >>"$unfinished/images.txt"
    done

    # The image under every name by which a suite asks for it; all of them are agnhost.
    references=$(sort -u "$unfinished/images.txt")
    ! grep -v '/agnhost:[^/]*$' <<<"$references" || { say "the suites ask for images that are not made here"; exit 1; }
    "$here/root.sh" "$root" dash bash
    pure_go build -trimpath -ldflags "-s -w" -o "$root/bin/agnhost" k8s.io/kubernetes/test/images/agnhost
    # Where the kernel has no SCTP, a server of it ends at once, and no pod of the suites would become ready.
    cat >"$root/agnhost" <<'SCRIPT'
#!/bin/sh
if [ "$1" = porter ]; then
    case "$(/bin/agnhost connect --protocol=sctp --timeout=1s 127.0.0.1:1 2>&1)" in
    *"protocol not supported"*) exec sleep infinity ;;
    esac
fi
exec /bin/agnhost "$@"
SCRIPT
    chmod 755 "$root/agnhost"
    mkdir "$unfinished/images"
    "$here/image.sh" "$(paste -sd , <<<"$references")" "$root" "$unfinished/images/agnhost.tar" /agnhost -- pause
    rm -rf "$root"
}

cached network-policy-api "${1:-}" "$here"/go.{mod,sum} "$here"/{network-policy-api,image,root}.sh
