#include "comm/share.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace tessera {

Tensor byte_tensor(std::span<const uint64_t> numbers) {
  // The calls do not write to the operand that a rank gives. A Tensor cannot refer to const memory.
  return Tensor::wrap(const_cast<uint64_t*>(numbers.data()),
                      {static_cast<int64_t>(numbers.size_bytes())}, DType::u8);
}

std::vector<uint64_t> gather_numbers(Communicator& group, std::string_view name,
                                     std::span<const uint64_t> own) {
  std::vector<uint64_t> all(own.size() * static_cast<size_t>(group.size()));
  const Tensor to = byte_tensor(all);
  group.all_gather(name, even_pieces(to.elements(), group.size()), byte_tensor(own), to);
  return all;
}

std::string broadcast_text(Communicator& group, std::string_view name, int root,
                           const std::string& own) {
  std::array<uint64_t, 1> bytes{own.size()};
  group.broadcast(name, root, byte_tensor(bytes));
  std::string text = own;
  text.resize(bytes[0]);
  group.broadcast(name, root, Tensor::wrap(text.data(), {std::ssize(text)}, DType::u8));
  return text;
}

std::optional<RankText> first_text(Communicator& group, std::string_view name,
                                   const std::optional<std::string>& own) {
  const std::vector<uint64_t> have =
      gather_numbers(group, name, std::array{uint64_t{own ? 1U : 0U}});
  const auto first = std::ranges::find(have, 1U);
  if (first == have.end()) return std::nullopt;
  const auto position = static_cast<int>(first - have.begin());
  return RankText{position, broadcast_text(group, name, position, own.value_or(""))};
}

void throw_on_all(Communicator& group, const std::optional<std::string>& own_error) {
  const auto error = first_text(group, "an error of any rank", own_error);
  if (!error) return;
  throw Error("rank {}: {}", group.ranks()[static_cast<size_t>(error->position)], error->text);
}

}  // namespace tessera
