# Build: docker build -t voxgate .    (docker buildx build --platform linux/amd64,linux/arm64 for both)
# Run:   docker run --network host --read-only -e GEMINI_API_KEY voxgate
# Host networking keeps one UDP port for all calls and the gateway on the loopback; behind a proxy that asks who
# may talk, publish 3001/tcp and 3001/udp instead and set VOXGATE_ADDR=0.0.0.0:3001, VOXGATE_INSECURE=1 and VOXGATE_PUBLIC_IP.
# With the end-of-turn model of docs/turns.md (44 MB more): docker build --build-arg TURN_MODEL=1 -t voxgate .
# Several of them, with all that they need beside them: deploy/compose.yaml.
FROM golang:1.26-bookworm AS build
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends libopus-dev libsoxr-dev pkg-config && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# The commit, for "gateway version", where the folder is a clone.
RUN vcs=$(git rev-parse --verify --quiet HEAD >/dev/null 2>&1 && echo auto || echo false) && \
    go build -trimpath -tags=grpcnotrace -buildvcs="$vcs" -ldflags="-s -w" -o /root-of-image/usr/local/bin/gateway ./gateway && \
    mkdir -p /root-of-image/usr/lib && cp -L /usr/lib/*-linux-gnu/libopus.so.0 /usr/lib/*-linux-gnu/libsoxr.so.0 /root-of-image/usr/lib/

# The end-of-turn model and ONNX Runtime, if they are asked for.
ARG TURN_MODEL=
# hadolint ignore=DL3008
RUN mkdir -p /root-of-image/usr/share/voxgate && if [ -n "$TURN_MODEL" ]; then \
        apt-get update && apt-get install -y --no-install-recommends python3-venv && rm -rf /var/lib/apt/lists/* && \
        ./turn-model.sh /root-of-image/usr/share/voxgate; fi

# glibc, libgomp and certificates, and no shell. It runs as the user "nonroot", 65532.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /root-of-image /
ARG TURN_MODEL=
# hadolint ignore=DL3064
ENV VOXGATE_PRIVATE_ADDR=127.0.0.1:9090 \
    VOXGATE_TURN_MODEL=${TURN_MODEL:+/usr/share/voxgate/smart-turn-v3.2.onnx} \
    VOXGATE_ONNXRUNTIME=${TURN_MODEL:+/usr/share/voxgate/libonnxruntime.so}
EXPOSE 3001/tcp 3001/udp
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s CMD ["gateway", "health"]
ENTRYPOINT ["gateway"]
