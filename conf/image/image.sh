#!/usr/bin/env bash
# Makes images as archives of OCI, which docker, podman, ctr and skopeo read, without a builder of images.
#
#   conf/image/image.sh archive IMAGE BIN ARCHIVE    IMAGE is ovn-kube or ovn-kubernetes-node, BIN has the two executables and their sbom/;
#                                                    prints the digest
#   conf/image/image.sh packages IMAGE               the names of its packages, for the Dockerfile
#   conf/image/image.sh dpkg IMAGE                   what dpkg is told not to unpack, for the Dockerfile
#   conf/image/image.sh files IMAGE BIN DIRECTORY    its own files, laid out in DIRECTORY, for the Dockerfile
#   conf/image/image.sh layer IMAGE                  makes its layer of packages and prints the file, for tests without network
#   conf/image/image.sh lock IMAGE                   writes IMAGE.lock, or IMAGE.ARCH.lock: the versions of packages that Debian has today
#
# IMAGE.list beside this script says what is in an image. The same commit makes the same archive, bit for bit: times are
# the commit's (SOURCE_DATE_EPOCH), entries are sorted, caches and logs are left out, and the packages have the versions
# of IMAGE.lock. Where Debian has others, by then, the archive is not made, unless ANY_VERSIONS=1 takes them.
#
# Packages come from apt's mirror by mmdebstrap, which needs no root where users may have namespaces, and are kept in
# ~/.cache until the list or the lock changes. NAME (default: IMAGE) and TAG (default: the version of Cargo.toml) are the
# name, REVISION is the commit. ARCH (default: this machine's) is the architecture: amd64 or arm64.
set -euo pipefail
cd "$(dirname "$0")/../.."
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

lists=conf/image
cache="${XDG_CACHE_HOME:-$HOME/.cache}/ovn-kubernetes/image"

say() { echo "image: $*" >&2; }
fail() { say "$@"; exit 1; }

main() {
    local command=${1:-} image=${2:-}
    [[ $image =~ ^[a-z-]+$ && -e $lists/$image.list ]] || fail "archive|packages|dpkg|files|layer|lock, and then an image:" \
        "$(cd "$lists" && basename --multiple --suffix=.list ./*.list | paste -sd ' ')"
    case $command-$# in
    archive-4) archive "$image" "$3" "$4" ;;
    packages-2) words "$image" package ;;
    dpkg-2) dpkg_options "$image" ;;
    files-4) files "$image" "$3" "$4" ;;
    layer-2) debian_layer "$image" ;;
    lock-2) lock "$image" ;;
    *) fail "'$command' with $(($# - 2)) arguments is none of those that the first lines of $0 name" ;;
    esac
}

# The lines of a list that begin with this word, without it.
words() { sed -n "s/^$2  *//p" "$lists/$1.list"; }

dpkg_options() {
    words "$1" exclude | sed 's/^/path-exclude=/'
    words "$1" include | sed 's/^/path-include=/'
}

# --- Its own files ---------------------------------------------------------------------------------------------------

files() {
    local image=$1 bin=$2 directory=$3 mode source target
    while read -r mode source target; do
        [ "${source#bin/}" = "$source" ] || source=$bin/${source#bin/}
        [ -f "$source" ] || fail "$source is missing; \`make build sbom\` makes the executables and their bills of materials"
        [ "$mode" != 755 ] || [ "$(architecture_of "$source")" = "" ] || [ "$(architecture_of "$source")" = "$(architecture)" ] ||
            fail "$source is for $(architecture_of "$source"), and the image for $(architecture): \`make image ARCH=$(architecture_of "$source")\` makes one for it"
        install -D -m "$mode" "$source" "$directory$target"
    done < <(words "$image" file)
    while read -r source target; do
        mkdir -p "$directory${target%/*}"
        ln -sfn "$source" "$directory$target"
    done < <(words "$image" link)
    while read -r mode target; do install -d -m "$mode" "$directory$target"; done < <(words "$image" directory)
}

# --- Debian ----------------------------------------------------------------------------------------------------------

# Prints the file of the layer with the packages of the image, which is made if it is not there.
debian_layer() {
    local image=$1 versions=locked kept lock
    lock=$(lock_of "$image")
    [ -z "${ANY_VERSIONS:-}" ] || versions=any
    kept=$(kept_layer "$image" locked)
    if [ "$versions" = any ] && [ ! -e "$kept" ]; then kept=$(kept_layer "$image" any); fi
    # Another process may be making it.
    local locked
    exec {locked}>"$cache/lock"
    flock "$locked"
    if [ ! -e "$kept" ]; then
        bootstrap "$image" "$kept.partial"
        if ! diff <(grep -v '^#' "$lock") "$kept.partial.versions" >"$cache/difference"; then
            [ "$versions" = any ] || {
                cat "$cache/difference" >&2
                fail "Debian has other versions (>) than $lock (<): \`$0 lock $image\` takes these, for a new commit;" \
                    "ANY_VERSIONS=1 makes an image with another digest"
            }
            say "other versions than in $lock: the digest is another one, too"
        fi
        mv "$kept.partial" "$kept"
    fi
    exec {locked}>&-
    echo "$kept"
}

# Debian builds some packages again for one architecture alone.
lock_of() {
    case $(architecture) in
    amd64) echo "$lists/$1.lock" ;;
    *) echo "$lists/$1.$(architecture).lock" ;;
    esac
}

