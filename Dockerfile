# The processor, and every other verb of the command line. The base is any image with Python 3.11 or newer and pip:
#
#   docker build --build-arg BASE_IMAGE=python:3.11-slim --tag epochfence .
ARG BASE_IMAGE=python:3.11-slim

FROM ${BASE_IMAGE} AS build
WORKDIR /source
COPY pyproject.toml LICENSE ./
COPY processor processor
COPY schemas schemas
COPY topics topics
# An environment of its own: a base from a distribution keeps pip out of the system's Python.
RUN python3 -m venv /opt/epochfence && \
    /opt/epochfence/bin/pip install --no-cache-dir .

FROM ${BASE_IMAGE}
COPY --from=build /opt/epochfence /opt/epochfence
COPY docker/processor-health /usr/local/bin/
RUN useradd --system --uid 10001 --create-home epochfence
ENV PATH=/opt/epochfence/bin:$PATH \
    PYTHONUNBUFFERED=1
USER epochfence
WORKDIR /home/epochfence
# epochfence is process 1: `docker stop` sends it SIGTERM, and it drains and leaves.
ENTRYPOINT ["epochfence"]
CMD ["--help"]
