# clawbot as a service. Its database is elsewhere: set DATABASE_URL. (The
# private one needs PostgreSQL's programs, which are not in here. Nor is a
# shell: for the shell tool, put the binary into an image with what it may use.)
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
ARG COMMIT=
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false \
    -ldflags "-s -w -X main.version=${VERSION} -X main.commit=${COMMIT}" \
    -o /clawbot ./cmd/clawbot

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /clawbot /clawbot
ENV CLAWBOT_HTTP_ADDR=0.0.0.0:8420
EXPOSE 8420
ENTRYPOINT ["/clawbot"]
CMD ["serve"]
