#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

/// A part of a text, as byte offsets.
struct TextRange {
  size_t begin = 0;
  size_t end = 0;
  bool operator==(const TextRange&) const = default;
};

/// A regular expression that cuts text into pieces. It is compiled to machine code if PCRE2
/// supports the processor. Immutable: threads may share it, each with its own Scratch.
class SplitPattern {
 public:
  /// The memory that a match needs. One Scratch serves all patterns.
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

  /// `pattern` is written as in a tokenizer.json (see pattern_for_pcre2()). Throws Error naming
  /// `origin` when it is not a valid pattern, is not supported, or matches the empty text, which
  /// would cut nothing.
  SplitPattern(const std::string& pattern, const std::string& origin);
  ~SplitPattern();
  SplitPattern(SplitPattern&&) noexcept;

  /// Returns the first match in `text`, valid UTF-8, at or after `begin`, or nothing if there is
  /// none. Throws Error when a match needs more memory or more steps than are allowed.
  std::optional<TextRange> find(std::string_view text, size_t begin, Scratch& scratch) const;

  /// Returns the first match as find() does, if `text` is the beginning of a longer text. A match
  /// that later text may change or undo ends at kOpen. No match begins before the one returned.
  /// Returns nothing if no match begins in `text`, whatever follows.
  std::optional<TextRange> find_open(std::string_view text, size_t begin, Scratch& scratch) const;
  static constexpr size_t kOpen = std::string_view::npos;

  /// Returns the most bytes before its start that a match may look at.
  size_t look_behind() const { return look_behind_; }

 private:
  std::optional<TextRange> find(std::string_view text, size_t begin, uint32_t options,
                                Scratch& scratch) const;

  struct Code;
  std::unique_ptr<Code> code_;
  size_t look_behind_ = 0;
};

/// Translates `pattern`, a regular expression of a tokenizer.json, to the syntax of PCRE2. The
/// files are written for Oniguruma, whose syntax is nearly the same. A construct that PCRE2 reads
/// differently, or that is not known to mean the same, throws Error naming the construct, its
/// offset and `origin`.
///
/// Supported are characters, the dot, groups, (?i:) of ASCII text, look-ahead and look-behind,
/// alternatives, quantifiers with their lazy and possessive forms (not those in braces), classes,
/// general categories (\p{L}), \s, \d and escaped characters.
std::string pattern_for_pcre2(std::string_view pattern, const std::string& origin);

}  // namespace tessera
