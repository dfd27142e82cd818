#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera {

// Labels name the dims of an operation's operands, which tells how ranks may split them (see
// program/labels.h). These functions write them where the number of dims or of operands varies.

/// Returns labels for the dims of a tensor of this rank: "a b c". An elementwise operation gives
/// all its operands the same ones.
std::string element_labels(int rank);

/// Returns the labels of `count` operands, joined by `separator`. Each @ in `operand` becomes the
/// operand's number, from 0: repeated("~o@ i", 2, ", ") is "~o0 i, ~o1 i". @ is no mark of labels,
/// so a text with marks can be repeated too.
std::string repeated(std::string_view operand, size_t count, std::string_view separator = ", ");

/// Returns the text that ties numbered labels, so that their dims split together: tied("o@", 3) is
/// "; o0=o1=o2". The text is empty for fewer than two labels.
std::string tied(std::string_view label, size_t count);

}  // namespace tessera
