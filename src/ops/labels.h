#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera {

// Labels of operands whose number of dims or of operands varies (see program/labels.h).

/// Labels of the dims of an operand of this rank: "a b c". An operation on elements gives all its
/// operands the same ones.
std::string element_labels(int rank);

/// The labels of `count` operands, joined by `separator`. In `operand` each # becomes the number of
/// the operand: repeated("~o# i", 2, ", ") is "~o0 i, ~o1 i".
std::string repeated(std::string_view operand, size_t count, std::string_view separator = ", ");

/// The tie of labels that are numbered: tied("o#", 3) is "; o0=o1=o2", and nothing for fewer than
/// two.
std::string tied(std::string_view label, size_t count);

}  // namespace tessera
