# docker build -t cellworth . && docker run --rm -v "$PWD:/data" cellworth audit table.csv --target label
ARG BASE=python:3.12-slim
FROM ${BASE} AS build
WORKDIR /source
COPY . .
RUN python -m venv /tools && /tools/bin/pip install --no-cache-dir "build>=1.2" \
    && /tools/bin/python -m build --wheel --outdir /wheel . \
    && python -m venv /opt/cellworth \
    && /opt/cellworth/bin/pip install --no-cache-dir "$(ls /wheel/*.whl)[excel,remote]" "s3fs>=2024.12"

FROM ${BASE}
COPY --from=build /opt/cellworth /opt/cellworth
# Kernels are compiled for the processor that builds the image. Another one compiles its own, so the folder
# belongs to the user.
ENV PATH=/opt/cellworth/bin:$PATH NUMBA_CACHE_DIR=/var/cache/cellworth
RUN useradd --uid 10001 --create-home cellworth && install -d -o cellworth -g cellworth /var/cache/cellworth /data
USER 10001
RUN cellworth warm-up
WORKDIR /data
ENTRYPOINT ["cellworth"]
CMD ["--help"]
