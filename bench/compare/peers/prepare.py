"""How long the packages `tokenizers` and `sentencepiece` take to encode the documents that peers/corpus.py
made; bench/compare/prepare runs it. Prints a JSON object."""

import argparse
import json
import os
import pathlib
import time

os.environ.setdefault("RAYON_NUM_THREADS", "1")  # read when tokenizers is first used

KINDS = ("byte-level-bpe", "bpe")


def encoder(folder, kind):
    """The package of one kind, a function that encodes texts, and one that counts a result's tokens."""
    if kind == "byte-level-bpe":
        import tokenizers
        tokenizer = tokenizers.Tokenizer.from_file(str(folder / kind / "tokenizer.json"))
        tokenizer.encode_special_tokens = True
        return (tokenizers, lambda texts: tokenizer.encode_batch_fast(texts, add_special_tokens=False),
                lambda encoding: len(encoding.ids))
    import sentencepiece
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / kind / "tokenizer.model"))
    return sentencepiece, lambda texts: processor.encode(texts, num_threads=1), len


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("kind", choices=KINDS)
    options = parser.parse_args()
    with open(options.folder / "documents.jsonl", encoding="utf-8") as file:
        documents = [json.loads(line)["text"] for line in file]
    package, encode, count = encoder(options.folder, options.kind)
    begin = time.process_time()
    encoded = encode(documents)
    seconds = time.process_time() - begin
    # The packages end no document themselves: one token a document is added, as `prepare` does.
    tokens = sum(map(count, encoded)) + len(documents)
    print(json.dumps({"seconds": seconds, "tokens": tokens, package.__name__: package.__version__}))


if __name__ == "__main__":
    main()
