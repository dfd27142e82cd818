#pragma once

#include <array>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "base/worded.h"
#include "comm/fingerprint.h"
#include "comm/piece_layout.h"
#include "comm/tcp/tcp_socket.h"

namespace tessera {

/// The error of received bytes that are not a message of this version: a number in them is out of
/// range, or they end early.
class BadMessage : public ConnectionLost {
 public:
  using ConnectionLost::ConnectionLost;
};

/// The most elements that a request may state for a call, of all ranks together. With this limit,
/// numbers of bytes, and sums of a few such numbers, fit into 64 bits.
inline constexpr int64_t kMostElements = int64_t{1} << 48;

/// A fingerprint that owns the text of its name.
struct OwnedMark {
  std::string name;
  Fingerprint mark;

  /// Returns the fingerprint, which refers to the name of this object.
  Fingerprint get() const {
    Fingerprint result = mark;
    result.name = name;
    return result;
  }
};

/// A writer of a message (tcp_messages.h). It appends values as this machine has them in memory:
/// the handshake refuses machines with another byte order. Texts and lists are preceded by their
/// length. Times are in milliseconds.
class WireWriter {
 public:
  /// Begins a message with these values.
  template <typename... Values>
  explicit WireWriter(const Values&... values) {
    put(values...);
  }
  template <typename... Values>
  void put(const Values&... values) {
    (put_one(values), ...);
  }

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  template <typename Value>
  void put_one(const Value& value) {
    if constexpr (std::convertible_to<Value, std::string_view>) {
      put_list(std::span(std::string_view(value)));
    } else if constexpr (std::ranges::contiguous_range<Value> && !kIsArray<Value>) {
      put_list(std::span(value));
    } else {
      static_assert(std::integral<Value> || std::is_enum_v<Value> || kIsArray<Value>);
      append(&value, sizeof value);
    }
  }
  void put_one(std::chrono::milliseconds time) { put<int64_t>(time.count()); }
  void put_one(const Fingerprint& mark);
  void put_one(const OwnedMark& mark) { put(mark.get()); }
  void put_one(const PieceLayout& layout);
  template <typename T>
  requires std::is_trivially_copyable_v<T>
  void put_list(std::span<const T> values) {
    put<int64_t>(std::ssize(values));
    append(values.data(), values.size_bytes());
  }
  void append(const void* data, size_t bytes);

  template <typename Value>
  static constexpr bool kIsArray = requires {
    std::tuple_size<Value>::value;
  };

  std::vector<std::byte> bytes_;
};

/// A reader that takes the values of a message in their order. All functions throw BadMessage if a
/// value is out of its range, or if the message ends before the value does. The caller checks
/// whether the values agree with each other.
class WireReader {
 public:
  explicit WireReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
  requires std::integral<T> &&(!std::same_as<T, bool>)T take() {
    T value;
    std::memcpy(&value, next(sizeof value), sizeof value);
    return value;
  }
  /// Takes a number from `least` to `most`. `name` names it in errors.
  template <std::integral T>
  T take_between(T least, T most, std::string_view name) {
    const T value = take<T>();
    if (value < least || value > most) throw_out_of_range(name, value, least, most);
    return value;
  }
  template <typename T, size_t size>
  std::array<T, size> take_array() {
    std::array<T, size> values;
    std::memcpy(values.data(), next(sizeof values), sizeof values);
    return values;
  }
  bool take_flag() { return take_between<uint8_t>(0, 1, "a flag") != 0; }
  /// Takes a value of an enumeration whose last value is `last`.
  template <typename Enum>
  requires std::is_enum_v<Enum> Enum take_enum(Enum last, std::string_view name) {
    using Number = std::underlying_type_t<Enum>;
    return static_cast<Enum>(take_between<Number>(0, static_cast<Number>(last), name));
  }
  template <Worded Enum>
  Enum take_word(std::string_view name) {
    return take_enum(static_cast<Enum>(kWordsOf<Enum>.size() - 1), name);
  }
  /// Takes a time to wait, of a year at most.
  std::chrono::milliseconds take_wait();
  std::string take_text();
  template <typename T>
  requires std::is_trivially_copyable_v<T> std::vector<T> take_all() {
    const size_t count = take_count(sizeof(T));
    std::vector<T> values(count);
    const std::byte* from = next(count * sizeof(T));
    if (count > 0) std::memcpy(values.data(), from, count * sizeof(T));
    return values;
  }
  /// Takes these values, one after the other.
  template <typename... Values>
  void take_into(Values&... values) {
    (take_one(values), ...);
  }
  /// Takes the last values of the message.
  template <typename... Values>
  void take_last_into(Values&... values) {
    take_into(values...);
    require_end();
  }
  /// Takes the last value of the message.
  template <typename Value>
  Value take_last() {
    Value value{};
    take_last_into(value);
    return value;
  }
  /// Takes a fingerprint whose shape has kMostElements at most.
  OwnedMark take_mark();
  /// Takes a layout for `ranks` ranks, of kMostElements at most.
  PieceLayout take_layout(int ranks);
  /// Throws BadMessage if the message has more values.
  void require_end() const;

 private:
  void take_one(std::integral auto& value) {
    value = take<std::remove_reference_t<decltype(value)>>();
  }
  void take_one(std::string& text) { text = take_text(); }
  void take_one(std::chrono::milliseconds& time) { time = take_wait(); }
  void take_one(OwnedMark& mark) { mark = take_mark(); }
  template <typename T>
  void take_one(std::vector<T>& values) {
    values = take_all<T>();
  }
  [[noreturn]] static void throw_out_of_range(std::string_view name, int64_t value, int64_t least,
                                              int64_t most);
  const std::byte* next(size_t bytes);
  size_t take_count(size_t value_bytes);

  std::span<const std::byte> bytes_;
};

/// Returns the bytes that are sent for a message: its length in 64 bits, then its values.
std::vector<std::byte> message_bytes(const WireWriter& message);
void send_message(TcpSocket& socket, const WireWriter& message, const TcpSocket::Look& look = {});
/// Receives a message into `memory`, and returns its reader. Throws BadMessage if the message is
/// longer than any message of this program.
WireReader receive_message(TcpSocket& socket, std::vector<std::byte>& memory,
                           const TcpSocket::Look& look = {});

}  // namespace tessera
