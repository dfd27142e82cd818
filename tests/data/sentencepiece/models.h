#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sentencepiece_trainer.h>

#include "data/sentencepiece/document_encoder.h"
#include "data/sentencepiece/model.h"
#include "data/support.h"

namespace tessera::testing {

/// A message of a protocol buffer, written field by field.
class MessageWriter {
 public:
  MessageWriter& number(uint64_t field, uint64_t value) {
    varint(field << 3);
    varint(value);
    return *this;
  }
  MessageWriter& real(uint64_t field, float value) {
    varint(field << 3 | 5);
    const auto bits = std::bit_cast<uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) bytes_ += static_cast<char>(bits >> shift & 0xFF);
    return *this;
  }
  MessageWriter& text(uint64_t field, std::string_view value) {
    varint(field << 3 | 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

/// A model file with what the description says.
inline std::string model_file(const SentencePieceDescription& description) {
  MessageWriter model;
  for (const SentencePiece& piece : description.pieces) {
    model.text(1, MessageWriter()
                      .text(1, piece.text)
                      .real(2, piece.score)
                      .number(3, static_cast<uint64_t>(piece.type))
                      .bytes());
  }
  model.text(2, MessageWriter()
                    .number(3, static_cast<uint64_t>(description.algorithm))
                    .number(24, description.whitespace_as_suffix ? 1 : 0)
                    .number(35, description.byte_fallback ? 1 : 0)
                    .bytes());
  MessageWriter normalizer;
  if (!description.character_map.empty()) normalizer.text(2, description.character_map);
  model.text(3, normalizer.number(3, description.adds_dummy_space ? 1 : 0)
                    .number(4, description.removes_extra_whitespace ? 1 : 0)
                    .number(5, description.escapes_whitespace ? 1 : 0)
                    .bytes());
  return model.bytes();
}

/// The pieces that every model begins with, and the byte pieces where it has them.
inline SentencePieceDescription bare_description(bool byte_fallback) {
  SentencePieceDescription description;
  description.pieces = {{"<unk>", 0, PieceType::unknown},
                        {"<s>", 0, PieceType::control},
                        {"</s>", 0, PieceType::control}};
  description.byte_fallback = byte_fallback;
  for (int byte = 0; byte_fallback && byte < 256; ++byte) {
    description.pieces.push_back({fmt::format("<0x{:02X}>", byte), 0, PieceType::byte});
  }
  return description;
}

using TrainerSettings = std::unordered_map<std::string, std::string>;

/// Lines in several scripts, with numbers, code and accents in both forms.
inline std::vector<std::string> mixed_lines() {
  std::vector<std::string> lines;
  for (int i = 0; i < 150; ++i) {
    lines.push_back(fmt::format(
        "  the {} quick brown foxes, don't jump; naïve café cafe\xCC\x81 {}", i, i * 37));
    lines.push_back(fmt::format("    for (int i{} = 0; i < {}; ++i) {{ call<x>(a[i]);  }}", i, i));
    lines.push_back("日本語の文章と漢字、東京タワー。ﾊﾝｶｸ ＦＵＬＬ ｗｉｄｔｈ");
    lines.push_back("Быстрая коричневая лиса прыгает; Ελληνικά κείμενα ﬁne ½");
    lines.push_back(random_text(static_cast<uint64_t>(i), 12));
  }
  return lines;
}

inline std::string train_model(const TrainerSettings& settings) {
  class Lines : public sentencepiece::SentenceIterator {
   public:
    bool done() const override { return next_ == lines_.size(); }
    void Next() override { ++next_; }
    const std::string& value() const override { return lines_[next_]; }
    sentencepiece::util::Status status() const override { return {}; }

   private:
    std::vector<std::string> lines_ = mixed_lines();
    size_t next_ = 0;
  };
  TrainerSettings all = settings;
  all.insert({{"minloglevel", "2"}, {"num_threads", "1"}, {"hard_vocab_limit", "false"}});
  Lines lines;
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(all, &lines, &model);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return model;
}

/// What an encoder gives of a text.
struct Encoded {
  std::vector<int32_t> ids;
  std::vector<DocumentEncoder::Boundary> boundaries;
};

/// A model in the library and in our encoder.
class BothEncoders {
 public:
  explicit BothEncoders(const std::string& model)
      : library_(model, "a model"), model_(model, "a model"), encoder_(model_, kNoMark) {}

  const SentencePieceModel& model() const { return model_; }
  std::vector<int32_t> ours(std::string_view text) { return encoded({text}).ids; }
  std::vector<int32_t> library(std::string_view text) const {
    std::vector<int32_t> ids;
    library_.stretch_encoder(model_.unknown())->encode(text, ids);
    return ids;
  }

  /// Of a text in pieces, which begins a document or goes on with one.
  Encoded encoded(const std::vector<std::string_view>& pieces, bool starts = true) {
    Encoded result;
    encoder_.begin(starts);
    most_held_ = 0;
    for (const std::string_view piece : pieces) {
      encoder_.add(piece, result.ids, result.boundaries);
      most_held_ = std::max(most_held_, encoder_.held_bytes());
    }
    encoder_.finish(result.ids, result.boundaries);
    return result;
  }
  /// The most bytes that the last encoded() held back between two pieces.
  size_t most_held() const { return most_held_; }

 private:
  inline static const std::vector<int32_t> kNoMark;
  SentencePieceLibrary library_;
  SentencePieceModel model_;
  SentencePieceDocumentEncoder encoder_;
  size_t most_held_ = 0;
};

}  // namespace tessera::testing
