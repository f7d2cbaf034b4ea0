#!/usr/bin/env bash
# Makes packages, .deb and .rpm, of what `make install` puts into a directory.
#
#   integration/packages/build.sh STAGE VERSION DIRECTORY
#
#   ovn-kubernetes               everything in STAGE
#   openvswitch-ovn-kubernetes   nothing but the former, under the name that OpenShift's installers ask for
#
#   LEVEL    of xz (default: 6); 1 takes a fifth of the time
#
# The same STAGE gives the same bytes: times are those of the last commit, or SOURCE_DATE_EPOCH.
set -euo pipefail
cd "$(dirname "$0")/../.."
stage=$(realpath "${1:?which directory}") version=${2:?which version} out=$(realpath -m "${3:?where to}")
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.lock)}
export LC_ALL=C TZ=UTC
umask 022
level=${LEVEL:-6}
scripts=$PWD/integration/packages
license=$PWD/LICENSE
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() { echo "packages: $*"; }
fail() { echo "packages: $*" >&2; exit 1; }

# What an administrator may change: an upgrade keeps it.
configuration=(/etc/logrotate.d/ovn-kubernetes /etc/openvswitch/ovn_k8s.conf)
maintainer="OVN-Kubernetes in Rust <ovn-kubernetes@localhost>"
summary="Network of a Kubernetes cluster, with Open vSwitch and OVN"
description="ovnkube, the control plane and the node's server, and ovn-k8s-cni-overlay, the CNI plugin. Neither unit is enabled: a host's role is the administrator's choice (man ovnkube)."

main() {
    [[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$ ]] || fail "'$version' is no version like 1.2.3 or 1.2.3-rc.1"
    # Both kinds sort 1.2.3~rc.1 before 1.2.3.
    upstream=${version/-/\~}
    local file
    for file in "${configuration[@]}" /usr/bin/ovnkube /usr/libexec/cni/ovn-k8s-cni-overlay; do
        [ -e "$stage$file" ] || fail "$stage has no $file; it is made by: make install CNI_BIN_DIR=/usr/libexec/cni DESTDIR=$stage"
    done
    case $(architecture_of "$stage/usr/bin/ovnkube") in
    x86-64) deb_architecture=amd64 rpm_architecture=x86_64 ;;
    AArch64) deb_architecture=arm64 rpm_architecture=aarch64 ;;
    *) fail "$stage/usr/bin/ovnkube is for no architecture that packages are made for" ;;
    esac
    mkdir -p "$out"
    deb ovn-kubernetes "$deb_architecture"
    deb openvswitch-ovn-kubernetes all
    rpm ovn-kubernetes "$rpm_architecture"
    rpm openvswitch-ovn-kubernetes noarch
}

# The machine in an ELF header.
architecture_of() {
    case $(od -An -tx1 -j18 -N2 "$1" | tr -d ' ') in 3e00) echo x86-64 ;; b700) echo AArch64 ;; *) echo unknown ;; esac
}

# tree NAME DIRECTORY: the files of a package.
tree() {
    mkdir -p "$2/usr/share/doc/$1"
    [ "$1" != ovn-kubernetes ] || cp -a "$stage/." "$2/"
    install -m 644 "$license" "$2/usr/share/doc/$1/copyright"
    # Whatever the umask was of whoever made STAGE.
    chmod -R a+rX,u+w,go-w "$2"
}

# --- Debian ------------------------------------------------------------------------------------------------------------------------

