#include <optional>
#include <sstream>

#include <gtest/gtest.h>

#include "base/file.h"

namespace tessera {
namespace {

/// The text with one space for each run of white space.
std::string words_of_text(const std::string& text) {
  std::istringstream stream(text);
  std::string result;
  for (std::string word; stream >> word;) result += (result.empty() ? "" : " ") + word;
  return result;
}

/// A block of C++ on a page.
struct Excerpt {
  std::string file;                // the last path that the page names before it
  std::vector<std::string> parts;  // between lines that are "..."
};

/// The last `src/...` in backquotes of a line.
std::optional<std::string> named_file(const std::string& line) {
  const size_t begin = line.rfind("`src/");
  if (begin == std::string::npos) return std::nullopt;
  return line.substr(begin + 1, line.find('`', begin + 1) - begin - 1);
}

std::vector<Excerpt> excerpts(const std::string& page) {
  std::vector<Excerpt> result;
  std::string file;
  bool inside = false;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (line == "```cpp") {
      result.push_back({file, {""}});
      inside = true;
    } else if (line == "```") {
      inside = false;
    } else if (!inside) {
      file = named_file(line).value_or(file);
    } else if (words_of_text(line) == "...") {
      result.back().parts.emplace_back();
    } else {
      result.back().parts.back() += line + "\n";
    }
  }
  return result;
}

TEST(ArchitecturePage, ShowsTheCodeThatThereIs) {
  const fs::path source(TESSERA_SOURCE);
  const auto found = excerpts(read_file(source / "docs" / "architecture.md"));
  EXPECT_GE(found.size(), 9U);
  for (const Excerpt& excerpt : found) {
    const std::string code = words_of_text(read_file(source / excerpt.file));
    size_t from = 0;
    for (const std::string& part : excerpt.parts) {
      const std::string words = words_of_text(part);
      const size_t at = code.find(words, from);
      ASSERT_NE(at, std::string::npos) << excerpt.file << " has not, in this order:\n" << part;
      from = at + words.size();
    }
  }
}

TEST(ArchitecturePage, NamesFilesThatThereAre) {
  const fs::path source(TESSERA_SOURCE);
  const std::string page = read_file(source / "docs" / "architecture.md");
  int count = 0;
  for (size_t at = page.find("`src/"); at != std::string::npos; at = page.find("`src/", at + 1)) {
    const std::string path = page.substr(at + 1, page.find('`', at + 1) - at - 1);
    EXPECT_TRUE(fs::exists(source / path)) << path;
    ++count;
  }
  EXPECT_GT(count, 15);
}

}  // namespace
}  // namespace tessera
