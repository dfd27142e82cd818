"""Documents, and the tokenizers that the packages `tokenizers` and `sentencepiece` train on them, for
bench/compare/prepare."""

import argparse
import json
import pathlib

import sentencepiece
import tokenizers

VOCABULARY = 16384
DOCUMENT_BYTES = 8000
TRAINING_BYTES = 8_000_000
END = "<|endoftext|>"


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
    """Writes documents.jsonl, and a folder with a tokenizer for each kind."""
    documents = documents_of(paths, total_bytes)
    with open(folder / "documents.jsonl", "w", encoding="utf-8") as file:
        for document in documents:
            file.write(json.dumps({"text": document}, ensure_ascii=False) + "\n")
    sample = documents[: max(1, TRAINING_BYTES // DOCUMENT_BYTES)]
    lines = [line for document in sample for line in document.splitlines() if line.strip()]
    make_byte_level(folder / "byte-level-bpe", sample)
    make_sentencepiece(folder / "bpe", lines)


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


def make_sentencepiece(folder, lines):
    """As Llama 2 has it."""
    settings = dict(model_type="bpe", vocab_size=VOCABULARY, hard_vocab_limit=False, minloglevel=2,
                    byte_fallback=True, normalization_rule_name="identity", split_digits=True,
                    remove_extra_whitespaces=False, allow_whitespace_only_pieces=True)
    folder.mkdir()
    with open(folder / "tokenizer.model", "wb") as file:
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=file,
                                                 **settings)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("texts", type=pathlib.Path, nargs="+")
    options = parser.parse_args()
    make(options.folder, options.texts, options.bytes)


if __name__ == "__main__":
    main()
