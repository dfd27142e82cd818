"""Multiple-choice questions and how a tiny OLMoE of Hugging Face transformers answers them.

Writes tests/fixtures/multiple_choice/:

  questions.jsonl        a few questions of our own in each format of Optimus' Table 2
  expected.safetensors
    initial/NAME         the model's weights by Tessera's names, f32
    log_likelihoods      f32, of every choice in order: the sum over the choice's tokens
    chosen               i32, by question: the largest log-likelihood
    chosen_normalised    i32: the largest over the choice's number of characters
  boundaries.json        tokens of texts after contexts by the `tokenizers` library and the
                         tokenizers of tests/fixtures/tokenizers, cut to the last `limit` + 1, and
                         at which of them the text begins

A token is a byte, and 256 ends a document: Tessera's "bytes" tokenizer. Usage, with torch and
transformers installed (the versions stand in the file's metadata):

  python3 tests/reference/multiple_choice.py
"""

import json
import pathlib
import sys

import tokenizers
import torch
import transformers
from safetensors.torch import save_file

from models import build, tessera_names

END_OF_DOCUMENT = 256

QUESTIONS = [
    # ARC, easy and challenge
    dict(task="arc_easy", context="Question: Which of these gives off its own light?\nAnswer:",
         choices=["a mirror", "the Sun", "the Moon", "a window"], answer=1),
    dict(task="arc_challenge", answer="C",
         context="Question: Why does a metal spoon in hot soup burn the hand?\nAnswer:",
         choices=["It reflects light", "It melts", "It conducts heat", "It attracts iron"]),
    # HellaSwag
    dict(task="hellaswag", answer=0,
         context="A woman fills a kettle at the tap. She",
         choices=["puts it on the stove and waits for it to boil.",
                  "throws the river over her shoulder and sings.",
                  "paints the kettle's shadow on a running horse.",
                  "is eaten by the water, which then drives home."]),
    # PIQA
    dict(task="piqa", context="Question: To keep bread fresh\nAnswer:", answer=0,
         choices=["store it in a closed box.", "leave it out in the rain overnight, uncovered."]),
    # BoolQ
    dict(task="boolq", answer=1,
         context="Honey keeps for years when it is sealed.\nQuestion: does honey last long?\nAnswer:",
         choices=["no", "yes"]),
    # SciQ
    dict(task="sciq", answer=3,
         context="Plants take in carbon dioxide.\nQuestion: What do plants take in?\nAnswer:",
         choices=["gold", "honey", "sound", "carbon dioxide"]),
    # WinoGrande: the option stands in the context, and what follows is scored
    dict(task="winogrande", answer=1, choices=["was too small.", "was too small."],
         context=["The book did not fit into the bag because the book",
                  "The book did not fit into the bag because the bag"]),
    # OpenBookQA, and a context that ends with a space
    dict(task="openbookqa", context="A bee visits flowers to ", answer=0,
         choices=["gather nectar", "sleep", "sharpen its sting", "vote"]),
    # MMLU
    dict(task="mmlu", answer="B", choices=["A", "B", "C", "D"],
         context="What is 7 times 8?\nA. 54\nB. 56\nC. 63\nD. 78\nAnswer:"),
    # characters are not bytes; a context of its own line end; no context
    dict(task="unicode", context="Übersetze: water →", answer=0,
         choices=["вода и ещё вода", "水", "l'été"]),
    dict(task="unicode", context="Numbers:\n", choices=["one two", "три четыре пять"], answer=0),
    dict(task="no_context", context="", choices=["The cat sat.", "Tac eht tas."], answer=0),
]


def continuation(context, choice):
    """Tokens, and where the scored ones begin."""
    if not choice[0].isspace():
        choice = " " + choice
    stem = context.rstrip()
    tokens = list((context + choice).encode())
    first = len(stem.encode())
    return (tokens, first) if first else ([END_OF_DOCUMENT] + tokens, 1)


def boundaries():
    root = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "tokenizers"
    cases = []
    for name in ["gpt_neox", "llama3"]:
        library = tokenizers.Tokenizer.from_file(str(root / name / "tokenizer.json"))
        encode = lambda text: library.encode(text, add_special_tokens=False).ids
        for context, text in [("The end of the", " sentence"), ("The end of the ", "sentence"),
                              ("It is", "n't so"), ("x = 1\n\n", "    return x"),
                              ("Numbers: 12", "345 and more"), ("naï", "ve"), ("日本", "語です"), ("one two three four five six seven", " eight"),
                              ("The ship sails over the sea and the", " birds go")]:
            for limit in [64, 10, 7]:
                stem = len(encode(context.rstrip()))
                tokens = encode(context + text)
                cut = max(0, len(tokens) - (limit + 1))
                if 0 < len(tokens) - stem <= limit:
                    cases.append(dict(tokenizer=name, context=context, text=text, limit=limit,
                                      tokens=tokens[cut:], first=stem - cut, truncated=cut > 0))
    return cases


def main():
    torch.set_num_threads(1)
    config = transformers.OlmoeConfig(
        vocab_size=257, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=8, num_experts=4, num_experts_per_tok=2, initializer_range=0.3,
        max_position_embeddings=256, rope_parameters=dict(rope_type="default", rope_theta=1e4),
        pad_token_id=None, eos_token_id=END_OF_DOCUMENT)
    model = build(config, seed=5).eval()
    scores, chosen, normalised = [], [], []
    for question in QUESTIONS:
        contexts = question["context"]
        if isinstance(contexts, str):
            contexts = [contexts] * len(question["choices"])
        likelihoods = []
        for context, choice in zip(contexts, question["choices"]):
            tokens, first = continuation(context, choice)
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([tokens])).logits[0].double()
            probabilities = torch.log_softmax(logits, dim=-1)
            likelihoods.append(sum(float(probabilities[i - 1, tokens[i]])
                                   for i in range(first, len(tokens))))
        by_character = [value / len(choice)
                        for value, choice in zip(likelihoods, question["choices"])]
        scores += likelihoods
        chosen.append(likelihoods.index(max(likelihoods)))
        normalised.append(by_character.index(max(by_character)))
    folder = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "multiple_choice"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "questions.jsonl").write_text(
        "".join(json.dumps(question, ensure_ascii=False) + "\n" for question in QUESTIONS))
    (folder / "boundaries.json").write_text(json.dumps(
        dict(made_by="tests/reference/multiple_choice.py", tokenizers=tokenizers.__version__,
             cases=boundaries()), ensure_ascii=False, indent=1) + "\n")
    weights = tessera_names(dict(model.named_parameters()), config)
    expected = {"initial/" + name: tensor for name, tensor in weights.items()}
    expected |= {"log_likelihoods": torch.tensor(scores, dtype=torch.float32),
                 "chosen": torch.tensor(chosen, dtype=torch.int32),
                 "chosen_normalised": torch.tensor(normalised, dtype=torch.int32)}
    save_file(expected, folder / "expected.safetensors", metadata={
        "made_by": "tests/reference/multiple_choice.py", "torch": torch.__version__,
        "transformers": transformers.__version__, "python": sys.version.split()[0]})
    (folder / "expected.safetensors").chmod(0o644)
    print("chosen", chosen, "normalised", normalised)


if __name__ == "__main__":
    main()
