#include "ops/attention/attention.h"
#include "ops/attention/repeat_heads.h"
#include "ops/labels/cases.h"

namespace tessera::testing {
namespace {

struct PositionsForm {
  bool document_starts, queries, keys;
};

AttentionOptions options_of(const LabelRanges& of) {
  return {.sequence = of("s"),
          .keys = of("z"),
          .heads = of("h"),
          .kv_heads = of("g"),
          .head_dim = of("d")};
}

void write_attention(Builder& builder, const LabelRanges& of, const PositionsForm& form) {
  const int64_t tokens = of("b") * of("s");
  const int64_t keys = of("b") * of("z");
  const Value q = declared(builder, {tokens, of("h") * of("d")});
  const Value k = declared(builder, {keys, of("g") * of("d")});
  const Value v = declared(builder, {keys, of("g") * of("d")});
  AttentionPositions positions;
  if (form.document_starts) positions.document_starts = declared(builder, {tokens}, DType::i32);
  if (form.queries) positions.queries = declared(builder, {tokens}, DType::i32);
  if (form.keys) positions.keys = declared(builder, {keys}, DType::i32);
  attention(builder, q, k, v, options_of(of), positions);
}

constexpr int64_t kSequence = 4;

/// The positions that a form has, from input `first` on. A second document begins at position 2.
std::map<size_t, GivenInput> given_positions(const PositionsForm& form, size_t first) {
  const auto position = [](int64_t i) { return i % kSequence; };
  std::map<size_t, GivenInput> given;
  if (form.document_starts) {
    given[first++] = given_values({"b", "s"}, [](int64_t i) { return i % kSequence < 2 ? 0 : 2; });
  }
  if (form.queries) given[first++] = given_values({"b", "s"}, position);
  if (form.keys) given[first++] = given_values({"b", "z"}, position);
  return given;
}

}  // namespace

std::vector<LabelCase> attention_label_cases() {
  std::vector<LabelCase> cases;
  const std::map<std::string, int64_t> extents{{"b", 3}, {"s", kSequence}, {"z", kSequence},
                                               {"h", 6}, {"g", 3},         {"d", 2}};
  for (int bits = 0; bits < 8; ++bits) {
    const PositionsForm form{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0};
    cases.push_back(
        {"attention", extents,
         [=](Builder& builder, const LabelRanges& of) { write_attention(builder, of, form); },
         given_positions(form, 3)});
    cases.push_back({"attention_gradient", extents,
                     [=](Builder& builder, const LabelRanges& of) {
                       write_attention(builder, of, form);
                       write_gradient(builder);
                     },
                     given_positions(form, 6)});
  }
  for (const bool gradient : {false, true}) {
    cases.push_back({gradient ? "repeat_heads_gradient" : "repeat_heads",
                     {{"t", 4}, {"g", 3}, {"r", 2}, {"d", 4}},
                     [=](Builder& builder, const LabelRanges& of) {
                       const Value x = declared(builder, {of("t"), of("g") * of("d")});
                       repeat_heads(builder, x, of("d"), of("r"));
                       if (gradient) write_gradient(builder);
                     }});
  }
  cases.push_back(
      {"cached_attention",
       {{"t", 2}, {"h", 6}, {"g", 3}, {"d", 2}, {"u", 1}},
       [](Builder& builder, const LabelRanges& of) {
         const int64_t tokens = of("t");
         const Shape keys{tokens, of("g") * of("d")};
         const Shape cache{8, of("g") * of("d")};
         const Value q = declared(builder, {tokens, of("h") * of("d")});
         const Value k = declared(builder, keys);
         const Value v = declared(builder, keys);
         const Value key_cache = declared(builder, cache);
         const Value value_cache = declared(builder, cache);
         cached_attention(
             builder, q, k, v, key_cache, value_cache, declared(builder, {1}, DType::i32),
             {.sequence = tokens, .heads = of("h"), .kv_heads = of("g"), .head_dim = of("d")});
       },
       {{5, given_values({"u"}, [](int64_t) { return 3; })}}});
  return cases;
}

}  // namespace tessera::testing
