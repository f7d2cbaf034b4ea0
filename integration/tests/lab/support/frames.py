"""Sends raw frames from eth0 of a pod and prints the ARP answers that come back.

Usage: frames.py HOST_MAC POD_V4 POD_V6 ADDRESS…: each ADDRESS is one of the host's, the first one not that of
its port.
"""
import select, socket, struct, sys, time

host_mac, pod4, pod6, *targets = sys.argv[1:]
ETH = "eth0"
# /sys may show another namespace's interface of this name.
sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
sock.bind((ETH, 0))
own_mac = sock.getsockname()[4].hex(":")


def mac(text):
    return bytes.fromhex(text.replace(":", ""))


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def v4(source, target):
    source, target = socket.inet_pton(socket.AF_INET, source), socket.inet_pton(socket.AF_INET, target)
    udp = struct.pack("!HHHH", 7001, 7000, 12, 0) + b"raw!"
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 7, 0, 64, 17, 0, source, target)
    return b"\x08\x00" + head[:10] + struct.pack("!H", checksum(head)) + head[12:] + udp


def v6(source, target, kind, payload, between=b""):
    source, target = socket.inet_pton(socket.AF_INET6, source), socket.inet_pton(socket.AF_INET6, target)
    pseudo = source + target + struct.pack("!I3xB", len(payload), kind)
    at = 6 if kind == 17 else 2
    summed = checksum(pseudo + payload)
    payload = payload[:at] + struct.pack("!H", summed) + payload[at + 2 :]
    first = 0 if between else kind
    head = struct.pack("!IHBB", 0x60000000, len(between) + len(payload), first, 255)
    return b"\x86\xdd" + head + source + target + between + payload


def arp(target):
    address = socket.inet_pton(socket.AF_INET, target)
    own = socket.inet_pton(socket.AF_INET, pod4)
    return b"\x08\x06" + struct.pack("!HHBBH6s4s6s4s", 1, 0x800, 6, 4, 1, mac(own_mac), own, bytes(6), address)


def solicitation(source, target):
    address = socket.inet_pton(socket.AF_INET6, target)
    return v6(source, target, 58, struct.pack("!BBHI16sBB6s", 135, 0, 0, 0, address, 1, 1, mac(own_mac)))


udp = struct.pack("!HHHH", 7001, 7000, 12, 0) + b"raw!"
# An option that a receiver which does not know it has to answer (RFC 8200, section 4.2).
unknown_option = bytes([17, 0, 0x80, 4, 0, 0, 0, 0])
frames = []
for target in targets + ["255.255.255.255", "224.0.0.1", "ff02::1"]:
    is_v6 = ":" in target
    for way in [host_mac, "ff:ff:ff:ff:ff:ff", "33:33:00:00:00:01" if is_v6 else "01:00:5e:00:00:01"]:
        if is_v6:
            for source in [pod6, "2001:db8:bad::1"]:
                frames += [(way, v6(source, target, 17, udp)), (way, solicitation(source, target))]
                frames += [(way, v6(source, target, 17, udp, unknown_option))]
        else:
            frames += [(way, v4(source, target)) for source in [pod4, "8.8.8.8"]]
# Beyond the host: it must not forward.
frames += [(host_mac, v4(pod4, "192.0.2.99")), (host_mac, v6(pod6, "2001:db8:99::1", 17, udp))]

for way, frame in frames:
    sock.send(mac(way) + mac(own_mac) + frame)
asked = [target for target in targets if ":" not in target]


def answers(seconds):
    """ARP replies to this pod, which it has not sent itself."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 and select.select([sock], [], [], left)[0]:
        frame = sock.recv(2048)
        if frame[12:14] == b"\x08\x06" and frame[20:22] == b"\0\x02" and frame[6:12] != mac(own_mac):
            yield socket.inet_ntop(socket.AF_INET, frame[28:32]) + " " + frame[22:28].hex(":")


# On a busy machine the first packets of a new port may be lost. A second answer comes soon after the first.
for attempt in range(10):
    for target in asked:
        sock.send(mac("ff:ff:ff:ff:ff:ff") + mac(own_mac) + arp(target))
    # OVN answers for a port's address whatever the MAC address: this one is no port's.
    sock.send(mac(host_mac) + mac(own_mac) + arp(asked[0]))
    found = list(answers(1.0))
    if found:
        print(*found, sep="\n")
        break
