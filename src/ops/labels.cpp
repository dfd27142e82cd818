#include "ops/labels.h"

#include <string_view>

#include <fmt/format.h>

namespace tessera {

std::string element_labels(int rank) {
  std::string labels;
  for (int dim = 0; dim < rank; ++dim) {
    if (dim > 0) labels += ' ';
    labels += static_cast<char>('a' + dim);
  }
  return labels;
}

std::string repeated(std::string_view operand, size_t count, std::string_view separator) {
  std::string labels;
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) labels += separator;
    for (const char c : operand) {
      c == '@' ? labels += fmt::to_string(i) : labels += c;
    }
  }
  return labels;
}

std::string tied(std::string_view label, size_t count) {
  return count < 2 ? "" : "; " + repeated(label, count, "=");
}

}  // namespace tessera
