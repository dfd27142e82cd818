#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace tessera {

/// Finds the document in lines of JSON Lines.
class JsonLineParser {
 public:
  /// `text_field` is the field that holds the document. A name with dots, such as "content.text",
  /// is a field of that very name where the object has one, otherwise a field "text" of the object
  /// in the field "content". A line in which it stands twice is wrong.
  explicit JsonLineParser(std::string text_field);
  ~JsonLineParser();
  JsonLineParser(const JsonLineParser&) = delete;
  JsonLineParser& operator=(const JsonLineParser&) = delete;

  /// What is wrong with `line`, which is valid UTF-8, or an empty text and in `document` the
  /// document, which lives until the next call. Escapes of surrogates without their partners become
  /// U+FFFD and are counted in `replaced`.
  std::string parse(std::string_view line, std::string_view& document, int64_t& replaced);

 private:
  struct Parser;
  std::string text_field_;
  std::unique_ptr<Parser> parser_;
};

}  // namespace tessera
