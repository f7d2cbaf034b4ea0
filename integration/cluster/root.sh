#!/usr/bin/env bash
# Fills a directory with a small root file system for an image: busybox, and this machine's PROGRAMs with the
# libraries that they load.
#
#   integration/cluster/root.sh DIRECTORY [PROGRAM…]
#
# Busybox' own `nslookup` does not complete names that have a dot, such as `kubernetes.default`; its `wget`
# crashes when it looks one up.
set -euo pipefail
root=$1
shift

mkdir -p "$root"/{bin,etc,tmp,www}
chmod 1777 "$root/tmp"
cp "$(command -v busybox)" "$root/bin/busybox"
busybox --list | while read -r applet; do [ "$applet" = busybox ] || ln -s busybox "$root/bin/$applet"; done
echo 'root:x:0:0:root:/:/bin/sh' >"$root/etc/passwd"
echo 'root:x:0:' >"$root/etc/group"
echo 'hosts: files dns' >"$root/etc/nsswitch.conf"

for program in "$@"; do
    # Debian's name of a program says which of several it is.
    name=${program%.openbsd}
    [ "$program" = dash ] && name="sh"
    path=$(command -v "$program")
    # In the place of busybox' own.
    rm -f "$root/bin/$name"
    cp --dereference "$path" "$root/bin/$name"
    ldd "$path" | grep -o '/[^ ]*' | while read -r library; do
        [ -e "$root$library" ] || install -D --mode 755 "$library" "$root$library"
    done
done
