# A whole node in one image: supervisor, workers and gateway. From the root of a checkout:
#
#   docker build -f deploy/docker/node.Dockerfile -t reactantserver .
#   docker build -f deploy/docker/node.Dockerfile -t reactantserver:cuda --build-arg REACTANT_GPU=cuda .
#
# A CUDA image needs the driver of the machine it runs on and nothing else; REACTANT_GPU_VERSION=12 or 13
# chooses the CUDA version (12). HOOK_PACKAGES names what the hooks of the models import besides, separated
# by spaces: the demo models' need tokenizers.

ARG BASE=debian:trixie-slim

FROM ${BASE} AS python
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 \
 && rm -rf /var/lib/apt/lists/*

FROM python AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates python3-venv
WORKDIR /build
ENV UV_PROJECT_ENVIRONMENT=/opt/reactantserver \
    UV_PYTHON=/usr/bin/python3 \
    UV_PYTHON_DOWNLOADS=never \
    UV_COMPILE_BYTECODE=1 \
    UV_LINK_MODE=copy

# The release of uv that wrote uv.lock.
COPY tools/uv.py tools/accelerator.py tools/
RUN ln -s "$(python3 -c 'from tools import uv; print(uv.locate())')" /usr/local/bin/uv

# What others publish changes seldom and weighs most: a layer of its own.
COPY pyproject.toml uv.lock ./
COPY proto/pyproject.toml proto/
COPY policy/pyproject.toml policy/
COPY core/pyproject.toml core/
COPY programs/pyproject.toml programs/
COPY services/worker/pyproject.toml services/worker/
COPY services/supervisor/pyproject.toml services/supervisor/
COPY services/gateway/pyproject.toml services/gateway/
COPY services/registry/pyproject.toml services/registry/
COPY cli/pyproject.toml cli/
COPY export/pyproject.toml export/
COPY examples/pyproject.toml examples/
ARG REACTANT_GPU=cpu
ARG REACTANT_GPU_VERSION=
RUN extra=$(python3 -c 'import sys; from tools.accelerator import choose; print(choose(*sys.argv[1:], None).extra or "")' \
      "$REACTANT_GPU" "$REACTANT_GPU_VERSION") \
 && echo --locked --no-dev --no-editable ${extra:+--extra $extra} \
      --package reactant-supervisor --package reactant-worker --package reactant-gateway > sync-options \
 && uv sync $(cat sync-options) --no-install-workspace

COPY proto proto
COPY policy policy
COPY core core
COPY programs programs
COPY services services
RUN uv sync $(cat sync-options)

# After the sync, which would take them away. What the lock knows stays at the lock's release.
ARG HOOK_PACKAGES=
RUN if [ -n "$HOOK_PACKAGES" ]; then \
      uv export --quiet --locked --no-dev --all-packages --no-emit-workspace --no-hashes -o locked.txt \
      && uv pip install --python "$UV_PROJECT_ENVIRONMENT" --constraints locked.txt $HOOK_PACKAGES; \
    fi

# What every request goes through, as C; the compiler stays behind in this stage.
COPY tools/compile_gateway.py tools/
RUN apt-get install -y --no-install-recommends gcc libc6-dev python3-dev \
 && uv export --quiet --locked --only-group dev --no-emit-workspace --no-hashes -o dev.txt \
 && uv pip install --python "$UV_PROJECT_ENVIRONMENT" --target /tmp/mypyc --constraints dev.txt mypy setuptools \
 && site=$("$UV_PROJECT_ENVIRONMENT/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
 && PYTHONPATH=/tmp/mypyc "$UV_PROJECT_ENVIRONMENT/bin/python" -m tools.compile_gateway --into "$site" \
 && rm -rf /tmp/mypyc

FROM python
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="reactantserver" \
      org.opencontainers.image.description="ReactantServer node: supervisor, workers and gateway." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

# The program cache and the run directory may be written by whatever user the container is given.
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin reactant \
 && mkdir -p /var/lib/reactantserver/models /etc/reactantserver \
 && install -d -o reactant -g reactant -m 1777 /run/reactantserver /var/cache/reactant-compile
COPY --from=build /opt/reactantserver /opt/reactantserver
COPY deploy/docker/ready.py /usr/local/lib/reactantserver/ready.py
COPY LICENSE /usr/share/doc/reactantserver/LICENSE

# NVIDIA_*: NVML finds the devices, CUDA runs on them.
ENV PATH=/opt/reactantserver/bin:$PATH \
    INFERENCE_SERVER_CACHE_DIR=/var/cache/reactant-compile \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER reactant
EXPOSE 8001 8002
HEALTHCHECK --interval=10s --timeout=5s --start-period=600s \
    CMD ["/usr/bin/python3", "-I", "-S", "/usr/local/lib/reactantserver/ready.py"]
ENTRYPOINT ["reactant-supervisor"]
