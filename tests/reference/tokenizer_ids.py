"""Small tokenizers of several kinds, and the ids that their own libraries give a mixed corpus.

Writes to tests/fixtures/tokenizers/:

  NAME/tokenizer.json       byte-level BPE in the structure that a family of models uses, trained on
                            the texts below with about a thousand tokens
  added/tokenizer_config.json   which of that one's tokens ends a document
  NAME/expected.json        what `tokenizers` makes of every text of corpus.json:
    ids                     without special tokens, with encode_special_tokens
    decoded                 of those ids, special tokens left out
  gemma/                        the same of the form that Gemma 3 (ZAYA1) has: characters that fall
                                back to bytes; marked.json has the ids of further texts
  sentencepiece/tokenizer.model, expected.json   the same of `sentencepiece`, with byte fallback
  corpus.json               texts (a list) and their broken forms: [hexadecimal bytes, repaired text]
  code_points.json          for each pattern that tokenizers use, the code points that it matches
                            alone, as pairs [first, last]; and code points that are not normalised
                            alone
  Every file made by a library says under "made_with" by which version.

Usage, with tokenizers and sentencepiece installed:

  python3 tests/reference/tokenizer_ids.py
"""

import io
import json
import pathlib
import sys

import sentencepiece
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

PROSE = [
    "The quick brown fox jumps over the lazy dog, and they'll say it isn't so; we've seen it.",
    "It's HE'S I'M THEY'RE we'd you'll DON'T can'T 'tis 'S 's's ''ll",
    "Über größere Flüsse führen schöne Brücken; façade, naïve, coöperate, Ångström, ﬁne ﬂow, ß ẞ ſ",
    "Der Zug fährt um acht Uhr ab.  Er kommt   um zehn an.",
    "u\u0308ber gro\u0308\u00dfer e\u0301te\u0301 n\u0303o\u0302 a\u0328\u0301 \u212b \u2126 \u1e9b\u0323 q\u0307\u0323",
    "Η γρήγορη αλεπού πηδάει πάνω από τον τεμπέλη σκύλο. Ὀδυσσεύς μῆνιν ἄειδε θεά",
    "Съешь же ещё этих мягких французских булок, да выпей чаю. Й и\u0306 ё е\u0308",
    "نص عربي قصير مع تشكيل: مُحَمَّد وَرَقَة ١٢٣٤٥ و۴۵۶",
    "שלום עולם, זהו טקסט קצר: שָׁלוֹם",
    "नमस्ते दुनिया, यह एक छोटा वाक्य है। १२३ क़ क\u093c ड़",
    "สวัสดีชาวโลก นี่คือข้อความสั้น ๆ ๑๒๓",
    "天地玄黄，宇宙洪荒。日月盈昃，辰宿列张。豈 更 車",
    "いろはにほへと ちりぬるを わかよたれそ カタカナ ｶﾀｶﾅ が か\u3099 ㍿ １２３",
    "다람쥐 헌 쳇바퀴에 타고파 \u1103\u1161\u1105\u1161\u11b7 \uac00\u11a8",
    "ვეფხისტყაოსანი ქართული; Հայերեն այբուբեն; አማርኛ ፊደል; தமிழ் கொ க\u0bc6\u0bbe; తెలుగు; বাংলা কো",
    "👩‍👩‍👧‍👦 👍🏽 🏳️‍🌈 🇩🇪🇫🇷🇯🇵 ☕️ 1️⃣ 🤷🏿‍♀️ 😀😀😀 ©®™",
    "for (int i = 0; i < n; ++i) {\n    if (a[i] != b[i]) {\n        return -1;  // differ\n    }\n}\n",
    "def f(x, *args, **kw):\n\treturn {'a': x[0], \"b\": args}\n\n\n\nclass C(object):\n    pass\n",
    "#include <stdio.h>\r\nint main(void)\r\n{\r\n\tputs(\"hi\\n\");\r\n}\r\n\r\n",
    "<html>\n  <body class=\"x\">&amp;</body>\n</html> https://example.org/a?b=c&d=%20e#f",
    "3.14159 1,000,000 0xDEADBEEF 1e-10 2024-05-17T12:34:56Z 12345678901234567890 ²³¹ ½ Ⅷ ⑩ 𝟘𝟙𝟚",
    "SELECT name, COUNT(*) FROM t WHERE id >= 10 GROUP BY name HAVING COUNT(*) > 1;",
]

