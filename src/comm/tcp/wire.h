#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "comm/fingerprint.h"
#include "comm/piece_layout.h"
#include "comm/tcp/tcp_socket.h"

namespace tessera {

/// Puts values together to a letter, as this machine has them in memory.
class WireWriter {
 public:
  template <typename T>
  requires std::is_trivially_copyable_v<T>
  void put(const T& value) { append(&value, sizeof value); }
  void put_text(std::string_view text) {
    put<int64_t>(std::ssize(text));
    append(text.data(), text.size());
  }
  template <typename T>
  requires std::is_trivially_copyable_v<T>
  void put_all(std::span<const T> values) {
    put<int64_t>(std::ssize(values));
    append(values.data(), values.size_bytes());
  }
  void put_mark(const Fingerprint& mark);
  void put_layout(const PieceLayout& layout);

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  void append(const void* data, size_t bytes);

  std::vector<std::byte> bytes_;
};

/// A fingerprint with the memory of its name.
struct OwnedMark {
  std::string name;
  Fingerprint mark;

  /// What the mark is while this stays in its place.
  const Fingerprint& get() {
    mark.name = name;
    return mark;
  }
};

/// Takes the values of a letter out again, in their order. Throws ConnectionLost if it ends before.
class WireReader {
 public:
  explicit WireReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
  requires std::is_trivially_copyable_v<T> T take() {
    T value;
    std::memcpy(&value, next(sizeof value), sizeof value);
    return value;
  }
  std::string take_text();
  template <typename T>
  requires std::is_trivially_copyable_v<T> std::vector<T> take_all() {
    const size_t count = take_count(sizeof(T));
    std::vector<T> values(count);
    const std::byte* from = next(count * sizeof(T));
    if (count > 0) std::memcpy(values.data(), from, count * sizeof(T));
    return values;
  }
  OwnedMark take_mark();
  PieceLayout take_layout();

 private:
  const std::byte* next(size_t bytes);
  size_t take_count(size_t size_of_each);

  std::span<const std::byte> bytes_;
};

/// A letter as it is sent, after its length.
std::vector<std::byte> letter_bytes(const WireWriter& letter);
/// Sends a letter.
void send_letter(TcpSocket& socket, const WireWriter& letter, const TcpSocket::Look& look = {});
/// Receives one into `memory`, and returns what can read it. Throws ConnectionLost if it is longer
/// than any letter of ours.
WireReader receive_letter(TcpSocket& socket, std::vector<std::byte>& memory,
                          const TcpSocket::Look& look = {});

}  // namespace tessera
