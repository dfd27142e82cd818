"""Small corpora, plain and as Python's gzip and zstandard pack them.

Writes tests/fixtures/corpora/:

  documents.jsonl, document.txt   the plain files
  one_member.jsonl.gz             one gzip member, with a file name in its header
  members.jsonl.gz                several members that begin inside of lines, the last one empty, as
                                  pigz and bgzip make them
  document.TXT.GZ                 the plain text
  one_frame.jsonl.zst             one zstd frame with a checksum
  frames.jsonl.zst                several frames that begin inside of lines, skippable ones between
  document.txt.zst                the plain text, of a size that its header does not state
  long_window.jsonl.zst           made with a window of 2^31 bytes, as `zstd --long=31` does
  versions.json

Usage, with zstandard installed:

  python3 tests/reference/corpora.py
"""

import gzip
import io
import json
import pathlib
import random
import struct
import sys
import zlib

import zstandard


def lines(count):
    words = "the cat sat où Ελλάδα 東京 \U0001f600 \\ \" tab\t line\n end".split(" ")
    generator = random.Random(5)
    result = []
    for number in range(count):
        text = " ".join(generator.choice(words) for _ in range(generator.randrange(1, 30)))
        result.append(json.dumps({"id": number, "text": text}, ensure_ascii=number % 2 == 0))
    return ("\n".join(result) + "\n").encode()


def member(data, name=""):
    buffer = io.BytesIO()
    with gzip.GzipFile(filename=name, mode="wb", fileobj=buffer, mtime=0) as file:
        file.write(data)
    return buffer.getvalue()


def frame(data, **parameters):
    parameters = zstandard.ZstdCompressionParameters.from_level(3, write_checksum=1, **parameters)
    return zstandard.ZstdCompressor(compression_params=parameters).compress(data)


def stream_frame(data, **parameters):
    """A frame whose header does not state the content's size, so that it states a window."""
    parameters = zstandard.ZstdCompressionParameters.from_level(
        3, write_checksum=1, write_content_size=0, **parameters)
    worker = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return worker.compress(data) + worker.flush()


def skippable(content):
    return struct.pack("<II", 0x184D2A53, len(content)) + content


def main():
    folder = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "corpora"
    folder.mkdir(parents=True, exist_ok=True)
    data = lines(60)
    text = ("A plain text.\nÉté, 東京.\n" * 40).encode()
    thirds = [data[:1000], data[1000:1777], data[1777:]]
    files = {
        "documents.jsonl": data,
        "document.txt": text,
        "one_member.jsonl.gz": member(data, "documents.jsonl"),
        "members.jsonl.gz": b"".join(member(part) for part in thirds) + member(b""),
        "document.TXT.GZ": member(text),
        "one_frame.jsonl.zst": frame(data),
        "frames.jsonl.zst": skippable(b"first") + frame(thirds[0]) + frame(thirds[1])
        + skippable(b"") + frame(thirds[2]) + skippable(b"the end"),
        "document.txt.zst": stream_frame(text),
        "long_window.jsonl.zst": stream_frame(data, window_log=31),
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    versions = {"made_by": "tests/reference/corpora.py", "python": sys.version.split()[0],
                "zlib": zlib.ZLIB_RUNTIME_VERSION, "zstandard": zstandard.__version__,
                "zstd": ".".join(map(str, zstandard.ZSTD_VERSION))}
    (folder / "versions.json").write_text(json.dumps(versions, indent=1) + "\n")


if __name__ == "__main__":
    main()
