#pragma once

#include <cstddef>
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

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

}  // namespace tessera
