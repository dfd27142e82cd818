#include "data/bpe/bpe_stages.h"

#include <algorithm>

namespace tessera {
namespace {

/// Returns the control tokens: the special ones and the end-of-document token.
std::vector<int32_t> control_ids(const BpeDescription& description, int32_t end_of_document) {
  std::vector<int32_t> ids{end_of_document};
  for (const AddedToken& token : description.added_tokens) {
    if (token.special) ids.push_back(token.id);
  }
  return ids;
}

}  // namespace

BpeStages::BpeStages(const BpeDescription& description, int32_t end_of_document,
                     const std::string& origin)
    : adds_prefix_space(description.adds_prefix_space),
      steps(description.splits),
      model(description, control_ids(description, end_of_document), origin) {
  if (description.normalizes_nfc) normalizer = std::make_unique<NfcNormalizer>();
  if (description.byte_fallback) normalizer = std::make_unique<SpaceMarks>();
  for (const SplitStep& step : steps) patterns.emplace_back(step.pattern, origin);
  std::vector<AddedToken> raw;
  std::vector<AddedToken> normalized;
  // In the library, special tokens win over others with equal content.
  std::vector<AddedToken> tokens = description.added_tokens;
  std::stable_partition(tokens.begin(), tokens.end(),
                        [](const AddedToken& token) { return token.special; });
  for (AddedToken& token : tokens) {
    if (token.id == end_of_document) token.special = true;
    if (!token.normalized) {
      raw.push_back(token);
      continue;
    }
    std::string buffer;
    // normalize() may return a view of its argument, so that must be a copy.
    if (normalizer) token.content = normalizer->normalize(std::string(token.content), buffer);
    normalized.push_back(token);
  }
  raw_finder = std::make_unique<AddedTokenFinder>(raw);
  normalized_finder = std::make_unique<AddedTokenFinder>(normalized);
}

}  // namespace tessera
