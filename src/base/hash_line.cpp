#include "base/hash_line.h"

#include "base/error.h"
#include "base/hash.h"
#include "base/strict_json.h"

namespace tessera {
namespace {

constexpr std::string_view kFirstLine = "{\n";
constexpr std::string_view kBeforeHash = "{\n \"xxh3\": \"";
constexpr std::string_view kAfterHash = "\",\n";
constexpr size_t kHashDigits = 16;
/// The offset of the bytes that are hashed: all after the hash line.
constexpr size_t kBodyBegin = kBeforeHash.size() + kHashDigits + kAfterHash.size();

}  // namespace

std::string with_hash_line(std::string_view object) {
  TESSERA_CHECK(object.starts_with(kFirstLine), "an object does not begin with its brace");
  const std::string_view body = object.substr(kFirstLine.size());
  return fmt::format("{}{}{}{}", kBeforeHash, hash_text(hash(body)), kAfterHash, body);
}

bool has_hash_line(std::string_view text) {
  return text.size() > kBodyBegin && text.starts_with(kBeforeHash) &&
         text.substr(kBodyBegin - kAfterHash.size()).starts_with(kAfterHash);
}

void check_hash_line(std::string_view text, const std::string& origin, std::string_view advice) {
  TESSERA_CHECK(has_hash_line(text), "{} without the line of its hash", origin);
  const std::string_view stated = text.substr(kBeforeHash.size(), kHashDigits);
  const std::string found = hash_text(hash(text.substr(kBodyBegin)));
  if (stated == found) return;
  throw Error("{} is damaged or was edited: its hash is {}, its second line says {}; {}", origin,
              found, printable(stated), advice);
}

}  // namespace tessera
