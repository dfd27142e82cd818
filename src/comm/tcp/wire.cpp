#include "comm/tcp/wire.h"

#include <algorithm>
#include <utility>

// The bytes come from another process, so each value is checked before it is used.

namespace tessera {
namespace {

/// The memory that a message gets before any of its bytes has come.
constexpr size_t kFirstMessageBytes = size_t{64} << 10;
/// The most bytes of a message. It has texts and numbers of rows, but no operands.
constexpr int64_t kMostTcpMessageBytes = int64_t{64} << 20;
constexpr std::chrono::milliseconds kMostWait = std::chrono::hours(366 * 24);  // a year

/// Returns whether numbers can be the extents of dims with at most kMostElements elements. An
/// extent of 0 counts as 1, so that the other extents are limited too.
bool are_sizes(std::span<const int64_t> sizes) {
  int64_t product = 1;
  for (const int64_t size : sizes) {
    if (size < 0 || size > kMostElements) return false;
    if (__builtin_mul_overflow(product, std::max<int64_t>(size, 1), &product)) return false;
  }
  return product <= kMostElements;
}

}  // namespace

void WireWriter::append(const void* data, size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(data);
  bytes_.insert(bytes_.end(), begin, begin + bytes);
}

void WireWriter::put_one(const Fingerprint& mark) {
  put(mark.name, mark.collective, mark.sequence, mark.dtype, mark.shape.dims(), mark.reduction,
      mark.from, mark.to, mark.layout, mark.layout_after);
}

void WireWriter::put_one(const PieceLayout& layout) {
  put(layout.outer(), layout.extent(), layout.inner(), layout.ranks());
  for (int rank = 0; rank < layout.ranks(); ++rank) put(layout.runs(rank));
}

const std::byte* WireReader::next(size_t bytes) {
  if (bytes > bytes_.size()) {
    throw BadMessage("a message ends {} bytes before it should", bytes - bytes_.size());
  }
  const std::byte* const at = bytes_.data();
  bytes_ = bytes_.subspan(bytes);
  return at;
}

/// Takes the number of values that follow. Throws BadMessage if the rest of the message is too
/// short for them, so a false number cannot make the reader allocate more.
size_t WireReader::take_count(size_t value_bytes) {
  const auto max_count = static_cast<int64_t>(bytes_.size() / value_bytes);
  return static_cast<size_t>(take_between<int64_t>(0, max_count, "a number of values"));
}

void WireReader::throw_out_of_range(std::string_view name, int64_t value, int64_t least,
                                    int64_t most) {
  throw BadMessage("a message has {} as {}, expected {} to {}", value, name, least, most);
}

void WireReader::require_end() const {
  if (!bytes_.empty()) throw BadMessage("a message has {} bytes too many", bytes_.size());
}

std::chrono::milliseconds WireReader::take_wait() {
  return std::chrono::milliseconds(take_between<int64_t>(0, kMostWait.count(), "a time to wait"));
}

std::string WireReader::take_text() {
  const size_t length = take_count(1);
  return {reinterpret_cast<const char*>(next(length)), length};
}

OwnedMark WireReader::take_mark() {
  OwnedMark result{.name = take_text(), .mark = {}};
  result.mark.collective = take_word<Collective>("a collective");
  take_into(result.mark.sequence);
  result.mark.dtype = take_enum(DType::u8, "a type of elements");
  const auto dims = take_all<int64_t>();
  if (dims.size() > Shape::kMaximumRank || !are_sizes(dims)) {
    throw BadMessage("a message has a shape that no tensor has");
  }
  result.mark.shape = Shape(dims);
  result.mark.reduction = take_word<Reduction>("a reduction");
  take_into(result.mark.from, result.mark.to, result.mark.layout, result.mark.layout_after);
  return result;
}

PieceLayout WireReader::take_layout(int ranks) {
  int64_t outer = 0, extent = 0, inner = 0;
  take_into(outer, extent, inner);
  take_between<int>(ranks, ranks, "the ranks of a layout");
  if (!are_sizes(std::array{outer, extent, inner})) {
    throw BadMessage("a message has pieces of {} x [{}] x {} elements", outer, extent, inner);
  }
  std::vector<std::vector<ElementRun>> runs;
  for (int rank = 0; rank < ranks; ++rank) {
    for (const ElementRun& run : runs.emplace_back(take_all<ElementRun>())) {
      if (run.begin < 0 || run.length < 0 || run.length > extent - run.begin) {
        throw BadMessage("a message has {} elements from {} on as a piece of {}", run.length,
                         run.begin, extent);
      }
    }
  }
  try {
    return {outer, extent, inner, std::move(runs)};
  } catch (const InternalError&) {
    throw BadMessage("a message has pieces that do not make a whole");
  }
}

std::vector<std::byte> message_bytes(const WireWriter& message) {
  const WireWriter whole(message.bytes());
  return {whole.bytes().begin(), whole.bytes().end()};
}

void send_message(TcpSocket& socket, const WireWriter& message, const TcpSocket::Look& look) {
  // The length and the values in one call: the socket sends each call at once (TCP_NODELAY).
  socket.send(message_bytes(message), look);
}

WireReader receive_message(TcpSocket& socket, std::vector<std::byte>& memory,
                           const TcpSocket::Look& look) {
  int64_t length = 0;
  socket.receive(std::as_writable_bytes(std::span(&length, 1)), look);
  if (length < 0 || length > kMostTcpMessageBytes) {
    throw BadMessage("a message of {} bytes has come, expected {} at most", length,
                     kMostTcpMessageBytes);
  }
  // The memory doubles as bytes come: a false length alone does not make this process allocate.
  memory.clear();
  for (auto remaining = static_cast<size_t>(length); remaining > 0;) {
    const size_t before = memory.size();
    const size_t next = std::min(remaining, std::max(before, kFirstMessageBytes));
    memory.resize(before + next);
    socket.receive(std::span(memory).subspan(before), look);
    remaining -= next;
  }
  return WireReader(memory);
}

}  // namespace tessera
