# ecoshare with torch for CUDA. docs/quickstart.md has the commands to run it, and their reasons.
#
#   docker build --tag ecoshare .
#   docker run --rm --gpus all --shm-size 2g -v ecoshare:/var/lib/ecoshare -v "$PWD":/work ecoshare run jobs.yaml
#
# The wheel of torch brings the libraries of CUDA, so the base has only what the driver needs: `base`, not `runtime`.
ARG BASE=nvidia/cuda:13.0.2-base-ubuntu24.04
FROM ${BASE}

LABEL org.opencontainers.image.title="ecoshare" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"

RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/ecoshare
ENV PATH=/opt/ecoshare/bin:$PATH

# A layer of its own: torch takes gigabytes, and changes less often than ecoshare.
COPY constraints.txt /opt/build/
RUN pip install --no-cache-dir --constraint /opt/build/constraints.txt torch

ARG EXTRAS=optuna,parquet
COPY pyproject.toml README.md LICENSE /opt/build/
COPY ecoshare /opt/build/ecoshare
COPY tuner /opt/build/tuner
RUN pip install --no-cache-dir --constraint /opt/build/constraints.txt "/opt/build[${EXTRAS}]" \
    && rm -rf /opt/build
COPY scripts/container_entry.py /usr/local/bin/container-entry

# Images of Ubuntu have a user with the number that most users of one machine have.
RUN if id ubuntu >/dev/null 2>&1; then userdel --remove ubuntu; fi \
    && useradd --uid 1000 --create-home ecoshare \
    && install --directory --owner=ecoshare --group=ecoshare /var/lib/ecoshare /work

# compute: CUDA and the daemon of MPS. utility: NVML, for meters, clocks and power.
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    ECOSHARE_STATE=/var/lib/ecoshare \
    ECOSHARE_PROFILES=/var/lib/ecoshare/profiles
VOLUME /var/lib/ecoshare

USER ecoshare
WORKDIR /work
ENTRYPOINT ["container-entry", "ecoshare"]
CMD ["up", "--resume"]
