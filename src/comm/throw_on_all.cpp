#include "comm/throw_on_all.h"

#include "base/error.h"

namespace tessera {

void throw_on_all(Communicator& group, const std::optional<std::string>& own_error) {
  constexpr int64_t kTextBytes = 1024;  // with a zero at the end
  std::string text = own_error.value_or("").substr(0, kTextBytes - 1);
  text.resize(kTextBytes);  // padded with zeros: all ranks gather the same number of bytes
  std::string all(static_cast<size_t>(kTextBytes * group.size()), '\0');
  group.all_gather("an error of any rank", even_pieces(kTextBytes * group.size(), group.size()),
                   Tensor::wrap(text.data(), {kTextBytes}, DType::u8),
                   Tensor::wrap(all.data(), {kTextBytes * group.size()}, DType::u8));
  for (int position = 0; position < group.size(); ++position) {
    const std::string error = all.c_str() + position * kTextBytes;
    if (error.empty()) continue;
    throw Error("rank {}: {}", group.ranks()[static_cast<size_t>(position)], error);
  }
}

}  // namespace tessera
