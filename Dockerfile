# Build: docker build -t voxgate .
# Run:   docker run --network host -e GEMINI_API_KEY voxgate
# Host networking keeps one UDP port for all calls and the gateway on the loopback; behind a proxy that asks who
# may talk, publish 3001/tcp and 3001/udp instead and set VOXGATE_ADDR=0.0.0.0:3001, VOXGATE_INSECURE=1 and VOXGATE_PUBLIC_IP.
FROM golang:1.26-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends libopus-dev libsoxr-dev pkg-config && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN go build -trimpath -buildvcs=false -tags=nolibopusfile -o /gateway ./gateway

FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates libopus0 libsoxr0 && rm -rf /var/lib/apt/lists/*
COPY --from=build /gateway /usr/local/bin/gateway
USER nobody
EXPOSE 3001/tcp 3001/udp
ENTRYPOINT ["gateway"]
