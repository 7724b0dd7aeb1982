# docker build -t phantomgrad . ; docker run --gpus all -v $PWD/runs:/phantomgrad/runs phantomgrad make reproduce
FROM python:3.12-slim

RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ git make \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /phantomgrad
# Dependencies first: a change of the source does not install them again.
COPY requirements.lock ./
RUN python -m venv .venv \
    && .venv/bin/pip install --no-cache-dir --requirement requirements.lock
COPY . .
RUN .venv/bin/pip install --no-cache-dir --no-deps --editable . --editable ./suite \
    && touch .venv/.ready \
    && git config --system --add safe.directory /phantomgrad

ENV PATH=/phantomgrad/.venv/bin:$PATH
CMD ["make", "help"]