ODD = [
    "",
    " ",
    "  ",
    "   x",
    "x   ",
    "\n",
    "\n\n\n",
    " \n \n x",
    "\t\t\tx\t \t",
    "\r\r\n\n\r",
    "a\u00a0b\u00a0\u00a0c \u2003\u2003d\u3000e\u200bf\u2060g\ufeffh\u180ei\u0085j\u2028k\u2029l",
    "\x00\x01\x02 \x07\x08 \x0b\x0c \x1b[31mred\x1b[0m \x7f \x80\x9f",
    "a" * 300,
    "ab" * 150 + "-" * 130 + "=" * 260,
    "supercalifragilisticexpialidocious" * 6,
    " " * 23 + "x" + " " * 24 + "y" + " " * 25 + "z" + " " * 120 + "\n" + " " * 49,
    "Zalgo: e" + "\u0301\u0323\u0302\u0316" * 40 + "x",
    "\u0301 starts with a mark",
    "\u1161\u11a8 vowels alone \u1100\u1161\u11a8\u11a8",
    "x\u200d\u200c\u200dy",
    "\ufffd \ufffe \uffff \ue000 \U000f0000 \U0010fffd \u0378",
    "𐍈𐎀𒀀𓀀 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𠀀𠀁 🂡🀄",
    "'ſ 'Ｓ 'ſſ DON'T 'K 'LL'Ve'RE'd'M",
    "don’t ‘quoted’ “double” … – — ‑ ′ ″ «x» ¿qué?",
    "<|endoftext|>",
    "a <|endoftext|> b<|endoftext|><|padding|>c",
    "<|endof text|> <|endoftext <||endoftext|>|> |endoftext|",
    "<|begin_of_text|>hello<|end_of_text|>",
    "[MASK] a[MASK]b a [MASK] b  \t[MASK]\n c",
    "user@|||EMAIL|||here |||EMAIL||| ||||EMAIL||||",
    "word wordy wordword sword (word) word_ wordé word\u0301 \u200dword",
    "caf\u00e9token cafe\u0301token",
    "trim  trim\n\ntrim trimtrim",
    "Ġ Ċ Āā Ġthe Ċ\nĠ",
    "ÀÁÂÃ ¡¢£¤ Ó ÿ ŀ Ł ń",
    "ends with space ",
    "MiXeD CaSe wOrDs iPhone McDonald ΑΒΓ абвГДЕ ǅ ǈ",
    "1" * 50 + " " + "٣" * 20 + " a1b22c333d4444",
    "  leading, then\n\n  indented\n\t\n   \n",
    "?!?!... ### $$$ ~~~~ --- ===> -> => :: ;; ,, (((a)))",
]

# What means something to a tokenizer that writes spaces as U+2581 and bytes as <0x0A>.
MARKED = [
    "\u2581", " \u2581 \u2581\u2581  \u2581", "a\u2581b", "\u2581\u2581\u2581\u2581\u2581",
    "<0x41><0x0A> <0x0a>", "<eos> <bos>a<pad><unk>", "<table> <table><table>x", "[multimodal]",
    "new york New new  york renew yorker new\u2581york", "\n\n\n\n\n", "\n \n\n \n", "\t\t\t\t", "\r\n\r\n",
    "ends in two  ", "\U0001f937\U0001f3ff\u200d\u2640\ufe0f", "\u00e9e\u0301\u00e9", "\x00\x00", "the the\u2581the",
    "a" * 300 + " b" * 200 + "\u4e16" * 100,
]

BROKEN = [b"a\xffb", b"\xc3", b"\xe2\x82", b"\xe2\x82x", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\xaf",
          b"ok \xf4\x90\x80\x80 end", b"\x80\x80\x80", b"caf\xe9 na\xefve"]

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
POSSESSIVE = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*"
              r"|\s*[\r\n]|\s+(?!\S)|\s+")
CASED = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m"
         r"|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re"
         r"|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def made_with(library):
    return f"{library.__name__} {library.__version__}"


def special(content):
    return AddedToken(content, special=True, normalized=False)


def split_then_bytes(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), behavior, invert),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


ALPHABET = pre_tokenizers.ByteLevel.alphabet()
NEVER_IN_UTF8 = "\u00c0\u00c1" + "".join(chr(byte) for byte in range(0xF5, 0x100))


