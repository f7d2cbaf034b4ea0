#!/usr/bin/env bash
# Makes an image archive, as `docker save` writes it, of a directory. Needs no daemon.
#
#   integration/cluster/image.sh REFERENCE[,REFERENCE…] DIRECTORY ARCHIVE ENTRYPOINT… [-- ARGUMENT…]
#
# The arguments are those that a pod may replace (`args`).
set -euo pipefail
references=$1 directory=$2 archive=$3
shift 3

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

quoted() {
    local word words=()
    for word in "$@"; do
        word=${word//\\/\\\\}
        words+=("\"${word//\"/\\\"}\"")
    done
    local IFS=,
    echo "[${words[*]}]"
}

entrypoint=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    entrypoint+=("$1")
    shift
done
shift || true
IFS=, read -ra tags <<<"$references"

architecture=$(uname -m)
case $architecture in x86_64) architecture=amd64 ;; aarch64) architecture=arm64 ;; esac
# The same content makes the same layer.
tar --create --file "$work/layer.tar" --directory "$directory" \
    --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 .
layer=$(sha256sum "$work/layer.tar" | cut -d ' ' -f 1)
cat >"$work/config.json" <<END
{"architecture":"$architecture","os":"linux","rootfs":{"type":"layers","diff_ids":["sha256:$layer"]},
 "config":{"Entrypoint":$(quoted "${entrypoint[@]}"),"Cmd":$(quoted "$@"),
           "Env":["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],"WorkingDir":"/"}}
END
cat >"$work/manifest.json" <<END
[{"Config":"config.json","RepoTags":$(quoted "${tags[@]}"),"Layers":["layer.tar"]}]
END
tar --create --file "$archive" --directory "$work" manifest.json config.json layer.tar
