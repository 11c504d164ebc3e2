"""CTranslate2 with weights rounded to 8 bits and a worker of one thread for each thread."""

from scripts.benchmark.session import Channel, Job
from scripts.benchmark.sides.ctranslate2_float32 import CTranslate2Translating
from scripts.benchmark.sides.decoding import serve_translations


def run(channel: Channel, job: Job) -> None:
    serve_translations(channel, job, CTranslate2Translating(job, "int8", worker_per_thread=True))
