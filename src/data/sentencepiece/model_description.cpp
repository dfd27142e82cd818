#include "data/sentencepiece/model_description.h"

#include <bit>
#include <cstring>

#include "base/error.h"

// A .model file is a protocol buffer (sentencepiece_model.proto). MessageReader reads the fields of
// one message; read_piece(), read_trainer() and read_normalizer() pick those that matter.

namespace tessera {
namespace {

enum class WireType : uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

struct Field {
  uint64_t number = 0;
  WireType type = WireType::varint;
  uint64_t value = 0;      // the value of a varint or a fixed number
  std::string_view bytes;  // the value of a field of bytes

  bool is(uint64_t wanted, WireType wanted_type) const {
    return number == wanted && type == wanted_type;
  }
};

/// A reader of the fields of one message of a protocol buffer, in the order of the file.
class MessageReader {
 public:
  MessageReader(std::string_view message, const std::string& origin)
      : rest_(message), origin_(origin) {}

  bool done() const { return rest_.empty(); }
  size_t left() const { return rest_.size(); }

  Field next() {
    const uint64_t tag = varint();
    Field field{tag >> 3, static_cast<WireType>(tag & 7), 0, {}};
    switch (field.type) {
      case WireType::varint:
        field.value = varint();
        return field;
      case WireType::fixed64:
        field.value = fixed<uint64_t>();
        return field;
      case WireType::fixed32:
        field.value = fixed<uint32_t>();
        return field;
      case WireType::bytes:
        field.bytes = take(varint());
        return field;
    }
    throw damaged();
  }

 private:
  Error damaged() const {
    return Error(
        "{} is not a SentencePiece model: expected its protocol buffer; give a .model file or the "
        "word 'bytes'",
        origin_);
  }

  std::string_view take(uint64_t size) {
    if (size > rest_.size()) throw damaged();
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1).front());
      value |= uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return value;
    }
    throw damaged();
  }

  template <typename T>
  T fixed() {
    T value = 0;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }

  std::string_view rest_;
  const std::string& origin_;
};

/// Reads an enumeration's value. A value that the format does not define leaves `target` unchanged.
template <typename T>
void read_enumeration(const Field& field, T last, T& target) {
  if (field.value >= 1 && field.value <= static_cast<uint64_t>(last)) {
    target = static_cast<T>(field.value);
  }
}

// The numbers of fields below are those of sentencepiece_model.proto.

SentencePiece read_piece(std::string_view message, const std::string& origin) {
  SentencePiece piece;
  for (MessageReader reader(message, origin); !reader.done();) {
    const Field field = reader.next();
    if (field.is(1, WireType::bytes)) piece.text = field.bytes;
    if (field.is(2, WireType::fixed32)) {
      piece.score = std::bit_cast<float>(static_cast<uint32_t>(field.value));
    }
    if (field.is(3, WireType::varint)) read_enumeration(field, PieceType::byte, piece.type);
  }
  return piece;
}

void read_trainer(std::string_view message, const std::string& origin,
                  SentencePieceDescription& description) {
  for (MessageReader reader(message, origin); !reader.done();) {
    const Field field = reader.next();
    if (field.is(3, WireType::varint)) {
      read_enumeration(field, SentencePieceAlgorithm::character, description.algorithm);
    }
    if (field.is(24, WireType::varint)) description.whitespace_as_suffix = field.value != 0;
    if (field.is(35, WireType::varint)) description.byte_fallback = field.value != 0;
  }
}

void read_normalizer(std::string_view message, const std::string& origin,
                     SentencePieceDescription& description) {
  for (MessageReader reader(message, origin); !reader.done();) {
    const Field field = reader.next();
    if (field.is(2, WireType::bytes)) description.character_map = field.bytes;
    if (field.is(3, WireType::varint)) description.adds_dummy_space = field.value != 0;
    if (field.is(4, WireType::varint)) description.removes_extra_whitespace = field.value != 0;
    if (field.is(5, WireType::varint)) description.escapes_whitespace = field.value != 0;
  }
}

}  // namespace

SentencePieceDescription read_sentencepiece_description(std::string_view model,
                                                        const std::string& origin) {
  SentencePieceDescription description;
  for (MessageReader reader(model, origin); !reader.done();) {
    const Field field = reader.next();
    if (field.is(1, WireType::bytes)) {
      description.pieces.push_back(read_piece(field.bytes, origin));
      if (description.pieces.back().text.find('\0') != std::string::npos) {
        throw Error("{} is damaged: its piece {} holds a zero byte; expected text", origin,
                    description.pieces.size() - 1);
      }
    }
    if (field.is(2, WireType::bytes)) read_trainer(field.bytes, origin, description);
    if (field.is(3, WireType::bytes)) read_normalizer(field.bytes, origin, description);
  }
  return description;
}

std::string model_of_normalized_text(std::string_view model, const std::string& origin) {
  constexpr uint64_t kSelfTest = 4;  // example texts, which the changed model encodes differently
  std::string changed;
  for (MessageReader reader(model, origin); !reader.done();) {
    const size_t before = reader.left();
    const bool kept = reader.next().number != kSelfTest;
    const size_t begin = model.size() - before;
    if (kept) changed += model.substr(begin, before - reader.left());
  }
  // If a field occurs twice, the later one counts. This message of eight bytes sets no map, no
  // dummy space, no removal of spaces and no escapes.
  return changed + std::string("\x1A\x08\x12\x00\x18\x00\x20\x00\x28\x00", 10);
}

}  // namespace tessera
