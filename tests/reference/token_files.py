"""Token files as Megatron-LM's and OLMo's tools lay them out.

Neither tool is installed for this: the layouts are written down here anew, from
megatron/core/datasets/indexed_dataset.py (Megatron-LM) with struct and NumPy, and from
olmo/data/memmap_dataset.py (OLMo), which maps headerless arrays, with numpy.memmap.

Writes tests/fixtures/token_files/:

  documents.json                the documents' token ids, end-of-document tokens (256) included
  ended.idx, ended.bin          a Megatron pair, uint16, every document with its end
  bare.idx, bare.bin            a Megatron pair, int32, some documents without their end, some of
                                several sequences, some empty
  olmo-0.npy, olmo-1.npy        the same documents as headerless uint16, cut between documents
  array.npy                     the same as one array with a header, uint32
  array_i64.npy                 the same, int64
  versions.json

Usage, with NumPy installed:

  python3 tests/reference/token_files.py
"""

import json
import pathlib
import random
import struct
import sys

import numpy

END = 256
CODES = {"int32": 4, "int64": 5, "uint16": 8}


def documents():
    generator = random.Random(11)
    return [[generator.randrange(0, 256) for _ in range(generator.randrange(1, 60))] + [END]
            for _ in range(40)]


def write_megatron(prefix, sequences, boundaries, dtype):
    """sequences: lists of ids; boundaries: the sequence that each document begins with, and the
    number of sequences."""
    item = numpy.dtype(dtype).itemsize
    lengths = [len(sequence) for sequence in sequences]
    pointers, place = [], 0
    for length in lengths:
        pointers.append(place)
        place += length * item
    with open(f"{prefix}.idx", "wb") as index:
        index.write(b"MMIDIDX\x00\x00")
        index.write(struct.pack("<QBQQ", 1, CODES[dtype], len(sequences), len(boundaries)))
        index.write(numpy.array(lengths, dtype="<i4").tobytes())
        index.write(numpy.array(pointers, dtype="<i8").tobytes())
        index.write(numpy.array(boundaries, dtype="<i8").tobytes())
    with open(f"{prefix}.bin", "wb") as data:
        for sequence in sequences:
            data.write(numpy.array(sequence, dtype=dtype).tobytes())


def bare_sequences(all_documents):
    """Each third document without its end, each fourth in two sequences, empty ones between."""
    sequences, boundaries = [], [0]
    for number, document in enumerate(all_documents):
        kept = document[:-1] if number % 3 == 0 else document
        middle = len(kept) // 2 if number % 4 == 0 else 0
        for part in (kept[:middle], kept[middle:]):
            if part:
                sequences.append(part)
        boundaries.append(len(sequences))
        if number % 10 == 5:
            boundaries.append(len(sequences))  # a document of no sequence
        if number % 10 == 7:
            sequences.append([])  # a document of an empty sequence
            boundaries.append(len(sequences))
    return sequences, boundaries


def write_headerless(path, ids):
    array = numpy.memmap(path, dtype="<u2", mode="w+", shape=(len(ids),))
    array[:] = ids
    array.flush()


def main():
    folder = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "token_files"
    folder.mkdir(parents=True, exist_ok=True)
    all_documents = documents()
    stream = [token for document in all_documents for token in document]
    (folder / "documents.json").write_text(json.dumps(all_documents) + "\n")
    write_megatron(folder / "ended", all_documents, list(range(len(all_documents) + 1)), "uint16")
    write_megatron(folder / "bare", *bare_sequences(all_documents), "int32")
    cut = sum(map(len, all_documents[:17]))
    write_headerless(folder / "olmo-0.npy", stream[:cut])
    write_headerless(folder / "olmo-1.npy", stream[cut:])
    numpy.save(folder / "array.npy", numpy.array(stream, dtype="<u4"))
    numpy.save(folder / "array_i64.npy", numpy.array(stream, dtype="<i8"))
    versions = {"made_by": "tests/reference/token_files.py", "python": sys.version.split()[0],
                "numpy": numpy.__version__}
    (folder / "versions.json").write_text(json.dumps(versions, indent=1) + "\n")


if __name__ == "__main__":
    main()
