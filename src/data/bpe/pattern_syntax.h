#pragma once

#include <string>
#include <string_view>

namespace tessera {

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
