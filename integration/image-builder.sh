#!/usr/bin/env bash
# Builds the image ovn-kube with a builder of images, as docs/how-to/install.md says, and compares it with what `make image` makes of
# the same commit.
#
#   integration/image-builder.sh BIN      BIN has the executables of `make build sbom`
#
# The builder is buildah, which needs no daemon. Root, and a network for packages and crates, are enough: no registry is asked. What the
# Dockerfile begins with, debian:trixie-slim and rust:1.95-slim-trixie, is made here as those who publish them do, and kept in ~/.cache.
# The build itself runs in a clean clone of HEAD with nothing built before.
#
# Both images may differ in what `exceptions` below names, each with its reason. Any other difference is an error.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PATH:$HOME/.cargo/bin:/usr/local/sbin:/usr/sbin:/sbin"

lists=conf/image
cache="${XDG_CACHE_HOME:-$HOME/.cache}/ovn-kubernetes/image-builder"
target="$(realpath -m "${CARGO_TARGET_DIR:-target}")/image-builder"

say() { echo "image-builder: $*" >&2; }
fail() { say "$@"; exit 1; }

# What debian:trixie-slim has and the archive has not: apt with what it alone depends on, and login. Their files are not compared.
extra_packages=(apt debian-archive-keyring libapt-pkg7.0 libhogweed6t64 liblz4-1 libnettle8t64 libstdc++6 libxxhash0 login sqv)

# PATTERN REASON: paths that both images need not have in common. A pattern is one of bash's, with extglob.
exceptions() {
    cat <<'END'
/dev/*                    device nodes; a runtime mounts its own
/run/*                    what packages make there when they are configured; a runtime mounts its own, or the host's
/etc/hostname             a mount during the build, empty in the image
/etc/hosts                a mount during the build, empty in the image
/etc/resolv.conf          a mount during the build, empty in the image
*/__pycache__/*.pyc       compiled when the package is configured, with times or sums of sources
/etc/alternatives/*.gz    links to manual pages, which neither image has
/usr/share/doc/!(*/copyright)   directories and links of documents, which both leave out; licences are compared
/etc/shadow               the day on which a password was set
/etc/shadow-              the day on which a password was set
/etc/gshadow              the order of groups
/etc/gshadow-             the order of groups
/etc/ld.so.cache          names the libraries of apt
/etc/apt/*                apt's settings in the base image, and the mirror
/var/lib/apt*             what apt has installed, and its lists
/etc/systemd/system/timers.target.wants/apt-*   apt's timers
/var/lib/systemd/deb-systemd-helper-enabled/*apt-daily*   apt's timers
/usr/share/info/dir       an index of documents, which the base image leaves out
/usr/share/lintian*       overrides of a checker of packages, which the base image leaves out
/etc/dpkg/dpkg.cfg.d/*    what dpkg leaves out, from the same list, under another name
/usr/sbin/policy-rc.d     the base image lets packages start no services
/var/lib/dpkg/*           dpkg's lists name apt
END
}

main() {
    local bin=${1:?the directory of the executables} began=$SECONDS
    [ "$(id -u)" -eq 0 ] || fail "mounting an image needs root; as root, or: sudo env \"PATH=\$PATH\" make test-image-builder"
    bin=$(realpath "$bin")
    rm -rf "$target/work"
    mkdir -p "$cache" "$target/work"
    settings
    base_images
    build
    archive "$bin"
    run_commands
    compare
    say "both images are the same but for the exceptions above; $((SECONDS - began)) s"
}

# --- The builder -----------------------------------------------------------------------------------------------------------------

# Nothing of this machine's own storage or settings is read or changed.
settings() {
    local driver=vfs probe
    # vfs copies the whole image for each container, but needs nothing of the kernel.
    probe=$(mktemp -d "$cache/probe.XXXXXX")
    mkdir "$probe"/{lower,upper,work,merged}
    if mount -t overlay -o "lowerdir=$probe/lower,upperdir=$probe/upper,workdir=$probe/work" overlay "$probe/merged" 2>/dev/null; then
        umount "$probe/merged"
        driver=overlay
    fi
    rm -rf "$probe"
    storage=(--storage-driver "$driver" --root "$cache/$driver" --runroot "$target/run")
    echo 'unqualified-search-registries = []' >"$target/registries.conf"
    export CONTAINERS_REGISTRIES_CONF="$target/registries.conf" BUILDAH_ISOLATION=chroot
}

builder() {
    local command=$1
    shift
    buildah "${storage[@]}" "$command" "$@"
}

# --- What the Dockerfile begins with ---------------------------------------------------------------------------------------------

base_images() {
    local version debian rust key
    debian=$(sed -n 's/^FROM \(debian:[^ ]*\).*/\1/p' Dockerfile | sort -u)
    rust=$(sed -n 's/^FROM \(rust:[^ ]*\).*/\1/p' Dockerfile | sort -u)
    version=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
    [[ $debian = "debian:$(words suite)-slim" && $rust = "rust:${version%.*}-slim-$(words suite)" ]] ||
        fail "the Dockerfile begins with '$debian' and '$rust'; this script makes one of each, of Debian's $(words suite) and Rust $version"
    # Made again when Debian has other packages, which is when the lock changes.
    key=$(sed -n '/^# --- What the Dockerfile begins with/,/^# --- The build/p' "$0" | cat - "$lists/ovn-kube.lock" rust-toolchain.toml | sha256sum | cut -c 1-16)
    if [ "$(cat "$cache/key" 2>/dev/null)" != "$key" ] || ! builder inspect --type image "localhost/$rust" >/dev/null 2>&1; then
        rm -f "$cache/key"
        debian_image "$debian"
        rust_image "$rust" "$debian" "$version"
        echo "$key" >"$cache/key"
    fi
}

