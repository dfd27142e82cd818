#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

/// A part of a text, in bytes.
struct TextRange {
  size_t begin = 0;
  size_t end = 0;

  bool operator==(const TextRange&) const = default;
};

/// A regular expression that cuts text into pieces, compiled to machine code where the processor is
/// known to PCRE2. Immutable: threads share it, each with a Scratch of its own.
class SplitPattern {
 public:
  /// What a match needs beside the pattern. Serves all patterns.
  class Scratch {
   public:
    Scratch();
    ~Scratch();
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

   private:
    friend class SplitPattern;
    struct Data;
    std::unique_ptr<Data> data_;
  };

  /// `pattern` as it stands in a tokenizer.json (see pattern_for_pcre2()). Throws Error naming
  /// `origin` when it is no pattern, not supported, or matches the empty text, which would cut
  /// nothing.
  SplitPattern(const std::string& pattern, const std::string& origin);
  ~SplitPattern();
  SplitPattern(SplitPattern&&) noexcept;

  /// The first match in `text`, valid UTF-8, from `begin` on; nothing when there is none. Throws
  /// Error when a text needs more memory than a match may take.
  std::optional<TextRange> find(std::string_view text, size_t begin, Scratch& scratch) const;

  /// The same where `text` is the beginning of a longer one. A match that what follows may change,
  /// or make none, ends at kOpen; nothing begins before it. Nothing is found where no match begins
  /// in `text`, whatever follows.
  std::optional<TextRange> find_open(std::string_view text, size_t begin, Scratch& scratch) const;
  static constexpr size_t kOpen = std::string_view::npos;

  /// How many bytes before its begin a match may look at.
  size_t look_behind() const { return look_behind_; }

 private:
  std::optional<TextRange> find(std::string_view text, size_t begin, uint32_t options,
                                Scratch& scratch) const;

  struct Code;
  std::unique_ptr<Code> code_;
  size_t look_behind_ = 0;
};

}  // namespace tessera
