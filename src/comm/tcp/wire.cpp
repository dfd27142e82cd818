#include "comm/tcp/wire.h"

namespace tessera {
namespace {

/// Letters have texts and numbers of rows. Operands are not among them.
constexpr int64_t kMostLetterBytes = int64_t{64} << 20;

}  // namespace

void WireWriter::append(const void* data, size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(data);
  bytes_.insert(bytes_.end(), begin, begin + bytes);
}

void WireWriter::put_mark(const Fingerprint& mark) {
  put_text(mark.name);
  put(mark.collective);
  put(mark.sequence);
  put(mark.dtype);
  put_all(std::span<const int64_t>(mark.shape.dims()));
  put(mark.reduction);
  put(mark.from);
  put(mark.to);
  put(mark.layout);
  put(mark.layout_after);
}

void WireWriter::put_layout(const PieceLayout& layout) {
  put(layout.outer());
  put(layout.extent());
  put(layout.inner());
  put(layout.ranks());
  for (int rank = 0; rank < layout.ranks(); ++rank) put_all(layout.runs(rank));
}

const std::byte* WireReader::next(size_t bytes) {
  if (bytes > bytes_.size()) throw ConnectionLost("a letter of another kind has come");
  const std::byte* const at = bytes_.data();
  bytes_ = bytes_.subspan(bytes);
  return at;
}

/// A number of values, which the letter has.
size_t WireReader::take_count(size_t size_of_each) {
  const auto count = take<int64_t>();
  if (count < 0 || static_cast<uint64_t>(count) > bytes_.size() / size_of_each) {
    throw ConnectionLost("a letter of another kind has come");
  }
  return static_cast<size_t>(count);
}

std::string WireReader::take_text() {
  const size_t length = take_count(1);
  return {reinterpret_cast<const char*>(next(length)), length};
}

OwnedMark WireReader::take_mark() {
  OwnedMark result{.name = take_text(), .mark = {}};
  result.mark.collective = take<Collective>();
  result.mark.sequence = take<int64_t>();
  result.mark.dtype = take<DType>();
  result.mark.shape = Shape(take_all<int64_t>());
  result.mark.reduction = take<Reduction>();
  result.mark.from = take<int>();
  result.mark.to = take<int>();
  result.mark.layout = take<uint64_t>();
  result.mark.layout_after = take<uint64_t>();
  return result;
}

PieceLayout WireReader::take_layout() {
  const auto outer = take<int64_t>();
  const auto extent = take<int64_t>();
  const auto inner = take<int64_t>();
  const auto ranks = take<int>();
  std::vector<std::vector<ElementRun>> runs;
  for (int rank = 0; rank < ranks; ++rank) runs.push_back(take_all<ElementRun>());
  return {outer, extent, inner, std::move(runs)};
}

std::vector<std::byte> letter_bytes(const WireWriter& letter) {
  WireWriter whole;
  whole.put_all(letter.bytes());
  return {whole.bytes().begin(), whole.bytes().end()};
}

void send_letter(TcpSocket& socket, const WireWriter& letter, const TcpSocket::Look& look) {
  socket.send(letter_bytes(letter), look);  // in one piece, because each piece is sent at once
}

WireReader receive_letter(TcpSocket& socket, std::vector<std::byte>& memory,
                          const TcpSocket::Look& look) {
  int64_t length = 0;
  socket.receive(std::as_writable_bytes(std::span(&length, 1)), look);
  if (length < 0 || length > kMostLetterBytes) {
    throw ConnectionLost("a letter of {} bytes has come", length);
  }
  memory.resize(static_cast<size_t>(length));
  socket.receive(memory, look);
  return WireReader(memory);
}

}  // namespace tessera
