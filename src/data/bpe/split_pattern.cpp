#include "data/bpe/split_pattern.h"

#include <array>
#include <new>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"
#include "base/strict_json.h"
#include "base/utf8.h"

namespace tessera {
namespace {

// The stack of matches in machine code, in bytes. It grows only if a match needs it.
constexpr size_t kFirstStack = size_t{32} << 10;
constexpr size_t kLargestStack = size_t{64} << 20;
/// The most backtracking steps of one match. It is far above what practical patterns need for
/// megabytes of white space, and far below what would look like a hang.
constexpr uint32_t kMaxBacktracking = 100'000'000;

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

PCRE2_SPTR code_units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

template <auto release>
struct Release {
  void operator()(auto* object) const { release(object); }
};

template <typename T, auto release>
using Owned = std::unique_ptr<T, Release<release>>;

/// Takes ownership of an object that a PCRE2 function made.
template <typename Owner>
Owner own(typename Owner::pointer made) {
  if (made == nullptr) throw std::bad_alloc();
  return Owner(made);
}

}  // namespace

struct SplitPattern::Code {
  Owned<pcre2_code, pcre2_code_free> code;
  bool is_machine_code = false;  // otherwise PCRE2 interprets the pattern
};

struct SplitPattern::Scratch::Data {
  Owned<pcre2_match_data, pcre2_match_data_free> match;
  Owned<pcre2_match_context, pcre2_match_context_free> context;
  Owned<pcre2_jit_stack, pcre2_jit_stack_free> stack;
};

SplitPattern::Scratch::Scratch() : data_(std::make_unique<Data>()) {
  data_->match = own<decltype(data_->match)>(pcre2_match_data_create(1, nullptr));
  data_->context = own<decltype(data_->context)>(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(data_->context.get(), kMaxBacktracking);
  // Without machine code there is no stack.
  data_->stack.reset(pcre2_jit_stack_create(kFirstStack, kLargestStack, nullptr));
  pcre2_jit_stack_assign(data_->context.get(), nullptr, data_->stack.get());
}

SplitPattern::Scratch::~Scratch() = default;

SplitPattern::SplitPattern(const std::string& pattern, const std::string& origin)
    : code_(std::make_unique<Code>()) {
  const std::string translated = pattern_for_pcre2(pattern, origin);
  const Owned<pcre2_compile_context, pcre2_compile_context_free> context(
      own<Owned<pcre2_compile_context, pcre2_compile_context_free>>(
          pcre2_compile_context_create(nullptr)));
  // The dot matches all but a newline. PCRE2's default for that depends on its build.
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  code_->code.reset(pcre2_compile(code_units(translated), translated.size(),
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_NO_AUTO_CAPTURE, &error, &offset,
                                  context.get()));
  if (!code_->code) {
    throw Error("{}: the pattern {} is not a regular expression: {} (after {})", origin,
                in_quotes(pattern), message_of(error), in_quotes(translated.substr(0, offset)));
  }
  uint32_t matches_empty = 0;
  pcre2_pattern_info(code_->code.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0) {
    throw Error("{}: the pattern {} matches the empty text; expected one that cuts pieces", origin,
                in_quotes(pattern));
  }
  uint32_t characters = 0;
  pcre2_pattern_info(code_->code.get(), PCRE2_INFO_MAXLOOKBEHIND, &characters);
  look_behind_ = kLongestCharacter * characters;
  code_->is_machine_code =
      pcre2_jit_compile(code_->code.get(), PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD) == 0;
}

SplitPattern::~SplitPattern() = default;
SplitPattern::SplitPattern(SplitPattern&&) noexcept = default;

std::optional<TextRange> SplitPattern::find(std::string_view text, size_t begin,
                                            Scratch& scratch) const {
  return find(text, begin, 0, scratch);
}

std::optional<TextRange> SplitPattern::find_open(std::string_view text, size_t begin,
                                                 Scratch& scratch) const {
  return find(text, begin, PCRE2_PARTIAL_HARD, scratch);
}

std::optional<TextRange> SplitPattern::find(std::string_view text, size_t begin, uint32_t options,
                                            Scratch& scratch) const {
  const Scratch::Data& data = *scratch.data_;
  const auto match = code_->is_machine_code ? pcre2_jit_match : pcre2_match;
  const int result = match(code_->code.get(), code_units(text), text.size(), begin,
                           PCRE2_NO_UTF_CHECK | options, data.match.get(), data.context.get());
  if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.match.get());
  if (result == PCRE2_ERROR_PARTIAL) return TextRange{range[0], kOpen};
  if (result < 0) {
    throw Error("cannot split text at byte {} of {}: {}; the tokenizer's pattern does not suit it",
                begin, text.size(), message_of(result));
  }
  return TextRange{range[0], range[1]};
}

}  // namespace tessera