# Where the layer with the packages of an image is kept.
kept_layer() {
    mkdir -p "$cache"
    # Of the list only what is in this layer.
    echo "$cache/$1-$2-$(architecture)-$(grep -E '^(suite|package|exclude|include) ' "$lists/$1.list" | cat - "$(lock_of "$1")" | sha256sum | cut -c 1-16).tar"
}

# bootstrap IMAGE TAR: Debian with the packages of the image in TAR, and their versions in TAR.versions.
bootstrap() {
    local image=$1 tar=$2 suite mirror security began=$SECONDS epoch log=$cache/mmdebstrap.log
    command -v mmdebstrap >/dev/null || fail "mmdebstrap is missing; install it with: integration/prerequisites.sh image"
    suite=$(words "$image" suite)
    mirror=$(integration/compat.sh mirror)
    security=$(integration/compat.sh security-mirror)
    # Of the lock, not of the commit: most commits leave this layer as it is.
    epoch=$(sed -n 's/^# epoch //p' "$(lock_of "$image")" 2>/dev/null || true)
    say "installing $(words "$image" package | paste -sd ' ') of Debian's $suite for $(architecture) (a minute or two, once; by emulation ten)"
    dpkg_options "$image" >"$tar.dpkg"
    # Packages are configured by their own programs. The hooks' \$1 is the directory in which mmdebstrap installs.
    # shellcheck disable=SC2016
    SOURCE_DATE_EPOCH=${epoch:-0} integration/cross.sh run "$(architecture)" mmdebstrap --variant=essential --components=main --architectures="$(architecture)" \
        --include="$(words "$image" package | paste -sd ,)" --dpkgopt="$tar.dpkg" \
        --keyring=/usr/share/keyrings/debian-archive-keyring.gpg \
        --customize-hook='rm -rf "$1"/var/log/* "$1"/var/cache/* "$1"/var/lib/apt "$1"/etc/machine-id "$1"/etc/hostname "$1"/etc/resolv.conf "$1"/run/*' \
        --customize-hook='mkdir -p "$1"/var/log "$1"/var/cache "$1"/var/lib/apt/lists' \
        --customize-hook="dpkg-query --admindir=\"\$1\"/var/lib/dpkg --show --showformat='\${Package} \${Version}\n' >'$tar.versions'" \
        "$suite" "$tar.new.tar" "deb $mirror $suite main" "deb $security $suite-security main" >"$log" 2>&1 || { tail -n 5 "$log" >&2; fail "mmdebstrap failed; its log: $log"; }
    mv "$tar.new.tar" "$tar"
    say "made in $((SECONDS - began)) s"
}

lock() {
    local image=$1 lock layer=$cache/$1.new
    lock=$(lock_of "$image")
    mkdir -p "$cache"
    [ -n "$(words "$image" suite)" ] || fail "$image has no packages"
    # bootstrap reads the time from it.
    printf '%s\n' "# Versions of the packages in the image $image for $(architecture); \`conf/image/image.sh lock $image\` writes this file." \
        "# epoch $(date +%s)" >"$lock"
    bootstrap "$image" "$layer"
    cat "$layer.versions" >>"$lock"
    mv "$layer" "$(kept_layer "$image" locked)"
    rm -f "$layer".*
    say "wrote $lock"
}

architecture() {
    local machine
    machine=$(uname -m)
    case $machine in x86_64) machine=amd64 ;; aarch64) machine=arm64 ;; esac
    echo "${ARCH:-$machine}"
}

# The machine in the header of an executable; nothing of what is none.
architecture_of() {
    case $(od -An -tx1 -N20 "$1" | tr -d ' \n') in
    7f454c46*3e00) echo amd64 ;;
    7f454c46*b700) echo arm64 ;;
    esac
}

# --- The archive -------------------------------------------------------------------------------------------------------

