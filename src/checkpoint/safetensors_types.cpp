#include "checkpoint/safetensors_types.h"

#include <array>

#include "base/error.h"

namespace tessera {
namespace {

struct TypeRow {
  std::string_view name;
  int bits;
  std::optional<DType> ours;
};

constexpr std::array<TypeRow, 20> kTypes{{
    {"F64", 64, DType::f64},      {"F32", 32, DType::f32},      {"BF16", 16, DType::bf16},
    {"I32", 32, DType::i32},      {"U16", 16, DType::u16},      {"U8", 8, DType::u8},
    {"F16", 16, DType::f16},      {"I64", 64, std::nullopt},    {"U64", 64, std::nullopt},
    {"U32", 32, std::nullopt},    {"I16", 16, std::nullopt},    {"I8", 8, std::nullopt},
    {"BOOL", 8, std::nullopt},    {"C64", 64, std::nullopt},    {"F8_E4M3", 8, std::nullopt},
    {"F8_E5M2", 8, std::nullopt}, {"F8_E8M0", 8, std::nullopt}, {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt}, {"F4", 4, std::nullopt},
}};

const TypeRow* find_row(std::string_view name) {
  for (const TypeRow& row : kTypes) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

}  // namespace

std::optional<int> safetensors_bits(std::string_view name) {
  const TypeRow* row = find_row(name);
  return row == nullptr ? std::nullopt : std::optional(row->bits);
}

std::optional<DType> dtype_from_safetensors(std::string_view name) {
  const TypeRow* row = find_row(name);
  return row == nullptr ? std::nullopt : row->ours;
}

std::string_view safetensors_name(DType dtype) {
  for (const TypeRow& row : kTypes) {
    if (row.ours == dtype) return row.name;
  }
  throw InternalError("no safetensors name for " + std::string(dtype_name(dtype)));
}

}  // namespace tessera
