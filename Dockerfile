# The image with everything: Debian with Open vSwitch and OVN, ovnkube and the plugin. From the top of a checkout, with
# nothing built before:
#
#   docker build -t ovn-kube .        (or podman, or buildah)
#
# `make image` makes the same without a builder. What is in it is in conf/image/ovn-kube.list; a test compares the steps
# below with that list. VERSION and REVISION are labels.
FROM rust:1.95-slim-trixie AS executables
WORKDIR /source
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev make musl-tools
COPY . .
# The time in the bills of materials: without git, that of Cargo.lock unless this is given.
ARG SOURCE_DATE_EPOCH
RUN make build sbom

FROM debian:trixie-slim AS files
WORKDIR /source
COPY LICENSE LICENSE
COPY conf/image conf/image
COPY --from=executables /source/target/bin bin
RUN conf/image/image.sh files ovn-kube bin /files
RUN conf/image/image.sh dpkg ovn-kube >/dpkg

FROM debian:trixie-slim
COPY --from=files /dpkg /etc/dpkg/dpkg.cfg.d/ovn-kube
# systemd, which comes along, writes a machine's identity when it is configured: all pods would have the same.
RUN apt-get update && apt-get install --yes --no-install-recommends \
        openvswitch-switch ovn-central ovn-host iproute2 containernetworking-plugins && \
    rm -rf /var/lib/apt/lists /var/cache/* /var/log/* /etc/machine-id
COPY --from=files /files /
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ARG VERSION=development
ARG REVISION=unknown
LABEL org.opencontainers.image.title="ovn-kube"
LABEL org.opencontainers.image.description="OVN-Kubernetes with Open vSwitch and OVN"
LABEL org.opencontainers.image.licenses="Apache-2.0"
LABEL org.opencontainers.image.version="$VERSION"
LABEL org.opencontainers.image.revision="$REVISION"
ENTRYPOINT ["/root/ovnkube.sh"]
