#include "program/labels.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <utility>

#include "base/error.h"

namespace tessera {
namespace {

/// Parses labels by this grammar, in which spaces separate names:
///
///   labels  = [term {"+" term}] "->" operand {"," operand} [";" tie {"," tie}]
///   term    = ["#" number] operand {"," ["#" number] operand}
///   operand = ["+="] ["~"] ["?"] {label | "(" label {label} ")"}
///   label   = name ["!"] ["*"]
///   tie     = name {"=" name}
class LabelReader {
 public:
  explicit LabelReader(std::string_view text) : text_(text) {}

  Labels read() {
    Labels labels;
    if (!take("->")) read_inputs(labels);
    do {
      labels.outputs.push_back(operand());
    } while (take(","));
    if (take(";")) {
      do {
        labels.ties.push_back(tie());
      } while (take(","));
    }
    expect(rest().empty(), "the end");
    return labels;
  }

 private:
  void read_inputs(Labels& labels) {
    labels.terms.emplace_back();
    while (true) {
      const size_t position = take("#") ? number() : labels.inputs.size();
      if (labels.inputs.size() <= position) labels.inputs.resize(position + 1);
      labels.terms.back().push_back(static_cast<int>(position));
      labels.inputs[position] = operand();
      if (take(",")) continue;
      if (take("->")) break;
      expect(take("+"), "',', '+' or '->'");
      labels.terms.emplace_back();
    }
    size_t operand_count = 0;
    for (const auto& term : labels.terms) operand_count += term.size();
    expect(operand_count == labels.inputs.size(), "one place for each operand");
  }

  /// Skips spaces. Returns the text that has not been read.
  std::string_view rest() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return text_.substr(at_);
  }
  /// Reads the word if the text goes on with it. Returns whether it does.
  bool take(std::string_view word) {
    if (!rest().starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  /// Throws InternalError unless the condition holds.
  void expect(bool condition, std::string_view what) {
    TESSERA_CHECK(condition, "labels \"{}\": {} is expected at character {}", text_, what, at_);
  }
  bool at_name() { return !rest().empty() && std::isalnum(static_cast<unsigned char>(rest()[0])); }

  std::string name() {
    expect(at_name(), "a label");
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_')) {
      ++at_;
    }
    return std::string(text_.substr(begin, at_ - begin));
  }

  /// Reads the index of an input. It is limited, because read_inputs() makes a list so long.
  size_t number() {
    const std::string digits = name();
    size_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    expect(error == std::errc() && end == digits.data() + digits.size() && value < 10000,
           "a number");
    return value;
  }

  Label label() {
    Label label{.name = name()};
    label.whole = take("!");
    label.opaque = take("*");
    return label;
  }

  LabelledOperand operand() {
    LabelledOperand operand;
    operand.added = take("+=");
    operand.linear = take("~");
    operand.shape_only = take("?");
    while (true) {
      if (take("(")) {
        auto& dim = operand.dims.emplace_back();
        while (!take(")")) dim.push_back(label());
        expect(!dim.empty(), "a label");
      } else if (at_name()) {
        operand.dims.push_back({label()});
      } else {
        return operand;
      }
    }
  }

  std::vector<std::string> tie() {
    std::vector<std::string> tied{name()};
    while (take("=")) tied.push_back(name());
    return tied;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::string_view Labels::tied(std::string_view label) const {
  for (const auto& tie : ties) {
    if (std::ranges::find(tie, label) != tie.end()) return tie.front();
  }
  return label;
}

Labels parse_labels(std::string_view text) { return LabelReader(text).read(); }

}  // namespace tessera
