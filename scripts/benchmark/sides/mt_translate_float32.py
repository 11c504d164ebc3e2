"""`mt` translating in float32, as it does where 16 bits are not faster."""

from mt.device import keep_freed_memory
from scripts.benchmark.session import Channel, Job
from scripts.benchmark.sides.decoding import serve_translations
from scripts.benchmark.sides.mt_translate import MtTranslating


def run(channel: Channel, job: Job) -> None:
    keep_freed_memory()
    serve_translations(channel, job, MtTranslating(job, "float32"))