def trained(size, normalizer, pre_tokenizer, first_special, added=(), alphabet=ALPHABET, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator(PROSE * 3, trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=alphabet, show_progress=False,
        special_tokens=first_special))
    tokenizer.add_tokens(list(added))
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def gpt_neox():
    """OLMo, OLMoE, GPT-NeoX: NFC, runs of spaces as tokens, no tokens for bytes outside UTF-8."""
    runs = [AddedToken(" " * count, normalized=True) for count in range(24, 1, -1)]
    tokenizer = trained(900, normalizers.NFC(), pre_tokenizers.ByteLevel(add_prefix_space=False),
                        ["<|endoftext|>", "<|padding|>"],
                        runs + [AddedToken("|||EMAIL|||", normalized=False)],
                        alphabet=[symbol for symbol in ALPHABET if symbol not in NEVER_IN_UTF8])
    tokenizer.post_processor = processors.TemplateProcessing("$A", special_tokens=[])
    return tokenizer


def gpt2():
    tokenizer = trained(800, None, pre_tokenizers.ByteLevel(add_prefix_space=False),
                        ["<|endoftext|>"])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def llama3():
    """Pieces that are tokens win over merges, and some tokens have no merges that lead to them."""
    tokenizer = trained(1000, None, split_then_bytes(LLAMA3), [])
    data = json.loads(tokenizer.to_str())
    data["model"]["merges"] = [merge for i, merge in enumerate(data["model"]["merges"]) if i % 7 != 3]
    data["model"]["ignore_merges"] = True
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.add_special_tokens([special("<|begin_of_text|>"), special("<|end_of_text|>")])
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=True),
        processors.TemplateProcessing("<|begin_of_text|> $A", special_tokens=[
            ("<|begin_of_text|>", tokenizer.token_to_id("<|begin_of_text|>"))])])
    return tokenizer


def qwen():
    tokenizer = trained(700, normalizers.NFC(), split_then_bytes(QWEN), [])
    tokenizer.add_special_tokens([special("<|endoftext|>"), special("<|im_start|>")])
    return tokenizer


def dolma2():
    """Text between matches removed, of which there is none; the pattern of OLMo 2."""
    tokenizer = trained(700, None, split_then_bytes(LLAMA3, "removed", True), [])
    tokenizer.add_special_tokens([special("<|endoftext|>")])
    return tokenizer


def several():
    """What the families above do not use: possessive patterns, two cuts, letters by case, removal."""
    tokenizer = trained(600, None, pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"[一-龥]+|\d{1,2}(?=\d)"), "isolated"),
        pre_tokenizers.Split(Regex(CASED), "isolated"),
        pre_tokenizers.Split(Regex(POSSESSIVE), "isolated"),
        pre_tokenizers.Split(Regex("[^=]+"), "removed", True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]), ["</s>"])
    return tokenizer


def added():
    """Added tokens with every property, on either side of a normalizer, and a prefix space."""
    tokens = [AddedToken("[MASK]", lstrip=True, rstrip=True, normalized=False),
              AddedToken("word", single_word=True, normalized=False),
              AddedToken("wordw", normalized=False),
              AddedToken("caf\u00e9token", normalized=True), AddedToken("cafe\u0301t", normalized=False),
              AddedToken("trim", lstrip=True, normalized=True),
              AddedToken("|>", normalized=False), AddedToken("\u00e9", normalized=True),
              AddedToken("    ", rstrip=True, normalized=True)]
    tokenizer = trained(500, normalizers.Sequence([normalizers.NFC()]),
                        pre_tokenizers.Sequence([pre_tokenizers.ByteLevel(add_prefix_space=True)]),
                        ["</s>"], tokens)
    tokenizer.add_special_tokens([special("<|endoftext|>"), special("<|padding|>")])
    return tokenizer