deb() {
    local name=$1 architecture=$2 root=$work/deb/$1 relations file
    tree "$name" "$root"
    find "$root/usr/share/man" -type f ! -name '*.gz' -exec gzip -9n {} + 2>/dev/null || true
    mkdir "$root/DEBIAN"
    case $name in
    ovn-kubernetes)
        # procps: systemctl reload needs /bin/kill. The databases may be elsewhere; so may everything, in pods.
        relations=$'Depends: procps\nRecommends: openvswitch-switch, ovn-host\nSuggests: ovn-central, logrotate'
        printf '%s\n' "${configuration[@]}" >"$root/DEBIAN/conffiles"
        for file in postinst prerm postrm; do install -m 755 "$scripts/deb-$file" "$root/DEBIAN/$file"; done ;;
    *) relations="Depends: ovn-kubernetes (= $upstream)" ;;
    esac
    {
        printf 'Package: %s\nVersion: %s\nArchitecture: %s\nMaintainer: %s\n' "$name" "$upstream" "$architecture" "$maintainer"
        printf 'Installed-Size: %s\n%s\nSection: net\nPriority: optional\n' "$(du -k -s --apparent-size "$root" | cut -f 1)" "$relations"
        printf 'Description: %s\n %s\n' "$summary" "$description"
    } >"$root/DEBIAN/control"
    (cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\n' | sort | xargs -r -d '\n' md5sum >DEBIAN/md5sums)
    find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    # One thread: the bytes must not depend on their number.
    dpkg-deb --root-owner-group --threads-max=1 -Zxz "-z$level" --build "$root" "$out/${name}_${upstream}_$architecture.deb" >/dev/null
    say "${name}_${upstream}_$architecture.deb"
}

# --- rpm ---------------------------------------------------------------------------------------------------------------------------

rpm() {
    local name=$1 architecture=$2 root=$work/rpm/$1 topdir=$work/rpmbuild relations file
    tree "$name" "$root"
    case $name in
    ovn-kubernetes)
        relations=$'Recommends: openvswitch\nRecommends: ovn-host\nSuggests: ovn-central\nSuggests: logrotate'
        # Where distributions with rpm have it.
        mkdir -p "$root/usr/share/zsh"
        mv "$root/usr/share/zsh/vendor-completions" "$root/usr/share/zsh/site-functions" ;;
    *) relations="Requires: ovn-kubernetes = $upstream-1" ;;
    esac
    find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    # Of directories, those that no package may have made before: they go when they are empty.
    (cd "$root" && find . ! -type d -printf '/%P\n' && find . -type d \( -path '*ovn-kubernetes*' -o -path './usr/libexec/cni' -o -path './usr/share/fish*' \
        -o -path './usr/share/zsh*' \) -printf '%%dir /%P\n') | sort >"$work/files"
    for file in "${configuration[@]}"; do sed -i "s|^$file\$|%config(noreplace) &|" "$work/files"; done
    sed -i 's|^/usr/share/doc/|%doc &|; s|^/usr/share/man/.*[0-9]$|%doc &|' "$work/files"
    {
        printf 'Name: %s\nVersion: %s\nRelease: 1\nSummary: %s\nLicense: Apache-2.0\n' "$name" "$upstream" "$summary"
        # The executables are static.
        printf 'AutoReqProv: no\n%s\n%%description\n%s\n' "$relations" "$description"
        [ "$name" != ovn-kubernetes ] || cat "$scripts/rpm-scripts"
        printf '%%files\n%%defattr(-,root,root)\n'
        cat "$work/files"
    } >"$work/$name.spec"
    mkdir -p "$topdir"
    # Nothing is stripped or compressed behind our back, and no host or time is in it. xz: all that is in use can read it.
    SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH rpmbuild -bb --quiet --target "$architecture-linux" --buildroot "$root" --noclean \
        --define "_topdir $topdir" --define '__spec_install_pre %{nil}' --define '__os_install_post %{nil}' --define '_build_id_links none' \
        --define 'debug_package %{nil}' --define "_binary_payload w$level.xzdio" --define '_buildhost localhost' \
        --define 'use_source_date_epoch_as_buildtime 1' --define 'clamp_mtime_to_source_date_epoch 1' \
        --define '_rpmfilename %{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm' --define '_docdir_fmt %{NAME}' "$work/$name.spec" >"$work/rpm.log" 2>&1 ||
        { cat "$work/rpm.log" >&2; fail "rpmbuild cannot make $name"; }
    mv "$topdir/RPMS/$name-$upstream-1.$architecture.rpm" "$out/"
    say "$name-$upstream-1.$architecture.rpm"
}

main
