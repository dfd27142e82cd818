"""The packages `tokenizers` and `sentencepiece` beside `tessera prepare`; bench/compare/prepare runs
it. Needs both packages."""

import argparse
import json
import os
import pathlib
import statistics
import time

os.environ.setdefault("RAYON_NUM_THREADS", "1")  # read when tokenizers is first used

import sentencepiece
import tokenizers

VOCABULARY = 16384
DOCUMENT_BYTES = 8000
TRAINING_BYTES = 8_000_000
END = "<|endoftext|>"
KINDS = ("byte-level-bpe", "unigram", "bpe")


def documents_of(paths, total_bytes):
    """Documents of whole lines, some pages each; the texts over again until there are enough bytes."""
    lines = [line for path in paths
             for line in path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)]
    if not any(line.strip() for line in lines):
        raise SystemExit("the files hold no text")
    documents, document, size, total = [], [], 0, 0
    while total < total_bytes:
        for line in lines:
            document.append(line)
            size += len(line.encode())
            if size >= DOCUMENT_BYTES:
                documents.append("".join(document))
                total += size
                document, size = [], 0
                if total >= total_bytes:
                    break
    return documents


def make(folder, paths, total_bytes):
    documents = documents_of(paths, total_bytes)
    with open(folder / "documents.jsonl", "w", encoding="utf-8") as file:
        for document in documents:
            file.write(json.dumps({"text": document}, ensure_ascii=False) + "\n")
    sample = documents[: max(1, TRAINING_BYTES // DOCUMENT_BYTES)]
    lines = [line for document in sample for line in document.splitlines() if line.strip()]
    make_byte_level(folder / "byte-level-bpe", sample)
    for kind in ("unigram", "bpe"):
        make_sentencepiece(folder / kind, kind, lines)


def make_byte_level(folder, texts):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, tokenizers.trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=[END], show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": END}))


def make_sentencepiece(folder, kind, lines):
    """As T5 has it (unigram) and as Llama 2 has it (bpe)."""
    settings = dict(model_type=kind, vocab_size=VOCABULARY, hard_vocab_limit=False, minloglevel=2)
    if kind == "bpe":
        settings |= dict(byte_fallback=True, normalization_rule_name="identity", split_digits=True,
                         remove_extra_whitespaces=False, allow_whitespace_only_pieces=True)
    folder.mkdir()
    with open(folder / "tokenizer.model", "wb") as file:
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=file,
                                                 **settings)


def encode_all(folder, kind):
    """Tokens and seconds of all documents; tokenizers and sentencepiece end no document themselves, so
    that one token a document is added, as `prepare` does."""
    with open(folder / "documents.jsonl", encoding="utf-8") as file:
        documents = [json.loads(line)["text"] for line in file]
    if kind == "byte-level-bpe":
        tokenizer = tokenizers.Tokenizer.from_file(str(folder / kind / "tokenizer.json"))
        tokenizer.encode_special_tokens = True
        begin = time.process_time()
        encoded = tokenizer.encode_batch_fast(documents, add_special_tokens=False)
        seconds = time.process_time() - begin
        return sum(len(one.ids) for one in encoded) + len(documents), seconds
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / kind / "tokenizer.model"))
    begin = time.process_time()
    encoded = processor.encode(documents, num_threads=1)
    seconds = time.process_time() - begin
    return sum(len(ids) for ids in encoded) + len(documents), seconds


def print_ours(folder):
    """Tokens and seconds of the `prepare` that has just run."""
    tokens = json.loads((folder / "out" / "manifest.json").read_text())["tokens"]
    user, system = map(float, (folder / "seconds").read_text().split())
    print(tokens, user + system)


def report(folder):
    size = (folder / "documents.jsonl").stat().st_size
    print(f"tokenizers {tokenizers.__version__}, sentencepiece {sentencepiece.__version__}; tokens in a "
          f"second of a core, {size / 1e6:.0f} MB of JSON lines")
    print(f"{'kind':<16}{'Tessera':>12}{'package':>12}  ratio (lowest to highest)")
    for kind in KINDS:
        ours, theirs = [], []
        for line in (folder / f"{kind}.times").read_text().splitlines():
            our_tokens, our_seconds, their_tokens, their_seconds = map(float, line.split())
            if our_tokens != their_tokens:
                raise SystemExit(f"{kind}: Tessera found {our_tokens:.0f} tokens and the package "
                                 f"{their_tokens:.0f}: the two do not do the same")
            ours.append(our_tokens / our_seconds)
            theirs.append(their_tokens / their_seconds)
        ratios = [our / their for our, their in zip(ours, theirs)]
        print(f"{kind:<16}{statistics.median(ours) / 1e6:>10.2f} M{statistics.median(theirs) / 1e6:>10.2f} M"
              f"  {statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    maker = commands.add_parser("make", help="write documents and tokenizers to FOLDER")
    maker.add_argument("folder", type=pathlib.Path)
    maker.add_argument("--bytes", type=int, required=True)
    maker.add_argument("texts", type=pathlib.Path, nargs="+")
    timer = commands.add_parser("time", help="print tokens and seconds of one kind")
    timer.add_argument("folder", type=pathlib.Path)
    timer.add_argument("kind", choices=KINDS)
    reader = commands.add_parser("tokens", help="print tokens and seconds of Tessera's last run")
    reader.add_argument("folder", type=pathlib.Path)
    reporter = commands.add_parser("report", help="print the ratios")
    reporter.add_argument("folder", type=pathlib.Path)
    options = parser.parse_args()
    if options.command == "make":
        make(options.folder, options.texts, options.bytes)
    elif options.command == "tokens":
        print_ours(options.folder)
    elif options.command == "time":
        print(*encode_all(options.folder, options.kind))
    else:
        report(options.folder)


if __name__ == "__main__":
    main()