def gemma():
    """Gemma 3, ZAYA1: merges of characters, spaces as U+2581, bytes for characters without a token.

    Nothing is split, so some tokens go over words. Most scripts are not in the training text. As
    converted files of Gemma have it, a tab has the place of its byte."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    known = ["".join(c for c in text if ord(c) < 0x500 or ord(c) > 0x1f5ff) for text in PROSE]
    tokenizer.train_from_iterator(known * 3, trainers.BpeTrainer(vocab_size=900, show_progress=False))
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    data = json.loads(tokenizer.to_str())
    learnt = sorted(data["model"]["vocab"], key=data["model"]["vocab"].get)
    names = ["<pad>", "<eos>", "<bos>", "<unk>"]
    found = ["\n\n", "\n\n\n", "\t\t", "\u2581\u2581", "\u2581\u2581\u2581", "[multimodal]", "<table>"]
    of_bytes = ["\t" if byte == 9 else f"<0x{byte:02X}>" for byte in range(256)]
    tokens = names + found + of_bytes + learnt
    data["model"] |= {"vocab": {token: i for i, token in enumerate(dict.fromkeys(tokens))},
                      "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.add_special_tokens([special(name) for name in names])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in found])
    tokenizer.add_tokens([AddedToken("new york", normalized=True)])
    tokenizer.post_processor = processors.TemplateProcessing(
        "<bos> $A", special_tokens=[("<bos>", tokenizer.token_to_id("<bos>"))])
    return tokenizer


def expected_of(tokenizer, texts=PROSE + ODD):
    tokenizer.encode_special_tokens = True
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    return {"made_with": made_with(tokenizers), "ids": ids,
            "decoded": [tokenizer.decode(sequence) for sequence in ids]}


def sentencepiece_model():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(PROSE * 3), model_writer=model, model_type="bpe", vocab_size=700,
        byte_fallback=True, character_coverage=0.98, normalization_rule_name="identity",
        remove_extra_whitespaces=False, add_dummy_prefix=True, minloglevel=2,
        allow_whitespace_only_pieces=True, split_digits=True)
    return model.getvalue()


def sentencepiece_expected(model):
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    ids = [processor.encode(text) for text in PROSE + ODD]
    return {"made_with": made_with(sentencepiece), "ids": ids,
            "decoded": [processor.decode(sequence) for sequence in ids]}


def ranges(code_points):
    pairs = []
    for code in code_points:
        if pairs and pairs[-1][1] == code - 1:
            pairs[-1][1] = code
        else:
            pairs.append([code, code])
    return pairs


def matched(pattern):
    """The code points that the pattern matches alone: cut out of a text of all, one a line."""
    codes = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000 and c != 0x0A]
    found = []
    for begin in range(0, len(codes), 4096):
        text = "\n".join(chr(c) for c in codes[begin:begin + 4096])
        cut = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
        found += [ord(piece) for piece, _ in cut.pre_tokenize_str(text) if len(piece) == 1]
    return ranges(sorted(set(found) - {0x0A}))


def code_points():
    nfc = normalizers.NFC()
    changed = [c for c in range(0x110000)
               if not 0xD800 <= c < 0xE000 and nfc.normalize_str(chr(c)) != chr(c)]
    patterns = [r"\p{L}", r"\p{N}", r"\s", r"\p{M}", r"\p{Lu}", r"\p{Ll}", r"\p{Lt}", r"\p{Lm}",
                r"\p{Lo}", r"\p{P}", r"\p{S}", r"\p{Z}", r"\d", "(?i:s)", "(?i:[dmtlver])"]
    return {"made_with": made_with(tokenizers),
            "matched": {pattern: matched(pattern) for pattern in patterns},
            "changed_by_nfc": ranges(changed)}


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


def main():
    folder = pathlib.Path(__file__).parent.parent / "fixtures" / "tokenizers"
    for make in (gpt_neox, gpt2, llama3, qwen, dolma2, several, added, gemma):
        tokenizer = make()
        (folder / make.__name__).mkdir(parents=True, exist_ok=True)
        tokenizer.save(str(folder / make.__name__ / "tokenizer.json"), pretty=False)
        write(folder / make.__name__ / "expected.json", expected_of(tokenizer))
    write(folder / "gemma" / "marked.json", {"texts": MARKED, **expected_of(gemma(), MARKED)})
    write(folder / "gemma" / "tokenizer_config.json", {"eos_token": "<eos>"})
    write(folder / "added" / "tokenizer_config.json", {"eos_token": {"content": "</s>"}})
    model = sentencepiece_model()
    write(folder / "sentencepiece" / "expected.json", sentencepiece_expected(model))
    (folder / "sentencepiece" / "tokenizer.model").write_bytes(model)
    write(folder / "corpus.json", {
        "texts": PROSE + ODD,
        "broken": [[text.hex(), text.decode(errors="replace")] for text in BROKEN]})
    write(folder / "code_points.json", code_points())


if __name__ == "__main__":
    sys.exit(main())
