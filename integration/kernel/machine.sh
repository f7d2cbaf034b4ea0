#!/usr/bin/env bash
# A virtual machine with systemd and a disk of its own, for uplinks.sh and reboots.sh, which read this file: what its root
# has, the disk, the initramfs, and the machine itself. Knows nothing of what is tried in it.
#
# From the caller: $base, the folder of the root file system; $packages, what is installed in it; $kernel, the folder of
# prepare.sh; $top, the folder with what differs; say and fail.

# Of the kernel's modules: what the machine loads.
modules="kernel/net kernel/lib kernel/crypto kernel/fs kernel/drivers/virtio kernel/drivers/block kernel/drivers/char/hw_random kernel/drivers/net"

make_base() {
    local new=${base:?}.partial proxy
    say "making the machine's root file system (once)"
    proxy=$(apt-config shell http_proxy Acquire::http::Proxy)
    [ -z "$proxy" ] || eval "export $proxy"
    rm -rf "$new"
    mkdir -p "${base%/*}"
    debootstrap --variant=minbase --include="${packages:?}" bookworm "$new" "$(integration/compat.sh mirror)" >"$base.log" 2>&1 ||
        fail "debootstrap: see $base.log"
    rm -rf "$new"/var/cache/apt/archives/*.deb "$new"/var/lib/apt/lists/*
    mv -T "$new" "$base"
}

# Puts the modules into $top.
add_modules() {
    local release directory
    release=$(<"${kernel:?}/release")
    mkdir -p "$top/usr/lib/modules/$release"
    for directory in $modules; do
        mkdir -p "$top/usr/lib/modules/$release/${directory%/*}"
        cp -a "$kernel/root/lib/modules/$release/$directory" "$top/usr/lib/modules/$release/$directory"
    done
    cp -a "$kernel/root/lib/modules/$release"/modules.* "$top/usr/lib/modules/$release/"
    depmod -b "$top/usr" "$release" 2>/dev/null || true
}

# make_disk DISK TOP [OPTION…]: a disk with the base, and what is in TOP on top of it; options of mkfs.
make_disk() {
    local disk=$1 top=$2
    shift 2
    # shellcheck disable=SC2016 # expanded by the inner shell
    unshare --mount --propagation private -- bash -euc '
        top=$1 base=$2 disk=$3
        shift 3
        mount -t overlay -o "lowerdir=$top:$base" overlay /mnt
        truncate -s 3G "$disk"
        mkfs.ext4 -q "$@" -d /mnt "$disk"
    ' sh "$top" "$base" "$disk" "$@"
}

unit() { # NAME DESCRIPTION UNIT SERVICE
    printf '[Unit]\nDescription=%s\n%s\n[Service]\n%s\n[Install]\nWantedBy=multi-user.target\n' "$2" "$3" "$4" >"$top/etc/systemd/system/$1.service"
}
enable() { ln -sf "/etc/systemd/system/$1.service" "$top/etc/systemd/system/multi-user.target.wants/$1.service"; }

make_initramfs() {
    local initrd file release
    initrd=$(mktemp -d)
    release=$(<"${kernel:?}/release")
    mkdir -p "$initrd"/{bin,modules}
    cp "$(command -v busybox)" "$initrd/bin/busybox"
    install -m 755 integration/kernel/uplinks/init "$initrd/init"
    for file in virtio_pci virtio_blk ext4 crc32c_generic 9pnet_virtio 9p virtio_rng virtio_net openvswitch; do
        modprobe -d "$kernel/root" -S "$release" --show-depends "$file"
    done | awk '$1 == "insmod" && !seen[$2]++ {print $2}' | while read -r file; do
        case $file in
        *.xz) xz -dc "$file" >"$initrd/modules/$(basename "$file" .xz)"; basename "$file" .xz ;;
        *) cp "$file" "$initrd/modules/"; basename "$file" ;;
        esac
    done >"$initrd/modules/order"
    (cd "$initrd" && find . | cpio -o -H newc --quiet | gzip -1) >"$1"
    rm -rf "$initrd"
}

# run_machine KEEP DISK INITRD [OPTION…]: until it ends; it finds KEEP as the 9p file system `job`. Options of qemu.
run_machine() {
    local keep=$1 disk=$2 initrd=$3
    shift 3
    # no_timer_check: on a busy host, an emulated timer does not tick within the time that the kernel gives it, which is a panic.
    nice -n "${VM_NICE:-5}" timeout "${VM_TIMEOUT:-3600}" qemu-system-x86_64 -machine q35 -accel tcg,thread=multi,tb-size=512 -cpu max,-la57 \
        -smp "${VM_CPUS:-2}" -m "${VM_MEMORY:-1536}" -nodefaults -no-user-config -display none -serial "file:$keep/console" \
        -kernel "$kernel/vmlinuz" -initrd "$initrd" \
        -append "console=ttyS0 panic=-1 mitigations=off nowatchdog tsc=unstable clocksource=hpet no_timer_check net.ifnames=0 systemd.show_status=no" \
        -drive "file=$disk,format=raw,if=virtio,cache=unsafe" -device virtio-rng-pci "$@" \
        -fsdev "local,id=job,path=$keep,security_model=none" -device virtio-9p-pci,fsdev=job,mount_tag=job
}