archive() {
    local image=$1 bin=$2 archive=$3 name=${NAME:-$1} epoch tag revision layer digest
    epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
    tag=${TAG:-$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)}
    revision=${REVISION:-$(git rev-parse HEAD)}
    # Not local: the trap outlives this function.
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    local layers=() blobs=$work/oci/blobs/sha256
    mkdir -p "$blobs" "$work/files"
    if [ -n "$(words "$image" suite)" ]; then layers+=("$(debian_layer "$image")"); fi
    files "$image" "$bin" "$work/files"
    tar --create --file "$work/files.tar" --directory "$work/files" --format=gnu --sort=name --owner=0 --group=0 \
        --numeric-owner --mtime="@$epoch" .
    layers+=("$work/files.tar")

    local diff_ids=() descriptions=() paths=()
    for layer in "${layers[@]}"; do
        digest=$(sha256sum "$layer" | cut -d ' ' -f 1)
        # A copy of a large file, where the file system cannot share it.
        cp --reflink=auto "$layer" "$blobs/$digest"
        diff_ids+=("$(quoted "sha256:$digest")")
        descriptions+=("$(description application/vnd.oci.image.layer.v1.tar "$digest")}")
        paths+=("$(quoted "blobs/sha256/$digest")")
    done
    local labels
    labels=$(words "$image" label; echo "org.opencontainers.image.version=$tag"; echo "org.opencontainers.image.revision=$revision")
    local config manifest created
    created=$(date --utc --date="@$epoch" +%FT%TZ)
    config=$(blob <<END
{"created":"$created","architecture":"$(architecture)","os":"linux",
"config":{"Env":[$(words "$image" env | list)],"Entrypoint":[$(words "$image" entrypoint | list)],"WorkingDir":"/",
"Labels":{$(sort <<<"$labels" | pairs)}},
"rootfs":{"type":"layers","diff_ids":[$(joined "${diff_ids[@]}")]},
"history":[$(for layer in "${layers[@]}"; do echo "{\"created\":\"$created\",\"created_by\":\"conf/image/image.sh\"}"; done | paste -sd ,)]}
END
)
    manifest=$(blob <<END
{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",
"config":$(description application/vnd.oci.image.config.v1+json "$config")},
"layers":[$(joined "${descriptions[@]}")]}
END
)
    echo '{"imageLayoutVersion":"1.0.0"}' >"$work/oci/oci-layout"
    cat >"$work/oci/index.json" <<END
{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[$(description application/vnd.oci.image.manifest.v1+json "$manifest"),
"annotations":{"io.containerd.image.name":$(quoted "$(whole_name "$name"):$tag"),"org.opencontainers.image.ref.name":$(quoted "$tag")}}]}
END
    # As \`docker save\` writes it, for docker before 25.
    cat >"$work/oci/manifest.json" <<END
[{"Config":"blobs/sha256/$config","RepoTags":[$(quoted "$name:$tag")],"Layers":[$(joined "${paths[@]}")]}]
END
    mkdir -p "$(dirname "$archive")"
    tar --create --file "$archive.partial" --directory "$work/oci" --format=gnu --sort=name --owner=0 --group=0 \
        --numeric-owner --mode=go=rX,u+w --mtime="@$epoch" .
    mv "$archive.partial" "$archive"
    say "$archive: $(du --apparent-size -h "$archive" | cut -f 1), $name:$tag"
    echo "sha256:$manifest"
}

# As a runtime understands a name without a registry.
whole_name() {
    case $1 in
    *.*/* | *:*/* | localhost/*) echo "$1" ;;
    */*) echo "docker.io/$1" ;;
    *) echo "docker.io/library/$1" ;;
    esac
}

# Stores standard input as a blob; prints its digest.
blob() {
    local digest
    cat >"$work/blob"
    digest=$(sha256sum "$work/blob" | cut -d ' ' -f 1)
    mv "$work/blob" "$work/oci/blobs/sha256/$digest"
    echo "$digest"
}

# A descriptor, without its last brace.
description() {
    echo "{\"mediaType\":\"$1\",\"digest\":\"sha256:$2\",\"size\":$(stat -c %s "$work/oci/blobs/sha256/$2")"
}

quoted() {
    local text=${1//\\/\\\\}
    echo "\"${text//\"/\\\"}\""
}
joined() { local IFS=,; echo "$*"; }
# Of lines.
list() { local line; while read -r line; do quoted "$line"; done | paste -sd ,; }
pairs() { local line; while read -r line; do echo "$(quoted "${line%%=*}"):$(quoted "${line#*=}")"; done | paste -sd ,; }

main "$@"
