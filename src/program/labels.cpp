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
    if (!consume("->")) read_inputs(labels);
    do {
      labels.outputs.push_back(operand());
    } while (consume(","));
    if (consume(";")) {
      do {
        labels.ties.push_back(tie());
      } while (consume(","));
    }
    expect(rest().empty(), "the end");
    return labels;
  }

 private:
  void read_inputs(Labels& labels) {
    labels.terms.emplace_back();
    while (true) {
      const size_t index = consume("#") ? number() : labels.inputs.size();
      if (labels.inputs.size() <= index) labels.inputs.resize(index + 1);
      labels.terms.back().push_back(static_cast<int>(index));
      labels.inputs[index] = operand();
      if (consume(",")) continue;
      if (consume("->")) break;
      expect(consume("+"), "',', '+' or '->'");
      labels.terms.emplace_back();
    }
    size_t operand_count = 0;
    for (const auto& term : labels.terms) operand_count += term.size();
    expect(operand_count == labels.inputs.size(), "one place for each operand");
  }

  /// Skips spaces. Returns the text that has not been read.
  std::string_view rest() {
    while (next_ < text_.size() && text_[next_] == ' ') ++next_;
    return text_.substr(next_);
  }
  /// Skips the word if the text goes on with it. Returns whether it does.
  bool consume(std::string_view word) {
    if (!rest().starts_with(word)) return false;
    next_ += word.size();
    return true;
  }
  /// Throws InternalError unless the condition holds.
  void expect(bool condition, std::string_view what) {
    TESSERA_CHECK(condition, "labels \"{}\": {} is expected at character {}", text_, what, next_);
  }
  bool at_name() { return !rest().empty() && std::isalnum(static_cast<unsigned char>(rest()[0])); }

  std::string name() {
    expect(at_name(), "a label");
    const size_t begin = next_;
    while (next_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[next_])) || text_[next_] == '_')) {
      ++next_;
    }
    return std::string(text_.substr(begin, next_ - begin));
  }

  /// Reads the index of an input. The limit bounds the list that read_inputs() makes.
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
    label.whole = consume("!");
    label.opaque = consume("*");
    return label;
  }

  LabelledOperand operand() {
    LabelledOperand operand;
    operand.added = consume("+=");
    operand.linear = consume("~");
    operand.shape_only = consume("?");
    while (true) {
      if (consume("(")) {
        auto& dim = operand.dims.emplace_back();
        while (!consume(")")) dim.push_back(label());
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
    while (consume("=")) tied.push_back(name());
    return tied;
  }

  std::string_view text_;
  size_t next_ = 0;
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
