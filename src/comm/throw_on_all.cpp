#include "comm/throw_on_all.h"

#include "base/error.h"

namespace tessera {

void throw_on_all(Communicator& group, const std::optional<std::string>& own_error) {
  constexpr int64_t kLongest = 1024;
  std::string text = own_error.value_or("").substr(0, kLongest - 1);
  text.resize(kLongest);  // padded with zeros: all ranks gather the same number of bytes
  std::string all(static_cast<size_t>(kLongest * group.size()), '\0');
  group.all_gather("an error of any rank", even_pieces(kLongest * group.size(), group.size()),
                   Tensor::wrap(text.data(), {kLongest}, DType::u8),
                   Tensor::wrap(all.data(), {kLongest * group.size()}, DType::u8));
  for (int position = 0; position < group.size(); ++position) {
    const std::string error = all.c_str() + position * kLongest;
    if (error.empty()) continue;
    throw Error("rank {}: {}", group.ranks()[static_cast<size_t>(position)], error);
  }
}

}  // namespace tessera