debian_image() {
    local name=$1 mirror security tar=$target/work/debian.tar suite began=$SECONDS
    suite=$(words suite)
    mirror=$(integration/compat.sh mirror)
    security=$(integration/compat.sh security-mirror)
    # What the published image is told, too: no services, no documents, no caches.
    mkdir -p "$target/work/debian"/{usr/sbin,etc/dpkg/dpkg.cfg.d,etc/apt/apt.conf.d}
    printf '#!/bin/sh\nexit 101\n' >"$target/work/debian/usr/sbin/policy-rc.d"
    chmod 755 "$target/work/debian/usr/sbin/policy-rc.d"
    echo force-unsafe-io >"$target/work/debian/etc/dpkg/dpkg.cfg.d/docker-apt-speedup"
    printf '%s\n' 'path-exclude=/usr/share/doc/*' 'path-include=/usr/share/doc/*/copyright' 'path-exclude=/usr/share/groff/*' 'path-exclude=/usr/share/info/*' \
        'path-exclude=/usr/share/linda/*' 'path-exclude=/usr/share/lintian/*' 'path-exclude=/usr/share/locale/*' 'path-exclude=/usr/share/man/*' \
        >"$target/work/debian/etc/dpkg/dpkg.cfg.d/docker"
    cat >"$target/work/debian/etc/apt/apt.conf.d/docker-clean" <<'END'
DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb /var/cache/apt/archives/partial/*.deb /var/cache/apt/*.bin || true"; };
APT::Update::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb /var/cache/apt/archives/partial/*.deb /var/cache/apt/*.bin || true"; };
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
END
    echo 'Acquire::Languages "none";' >"$target/work/debian/etc/apt/apt.conf.d/docker-no-languages"
    echo 'Acquire::GzipIndexes "true";' >"$target/work/debian/etc/apt/apt.conf.d/docker-gzip-indexes"
    echo 'Apt::AutoRemove::SuggestsImportant "false";' >"$target/work/debian/etc/apt/apt.conf.d/docker-autoremove-suggests"
    say "making $name (a minute or two, once)"
    # shellcheck disable=SC2016 # expanded by the hook's shell
    mmdebstrap --variant=minbase --components=main --keyring=/usr/share/keyrings/debian-archive-keyring.gpg \
        --dpkgopt="$target/work/debian/etc/dpkg/dpkg.cfg.d/docker" --dpkgopt=force-unsafe-io \
        --customize-hook='rm -rf "$1"/etc/dpkg/dpkg.cfg.d/99mmdebstrap "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/*.bin "$1"/var/log/apt "$1"/etc/machine-id "$1"/etc/hostname "$1"/etc/resolv.conf' \
        "$suite" "$tar" "deb $mirror $suite main" "deb $mirror $suite-updates main" "deb $security $suite-security main" \
        >"$target/mmdebstrap.log" 2>&1 || { tail -n 5 "$target/mmdebstrap.log" >&2; fail "mmdebstrap failed; its log: $target/mmdebstrap.log"; }
    printf '%s\n' 'FROM scratch' 'ADD debian.tar /' 'COPY debian /' 'CMD ["bash"]' | base_image "$name"
    say "made $name in $((SECONDS - began)) s"
}

# As it is published: a linker, and what rustup installs of the profile `minimal`. What else rust-toolchain.toml names, rustup gets
# during the build.
rust_image() {
    local name=$1 debian=$2 version=$3 began=$SECONDS
    say "making $name (some minutes, once)"
    cp "$(command -v rustup)" "$target/work/rustup"
    # Whom this machine trusts besides, as where a proxy has a certificate of its own.
    mkdir -p "$target/work/trusted"
    find /usr/local/share/ca-certificates -name '*.crt' -exec cp -t "$target/work/trusted" {} +
    base_image "$name" <<END
FROM $debian
ENV RUSTUP_HOME=/usr/local/rustup CARGO_HOME=/usr/local/cargo PATH=/usr/local/cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin RUST_VERSION=$version
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates gcc libc6-dev && rm -rf /var/lib/apt/lists/*
COPY trusted /usr/local/share/ca-certificates
COPY rustup /usr/local/cargo/bin/rustup
RUN update-ca-certificates && cd /usr/local/cargo/bin && for proxy in cargo cargo-clippy cargo-fmt clippy-driver rustc rustdoc rustfmt; do ln rustup \$proxy; done && \
    rustup toolchain install --profile minimal --no-self-update $version && rustup default $version && chmod -R a+w /usr/local/rustup /usr/local/cargo
END
    say "made $name in $((SECONDS - began)) s"
}

# base_image NAME: of the Dockerfile that comes as standard input.
base_image() {
    builder build --pull=never --identity-label=false -t "$1" -f - "$target/work" >"$target/base.log" 2>&1 ||
        { tail -n 5 "$target/base.log" >&2; fail "$1 cannot be made; the log: $target/base.log"; }
}

words() { sed -n "s/^$1  *//p" "$lists/ovn-kube.list"; }

# --- The build -------------------------------------------------------------------------------------------------------------------

# As a user builds it. The times in bills of materials are the commit's, as those of `make image` are.
build() {
    local began=$SECONDS
    git clone --quiet . "$target/work/source"
    commit=$(git rev-parse HEAD)
    epoch=$(git log -1 --format=%ct)
    version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
    say "building ovn-kube of $commit; the log: $target/build.log"
    (cd "$target/work/source" && builder build --pull=never --identity-label=false --build-arg "VERSION=$version" --build-arg "REVISION=$commit" \
        --build-arg "SOURCE_DATE_EPOCH=$epoch" --tag ovn-kube .) >"$target/build.log" 2>&1 || { tail -n 20 "$target/build.log" >&2; fail "the build failed; its log: $target/build.log"; }
    say "built in $((SECONDS - began)) s: $(size_of localhost/ovn-kube)"
}

# archive BIN: the image that `make image` makes of the same commit, in the builder's storage.
archive() {
    local bin=$1 tar=$target/work/ovn-kube.tar
    # The builder's image has the versions that Debian has today.
    ANY_VERSIONS=1 "$target/work/source/conf/image/image.sh" archive ovn-kube "$bin" "$tar" >/dev/null
    archived=$(builder pull --quiet "oci-archive:$tar")
    say "archive: $(size_of "$archived")"
}

size_of() { builder images --format '{{.ID}} {{.Size}}' --no-trunc "$1" | sed -n '1s/^[^ ]*  *//p'; }

# --- What the image does ---------------------------------------------------------------------------------------------------------

run_commands() {
    local said
    container=$(builder from --pull=never localhost/ovn-kube)
    said=$(builder run "$container" -- ovnkube --version)
    [ "$said" = "ovnkube $version" ] || fail "in the image, ovnkube --version says: $said"
    said=$(builder run "$container" -- sh -c "echo '{\"cniVersion\":\"1.0.0\"}' | CNI_COMMAND=VERSION /usr/libexec/cni/ovn-k8s-cni-overlay")
    [[ $said == *'"1.1.0"'* ]] || fail "in the image, the plugin's VERSION says: $said"
    # Without a cluster's values the entry point touches nothing, and says what is missing.
    said=$(builder run "$container" -- /root/ovnkube.sh 2>&1) && fail "in the image, ovnkube.sh starts without values: $said"
    [[ $said == *K8S_APISERVER* ]] || fail "in the image, ovnkube.sh without values says: $said"
    said=$(builder run "$container" -- /root/ovnkube.sh help 2>&1) && fail "in the image, ovnkube.sh help ends with 0: $said"
    [[ $said == *"one of: start_ovn "* ]] || fail "in the image, ovnkube.sh help says: $said"
    builder rm "$container" >/dev/null
    say "in the image: ovnkube --version, the plugin's VERSION, ovnkube.sh without values and with an unknown argument"
}

# --- The comparison --------------------------------------------------------------------------------------------------------------

compare() {
    local image container side differences=0
    for side in builder archive; do
        image=localhost/ovn-kube
        [ "$side" = builder ] || image=$archived
        builder inspect --type image --format "$(container_of_an_image)" "$image" >"$target/$side.config"
        # A container that nothing has run in.
        container=$(builder from --pull=never "$image")
        list_files "$(builder mount "$container")" >"$target/$side.files"
        installed "$(builder mount "$container")" >"$target/$side.packages"
        owned_by_extra_packages "$(builder mount "$container")" >"$target/$side.extra"
        builder rm "$container" >/dev/null
    done
    diff --label builder --label archive -u "$target/builder.config" "$target/archive.config" >&2 || differences=1
    compare_packages || differences=1
    compare_files || differences=1
    [ "$differences" -eq 0 ] || fail "the images differ; what is in them: $target/{builder,archive}.{config,packages,files}"
}

# What a runtime reads of an image, as a template of Go; its maps are sorted.
container_of_an_image() {
    echo 'architecture {{.OCIv1.Architecture}} {{.OCIv1.OS}}'
    local field
    for field in Entrypoint Cmd Env Labels User ExposedPorts Volumes StopSignal; do echo "$field {{.OCIv1.Config.$field}}"; done
    # Both mean the root.
    echo 'WorkingDir {{if .OCIv1.Config.WorkingDir}}{{.OCIv1.Config.WorkingDir}}{{else}}/{{end}}'
}

installed() { dpkg-query --admindir "$1/var/lib/dpkg" --show --showformat='${Package} ${Version}\n' | LC_ALL=C sort; }

owned_by_extra_packages() {
    local package
    for package in "${extra_packages[@]}"; do cat "$1/var/lib/dpkg/info/$package.list" "$1/var/lib/dpkg/info/$package:"*.list 2>/dev/null || true; done | LC_ALL=C sort -u
}

compare_packages() {
    local name
    for name in "${extra_packages[@]}"; do echo "$name"; done | LC_ALL=C sort >"$target/extra"
    awk 'NR == FNR { extra[$1]; next } !($1 in extra)' "$target/extra" "$target/builder.packages" |
        diff --label builder --label archive -U 0 - "$target/archive.packages" >&2 || {
        say "packages differ; where only versions do, the kept layer is older than Debian: \`make image-lock\`"
        return 1
    }
    say "$(wc -l <"$target/archive.packages") packages of the same versions; only the builder's image has ${extra_packages[*]}"
}

# PATH, and behind a tab what it is: kind, mode, owner, size and sum or target.
list_files() {
    (
        cd "$1"
        find . -type f -print0 | xargs -0 sha256sum --zero | tr '\0' '\n'
        find . -mindepth 1 \( -type f -printf '%P\tfile %m %U:%G %s \n' -o -type l -printf '%P\tlink %U:%G %l\n' -o -type d -printf '%P\tdirectory %m %U:%G\n' \
            -o -printf '%P\t%y %m %U:%G\n' \)
    ) | awk -F '\t' 'NF == 1 { sums[substr($0, 69)] = substr($0, 1, 64); next } { print "/" $1 "\t" $2 sums[$1] }' | LC_ALL=C sort
}

compare_files() {
    shopt -s extglob
    local path own executables same_compiler=no unexplained=() patterns=() reasons=() counts=() pattern reason i
    while read -r pattern reason; do patterns+=("$pattern") reasons+=("$reason") counts+=(0); done < <(exceptions)
    # What the project puts into the image has no exception but one: another release's C compiler makes other executables. Their
    # bills of materials are files like all others.
    own=$(own_files)
    executables=$(words file | sed -n 's|^755 bin/[^ ]* ||p')
    ! grep -qx "VERSION_CODENAME=$(words suite)" /etc/os-release || same_compiler=yes
    while IFS= read -r path; do
        if [ "$same_compiler" = no ] && grep -qxF "$path" <<<"$executables" && [ "$(attributes builder "$path")" = "$(attributes archive "$path")" ]; then
            say "$path is compiled by another compiler than Debian $(words suite)'s: $(entry builder "$path" | cut -d ' ' -f 4) and $(entry archive "$path" | cut -d ' ' -f 4) bytes"
            continue
        fi
        if ! grep -qxF "$path" <<<"$own"; then
            for i in "${!patterns[@]}"; do
                # shellcheck disable=SC2254 # a pattern
                case $path in ${patterns[i]}) counts[i]=$((counts[i] + 1)); continue 2 ;; esac
            done
        fi
        unexplained+=("$path")
    done < <(LC_ALL=C comm -3 "$target/builder.files" "$target/archive.files" | sed 's/^\t//' | cut -f 1 | LC_ALL=C sort -u | LC_ALL=C comm -23 - "$target/builder.extra")
    for i in "${!patterns[@]}"; do say "$(printf '%4d differ: %-32s %s' "${counts[i]}" "${patterns[i]}" "${reasons[i]}")"; done
    say "$(wc -l <"$target/archive.files") paths in the archive, $(wc -l <"$target/builder.files") in the builder's image," \
        "$(LC_ALL=C comm -12 "$target/builder.files" "$target/archive.files" | wc -l) the same; of the project itself: $(wc -l <<<"$own")"
    [ ${#unexplained[@]} -eq 0 ] && return
    for path in "${unexplained[@]}"; do
        say "$path" "builder: $(entry builder "$path")" "archive: $(entry archive "$path")"
    done
    return 1
}

entry() { awk -F '\t' -v path="$2" '$1 == path { print $2; found = 1 } END { if (!found) print "none" }' "$target/$1.files"; }

# Kind, mode and owner.
attributes() { entry "$1" "$2" | cut -d ' ' -f 1-3; }

# Files, links and directories of the list, and the directories above them.
own_files() {
    local path
    { words file | cut -d ' ' -f 3; words link | cut -d ' ' -f 2; words directory | cut -d ' ' -f 2; } | while read -r path; do
        while [ -n "$path" ]; do echo "$path"; path=${path%/*}; done
    done | LC_ALL=C sort -u
}

main "$@"
