#!/usr/bin/env bash
# Installs, upgrades, removes and purges the packages of what `make install` puts into a directory, and checks what each step leaves.
#
#   integration/packages/test.sh STAGE [ROOT…]        (default: all of them)
#
#   ROOT    this                     this machine's own root, in memory on top of it
#           bookworm, trixie, sid    a fresh one of that release of Debian, with systemd and procps
#           rpm                      this machine's, with rpm's own empty database in place of dpkg's
#
# What is older is the same STAGE under an older version, with another configuration. systemd does not run in these roots: systemctl is the real one
# for what it does with files (enable, disable), and each other call is recorded. A root of Debian's is downloaded once and kept outside of the checkout.
# Distributions with rpm are not to be had from Debian's mirrors, so the names of packages that the .rpm recommends are not tried.
set -euo pipefail
cd "$(dirname "$0")/../.."
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

stage=$(realpath "${1:?which directory}")
shift
cache="${XDG_CACHE_HOME:-$HOME/.cache}/ovn-kubernetes/roots"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
old=0.0.9 new=0.0.10
configuration=/etc/openvswitch/ovn_k8s.conf
units="ovnkube-node.service ovnkube-master.service"

say() { echo "packages: $*" >&2; }
fail() { say "$@"; exit 1; }

main() {
    [ "$(id -u)" -eq 0 ] || fail "roots are entered as root; as root, or: sudo env \"PATH=\$PATH\" make …"
    [ $# -gt 0 ] || set -- this bookworm trixie sid rpm
    local root base began
    # Roots are made before the first test.
    for root; do
        case $root in this | rpm) ;; bookworm | trixie | sid) need_root "$root" ;; *) fail "'$root' is none of: this bookworm trixie sid rpm" ;; esac
    done
    make_packages
    for root; do
        began=$SECONDS base=/
        case $root in bookworm | trixie | sid) base=$cache/$root ;; esac
        inside "$root" "$base"
        say "$root: installed, upgraded, removed, purged: nothing left ($((SECONDS - began)) s)"
    done
}

# --- Packages of two versions ------------------------------------------------------------------------------------------------------------

make_packages() {
    mkdir "$work/packages"
    cp -a "$stage" "$work/old"
    echo '# a line of the older version' >>"$work/old$configuration"
    LEVEL=1 integration/packages/build.sh "$work/old" $old "$work/packages" >/dev/null
    LEVEL=1 integration/packages/build.sh "$stage" $new "$work/packages" >/dev/null
    rm -rf "$work/old"
}

# --- Roots -------------------------------------------------------------------------------------------------------------------------------

need_root() {
    local suite=$1 folder=$cache/$1 lock
    mkdir -p "$cache"
    exec {lock}>"$folder.lock"
    flock "$lock"
    [ -d "$folder" ] || make_root "$suite" "$folder"
    exec {lock}>&-
}

