#include "tensor/dtype.h"

#include "base/error.h"

namespace tessera {

int64_t dtype_size(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 8;
    case DType::f32:
      return 4;
    case DType::i32:
      return 4;
    case DType::bf16:
      return 2;
    case DType::u16:
      return 2;
    case DType::u8:
      return 1;
  }
  throw InternalError("unknown DType");
}

std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "f64";
    case DType::f32:
      return "f32";
    case DType::i32:
      return "i32";
    case DType::bf16:
      return "bf16";
    case DType::u16:
      return "u16";
    case DType::u8:
      return "u8";
  }
  throw InternalError("unknown DType");
}

DType dtype_from_name(std::string_view name) {
  for (DType dtype : {DType::f64, DType::f32, DType::bf16, DType::i32, DType::u16, DType::u8}) {
    if (dtype_name(dtype) == name) return dtype;
  }
  throw Error("unknown element type '{}'; known are f64, f32, bf16, i32, u16 and u8", name);
}

bool is_floating(DType dtype) {
  return dtype == DType::f64 || dtype == DType::f32 || dtype == DType::bf16;
}

DType accumulation_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

}  // namespace tessera
