# The service, without torch, for runs that were translated with or exported before:
#   docker build -t mt-serve .
#   docker run --rm -p 8000:8000 -v "$PWD/runs/en-de:/srv/runs/en-de:ro" mt-serve
FROM python:3.12-slim

WORKDIR /srv
COPY constraints.txt ./
RUN awk '/^# \[/ { wanted = $2 == "[translate]" } wanted' constraints.txt > translate.txt \
    && pip install --no-cache-dir --no-deps --require-hashes -r translate.txt
COPY mt ./mt

ENV PYTHONPATH=/srv PYTHONDONTWRITEBYTECODE=1
USER 65534
EXPOSE 8000
HEALTHCHECK --start-period=60s CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=10)"]
# By default, it serves the newest run in runs/; --run and the other options may follow the name of the image.
ENTRYPOINT ["python", "-m", "mt", "serve", "--host", "0.0.0.0", "--log-format", "json"]