make_root() {
    local proxy
    integration/prerequisites.sh compat
    proxy=$(apt-config shell http_proxy Acquire::http::Proxy)
    [ -z "$proxy" ] || eval "export $proxy"
    say "making a root of Debian's $1 (once)"
    rm -rf "$2.partial"
    debootstrap --variant=minbase --include=systemd,procps "$1" "$2.partial" "$(integration/compat.sh mirror)" >"$2.log" 2>&1 ||
        { tail -n 5 "$2.log" >&2; fail "debootstrap cannot make a root of $1; its log: $2.log"; }
    rm -rf "$2.partial"/var/cache/apt/archives/*.deb
    mv -T "$2.partial" "$2"
}

# inside ROOT BASE: the steps, in BASE with a file system in memory on top, which ends with them.
inside() {
    # shellcheck disable=SC2016 # expanded by the inner shell
    unshare --mount --propagation private --pid --fork --net --uts -- bash -euc '
        base=$1 packages=$2 steps=$3
        mount -t tmpfs tmpfs /mnt
        mkdir /mnt/upper /mnt/work /mnt/root
        mount -t overlay -o "lowerdir=$base,upperdir=/mnt/upper,workdir=/mnt/work" overlay /mnt/root
        mount -t proc proc /mnt/root/proc
        mount --bind /dev /mnt/root/dev
        for directory in run tmp packages; do mkdir -p "/mnt/root/$directory"; mount -t tmpfs tmpfs "/mnt/root/$directory"; done
        cp -a "$packages/." /mnt/root/packages/
        exec chroot /mnt/root /bin/bash -s <"$steps"
    ' sh "$2" "$work/packages" <(
        declare -p old new configuration units
        declare -f
        echo 'set -euo pipefail'
        case $1 in rpm) echo 'steps rpm' ;; *) echo 'steps deb' ;; esac
    ) || fail "$1: failed"
}

# --- Inside a root ------------------------------------------------------------------------------------------------------------------------

# steps KIND: deb or rpm.
steps() {
    local kind=$1 unit
    export LC_ALL=C DEBIAN_FRONTEND=noninteractive PATH=/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin
    exec </dev/null
    record_systemctl
    [ "$kind" = deb ] || { mkdir -p /tmp/rpm && manager --initdb; }
    # What programs under test may have logged on this machine.
    rm -f /var/log/openvswitch/{ovnkube,ovn-k8s-cni-overlay}.log*
    # Of other packages.
    mkdir -p /opt/cni/bin /etc/cni/net.d /var/log/openvswitch /etc/default
    # From a package manager's first run on, so that its own files do not count.
    files >/tmp/before

    say "$kind: install $old"
    install_version $old
    for unit in $units; do
        [ -e /usr/lib/systemd/system/"$unit" ] || fail "$unit is not installed"
        ! is_enabled "$unit" || fail "the package enables $unit"
    done
    calls_are "" "the first installation"
    verify_units
    ovnkube --print-config >/dev/null || fail "ovnkube does not run with the package's configuration"
    [ -x /usr/libexec/cni/ovn-k8s-cni-overlay ] || fail "the plugin is not where the server installs it from"

    say "$kind: upgrade to $new while the node's server runs, with an administrator's configuration"
    live
    echo '#mine' >>$configuration
    install_version $new
    case $kind in
    deb) calls_are "restart ovnkube-node.service" "an upgrade" ;;
    rpm) calls_are "try-restart ovnkube-node.service ovnkube-master.service" "an upgrade" ;;
    esac
    grep -q '^#mine$' $configuration || fail "the upgrade takes the administrator's $configuration away"
    is_enabled ovnkube-node.service || fail "the upgrade disables the unit"

    say "$kind: remove"
    remove
    calls_are "stop ovnkube-node.service stop ovnkube-master.service" "a removal"
    ! is_enabled ovnkube-node.service || fail "a unit that is gone stays enabled"
    # Pods go on, and can be detached.
    [ -e /etc/cni/net.d/10-ovn-kubernetes.conflist ] || fail "the removal takes the runtimes' configuration away"
    [ -x /opt/cni/bin/ovn-k8s-cni-overlay ] || fail "the removal takes away the plugin, which alone can detach pods"
    [ ! -e /usr/bin/ovnkube ] || fail "the removal leaves ovnkube"
    grep -qs '^#mine$' $configuration $configuration.rpmsave || fail "the removal takes the administrator's configuration away"

    if [ "$kind" = deb ]; then
        say "$kind: purge"
        dpkg --purge openvswitch-ovn-kubernetes ovn-kubernetes >/tmp/log 2>&1 || { cat /tmp/log; fail "purge"; }
        [ ! -e /run/ovn-kubernetes ] || fail "purge leaves /run/ovn-kubernetes"
        files >/tmp/after
    else
        # What rpm keeps: the administrator's configuration, and what programs made.
        rm -rf $configuration.rpm{save,new} /etc/default/ovnkube-node /opt/cni/bin/ovn-k8s-cni-overlay /etc/cni/net.d/10-ovn-kubernetes.conflist \
            /etc/systemd/system/ovnkube-node.service.d /var/log/ovn-kubernetes /var/log/openvswitch/ovnkube.log
        files >/tmp/after
    fi
    diff /tmp/before /tmp/after >/tmp/left || { cat /tmp/left; fail "the package leaves files, or takes others'"; }
}

# Where packages have files, but for the package manager's own.
files() { find /boot /etc /opt /srv /usr /var -xdev \( -path /var/lib/dpkg -o -path /var/log/dpkg.log -o -path /var/cache \) -prune -o -print | sort; }

install_version() {
    case $kind in
    # As an upgrade without a terminal answers the question about the configuration.
    deb) dpkg --force-confdef --force-confold --install /packages/{openvswitch-,}ovn-kubernetes_"$1"_*.deb >/tmp/log 2>&1 || { cat /tmp/log; fail "dpkg cannot install $1"; } ;;
    # The shell of the scripts is dpkg's.
    rpm) manager --nodeps -U /packages/{openvswitch-,}ovn-kubernetes-"$1"-1.*.rpm >/tmp/log 2>&1 || { cat /tmp/log; fail "rpm cannot install $1"; } ;;
    esac
}
remove() {
    case $kind in
    deb) dpkg --remove openvswitch-ovn-kubernetes ovn-kubernetes >/tmp/log 2>&1 || { cat /tmp/log; fail "dpkg cannot remove"; } ;;
    rpm) manager --nodeps -e openvswitch-ovn-kubernetes ovn-kubernetes >/tmp/log 2>&1 || { cat /tmp/log; fail "rpm cannot remove"; } ;;
    esac
}
manager() { command rpm --dbpath /tmp/rpm "$@"; }

# A machine that has started, as far as scripts of packages can tell; without systemd, only its calls can be seen.
record_systemctl() {
    mkdir -p /run/systemd/system
    cp "$(command -v systemctl)" /tmp/systemctl
    # In its place: rpm gives scripts a PATH of its own.
    printf '%s\n' '#!/bin/sh' 'case " $* " in' '*" daemon-reload "*) ;;' \
        '*" is-active "*) [ -e /tmp/live ] && case " $* " in *node*) ;; *) exit 3 ;; esac ;;' \
        '*" enable "* | *" disable "*) exec /tmp/systemctl --root=/ "$@" ;;' '*) echo "$*" >>/tmp/calls ;;' 'esac' >/usr/bin/systemctl
    # Debian asks whether services may be started here.
    printf '%s\n' '#!/bin/sh' 'exec systemctl "$@"' >/usr/bin/deb-systemd-invoke
    chmod 755 /usr/bin/{systemctl,deb-systemd-invoke}
}
calls_are() {
    local calls
    touch /tmp/calls
    calls=$(tr '\n' ' ' </tmp/calls)
    [ "${calls% }" = "$1" ] || fail "$2 calls systemctl with '${calls% }', not '$1'"
    rm -f /tmp/calls
}
is_enabled() { [ -L /etc/systemd/system/multi-user.target.wants/"$1" ]; }

# What the node's server and its administrator make.
live() {
    touch /tmp/live
    systemctl --quiet enable ovnkube-node.service
    is_enabled ovnkube-node.service || fail "the unit cannot be enabled"
    mkdir -p /run/ovn-kubernetes/cni /var/log/ovn-kubernetes /etc/systemd/system/ovnkube-node.service.d
    cp /usr/libexec/cni/ovn-k8s-cni-overlay /opt/cni/bin/
    echo '{}' >/etc/cni/net.d/10-ovn-kubernetes.conflist
    echo OVNKUBE_OPTIONS= >/etc/default/ovnkube-node
    echo >/etc/systemd/system/ovnkube-node.service.d/override.conf
    touch /var/log/ovn-kubernetes/ovnkube.log /var/log/openvswitch/ovnkube.log
}

verify_units() {
    local unit
    # Units of others that ours come after need not be there.
    for unit in $units; do
        systemd-analyze verify --man=no /usr/lib/systemd/system/"$unit" >/tmp/log 2>&1 || { cat /tmp/log; fail "systemd-analyze verify $unit"; }
        ! grep "$unit" /tmp/log || fail "systemd-analyze verify $unit"
    done
}

main "$@"
